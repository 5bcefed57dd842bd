"""Compare two expressions in another process."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from threading import Lock

from orchestrion import RunError

PATIENCE = 300.0
"""Seconds after which a process that does not answer counts as broken."""


class Grader:
    """A process that starts on first use, and again after an expression ended it.

    Args:
        seconds: of processor time for one comparison; what takes longer is unequal.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()

    def equal(self, given: str, wanted: str) -> bool:
        """Return whether two LaTeX expressions are equal; False if that takes too much.

        Raises:
            RunError: the process cannot be started, or does not answer.
        """
        with self._lock:
            process = self._process or self._started()
            reply = self._ask(process, json.dumps([given, wanted, self.seconds]))
            if not reply:
                self._end()
            return reply == "true"

    def _started(self) -> subprocess.Popen[str]:
        # -P: a module in the working folder must not replace the library.
        self._process = process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrion_math.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        if self._line(process) != "ready":
            self._end()
            raise RunError(
                "task math: the process that compares expressions does not start; try "
                "`python -m orchestrion_math.worker`, which says why"
            )
        return process

    def _ask(self, process: subprocess.Popen[str], line: str) -> str:
        assert process.stdin is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self._line(process)

    def _line(self, process: subprocess.Popen[str]) -> str:
        """Return the next line; "" if the process has ended."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        if not ready:
            self._end()
            raise RunError(f"task math: no word for {PATIENCE:g} s from who compares expressions")
        return process.stdout.readline().strip()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()
