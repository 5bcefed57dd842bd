"""Trains examples on a Ray cluster of three nodes on this machine, and takes parts of it away."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec.structs import astuple

from orchestrion import resume, train
from orchestrion.config import from_data, load
from orchestrion.runs import RunReader
from tests.end_to_end.support import EXAMPLES, command, environment, result

NODES = 3
TRIES = 5
"""To add a node: Ray waits for half a minute, which is little on a machine that is busy."""
SMALL: dict[str, tuple[str, ...]] = {
    "repair": (
        "task.max_problems=4",
        "task.train_problems=8",
        "trainer.episodes=12",
        "trainer.batch=4",
    ),
    "recorded": (),
    "evolution": (
        "trainer.evaluations=60",
        "trainer.held_out=40",
        "trainer.baselines=[]",
        "evaluation.episodes=100",
    ),
    "marl": (
        "run.iterations=2",
        "trainer[0].episodes=64",
        "trainer[0].steps=10",
        "trainer[1].problems=4",
        "trainer[1].updates=1",
        "evaluation.episodes=20",
    ),
}
"""The examples, small."""
ALL = ("evaluation.baselines={}", "run.checkpoint_every=1")
"""What a checkpoint does not hold is run and spent again once the driver was killed."""


class Cluster:
    """A head without processors, and nodes with two each, one for each worker and one to spare."""

    def __init__(self) -> None:
        # By default workers of Ray have a lower priority than all else on the machine.
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        self._cluster: Any = import_module("ray.cluster_utils").Cluster()
        self._add(0)
        self._nodes = [self._add() for _ in range(NODES)]
        self.address: str = self._cluster.address
        self.executor = {"use": "ray", "workers": NODES, "cpus": 1, "address": self.address}

    def _add(self, cpus: int = 2) -> Any:
        # Memory as small as Ray takes it, and nothing that people look at.
        less = {"include_dashboard": False, "include_log_monitor": False}
        for attempt in range(TRIES):
            try:
                return self._cluster.add_node(num_cpus=cpus, object_store_memory=80_000_000, **less)
            except Exception as error:
                if attempt == TRIES - 1 or "timed out" not in str(error):
                    raise
        raise AssertionError

    def lose_a_node(self) -> None:
        """Take a node away at once, with what runs on it; the others have room for its work."""
        self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)

    def mend(self) -> None:
        """Add nodes in the place of lost ones."""
        while len(self._nodes) < NODES:
            self._nodes.append(self._add())

    def workers(self) -> list[int]:
        """Return the process ids of the actors that work."""
        return sorted(
            number
            for number in _descendants(os.getpid())
            if b"Actor" in _read(f"/proc/{number}/cmdline").partition(b"\0")[0]
        )

    def close(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Begin a cluster, and connect this process; end it afterwards."""
    ray: Any = import_module("ray")
    started = Cluster()
    ray.init(started.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield started
    finally:
        ray.shutdown()
        started.close()


def _read(path: str) -> bytes:
    with suppress(OSError):
        return Path(path).read_bytes()
    return b""


def _descendants(ancestor: int) -> set[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        fields = _read(str(stat)).rpartition(b")")[2].split()
        if fields and fields[0] != b"Z":
            parents[int(stat.parent.name)] = int(fields[1])
    family = {ancestor}
    while True:
        more = {number for number, parent in parents.items() if parent in family} - family
        if not more:
            return family - {ancestor}
        family |= more


def data_of(name: str) -> dict[str, Any]:
    """Return the config of a small example."""
    return load(EXAMPLES / f"{name}.yaml", (*SMALL[name], *ALL)).resolved()


def with_executor(data: Mapping[str, Any], executor: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a config that runs its episodes on an executor."""
    return {**data, "run": {**data.get("run", {}), "executor": executor}}


def spent_in(directory: Path) -> list[float]:
    """Return what a run spent; the order of sums shows in their last bits."""
    with RunReader(directory) as run:
        return [round(amount, 6) for amount in astuple(run.spend())]


def outcome(directory: Path) -> dict[str, Any]:
    """Return what must be the same wherever a run was carried out, and whatever was lost."""
    return {**result(directory), "spent": spent_in(directory)}


def trained(data: Mapping[str, Any], directory: Path, executor: Any) -> dict[str, Any]:
    """Train in this process; return what came of it."""
    train(from_data(with_executor(data, executor)), directory)
    return outcome(directory)


class Driver:
    """The process of a training on the cluster.

    Args:
        data: the config.
        folder: for its file and its run.
        cluster: what it runs on.
    """

    def __init__(self, data: Mapping[str, Any], folder: Path, cluster: Cluster) -> None:
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(with_executor(data, cluster.executor)))
        words = command("train", "run.json", "-o", f"run.directory={folder}", "-o", "run.name=run")
        self.directory, self._cluster = folder / "run", cluster
        self._errors = folder / "errors"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                words,
                cwd=folder,
                env=environment(PYTHONPATH=os.pathsep.join(sys.path)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def at_work(self, iterations: int, actors: bool = True) -> bool:
        """Return once it has so many iterations and all actors work: true, or false if it ended."""
        while self.process.poll() is None:
            working = not actors or len(self._cluster.workers()) >= NODES
            if working and self._committed() >= iterations:
                return True
            time.sleep(0.02)  # between two looks
        return False

    def _committed(self) -> int:
        if not (self.directory / "run.db").exists():
            return 0
        with RunReader(self.directory) as run:
            return len(run.iterations())

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.process.kill()
        self.process.wait()

    def end(self) -> dict[str, Any]:
        """Wait for its end; return what came of it."""
        if self.process.wait():
            raise AssertionError(self._errors.read_text()[-2000:])
        return outcome(self.directory)


def kill_a_worker(cluster: Cluster) -> bool:
    """Kill an actor; return whether there was one."""
    for number in cluster.workers()[:1]:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
            return True
    return False


def losses(
    data: Mapping[str, Any],
    folder: Path,
    cluster: Cluster,
    after: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, dict[str, Any]]:
    """Train on the cluster and take away a node, a worker, the driver; return what came of it.

    Args:
        data: the config.
        folder: for the runs.
        cluster: what they run on.
        after: iterations after which something is lost, in the middle of the next one.
        say: called with what happened.
    """
    local = any(model.get("use") == "hf" for model in data.get("models", {}).values())
    outcomes = {}
    driver = Driver(data, folder / "parts", cluster)
    if driver.at_work(after, actors=not local):
        cluster.lose_a_node()
        say("a node was removed")
        say("a worker was killed" if kill_a_worker(cluster) else "no worker to kill")
    else:
        say("it ended before anything was lost")
    outcomes["a node and a worker lost"] = driver.end()
    cluster.mend()
    driver = Driver(data, folder / "driver", cluster)
    cut = driver.at_work(after, actors=not local)
    driver.kill()
    while cluster.workers():
        time.sleep(0.02)  # between two looks; Ray ends the actors of a driver that is gone
    say("the driver was killed" if cut else "the driver had ended before it was killed")
    resume(driver.directory)
    outcomes["the driver killed"] = outcome(driver.directory)
    return outcomes
