"""Presets: YAML files with the settings of agents in a role."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

from attrs import frozen

from orchestrion import JSON, UsageError
from orchestrion.config import read_as, text_as

CodeRule = Literal["leave", "require", "quote"]
Role = Literal[
    "writer", "reviewer", "refactorer", "solver", "verifier",
    "critic", "planner", "summariser", "router",
]  # fmt: skip
ROLES: tuple[Role, ...] = get_args(Role)


@frozen
class Preset:
    """The settings in a preset; see `Chat` for each. The config's settings take precedence.

    The `instructions` of a config follow those of the preset.
    """

    role: str = ""
    instructions: str = ""
    code: CodeRule = "leave"
    output: Mapping[str, JSON] | None = None
    content: str = ""
    final: str = ""


def text_of(role: Role) -> str:
    """Return the text of a role's preset."""
    return (files(__package__) / "presets" / f"{role}.yaml").read_text(encoding="utf-8")


def preset_of(role: Role | None, path: Path | None) -> Preset:
    """Return the preset of a role or in a user's file; an empty one without either.

    Raises:
        UsageError: the file cannot be read or is wrong, or both are given.
    """
    if role is not None and path is not None:
        raise UsageError("preset and preset_file are both set; remove one of them")
    if path is not None:
        return read_as(Preset, path, "preset")
    return text_as(Preset, text_of(role), f"preset {role}") if role is not None else Preset()
