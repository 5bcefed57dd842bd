"""What the result of a run depends on, as its manifest holds it."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrion.config import Config


def manifest(config: Config) -> dict[str, Any]:
    """Return what a run's result depends on besides its config."""
    from orchestrion import __version__

    return {
        "seed": config.seed,
        "digest": config.digest,
        "versions": {
            "python": platform.python_version(),
            "orchestrion": __version__,
            **{plugin.distribution: plugin.version for plugin in config.plugins_used},
        },
        "machine": platform.machine(),
    }
