"""The policy inside an ensemble: ask every member, independently, then perhaps one reader."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from orchestrion import Activation, Decision, Key, Policy, Situation, Trajectory, choice_name
from orchestrion_ensemble.answers import Reading
from orchestrion_ensemble.interfaces import Aggregator, Ballot

__all__ = ["FanOut"]

STOP = Decision(stop=True)
NO_DRAW = Key(0)
"""A settled vote has one leader: nothing is drawn."""


@frozen
class FanOut(Policy):
    """Starts `plan`, all at once or `at_once` at a time, each reading nothing of the others.

    Args:
        plan: one activation a ballot, with its index.
        reader: an activation that reads all answers, after the vote; or None.
        aggregator: says whether the vote is settled.
        reading: how outputs become ballots.
        early_stop: stop asking, and cancel what runs, once the vote is settled.
        min_votes: never settled with fewer votes cast.
        at_once: how many run at the same time; None means all.
    """

    plan: tuple[Activation, ...]
    reader: Activation | None
    aggregator: Aggregator
    reading: Reading
    early_stop: bool
    min_votes: int
    at_once: int | None

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """What each ensemble does next."""
        return [self._one(situation) for situation in situations]

    def _one(self, situation: Situation) -> Decision:
        done = {turn.index for turn in situation.trajectory}
        running = {one.index for one in situation.running}
        todo = [one for one in self.plan if one.index not in done and one.index not in running]
        room = len(todo) if self.at_once is None else self.at_once - len(running)
        if not done and not running:
            each = self.early_stop or len(todo) > room
            return self._start(todo[:room]) if each else Decision(tuple(todo))
        missing = [one for one in self.plan if one.index not in done]
        if missing and not (self.early_stop and self._settled(situation, missing)):
            return self._start(todo[:room])
        if self.reader is None or self.reader.index in done:
            return STOP
        if self.reader.index in running:
            return self._start()
        return self._start((self.reader,)) if self._enough(situation) else STOP

    def _start(self, activations: Sequence[Activation] = ()) -> Decision:
        """Start these, and be asked again as soon as one is finished.

        Who is heard before the vote is settled depends on who is quick: that goes on record.
        """
        arrival = self.early_stop and self.at_once != 1
        return Decision(tuple(activations), wait="each", arrival=arrival)

    def ballots(self, trajectory: Trajectory) -> list[Ballot | None]:
        """A ballot for each activation of the plan, in its order; None if it is not finished."""
        turns = {turn.index: turn for turn in trajectory}
        found: list[Ballot | None] = []
        for one in self.plan:
            turn = turns.get(one.index) if one.index is not None else None
            found.append(self.reading.ballot(choice_name(one), turn) if turn is not None else None)
        return found

    def _enough(self, situation: Situation) -> bool:
        found = self.ballots(situation.trajectory)
        return sum(one.status == "cast" for one in found if one is not None) >= self.min_votes

    def _settled(self, situation: Situation, missing: Sequence[Activation]) -> bool:
        found = self.ballots(situation.trajectory)
        ballots = [ballot for ballot in found if ballot is not None]
        if sum(ballot.status == "cast" for ballot in ballots) < self.min_votes:
            return False
        waiting = [choice_name(one) for one in missing]
        if not self.aggregator.settled(ballots, waiting):
            return False
        answer = self.aggregator.combine(ballots, situation.problem, NO_DRAW).answer
        # The answer reads as its first voter in member order said it. That has to be known as
        # well, or else who happens to be quick would choose between spellings.
        known = found[: found.index(None)] if None in found else found
        return answer is None or any(
            one is not None and one.votes and one.answer == answer for one in known
        )
