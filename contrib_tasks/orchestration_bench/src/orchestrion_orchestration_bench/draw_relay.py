"""Draw Relay tables: `task: {use: relay, tables: {seed: 3}}`.

Sizes are drawn once a seed, and the tables again and again until they are no trivial problem: at
cost weight 1 and `partial` 0, by exact dynamic programming over (skills done, calls left),

* every type is worth at least `LEAST` more than stopping at once, which pays 0,
* the best value of all types together is at most `MOST`,
* no worker alone comes within `TEAM` of it.

With `partial` above 0 the best value can only be higher, and stopping at once still pays 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from orchestrion import Key
from orchestrion_orchestration_bench.drawing import between, draw_sizes, draw_tables
from orchestrion_orchestration_bench.relay import Relay, RelayTables, Worker
from orchestrion_orchestration_bench.relay_rules import RelayRules

__all__ = ["LEAST", "MOST", "TEAM", "best_values", "draw"]

LEAST, MOST, TEAM = 0.15, 0.9, 0.05
GRADES = (  # of specialists: least and most probability, price and breaks
    ((0.40, 0.65), (0.01, 0.03), (0.05, 0.20)),
    ((0.75, 0.92), (0.03, 0.06), (0.00, 0.03)),
    ((0.88, 0.97), (0.08, 0.15), (0.00, 0.02)),
)
GENERALIST = ((0.35, 0.60), (0.04, 0.08), (0.03, 0.10))
SIDE = (0.10, 0.35)


@lru_cache(64)
def draw(tables: RelayTables, horizon: int | None) -> Mapping[str, Any]:
    """Return `skills`, `prerequisites`, `types`, `agents` and `horizon` for `Relay`.

    Args:
        tables: the seed, and sizes that are not to be drawn.
        horizon: calls after which an episode ends; None to have it drawn as well.

    Raises:
        ValueError: the sizes asked for give trivial or hopeless problems only.
    """
    key = Key(tables.seed).child("relay")
    random = key.child("sizes").random()
    given = tables.skills, tables.types, tables.workers
    skills, types, workers = draw_sizes(random, given, ((4, 7), (3, 5), (5, 9)))
    drawn_horizon = random.randint(max(8, 2 * skills - 1), 14)
    calls = horizon or drawn_horizon
    return draw_tables(
        key,
        lambda random: {**_tables(random, skills, types, workers), "horizon": calls},
        lambda chosen: _interesting(Relay(**chosen)),
        f"with {skills} skills, {types} types, {workers} workers and horizon {calls} is worth "
        "playing; ask for fewer skills, more workers, or a longer horizon",
    )


def _tables(random: Random, skills: int, types: int, workers: int) -> dict[str, Any]:
    names = tuple(f"s{i + 1}" for i in range(skills))
    return {
        "skills": names,
        "prerequisites": _prerequisites(random, names),
        "types": _types(random, names, types),
        "agents": _workers(random, names, workers),
    }


def _prerequisites(random: Random, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Up to two earlier skills for every skill, so that there is no circle."""
    needs = {}
    for place, name in enumerate(names[1:], 1):
        count = min(place, random.choice((0, 1, 1, 2)))
        if count:
            needs[name] = tuple(names[i] for i in sorted(random.sample(range(place), count)))
    return needs


def _types(random: Random, names: Sequence[str], count: int) -> dict[str, tuple[str, ...]]:
    """Distinct sets of skills: a short one, the longest possible, and others between them."""
    sizes = [random.randint(1, 2), len(names)]
    sizes += [random.randint(2, len(names) - 1) for _ in range(count - 2)]
    chosen: list[tuple[int, ...]] = []
    for size in sizes:
        places = tuple(sorted(random.sample(range(len(names)), size)))
        while places in chosen:
            places = tuple(sorted(random.sample(range(len(names)), random.randint(1, len(names)))))
        chosen.append(places)
    random.shuffle(chosen)
    return {f"t{i + 1}": tuple(names[j] for j in places) for i, places in enumerate(chosen)}


def _workers(random: Random, names: Sequence[str], count: int) -> dict[str, Worker]:
    """One or two generalists, and specialists who have every skill between them, in any order."""
    generalists = random.randint(1, 2)
    specialists = count - generalists
    shuffled = random.sample(names, len(names))
    mains: list[list[str]] = [[] for _ in range(specialists)]
    for i in range(max(specialists, len(names))):
        mains[i % specialists].append(shuffled[i] if i < len(names) else random.choice(names))
    rows = [_specialist(random, names, main) for main in mains]
    rows += [_row(random, names, GENERALIST) for _ in range(generalists)]
    random.shuffle(rows)
    return {f"w{i + 1}": row for i, row in enumerate(rows)}


def _specialist(random: Random, names: Sequence[str], main: Sequence[str]) -> Worker:
    row = _row(random, main, random.choice(GRADES))
    others = [name for name in names if name not in main]
    if others and random.random() < 0.4:
        side = {random.choice(others): between(random, SIDE)}
        return Worker({**row.skills, **side}, row.cost, row.breaks)
    return row


def _row(random: Random, skills: Iterable[str], grade: Sequence[tuple[float, float]]) -> Worker:
    success, cost, breaks = grade
    return Worker(
        {name: between(random, success) for name in skills},
        between(random, cost),
        between(random, breaks),
    )


# ---------------------------------------------------------------------- worth playing?


def _interesting(task: Relay) -> bool:
    rules, workers = task.rules, tuple(task.agents)
    best = best_values(rules, workers)
    value = sum(best) / len(best)
    if min(best) < LEAST or value > MOST:
        return False
    alone = (sum(best_values(rules, (worker,))) / len(best) for worker in workers)
    return max(alone) <= value - TEAM


def best_values(rules: RelayRules, workers: Sequence[str]) -> list[float]:
    """Return the best value of each type at cost weight 1 and `partial` 0, with these workers."""
    return [_best_value(rules, kind, workers) for kind in range(len(rules.types))]


def _best_value(rules: RelayRules, kind: int, workers: Sequence[str]) -> float:
    required = rules.required[kind]
    calls: dict[int, list[tuple[float, list[tuple[float, int]]]]] = {}
    reached = [0]
    while reached:
        done = reached.pop()
        if done in calls:
            continue
        moves = rules.moves(kind, done)
        calls[done] = [
            (rules.task.agents[name].cost, [(m.probability, m.done) for m in moves[name]])
            for name in workers
        ]
        reached += [then for _, ways in calls[done] for _, then in ways]
    ends = {done: float(done == required) for done in calls}
    values = ends
    for _ in range(rules.task.horizon):
        values = {
            done: max(
                ends[done],
                *(sum(p * values[then] for p, then in ways) - cost for cost, ways in rows),
            )
            for done, rows in calls.items()
        }
    return values[0]
