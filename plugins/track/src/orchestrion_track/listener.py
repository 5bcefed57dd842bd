"""Listens to a run, and has another process send it: no tracker takes time of a training.

The process reads the run folder, so that nothing has to be handed to it, and nothing is lost if the
tracker is away for a while. It ends when its standard input ends: with the run, however that ends.
It reports on its standard output, a line each: `busy TIME`, `idle`, or `failed TEXT`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from select import select

from attrs import asdict

from orchestrion import hidden
from orchestrion_track.follow import FOLDER
from orchestrion_track.interfaces import Tracker


class Listener:
    """Lifecycle hooks of a run that is tracked."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._process: subprocess.Popen[bytes] | None = None
        self._note: Callable[[str], None] | None = None
        self._directory: Path | None = None
        self._busy: float | None = None
        """Since when the tracker has been asked something; None if it has answered."""
        self._rest = b""

    def orchestrion_run_started(self, directory: Path | None, note: Callable[[str], None]) -> None:
        """Start the process that sends."""
        if directory is None:
            return
        self._note, self._directory = note, directory
        try:
            self._process = self._start(directory)
        except OSError as error:
            self._say(f"cannot be started: {error}")

    def orchestrion_iteration_finished(self) -> None:
        """Say it, once, if the tracker failed or does not answer."""
        self._look()

    def orchestrion_run_finished(self) -> Callable[[], None] | None:
        """Return what waits for what is still to be sent, as long as the tracker answers."""
        process = self._process
        if process is None:
            return None
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        return partial(self._wait, process, time.monotonic() + self._tracker.patience)

    def _wait(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        assert process.stdout is not None
        while process.poll() is None and not self._stuck() and time.monotonic() < deadline:
            select([process.stdout], [], [], 0.1)
            self._look()
        if process.poll() is None:
            process.kill()
            self._say("was not done when the run ended")
        process.wait()
        self._look()
        process.stdout.close()
        self._process = None

    def _start(self, directory: Path) -> subprocess.Popen[bytes]:
        cls = type(self._tracker)
        order = {
            "directory": str(directory.absolute()),
            "tracker": f"{cls.__module__}:{cls.__qualname__}",
            "settings": asdict(self._tracker),
            "path": [str(Path(place).absolute()) for place in sys.path],
        }
        # Secrets may be among the settings: they go through the pipe, not the command line.
        text = json.dumps(order, default=str).encode() + b"\n"
        folder = directory / FOLDER
        folder.mkdir(exist_ok=True)
        with (folder / f"{self._tracker.label}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "orchestrion_track.writer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the run, which then closes the pipe
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text)
        process.stdin.flush()
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def _look(self) -> None:
        """Read what the process reports, without waiting for it."""
        process = self._process
        if process is None:
            return
        assert process.stdout is not None
        while data := process.stdout.read():
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                word, _, text = line.decode(errors="replace").partition(" ")
                self._busy = float(text) if word == "busy" else None
                if word == "failed":
                    self._say(f"failed: {text}")
        if self._stuck():
            self._say(f"has not answered for {self._tracker.patience:g} s")
        elif process.poll():
            self._say(f"ended with exit code {process.returncode}")

    def _stuck(self) -> bool:
        return self._busy is not None and time.monotonic() - self._busy > self._tracker.patience

    def _say(self, text: str) -> None:
        """Note a sentence, if it is the first of this run."""
        if self._note is not None:
            sentence = (
                f"the tracker {self._tracker.label} {text}; the run goes on without it, and "
                f"`orchestrion track {self._directory}` sends what is missing"
            )
            self._note(hidden(sentence))
        self._note = None
