"""Nearest neighbours: what came of a choice where things looked most alike.

Every decision of training is kept as (what was seen, choice, reward of the episode). A choice is
worth the mean reward of the `neighbours` nearest situations in which it was made. What is seen are
the observation's features, or hashed words where there are none, and how often each choice was
made so far; distances are Euclidean, each number divided by its spread in training.

Source: Cover and Hart 1967, "Nearest neighbor pattern classification", as regression. Deviation:
rewards of episodes in which later choices were explored count like others, so that values of early
choices are too low; exploration falls round by round.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from functools import lru_cache
from hashlib import blake2b
from math import sqrt
from typing import Annotated, Any, ClassVar

from attrs import frozen

from orchestrion import (
    JSON,
    Activation,
    Array,
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
    UsageError,
    choices,
    is_blocked,
)
from orchestrion_basics.policies import STOP, OneByOne, may_stop
from orchestrion_basics.search import OneIteration, draw_problems

WORDS = 64
"""Buckets of hashed words."""
TYPES = {"seen": ("F64", "<f8"), "made": ("I64", "<i8"), "rewards": ("F64", "<f8")}
"""The saved arrays and their types."""
ROUNDS = (1.0, 0.5, 0.3, 0.2)
"""Share of choices that are drawn at random, round by round."""


@frozen
class Nearest:
    """Takes the choice that paid best where things looked most alike; the trainer is `nearest`.

    Args:
        neighbours: how many situations are averaged.
        stop: whether ending the episode without a turn is one of the choices. By default it is one
            where no agent of the team has that as its job, like a terminator.
    """

    neighbours: Annotated[int, Meta(ge=1)] = 10
    stop: bool | None = None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        known: list[Activation | None] = list(choices(ctx.roster))
        if may_stop(self.stop, ctx.roster):
            known.append(None)
        yield Neighbours(known, self.neighbours)


class Neighbours(OneByOne):
    """The table at work: `seen` [n, d], `made` [n] places in `choices`, `rewards` [n]."""

    portable = True

    def __init__(self, known: Sequence[Activation | None], neighbours: int) -> None:
        import numpy as np

        self.choices, self.neighbours = tuple(known), neighbours
        self.exploring = 0.0
        self.set_table(np.zeros((0, 0)), np.zeros(0, np.int64), np.zeros(0))

    def set_table(self, seen: Any, made: Any, rewards: Any) -> None:
        """Go by these situations from now on."""
        self.seen, self.made, self.rewards = seen, made, rewards
        if not len(seen):
            return
        spread = seen.std(axis=0)
        self._scale = 1 / (spread + (spread == 0))
        self._by_choice = [
            (seen[made == place] * self._scale, rewards[made == place])
            for place in range(len(self.choices))
        ]

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        observation = situation.observation
        allowed = [
            place
            for place, choice in enumerate(self.choices)
            if choice is None or not is_blocked(choice, observation)
        ]
        if not allowed:
            return STOP
        seen = self.features(situation)
        explores = situation.training and key.child("explore").uniform() < self.exploring
        if explores or not len(self.seen):
            place = allowed[int(key.uniform() * len(allowed))]
        else:
            values = self._values(seen)
            place = max(allowed, key=lambda place: values[place])
        choice = self.choices[place]
        start = () if choice is None else (choice,)
        return Decision(start, stop=choice is None, record=(seen, place))

    def features(self, situation: Situation) -> list[float]:
        """Return what is seen, as numbers [d]."""
        observation = situation.observation
        shown = observation.features if observation is not None else ()
        if not shown:
            text = observation.text if observation is not None else ""
            shown = hashed(f"{situation.problem.category} {situation.problem.text} {text}")
        counts = Counter((turn.agent, turn.option) for turn in situation.trajectory.backward())
        made = [0 if c is None else counts[c.agent, c.option] for c in self.choices]
        return [*shown, *map(float, made)]

    def _values(self, seen: Sequence[float]) -> list[float]:
        """Return the mean reward of the nearest situations by choice; -inf if there are none."""
        import numpy as np

        here = np.asarray(seen) * self._scale
        values = []
        for seen_before, rewards in self._by_choice:
            if not len(rewards):
                values.append(float("-inf"))
                continue
            distances = ((seen_before - here) ** 2).sum(axis=1)
            nearest = np.argsort(distances, kind="stable")[: self.neighbours]
            values.append(float(rewards[nearest].mean()))
        return values

    def save(self) -> Saved:
        arrays = {}
        for name, (kind, code) in TYPES.items():
            array = getattr(self, name)
            arrays[name] = Array(kind, array.shape, array.astype(code).tobytes())
        return Saved(arrays)

    def load(self, saved: Saved) -> None:
        import numpy as np

        table = {}
        for name, (_, code) in TYPES.items():
            array = saved.arrays[name]
            table[name] = np.frombuffer(array.data, code).reshape(array.shape)
        self.set_table(**table)


@frozen
class NearestTrainer(OneIteration):
    """Plays episodes, at random at first, and keeps what was seen, chosen and paid.

    Args:
        episodes: training episodes in all.
    """

    episodes: Annotated[int, Meta(ge=4)] = 256

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 8}
    trains = ("nearest", "nearest", Neighbours)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        return Plan(self.episodes)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Play round by round, each with what the ones before have shown."""
        self.check(session)
        policy: Neighbours = session.policy
        draws = list(draw_problems(session, "play", self.episodes))
        episodes: list[Episode] = []
        for number, exploring in enumerate(ROUNDS):
            first, last = (n * len(draws) // len(ROUNDS) for n in (number, number + 1))
            playing = copy(policy)
            playing.exploring = exploring
            jobs = [Job(problem, key, playing) for problem, key in draws[first:last]]
            episodes += await session.rollout(jobs)
            policy.set_table(*_table(episodes))
        rewards = [
            episode.reward.total for episode in episodes[first:] if episode.reward is not None
        ]
        return {
            "reward": sum(rewards) / max(1, len(rewards)),
            "situations": float(len(policy.made)),
        }


def _table(episodes: Sequence[Episode]) -> tuple[Any, Any, Any]:
    """Return situations [n, d], places of choices [n], rewards [n] of all judged episodes."""
    import numpy as np

    rows = [
        (*decision.record, episode.reward.total)
        # Of equally near ones the newest count: they were followed by better choices.
        for episode in reversed(episodes)
        if episode.reward is not None
        for decision in episode.decisions
        if decision.record is not None
    ]
    if not rows:
        raise UsageError("no episode has a reward, so `nearest` has nothing to learn from")
    if len({len(seen) for seen, _, _ in rows}) > 1:
        raise UsageError("the task's features have no fixed length: `nearest` cannot compare them")
    seen = np.array([seen for seen, _, _ in rows], float).reshape(len(rows), -1)
    return seen, np.array([place for _, place, _ in rows], int), np.array([row[2] for row in rows])


@lru_cache(4096)
def hashed(text: str) -> tuple[float, ...]:
    """Return counts of hashed words with signs, of length 1 [WORDS]."""
    counts = [0.0] * WORDS
    for word in re.findall(r"\w+", text.lower()):
        code = int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "little")
        counts[code % WORDS] += 1.0 if code & 1 << 31 else -1.0
    norm = sqrt(sum(count * count for count in counts)) or 1.0
    return tuple(count / norm for count in counts)
