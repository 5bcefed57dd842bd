"""What every documented figure of repair rests on, to the last digit: edits, traits, observations.

Each number below is a checksum. If one changes, so do the figures of the first page and of the
README of `orchestrion-repair`: they have to be measured anew, or the change has to be undone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from orchestrion_repair.alternatives import probed
from orchestrion_repair.bug import Bug
from orchestrion_repair.counts import Counts, restoring
from orchestrion_repair.learned import EditModel
from orchestrion_repair.operators import FAMILIES
from orchestrion_repair.ranking import Program, program
from orchestrion_repair.suite import bugs
from orchestrion_repair.symptoms import kinds_of_cases
from orchestrion_repair.traits import SIZE, Reader

from tests.contrib_tasks.repair.support import Bench, on_bench

UNUSUAL = '''\
"""Up to 7 rows; each is "given" as 'text' of 2.5 kinds."""
import math
from collections import defaultdict, deque

LIMIT = 3; OTHER = -2


class Table:
    """Rows by name."""

    rate: float = 0.5

    def __init__(self, rows, size=2, *, wide=False):
        self.rows, self.size = rows, size
        self.wide = wide

    def first(self):
        return self.rows[0] if self.rows else None


def helper(item):
    return item.lower().strip() + "!"


async def waits(task):
    async with task as entered:
        return await entered


def total(values, table, name, flag=True):
    """Sum what counts, up to 26 of them: `(1, 2)` is no example.

    >>> total([3], {}, "b")
    3
    """
    result, rows, seen = 0, [], set()
    names = {"a": 1, 'b': [2, 3]}
    size: int = len(values)
    last = None
    for i, value in enumerate(values, start=1):
        if value is None or i == LIMIT:
            continue
        elif isinstance(value, str) and value.startswith("é"):
            rows.append(value.upper().split(",")[1:])
        elif value in seen:
            break
        else:
            seen.add(value)
        if not flag:
            result -= value ** 2
        while result > 10 and size >= 1 and (value < 5 or flag):
            result //= 2
            size -= 1
        else:
            pass
        last = i
    else:
        result += 1
    for key, row in names.items():
        rows[0:2] = [row, *rows]
        table[key] = table.get(key, 0) + i % 3
    for left, right in zip(values, sorted(values, key=lambda item: -item)):
        if (left - right + 1) / 2 != right * 4 - i:
            result = max(result, left & 1) << 2
            result ^= 1; last = left
    try:
        words = [word for word in name.split() if word if len(word) > 1]
        pairs = {word: i for i, word in enumerate(words)}
        count = sum(1 for word in words if word[0] == "x")
    except (KeyError, ValueError) as error:
        raise TypeError(f"no {name}") from error
    finally:
        done = True
    with open(name) as file:
        text = file.read()[::-1]
    match last:
        case 1 | 2:
            return [count, size]
        case _ if done:
            last = -1
    box = Table(rows, size, wide=flag)
    box.size += 1
    if box.wide is True:
        return box.rows[-1], (text or "none")
    if (found := math.floor(result)) <= 0:
        return not flag
    print(total(values[1:], table, helper(name)), end="")
    del pairs["a"]
    return range(found, 2 * found - 1), list(map(str, reversed(words)))
'''
ONE_OF_EACH = tuple({one.group: one for one in bugs()}.values())


def program_of(one: Bug) -> Program:
    kinds = kinds_of_cases([case.to_json() for case in one.visible], one.entry_point)
    return program(one.code, one.entry_point, kinds)


PROGRAMS = (
    *map(program_of, ONE_OF_EACH),
    program(UNUSUAL, "total", ("list:number", "dict:number", "str")),
    program(UNUSUAL, "other"),
)


def checksum(lines: Iterable[Any]) -> int:
    total = 0
    for line in lines:
        total = crc32(repr(line).encode(), total)
    return total


def rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]


EDITS = {
    "comparison": 1591450908,
    "off-by-one": 2265511044,
    "arithmetic": 2652485593,
    "condition": 2855988214,
    "extend": 691742245,
    "variable": 94393661,
    "constant": 2258026598,
    "argument": 3814907049,
    "function": 371975165,
    "unwrap": 1281512382,
    "wrap": 1654175624,
    "operand": 3912222826,
    "graft": 2755022311,
    "slice": 2582617118,
    "guard": 1657058790,
    "insert": 916048101,
    "delete": 2702952886,
    "move": 1734372578,
    "return": 2496207309,
    "control": 1404928503,
}


def test_the_edits_of_each_family_are_the_same() -> None:
    edits = defaultdict(list)
    for known in PROGRAMS:
        for edit in known.candidates:
            edits[edit.family].append(tuple(edit))
    assert {family: checksum(edits[family]) for family in FAMILIES} == EDITS


TRAITS = 2438816113


def test_the_traits_of_edits_are_the_same() -> None:
    lines = []
    for known in PROGRAMS[::-6]:
        assert known.source is not None
        reader = Reader(known.source)
        for edit in known.candidates[::7]:
            traits = reader.traits(edit)
            lines.append([(slot, round(value, 6)) for slot, value in traits])
    assert checksum(lines) == TRAITS


WEIGHTS = [(crc32(b"%d" % slot) % 1000 - 500) / 4000 for slot in range(SIZE)]
RATES = {(family, ""): 1 / (2 + number) for number, family in enumerate(FAMILIES)}
TEAM: dict[str, list[Any]] = {
    "small": ["comparison", "off-by-one", "arithmetic", "constant"],
    "large": ["guard", "insert", "move", "return", "graft"],
}
SHOWN = {
    "shipping_cost/9": (793605372, 1734370070),
    "commission/10": (4072396677, 3576025749),
    "age_on/8": (2360494577, 128656135),
    "fewest_coins/8": (2662300992, 2968016915),
    "two_colours/9": (3965873405, 351710693),
    "subtract_range/9": (3028657242, 3007880419),
    "rising_runs/8": (1851494521, 1230637970),
    "lift_trip/8": (641448200, 2859525561),
    "mine_counts/10": (3249047218, 827849513),
    "perfect_squares/8": (2507966556, 2961295578),
    "newer_version/9": (3966904599, 1688720474),
    "last_standing/8": (2561524297, 17582429),
    "sort_versions/7": (1726189411, 3301672272),
    "pack_runs/6": (374219172, 3348245673),
}


def shown(one: Bug, ranking: str) -> int:
    """The checksum of all that an episode of some turns shows."""

    async def work(bench: Bench) -> int:
        lines: list[Any] = []
        for agent, option in (
            (None, None), ("tests", None), ("small", "top"), ("lint", None), ("large", "next"),
        ):  # fmt: skip
            if agent is not None:
                output = await bench.act(agent, option)
                lines += [output.content, output.usage.cost]
            seen = bench.step.observation
            assert seen is not None
            lines += [seen.text, sorted(seen.blocked), rounded(seen.features)]
            lines += [(choice, rounded(hint)) for choice, hint in seen.hints.items()]
            lines += [bench.seen["regions"], bench.seen["order"][:300], bench.seen["results"]]
        return checksum(lines)

    return on_bench(one, work, TEAM, ranking=ranking)


LEARNED = EditModel(np.array(WEIGHTS), RATES).to_text()


@pytest.mark.parametrize("one", [*ONE_OF_EACH[::9]], ids=lambda one: one.id)
def test_what_an_episode_shows_is_the_same(one: Bug) -> None:
    assert (shown(one, ""), shown(one, LEARNED)) == SHOWN[one.id]


PROBED = 3361365838


def test_the_expressions_that_are_looked_at_are_the_same() -> None:
    looks = [(None if look is None else (look.code, look.sites)) for look in map(probed, PROGRAMS)]
    assert checksum(looks) == PROBED


RATES_OF_KINDS = 1989365748


def test_how_often_each_kind_of_edit_is_right_is_the_same() -> None:
    counts = Counts()
    for one in bugs("train")[::7]:
        edits = program_of(one).candidates
        counts.add(Counts.of(edits, restoring(edits, one.code, one.solution)))
    rates = sorted(counts.rates().items())
    assert checksum((kind, round(rate, 9)) for kind, rate in rates) == RATES_OF_KINDS
