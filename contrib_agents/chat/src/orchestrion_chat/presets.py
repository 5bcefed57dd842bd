"""Roles as data: a preset is a YAML file with the settings of an agent in that role."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

from attrs import frozen

from orchestrion import JSON, UsageError
from orchestrion.config import read_as, text_as

__all__ = ["ROLES", "CodeRule", "Preset", "Role", "preset_of", "text_of"]

CodeRule = Literal["leave", "require", "quote"]
Role = Literal[
    "writer",
    "reviewer",
    "refactorer",
    "solver",
    "verifier",
    "critic",
    "planner",
    "summariser",
    "router",
]
ROLES: tuple[Role, ...] = get_args(Role)


@frozen
class Preset:
    """What a file of a role says; see `Chat` for what each means. What a config gives wins.

    `instructions` of a config come after those of the preset.
    """

    role: str = ""
    instructions: str = ""
    code: CodeRule = "leave"
    output: Mapping[str, JSON] | None = None
    content: str = ""
    final: str = ""


def text_of(role: Role) -> str:
    """The file of a role, as it ships."""
    return (files(__package__) / "presets" / f"{role}.yaml").read_text(encoding="utf-8")


def preset_of(role: Role | None, path: Path | None) -> Preset:
    """The preset of a role, or the one in a file of the user's; an empty one without either.

    Raises:
        UsageError: the file cannot be read, or is not of this form; or both are given.
    """
    if role is not None and path is not None:
        raise UsageError("preset and preset_file: give one of them")
    if path is not None:
        return read_as(Preset, path, "preset")
    return _builtin(role) if role is not None else Preset()


@cache
def _builtin(role: Role) -> Preset:
    return text_as(Preset, text_of(role), f"preset {role}")
