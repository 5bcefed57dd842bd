"""Committee: build a voting graph slot by slot; the best graphs are known.

A committee has up to `slots` members. The first one placed is the output; each further one is
read by some of those placed before, so the graph has no cycle and every member counts. A member
holds an own signal, right with a probability that depends on the kind of question (kinds are
equally likely), and says sign(own x signal + message x sum of what it reads); a tie falls back
to its own signal, and without one it says nothing. Members of one type copy a common draw with
probability `rho`, else draw alone. A member pays its price and `edge_cost` for each reader.

The result is worth the committee's exact accuracy; a silent output is half right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from attrs import Attribute, field, frozen

from orchestrion import JSON, Key, Observation, Problem, Scores, Step, Turn
from orchestrion_orchestration_bench.agents import FIRST, Slots, options_for
from orchestrion_orchestration_bench.tables import (
    Check,
    Count,
    Price,
    Probability,
    Rules,
    TableTask,
    played,
)

STOP = "stop"
CACHED = 20_000
SIGNALS = (1, -1)


class Slot(NamedTuple):
    """One member: its type, and the earlier slots that read it, as bits."""

    type: str
    readers: int = 0


Genotype = tuple[Slot, ...]
"""Slots from the output on; an empty slot has no type and is read by nobody."""


@lru_cache
def readers(option: str) -> int:
    """Return the readers an option names, as bits; "output" names none."""
    return 0 if option == FIRST else sum(1 << (int(place) - 1) for place in option.split("+"))


class CommitteeRules(Rules):
    """Costs, accuracy and observations for one set of tables."""

    def __init__(self, task: Committee) -> None:
        self.task = task
        self.names = tuple(task.members)
        self.options = options_for(task.slots)
        text = f"build a committee of at most {task.slots} members"
        self.kinds = (Problem("input", text, {"slots": task.slots}, "committee"),)
        self.questions = max(len(voter.right) for voter in task.members.values())
        self.observe = lru_cache(CACHED)(self._observation)
        self.accuracy = lru_cache(CACHED)(self._accuracy)

    # ------------------------------------------------------------------ an episode

    def begin(self, kind: str, key: Key) -> Step:
        return self._now(())

    def step(self, slots: Genotype, turn: Turn, key: Key) -> Step:
        if turn.output.final or len(slots) >= self.task.slots:
            return self._now(slots)
        row = played(turn)
        slot = Slot("")
        if row in self.task.members:
            option = turn.output.data.get("option")
            if option in self.options:
                slot = self.placed(slots, row, option)
        return self._now((*slots, slot))

    def _now(self, slots: Genotype) -> Step:
        return Step(slots, self.observe(slots), len(slots) >= self.task.slots)

    def placed(self, slots: Genotype, row: str, option: str) -> Slot:
        """Return the slot that placing `row` adds: empty if nobody who is there would read it."""
        reading = readers(option) & occupied(slots)
        return Slot(row, reading) if reading or not occupied(slots) else Slot("")

    def scores(self, slots: Genotype) -> Scores:
        """Return the accuracy of what was built."""
        accuracy = self.accuracy(slots)
        parts = {"accuracy": accuracy, "members": float(sum(bool(s.type) for s in slots))}
        return Scores(accuracy, 0 < accuracy >= self.task.target, parts)

    # ------------------------------------------------------------------ costs and accuracy

    def cost(self, slots: Genotype) -> float:
        """Return what a committee costs: its members and the messages they send."""
        return sum(
            self.task.members[slot.type].cost + self.task.edge_cost * slot.readers.bit_count()
            for slot in slots
            if slot.type
        )

    def _accuracy(self, slots: Genotype) -> float:
        """Return exact accuracy: the sum over all patterns of signals, kind by kind.

        Nothing placed is worth 0. `committee_exact` computes the same for many committees.
        """
        if not occupied(slots):
            return 0.0
        total = 0.0
        for pattern in product(SIGNALS, repeat=len(slots)):
            says = self.output(slots, pattern)
            if says >= 0:
                total += (1.0 if says > 0 else 0.5) * self.chance(slots, pattern)
        return total

    def output(self, slots: Genotype, pattern: Sequence[int]) -> int:
        """Return what the output, the first member, says given all signals (1 right, -1 wrong)."""
        says, first = [0] * len(slots), 0
        for place in reversed(range(len(slots))):
            if not slots[place].type:
                continue
            voter = self.task.members[slots[place].type]
            received = sum(
                says[later] for later in range(len(slots)) if slots[later].readers >> place & 1
            )
            says[place], first = speak(voter, pattern[place], received), place
        return says[first]

    def chance(self, slots: Genotype, pattern: Sequence[int]) -> float:
        """Return how likely a pattern of signals is; kinds are equally likely."""
        by_type: dict[str, list[int]] = {}
        for slot, signal in zip(slots, pattern, strict=True):
            by_type.setdefault(slot.type, []).append(signal)
        total = sum(
            prod(self._group(name, kind, signals) for name, signals in by_type.items())
            for kind in range(self.questions)
        )
        return total / self.questions

    def _group(self, name: str, kind: int, signals: Sequence[int]) -> float:
        """Return how likely the signals of all members of one type are, for one kind."""
        voter = self.task.members.get(name)
        right = voter.right[kind] if voter is not None and voter.right else 0.5
        rho = voter.rho if voter is not None else 0.0
        law = {1: right, -1: 1 - right}
        return sum(
            law[common]
            * prod(rho * (signal == common) + (1 - rho) * law[signal] for signal in signals)
            for common in SIGNALS
        )

    # ------------------------------------------------------------------ what is shown

    def blocked(self, slots: Genotype) -> frozenset[str]:
        """Return the placements that no present member would read."""
        return frozenset(
            f"{name}:{option}"
            for option in self.options
            if not self.fits(slots, option)
            for name in self.names
        )

    def fits(self, slots: Genotype, option: str) -> bool:
        """Return whether an option makes sense: "output" first, then readers that are all there."""
        if not occupied(slots):
            return option == FIRST
        return option != FIRST and not readers(option) & ~occupied(slots)

    def _observation(self, slots: Genotype) -> Observation:
        placed = [
            f"{place + 1} {slot.type or 'empty'}"
            + (f" (read by {', '.join(map(str, places(slot.readers)))})" if slot.readers else "")
            for place, slot in enumerate(slots)
        ]
        left = self.task.slots - len(slots)
        text = f"placed: {'; '.join(placed) or 'nobody'}\nslots left: {left}"
        data = {
            "placed": [{"type": slot.type, "read_by": places(slot.readers)} for slot in slots],
            "slots": self.task.slots,
            "agents": self._entries(slots),
        }
        return Observation(text, data, self._features(slots), self.blocked(slots))

    def _entries(self, slots: Genotype) -> dict[str, JSON]:
        entries: dict[str, JSON] = {
            name: {
                "costs": {
                    option: self.cost((self.placed(slots, name, option),))
                    for option in self.options
                },
                "says": f"takes slot {len(slots) + 1}",
            }
            for name in self.names
        }
        entries[STOP] = {"cost": 0.0, "says": "leaves it at that", "final": True}
        return entries

    def _features(self, slots: Genotype) -> tuple[float, ...]:
        """Return the type and readers of each slot as bits, and the share of slots in use."""
        count = self.task.slots
        padded = (*slots, *(Slot("") for _ in range(count - len(slots))))
        return (
            *(float(slot.type == name) for slot in padded for name in self.names),
            *(float(slot.readers >> i & 1) for slot in padded for i in range(count - 1)),
            len(slots) / count,
        )


def speak(voter: Voter, signal: int, received: int) -> int:
    """Return what a member says: the sign of the weighted sum, or its own signal for a tie."""
    total = (voter.own * signal if voter.right else 0.0) + voter.message * received
    if abs(total) < 1e-9:  # sums of table weights that should cancel
        return signal if voter.right else 0
    return 1 if total > 0 else -1


def occupied(slots: Genotype) -> int:
    """Return the slots that hold a member, as bits."""
    return sum(1 << place for place, slot in enumerate(slots) if slot.type)


def places(bits: int) -> list[int]:
    """Return the slots in bits, counted from 1."""
    return [place + 1 for place in range(bits.bit_length()) if bits >> place & 1]


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

    right: tuple[Probability, ...] = ()
    cost: Price = 0.0
    rho: Probability = 0.0
    own: Price = 0.0
    message: Price = 1.0


def _members() -> dict[str, Voter]:
    return {
        "coder": Voter((0.86, 0.52), 1.0, 0.2, 1.0, 0.7),
        "reasoner": Voter((0.52, 0.86), 1.0, 0.2, 1.0, 0.7),
        "generalist": Voter((0.72, 0.72), 0.8, 0.6, 0.9, 0.55),
        "large": Voter((0.84, 0.80), 5.0, 0.3, 1.6, 0.55),
        "vote": Voter((), 0.25, 0.0, 0.0, 1.0),
    }


@frozen
class Committee(TableTask):
    """A voting graph; `committee-agent`s named like the rows of `members` build it.

    Args:
        members: types of members.
        slots: members at most; the agents need the same setting.
        edge_cost: of each message that is read.
        target: accuracy from which the problem counts as solved.
        train: problems in the training split; they are all alike.
        validation: problems in the validation split.
        test: problems in the test split.
    """

    name = "committee"

    members: Mapping[str, Voter] = field(factory=_members)
    slots: Slots = 4
    edge_cost: Price = 0.1
    target: Probability = 0.8
    train: Count = 16
    validation: Count = 16
    test: Count = 100

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

    def problem_from(self, text: str) -> Problem:
        """Return the problem; `text` is not used."""
        return self.rules.kinds[0]
