"""What a call does in Stop, and what is shown then."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from orchestrion import JSON, Key, Observation, Problem, Scores, Step, Turn
from orchestrion_orchestration_bench.tables import played

if TYPE_CHECKING:
    from orchestrion_orchestration_bench.stop import Stop

__all__ = ["ABSTAIN", "STOP", "SUBMIT", "Saying", "StopRules", "StopState"]

SUBMIT = "submit"
ABSTAIN = "abstain"
STOP = "stop"  # hands in what is there
NONE, WRONG, RIGHT = 0, 1, 2
CACHED = 20_000  # observations of one task kept at hand, about 3 kB each


class Saying(NamedTuple):
    """What a call can be heard to say; a history is a sequence of places in the list of them."""

    row: str
    says: str


class StopState(NamedTuple):
    """Type, whether it is hard, the answer (0 none, 1 wrong, 2 right), what was heard, the end."""

    type: int
    hard: bool
    answer: int
    history: tuple[int, ...]
    end: str = ""


class StopRules:
    """The dynamics of one set of tables."""

    def __init__(self, task: Stop) -> None:
        self.task = task
        self.types = tuple(task.types)
        self.kinds = tuple(
            Problem("input", f"type {name}", {"type": name}, name) for name in self.types
        )
        self.sayings: tuple[Saying, ...] = (
            *(Saying(name, "answers") for name in task.solvers),
            *(Saying(name, says) for name in task.checkers for says in ("ok", "bad")),
            Saying("", "nothing"),
        )
        self.nothing = len(self.sayings) - 1
        """What is heard when an agent failed, or is not in the table."""
        self.first = {
            saying.row: i for i, saying in reversed(list(enumerate(self.sayings))) if saying.row
        }
        self.entries: dict[str, JSON] = {
            **{name: {"cost": row.cost, "says": "answers"} for name, row in task.solvers.items()},
            **{name: {"cost": row.cost, "says": "checks"} for name, row in task.checkers.items()},
            SUBMIT: {"cost": 0.0, "says": "the answer", "final": True},
            ABSTAIN: {"cost": 0.0, "says": "from answering", "final": True},
            STOP: {"cost": 0.0, "says": "here", "final": True},
        }
        self.solvers = len(task.solvers)
        self._lines = [f"{saying.row or 'somebody'} {saying.says}" for saying in self.sayings]
        self._pairs = [list(saying) for saying in self.sayings]
        # The last saying, "nothing", is all zero.
        self._units = [_unit(i, self.nothing) for i in range(len(self.sayings))]
        self._kind_units = [_unit(i, len(self.types)) for i in range(len(self.types))]
        self._blocked = {
            (over, answered): self._blocked_rows(over, answered)
            for over in (False, True)
            for answered in (False, True)
        }
        self.observe = lru_cache(CACHED)(self._observation)

    # ------------------------------------------------------------------ an episode

    def begin(self, kind: str, key: Key) -> Step:
        """The first state of a problem of a type."""
        place = self.types.index(kind)
        hard = key.uniform() < self.task.types[kind]
        return Step(StopState(place, hard, NONE, ()), self.observe(place, ()))

    def step(self, state: StopState, turn: Turn, key: Key) -> Step:
        """The state after a turn."""
        if state.end:
            return self._over(state, state.end)
        row = played(turn)
        if row in (SUBMIT, ABSTAIN):
            return self._over(state, row)
        if turn.output.final or len(state.history) >= self.task.horizon:
            return self._over(state, SUBMIT)
        answer, heard = state.answer, self.nothing
        if row in self.task.solvers:
            solver = self.task.solvers[row]
            chance = solver.hard if state.hard else solver.easy
            answer, heard = (RIGHT if key.uniform() < chance else WRONG), self.first[row]
        elif row in self.task.checkers:
            heard = self.first[row] + (key.uniform() >= self.chance_of_ok(row, answer))
        history = (*state.history, heard)
        return Step(
            StopState(state.type, state.hard, answer, history), self.observe(state.type, history)
        )

    def chance_of_ok(self, row: str, answer: int) -> float:
        """How likely a checker says "ok"; without an answer it never does."""
        checker = self.task.checkers[row]
        return (0.0, 1 - checker.wrong, checker.right)[answer]

    def scores(self, state: StopState) -> Scores:
        """What the end pays; an episode that just stopped hands in what is there."""
        if state.end == ABSTAIN:
            return Scores(self.task.abstain, False, {"abstained": 1.0})
        right = state.answer == RIGHT
        return Scores(float(right), right, {"abstained": 0.0})

    def _over(self, state: StopState, end: str) -> Step:
        return Step(state._replace(end=end), self.observe(state.type, state.history), done=True)

    # ------------------------------------------------------------------ what is shown

    def blocked(self, history: tuple[int, ...]) -> frozenset[str]:
        """Rows that make no sense now: checks and `submit` without an answer, calls at the end."""
        answered = any(heard < self.solvers for heard in history)
        return self._blocked[len(history) >= self.task.horizon, answered]

    def _blocked_rows(self, over: bool, answered: bool) -> frozenset[str]:
        rows: set[str] = set()
        if over:
            rows |= {*self.task.solvers, *self.task.checkers}
        if not answered:
            rows |= {*self.task.checkers, SUBMIT}
        return frozenset(rows)

    def _observation(self, kind: int, history: tuple[int, ...]) -> Observation:
        name, horizon = self.types[kind], self.task.horizon
        said = "; ".join([self._lines[heard] for heard in history]) or "nothing yet"
        data = {
            "type": name,
            "history": [self._pairs[heard] for heard in history],
            "step": len(history),
            "horizon": horizon,
            "agents": self.entries,
        }
        return Observation(
            f"type: {name}\nsaid: {said}\ncalls left: {horizon - len(history)}",
            data,
            self._features(kind, history),
            self.blocked(history),
        )

    def _features(self, kind: int, history: tuple[int, ...]) -> tuple[float, ...]:
        """Type one-hot; share of the calls made; who gave the current answer and how often each
        checker said what about it; share of calls to each solver; what each call said, one-hot.
        """
        horizon, solvers = self.task.horizon, self.solvers
        current = [0.0] * self.nothing
        asked = [0.0] * solvers
        steps: tuple[float, ...] = ()
        for heard in history:
            steps += self._units[heard]
            if heard == self.nothing:
                continue
            if heard < solvers:
                current = [0.0] * self.nothing
                asked[heard] += 1 / horizon
            current[heard] += 1.0
        rest = self._units[self.nothing] * (horizon - len(history))
        place = (*self._kind_units[kind], len(history) / horizon)
        return (*place, *current, *asked, *steps, *rest)


def _unit(place: int, size: int) -> tuple[float, ...]:
    return tuple(float(place == i) for i in range(size))
