"""Named points at which a test can make the process die or the disk fail.

    ORCHESTRION_FAULT="checkpoint.renamed:kill@2"   dies (SIGKILL) the second time it gets there
    ORCHESTRION_FAULT="*:kill@17"                   dies at the 17th point it passes, whichever
    ORCHESTRION_FAULT="journal.commit:enospc"       fails there once with "no space left"
    ORCHESTRION_FAULT="commit.written:stop"         stops there (SIGSTOP) until it is continued

Unset, which is always so outside tests, a point costs one comparison.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable


def _raise(number: int) -> None:
    raise OSError(number, os.strerror(number))


_ACTIONS: dict[str, Callable[[], None]] = {
    # SIGKILL cannot be caught: no handler, no `finally`, no flush runs after it.
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "enospc": lambda: _raise(errno.ENOSPC),
    "eio": lambda: _raise(errno.EIO),
}


class _Injector:
    """Counts the points passed and acts at the wanted one."""

    def __init__(self, spec: str) -> None:
        point, _, rest = spec.partition(":")
        action, _, nth = rest.partition("@")
        self._point, self._action, self._left = point, _ACTIONS[action], int(nth or 1)

    def __call__(self, name: str) -> None:
        if self._point in (name, "*"):
            self._left -= 1
            if self._left == 0:
                self._action()


def _from_environment() -> Callable[[str], None] | None:
    spec = os.environ.get("ORCHESTRION_FAULT")
    return _Injector(spec) if spec else None


_active = _from_environment()


def fault_point(name: str) -> None:
    """Mark a place at which a crash must leave a consistent state behind."""
    if _active is not None:
        _active(name)
