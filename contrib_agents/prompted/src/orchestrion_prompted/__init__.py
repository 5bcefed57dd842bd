"""Agents that fill a prompt template, and how their responses are read.

`read_response` returns what a response says in one of the forms `text`, `tag` and `boxed`. It is
imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_prompted.prompted import read_response as read_response

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
