"""Refuse settings that have no effect beside others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from attrs import NOTHING, Factory, fields


def refuse_idle(settings: Any, names: Collection[str], beside: str) -> None:
    """Refuse settings of a component that were given and cannot act.

    Call it from `__attrs_post_init__`. What has its default counts as not given.

    Args:
        settings: an attrs object.
        names: of the settings that cannot act.
        beside: why, as in "with `source: generated`".

    Raises:
        ValueError: names the first such setting.
    """
    for field in fields(type(settings)):
        if field.name not in names:
            continue
        default: Any = field.default
        if isinstance(default, Factory):  # type: ignore[arg-type]  # a class where it runs
            default = NOTHING if default.takes_self else default.factory()
        if getattr(settings, field.name) != default:
            raise ValueError(f"{field.name}: does nothing {beside}")
