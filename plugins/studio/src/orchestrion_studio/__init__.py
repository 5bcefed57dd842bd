"""Show runs in a browser: while they train, and afterwards.

    app = create_app(Path("runs"), token=None)  # an ASGI application

Public names are imported on first use, so that listing plugins stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_studio.app import create_app as create_app
    from orchestrion_studio.drawing import plot_of as plot_of
    from orchestrion_studio.drawing import series_of as series_of
    from orchestrion_studio.panels import Panel as Panel

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
