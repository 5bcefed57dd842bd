"""Draw tables of Relay and Stop: `task: {use: relay, tables: {seed: 3}}`.

Sizes are drawn once a seed, and the tables again and again until they are worth playing at cost
weight 1, by exact dynamic programming.

Relay, with `partial` 0 (a larger one only raises the best value): every type is worth at least
`LEAST` more than stopping at once, which pays 0; the best value of all types together is at most
`MOST`; no worker alone comes within `TEAM` of it.

Stop: the best policy that may make `SHORT` calls is worth at least `ROOM` more than the best one
that asks a single solver, or none, for each type, and also `ROOM` more than abstaining. The best
value of all, which has more calls, is at least as far ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from attrs import evolve

from orchestrion import Key
from orchestrion_orchestration_bench.process import optimum
from orchestrion_orchestration_bench.relay import Relay, RelayTables, Worker
from orchestrion_orchestration_bench.solved import relay_process
from orchestrion_orchestration_bench.stop import Checker, Solver, Stop, StopTables
from orchestrion_orchestration_bench.stop_exact import beliefs_of

ATTEMPTS = 200


def draw_sizes(
    random: Random, given: Sequence[int | None], spans: Sequence[tuple[int, int]]
) -> list[int]:
    """Return the sizes that are given, and a number from its span for each other one."""
    return [size or random.randint(*span) for size, span in zip(given, spans, strict=True)]


def draw_tables(
    key: Key,
    draw: Callable[[Random], dict[str, Any]],
    is_worth_playing: Callable[[dict[str, Any]], bool],
    otherwise: str,
) -> dict[str, Any]:
    """Return the first tables that are worth playing.

    Raises:
        ValueError: none of `ATTEMPTS` draws is; the message is `otherwise`.
    """
    for attempt in range(ATTEMPTS):
        tables = draw(key.child(attempt).random())
        if is_worth_playing(tables):
            return tables
    raise ValueError(f"tables: none of {ATTEMPTS} draws {otherwise}")


def between(random: Random, span: tuple[float, float]) -> float:
    """Return a number from a span, with two decimals."""
    return round(random.uniform(*span), 2)


LEAST, MOST, TEAM = 0.15, 0.9, 0.05
GRADES = (  # of specialists: least and most probability, price and breaks
    ((0.40, 0.65), (0.01, 0.03), (0.05, 0.20)),
    ((0.75, 0.92), (0.03, 0.06), (0.00, 0.03)),
    ((0.88, 0.97), (0.08, 0.15), (0.00, 0.02)),
)
GENERALIST = ((0.35, 0.60), (0.04, 0.08), (0.03, 0.10))
SIDE = (0.10, 0.35)


@lru_cache(64)
def draw_relay(tables: RelayTables, horizon: int | None) -> Mapping[str, Any]:
    """Return `skills`, `prerequisites`, `types`, `agents` and `horizon` for `Relay`.

    Sizes in `tables` and a `horizon` that is not None are not drawn.

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
        lambda random: {**_relay_tables(random, skills, types, workers), "horizon": calls},
        lambda chosen: _is_relay_worth_playing(Relay(**chosen)),
        f"with {skills} skills, {types} types, {workers} workers and horizon {calls} is worth "
        "playing; ask for fewer skills, more workers, or a longer horizon",
    )


def _relay_tables(random: Random, skills: int, types: int, workers: int) -> dict[str, Any]:
    names = tuple(f"s{i + 1}" for i in range(skills))
    return {
        "skills": names,
        "prerequisites": _prerequisites(random, names),
        "types": _types(random, names, types),
        "agents": _workers(random, names, workers),
    }


def _prerequisites(random: Random, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Draw up to two earlier skills for every skill, so that there is no circle."""
    needs = {}
    for place, name in enumerate(names[1:], 1):
        count = min(place, random.choice((0, 1, 1, 2)))
        if count:
            needs[name] = tuple(names[i] for i in sorted(random.sample(range(place), count)))
    return needs


def _types(random: Random, names: Sequence[str], count: int) -> dict[str, tuple[str, ...]]:
    """Draw distinct sets of skills: a short one, the longest possible, and others between them."""
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
    """Draw one or two generalists, and specialists who have every skill between them."""
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


def _is_relay_worth_playing(task: Relay) -> bool:
    process = relay_process(task)
    best = optimum(process, 1.0)[0]
    if min(best.by_type.values()) < LEAST or best.value > MOST:
        return False
    alone = (process.only([worker, process.stop]) for worker in range(len(task.agents)))
    return all(optimum(single, 1.0)[0].value <= best.value - TEAM for single in alone)


ROOM, SHORT = 0.02, 3


@lru_cache(64)
def draw_stop(tables: StopTables, horizon: int | None) -> Mapping[str, Any]:
    """Return `types`, `solvers`, `checkers`, `abstain` and `horizon` for `Stop`.

    Sizes in `tables` and a `horizon` that is not None are not drawn.

    Raises:
        ValueError: no draw with these sizes makes checking worth its price.
    """
    key = Key(tables.seed).child("stop")
    random = key.child("sizes").random()
    given = tables.types, tables.solvers, tables.checkers
    types, solvers, checkers = draw_sizes(random, given, ((2, 4), (2, 3), (1, 2)))
    drawn_horizon = random.randint(5, 6)
    calls = horizon or drawn_horizon
    return draw_tables(
        key,
        lambda random: {**_stop_tables(random, types, solvers, checkers), "horizon": calls},
        lambda chosen: _is_stop_worth_playing(Stop(**chosen)),
        f"with {types} types, {solvers} solvers, {checkers} checkers and horizon {calls} makes "
        "checking worth its price; ask for other sizes, or a horizon of at least 3",
    )


def _stop_tables(random: Random, types: int, solvers: int, checkers: int) -> dict[str, Any]:
    return {
        "types": {f"t{i + 1}": between(random, (0.05, 0.9)) for i in range(types)},
        "solvers": {
            f"a{i + 1}": row
            for i, row in enumerate(random.sample(_solvers(random, solvers), solvers))
        },
        "checkers": {f"c{i + 1}": _checker(random) for i in range(checkers)},
        "abstain": between(random, (0.05, 0.3)),
    }


def _solvers(random: Random, count: int) -> list[Solver]:
    """Draw solvers; dearer ones are better, above all at what is hard."""
    rows = []
    for i in range(count):
        level = i / (count - 1)
        rows.append(
            Solver(
                round(0.7 + 0.2 * level + random.uniform(0, 0.1), 2),
                round(0.15 + 0.4 * level + random.uniform(0, 0.2), 2),
                round(0.03 + 0.14 * level + random.uniform(0, 0.08), 2),
            )
        )
    return rows


def _checker(random: Random) -> Checker:
    skill = random.random()
    return Checker(
        round(0.8 + 0.1 * skill + random.uniform(0, 0.08), 2),
        round(0.55 + 0.25 * skill + random.uniform(0, 0.15), 2),
        round(0.01 + 0.05 * skill + random.uniform(0, 0.03), 2),
    )


def _is_stop_worth_playing(task: Stop) -> bool:
    checked, single = (
        optimum(beliefs_of(evolve(task, horizon=calls)), 1.0)[0].value
        for calls in (min(SHORT, task.horizon), 1)
    )
    return checked >= max(single, task.abstain) + ROOM
