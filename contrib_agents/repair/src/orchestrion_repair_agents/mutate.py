"""The agent that tries edits of the syntax tree, the most promising first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from attrs import field, frozen

from orchestrion import JSON, Agent, Calls, Key, Meta, OpenContext, Output, Usage, View
from orchestrion_repair.operators import Candidate
from orchestrion_repair.ranking import REGIONS, Program, program, propose
from orchestrion_repair.runner import Outcome, Runner, shared_runner
from orchestrion_repair_agents.workplace import NOTHING, limits_of, outcome_json, trial_of, work_of

__all__ = ["Mutate"]

Family = Literal[
    "comparison", "off-by-one", "arithmetic", "condition", "extend", "variable", "constant",
    "argument", "function", "unwrap", "wrap", "operand", "graft", "slice", "guard", "insert",
    "delete", "move", "return", "control",
]  # fmt: skip


@frozen
class Mutate(Agent):
    """Tries the best-ranked edits of some families in a region of the program.

    Options are regions: `top` is the most suspicious line, `next` the three after it, `rest` all
    others. A call tries so many candidates that were not tried before. Tests that are known to
    fail come first, and a candidate is dropped at its first failure; every execution costs 1.
    The first candidate that passes all visible tests becomes the program.

    Args:
        operators: families of edits, see the README of `orchestrion-repair`.
        candidates: how many a call tries.
        keep_better: run candidates that mend some test on all of them; one that mends some and
            breaks none becomes the program, and later calls go on from there.
    """

    operators: Annotated[list[Family], Meta(min_length=1)]
    candidates: Annotated[int, Meta(ge=1, le=1000)] = 12
    keep_better: bool = False

    @property
    def role(self) -> str:
        """What it does, for policies that read."""
        return f"tries edits: {', '.join(self.operators)}"

    @property
    def options(self) -> Sequence[str]:
        """Where to try them."""
        return REGIONS

    @property
    def pure(self) -> bool:
        """Equal programs, tests and histories give equal reports."""
        return True

    def memo(self, view: View) -> JSON:
        """All that a call depends on: what was tried elsewhere, or by others, is left out."""
        work = work_of(view)
        if work is None:
            return None
        names = ("code", "entry_point", "prelude", "visible", "limits", "arguments")
        lines = work["regions"][view.option or REGIONS[0]]
        weights = [work["weights"].get(str(line)) for line in lines]
        left = [
            [len(propose_from(_program(work), self.operators, work, region)) > 0 for region in REGIONS]
        ]
        mine = {
            c.number for c in propose_from(_program(work), self.operators, {**work, "tried": ()}, view.option or "")
        }
        tried = [number for number in work["tried"] if number in mine]
        order = _order(work)
        return [[work.get(name) for name in names], lines, weights, tried, order, left]

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[RunningMutate]:
        """With processes to run programs in."""
        async with shared_runner() as runner:
            yield RunningMutate(self.operators, self.candidates, self.keep_better, runner)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """One turn with processes of its own; opened, it shares the run's."""
        async with shared_runner() as runner:
            running = RunningMutate(self.operators, self.candidates, self.keep_better, runner)
            return await running.act(view, key, calls)
