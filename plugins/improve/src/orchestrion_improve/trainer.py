"""Train with an improver on plain episodes of the team: the trainer `improve`.

Each iteration runs episodes on training problems under the team's own policy. Every so many
iterations the improver gets them as groups and may change settings. The last iteration measures
what all changes are worth, on validation problems that decided nothing. The trainer `grpo-beam` is
the other one that uses improvers: it takes the groups from a beam search.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import isnan
from statistics import fmean
from typing import Annotated, ClassVar

from attrs import frozen
from orchestrion_beam.interfaces import Group, Improver

from orchestrion import (
    JSON,
    Episode,
    Job,
    Key,
    Meta,
    Metrics,
    OpenContext,
    Plan,
    Problem,
    Saved,
    Session,
    Split,
    Trainer,
    UsageError,
)
from orchestrion.runs import as_data, difference, structure
from orchestrion_improve.asking import group_of
from orchestrion_improve.trials import Overlay, as_overlay_value, changed, play, reward_or_nan

Count = Annotated[int, Meta(ge=1)]
DRAWS = 4
"""Episodes on each held-out problem."""


@frozen(kw_only=True)
class Improve:
    """Runs episodes of the team's own policy, and lets an improver change settings of the team.

    Args:
        improver: proposes changes, e.g. `behaviours` or `gepa`.
        iterations: number of iterations.
        every: iterations of a round; the improver is called at its end.
        problems: training problems of an iteration.
        samples: episodes on each problem; advantages are within them.
        held_out: share of the validation problems that decide nothing: at the end the team is
            compared on them with the team before.
    """

    # One round, with samples enough to differ: else an improver has nothing to read.
    smoke: ClassVar[Mapping[str, JSON]] = {
        "iterations": 1,
        "every": 1,
        "problems": 4,
        "samples": 4,
    }

    improver: Improver
    iterations: Count = 4
    every: Count = 1
    problems: Count = 16
    samples: Annotated[int, Meta(ge=2)] = 4
    held_out: Annotated[float, Meta(ge=0, lt=1)] = 0.3

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        yield ImproveTrainer(self, ctx)


class ImproveTrainer(Trainer):
    """The runtime of `improve`."""

    def __init__(self, settings: Improve, ctx: OpenContext) -> None:
        self.settings, self.path, self.key = settings, ctx.path, ctx.key
        self.before: dict[str, JSON] = {}
        """The first values of all settings that were changed."""
        self.overlay: dict[str, JSON] = {}
        self.groups: list[Group] = []

    @property
    def iterations(self) -> int:
        return self.settings.iterations

    def _is_due(self, i: int) -> bool:
        return i + 1 == self.iterations or (i + 1) % self.settings.every == 0

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan | None:
        """Return the most that an iteration uses; None if the improver gives no bound."""
        settings = self.settings
        episodes = min(settings.problems, sizes["train"]) * settings.samples
        if i + 1 == self.iterations:
            episodes += 2 * DRAWS * int(sizes["validation"] * settings.held_out)
        if not self._is_due(i):
            return Plan(episodes)
        plan = getattr(settings.improver, "plan", None)
        improvement: Plan | None = None if plan is None else plan(i // settings.every, sizes)
        return None if improvement is None else Plan(episodes) + improvement

    def check(self, session: Session) -> None:
        """Refuse a task without problems, or a team that the improver cannot improve.

        Raises:
            UsageError: see above.
        """
        check = getattr(self.settings.improver, "check", None)
        if check is not None:
            check(session)
        for split in ("train", "validation"):
            if not session.problems(split):
                raise UsageError(f"{self.path}: the task has no {split} problems")
        self._split(session)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Run episodes; call the improver when it is due; after the last round, compare."""
        self.check(session)
        improver = self.settings.improver
        start = getattr(improver, "start", None)
        if start is not None:
            self._adopt(start(session), session)
        metrics = await self._roll_out(session)
        if self._is_due(i):
            deciding, _ = self._split(session)
            groups, self.groups = self.groups, []
            improvement = await improver.improve(
                i // self.settings.every, groups, deciding, session
            )
            self._adopt(improvement.overlay, session)
            metrics |= improvement.metrics
        if i + 1 == self.iterations:
            metrics |= await self._compare(session)
        return metrics

    def _adopt(self, overlay: Overlay, session: Session) -> None:
        """Adopt the part of an overlay that changes something; keep the values before."""
        new = changed(overlay, session)
        if new:
            now = session.learnable()
            self.before = {path: as_overlay_value(now[path]) for path in new} | self.before
            self.overlay |= new
            session.adopt(new)

    async def _roll_out(self, session: Session) -> dict[str, float]:
        """Run `samples` episodes on some training problems, with the settings learned so far."""
        settings, size = self.settings, self.settings.samples
        problems = list(session.problems("train"))
        session.key.child("problems").random().shuffle(problems)
        key, chosen = session.key.child("episodes"), problems[: settings.problems]
        jobs = [Job(problem, key.child(problem.id, n)) for problem in chosen for n in range(size)]
        episodes = await play(session, self.overlay, jobs)
        groups = [group_of(episodes[n : n + size]) for n in range(0, len(episodes), size)]
        self.groups += groups
        rewards = [reward for group in groups for reward in group.rewards if reward is not None]
        return {"team_reward": sum(rewards) / len(rewards)} if rewards else {}

    def _split(self, session: Session) -> tuple[list[Problem], list[Problem]]:
        """Return the validation problems that decide, and those that are held out.

        Raises:
            UsageError: none is left to decide.
        """
        deciding, held_out = divided(
            session.problems("validation"), self.settings.held_out, self.key.child("split")
        )
        if not deciding:
            raise UsageError(
                f"{self.path}.held_out: no validation problem is left to decide about changes; set "
                "a smaller share"
            )
        return deciding, held_out

    async def _compare(self, session: Session) -> dict[str, float]:
        """Compare the team with the team before, on problems that decided nothing."""
        _, held_out = self._split(session)
        key = session.key.child("held out")
        jobs = [
            Job(problem, key.child(problem.id, n), training=False)
            for problem in held_out
            for n in range(DRAWS)
        ]
        if not jobs:
            return {}
        now = _means(await play(session, self.overlay, jobs))
        then = _means(await play(session, self.before, jobs)) if self.before else now
        pairs = [(a, b) for a, b in zip(now, then, strict=True) if not isnan(a - b)]
        if not pairs:
            return {}
        after, before = zip(*pairs, strict=True)
        gain = difference(after, before, session.key.child("gain"))
        return {
            "held_out_before": sum(before) / len(pairs),
            "held_out_after": sum(after) / len(pairs),
            "held_out_gain": gain.mean,
            "held_out_gain_low": gain.low,
            "held_out_gain_high": gain.high,
            "held_out_problems": float(len(pairs)),
        }

    def save(self) -> Saved:
        """Return the settings before and now, and the episodes of the current round."""
        groups = [as_data(group.episodes) for group in self.groups]
        return Saved(data={"before": self.before, "overlay": self.overlay, "groups": groups})

    def load(self, saved: Saved) -> None:
        self.before, self.overlay = dict(saved.data["before"]), dict(saved.data["overlay"])
        self.groups = [
            group_of([structure(episode, Episode) for episode in group])
            for group in saved.data["groups"]
        ]


def divided(
    problems: Sequence[Problem], share: float, key: Key
) -> tuple[list[Problem], list[Problem]]:
    """Return problems in two parts, by category; `share` of each category is in the second."""
    second: set[str] = set()
    for category in sorted({problem.category for problem in problems}):
        ids = [problem.id for problem in problems if problem.category == category]
        key.child(category).random().shuffle(ids)
        second.update(ids[: int(len(ids) * share)])
    return (
        [problem for problem in problems if problem.id not in second],
        [problem for problem in problems if problem.id in second],
    )


def _means(episodes: Sequence[Episode]) -> list[float]:
    """Return the mean reward of each problem; NaN if one is missing."""
    rewards = [reward_or_nan(episode) for episode in episodes]
    return [fmean(rewards[n : n + DRAWS]) for n in range(0, len(rewards), DRAWS)]
