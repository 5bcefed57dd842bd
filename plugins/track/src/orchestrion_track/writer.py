"""The process that sends a run to a tracker; `listener` starts it."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from orchestrion import hidden, load_object
from orchestrion_track.follow import follow
from orchestrion_track.interfaces import Tracker

STDIN = 0


def main() -> int:
    """Do what the first line of standard input says; return the exit code."""
    os.nice(5)  # the run comes first
    report = os.dup(1)
    os.dup2(2, 1)  # what libraries print goes to the log
    order = json.loads(_line())
    sys.path[:] = order["path"]
    tracker: Tracker = load_object(order["tracker"], "tracker")(**order["settings"])
    for name in tracker.needs:
        importlib.import_module(name)  # takes seconds in which no tracker is asked anything

    def say(text: str) -> None:
        with suppress(OSError):  # the run may be gone: what is left is sent all the same
            os.write(report, text.encode() + b"\n")

    def busy(now: bool) -> None:
        say(f"busy {time.monotonic()}" if now else "idle")

    end = _End(tracker.patience)
    last = False
    while True:
        try:
            follow(Path(order["directory"]), tracker, end, busy)
            return 0
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            say(f"failed {hidden(text)[:500]}")
        if last:
            return 1
        last = end(tracker.patience)  # then it is tried again, with what is missing by then


def _line() -> bytes:
    """Return the first line of standard input, and nothing of what is behind it."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(STDIN, 65536)
        if not part:
            raise SystemExit(0)
        line += part
    return line


class _End:
    """Knows whether the run has ended; the process ends `patience` later, whatever hangs then."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self, seconds: float) -> bool:
        """Wait at most so long for the end, and return whether it has come."""
        return self._ended.wait(seconds)

    def _watch(self) -> None:
        while os.read(STDIN, 65536):
            pass
        self._ended.set()
        time.sleep(self._patience)
        os._exit(1)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # no library's own farewell may hang
