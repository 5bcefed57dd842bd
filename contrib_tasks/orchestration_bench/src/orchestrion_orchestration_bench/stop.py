"""Stop: solve, verify, escalate, then submit or abstain; partially observed.

Whether a problem is hard is hidden; how often its type is hard is not. A solver replaces the
current answer, and is right with a probability that depends on the difficulty; a checker says
"ok" or "bad" about the current answer and errs either way. Draws are independent given the
difficulty, so asking again is worth something. `submit` pays 1 if the answer is right, `abstain`
a fixed amount. When a policy stops without either, what is there is handed in.

What is observed is the type and everything the calls said.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple

from attrs import Attribute, field, frozen

from orchestrion import (
    JSON,
    Key,
    Meta,
    Observation,
    OpenContext,
    Problem,
    Scores,
    Step,
    Task,
    Turn,
)
from orchestrion_orchestration_bench.tables import (
    Check,
    Count,
    Price,
    Probability,
    Rules,
    TableTask,
    check_team,
    played,
    replace_tables,
)

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


class StopRules(Rules):
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
        self.observe = lru_cache(CACHED)(self._observation)

    # ------------------------------------------------------------------ an episode

    def begin(self, kind: str, key: Key) -> Step:
        place = self.types.index(kind)
        hard = key.uniform() < self.task.types[kind]
        return Step(StopState(place, hard, NONE, ()), self.observe(place, ()))

    def step(self, state: StopState, turn: Turn, key: Key) -> Step:
        if state.end:
            return self._over(state, state.end)
        row = played(turn)
        if row in (SUBMIT, ABSTAIN):
            return self._over(state, row)
        if turn.output.final or len(state.history) >= self.task.horizon:
            return self._over(state, SUBMIT)
        answer, saying = state.answer, self.nothing
        if row in self.task.solvers:
            solver = self.task.solvers[row]
            chance = solver.hard if state.hard else solver.easy
            answer, saying = (RIGHT if key.uniform() < chance else WRONG), self.first[row]
        elif row in self.task.checkers:
            saying = self.first[row] + (key.uniform() >= self.chance_of_ok(row, answer))
        history = (*state.history, saying)
        return Step(
            StopState(state.type, state.hard, answer, history), self.observe(state.type, history)
        )

    def chance_of_ok(self, row: str, answer: int) -> float:
        """Return how likely a checker says "ok"; without an answer it never does."""
        checker = self.task.checkers[row]
        return (0.0, 1 - checker.wrong, checker.right)[answer]

    def scores(self, state: StopState) -> Scores:
        """Return what the end pays; an episode that just stopped hands in what is there."""
        if state.end == ABSTAIN:
            return Scores(self.task.abstain, False, {"abstained": 1.0})
        right = state.answer == RIGHT
        return Scores(float(right), right, {"abstained": 0.0})

    def _over(self, state: StopState, end: str) -> Step:
        return Step(state._replace(end=end), self.observe(state.type, state.history), done=True)

    # ------------------------------------------------------------------ what is shown

    def blocked(self, history: tuple[int, ...]) -> frozenset[str]:
        """Return what makes no sense: checks and `submit` without an answer, calls at the end."""
        rows: set[str] = set()
        if len(history) >= self.task.horizon:
            rows |= {*self.task.solvers, *self.task.checkers}
        if not any(saying < self.solvers for saying in history):
            rows |= {*self.task.checkers, SUBMIT}
        return frozenset(rows)

    def _observation(self, kind: int, history: tuple[int, ...]) -> Observation:
        name, horizon = self.types[kind], self.task.horizon
        heard = [self.sayings[place] for place in history]
        says = "; ".join([f"{row or 'somebody'} {what}" for row, what in heard]) or "nothing yet"
        data = {
            "type": name,
            "history": [list(saying) for saying in heard],
            "step": len(history),
            "horizon": horizon,
            "agents": self.entries,
        }
        return Observation(
            f"type: {name}\nsaid: {says}\ncalls left: {horizon - len(history)}",
            data,
            self._features(kind, history),
            self.blocked(history),
        )

    def _features(self, kind: int, history: tuple[int, ...]) -> tuple[float, ...]:
        """Return the features.

        The type one-hot; share of the calls made; who gave the current answer, and how often each
        checker said what about it; share of calls to each solver; what each call said, one-hot.
        """
        horizon, nothing = self.task.horizon, self.nothing
        current = [0.0] * nothing
        shares = [0.0] * self.solvers
        calls = [0.0] * (nothing * horizon)
        for step, saying in enumerate(history):
            if saying == nothing:
                continue
            if saying < self.solvers:
                current = [0.0] * nothing
                shares[saying] += 1 / horizon
            current[saying] += 1.0
            calls[nothing * step + saying] = 1.0
        types = (float(kind == i) for i in range(len(self.types)))
        return (*types, len(history) / horizon, *current, *shares, *calls)


HORIZON, LONGEST = 6, 20
RESERVED = (SUBMIT, ABSTAIN, STOP)


@frozen
class Solver:
    """A row of the table of solvers.

    Args:
        easy: probability of a right answer to an easy problem.
        hard: the same for a hard one.
        cost: of a call.
    """

    easy: Probability
    hard: Probability
    cost: Price = 0.0


@frozen
class Checker:
    """A row of the table of checkers.

    Args:
        right: probability of "ok" about a right answer.
        wrong: probability of "bad" about a wrong one.
        cost: of a call.
    """

    right: Probability
    wrong: Probability
    cost: Price = 0.0


def _types() -> dict[str, float]:
    return {"chat": 0.10, "code": 0.40, "olymp": 0.80}


def _solvers() -> dict[str, Solver]:
    return {"small": Solver(0.85, 0.20, 0.04), "large": Solver(0.97, 0.70, 0.25)}


def _checkers() -> dict[str, Checker]:
    return {"lint": Checker(0.90, 0.60, 0.03), "judge": Checker(0.95, 0.90, 0.12)}


@frozen
class StopTables:
    """Tables to be drawn, see `orchestrion_orchestration_bench.draw`.

    Types are named t1, t2, ..., solvers a1, a2, ..., checkers c1, c2; what is not given is drawn
    by the seed as well.

    Args:
        seed: of the draw.
        types: 2 to 4.
        solvers: 2 or 3.
        checkers: 1 or 2.
    """

    seed: int
    types: Annotated[int, Meta(ge=2, le=4)] | None = None
    solvers: Annotated[int, Meta(ge=2, le=3)] | None = None
    checkers: Annotated[int, Meta(ge=1, le=2)] | None = None


@frozen
class Stop(TableTask):
    """Verify, escalate, submit or abstain; `bench-agent`s named like the rows play it.

    Args:
        types: probability that a problem is hard, by type; types are equally frequent.
        solvers: agents that answer.
        checkers: agents that judge the current answer.
        abstain: what abstaining pays.
        horizon: solver and checker calls at most; then only `submit` and `abstain` are left. By
            default 6, with `tables` 5 or 6.
        train: problems in the training split.
        validation: problems in the validation split.
        test: problems in the test split.
        tables: draws the three tables, what abstaining pays, and the horizon unless it is
            given.
    """

    name = "stop"

    types: Mapping[str, Probability] = field(factory=_types)
    solvers: Mapping[str, Solver] = field(factory=_solvers)
    checkers: Mapping[str, Checker] = field(factory=_checkers)
    abstain: Probability = 0.15
    horizon: Annotated[int, Meta(ge=1, le=LONGEST)] = None  # type: ignore[assignment]
    train: Count = 60
    validation: Count = 60
    test: Count = 600
    tables: StopTables | None = None

    def __attrs_post_init__(self) -> None:
        if self.tables is None:
            object.__setattr__(self, "horizon", self.horizon or HORIZON)
        else:
            from orchestrion_orchestration_bench.draw import draw_stop

            replace_tables(self, draw_stop(self.tables, self.horizon))

    @types.validator
    def _check_types(self, attribute: Attribute[Any], value: Mapping[str, float]) -> None:
        check = Check()
        check.names("types", tuple(value))
        check.raise_any()

    @solvers.validator
    def _check_solvers(self, attribute: Attribute[Any], value: Mapping[str, Solver]) -> None:
        check = Check()
        check.names("solvers", tuple(value), RESERVED)
        check.raise_any()

    @checkers.validator
    def _check_checkers(self, attribute: Attribute[Any], value: Mapping[str, Checker]) -> None:
        check = Check()
        check.names("solvers and checkers", (*self.solvers, *value), RESERVED)
        check.raise_any()

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Refuse a team that has more solvers or checkers than were drawn."""
        if self.tables is not None:
            check_team(ctx, tuple(self.solvers), "a", "solvers")
            check_team(ctx, tuple(self.checkers), "c", "checkers")
        yield self

    @cached_property
    def rules(self) -> StopRules:
        """The dynamics, computed once from the tables."""
        return StopRules(self)
