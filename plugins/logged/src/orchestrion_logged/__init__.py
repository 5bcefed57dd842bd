"""Logged decisions: read and write them, learn from them, and evaluate other policies on them.

Public: the records of a log, and of a served team's log; and the lock of what one server writes.
They are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_logged.edges import EdgeEpisode as EdgeEpisode
    from orchestrion_logged.edges import EdgeLog as EdgeLog
    from orchestrion_logged.reading import Log as Log
    from orchestrion_logged.reading import read as read
    from orchestrion_logged.reading import read_log as read_log
    from orchestrion_logged.records import Context as Context
    from orchestrion_logged.records import Logged as Logged
    from orchestrion_logged.records import LogWriter as LogWriter
    from orchestrion_logged.served import Feedback as Feedback
    from orchestrion_logged.served import ServedLog as ServedLog
    from orchestrion_logged.served import ServedRequest as ServedRequest
    from orchestrion_logged.served import ServedStep as ServedStep
    from orchestrion_logged.served import locked as locked

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
