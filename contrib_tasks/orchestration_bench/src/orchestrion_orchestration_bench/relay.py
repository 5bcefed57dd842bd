"""Relay: sequential work with prerequisites, fully observed.

Skills are bits. A problem's type says which are required; a prerequisite counts only if the
type requires it too. A call works on the *ready* required skill its agent is best at (ties: the
first skill in the table), succeeds with that probability, and independently clears the last
skill (in the table's order) that was finished before the call, with probability `breaks`. The
episode ends when somebody stops or after `horizon` calls; the result is worth 1 with everything
required done, else `partial` times the fraction done.

The state is (type, skills done, calls made).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, cached_property
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

STOP = "stop"
"""The row that ends the episode, free of charge."""


class RelayState(NamedTuple):
    """Type (its place in the table), skills done as bits, calls made."""

    type: int
    done: int
    step: int


class Move(NamedTuple):
    """One outcome of a call: its probability, and the skills done then."""

    probability: float
    done: int


class RelayRules(Rules):
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
        # States are few and episodes many: each is worked out once.
        self.moves, self.show = cache(self._moves), cache(self._show)

    # ------------------------------------------------------------------ an episode

    def begin(self, kind: str, key: Key) -> Step:
        return self.show(RelayState(self.types.index(kind), 0, 0))

    def step(self, state: RelayState, turn: Turn, key: Key) -> Step:
        """Return the state after a turn; an agent without a row takes time and changes nothing."""
        kind, done, step = state
        if turn.output.final or step >= self.task.horizon:
            return self.show(state)
        moves = self.moves(kind, done).get(played(turn), (Move(1.0, done),))
        draw = key.uniform() if len(moves) > 1 else 0.0
        below = 0.0
        for move in moves:
            done, below = move.done, below + move.probability
            if draw < below:
                break
        return self.show(RelayState(kind, done, step + 1))

    def _show(self, state: RelayState) -> Step:
        """Return a state with what is shown in it."""
        return Step(state, self._observation(state), state.step >= self.task.horizon)

    def scores(self, state: RelayState) -> Scores:
        """Return 1 with everything required done, else `partial` times the fraction done."""
        required = self.required[state.type]
        share = (required & state.done).bit_count() / required.bit_count()
        value = 1.0 if share == 1 else self.task.partial * share
        return Scores(value, share == 1, {"done": share})

    # ------------------------------------------------------------------ transitions

    def _moves(self, kind: int, done: int) -> Mapping[str, tuple[Move, ...]]:
        """Return what a call of each agent leads to; probabilities sum to 1."""
        return {
            name: self._outcomes(worker, kind, done) for name, worker in self.task.agents.items()
        }

    def ready(self, kind: int, done: int) -> int:
        """Return skills that are required, missing, and whose required prerequisites are done."""
        required = self.required[kind]
        return sum(
            1 << skill
            for skill, needs in enumerate(self.needs)
            if (required & ~done) >> skill & 1 and not needs & required & ~done
        )

    def works_on(self, worker: Worker, kind: int, done: int) -> int | None:
        """Return the ready skill an agent is best at; None if it has no use now."""
        ready = self.ready(kind, done)
        best, highest = None, 0.0
        for skill, name in enumerate(self.task.skills):
            probability = worker.skills.get(name, 0.0)
            if ready >> skill & 1 and probability > highest:
                best, highest = skill, probability
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
        return tuple(Move(chance, then) for then, chance in chances.items() if chance > 0)

    # ------------------------------------------------------------------ what is shown

    def bits(self, names: Sequence[str]) -> int:
        """Return skills as bits, in the table's order."""
        return sum(1 << i for i, skill in enumerate(self.task.skills) if skill in names)

    def names(self, bits: int) -> list[str]:
        """Return skills by name, in the table's order."""
        return [skill for i, skill in enumerate(self.task.skills) if bits >> i & 1]

    def observe(self, state: RelayState) -> Observation:
        """Return what is shown in a state: all of it."""
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
        """Return the type one-hot; done, missing and ready bits; the share of the calls made."""
        kind, done, step = state
        missing = self.required[kind] & ~done
        ready = self.ready(kind, done)
        count = len(self.task.skills)
        return (
            *(float(kind == i) for i in range(len(self.types))),
            *(float(bits >> i & 1) for bits in (done, missing, ready) for i in range(count)),
            step / self.task.horizon,
        )


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

    skills: Mapping[str, Probability] = field(factory=dict)
    cost: Price = 0.0
    breaks: Probability = 0.0


def described(worker: Worker) -> str:
    """Return what a worker can do, as the role of a `bench-agent` that plays it."""
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
    """Tables to be drawn, see `orchestrion_orchestration_bench.draw`.

    Skills are named s1, s2, ..., types t1, t2, ..., workers w1, w2, ...; what is not given is
    drawn by the seed as well.

    Args:
        seed: of the draw.
        skills: 4 to 7.
        types: 3 to 5.
        workers: 5 to 9.
    """

    seed: int
    skills: Annotated[int, Meta(ge=4, le=7)] | None = None
    types: Annotated[int, Meta(ge=3, le=5)] | None = None
    workers: Annotated[int, Meta(ge=5, le=9)] | None = None


@frozen
class Relay(TableTask):
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

    name = "relay"

    skills: tuple[str, ...] = field(factory=_skills)
    prerequisites: Mapping[str, tuple[str, ...]] = field(factory=_prerequisites)
    types: Mapping[str, tuple[str, ...]] = field(factory=_types)
    agents: Mapping[str, Worker] = field(factory=_agents)
    partial: Probability = 0.0
    horizon: Count = None  # type: ignore[assignment]
    train: Count = 64
    validation: Count = 64
    test: Count = 400
    tables: RelayTables | None = None

    def __attrs_post_init__(self) -> None:
        if self.tables is None:
            object.__setattr__(self, "horizon", self.horizon or HORIZON)
        else:
            from orchestrion_orchestration_bench.draw import draw_relay

            replace_tables(self, draw_relay(self.tables, self.horizon))

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
        """Return skills that can never be ready, whatever is done first."""
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
