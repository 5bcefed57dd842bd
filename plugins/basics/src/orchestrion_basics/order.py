"""The learned order that ignores context: the baseline a learned orchestrator has to beat.

It knows how often each choice helped when it was called for the first, second, third time, and
what that cost; it reads nothing of the problem. Choices are tried by expected help per cost,
which is the best order when each helps independently of the others (Smith's rule).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from attrs import define, field, frozen

from orchestrion import (
    JSON,
    Activation,
    Decision,
    Episode,
    Job,
    Key,
    Meta,
    Metrics,
    OpenContext,
    Plan,
    Policy,
    Saved,
    Session,
    Situation,
    Split,
    Turn,
    UsageError,
    choice_name,
    choices,
    is_blocked,
    parse_choice,
)
from orchestrion_basics.policies import STOP, OneByOne
from orchestrion_basics.search import OneIteration, draw_problems, mean_reward

DONE = 1.0 - 1e-9
HAZARD = 0.08
PATIENCES = 6
"""How many numbers of turns are tried, at most."""


@frozen
class Order:
    """Calls what helped most per cost so far, given how often it was called; then stops.

    The trainer `learned-order` fills its table. It stops (through the agent `finish`, if given)
    when the task's public progress is 1, or after as many turns as paid off in training. Where
    a task shows no progress, "helped" means that the episode was solved in the end.

    Args:
        finish: the choice that ends an episode, e.g. a terminator; "" stops without a turn.
    """

    finish: str = ""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        finish = None
        if self.finish:
            finish = parse_choice(self.finish, ctx.roster, f"{ctx.path}.finish")
        tools = [choice for choice in choices(ctx.roster) if choice != finish]
        if not tools:
            raise UsageError(f"{ctx.path}: there is no agent to order")
        yield OrderTable(tools, finish)


@define
class OrderTable(OneByOne):
    """The table at work. `helped` and `cost` are per choice and times called before."""

    tools: Sequence[Activation]
    finish: Activation | None
    helped: dict[str, list[float]] = field(factory=dict)
    cost: dict[str, list[float]] = field(factory=dict)
    patience: int = 1
    """Turns after which it gives up."""

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        observation = situation.observation
        progress = observation.progress if observation is not None else None
        called = Counter(map(name_of, situation.trajectory.backward()))
        allowed = [tool for tool in self.tools if not is_blocked(tool, observation)]
        done = progress is not None and progress >= DONE
        if done or not allowed or len(situation.trajectory) >= self.patience:
            return STOP if self.finish is None else Decision((self.finish,))
        # max() takes the first of equals, so ties go by roster order.
        return Decision((max(allowed, key=lambda tool: self.worth(tool, called)),))

    def worth(self, choice: Activation, called: Mapping[str, int]) -> float:
        """Return expected help per cost of the next call."""
        name = choice_name(choice)
        helped, cost = self.helped.get(name, []), self.cost.get(name, [])
        if not helped:
            return 0.0
        nth = min(called.get(name, 0), len(helped) - 1)
        return helped[nth] / (cost[nth] + 1e-3)

    def save(self) -> Saved:
        return Saved(data={"helped": self.helped, "cost": self.cost, "patience": self.patience})

    def load(self, saved: Saved) -> None:
        data: Any = saved.data
        self.helped, self.cost, self.patience = data["helped"], data["cost"], data["patience"]


@frozen
class LearnedOrder(OneIteration):
    """Explores at random, fills the table of the policy `order`, then learns when to give up.

    Args:
        episodes: episodes of random exploration; as many again choose the patience.
        depth: how many calls of one choice are told apart.
    """

    episodes: Annotated[int, Meta(ge=1)] = 1024
    depth: Annotated[int, Meta(ge=1)] = 4

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 5}
    trains = ("learned-order", "order", OrderTable)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Return as many episodes to choose the patience as to explore."""
        return Plan(self.episodes + max(self.episodes, PATIENCES))

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Explore, tabulate, choose the patience."""
        self.check(session)
        table: OrderTable = session.policy
        explored = await session.rollout(
            [
                Job(problem, key, policy=_Exploring(table.tools))
                for problem, key in draw_problems(session, "explore", self.episodes)
            ]
        )
        table.helped, table.cost = tabulate(explored, self.depth)
        longest = max(len(episode.trajectory) for episode in explored)
        best, table.patience = await self._best_patience(table, session, max(1, longest))
        return {"reward": best, "patience": float(table.patience)}

    async def _best_patience(
        self, table: OrderTable, session: Session, longest: int
    ) -> tuple[float, int]:
        shares = [longest * share / PATIENCES for share in range(1, PATIENCES + 1)]
        tries = sorted({max(1, round(share)) for share in shares})
        each = max(1, self.episodes // len(tries))
        best = (float("-inf"), 1)
        for patience in tries:
            table.patience = patience
            jobs = [Job(p, k) for p, k in draw_problems(session, "patience", each)]
            score = mean_reward(await session.rollout(jobs))
            # Equal scores go to the shorter patience.
            if score > best[0] + 1e-12:
                best = (score, patience)
        return best


@frozen
class _Exploring(OneByOne):
    """Any tool, uniformly, until progress is complete or by a constant hazard.

    The record of its decisions is the progress they were taken at.
    """

    portable = True
    tools: Sequence[Activation]

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        observation = situation.observation
        progress = observation.progress if observation is not None else None
        if progress is not None and progress >= DONE:
            return STOP
        # A constant hazard, so that the table also learns from short episodes.
        if len(situation.trajectory) and key.child("stop").uniform() < HAZARD:
            return STOP
        allowed = [tool for tool in self.tools if not is_blocked(tool, observation)]
        if not allowed:
            return STOP
        return Decision((allowed[int(key.uniform() * len(allowed))],), record=progress)


def name_of(turn: Turn) -> str:
    """Return the name of the choice that started a turn."""
    return choice_name(Activation(turn.agent, turn.option))


def tabulate(
    episodes: Sequence[Episode], depth: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return help rate and mean cost, per choice and earlier calls of it (0 to `depth` - 1)."""
    calls: dict[str, list[int]] = {}
    helped: dict[str, list[float]] = {}
    cost: dict[str, list[float]] = {}
    for episode in episodes:
        seen: Counter[str] = Counter()
        for turn, gain in zip(episode.turns, helped_by(episode), strict=True):
            name = name_of(turn)
            nth = min(seen[name], depth - 1)
            seen[name] += 1
            calls.setdefault(name, [0] * depth)[nth] += 1
            helped.setdefault(name, [0.0] * depth)[nth] += gain
            cost.setdefault(name, [0.0] * depth)[nth] += turn.usage.cost
    for name, row in calls.items():
        # One call that did not help is added everywhere: a choice tried once proves little.
        helped[name] = [gain / (n + 1) for gain, n in zip(helped[name], row, strict=True)]
        cost[name] = [paid / max(1, n) for paid, n in zip(cost[name], row, strict=True)]
    return helped, cost


def helped_by(episode: Episode) -> list[float]:
    """Return how much each turn helped: the rise of progress, else 1 for a solved episode."""
    before = [episode.decisions[turn.decision].record for turn in episode.turns]
    last = episode.observation.progress if episode.observation is not None else None
    levels = [*before, last]
    if all(level is None for level in levels):
        return [float(episode.success)] * len(before)
    known = [0.0 if level is None else float(level) for level in levels]
    return [max(0.0, after - level) for level, after in pairwise(known)]
