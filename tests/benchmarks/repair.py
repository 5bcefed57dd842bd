"""How much is to be won in program repair, and how much is won over several training seeds.

    python -m tests.benchmarks.repair bounds [SUITE] [RUN] [--bugs 40] [--split validation]
    python -m tests.benchmarks.repair seeds FOLDER [SUITE ...] [--seeds 5] [--only seed-2]

`seeds` trains `docs/examples/repair.yaml` with the seeds 1 to 5, each in a run below FOLDER (one
that is there already is gone on with), and judges every run on all of the built-in test split and
of each SUITE. What the example compares with is measured once, with the first seed, in the run
`others`, which learns the counts alone. A difference of rewards is a mean over seeds, bug by bug;
its interval is a bootstrap over bugs. `--only` makes one run, so that several can be made at
the same time, and then pools those that are complete.

`bounds` gives upper bounds by exhaustive look-ahead. Every candidate of every bug is run on all its
tests, hidden ones too: these rows know what no agent may know. Each says how many bugs one edit
could solve, and how many edits are tried until the first that passes the visible tests, on average
over the bugs that have one.

    untrained     the task's own ranking, all families together, after the tests were run
    counted       likewise by the rates of kinds that RUN learned
    learned       likewise by all that RUN learned
    right tool    the last of these where the right agent and region are always called
    right line    likewise where the right line is known
    oracle        the right edit first
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from orchestrion_repair.alternatives import probed
from orchestrion_repair.bug import Bug
from orchestrion_repair.learned import EditModel, Ranked, begin, counted, rank
from orchestrion_repair.ranking import ochiai
from orchestrion_repair.runner import Runner, shared_runner
from orchestrion_repair.state import RepairState, program_of, seen_of, situation_of, target_of
from orchestrion_repair.task import Repair
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits

from orchestrion import Key
from orchestrion.config import load
from orchestrion.runs import Report, RunReader, atrain, estimate, open_run
from tests.benchmarks.support import EXAMPLES

EXAMPLE = EXAMPLES / "repair.yaml"
BUILTIN = "builtin"
WHOLE, NONE = "task.max_problems=null", "evaluation.baselines={}"
TOOLS = (
    ("comparison",), ("off-by-one", "slice"), ("arithmetic", "operand"), ("condition", "extend"),
    ("variable",), ("constant", "return"), ("argument", "function", "unwrap", "wrap"), ("graft",),
    ("guard", "insert"), ("move", "delete", "control"),
)  # fmt: skip
BUDGET = 114
"""Edits that an episode of `docs/examples/repair.yaml` may try."""


@frozen
class Known:
    """A bug with what every edit gives: whether it passes the visible tests, and all."""

    state: RepairState
    passing: frozenset[int]
    right: frozenset[int]


async def known_of(bug: Bug, runner: Runner, limits: RepairLimits) -> Known:
    """Run the bug's tests, and every candidate on all its tests."""
    visible = [case.to_json() for case in bug.visible]
    data = {"entry_point": bug.entry_point, "visible": visible, "limits": {}}
    state = RepairState(target_of(data), bug.code)

    def trial(code: str, cases: Sequence[Any], lines: bool = False) -> ProgramTrial:
        return ProgramTrial(code, bug.entry_point, tuple(cases), bug.prelude, not lines, lines)

    looking = probed(program_of(state))
    tests = trial(bug.code, bug.visible, True)
    if looking is not None:
        tests = evolve(tests, code=looking.code, sites=looking.sites)
    [first] = await runner.run([tests], limits)
    runs = [(one.passed, frozenset(one.lines)) for one in first]
    results = [{"passed": o.passed, "error": o.error, "got": o.got, "line": o.line} for o in first]
    shown = {"same": [one.same for one in first]} if looking is not None else {}
    state = evolve(
        state,
        results=tuple(results),
        suspicion=tuple(sorted(ochiai(runs).items())) or None,
        seen=seen_of({**shown, "probed": looking.numbers if looking else "0"}, results),
    )
    order = sorted(range(len(first)), key=lambda i: first[i].passed)
    cases = [bug.visible[i] for i in order] + list(bug.hidden)
    edits = program_of(state).candidates
    reports: list[tuple[Outcome, ...]] = []
    for start in range(0, len(edits), 64):
        some = [trial(one.apply(bug.code), cases) for one in edits[start : start + 64]]
        reports += await runner.run(some, limits)
    good = [sum(one.passed for one in report) for report in reports]
    return Known(
        state,
        frozenset(i for i, n in enumerate(good) if n >= len(bug.visible)),
        frozenset(i for i, n in enumerate(good) if n == len(cases)),
    )


def places(known: Known, model: EditModel) -> dict[str, int | None]:
    """Return how many edits are tried until one passes, if it is a right one; None if it is not."""
    ranked = rank(model, program_of(known.state), situation_of(known.state))
    edits = program_of(known.state).candidates
    numbers = ranked.numbers.tolist()

    def first(some: list[int]) -> int | None:
        place = next((i for i, n in enumerate(some) if n in known.passing), None)
        return None if place is None or some[place] not in known.right else place + 1

    def best(groups: list[list[int]]) -> int | None:
        found = [place for place in map(first, groups) if place is not None]
        return min(found, default=None)

    return {
        "all": first(numbers),
        "tool": best(_by_tool(ranked, numbers, edits)),
        "line": best([[n for n in numbers if edits[n].line == line] for line in ranked.order]),
    }


def _by_tool(ranked: Ranked, numbers: list[int], edits: Sequence[Any]) -> list[list[int]]:
    return [
        [n for n in numbers if edits[n].family in tool and edits[n].line in lines]
        for tool in TOOLS
        for lines in ranked.regions.values()
    ]


def show(name: str, found: list[int | None]) -> None:
    """One row: solved within the budget and at all, and edits tried."""
    n = len(found)
    known = [place for place in found if place is not None]
    inside = sum(place <= BUDGET for place in known)
    cut = [min(place, BUDGET) for place in known] or [0]
    row = f"{inside / n:6.1%} {len(known) / n:8.1%} {np.mean(cut):8.1f} {np.median(cut):8.0f}"
    print(f"{name:12} {row}")


async def bounds(given: argparse.Namespace) -> None:
    """Print the table of upper bounds."""
    task = Repair(suite=given.suite, steps=given.steps)
    async with shared_runner() as runner:
        bugs = [bug for bug in await task._usable(runner) if bug.split == given.split]
        step = max(1, len(bugs) // given.bugs)
        known = [await known_of(bug, runner, task.limits) for bug in bugs[::step]]
    models = {"untrained": begin()}
    if given.run is not None:
        with RunReader(given.run) as reader:
            checkpoint = reader.usable().checkpoint
        assert checkpoint is not None
        learned = EditModel.from_text(checkpoint.overlay["task.ranking"])
        models |= {"counted": counted(learned.rates), "learned": learned}
    print(f"{len(known)} bugs, {given.steps} steps")
    print(f"{'':12} {f'in {BUDGET}':>6} {'ever':>8} {'mean':>8} {'median':>8}")
    for name, model in models.items():
        found = [places(one, model) for one in known]
        show(name, [one["all"] for one in found])
    show("right tool", [one["tool"] for one in found])
    show("right line", [one["line"] for one in found])
    show("oracle", [1 if one.right else None for one in known])


# ---------------------------------------------------------------- over seeds


OTHERS = (
    "trainer.context=false",
    "trainer.episodes=0",
    "evaluation.baselines={untrained: {policy: {use: hinted}, as_configured: true}, "
    "learned-order: {policy: {use: order, finish: stop}, "
    "trainer: {use: learned-order, episodes: 128}, as_configured: true}, "
    "random: {policy: {use: random}, as_configured: true}}",
)
"""The example as a run that learns the counts alone, with its other baselines."""


async def seeds(given: argparse.Namespace) -> None:
    """Train with each seed, judge on every suite, print pooled figures."""
    changes = {f"seed-{n}": [f"seed={n}", WHOLE, NONE] for n in range(1, given.seeds + 1)}
    changes["others"] = ["seed=1", WHOLE, *OTHERS]
    if given.only:
        await atrain(load(EXAMPLE, changes[given.only]), given.folder / given.only)
        changes = {name: row for name, row in changes.items() if _complete(given.folder / name)}
    found: dict[str, dict[str, Report]] = {suite: {} for suite in (BUILTIN, *given.suites)}
    for name, row in changes.items():
        folder = given.folder / name
        found[BUILTIN][name] = (await atrain(load(EXAMPLE, row), folder)).report
        for suite in given.suites:
            async with open_run(folder, [f"task.suite={suite}"]) as run:
                found[suite][name] = await run.evaluate("test")
    for suite, reports in found.items():
        others = reports.pop("others", None)
        if others is not None and reports:
            pooled(suite, others, list(reports.values()))
        else:
            print(f"{suite}: pooled figures take `others` and a seed")


def _complete(folder: Path) -> bool:
    if not (folder / "run.db").exists():
        return False
    with RunReader(folder) as reader:
        return reader.status == "completed"


def pooled(suite: str, others: Report, reports: Sequence[Report]) -> None:
    """What the learned team reaches on average, each other one, and the difference in reward."""
    own = others.contenders[0].name
    learned = [report.outcomes[own] for report in reports]
    bugs = list(learned[0])
    print(f"{suite}: {len(bugs)} bugs, {len(reports)} training seeds", flush=True)

    def means(field: str) -> list[float]:
        return [float(np.mean([float(one[bug][field] or 0) for one in learned])) for bug in bugs]

    rewards = means("reward")
    print(f"  {own:14} {_row(means('solved'), means('cost'), rewards)}")
    for contender, outcomes in others.outcomes.items():
        name = "counted" if contender == own else contender
        solved, cost, reward = (
            [float(outcomes[bug][field] or 0) for bug in bugs]
            for field in ("solved", "cost", "reward")
        )
        more = [a - b for a, b in zip(rewards, reward, strict=True)]
        interval = estimate(more, Key(0).child(suite, name))
        each = " ".join(
            f"{np.mean([float(one[bug]['reward'] or 0) for bug in bugs]) - np.mean(reward):+.3f}"
            for one in learned
        )
        print(
            f"  {name:14} {_row(solved, cost, reward)}   learned minus this "
            f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}], by seed {each}",
            flush=True,
        )


def _row(solved: Sequence[float], cost: Sequence[float], reward: Sequence[float]) -> str:
    return f"solved {np.mean(solved):.1%} cost {np.mean(cost):.1f} reward {np.mean(reward):.3f}"


def _absolute(path: str) -> str:
    return str(Path(path).resolve())


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("bounds")
    one.add_argument("suite", nargs="?", default=BUILTIN)
    one.add_argument("run", nargs="?", type=Path)
    one.add_argument("--bugs", type=int, default=40)
    one.add_argument("--split", default="validation")
    one.add_argument("--steps", type=int, default=10_000)
    one.set_defaults(command=bounds)
    one = commands.add_parser("seeds")
    one.add_argument("folder", type=Path)
    one.add_argument("suites", nargs="*", metavar="suite", type=_absolute)
    one.add_argument("--seeds", type=int, default=5)
    one.add_argument("--only", metavar="NAME", help="seed-1, ..., or others")
    one.set_defaults(command=seeds)
    given = parser.parse_args()
    asyncio.run(given.command(given))


if __name__ == "__main__":
    main()
