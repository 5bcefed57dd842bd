"""An improver as a trainer of its own: plain episodes of the team, rounds, a last judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from statistics import fmean as mean
from typing import Any

from orchestrion_beam.interfaces import Group

from orchestrion import (
    JSON,
    Episode,
    Job,
    Key,
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
from orchestrion.runs import difference
from orchestrion_improve.planning import plus
from orchestrion_improve.settings import changes, plain
from orchestrion_improve.standalone import Rounds
from orchestrion_improve.traces import group_of
from orchestrion_improve.trials import play, reward_of

__all__ = ["Training"]

DRAWS = 4
"""Episodes on each held-out problem."""


class Training(Trainer):
    """Runs episodes, hands them to the improver, adopts what it finds.

    Args:
        settings: how many episodes, and when.
        improver: the runtime of one of this plugin's improvers.
        ctx: where this trainer stands.
    """

    def __init__(self, settings: Rounds, improver: Any, ctx: OpenContext) -> None:
        self.settings, self.improver, self.ctx = settings, improver, ctx
        self.first: dict[str, JSON] | None = None
        """The settings that there were at first, of those that were changed later."""
        self.overlay: dict[str, JSON] = {}
        self.groups: list[Group] = []

    @property
    def iterations(self) -> int:
        """As set."""
        return self.settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """The most that an iteration takes: its episodes, a round if one is due, the judgement."""
        if turns is None:
            return None
        settings, last = self.settings, i + 1 == self.iterations
        episodes = min(settings.problems, sizes["train"]) * settings.samples
        if last:
            episodes += 2 * DRAWS * int(sizes["validation"] * settings.held_out)
        own = Plan(episodes * turns, episodes, forked=False)
        if not last and (i + 1) % settings.every:
            return own
        found: Plan | None = self.improver.plan(i // settings.every, sizes, turns)
        return None if found is None else plus(own, found)

    def check(self, session: Session) -> None:
        """Refuse what there is nothing to learn from, or to judge on."""
        self.improver.check(session)
        for split in ("train", "validation"):
            if not session.problems(split):
                raise UsageError(f"{self.ctx.path}: the task has no {split} problems")
        self._split(session)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Episodes; every so often a round; after the last, the judgement."""
        self.check(session)
        self._take(self.improver.start(session), session)
        metrics: dict[str, float] = dict(await self._roll_out(session))
        last = i + 1 == self.iterations
        if last or (i + 1) % self.settings.every == 0:
            gate, _ = self._split(session)
            found = await self.improver.improve(
                i // self.settings.every, self.groups, gate, session
            )
            self.groups = []
            self._take(found.overlay, session)
            metrics |= found.metrics
        if last:
            metrics |= await self._judge(session)
        return metrics

    def _take(self, overlay: Mapping[str, JSON], session: Session) -> None:
        """Adopt what changes something, and remember how it was."""
        new = changes(overlay, session)
        if new:
            now = session.learnable()
            self.first = {**{path: plain(now[path]) for path in new}, **(self.first or {})}
            self.overlay.update(new)
            session.adopt(new)

    async def _roll_out(self, session: Session) -> Metrics:
        """Some training problems, each `samples` times, with what was learned so far."""
        settings = self.settings
        problems = list(session.problems("train"))
        session.key.child("problems").random().shuffle(problems)
        key, chosen = session.key.child("episodes"), problems[: settings.problems]
        jobs = [Job(one, key.child(one.id, n)) for one in chosen for n in range(settings.samples)]
        episodes = await play(session, self.overlay, jobs)
        size = settings.samples
        groups = [group_of(episodes[n : n + size]) for n in range(0, len(episodes), size)]
        self.groups += groups
        rewards = [one for group in groups for one in group.rewards if one is not None]
        return {"team_reward": sum(rewards) / len(rewards)} if rewards else {}

    # ------------------------------------------------------------------------ judgement

    def _split(self, session: Session) -> tuple[list[Problem], list[Problem]]:
        """Validation problems that decide, and those that are held out; as many of each category.

        Raises:
            UsageError: none is left to decide.
        """
        gate, held = divided(
            session.problems("validation"), self.settings.held_out, self.ctx.key.child("split")
        )
        if not gate:
            raise UsageError(
                f"{self.ctx.path}.held_out: no validation problem is left to decide about changes"
            )
        return gate, held

    async def _judge(self, session: Session) -> Metrics:
        """What all that was learned is worth, on problems that decided about nothing."""
        _, held = self._split(session)
        if not held:
            return {}
        key = session.key.child("held out")
        jobs = [
            Job(one, key.child(one.id, n), training=False) for one in held for n in range(DRAWS)
        ]
        now = _means(await play(session, self.overlay, jobs))
        then = _means(await play(session, self.first, jobs)) if self.first else now
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

    # ------------------------------------------------------------------------ state

    def save(self) -> Saved:
        """The improver's state, and this trainer's own beside it."""
        inner: Saved = self.improver.save()
        own = {
            "first": self.first,
            "overlay": self.overlay,
            "groups": [_stored(one) for one in self.groups],
        }
        return Saved(inner.arrays, {**inner.data, "training": own})

    def load(self, saved: Saved) -> None:
        """Take over saved state."""
        data = dict(saved.data)
        own = data.pop("training")
        self.first, self.overlay = own["first"], dict(own["overlay"])
        self.groups = [_restored(one) for one in own["groups"]]
        self.improver.load(Saved(saved.arrays, data))


def divided(
    problems: Sequence[Problem], held_out: float, key: Key
) -> tuple[list[Problem], list[Problem]]:
    """Problems in two parts, category by category; `held_out` is the share of the second."""
    gate: list[Problem] = []
    held: list[Problem] = []
    for category in sorted({one.category for one in problems}):
        own = [one for one in problems if one.category == category]
        key.child(category).random().shuffle(own)
        count = int(len(own) * held_out)
        held += own[:count]
        gate += own[count:]
    order = {one.id: n for n, one in enumerate(problems)}
    return sorted(gate, key=lambda p: order[p.id]), sorted(held, key=lambda p: order[p.id])


def _means(episodes: Sequence[Episode]) -> list[float]:
    """Mean reward by problem; NaN where one is missing."""
    rewards = [reward_of(one) for one in episodes]
    return [mean(rewards[n : n + DRAWS]) for n in range(0, len(rewards), DRAWS)]


def _stored(group: Group) -> JSON:
    from orchestrion.runs import as_data

    return as_data(group.episodes)


def _restored(data: JSON) -> Group:
    from orchestrion.runs import structure

    return group_of([structure(one, Episode) for one in data])
