"""Speakers from a file, outside of a run: `speakers:` as in a config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrion.config import read_section
from orchestrion_offline.interfaces import Speaker

__all__ = ["SHIPPED", "read_speakers"]

SHIPPED = ("echo", "scripted", "solver", "reviewer", "coder", "coach", "judge", "router")
"""Served where no file says what is."""


def read_speakers(path: Path | None) -> Mapping[str, Speaker]:
    """Speakers by name.

    Args:
        path: a YAML or TOML file with the section `speakers`; None is all that are shipped, as
            they come.

    Raises:
        ConfigError: everything that is wrong with the file.
    """
    shipped = {"speakers": {name: {"use": f"orchestrion-offline:{name}"} for name in SHIPPED}}
    return read_section("speaker", shipped if path is None else path)
