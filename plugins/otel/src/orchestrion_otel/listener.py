"""Listens to a run, and sends its episodes from threads of its own: no run waits for a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from orchestrion import Episode, Turn
from orchestrion.runs import RunReader
from orchestrion_otel.spans import facts_of, spans_of

if TYPE_CHECKING:
    from orchestrion_otel.sending import Watched

WAITING: Final = 1_000
"""Episodes that wait for a thread to make spans of them; more are left out, and counted."""
MOST: Final = 10_000
"""Episodes under way whose turns are timed."""
PATIENCE: Final = 10.0
"""Seconds that a run waits at its end for what is still to be sent."""

_Job = tuple[Episode, float, dict[int, float]]


class Listener:
    """Lifecycle hooks of a run that is traced.

    Args:
        endpoint: where to; None leaves it to OpenTelemetry.
        headers: sent with every request.
        contents: whether what was asked and answered is sent.
        exporter: sends in place of OTLP.
        served: whether the run serves; its calls are not kept then.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        contents: bool = False,
        exporter: Any = None,
        served: bool = False,
    ) -> None:
        self._served = served
        self._endpoint, self._headers = endpoint, headers
        self._contents, self._exporter = contents, exporter
        self._directory: Path | None = None
        self._note: Callable[[str], None] | None = None
        self._thread: threading.Thread | None = None
        self._jobs = SimpleQueue[_Job | None]()
        """None comes last."""
        self._ends: dict[str, dict[int, float]] = {}
        """When turns ended, by episode and index."""
        self._left_out = 0
        self._watched: Watched | None = None
        self._reader: RunReader | None = None
        self._reason = ""

    # ------------------------------------------------------------------ hooks

    def orchestrion_run_started(self, directory: Path | None, note: Callable[[str], None]) -> None:
        """Start the thread that makes spans."""
        if directory is None:
            return
        self._directory, self._note = directory, note
        self._reader = RunReader(directory)
        self._thread = threading.Thread(target=self._work, name="orchestrion-otel", daemon=True)
        self._thread.start()

    def orchestrion_turn_finished(self, episode: str, turn: Turn) -> None:
        """Note the time, for turns whose calls are not on record."""
        if self._served or not turn.output.calls:
            self._ends.setdefault(episode, {})[turn.index] = time.time()
            if len(self._ends) > MOST:  # episodes that were cut off
                del self._ends[next(iter(self._ends))]

    def orchestrion_episode_finished(self, episode: Episode) -> None:
        """Hand the episode to the thread."""
        ends = self._ends.pop(episode.id, {})
        if self._jobs.qsize() < WAITING:
            self._jobs.put((episode, time.time(), ends))
        else:
            self._left_out += 1
        if self._served:
            self._look()

    def orchestrion_iteration_finished(self) -> None:
        """Say it, once, if nothing could be sent."""
        self._ends.clear()  # of episodes that were cut off
        self._look()

    def orchestrion_run_finished(self) -> Callable[[], None] | None:
        """Return what waits for what is still to be sent, but not for long."""
        if self._thread is None:
            return None
        self._jobs.put(None)
        return partial(self._wait, self._thread, time.monotonic() + PATIENCE)

    def _wait(self, thread: threading.Thread, deadline: float) -> None:
        thread.join(max(deadline - time.monotonic(), 0))
        if thread.is_alive():
            self._reason = self._reason or f"no answer within {PATIENCE:g} s"
            self._say("was not done when the run ended")
            assert self._reader is not None
            self._reader.close()  # the database leaves files behind that somebody has open
        self._look()

    def _look(self) -> None:
        watched = self._watched
        if self._reason or (watched is not None and watched.lost):
            self._say("failed")
        elif self._left_out:
            self._reason = f"{WAITING} episodes were waiting"
            self._say("was too slow")

    def _say(self, what: str) -> None:
        """Note a sentence, if it is the first of this run."""
        if self._note is not None:
            later = f"and `orchestrion otel {self._directory}` sends them later"
            self._note(
                f"sending traces {what} ({self._reason or 'the server refused them'}); the run "
                f"goes on, {'without these' if self._served else later}"
            )
        self._note = None

    # ------------------------------------------------------------------ in the thread

    def _work(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # the run has nothing to do with it
            self._reason = f"{type(error).__name__}: {error}"

    def _send_all(self) -> None:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from orchestrion_otel.sending import Watched, exporter_of, kept_quiet, readable, resource_of

        assert self._reader is not None
        with self._reader as reader, kept_quiet() as reason:
            if self._exporter is None:
                self._watched = exporter_of(self._endpoint, self._headers)
            else:
                self._watched = Watched(self._exporter)
            run, contents = facts_of(reader), self._contents
            resource = resource_of(run)
            processor: Any = BatchSpanProcessor(self._watched)
            try:
                for episode, at, ends in iter(self._jobs.get, None):
                    spans = spans_of(
                        episode, run, reader.calls, contents=contents, at=at, ends=ends
                    )
                    for span in readable(spans, resource):
                        processor.on_end(span)
                    self._reason = reason.text
            finally:
                processor.shutdown()
                self._reason = reason.text
