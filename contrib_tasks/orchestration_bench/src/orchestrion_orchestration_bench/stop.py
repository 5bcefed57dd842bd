"""Stop: solve, verify, escalate, then submit or abstain; partially observed.

Whether a problem is hard is hidden; how often its type is hard is not. A solver replaces the
current answer, and is right with a probability that depends on the difficulty; a checker says
"ok" or "bad" about the current answer and errs either way. Draws are independent given the
difficulty, so asking again is worth something. `submit` pays 1 if the answer is right, `abstain`
a fixed amount. When a policy stops without either, what is there is handed in.

What is observed is the type and everything the calls said; see
`orchestrion_orchestration_bench.stop_rules`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Annotated, Any

from attrs import Attribute, field, frozen
from attrs.validators import optional

from orchestrion import (
    Calls,
    Key,
    Meta,
    OpenContext,
    Problem,
    Scores,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    no_calls,
)
from orchestrion_orchestration_bench.stop_rules import (
    ABSTAIN,
    STOP,
    SUBMIT,
    StopRules,
    StopState,
)
from orchestrion_orchestration_bench.tables import (
    Check,
    Count,
    Price,
    Probability,
    check_team,
    price,
    probability,
    replace_tables,
    spread,
    typed,
    whole,
)

__all__ = ["Checker", "Solver", "Stop", "StopTables"]

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

    easy: Probability = field(validator=probability)
    hard: Probability = field(validator=probability)
    cost: Price = field(default=0.0, validator=price)


@frozen
class Checker:
    """A row of the table of checkers.

    Args:
        right: probability of "ok" about a right answer.
        wrong: probability of "bad" about a wrong one.
        cost: of a call.
    """

    right: Probability = field(validator=probability)
    wrong: Probability = field(validator=probability)
    cost: Price = field(default=0.0, validator=price)


def _types() -> dict[str, float]:
    return {"chat": 0.10, "code": 0.40, "olymp": 0.80}


def _solvers() -> dict[str, Solver]:
    return {"small": Solver(0.85, 0.20, 0.04), "large": Solver(0.97, 0.70, 0.25)}


def _checkers() -> dict[str, Checker]:
    return {"lint": Checker(0.90, 0.60, 0.03), "judge": Checker(0.95, 0.90, 0.12)}


@frozen
class StopTables:
    """Tables to be drawn, see `orchestrion_orchestration_bench.draw_stop`.

    Types are named t1, t2, ..., solvers a1, a2, ..., checkers c1, c2; what is not given is drawn
    by the seed as well.

    Args:
        seed: of the draw.
        types: 2 to 4.
        solvers: 2 or 3.
        checkers: 1 or 2.
    """

    seed: int
    types: Annotated[int, Meta(ge=2, le=4)] | None = field(
        default=None, validator=optional(whole(2, 4))
    )
    solvers: Annotated[int, Meta(ge=2, le=3)] | None = field(
        default=None, validator=optional(whole(2, 3))
    )
    checkers: Annotated[int, Meta(ge=1, le=2)] | None = field(
        default=None, validator=optional(whole(1, 2))
    )


@frozen
class Stop(Task):
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

    types: Mapping[str, Probability] = field(factory=_types, validator=probability)
    solvers: Mapping[str, Solver] = field(factory=_solvers)
    checkers: Mapping[str, Checker] = field(factory=_checkers)
    abstain: Probability = field(default=0.15, validator=probability)
    horizon: Annotated[int, Meta(ge=1, le=LONGEST)] = field(
        default=None,  # type: ignore[assignment]
        validator=optional(whole(1, LONGEST)),
    )
    train: Count = field(default=60, validator=whole(1))
    validation: Count = field(default=60, validator=whole(1))
    test: Count = field(default=600, validator=whole(1))
    tables: StopTables | None = None

    def __attrs_post_init__(self) -> None:
        if self.tables is None:
            object.__setattr__(self, "horizon", self.horizon or HORIZON)
        else:
            from orchestrion_orchestration_bench.draw_stop import draw

            replace_tables(self, draw(self.tables, self.horizon))

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

    def problems(self, split: Split) -> Sequence[Problem]:
        """Problems of a split; types take turns."""
        return spread(self.rules.kinds, "stop", split, getattr(self, split))

    def problem_from(self, text: str) -> Problem:
        """A problem of the type that `text` names."""
        return self.rules.kinds[typed(text, tuple(self.types), "stop")]

    def start(self, problem: Problem, key: Key) -> Step:
        """No answer yet; the difficulty is drawn, and never shown."""
        return self.rules.begin(problem.category, key)

    def step(self, state: StopState, turn: Turn, key: Key) -> Step:
        """The state after a call; a foreign or failed one takes a call and does nothing."""
        return self.rules.step(state, turn, key)

    ceiling = no_calls

    async def verify(
        self,
        problem: Problem,
        trajectory: Trajectory,
        state: StopState,
        *,
        final: bool,
        calls: Calls,
    ) -> Scores:
        """1 for a right answer handed in, the fixed amount for abstaining."""
        return self.rules.scores(state)
