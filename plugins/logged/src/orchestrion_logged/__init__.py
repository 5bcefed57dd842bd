"""Logged decisions: read and write them, learn from them, and evaluate other policies on them.

Public: the records of a log. They are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_logged.records import Context as Context
    from orchestrion_logged.records import Logged as Logged
    from orchestrion_logged.records import LogWriter as LogWriter
    from orchestrion_logged.records import read_log as read_log

__getattr__, __dir__, __all__ = names_on_first_use(
    __name__,
    {
        "orchestrion_logged.records": "Context LogWriter Logged read_log",
    },
)
