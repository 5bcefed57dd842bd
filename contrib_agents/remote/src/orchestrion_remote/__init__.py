"""Agents on other machines, and the server they run in; see the README.

Names are imported on first use, so that listing plugins imports neither gRPC nor an HTTP library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_remote.server import Agents as Agents
    from orchestrion_remote.server import Serving as Serving
    from orchestrion_remote.server import Settings as Settings
    from orchestrion_remote.server import serving as serving

__getattr__, __dir__, __all__ = names_on_first_use(__name__)

__version__ = "0.2.0"
