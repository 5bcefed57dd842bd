"""Watch plugin code: what it draws, how long it blocks, what it connects to and changes."""

from __future__ import annotations

import math
import random
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import attrs

from orchestrion._engine.budget import inside
from orchestrion._engine.calls import ActivationCalls
from orchestrion._keys import Key
from orchestrion._offline import attempts
from orchestrion._records import Trajectory

# ---------------------------------------------------------------------------- random numbers


@attrs.define
class Draws:
    """Where random numbers came from while plugin code ran."""

    keys: Counter[tuple[str, bytes]] = attrs.field(factory=Counter)
    """How often each method of each key was called."""
    seeds: set[Any] = attrs.field(factory=set)
    """States of generators at their first use, and seeds of numpy's generators."""
    shared: set[str] = attrs.field(factory=set)  # generators of the whole process that were used
    others: int = 0  # how many calls to other components are running: their draws are not recorded

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Record no draws meanwhile: other components run."""
        self.others += 1
        try:
            yield
        finally:
            self.others -= 1

    def check_own(self, what: str) -> None:
        """Fail if a generator of the whole process was used."""
        assert not self.shared, (
            f"{what} draws from {' and '.join(sorted(self.shared))}, which the process "
            "shares, so that a run cannot be repeated; draw from the key it is given, e.g. "
            "key.random().random()"
        )

    def check_once(self, what: str) -> None:
        """Fail if one key was drawn from twice by the same method."""
        again = [method for (method, _), times in self.keys.items() if times > 1]
        assert not again, (
            f"{what} draws twice from the same key ({', '.join(sorted(set(again)))}), which gives "
            "the same numbers twice; name each draw: key.child('first'), key.child('second')"
        )

    def check_apart(self, other: Draws, what: str, keys: str = "two different keys") -> None:
        """Fail if this and `other`, made with different keys, drew the same numbers."""
        same = +self.keys & +other.keys or self.seeds & other.seeds
        assert not same, (
            f"{what} draws the same random numbers for {keys}: it ignores the key it is given "
            "and uses a seed or a key of its own; draw from the key, or from a child of it"
        )


_DRAWS = ("random", "getrandbits")
_PROCESS = random.random.__self__  # type: ignore[attr-defined]


@contextmanager
def drawing() -> Iterator[Draws]:
    """Record the draws made meanwhile, in this thread and in those that it starts."""
    draws = Draws()
    known: dict[int, random.Random] = {}
    watching = True

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event != "c_call" or not watching or draws.others:
            return
        owner = getattr(argument, "__self__", None)
        if not isinstance(owner, random.Random) or argument.__name__ not in _DRAWS:
            return
        if owner is _PROCESS:
            # What an attempt at a call draws, e.g. for the id of a request, changes no repetition:
            # that has the recorded answer.
            if not inside.get() and not _importing(frame):
                draws.shared.add("the module `random`")
        elif id(owner) not in known and not isinstance(owner, random.SystemRandom):
            known[id(owner)] = owner
            draws.seeds.add(owner.getstate())

    numpy: Any = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    before = _states(numpy, torch)
    with ExitStack() as undo:
        for name in ("integer", "uniforms", "uniform", "random"):
            undo.enter_context(patch.object(Key, name, _counted(name, draws)))
        for name in ("default_rng", "seed") if numpy is not None else ():
            seeded = _seeded(getattr(numpy.random, name), name, draws)
            undo.enter_context(patch.object(numpy.random, name, seeded))
        # Plain `act` functions run in a thread of their own.
        for set_profile in (sys.setprofile, threading.setprofile):
            undo.callback(set_profile, sys.getprofile())
        sys.setprofile(profile)
        threading.setprofile(profile)
        try:
            yield draws
        finally:
            watching = False
    after = _states(numpy, torch)
    draws.shared |= {name for name in before if before[name] != after[name]}


def _importing(frame: Any) -> bool:
    """Return whether a module is being imported: draws of its code are not the component's."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def _states(numpy: Any, torch: Any) -> dict[str, bytes]:
    """Return the states of the process's generators, by their names in messages."""
    states = {}
    if numpy is not None:
        _, words, place, *_ = numpy.random.get_state()
        states["`numpy.random`"] = words.tobytes() + bytes(str(place), "ascii")
    if torch is not None:
        states["torch's default generator"] = torch.random.get_rng_state().numpy().tobytes()
    return states


def _counted(name: str, draws: Draws) -> Callable[..., Any]:
    """Return a method of `Key` that records every call of it."""
    plain = getattr(Key, name)

    def method(self: Key, *args: Any) -> Any:
        draws.keys[name, self.digest] += not draws.others
        return plain(self, *args)

    return method


def _seeded(plain: Callable[..., Any], name: str, draws: Draws) -> Callable[..., Any]:
    """Return a function of numpy that records the seeds it is given."""

    def make(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(seed, int) and not draws.others:
            draws.seeds.add((name, seed))
        return plain(seed, *args, **kwargs)

    return make


async def check_draws(what: str, prepare: Callable[[Key], Callable[[], Any]]) -> None:
    """Fail if a method draws from elsewhere than its key, or twice the same numbers from it.

    What is watched is the call that `prepare` returns for a key.
    """
    draws = []
    for key in (Key(3), Key(4)):
        work = prepare(key)
        with drawing() as watched:
            result = work()
            if isinstance(result, Awaitable):
                await result
        draws.append(watched)
    first, second = draws
    first.check_own(what)
    first.check_once(what)
    first.check_apart(second, what)


# ---------------------------------------------------------------------------- time


ASLEEP = 0.1
"""Seconds asleep, or waiting for a file, lock or process, in one step of the event loop."""
COMPUTING = 0.1
"""Seconds of processor time in one step, on a machine on which `_spin` takes `_NOMINAL`."""
_NOMINAL = 0.004  # seconds of processor time that `_spin` takes on a machine of today
_TOGETHER = 0.005  # seconds within which clocks are read that belong together
ATTEMPTS = 4

Steps = list[tuple[float, float]]
"""For each step of a piece of work: the seconds asleep, and those of computing."""


def _clocks() -> tuple[float, float]:
    """Return for how many seconds this thread has been asleep, and for how many it has computed.

    The time it waited for a processor is neither: a busy machine changes nothing. Where the thread
    loses the processor between two clocks, they do not belong together, and are read again.
    """
    for _ in range(100):
        now = time.perf_counter()
        computed, queued = time.thread_time(), _queued()
        if time.perf_counter() - now < _TOGETHER:
            break
    return now - computed - queued, computed


def _queued() -> float:
    """Return the seconds this thread waited for a processor; 0 where that is not known."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@contextmanager
def _step(steps: Steps) -> Iterator[None]:
    """Time a step of this thread."""
    before = _clocks()
    try:
        yield
    finally:
        asleep, computed = _clocks()
        steps.append((asleep - before[0], computed - before[1]))


def _is_long(computing: float) -> bool:
    """Return whether a step computes for long, as fast as this machine is just now."""
    return computing >= COMPUTING and computing / min(_spin() for _ in range(3)) >= (
        COMPUTING / _NOMINAL
    )


def _spin() -> float:
    started, total = time.thread_time(), 0
    for i in range(100_000):
        total += i
    return time.thread_time() - started


@types.coroutine
def _paced(work: Coroutine[Any, Any, Any], steps: Steps) -> Generator[Any, Any, Any]:
    """Await a coroutine and time its steps."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            with _step(steps):
                waits_for = work.send(value) if error is None else work.throw(error)
        except StopIteration as stop:
            return stop.value
        try:
            value, error = (yield waits_for), None
        except BaseException as caught:
            value, error = None, caught


async def check_pace(what: str, work: Callable[[], Any], advice: str) -> None:
    """Run a method several times; fail, with advice, if it blocks the event loop each time.

    A single slow run may import a library.
    """
    for _ in range(ATTEMPTS):
        steps: Steps = []
        with _step(steps):
            result = work()
        if isinstance(result, Coroutine):
            await _paced(result, steps)
        asleep, computing = map(max, zip(*steps, strict=True))
        if asleep < ASLEEP and not _is_long(computing):
            return
    if asleep >= ASLEEP:
        waited = f"slept or waited for {asleep:.2f} s"
    else:
        waited = f"computed for {computing:.2f} s"
    raise AssertionError(
        f"{what} blocks the event loop: it {waited} in one step, in each of {ATTEMPTS} attempts, "
        f"and every other episode stands still meanwhile; {advice}"
    )


# ---------------------------------------------------------------------------- network, changes


@contextmanager
def offline(what: str) -> Iterator[None]:
    """Refuse the network outside `calls.run`, and fail if it was used; `what` names whose code."""
    plain, asked, tried = ActivationCalls.run, 0, set[str]()

    def refuse(host: str) -> None:
        if not asked:
            tried.add(host)
            raise ConnectionRefusedError(f"{host}: the conformance kit allows no network here")

    async def run(self: ActivationCalls, *args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        asked += 1
        try:
            return await plain(self, *args, **kwargs)
        finally:
            asked -= 1

    try:
        with patch.object(ActivationCalls, "run", run), attempts(refuse):
            yield
    finally:
        assert not tried, (
            f"{what} uses the network ({', '.join(sorted(tried))}) outside `calls.run`, where "
            "nothing is recorded, limited or paid for; do it in the `do` of calls.run(request, do)"
        )


def snapshot(value: Any, depth: int = 24) -> Any:
    """Return a value as plain, comparable data, whatever it is made of; NaN equals NaN.

    Two snapshots of one object differ exactly if something in it changed.
    """
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return value
    if depth == 0:
        return type(value).__name__
    if isinstance(value, Mapping):
        pairs = [(snapshot(k, depth - 1), snapshot(v, depth - 1)) for k, v in value.items()]
        return ("mapping", tuple(sorted(pairs, key=repr)))
    if isinstance(value, Trajectory):
        return ("trajectory", tuple(snapshot(turn, depth - 1) for turn in value.turns))
    if isinstance(value, Sequence):
        # A list and a tuple are the same array once they are JSON.
        return tuple(snapshot(item, depth - 1) for item in value)
    if isinstance(value, AbstractSet):
        return ("set", tuple(sorted(repr(snapshot(item, depth - 1)) for item in value)))
    if isinstance(value, Key):
        return ("key", value.digest)
    if callable(getattr(value, "tobytes", None)):
        return ("array", str(getattr(value, "dtype", "")), value.tobytes())
    if callable(getattr(value, "detach", None)):
        return ("tensor", value.detach().cpu().numpy().tobytes())
    return (type(value).__qualname__, tuple(_fields(value, depth)))


def _fields(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    names = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    names += list(getattr(value, "__dict__", ()))
    for name in getattr(value, "__struct_fields__", names):
        if isinstance(name, str) and name not in ("__weakref__", "__dict__"):
            yield name, snapshot(getattr(value, name, None), depth - 1)


@contextmanager
def unchanged(value: Any, message: str) -> Iterator[None]:
    """Fail with a message if the value is changed meanwhile."""
    before = snapshot(value)
    yield
    assert snapshot(value) == before, message
