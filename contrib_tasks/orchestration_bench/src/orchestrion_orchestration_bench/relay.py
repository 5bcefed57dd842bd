"""Relay: sequential work with prerequisites, fully observed.

Skills are bits. A problem's type says which are required; a prerequisite counts only if the
type requires it too. A call works on the *ready* required skill its agent is best at (ties: the
first skill in the table), succeeds with that probability, and independently clears the last
skill (in the table's order) that was finished before the call, with probability `breaks`. The
episode ends when somebody stops or after `horizon` calls; the result is worth 1 with everything
required done, else `partial` times the fraction done.

The state is (type, skills done, calls made); see `orchestrion_orchestration_bench.relay_rules`
for what a call does to it.
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
from orchestrion_orchestration_bench.relay_rules import STOP, RelayRules, RelayState
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

__all__ = ["Relay", "RelayTables", "Worker"]

MOST_SKILLS = 12
HORIZON = 10


@frozen
class Worker:
    """A row of the table of agents.

    Args:
        skills: probability of success by skill; a skill left out is one it does not have.
        cost: of a call, whatever comes of it.
        breaks: probability that a call undoes the last finished skill.
    """

    skills: Mapping[str, Probability] = field(factory=dict, validator=probability)
    cost: Price = field(default=0.0, validator=price)
    breaks: Probability = field(default=0.0, validator=probability)


def described(worker: Worker) -> str:
    """What a worker can do, as the role of a `bench-agent` that plays it."""
    skills = [f"{skill} {chance:.2f}" for skill, chance in worker.skills.items()]
    return ", ".join([*skills, f"price {worker.cost:.2f}", f"breaks {worker.breaks:.2f}"])


def _skills() -> tuple[str, ...]:
    return ("plan", "search", "code", "test", "review")


def _prerequisites() -> dict[str, tuple[str, ...]]:
    return {
        "search": ("plan",),
        "code": ("plan",),
        "test": ("code",),
        "review": ("code", "test"),
    }


def _types() -> dict[str, tuple[str, ...]]:
    return {
        "trivial": ("code",),
        "lookup": ("plan", "search"),
        "feature": ("plan", "code", "test"),
        "full": ("plan", "search", "code", "test", "review"),
    }


def _agents() -> dict[str, Worker]:
    return {
        "planner": Worker({"plan": 0.90}, 0.02),
        "searcher": Worker({"search": 0.85}, 0.03),
        "coder_s": Worker({"code": 0.55, "test": 0.20}, 0.02, 0.10),
        "coder_l": Worker({"code": 0.90, "test": 0.55}, 0.12, 0.02),
        "tester": Worker({"test": 0.90}, 0.03),
        "critic": Worker({"plan": 0.15, "test": 0.25, "review": 0.85}, 0.04),
        "generalist": Worker(
            {"plan": 0.60, "search": 0.55, "code": 0.45, "test": 0.45, "review": 0.45}, 0.06, 0.06
        ),
    }


@frozen
class RelayTables:
    """Tables to be drawn, see `orchestrion_orchestration_bench.draw_relay`.

    Skills are named s1, s2, ..., types t1, t2, ..., workers w1, w2, ...; what is not given is
    drawn by the seed as well.

    Args:
        seed: of the draw.
        skills: 4 to 7.
        types: 3 to 5.
        workers: 5 to 9.
    """

    seed: int
    skills: Annotated[int, Meta(ge=4, le=7)] | None = field(
        default=None, validator=optional(whole(4, 7))
    )
    types: Annotated[int, Meta(ge=3, le=5)] | None = field(
        default=None, validator=optional(whole(3, 5))
    )
    workers: Annotated[int, Meta(ge=5, le=9)] | None = field(
        default=None, validator=optional(whole(5, 9))
    )


@frozen
class Relay(Task):
    """Skills with prerequisites; `bench-agent`s named like the rows of `agents` play it.

    Args:
        skills: in order; the order decides ties and what breaks.
        prerequisites: skills that must be done before a skill is ready.
        types: skills required by each type of problem; types are equally frequent.
        agents: what each agent can do, costs and breaks.
        partial: what a fraction of the required skills is worth.
        horizon: calls after which the episode ends; by default 10, with `tables` 8 to 14.
        train: problems in the training split.
        validation: problems in the validation split.
        test: problems in the test split.
        tables: draws the four tables, and the horizon unless it is given.
    """

    skills: tuple[str, ...] = field(factory=_skills)
    prerequisites: Mapping[str, tuple[str, ...]] = field(factory=_prerequisites)
    types: Mapping[str, tuple[str, ...]] = field(factory=_types)
    agents: Mapping[str, Worker] = field(factory=_agents)
    partial: Probability = field(default=0.0, validator=probability)
    horizon: Count = field(default=None, validator=optional(whole(1)))  # type: ignore[assignment]
    train: Count = field(default=64, validator=whole(1))
    validation: Count = field(default=64, validator=whole(1))
    test: Count = field(default=400, validator=whole(1))
    tables: RelayTables | None = None

    def __attrs_post_init__(self) -> None:
        if self.tables is None:
            object.__setattr__(self, "horizon", self.horizon or HORIZON)
        else:
            from orchestrion_orchestration_bench.draw_relay import draw

            replace_tables(self, draw(self.tables, self.horizon))

    @skills.validator
    def _check_skills(self, attribute: Attribute[Any], value: tuple[str, ...]) -> None:
        check = Check()
        check.names("skills", value)
        check.that(len(value) <= MOST_SKILLS, f"skills: got {len(value)}, at most {MOST_SKILLS}")
        check.raise_any()

    @prerequisites.validator
    def _check_prerequisites(self, attribute: Attribute[Any], value: Any) -> None:
        check = Check()
        check.known("prerequisites", value, self.skills, "skill")
        for skill, needs in value.items():
            check.known(f"prerequisites of {skill!r}", needs, self.skills, "skill")
        check.raise_any()
        circle = self._circle()
        if circle:
            raise ValueError(f"prerequisites: {', '.join(circle)} wait for each other")

    @types.validator
    def _check_types(self, attribute: Attribute[Any], value: Any) -> None:
        check = Check()
        check.names("types", tuple(value))
        for name, required in value.items():
            check.names(f"type {name!r}", required)
            check.known(f"type {name!r}", required, self.skills, "skill")
        check.raise_any()

    @agents.validator
    def _check_agents(self, attribute: Attribute[Any], value: Mapping[str, Worker]) -> None:
        check = Check()
        check.names("agents", tuple(value), reserved=(STOP,))
        for name, worker in value.items():
            check.known(f"agent {name!r}", worker.skills, self.skills, "skill")
        check.raise_any()

    def _circle(self) -> list[str]:
        """Skills that can never be ready, whatever is done first."""
        left = list(self.skills)
        while free := [s for s in left if not set(self.prerequisites.get(s, ())) & set(left)]:
            left = [skill for skill in left if skill not in free]
        return left

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Refuse a team that has more workers than were drawn."""
        if self.tables is not None:
            check_team(ctx, tuple(self.agents), "w", "workers")
        yield self

    @cached_property
    def rules(self) -> RelayRules:
        """The dynamics, computed once from the tables."""
        return RelayRules(self)

    def problems(self, split: Split) -> Sequence[Problem]:
        """Problems of a split; types take turns."""
        return spread(self.rules.kinds, "relay", split, getattr(self, split))

    def problem_from(self, text: str) -> Problem:
        """A problem of the type that `text` names."""
        return self.rules.kinds[typed(text, tuple(self.types), "relay")]

    def start(self, problem: Problem, key: Key) -> Step:
        """Nothing is done yet."""
        return self.rules.begin(problem.category)

    def step(self, state: RelayState, turn: Turn, key: Key) -> Step:
        """The state after a call; a final turn changes nothing, a foreign one takes a call."""
        return self.rules.step(state, turn, key)

    ceiling = no_calls

    async def verify(
        self,
        problem: Problem,
        trajectory: Trajectory,
        state: RelayState,
        *,
        final: bool,
        calls: Calls,
    ) -> Scores:
        """What the finished skills are worth."""
        return self.rules.scores(state)
