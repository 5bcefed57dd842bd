"""The trainer `grpo-beam` at work: search, compare, improve. Read `Learner.iterate` first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrion import (
    JSON,
    CheckpointError,
    Key,
    Metrics,
    OpenContext,
    Plan,
    Problem,
    RunError,
    Saved,
    Session,
    Split,
    Trainer,
    UsageError,
    laps,
    parse_choice,
)
from orchestrion.runs import mean
from orchestrion_beam.baselines import rotation
from orchestrion_beam.choosers import Chooser, PolicyChooser, Rotation
from orchestrion_beam.exports import write_iteration, write_report
from orchestrion_beam.groups import Judged, judge
from orchestrion_beam.interfaces import Group, ValueEstimator
from orchestrion_beam.planning import held_out
from orchestrion_beam.search import Flight, Search
from orchestrion_beam.together import together
from orchestrion_beam.values import TaskValue

if TYPE_CHECKING:
    from orchestrion_beam.trainer import GrpoBeam

__all__ = ["Learner"]


class Learner(Trainer):
    """The runtime of `grpo-beam`; it keeps what the improver has not seen yet, and the report."""

    def __init__(self, settings: GrpoBeam, ctx: OpenContext) -> None:
        self.settings, self.path, self.key = settings, ctx.path, ctx.key
        self.note = ctx.note
        self.directory = _folder(ctx)
        self.estimator: ValueEstimator = settings.value or TaskValue()
        self.value_name = _name(ctx, self.estimator)
        self.flight = Flight()
        self.pending: list[Group] = []
        self.round = 0
        """How often the improver was called."""
        self.report: JSON = None

    @property
    def iterations(self) -> int:
        """See `GrpoBeam.iterations`."""
        return self.settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """See `GrpoBeam.plan`."""
        return self.settings.plan(i, sizes, turns)

    def check(self, session: Session) -> None:
        """Refuse what cannot be searched, compared or improved."""
        settings = self.settings
        for name in (*settings.rotation, *([settings.single] if settings.single else ())):
            try:
                parse_choice(name, session.roster)
            except UsageError as error:
                raise UsageError(f"{self.path}: {error}") from None
        if not session.problems("train"):
            raise UsageError(f"{self.path}: the task has no training problems to search on")
        validation = len(session.problems("validation"))
        needed = (settings.held_out > 0) + (settings.improver is not None)
        if validation < needed:
            raise UsageError(
                f"{self.path}: the task has {validation} validation problems; an improver needs "
                "one to decide on, and the comparison at the end another; give it more, or set "
                "`held_out: 0`"
            )
        check = getattr(settings.improver, "check", None)
        if check is not None:
            check(session)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Search training problems, and improve the team when it is time; at the end, compare."""
        if i >= self.settings.rounds:
            return await self._compare(session)
        if i == 0:
            self._begin(session)
        judged = await self._search(i, session)
        write_iteration(self.directory, i, judged)
        metrics = _metrics(judged)
        if self.settings.improver is not None:
            self.pending += [one.group for one in judged]
            if (i + 1) % self.settings.improve_every == 0:
                metrics |= await self._improve(session)
        return metrics

    # ------------------------------------------------------------------------------- search

    def search(self, session: Session, problem: Problem, key: Key, training: bool) -> Search:
        """A search with this trainer's settings."""
        chooser, flight = self._chooser(session, training), self.flight
        return Search(self.settings, session, problem, chooser, self.estimator, key, flight)

    def _chooser(self, session: Session, training: bool) -> Chooser:
        settings = self.settings
        if settings.order == "rotation":
            return Rotation(rotation(settings, session.roster))
        return PolicyChooser(session.policy, settings.turns, training, settings.at_once)

    async def _search(self, i: int, session: Session) -> list[Judged]:
        keys = session.key.child("search")
        searches = [
            (self.search(session, problem, keys.child(n), training=True), keys.child(n))
            for n, problem in enumerate(self._drawn(i, session.problems("train")))
        ]
        found = await together(search.run() for search, _ in searches)
        if not any(one.finalists for one in found):
            errors = [one.counts.last_error for one in found]
            raise RunError(f"{self.path}: no turn of any search could be taken; {max(errors)}")
        ended = [(one, key) for one, (_, key) in zip(found, searches, strict=True)]
        judged = await judge(self.settings, session, ended, self.flight)
        if all(reward is None for one in judged for reward in one.group.rewards):
            raise RunError(
                f"{self.path}: every reward is missing, so there is nothing to compare; the config "
                "may lack a reward, e.g. `reward: {use: exact-outcome}`"
            )
        return judged

    def _drawn(self, i: int, problems: Sequence[Problem]) -> list[Problem]:
        """Iteration i's problems: lap after lap through all of them, each lap in its own order."""
        each = self.settings.problems
        return [problems[n] for n in laps(len(problems), self.key, i * each, each)]

    # ------------------------------------------------------------------- improve and compare

    def split(self, session: Session) -> tuple[list[Problem], list[Problem]]:
        """Validation problems that may decide something, and those held out for the report."""
        problems = list(session.problems("validation"))
        self.key.child("held out").random().shuffle(problems)
        sizes: Mapping[Split, int] = {"validation": len(problems)}
        count = held_out(self.settings, sizes)
        return problems[count:], problems[:count]

    def _begin(self, session: Session) -> None:
        """What an improver brings with it, e.g. from an earlier run, holds from now on."""
        start = getattr(self.settings.improver, "start", None)
        overlay = start(session) if start is not None else {}
        if overlay:
            session.adopt(overlay)

    async def _improve(self, session: Session) -> dict[str, float]:
        improver = self.settings.improver
        assert improver is not None
        groups, self.pending = tuple(self.pending), []
        gate, _ = self.split(session)
        found = await improver.improve(self.round, groups, gate, session)
        self.round += 1
        if found.overlay:
            session.adopt(found.overlay)
        return {**found.metrics, "adopted": float(len(found.overlay))}

    async def _compare(self, session: Session) -> Metrics:
        from orchestrion_beam.compare import compare

        _, held_out = self.split(session)
        report = await compare(self, session, held_out)
        self.report = report
        write_report(self.directory, report)
        for n, sentence in enumerate(report["sentences"]):
            self.note(f"report {n + 1}", sentence)
        metrics = {"held_out": float(report["problems"])}
        for one in report["contenders"]:
            if one["reward"]["mean"] is not None:
                metrics[f"reward_{one['name']}"] = one["reward"]["mean"]
            metrics[f"calls_{one['name']}"] = one["calls"]
            if one["ahead"] and one["ahead"]["mean"] is not None:
                metrics[f"ahead_of_{one['name']}"] = one["ahead"]["mean"]
        found = report["value"]["correlation"]["mean"]
        return metrics if found is None else {**metrics, "value_correlation": found}

    # -------------------------------------------------------------------------------- state

    def save(self) -> Saved:
        """What the next proposal is made from, and the report."""
        from orchestrion.runs import as_data

        pending = as_data([_fields(group) for group in self.pending])
        return Saved(data={"pending": pending, "round": self.round, "report": self.report})

    def load(self, saved: Saved) -> None:
        """Take over saved state."""
        from orchestrion.runs import structure

        try:
            self.pending = [structure(one, Group) for one in saved.data["pending"]]
            self.round, self.report = int(saved.data["round"]), saved.data["report"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.path}: the saved state of grpo-beam is damaged: {error!r}"
            ) from error


def _fields(group: Group) -> dict[str, Any]:
    from attrs import fields

    return {one.name: getattr(group, one.name) for one in fields(Group)}


def _folder(ctx: OpenContext) -> Path | None:
    """Where exports go; every trainer of a run has a place of its own."""
    if ctx.directory is None:
        return None
    folder = ctx.directory / "exports" / "beam"
    return folder if ctx.path == "trainer" else folder / re.sub(r"\W+", "-", ctx.path).strip("-")


def _name(ctx: OpenContext, estimator: ValueEstimator) -> str:
    """What the config calls it, or, given inline, what it calls itself."""
    names: Mapping[str, tuple[str, ...]] = ctx.names
    named = names.get("value", ("",))[0]
    return estimator.label if not named or named.startswith(ctx.path) else named


def _metrics(judged: Sequence[Judged]) -> dict[str, float]:
    """An iteration in numbers."""
    counts = [one.found.counts for one in judged]
    samples = sum(one.samples for one in counts)
    failed = sum(one.failed for one in counts)
    advantages = [a for one in judged for a in one.group.advantages if a is not None]
    chosen = [one.group.rewards[one.chosen] for one in judged if one.chosen is not None]
    return {
        "calls": float(sum(one.calls for one in counts)),
        "samples": float(samples),
        "widest": float(max((one.widest for one in counts), default=0)),
        "scored_share": sum(one.scored for one in counts) / max(1, samples - failed),
        "failed_samples": float(failed),
        "duplicates": float(sum(one.duplicates for one in counts)),
        "estimates": float(sum(one.asked for one in counts)),
        "unreadable": float(sum(one.unreadable for one in counts)),
        "cut": float(sum(one.cut for one in counts)),
        "credit_turns": float(sum(one.credit_turns for one in counts)),
        "ancestors": mean([float(len({n.root for n in one.nodes})) for one in judged]),
        "parents": mean([float(n) for one in counts for n in one.parents]),
        "chosen_reward": mean([reward for reward in chosen if reward is not None]),
        "advantage": mean([abs(one) for one in advantages]),
        "dead_groups": float(sum(not any(one.group.advantages) for one in judged)),
        "lost_problems": float(sum(not one.nodes for one in judged)),
    }
