"""The problems that come with this task, from the files in `suite/`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from orchestrion_code_review.challenge import LEVELS, Challenge, Level, Reference, Test

__all__ = ["builtin"]


@cache
def builtin() -> tuple[Challenge, ...]:
    """All of them, the easy ones first."""
    return tuple(challenge for level in LEVELS for challenge in _of(level))


def _of(level: Level) -> tuple[Challenge, ...]:
    path = files("orchestrion_code_review") / "suite" / f"{level}.toml"
    problems = tomllib.loads(path.read_text("utf-8"))["problem"]
    return tuple(_challenge(level, one) for one in problems)


def _challenge(level: Level, one: Mapping[str, Any]) -> Challenge:
    return Challenge(
        id=one["id"],
        text=" ".join(one["text"].split()),
        entry_point=one["entry_point"],
        examples=tuple(map(Test, one["examples"])),
        tests=tuple(map(Test, one["tests"])),
        level=level,
        category=one["category"],
        solution=one["solution"],
        wrong=tuple(one["wrong"]),
        reference=Reference(**one["reference"]),
        group=one["id"],
    )
