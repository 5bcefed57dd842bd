"""What an aggregator takes and returns.

    ballots = [what each member's output says]
    result  = aggregator.combine(ballots, problem, key)

The kind `aggregator` belongs to this plugin; another distribution adds an aggregator like this:

    @hookimpl
    def orchestrion_components():
        yield "aggregator", Component("longest", "my_package.longest:Longest", "the longest answer")

docs/ensembles.md shows the whole of it, with what `orchestrion check` needs.
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
    """The answer of one activation of one member.

    Args:
        voter: "agent" or "agent:option"; a voter that is sampled has several ballots.
        status: only a `cast` ballot counts. `abstained`: the member finished without an answer;
            `invalid`: its output cannot be read; `cancelled`: it was stopped or never asked.
        answer: normalised, so that equal answers are equal strings.
        text: the answer in the member's own words.
        ranking: normalised answers, best first, if the member ranked them.
        probabilities: by normalised answer, if the member gave them.
        confidence: the stated probability that the answer is right, 0 to 1.
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
    def vote(self) -> str | None:
        """Return the answer that this ballot votes for, None if it votes for none."""
        return self.answer if self.status == "cast" else None


@frozen
class Result:
    """The outcome of a vote.

    Args:
        status: `winner`: one answer leads; `tie`: several lead, and `rule` chose one or none;
            `no_consensus`: no answer meets the aggregator's standard.
        answer: the chosen answer, normalised; None without one.
        leaders: all answers that lead equally.
        rule: how a tie was broken, or which other rule decided.
        scores: by answer, in the aggregator's own unit.
        used: number of ballots that counted.
        coverage: `used` as a share of all ballots; the ensemble fills it in.
        notes: warnings for the reader of the result.
        probabilities: by answer, if the aggregator computes them.
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
    """One problem to learn from.

    Args:
        problem: the public part.
        ballots: of all members, in member order.
        right: by ballot, whether the verifier accepts its answer; None without an answer.
        truth: the normalised answer that the verifier accepts, None if no member named it.
    """

    problem: Problem
    ballots: tuple[Ballot, ...]
    right: tuple[bool | None, ...]
    truth: str | None = None


class Aggregator(Protocol):
    """Makes one result of the members' ballots."""

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """Return the result. `ballots` holds all of them in member order, silent ones included."""
        ...

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """Return whether no ballot of the voters in `waiting` can change the result.

        If so, `combine` must give the same answer and status for `ballots` as for the full vote.
        """
        return False

    def check(self, voters: Sequence[str]) -> None:
        """Refuse settings that do not fit an ensemble; `voters` names that of each ballot.

        Raises:
            ValueError: says which setting, and why.
        """
        return

    def reader(self) -> tuple[str, Agent] | None:
        """Return the name and the agent that reads all answers and writes the result, if any."""
        return None

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Return new values of learnable settings, by name; `ensemble-weights` calls it."""
        return {}
