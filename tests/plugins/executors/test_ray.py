"""Episodes on the nodes of a Ray cluster; three of them here, on one machine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from orchestrion import resume, train
from tests.plugins.executors import cluster
from tests.plugins.executors.test_processes import Service, calls_of, config, everything
from tests.service import ModelService, Seen

if find_spec("ray") is None:
    pytest.skip("ray is not installed: it is an extra, of 214 MB", allow_module_level=True)


@pytest.fixture(scope="module")
def nodes() -> Iterator[cluster.Cluster]:
    """A head without processors, and three nodes."""
    with cluster.cluster() as started:
        yield started


@pytest.mark.parametrize("name", cluster.SMALL)
def test_an_example_gives_the_same_though_nodes_workers_and_the_driver_go(
    name: str, nodes: cluster.Cluster, tmp_path: Path
) -> None:
    data = cluster.data_of(name)
    expected = cluster.trained(data, tmp_path / "here", None)
    assert cluster.trained(data, tmp_path / "there", nodes.executor) == expected
    for what, outcome in cluster.losses(data, tmp_path, nodes).items():
        assert outcome == expected, what


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


def test_what_is_on_record_is_not_paid_again(nodes: cluster.Cluster, tmp_path: Path) -> None:
    one, three = Service(), Watched(15)
    with ModelService(one) as serving:
        train(paid(serving.url), tmp_path / "one")
    with ModelService(three) as serving:
        driver = cluster.Driver(paid(serving.url), tmp_path / "three", nodes)
        three.reached.wait()
        nodes.lose_a_node()
        assert cluster.kill_a_worker(nodes)
        three.go_on.set()
        while len(three.asked) < 40:
            time.sleep(0.01)  # between two looks; it asks 100 questions or so
        driver.kill()
        resume(driver.directory)
    first, second = everything(tmp_path / "one"), everything(driver.directory)
    assert first["iterations"] == second["iterations"]
    assert first["episodes"] == second["episodes"]
    assert len(three.pids) >= 5, "three actors, those in the place of two, and those of the resume"
    rows = calls_of(driver.directory)
    assert [row for row in rows if row[0] == "answer"] == calls_of(tmp_path / "one")
    lost = sum(row[0] in ("cut", "lost") for row in rows)  # by the driver, or with the driver
    assert lost <= 3 * CONCURRENCY, "at most what was under way when something was lost"
    assert len(three.asked) - len(set(three.asked)) <= lost


CONCURRENCY = 6


def paid(url: str) -> dict[str, object]:
    """A config whose agents pay for what they ask."""
    data = config("asker", asker={"url": url}, run={"concurrency": CONCURRENCY})
    return {**data, "budget": {"usd": 1}}
