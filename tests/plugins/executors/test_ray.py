"""Episodes on the nodes of a Ray cluster; three of them here, on one machine."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from orchestrion import train
from tests.plugins.executors.test_processes import Service, calls_of, config, everything
from tests.service import ModelService, Seen

if find_spec("ray") is None:
    pytest.skip("ray is not installed: it is an extra, of 214 MB", allow_module_level=True)

THREE = "run.executor={use: ray, workers: 3, cpus: 1}"


def node(cluster: Any, cpus: int = 1) -> Any:
    """Add a node, with memory as small as Ray takes it."""
    return cluster.add_node(num_cpus=cpus, object_store_memory=80_000_000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without processors, and three nodes with one each; the first of these may go."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray: Any = import_module("ray")
    cluster = import_module("ray.cluster_utils").Cluster()
    node(cluster, 0)
    cluster.first, *_ = [node(cluster) for _ in range(3)]
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


class Watched(Service):
    """Sets an event when it has been asked so often, and answers that one when another is set."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.reached, self.go_on = at, threading.Event(), threading.Event()

    async def __call__(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        if len(self.asked) + 1 == self.at:
            self.reached.set()
            await asyncio.to_thread(self.go_on.wait)
        await super().__call__(seen, writer)


def test_the_same_bytes_and_exact_spend_though_a_node_goes(cluster: Any, tmp_path: Path) -> None:
    one, three = Service(), Watched(15)
    for service, name, overrides in ((one, "one", []), (three, "three", [THREE])):
        with ModelService(service) as serving, ThreadPoolExecutor(1) as beside:
            data = config("asker", asker={"url": serving.url}, run={"concurrency": 6})
            data["budget"] = {"usd": 1}
            # In a thread: Ray adds nodes in the main one alone.
            training = beside.submit(train, data, tmp_path / name, overrides=overrides)
            if service is three:
                three.reached.wait()
                node(cluster)
                cluster.remove_node(cluster.first, allow_graceful=False)
                three.go_on.set()
            training.result()
    first, second = (everything(tmp_path / name) for name in ("one", "three"))
    assert first["iterations"] == second["iterations"]
    assert first["episodes"] == second["episodes"]
    assert len(three.pids) >= 4, "three actors, and one in the place of the lost one"
    rows = calls_of(tmp_path / "three")
    assert [row for row in rows if row[0] == "answer"] == calls_of(tmp_path / "one")
    lost = sum(row[0] == "cut" for row in rows)
    assert lost <= 6
    assert len(three.asked) - len(set(three.asked)) <= lost
