"""Look-up by category: the best choice, or the best fixed chain, for each kind of problem.

What a table in a meeting would say: "for tickets about billing, ask B, then C". For every category
of training problems the fixed sequence with the highest mean reward is found by beam search, see
`orchestrion_basics.search`; in use the problem's category is looked up, and nothing else is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar

from attrs import Factory, field, frozen

from orchestrion import (
    JSON,
    Activation,
    Decision,
    Key,
    Meta,
    Metrics,
    OpenContext,
    Plan,
    Policy,
    Problem,
    Saved,
    Session,
    Situation,
    Split,
    Trainer,
    UsageError,
    choice_name,
    choices,
)
from orchestrion_basics.policies import OneByOne, SequenceRunner
from orchestrion_basics.search import BestSequence, OneIteration, allowed, search_plan

OTHER = ""
"""The category of problems that have none, and the plan for categories never seen in training."""


@frozen
class ByCategory:
    """A fixed list of steps for each category of problems, then stop.

    The trainers `by-category` and `chain-by-category` fill the table.

    Args:
        steps: by category, "agent" or "agent:option", in order; "" is for all other categories.
    """

    steps: Mapping[str, list[str]] = Factory(dict)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        yield CategoryTable(self.steps, ctx)


class CategoryTable(OneByOne):
    """The look-up at work; `runners` is its learned state: a sequence for each category."""

    def __init__(self, steps: Mapping[str, Sequence[str]], ctx: OpenContext) -> None:
        self._ctx = ctx
        self.set_steps(steps)

    def set_steps(self, steps: Mapping[str, Sequence[str]]) -> None:
        """Look these steps up from now on."""
        known = {OTHER: (), **steps}
        self.runners = {
            category: SequenceRunner(plan, False, self._ctx) for category, plan in known.items()
        }

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        runner = self.runners.get(situation.problem.category, self.runners[OTHER])
        return runner.decide_one(situation, key)

    def save(self) -> Saved:
        steps = {
            category: [choice_name(step) for step in runner.steps]
            for category, runner in self.runners.items()
        }
        return Saved(data={"steps": steps})

    def load(self, saved: Saved) -> None:
        data: Any = saved.data
        self.set_steps(data["steps"])


@frozen
class BestByCategory(OneIteration):
    """Finds the best fixed sequence for each category: with `length` 1, the best single choice.

    Categories with fewer than `least` training problems are taken together; what is found for them
    also serves categories that training did not show. Where there is no such category, these are
    served by the best of the sequences that were tried in every category.

    Args:
        length: longest sequence tried.
        problems: how many training problems of a category every candidate meets.
        beam: how many sequences are kept at each length.
        least: training problems that a category needs for a plan of its own.
    """

    length: Annotated[int, Meta(ge=1)] = 2
    problems: Annotated[int, Meta(ge=1)] = 16
    beam: Annotated[int, Meta(ge=1)] = 4
    least: Annotated[int, Meta(ge=1)] = 3

    smoke: ClassVar[Mapping[str, JSON]] = {"length": 2, "problems": 2, "beam": 1}
    trains = ("by-category", "by-category", CategoryTable)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        width, length = len(choices(ctx.roster)), allowed(self.length, ctx)
        yield _Opened(length, self.problems, self.beam, self.least, width=width)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Search category by category, and hand the results to the policy."""
        self.check(session)
        groups = self._groups(session.problems("train"))
        search = BestSequence(self.length, self.problems, self.beam)
        steps, rewards = {}, []
        tried: dict[str, dict[tuple[Activation, ...], float]] = {name: {} for name in groups}
        for category, problems in groups.items():
            key = session.key.child("category", category)
            best = await search.search(session, problems, key, tried[category])
            steps[category] = [choice_name(step) for step in best.steps]
            rewards += [best.reward] * len(problems)
        weights = {category: len(problems) for category, problems in groups.items()}
        overall = [choice_name(step) for step in _best_of_all(tried, weights)]
        session.policy.set_steps({OTHER: overall, **steps})
        return {"reward": sum(rewards) / len(rewards), "categories": float(len(groups))}

    def _groups(self, problems: Sequence[Problem]) -> dict[str, list[Problem]]:
        """Return training problems by category; small categories under ""."""
        if not problems:
            raise UsageError("the task has no training problems")
        groups: dict[str, list[Problem]] = {}
        for problem in problems:
            groups.setdefault(problem.category, []).append(problem)
        small = [category for category, group in groups.items() if len(group) < self.least]
        pooled = [problem for category in small for problem in groups.pop(category)]
        if pooled:
            groups[OTHER] = [*groups.get(OTHER, ()), *pooled]
        return groups


def _best_of_all(
    tried: Mapping[str, Mapping[tuple[Activation, ...], float]], weights: Mapping[str, int]
) -> tuple[Activation, ...]:
    """Return the sequence with the highest mean over all categories, of those tried in each."""
    common = [
        steps for steps in next(iter(tried.values())) if all(steps in t for t in tried.values())
    ]
    return max(common, key=lambda steps: sum(weights[c] * tried[c][steps] for c in tried))


@frozen
class _Opened(BestByCategory):
    """The trainer with the number of things that the team can do."""

    width: int = field(kw_only=True)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Return every sequence on as many problems as there can be: each may be a category's."""
        return search_plan(self.length, self.beam, self.width, sizes["train"])


@frozen
class ChainByCategory(BestByCategory):
    """Finds the best fixed chain for each category, see `by-category`."""

    length: Annotated[int, Meta(ge=1)] = 10

    smoke: ClassVar[Mapping[str, JSON]] = {"length": 3, "problems": 2, "beam": 1}
