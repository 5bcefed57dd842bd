"""What a call does in Relay, and what is shown then.

Transitions, observations and scores are computed on first use and shared: a step of an episode
costs one draw and two look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from orchestrion import JSON, Key, Observation, Problem, Scores, Step, Turn
from orchestrion_orchestration_bench.tables import played

if TYPE_CHECKING:
    from orchestrion_orchestration_bench.relay import Relay, Worker

__all__ = ["STOP", "Move", "RelayRules", "RelayState"]

STOP = "stop"
"""The row that ends the episode, free of charge."""


class RelayState(NamedTuple):
    """Type (its place in the table), skills done as bits, calls made."""

    type: int
    done: int
    step: int


class Move(NamedTuple):
    """One outcome of a call: its probability, the sum up to and with it, the skills done then."""

    probability: float
    below: float
    done: int


class RelayRules:
    """The dynamics of one set of tables."""

    def __init__(self, task: Relay) -> None:
        self.task = task
        self.types = tuple(task.types)
        self.required = tuple(self.bits(required) for required in task.types.values())
        self.needs = tuple(self.bits(task.prerequisites.get(skill, ())) for skill in task.skills)
        self.kinds = tuple(
            Problem(
                "input",
                f"type {name}: needs {', '.join(self.names(bits))}",
                {"type": name, "required": self.names(bits)},
                name,
            )
            for name, bits in zip(self.types, self.required, strict=True)
        )
        self._moves: dict[tuple[int, int], dict[str, tuple[Move, ...]]] = {}
        self._steps: dict[RelayState, Step] = {}
        self._exits: dict[RelayState, dict[str, tuple[tuple[float, Step], ...]]] = {}
        self._scores: dict[tuple[int, int], Scores] = {}
        self._begin = {name: self.show(RelayState(i, 0, 0)) for i, name in enumerate(self.types)}

    # ------------------------------------------------------------------ an episode

    def begin(self, kind: str) -> Step:
        """The first state of a problem of a type."""
        return self._begin[kind]

    def step(self, state: RelayState, turn: Turn, key: Key) -> Step:
        """The state after a turn."""
        exits = self._exits.get(state)
        if exits is None:
            exits = self._exits[state] = self._find_exits(state)
        ways = exits.get(played(turn)) or exits[""]
        if turn.output.final:
            return self.show(state)
        if len(ways) > 1:
            draw = key.uniform()
            for below, step in ways:
                if draw < below:
                    return step
        return ways[-1][1]

    def show(self, state: RelayState) -> Step:
        """A state with what is shown in it."""
        found = self._steps.get(state)
        if found is None:
            over = state.step >= self.task.horizon
            found = self._steps[state] = Step(state, self._observation(state), over)
        return found

    def _find_exits(self, state: RelayState) -> dict[str, tuple[tuple[float, Step], ...]]:
        """By row, the steps a call may lead to; the row "" is an agent that is not in the table."""
        kind, done, step = state
        if step >= self.task.horizon:
            return {"": ((1.0, self.show(state)),)}
        idle = self.show(RelayState(kind, done, step + 1))
        exits: dict[str, tuple[tuple[float, Step], ...]] = {"": ((1.0, idle),)}
        for row, moves in self.moves(kind, done).items():
            exits[row] = tuple(
                (move.below, self.show(RelayState(kind, move.done, step + 1))) for move in moves
            )
        return exits

    def scores(self, state: RelayState) -> Scores:
        """1 with everything required done, else `partial` times the fraction done."""
        place = (state.type, state.done)
        found = self._scores.get(place)
        if found is None:
            required = self.required[state.type]
            share = (required & state.done).bit_count() / required.bit_count()
            value = 1.0 if share == 1 else self.task.partial * share
            found = self._scores[place] = Scores(value, share == 1, {"done": share})
        return found

    # ------------------------------------------------------------------ transitions

    def moves(self, kind: int, done: int) -> Mapping[str, tuple[Move, ...]]:
        """What a call of each agent leads to; probabilities sum to 1."""
        found = self._moves.get((kind, done))
        if found is None:
            found = self._moves[kind, done] = {
                name: self._outcomes(worker, kind, done)
                for name, worker in self.task.agents.items()
            }
        return found

    def ready(self, kind: int, done: int) -> int:
        """Skills that are required, missing, and whose required prerequisites are done."""
        required = self.required[kind]
        return sum(
            1 << skill
            for skill, needs in enumerate(self.needs)
            if (required & ~done) >> skill & 1 and not needs & required & ~done
        )

    def works_on(self, worker: Worker, kind: int, done: int) -> int | None:
        """The ready skill an agent is best at; None if it has no use now."""
        ready = self.ready(kind, done)
        best, most = None, 0.0
        for skill, name in enumerate(self.task.skills):
            probability = worker.skills.get(name, 0.0)
            if ready >> skill & 1 and probability > most:
                best, most = skill, probability
        return best

    def _outcomes(self, worker: Worker, kind: int, done: int) -> tuple[Move, ...]:
        skill = self.works_on(worker, kind, done)
        succeeds = 0.0 if skill is None else worker.skills[self.task.skills[skill]]
        gained = 0 if skill is None else 1 << skill
        # The last finished skill in the table's order; with nothing finished, nothing breaks.
        lost = 1 << (done.bit_length() - 1) if done else 0
        breaks = worker.breaks if done else 0.0
        chances: dict[int, float] = {}
        for gain, p in ((gained, succeeds), (0, 1 - succeeds)):
            for loss, q in ((0, 1 - breaks), (lost, breaks)):
                then = (done | gain) & ~loss
                chances[then] = chances.get(then, 0.0) + p * q
        moves, below = [], 0.0
        for then, probability in chances.items():
            if probability > 0:
                below += probability
                moves.append(Move(probability, below, then))
        return tuple(moves)

    # ------------------------------------------------------------------ what is shown

    def bits(self, names: Sequence[str]) -> int:
        """Skills as bits, in the table's order."""
        return sum(1 << i for i, skill in enumerate(self.task.skills) if skill in names)

    def names(self, bits: int) -> list[str]:
        """Skills by name, in the table's order."""
        return [skill for i, skill in enumerate(self.task.skills) if bits >> i & 1]

    def observe(self, state: RelayState) -> Observation:
        """What is shown in a state: all of it."""
        observation = self.show(state).observation
        assert observation is not None
        return observation

    def _observation(self, state: RelayState) -> Observation:
        kind, done, step = state
        left = self.task.horizon - step
        required = self.required[kind]
        text = (
            f"type: {self.types[kind]}\n"
            f"done: {', '.join(self.names(done)) or 'nothing'}\n"
            f"missing: {', '.join(self.names(required & ~done)) or 'nothing'}\n"
            f"ready: {', '.join(self.names(self.ready(kind, done))) or 'nothing'}\n"
            f"calls left: {left}"
        )
        data = {
            "type": self.types[kind],
            "required": self.names(required),
            "done": self.names(done),
            "ready": self.names(self.ready(kind, done)),
            "step": step,
            "horizon": self.task.horizon,
            "agents": self._entries(kind, done),
        }
        share = self.scores(state).parts["done"]
        return Observation(text, data, self._features(state), progress=share)

    def _entries(self, kind: int, done: int) -> dict[str, JSON]:
        entries: dict[str, JSON] = {}
        for name, worker in self.task.agents.items():
            skill = self.works_on(worker, kind, done)
            says = "finds nothing to do" if skill is None else f"works on {self.task.skills[skill]}"
            entries[name] = {"cost": worker.cost, "says": says}
        entries[STOP] = {"cost": 0.0, "says": "stops", "final": True}
        return entries

    def _features(self, state: RelayState) -> tuple[float, ...]:
        """Type one-hot; done, missing and ready bits; share of the calls made."""
        kind, done, step = state
        missing = self.required[kind] & ~done
        ready = self.ready(kind, done)
        count = len(self.task.skills)
        return (
            *(float(kind == i) for i in range(len(self.types))),
            *(float(bits >> i & 1) for bits in (done, missing, ready) for i in range(count)),
            step / self.task.horizon,
        )
