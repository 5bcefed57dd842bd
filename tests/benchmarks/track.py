"""What a tracker that never answers costs a run: two runs beside each other, in turn.

    python dev.py python -m tests.benchmarks.track [ROUNDS [SECONDS]]

Each round trains one team twice: without trackers, and with MLflow behind a server that accepts
connections and never answers. Its agents wait, as for a model, and compute in between. Prints the
time of each training, and the ratios of the medians: of the time, and of the processor time of the
run's own process, which other work on the machine changes less. SECONDS is about how long one
training takes.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from attrs import frozen

from orchestrion import Agent, Calls, Key, Output, Usage, View
from orchestrion.config import from_data
from orchestrion.runs import RunReader, train
from tests.core.planted import Practice

ITERATION = 0.25
"""Seconds that an iteration waits for its agents; they compute for a part of that in addition."""


@frozen
class Slow(Agent):
    """Answers after a while, as a model does."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """See `Agent.act`."""
        await asyncio.sleep(ITERATION)
        sum(range(200_000))
        return Output("done", usage=Usage(cost=0.1), final=True)


@frozen
class Long(Practice):
    """Practices as long as the config lets it."""

    @property
    def iterations(self) -> int:
        """Return how many it wants."""
        return 1_000_000


def main() -> None:
    """Print a line a round, and then the ratio."""
    given = sys.argv[1:]
    rounds = int(given[0]) if given else 3
    seconds = float(given[1]) if len(given) > 1 else 60.0
    with socket.create_server(("127.0.0.1", 0), backlog=64) as hole:
        held: list[socket.socket] = []
        threading.Thread(target=_accept, args=(hole, held), daemon=True).start()
        uri = f"http://127.0.0.1:{hole.getsockname()[1]}"
        hanging = {"hole": {"use": "mlflow", "uri": uri, "patience": 5.0}}
        times: dict[str, list[tuple[float, float]]] = {"plain": [], "black hole": []}
        for number in range(rounds):
            order = [("plain", {}), ("black hole", hanging)]
            for name, trackers in order if number % 2 == 0 else reversed(order):
                times[name].append(_train(trackers, max(2, round(seconds / ITERATION))))
            last = {name: spent[-1] for name, spent in times.items()}
            print("  ".join(f"{name} {t[0]:.2f} s, CPU {t[1]:.2f} s" for name, t in last.items()))
        print(f"connections that the server took: {len(held)}")
        for one in held:
            one.close()
    for index, what in enumerate(("time", "CPU of the run's process")):
        plain, black = (statistics.median(one[index] for one in spent) for spent in times.values())
        print(f"ratio of the medians, {what}: {black / plain:.4f} ({rounds} rounds, in turn)")


def _accept(hole: socket.socket, held: list[socket.socket]) -> None:
    while True:
        try:
            held.append(hole.accept()[0])
        except OSError:
            return


def _train(trackers: Any, iterations: int) -> tuple[float, float]:
    kit = "orchestrion.testing._stage"
    data: dict[str, Any] = {
        "task": {"use": f"{kit}:KitTask", "solver": "a"},
        "agents": {"a": {"use": f"{__spec__.name}:Slow"}},
        "policy": {"use": f"{kit}:KitPolicy"},
        "reward": {"use": f"{kit}:KitReward"},
        "trainer": {"use": f"{__spec__.name}:Long"},
        "run": {"iterations": iterations},
    }
    config = from_data(data | ({"trackers": trackers} if trackers else {}))
    with tempfile.TemporaryDirectory() as folder:
        began, cpu = time.perf_counter(), time.process_time()
        train(config, Path(folder) / "run")
        spent = time.perf_counter() - began, time.process_time() - cpu
        with RunReader(Path(folder) / "run") as reader:
            notes = [event.data for event in reader.events() if event.kind == "observer"]
        assert len(notes) == bool(trackers), notes
    return spent


if __name__ == "__main__":
    main()
