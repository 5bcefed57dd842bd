"""Where improvers find what they may change."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrion import JSON, Session

__all__ = ["changes", "path_of", "places", "plain"]

SECTION = "agents."


def path_of(role: str, setting: str) -> str:
    """The config path of a role's setting."""
    return f"{SECTION}{role}.{setting}"


def changes(overlay: Mapping[str, JSON], session: Session) -> dict[str, JSON]:
    """What of an overlay would change a setting."""
    now = session.learnable()
    return {path: value for path, value in overlay.items() if plain(now[path]) != value}


def plain(value: JSON) -> JSON:
    """A setting as it stands in an overlay."""
    return list(value) if isinstance(value, tuple) else value


def places(session: Session, setting: str) -> list[str]:
    """The agents that have a learnable setting of this name, in the order of the config.

    Agents defined inside another component are found too, by what follows `agents.`.
    """
    return [
        path[len(SECTION) : -len(setting) - 1]
        for path in session.learnable()
        if path.startswith(SECTION) and path.endswith(f".{setting}")
    ]
