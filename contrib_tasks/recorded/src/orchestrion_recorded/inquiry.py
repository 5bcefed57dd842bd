"""The policy `inquiry`: ask some, then whoever adds most for its price, until nobody does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from attrs import Factory, frozen

from orchestrion import (
    Activation,
    CheckpointError,
    Decision,
    Key,
    Meta,
    OpenContext,
    Policy,
    Saved,
    Situation,
    choice_name,
    choices,
    is_blocked,
)
from orchestrion_recorded.cascade import choice_of

__all__ = ["Inquiry", "InquiryRunner", "Opening", "loaded_opening", "saved_opening"]

STOP = Decision(stop=True)


@frozen
class Inquiry:
    """Asks some agents at once, then one after the other whoever adds most for its price.

    What an answer adds is how much likelier the vote is to be right after it, as the task
    `recorded` hints; its price is the offered cost, weighted. Where nobody adds more than its
    price, it stops. The trainer `best-inquiry` finds the settings.

    Args:
        first: whom to ask to begin with: "agent", "agent:option", or an option that only one
            agent has.
        eagerness: what the value of an answer is multiplied by; looking one answer ahead
            underrates what several answers tell together.
        weight: of cost against a right answer.
    """

    first: list[str] = Factory(list)
    eagerness: Annotated[float, Meta(ge=0)] = 1.0
    weight: Annotated[float, Meta(ge=0)] = 0.2

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Check the names against the team."""
        first = tuple(choice_of(name, ctx.roster) for name in self.first)
        able = tuple(choices(ctx.roster))
        yield InquiryRunner(able, self.weight, Opening(first, self.eagerness))


@frozen
class Opening:
    """How an inquiry begins, and how readily it goes on: see `Inquiry`."""

    first: tuple[Activation, ...] = ()
    eagerness: float = 1.0


class InquiryRunner(Policy):
    """An inquiry, with openings for categories of problems: its learned state."""

    def __init__(
        self,
        able: Sequence[Activation],
        weight: float,
        opening: Opening,
        categories: Mapping[str, Opening] | None = None,
    ) -> None:
        self.able = tuple(able)
        self.set(weight, opening, categories)

    def set(
        self, weight: float, opening: Opening, categories: Mapping[str, Opening] | None = None
    ) -> None:
        """Act like this from now on."""
        self.weight, self.opening, self.categories = weight, opening, dict(categories or {})

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """The first ones, the next one, or the end."""
        return [self._next(situation) for situation in situations]

    def _next(self, situation: Situation) -> Decision:
        seen = situation.observation
        opening = self.categories.get(situation.problem.category or "", self.opening)
        if not len(situation.trajectory):
            start = tuple(choice for choice in opening.first if not is_blocked(choice, seen))
            if start:
                return Decision(start)
        data: Any = seen.data if seen is not None else None
        offers = data.get("offers") if isinstance(data, dict) else None
        if seen is None or not offers:
            return STOP
        best, most = None, 0.0
        for choice in self.able:
            offer = offers.get(choice.option or choice.agent)
            hint = seen.hints.get(choice_name(choice))
            if offer is None or not hint or is_blocked(choice, seen):
                continue
            net = opening.eagerness * hint[0] - self.weight * offer["cost"]
            if net > most + 1e-12:
                best, most = choice, net
        return STOP if best is None else Decision((best,))

    def save(self) -> Saved:
        """The weight, and the names of its choices."""
        return Saved(
            data={
                "weight": self.weight,
                "opening": saved_opening(self.opening),
                "categories": {name: saved_opening(one) for name, one in self.categories.items()},
            }
        )

    def load(self, saved: Saved) -> None:
        """Take over a saved inquiry."""
        data: Any = saved.data
        try:
            categories = {
                name: loaded_opening(one, self.able) for name, one in data["categories"].items()
            }
            self.set(data["weight"], loaded_opening(data["opening"], self.able), categories)
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"this is not the state of an inquiry of this team: {error!r}"
            ) from None


def saved_opening(opening: Opening) -> dict[str, Any]:
    """As plain data."""
    return {
        "first": [choice_name(choice) for choice in opening.first],
        "eagerness": opening.eagerness,
    }


def loaded_opening(data: Any, able: Sequence[Activation]) -> Opening:
    """What `saved_opening` gave; raises `KeyError` for an agent that the team has not."""
    names = {choice_name(choice): choice for choice in able}
    return Opening(tuple(names[name] for name in data["first"]), data["eagerness"])
