"""Committee: build a voting graph slot by slot; the best graphs are known.

A committee has up to `slots` members. The first one placed is the output; each further one is
read by some of those placed before, so the graph has no cycle and every member counts. A member
holds an own signal, right with a probability that depends on the kind of question (kinds are
equally likely), and says sign(own x signal + message x sum of what it reads); a tie falls back
to its own signal, and without one it says nothing. Members of one type copy a common draw with
probability `rho`, else draw alone. A member pays its price and `edge_cost` for each reader.

The result is worth the committee's exact accuracy (a silent output is half right), or, with
`bernoulli`, one draw of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from attrs import Attribute, field, frozen

from orchestrion import Calls, Key, Problem, Scores, Split, Step, Task, Trajectory, Turn, no_calls
from orchestrion_orchestration_bench.agents import Slots
from orchestrion_orchestration_bench.committee_rules import (
    STOP,
    CommitteeRules,
    CommitteeState,
)
from orchestrion_orchestration_bench.tables import (
    Check,
    Count,
    Price,
    Probability,
    price,
    probability,
    spread,
    whole,
)

__all__ = ["Committee", "Voter"]


@frozen
class Voter:
    """A type of member.

    Args:
        right: probability that its own signal is right, by kind of question; empty if it has
            none and only counts what it reads.
        cost: of one such member.
        rho: probability that a member copies the draw common to its type.
        own: weight of its own signal.
        message: weight of each message it reads.
    """

    right: tuple[Probability, ...] = field(default=(), validator=probability)
    cost: Price = field(default=0.0, validator=price)
    rho: Probability = field(default=0.0, validator=probability)
    own: Price = field(default=0.0, validator=price)
    message: Price = field(default=1.0, validator=price)


def _members() -> dict[str, Voter]:
    return {
        "coder": Voter((0.86, 0.52), 1.0, 0.2, 1.0, 0.7),
        "reasoner": Voter((0.52, 0.86), 1.0, 0.2, 1.0, 0.7),
        "generalist": Voter((0.72, 0.72), 0.8, 0.6, 0.9, 0.55),
        "large": Voter((0.84, 0.80), 5.0, 0.3, 1.6, 0.55),
        "vote": Voter((), 0.25, 0.0, 0.0, 1.0),
    }


@frozen
class Committee(Task):
    """A voting graph; `committee-agent`s named like the rows of `members` build it.

    Args:
        members: types of members.
        slots: members at most; the agents need the same setting.
        edge_cost: of each message that is read.
        target: accuracy from which the problem counts as solved.
        bernoulli: whether the result is one right or wrong answer instead of the accuracy.
        train: problems in the training split; they are all alike.
        validation: problems in the validation split.
        test: problems in the test split.
    """

    members: Mapping[str, Voter] = field(factory=_members)
    slots: Slots = field(default=4, validator=whole(2, 6))
    edge_cost: Price = field(default=0.1, validator=price)
    target: Probability = field(default=0.8, validator=probability)
    bernoulli: bool = False
    train: Count = field(default=16, validator=whole(1))
    validation: Count = field(default=16, validator=whole(1))
    test: Count = field(default=100, validator=whole(1))

    @members.validator
    def _check_members(self, attribute: Attribute[Any], value: Mapping[str, Voter]) -> None:
        check = Check()
        check.names("members", tuple(value), reserved=(STOP,))
        kinds = sorted({len(voter.right) for voter in value.values() if voter.right})
        check.that(
            len(kinds) == 1,
            "members: `right` needs one probability for each kind of question, as many for every "
            f"member that has a signal; got {kinds or 'no member with a signal'}",
        )
        for name, voter in value.items():
            fine = bool(voter.right) or voter.own == 0
            check.that(fine, f"member {name!r}: `own` must be 0 without a signal of its own")
        check.raise_any()

    @cached_property
    def rules(self) -> CommitteeRules:
        """The dynamics, computed once from the tables."""
        return CommitteeRules(self)

    def problems(self, split: Split) -> Sequence[Problem]:
        """Problems of a split, all alike."""
        return spread((self.problem_from(""),), "committee", split, getattr(self, split))

    def problem_from(self, text: str) -> Problem:
        """The problem; `text` is not used."""
        said = f"build a committee of at most {self.slots} members"
        return Problem("input", said, {"slots": self.slots}, "committee")

    def start(self, problem: Problem, key: Key) -> Step:
        """Nobody is placed; the draw of a `bernoulli` result is made now, and never shown."""
        return self.rules.begin(key)

    def step(self, state: CommitteeState, turn: Turn, key: Key) -> Step:
        """The state after a placement; a foreign or failed turn leaves its slot empty."""
        return self.rules.step(state, turn)

    ceiling = no_calls

    async def verify(
        self,
        problem: Problem,
        trajectory: Trajectory,
        state: CommitteeState,
        *,
        final: bool,
        calls: Calls,
    ) -> Scores:
        """The accuracy of what was built, or one draw of it."""
        return self.rules.scores(state)
