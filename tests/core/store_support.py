"""What the store's tests share: records of every shape, and a small run that can be killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from hypothesis import strategies as st

from orchestrion import (
    Activation,
    Array,
    Decision,
    Episode,
    Output,
    Problem,
    Reward,
    Saved,
    Scores,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion._engine.calls import Recorded
from orchestrion._store import Checkpoint, faults
from orchestrion._store.exports import export_run
from orchestrion._store.safetensors import ITEM_BYTES
from orchestrion.runs import RunStore
from tests.core.strategies import FIELDS, json, record, text

__all__ = ["FIELDS", "json", "record", "text"]

# ------------------------------------------------------------------- records of every shape


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Arrays of every type, empty ones and scalars included."""
    dtype = draw(st.sampled_from(sorted(ITEM_BYTES)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    size = ITEM_BYTES[dtype]
    for length in shape:
        size *= length
    return Array(dtype, shape, draw(st.binary(min_size=size, max_size=size)))


# What a component may save: JSON with infinities, since nothing of it may be lost.
state = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
saved = st.builds(Saved, st.dictionaries(text, arrays(), max_size=3), state)
checkpoints = st.builds(
    Checkpoint,
    stage=st.integers(0, 3),
    iteration=st.integers(0, 10**6),
    components=st.dictionaries(text, saved, max_size=3),
    overlay=st.dictionaries(text, state, max_size=3),
    seed=st.integers(0, 2**63),
    config=text,
    roster=st.lists(text, max_size=3).map(tuple),
    versions=st.dictionaries(text, text, max_size=2),
    threads=st.integers(1, 64),
)

# --------------------------------------------------------------- a run that can be killed

ITERATIONS = 3


def episode(name: str, turns: int = 2, reward: float = 1.0) -> Episode:
    """A plain solved episode."""
    trajectory = Trajectory(
        [
            Turn(i, "worker", output=Output(f"step {i}", usage=Usage(1, cost=2.0)))
            for i in range(turns)
        ]
    )
    return Episode(
        name,
        Problem(f"problem of {name}", "do it"),
        trajectory,
        (Decision((Activation("worker"),), logp=-0.5),),
        scores=Scores(1.0, True, {"tests": 3.0}),
        reward=Reward(reward, parts={"outcome": reward + 1.0}),
    )


def checkpoint(iteration: int, weights: bytes = b"", stage: int = 0) -> Checkpoint:
    """A checkpoint of a policy with one array of bytes."""
    array = Array("U8", (len(weights),), weights)
    return Checkpoint(stage, iteration, {"policy": Saved({"weights": array}, {"at": iteration})})


def train(directory: Path, iterations: int = ITERATIONS) -> None:
    """A whole run, or the rest of one: what it learns depends on all it did before."""
    if directory.exists():
        store = RunStore.open(directory)
    else:
        store = RunStore.create(directory, "seed: 7\n", {"seed": 7}, keep=2)
    with store:
        restored = store.restore().checkpoint
        weights = restored.components["policy"].arrays["weights"].data if restored else bytes(99)
        first = restored.iteration + 1 if restored else 0
        for i in range(first, iterations):
            answers = [_call(store, f"0/{i}/{k}") for k in range(2)]
            weights = sha256(weights + "".join(answers).encode()).digest() * 3
            episodes = [episode(f"{i}/{k}", reward=weights[k] / 7) for k in range(2)]
            store.commit_iteration(0, i, episodes, {"first": weights[0]}, checkpoint(i, weights))
        if "test" not in store.load_evaluations():
            store.save_evaluation("test", {"weights": weights.hex()}, [episode("test/0")])
        store.set_status("completed")
        export_run(store)


def _call(store: RunStore, key: str) -> str:
    known = store.journal.get(key)
    if known is None:
        known = Recorded(key, "request", sha256(key.encode()).hexdigest(), Usage(1, 10, 5))
        store.journal.put_many([known])
    return str(known.answer)


def contents(directory: Path) -> dict[str, object]:
    """All that must be the same however often a run was killed, by name."""
    with RunStore.open(directory) as store:
        files = {path.name: path.read_bytes() for path in sorted(store.checkpoints.iterdir())}
        summary = (store.exports / "summary.json").read_text().partition('"execution"')[0]
        return {
            "checkpoints": files,
            "iterations": store.iterations(),
            "episodes": list(store.episodes()),
            "evaluations": store.load_evaluations(),
            "calls": store.spend(),
            "exported": [(store.exports / "episodes.json").read_bytes(), summary],
            "status": store.status,
            "left over": [p.name for p in directory.rglob(".*")],
        }


def forked(work: Callable[[], None], before: Callable[[], None] = lambda: None) -> int:
    """Start a child process that does some work; returns its id. Exit status 1 if it raises."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        before()
        work()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def ended(pid: int) -> int:
    """Wait for a child; its exit status, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def inject(spec: str) -> Callable[[], None]:
    """Makes a child fail at a fault point, see `orchestrion._store.faults`."""

    def before() -> None:
        faults._active = faults._Injector(spec)

    return before


KILLED = -signal.SIGKILL


def points(work: Callable[[], None]) -> Iterator[str]:
    """The names of all fault points that some work passes, in order."""
    passed: list[str] = []
    faults._active = passed.append
    try:
        work()
    finally:
        faults._active = None
    yield from passed
