"""What an aggregator is handed, and what it gives.

    ballots = [what each member's output says]
    result  = aggregator.combine(ballots, problem, key)

The kind `aggregator` belongs to this plugin; another distribution adds one like this:

    @hookimpl
    def orchestrion_components():
        yield "aggregator", Component("oldest", "my_package.oldest:Oldest", "the first who speaks")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from attrs import Factory, frozen

from orchestrion import JSON, Agent, Key, Problem

__all__ = [
    "Aggregator",
    "Ballot",
    "BallotStatus",
    "Example",
    "Result",
    "ResultStatus",
    "TieRule",
]

BallotStatus = Literal["cast", "abstained", "failed", "invalid", "cancelled"]
ResultStatus = Literal["winner", "tie", "no_consensus"]
TieRule = Literal["first_by_member_order", "by_weight", "by_confidence", "abstain", "seeded_random"]


@frozen
class Ballot:
    """What one activation of one member says.

    Args:
        voter: "agent" or "agent:option"; one voter may have several ballots (samples).
        status: only a `cast` ballot says anything. `abstained`: it finished and gave no answer;
            `invalid`: what it gave cannot be read; `cancelled`: it was not needed or not asked.
        answer: normalised, so that equal answers are equal texts.
        text: the answer as it was said.
        ranking: normalised answers, best first, if it ranked them.
        probabilities: by normalised answer, if it gave them.
        confidence: that its answer is right, 0 to 1, if it said so.
        error: why it failed or is invalid.
    """

    voter: str
    status: BallotStatus = "cast"
    answer: str | None = None
    text: str = ""
    ranking: tuple[str, ...] = ()
    probabilities: Mapping[str, float] | None = None
    confidence: float | None = None
    error: str = ""

    @property
    def votes(self) -> bool:
        """Whether it counts as a vote for an answer."""
        return self.status == "cast" and self.answer is not None


@frozen
class Result:
    """What an aggregator made of the ballots.

    Args:
        status: `winner`: one answer leads; `tie`: several do, and `rule` chose among them (or
            chose none); `no_consensus`: nothing leads by the aggregator's standard.
        answer: the chosen answer, normalised; None without one.
        leaders: all answers that lead equally.
        rule: how a tie was broken, or another way than the aggregator's own was taken.
        scores: what each answer got, in the aggregator's own unit.
        used: how many ballots had a say.
        coverage: `used` as a share of all ballots; the ensemble fills it in.
        notes: what a person should know.
        probabilities: by answer, where the aggregator gives them.
    """

    status: ResultStatus
    answer: str | None = None
    leaders: tuple[str, ...] = ()
    rule: str = ""
    scores: Mapping[str, float] = Factory(dict)
    used: int = 0
    coverage: float = 0.0
    notes: tuple[str, ...] = ()
    probabilities: Mapping[str, float] | None = None


@frozen
class Example:
    """One problem to learn weights from.

    Args:
        problem: the public part.
        ballots: the full vote, in member order.
        right: the verifier's word on each ballot's answer; None where there is none.
        truth: the normalised answer that the verifier calls right, None if nobody named it.
    """

    problem: Problem
    ballots: tuple[Ballot, ...]
    right: tuple[bool | None, ...]
    truth: str | None = None


class Aggregator(Protocol):
    """Makes one result of the members' ballots."""

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """The result. Ballots stand in member order, those without a vote included."""
        ...

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """Whether the ballots of the voters in `waiting`, whatever they say, change nothing.

        `combine` must then choose the same answer, with the same status, as for the full vote.
        """
        return False

    def reader(self) -> tuple[str, Agent] | None:
        """An agent, by name, that reads all answers and writes the result itself."""
        return None

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """New values of its learnable settings, by name; called by `ensemble-weights`."""
        return {}
