"""The policy `cascade`: ask some, stop if enough of them agree, else ask one more."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

from attrs import Factory, frozen

from orchestrion import (
    JSON,
    Activation,
    CheckpointError,
    Decision,
    Key,
    Member,
    Meta,
    OpenContext,
    Policy,
    Saved,
    Situation,
    UsageError,
    choice_name,
    choices,
    is_blocked,
    parse_choice,
)
from orchestrion_recorded.table import same

__all__ = ["Cascade", "CascadeRunner", "Steps", "choice_of"]

STOP = Decision(stop=True)


@frozen
class Cascade:
    """Asks some agents at once; stops if enough of them gave the same answer, else asks one more.

    Answers are those that the task `recorded` shows; elsewhere, what the agents said. An agent
    that the task blocks is passed over. The trainer `best-cascade` finds the settings.

    Args:
        first: whom to ask to begin with: "agent", "agent:option", or an option that only one
            agent has.
        agree: how many equal answers suffice; 0 never asks another, and one more than there are
            in `first` always does.
        then: whom to ask if they do not agree; empty for nobody.
    """

    first: list[str] = Factory(list)
    agree: Annotated[int, Meta(ge=0)] = 1
    then: str = ""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Check the names against the team."""
        first = [choice_of(name, ctx.roster) for name in self.first]
        then = choice_of(self.then, ctx.roster) if self.then else None
        yield CascadeRunner(ctx.roster, first, self.agree, then)


@frozen
class Steps:
    """What a cascade does: see `Cascade`."""

    first: tuple[Activation, ...] = ()
    agree: int = 1
    then: Activation | None = None


class CascadeRunner(Policy):
    """A cascade, or one for each category of problems, that can be exchanged: its learned state."""

    def __init__(
        self,
        roster: Sequence[Member],
        first: Sequence[Activation] = (),
        agree: int = 1,
        then: Activation | None = None,
    ) -> None:
        self._roster = roster
        self.set(Steps(tuple(first), agree, then))

    def set(self, steps: Steps, categories: Mapping[str, Steps] | None = None) -> None:
        """Act like this from now on; on problems of some categories by steps of their own."""
        self.steps, self.categories = steps, dict(categories or {})

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """The first ones, the other one, or the end."""
        return [self._one(situation) for situation in situations]

    def _one(self, situation: Situation) -> Decision:
        seen = situation.observation
        steps = self.categories.get(situation.problem.category, self.steps)
        if not len(situation.trajectory):
            start = tuple(choice for choice in steps.first if not is_blocked(choice, seen))
            if start:
                return Decision(start)
        then = steps.then
        if then is None or is_blocked(then, seen) or self._asked(then, situation):
            return STOP
        return STOP if self._agreement(steps, situation) >= steps.agree else Decision((then,))

    def _asked(self, choice: Activation, situation: Situation) -> bool:
        return any(
            (turn.agent, turn.option) == (choice.agent, choice.option)
            for turn in situation.trajectory.backward()
        )

    def _agreement(self, steps: Steps, situation: Situation) -> int:
        """How many of the first ones gave the most frequent answer."""
        wanted = {(choice.agent, choice.option) for choice in steps.first}
        answers = [
            _answer(turn.option or turn.agent, turn.output.content, situation)
            for turn in situation.trajectory
            if turn.status == "completed" and (turn.agent, turn.option) in wanted
        ]
        return max(Counter(answer for answer in answers if answer).values(), default=0)

    def save(self) -> Saved:
        """The names of its choices."""
        own = {category: _saved(steps) for category, steps in self.categories.items()}
        return Saved(data={**_saved(self.steps), **({"categories": own} if own else {})})

    def load(self, saved: Saved) -> None:
        """Take over a saved cascade."""
        try:
            own = saved.data.get("categories", {})
            self.set(
                self._steps(saved.data),
                {category: self._steps(data) for category, data in own.items()},
            )
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"this is not the state of a cascade: {error!r}") from None
        except UsageError as error:
            raise CheckpointError(f"the cascade was learned for another team: {error}") from None

    def _steps(self, data: Mapping[str, JSON]) -> Steps:
        first = tuple(parse_choice(name, self._roster) for name in data["first"])
        then = parse_choice(data["then"], self._roster) if data["then"] else None
        return Steps(first, data["agree"], then)


def _saved(steps: Steps) -> dict[str, JSON]:
    return {
        "first": [choice_name(choice) for choice in steps.first],
        "agree": steps.agree,
        "then": choice_name(steps.then) if steps.then is not None else "",
    }


def _answer(name: str, content: str, situation: Situation) -> str:
    """What an agent answered, in the form in which answers are compared; empty for nothing."""
    data = situation.observation.data if situation.observation is not None else None
    answers = data.get("answers") if isinstance(data, dict) else None
    if isinstance(answers, dict):
        return same(answers.get(name) or "")
    return same(content)


def choice_of(name: str, roster: Sequence[Member]) -> Activation:
    """The choice with this name, or the only one with this option.

    Raises:
        UsageError: there is none, or there are several.
    """
    found = [one for one in choices(roster) if one.option == name]
    exact = [one for one in choices(roster) if choice_name(one) == name]
    if len(exact) == 1:
        return exact[0]
    return found[0] if len(found) == 1 else parse_choice(name, roster)
