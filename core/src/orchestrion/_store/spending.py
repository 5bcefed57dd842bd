"""What the calls of a run took: by service, by agent, by stage; how long, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field

from orchestrion._records import NO_USAGE, Usage, replace
from orchestrion._report import LEARNED, OWN_UNIT, TEAM, amounts, unit_of
from orchestrion._store.journal import CallRow
from orchestrion._store.reader import RunReader

QUANTILES = (0.5, 0.9, 0.99)

UNSURE = {
    "timeout": "timed out, booked with all they could have taken",
    "cut": "cut off by the run, booked with all they could have taken",
    "lost": "cut off by a crash, booked with all they could have taken",
    "started": "under way when this was read, booked with all they can take",
    "billed": "failed after being sent (`retry` in run.log says why), booked with what they "
    "took or may have taken",
}
"""What was booked for attempts that gave no answer, by kind."""


BESIDE_TURNS = ("verifier", "reward", "trainer", "policy")
"""Who makes calls that are part of no turn."""


@define
class Spent:
    """Sums over some calls."""

    answered: int = 0
    cached: int = 0
    failed: int = 0
    retried: int = 0  # attempts that came on top of the first
    unpriced: int = 0  # calls and attempts whose price is not known, which count as free
    usage: Usage = NO_USAGE
    estimated: Usage = NO_USAGE  # the part of `usage` that no service reported
    booked: dict[str, tuple[int, Usage]] = field(factory=dict)
    """Of the attempts without an answer, by kind: how many, and what of `usage` is theirs."""
    seconds: list[float] = field(factory=list)  # of each answered call
    billed: dict[str, float] = field(factory=dict)  # beside tokens, see `Model`

    def add(self, row: CallRow) -> None:
        """Add a row."""
        usage = row.usage
        self.unpriced += math.isnan(usage.usd)
        if math.isnan(usage.usd) or math.isnan(usage.cost):
            usd, cost = (0.0 if math.isnan(x) else x for x in (usage.usd, usage.cost))
            usage = replace(usage, usd=usd, cost=cost)
        self.usage += usage
        self.answered += row.kind == "answer"
        self.cached += row.kind == "cached"
        self.failed += row.kind == "failed"
        if row.kind in UNSURE:
            count, booked = self.booked.get(row.kind, (0, NO_USAGE))
            self.booked[row.kind] = (count + 1, booked + usage)
        if row.kind != "cached" and (row.estimated or row.kind in UNSURE):
            self.estimated += usage
        if row.kind in ("answer", "failed"):
            self.retried += max(row.attempts - 1, 0)
        for name, number in row.billed.items():
            self.billed[name] = self.billed.get(name, 0) + number
        if row.seconds is not None:
            self.seconds.append(row.seconds)

    def latencies(self) -> dict[float, float]:
        """Return quantiles of the seconds that answered calls took; empty where none is known."""
        ordered = sorted(self.seconds)
        # The smallest value that at least such a share does not exceed.
        return {q: ordered[math.ceil(q * len(ordered)) - 1] for q in QUANTILES if ordered}


def spent_by(rows: Sequence[CallRow], name: Callable[[CallRow], Any]) -> dict[Any, Spent]:
    """Return sums by what `name` gives for a row, in the order of the rows."""
    sums: dict[Any, Spent] = {}
    for row in rows:
        sums.setdefault(name(row), Spent()).add(row)
    return sums


def reused_calls(store: RunReader, rows: Sequence[CallRow], stated: Usage) -> int:
    """Return how many calls the turns of stored episodes have above those that were made or cached.

    The training of baselines, whose episodes are not stored, is left out.
    """
    made = [
        row.usage.calls + (row.kind == "cached")
        for row in rows
        if row.who not in BESIDE_TURNS and not row.stage.startswith("training of ")
    ]
    taken = sum(usage.calls for usage in store.usage_by_source().values())
    return max(0, taken - stated.calls - sum(made))


def dollars_by_part(store: RunReader) -> dict[str, float]:
    """Return the US dollars for training, baselines (trained and judged), and the evaluation."""
    parts = dict.fromkeys(("training", "baselines", "evaluation"), 0.0)
    for stage, usd in store.journal.usd_by_stage().items():
        is_baseline = stage.startswith(("training of ", "evaluation of "))
        is_own = stage in (f"evaluation of {LEARNED}", f"evaluation of {TEAM}")
        parts["evaluation" if is_own else "baselines" if is_baseline else "training"] += usd
    return parts


def own_costs(store: RunReader) -> dict[str, Any]:
    """Return what stored episodes cost in the agents' own unit: by source, in all and by agent.

    Empty where costs are money, tokens or calls, which are shown as spent.
    """
    usages = {source: usage for source, usage in store.usage_by_source().items() if usage.cost}
    if unit_of(map(amounts, usages.values())) != OWN_UNIT:
        return {}
    return {
        source: {"cost": usage.cost, "agents": store.cost_by_agent(source)}
        for source, usage in usages.items()
    }
