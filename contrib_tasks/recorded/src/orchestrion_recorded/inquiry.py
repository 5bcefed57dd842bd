"""The policy `inquiry`: asks one after the other by a plan that goes by who agrees with whom."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from attrs import frozen

from orchestrion import (
    Activation,
    CheckpointError,
    Decision,
    Key,
    OpenContext,
    Policy,
    Saved,
    Situation,
    choice_name,
    choices,
    is_blocked,
)
from orchestrion_recorded.cascade import answer_of
from orchestrion_recorded.planning import Tree, follow

__all__ = ["Inquiry", "InquiryRunner"]

STOP = Decision(stop=True)
Plans = Mapping[str, Mapping[int, Tree]]
"""By category and number of options; the category "" is for those that have none of their own."""


@frozen
class Inquiry:
    """Asks one agent after the other by a plan for each kind of question, until it says stop.

    A plan goes by who gave no answer and who agrees with whom. The trainer `best-inquiry` finds the
    plans; before that nobody is asked.
    """

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Begin without a plan."""
        yield InquiryRunner(choices(ctx.roster))


class InquiryRunner(Policy):
    """Plans at work: its learned state."""

    def __init__(self, able: Sequence[Activation], plans: Plans | None = None) -> None:
        self.able = {choice_name(choice): choice for choice in able}
        self.plans: Plans = plans or {}

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """The next one, or the end."""
        return [self._next(situation) for situation in situations]

    def _next(self, situation: Situation) -> Decision:
        tree, seen = self._plan(situation), situation.observation
        heard: dict[str, object] = {}
        for turn in situation.trajectory:
            name = choice_name(Activation(turn.agent, turn.option))
            text = turn.output.content if turn.status == "completed" else ""
            heard[name] = answer_of(turn.option or turn.agent, text, situation) or None
        while (wanted := follow(tree, heard)) is not None:
            if not is_blocked(self.able[wanted], seen):
                return Decision((self.able[wanted],))
            heard[wanted] = None  # cannot be asked, so it gives no answer
        return STOP

    def _plan(self, situation: Situation) -> Tree:
        """The plan for the question's category, and the nearest number of options."""
        plans = self.plans.get(situation.problem.category or "") or self.plans.get("")
        if not plans:
            return None
        data: Any = situation.problem.data
        options = data.get("options") if isinstance(data, dict) else None
        wanted = options if isinstance(options, int) else max(plans)
        return plans[min(plans, key=lambda own: (abs(own - wanted), own))]

    def save(self) -> Saved:
        """The plans, each kept once."""
        trees: list[Tree] = []
        places: dict[str, dict[str, int]] = {}
        for category, plans in self.plans.items():
            own = places[category] = {}
            for options, tree in plans.items():
                if tree not in trees:
                    trees.append(tree)
                own[str(options)] = trees.index(tree)
        return Saved(data={"plans": trees, "for": places})

    def load(self, saved: Saved) -> None:
        """Take over saved plans."""
        data: Any = saved.data
        try:
            for tree in data["plans"]:
                self._check(tree)
            self.plans = {
                category: {int(options): data["plans"][at] for options, at in own.items()}
                for category, own in data["for"].items()
            }
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise CheckpointError(
                f"this is not the state of an inquiry of this team: {error!r}"
            ) from None

    def _check(self, tree: Tree) -> None:
        """Raise KeyError where a plan asks someone whom the team has not."""
        if tree is not None:
            self.able[tree["ask"]]
            for part in tree["then"]:
                self._check(part)
