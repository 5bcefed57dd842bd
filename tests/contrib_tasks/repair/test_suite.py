"""The built-in suite: what it must hold, and that what it says is true."""

from __future__ import annotations

import asyncio
import calendar
import itertools
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import pytest
from orchestrion_repair import build_suite
from orchestrion_repair.bug import Bug, same
from orchestrion_repair.suite import KINDS, SPLITS, UNMENDABLE, bugs
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits
from orchestrion_sandbox.inside.plain import encode

from tests.contrib_tasks.repair.support import with_runner

DATA = Path(build_suite.__file__).parent / "suite_data"
ONE_OF_EACH = {bug.group: bug for bug in reversed(bugs())}


# ---------------------------------------------------------------- what it holds


def test_it_has_many_functions_each_with_several_mistakes() -> None:
    mistakes = Counter(bug.group for bug in bugs())
    assert len(mistakes) >= 64
    assert min(mistakes.values()) >= 4
    assert len({bug.id for bug in bugs()}) == len(bugs())


def test_the_splits_have_their_sizes_and_share_no_function() -> None:
    sizes = {split: len(bugs(split)) / len(bugs()) for split in SPLITS}
    assert len(bugs("test")) >= 100
    assert 0.55 <= sizes["train"] <= 0.65
    assert sizes["validation"] >= 0.05
    groups = [{bug.group for bug in bugs(split)} for split in SPLITS]
    assert not any(a & b for a, b in itertools.combinations(groups, 2))
    assert sum(len(bugs(split)) for split in SPLITS) == len(bugs())


def test_every_area_is_trained_on_and_held_out() -> None:
    areas = [{bug.category for bug in bugs(split)} for split in ("train", "test")]
    assert len(areas[0]) >= 12
    assert areas[0] == areas[1]


def test_functions_have_different_visible_and_hidden_cases() -> None:
    for bug in ONE_OF_EACH.values():
        visible, hidden = ({json.dumps(c.args) for c in cs} for cs in (bug.visible, bug.hidden))
        assert 5 <= len(visible) == len(bug.visible) <= 8, bug.group
        assert 8 <= len(hidden) == len(bug.hidden) <= 14, bug.group
        assert not visible & hidden, bug.group


@pytest.mark.parametrize("split", [None, "train", "test"])
def test_kinds_are_mixed_as_in_collections_of_real_one_place_bugs(split: Any) -> None:
    """Shares in the order of public collections: logic, values, operators, variables, the rest."""
    counts = Counter(bug.kind for bug in bugs(split))
    share = {kind: counts[kind] / len(bugs(split)) for kind in KINDS}
    values = share["wrong value"] + share["wrong return"] + share["initial value"]
    functions = share["wrong function"] + share["argument order"]
    assert sum(share.values()) == pytest.approx(1)
    assert 0.15 <= share["missing logic"] <= 0.25
    assert 0.10 <= share["excess logic"] <= 0.20
    assert 0.12 <= values <= 0.27
    assert 0.10 <= share["wrong operator"] <= 0.20
    assert 0.08 <= share["wrong variable"] <= 0.15
    assert 0.04 <= functions <= 0.12
    assert 0.10 <= sum(share[kind] for kind in UNMENDABLE) <= 0.16


# ---------------------------------------------------------------- that it is true


def build(folder: Path) -> dict[str, Any]:
    return with_runner(lambda runner: build_suite.build(folder, runner))


class Stored:
    """A runner that believes the stored file: values are right, mistakes are noticed."""

    def __init__(self, functions: list[dict[str, Any]]) -> None:
        self.sources = {function["name"]: function["source"] for function in functions}
        self.values = {
            (function["name"], json.dumps(arguments)): value
            for function in functions
            for arguments, value in function["visible"] + function["hidden"]
        }

    async def run(
        self, trials: list[ProgramTrial], limits: RepairLimits
    ) -> list[tuple[Outcome, ...]]:
        return [tuple(self.outcome(trial, case) for case in trial.cases) for trial in trials]

    def outcome(self, trial: ProgramTrial, case: Any) -> Outcome:
        if trial.code != self.sources[trial.entry_point]:
            return Outcome(False)
        return Outcome(True, got=encode(self.values[trial.entry_point, json.dumps(case["call"])]))


def test_the_stored_file_is_what_its_sources_give() -> None:
    stored = (DATA / "suite.json").read_text("utf-8")
    runner: Any = Stored(json.loads(stored)["functions"])
    content = asyncio.run(build_suite.build(DATA, runner))
    assert stored == build_suite.text_of(content), "run `python -m orchestrion_repair.build_suite`"


@pytest.mark.parametrize("category", ["dynamic", "machines", "strings"])
def test_every_mistake_is_noticed(category: str, tmp_path: Path) -> None:
    shutil.copy(DATA / f"{category}.toml", tmp_path)
    functions = json.loads((DATA / "suite.json").read_text("utf-8"))["functions"]
    wanted = [function for function in functions if function["category"] == category]
    assert json.loads(build_suite.text_of(build(tmp_path)))["functions"] == wanted


def outcomes(chosen: list[Bug], code: Callable[[Bug], str]) -> list[tuple[Outcome, ...]]:
    trials = [ProgramTrial(code(bug), bug.entry_point, bug.visible + bug.hidden) for bug in chosen]
    return with_runner(lambda runner: runner.run(trials))


def test_the_runner_finds_every_solution_right() -> None:
    chosen = list(ONE_OF_EACH.values())
    for bug, results in zip(chosen, outcomes(chosen, lambda bug: bug.solution), strict=True):
        assert [result for result in results if not result.passed] == [], bug.group


def one(condition: bool) -> int:
    return 1 if condition else 0


def fewest_coins(amount: int, coins: list[int]) -> int:
    reach, used = {0}, 0
    while amount not in reach and used <= amount:
        reach, used = {r + c for r in reach for c in coins if r + c <= amount}, used + 1
    return used if amount in reach else -1


@lru_cache
def partitions(number: int, largest: int) -> int:
    if number == 0:
        return 1
    return sum(partitions(number - part, part) for part in range(1, min(number, largest) + 1))


def survivor(count: int, step: int) -> int:
    people = list(range(count))
    at = 0
    while len(people) > 1:
        at = (at + step - 1) % len(people)
        del people[at]
        at %= len(people)
    return people[0]


def after_months(year: int, month: int, count: int) -> list[int]:
    while count:
        month += 1 if count > 0 else -1
        count -= 1 if count > 0 else -1
        year, month = (year + one(month > 12) - one(month < 1)), (month - 1) % 12 + 1
    return [year, month]


def longest_wave(values: list[int]) -> int:
    best = one(bool(values))
    for size in range(2, len(values) + 1):
        for chosen in itertools.combinations(values, size):
            steps = [b - a for a, b in itertools.pairwise(chosen)]
            if all(steps) and all(a * b < 0 for a, b in itertools.pairwise(steps)):
                best = size
    return best


def best_pick(profits: list[int]) -> int:
    best = 0
    for mask in itertools.product((0, 1), repeat=len(profits)):
        if all(a + b < 2 for a, b in itertools.pairwise(mask)):
            best = max(best, sum(p for p, m in zip(profits, mask, strict=True) if m))
    return best


ORACLES: dict[str, Callable[..., Any]] = {
    "month_days": lambda y, m: calendar.monthrange(y, m)[1],
    "day_of_year": lambda y, m, d: date(y, m, d).timetuple().tm_yday,
    "add_months": after_months,
    "working_days": lambda first, days, holidays: sum(
        (date(2024, 1, 1) + timedelta(first + d)).weekday() < 5 and d not in holidays
        for d in range(days)
    ),
    "choices": lambda items, k: [list(c) for c in itertools.combinations(items, k)],
    "partition_count": partitions,
    "last_standing": survivor,
    "fewest_coins": fewest_coins,
    "longest_zigzag": longest_wave,
    "best_rest_days": best_pick,
    "partition_difference": lambda ws: min(
        abs(sum(w * s for w, s in zip(ws, signs, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(ws))
    ),
    "plain_sum": lambda text: eval(text, {"__builtins__": {}}),  # noqa: S307
    "most_at_once": lambda bs: max((sum(a <= t < b for a, b in bs) for t, _ in bs), default=0),
    "competition_ranks": lambda xs: [sorted(xs, reverse=True).index(x) + 1 for x in xs],
    "majority": lambda vs: next((v for v in vs if 2 * vs.count(v) > len(vs)), None),
    "worst_drop": lambda ps: max(
        (a - b for i, a in enumerate(ps) for b in ps[i:]), default=0
    ),
    "pairs_with_gap": lambda xs, g: sum(abs(a - b) == g for a, b in itertools.combinations(xs, 2)),
    "perfect_squares": lambda a, b: sum(r * r in range(a, b + 1) for r in range(100)),
    "persistence": lambda n: next(
        steps
        for steps in itertools.count()
        if reduce(
            lambda v, _: reduce(lambda a, d: a * int(d), str(v), 1), range(steps), n
        ) < 10
    ),
    "moving_average": lambda xs, w: [
        sum(xs[i : i + w]) / w for i in range(len(xs) - w + 1) if w > 0
    ],
    "sparse_product": lambda a, b: sum(x * dict(map(tuple, b)).get(i, 0) for i, x in a),
    "diagonal_difference": lambda m: abs(
        sum(row[i] - row[~i] for i, row in enumerate(m))
    ),
    "rotate_left": lambda xs, k: [xs[(i + k) % len(xs)] for i in range(len(xs))],
    "closest_value": lambda xs, t: min(xs, key=lambda x: (abs(x - t), x), default=None),
    "peak_index": lambda xs: xs.index(max(xs)),
    "rotation_point": lambda xs: xs.index(min(xs)) if xs else 0,
    "longest_unique": lambda s: max(
        (s[i:j] for i in range(len(s)) for j in range(i, len(s) + 1) if len(set(s[i:j])) == j - i),
        key=len,
        default="",
    ),
    "shortest_span": lambda xs, t: min(
        (j - i for i in range(len(xs)) for j in range(i, len(xs) + 1) if sum(xs[i:j]) >= t),
        default=0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_wanted_values_are_those_of_another_method(name: str) -> None:
    for case in (*ONE_OF_EACH[name].visible, *ONE_OF_EACH[name].hidden):
        assert same(ORACLES[name](*case.args), case.want), case


# ---------------------------------------------------------------- loading and building


def test_loading_reads_the_stored_file_only() -> None:
    code = (
        "import sys; from orchestrion_repair.suite import bugs; print(len(bugs()));"
        "print([m for m in ('tomllib', 'orchestrion_repair.build_suite') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[:2] == [str(len(bugs())), "[]"]


FUNCTION = """
[double]
split = "train"
source = '''
def double(x):
    if x is None:
        return 0
    return x * 2
'''
visible = '[1] [2] [3] [4] [null]'
hidden = '[5] [6] [7] [8] [9] [10] [11] [0]'
bugs = '''
wrong operator: x * 2 ==> x + 2
wrong value: x * 2 ==> x * 3
wrong variable: x * 2 ==> x * x
{line}
'''
"""


def built(tmp_path: Path, line: str) -> str:
    (tmp_path / "numbers.toml").write_text(FUNCTION.format(line=line), "utf-8")
    with pytest.raises(build_suite.BuildError) as error:
        build(tmp_path)
    return str(error.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("wrong value: x * 2 ==> x * (2)", "changes nothing"),
        ("wrong value: x * 2 ==> x * 2 + 0", "no visible case notices"),
        ("wrong return: return 0 ==> return 1", "no hidden case notices"),
        ("wrong value: x * 2 ==> x *", "invalid syntax"),
        ("wrong value: y * 2 ==> y", "0 places"),
        ("wrong value: x ==> 1", "places"),
        ("silly: x * 2 ==> 1", "no such kind"),
        ("wrong value: return 0 ==> return 1 ;; x * 2 ==> x", "several patches"),
        ("wrong operator: x * 2 ==> x + 2", "different"),
        ("wrong value: x * 2 ==> [x] * 10 ** 12", "something grows"),
    ],
)
def test_a_mistake_that_is_not_as_it_must_be_is_refused(
    tmp_path: Path, line: str, says: str
) -> None:
    message = built(tmp_path, line)
    assert says in message
    assert "numbers.toml, double" in message


def test_a_mistake_may_loop_for_ever(tmp_path: Path) -> None:
    line = "excess logic: return x * 2 ==> while True:¶    x += 1"
    text = FUNCTION.format(line=f"wrong algorithm: {line.partition(': ')[2]}")
    (tmp_path / "numbers.toml").write_text(text, "utf-8")
    [function] = build(tmp_path)["functions"]
    assert len(function["bugs"]) == 4
    assert function["visible"][0] == [[1], 2]
