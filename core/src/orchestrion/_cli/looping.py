"""Run an event loop that components cannot block unnoticed or keep from ending.

A thread checks that the loop runs callbacks. It names what blocks the loop, and ends the process
if that takes longer than `run.timeout`, or if an interrupted command does not end. What is stored
by then stays, as after a `kill -9`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrion._cli.common import note
from orchestrion._cli.signals import end_process, flush, left_behind
from orchestrion._errors import RunError
from orchestrion._importing import printing_aside, reason_of
from orchestrion._interrupts import Interrupted, Terminated, from_outside

if TYPE_CHECKING:
    from orchestrion._engine.blocking import Work

T = TypeVar("T")
OnEnd = Callable[[str], None]

TICK = 0.25
PATIENCE = 5.0
"""Seconds that one call of a component may block the loop before a note names it."""
IMPORTING = 60.0
"""Seconds that imports may take, which do not count as silence: they are slow at first, and slower
on a busy machine."""
GRACE = 10.0
"""Seconds that an interrupted command has to end while its loop runs."""
NUDGE = getattr(signal, "SIGURG", 0)
"""An otherwise unused signal: it cuts off the system call that the main thread waits in."""


def in_loop(work: Coroutine[Any, Any, T], on_end: OnEnd | None = None) -> T:
    """Run a coroutine to its end; SystemExit and the like of plugins become errors.

    Args:
        work: cancelled by the first Ctrl-C or SIGTERM, abandoned at the second.
        on_end: called in another thread before the process is ended from outside the loop, with
            the error as text; with an empty text after an interrupt.

    Raises:
        Interrupted: Ctrl-C was pressed, or, as `Terminated`, a SIGTERM came.
        RunError: something raised SystemExit or the like, whose exit code is not ours.
    """
    supervisor = _Supervisor(on_end)
    try:
        with printing_aside(), supervisor, asyncio.Runner() as runner:
            try:
                return runner.run(supervisor.supervised(work))
            except (KeyboardInterrupt, SystemExit):
                runner.get_loop().set_exception_handler(_ignore)  # it is reported below
                raise
    except BaseException as error:
        if supervisor.interrupt is not None and isinstance(error, asyncio.CancelledError):
            raise supervisor.interrupt from None
        if isinstance(error, (Exception, asyncio.CancelledError)) or from_outside(error):
            raise
        raise RunError(f"a component raised {reason_of(error)}") from error


def _ignore(*_: object) -> None:
    pass


@contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set the event at the first SIGTERM or Ctrl-C; the next one does what it did before."""
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)

    def stopping(number: int, frame: object) -> None:
        restore()
        loop.call_soon_threadsafe(stop.set)

    with suppress(ValueError):  # not in the main thread
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, stopping)
    try:
        yield
    finally:
        restore()


class _Supervisor:
    """The thread beside the loop, and the signal handlers."""

    def __init__(self, on_end: OnEnd | None) -> None:
        self.interrupt: Interrupted | None = None
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._thread = threading.get_ident()
        self._stop = threading.Event()
        self._handlers: dict[int, Any] = {}
        # Seconds counted by the watching thread: time in which the process was stopped is left out.
        self._silent = self._importing = self._since_interrupt = self._same = 0.0
        self._probing = self._ending = False
        self._blocking: Work | None = None
        self._named: set[str] = set()
        self._watcher: threading.Thread | None = None
        self._arrivals: tuple[int, ...] = ()
        self._wakeup = -1

    def __enter__(self) -> None:
        self._threads = set(threading.enumerate())
        self._fork = os.fork if hasattr(os, "fork") else None
        if self._fork is not None:
            os.fork = self._guarded_fork
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # not in the main thread
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, self._signalled)
        if self._handlers and hasattr(signal, "pthread_kill"):
            # The signal itself cuts a blocking system call off.
            self._handlers[NUDGE] = signal.signal(NUDGE, _ignore)
            self._arrivals = os.pipe()
            for end in self._arrivals:
                os.set_blocking(end, False)
            self._wakeup = signal.set_wakeup_fd(self._arrivals[1], warn_on_full_buffer=False)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._arrivals:
            signal.set_wakeup_fd(self._wakeup)
        if self._fork is not None:
            os.fork = self._fork
        if getattr(signal, "SIGALRM", None) in self._handlers:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._watcher is not None:
            self._watcher.join(PATIENCE)
        if self._watcher is None or not self._watcher.is_alive():  # else it may still read
            for end in self._arrivals:
                os.close(end)
        new = set(threading.enumerate()) - self._threads
        left_behind.extend(thread for thread in new if not thread.daemon)

    async def supervised(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work while the watching thread runs."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._guard_loop(self._loop)
        self._watcher = threading.Thread(target=self._watch, name="orchestrion-watch", daemon=True)
        self._watcher.start()
        return await work

    # ------------------------------------------------------------------ what would end the loop

    def _guard_loop(self, loop: Any) -> None:
        stop = loop.stop

        def guarded_stop() -> None:
            if sys._getframe(1).f_globals.get("__name__") != "asyncio.base_events":
                raise RuntimeError("loop.stop() would end the run; return from act() instead")
            stop()

        # Without this, asyncio would wait for threads that never end.
        executor = ThreadPoolExecutor(thread_name_prefix="asyncio")

        async def shutdown(*limit: object) -> None:
            executor.shutdown(wait=False, cancel_futures=True)

        loop.stop, loop.shutdown_default_executor = guarded_stop, shutdown
        loop.set_default_executor(executor)

    def _guarded_fork(self) -> int:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.partition(".")[0] not in ("multiprocessing", "os", "pty"):
            raise RuntimeError("os.fork() would run everything twice; use subprocess instead")
        assert self._fork is not None
        return self._fork()

    # ------------------------------------------------------------------ signals

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self.interrupt is not None:
            self._end("", self.interrupt.exit_code)
        self.interrupt = Terminated() if number == signal.SIGTERM else Interrupted()
        if self._loop is None or self._task is None or self._loop.is_closed():
            raise self.interrupt
        # Errors from now on are consequences of the cancellation.
        self._loop.set_exception_handler(_ignore)
        self._loop.call_soon_threadsafe(self._task.cancel)
        if hasattr(signal, "setitimer"):
            # C code that holds the interpreter lock (a regular expression that backtracks) stops
            # the watching thread as well, but signals are still handled.
            self._handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._too_late)
            signal.setitimer(signal.ITIMER_REAL, GRACE + PATIENCE)

    def _too_late(self, number: int, frame: FrameType | None) -> None:
        assert self.interrupt is not None
        self._end(self._still_at_work(), self.interrupt.exit_code)

    # ------------------------------------------------------------------ the thread

    def _watch(self) -> None:
        while not self._stop.wait(TICK):
            self._nudge()
            self._look()

    def _nudge(self) -> None:
        """Get a signal handled that came just before the main thread entered a blocking call.

        Python handles a signal between two instructions. One that comes after the last of these
        and before the system call does not cut that call off, and would wait for its end.
        """
        with suppress(BlockingIOError):
            if self._arrivals and {*os.read(self._arrivals[0], 4096)} - {NUDGE}:
                signal.pthread_kill(self._thread, NUDGE)

    def _look(self) -> None:
        if not self._probing:
            self._probing = True
            with suppress(RuntimeError):  # the loop was closed in between
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._alive)
        self._silent += TICK
        if self.interrupt is not None:
            self._since_interrupt += TICK
            if self._since_interrupt >= (PATIENCE if self._silent >= PATIENCE else GRACE):
                self._end(self._still_at_work(), self.interrupt.exit_code)
        elif self._silent > TICK:
            self._name_blocking()

    def _alive(self) -> None:
        self._probing, self._blocking, self._silent = False, None, 0.0

    def _name_blocking(self) -> None:
        if not hasattr(sys.modules.get("orchestrion._engine.episode"), "Engine"):
            return  # no component is at work yet, and two threads must not import the engine
        from orchestrion._engine.blocking import of_stack

        work = of_stack(self._thread)
        if self._blocking is None or self._blocking.frame is not work.frame:
            # Many short steps, one after another, keep the loop from nothing but each other.
            self._blocking, self._same, self._importing = work, 0.0, 0.0
        self._same += TICK
        self._importing += TICK * work.imports
        seconds = self._importing if work.imports else self._same - self._importing
        # A trainer computes between its episodes: there is nothing that it holds up.
        watched = work.who and not work.who.startswith("trainer") and work.who not in self._named
        if watched and seconds >= (IMPORTING if work.imports else PATIENCE):
            self._named.add(work.who)
            what = "been importing modules" if work.imports else "blocked the event loop"
            advice = "; a plain `def act` would be run in a thread"
            note(
                f"{work} has {what} for {seconds:.0f} s: nothing else of the run goes on meanwhile"
                f"{advice if work.who.startswith('agents.') else ''}"
            )
        if work.limit is not None and self._same >= work.limit + PATIENCE:
            self._end(
                f"{work} has held up the run for longer than the {work.limit:g} s that "
                "run.timeout gives it, and cannot be cut off",
                RunError.exit_code,
            )

    def _still_at_work(self) -> str:
        from orchestrion._engine.blocking import of_stack, of_task

        if self._silent >= PATIENCE:
            names = {str(of_stack(self._thread))}
        else:
            with suppress(RuntimeError):  # tasks come and go in the other thread
                names = {of_task(task) for task in asyncio.all_tasks(self._loop)}
        who = ", ".join(sorted(filter(None, names))) or "a task of a component"
        return f"{who}: still at work {self._since_interrupt:g} s after the interrupt; left behind"

    def _end(self, message: str, code: int) -> None:
        """End the process with the loop as it is."""
        if self._ending:
            return
        self._ending = True
        ended = self.interrupt is not None

        def report() -> None:
            if message:
                note(message if ended else f"error: {message}")
            if self._on_end is not None:
                self._on_end("" if ended else message)
            if ended:
                note("interrupted")
            flush()

        # Printing may wait for a lock of the blocked thread, and must not wait long.
        last = threading.Thread(target=report, daemon=True)
        last.start()
        last.join(PATIENCE)
        end_process(code)
