"""Serve trained teams over HTTP, in the format of OpenAI's chat completions.

    async with open_run("runs/team") as team, serving({"team": team}) as server:
        print(server.address)  # http://127.0.0.1:41753

Public names are imported on first use, so that listing plugins stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_serve.in_use import UseSettings as UseSettings
    from orchestrion_serve.in_use import using as using
    from orchestrion_serve.keys import Keys as Keys
    from orchestrion_serve.requests import Settings as Settings
    from orchestrion_serve.server import Serving as Serving
    from orchestrion_serve.server import serving as serving

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
