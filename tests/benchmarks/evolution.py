"""How well strategies search graphs, on committees whose best graphs are known exactly.

    python dev.py python -m tests.benchmarks.evolution                     # a minute
    python dev.py python -m tests.benchmarks.evolution --seeds 5 --races 400 # all of it
    python dev.py python -m tests.benchmarks.evolution --seeds 5 --tables 2 --races 0

First part: the share of the true hypervolume after 500 and 2,000 evaluations, and how many points
of the true front each strategy found. `--tables` adds committees with other tables, drawn at
random. The true front of each takes about 40 CPU seconds, because it needs a million graphs.
Second part: pick one of 256 graphs by 5,120 right-or-wrong answers. The regret is by how much the
picked graph is worse than the best of them.

Published for the default tables: random .9965 and 8.0 points, NSGA-II without duplicates .9994 and
16.6; regret of uniform sampling .0331 with the score of the pick .22 too high, of halving .0093,
with common random numbers .0039. Strategies that NSGA-II beats by far on every table are not part
of the package: MAP-Elites found 12.2 of 21 points, (mu + lambda) 9.8 and edge-REINFORCE 5.0.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from math import fsum, sqrt
from statistics import mean, stdev

import numpy as np
from orchestrion_evolution import (
    NSGA2,
    Genome,
    RandomSearch,
    Search,
    Space,
    SuccessiveHalving,
    Value,
    hypervolume,
)
from orchestrion_evolution.genome import indices_of
from orchestrion_orchestration_bench.committee import Committee, Voter
from orchestrion_orchestration_bench.committee import Slot as Seat
from orchestrion_orchestration_bench.committee_exact import (
    FrontPoint,
    accuracies,
    pareto_front,
    stored_front,
)

from orchestrion import Key

EVALUATIONS, BATCH = 2000, 20
REFERENCE = (0.5, 12.0)
STRATEGIES: dict[str, Callable[[Space], Search]] = {
    "random": RandomSearch,
    "nsga2": lambda space: NSGA2(space, size=50),
}


class Exact:
    """The exact values of a committee; each graph is computed once."""

    def __init__(self, task: Committee) -> None:
        self.task, self.space = task, Space(tuple(task.members), task.slots)
        self._known: dict[Genome, Value] = {}

    def values(self, graphs: Iterable[Genome]) -> list[Value]:
        """Return accuracy and cost of canonical graphs."""
        wanted = list(graphs)
        new_by_size: dict[int, list[Genome]] = {}
        for graph in dict.fromkeys(wanted):
            if graph not in self._known:
                new_by_size.setdefault(len(graph.slots), []).append(graph)
        for size, new in new_by_size.items():
            self._compute(size, new)
        return [self._known[graph] for graph in wanted]

    def _compute(self, size: int, graphs: list[Genome]) -> None:
        # A committee lists its output first and the readers of each seat; a genome the reverse.
        types = np.array([[slot.choice for slot in reversed(graph.slots)] for graph in graphs])
        readers = np.zeros((len(graphs), size), dtype=np.int64)
        for row, graph in enumerate(graphs):
            for j, slot in enumerate(graph.slots):
                for i in indices_of(slot.reads):
                    readers[row, size - 1 - i] |= 1 << (size - 1 - j)
        accuracy = accuracies(self.task, types, readers)
        for row, graph in enumerate(graphs):
            seats = tuple(
                Seat(self.space.choices[kind], int(bits))
                for kind, bits in zip(types[row], readers[row], strict=True)
            )
            cost = round(self.task.rules.cost(seats), 9)
            self._known[graph] = Value(round(float(accuracy[row]), 12), cost)


def other_tables(n: int) -> Committee:
    """Return tables that nothing was tuned to: five types with numbers drawn from a key."""
    rng = Key(1000 + n).child("tables").random()

    def between(low: float, high: float) -> float:
        return round(rng.uniform(low, high), 2)

    def voter(right: tuple[float, float], cost: float) -> Voter:
        return Voter(right, cost, between(0.1, 0.6), between(0.8, 1.6), between(0.4, 0.9))

    return Committee(
        members={
            "first": voter((between(0.8, 0.9), between(0.5, 0.6)), between(0.7, 1.5)),
            "second": voter((between(0.5, 0.6), between(0.8, 0.9)), between(0.7, 1.5)),
            "both": voter((between(0.65, 0.75), between(0.65, 0.75)), between(0.5, 1.0)),
            "dear": voter((between(0.8, 0.88), between(0.76, 0.86)), between(3.0, 6.0)),
            "vote": Voter((), between(0.1, 0.4)),
        },
        slots=5,
        edge_cost=between(0.05, 0.2),
    )


def run(search: Search, exact: Exact, key: Key, evaluations: int, batch: int = BATCH) -> None:
    """Search with exact values; every trial counts, also one of a known graph."""
    done = 0
    while done < evaluations:
        trials = search.ask(min(batch, evaluations - done), key.child(done))
        if not trials:
            return
        values = exact.values([trial.graph for trial in trials])
        search.tell([(trial.genome, v) for trial, v in zip(trials, values, strict=True)])
        done += len(trials)


def quality_of_search(search: Search, front: Sequence[FrontPoint]) -> tuple[float, int]:
    """Return the share of the true hypervolume, and how many points of the front it found."""
    true = [Value(round(point.accuracy, 12), round(point.cost, 9)) for point in front]
    known = list(search.known.values())
    share = hypervolume(known, *REFERENCE) / hypervolume(true, *REFERENCE)
    points = {(round(value.quality, 9), round(value.cost, 6)) for value in known}
    return share, sum((round(v.quality, 9), round(v.cost, 6)) in points for v in true)


def fronts(task: Committee, front: Sequence[FrontPoint], seeds: int) -> None:
    """Print the results of each strategy over all seeds."""
    exact = Exact(task)
    print(f"{'strategy':<16}{'500':>8}{'2,000':>9}  points of {len(front)}: mean, by seed")
    for name, make in STRATEGIES.items():
        start = time.process_time()
        early, late, points = [], [], []
        for seed in range(1, seeds + 1):
            search = make(exact.space)
            run(search, exact, Key(seed), 500)
            early.append(quality_of_search(search, front)[0])
            run(search, exact, Key(seed).child("on"), EVALUATIONS - 500)
            share, count = quality_of_search(search, front)
            late.append(share)
            points.append(count)
        seconds = (time.process_time() - start) / seeds
        print(
            f"{name:<16}{mean(early):8.4f}{mean(late):9.5f}  {mean(points):5.1f}  "
            f"{' '.join(map(str, points))}  ({seconds:.1f} CPU s a seed)",
            flush=True,
        )


# ------------------------------------------------------------------------------------ races

POOL, ANSWERS, FRESH = 256, 5120, 400


def noisy(
    exact: Exact, graphs: Sequence[Genome], counts: Sequence[int], key: Key, common: bool
) -> list[Value]:
    """Return shares of right answers over `counts` questions, drawn alone or in common."""
    draws = key.uniforms(max(counts)) if common else []
    result = []
    for graph, true, count in zip(graphs, exact.values(graphs), counts, strict=True):
        luck = draws[:count] if common else key.child(repr(graph)).uniforms(count)
        right = fsum(number < true.quality for number in luck)
        result.append(Value(right / count, true.cost, count))
    return result


def race(search: Search, exact: Exact, key: Key, common: bool) -> tuple[float, float, float]:
    """Return the regret of the pick, and by how much its race and fresh scores are too high."""
    i, pool = 0, list[Genome]()
    while trials := search.ask(POOL if not i else 0, key.child("ask", i)):
        graphs = [trial.graph for trial in trials]
        counts = [trial.samples or ANSWERS // POOL for trial in trials]
        values = noisy(exact, graphs, counts, key.child("answers"), common)
        search.tell([(trial.genome, v) for trial, v in zip(trials, values, strict=True)])
        pool, i = pool or graphs, i + 1
    best = search.best()
    assert best is not None
    pick, value = best
    [true] = exact.values([pick])
    highest = max(value.quality for value in exact.values(pool))
    [fresh] = noisy(exact, [pick], [FRESH], key.child("fresh"), common)
    return highest - true.quality, value.quality - true.quality, fresh.quality - true.quality


def races(count: int) -> None:
    """Print results of uniform sampling and halving, with answers drawn alone and in common."""
    exact = Exact(Committee(slots=5))
    ways: dict[str, tuple[Callable[[], Search], bool]] = {
        "uniform": (lambda: RandomSearch(exact.space), False),
        "uniform, common": (lambda: RandomSearch(exact.space), True),
        "halving": (lambda: SuccessiveHalving(exact.space, POOL, ANSWERS), False),
        "halving, common": (lambda: SuccessiveHalving(exact.space, POOL, ANSWERS), True),
    }
    print(f"{'race':<17}{'regret':>8}{'race score too high by':>26}{'fresh score too high by':>26}")
    for name, (make, common) in ways.items():
        rows = [race(make(), exact, Key(7).child("race", n), common) for n in range(count)]
        regrets, biases, fresh = zip(*rows, strict=True)
        print(
            f"{name:<17}{mean(regrets):8.4f}{mean(biases):+26.4f}"
            f"{mean(fresh):+16.4f} +- {1.96 * stdev(fresh) / sqrt(count):.4f}",
            flush=True,
        )


def main() -> None:
    """Print both parts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tables", type=int, default=0, help="other tables, 40 CPU seconds each")
    parser.add_argument("--races", type=int, default=60)
    arguments = parser.parse_args()
    if arguments.seeds:
        print("committee of 5, default tables")
        fronts(Committee(slots=5), stored_front(), arguments.seeds)
    for n in range(arguments.tables):
        task = other_tables(n)
        print(f"\ncommittee of 5, other tables {n}")
        fronts(task, pareto_front(task), arguments.seeds)
    if arguments.races > 1:
        print(f"\none of {POOL} by {ANSWERS} answers, {arguments.races} races")
        races(arguments.races)


if __name__ == "__main__":
    main()
