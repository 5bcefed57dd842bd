"""Train by beam search: the trainer `grpo-beam`. Read `BeamTrainer.iterate` first.

Each iteration searches training problems, verifies and rewards the finalists, and compares rewards
within each problem: A = R - mean(R), as in GRPO (Shao et al. 2024) without the division by the
standard deviation (Liu et al. 2025). No weights are trained: the groups go to an improver, which
changes what agents are told. A last iteration compares the search with baselines.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, ClassVar, Literal

from attrs import evolve, fields, frozen

from orchestrion import (
    JSON,
    CheckpointError,
    Key,
    Meta,
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
from orchestrion.runs import as_data, mean, structure
from orchestrion_beam.baselines import ComparisonSettings
from orchestrion_beam.comparison import compare
from orchestrion_beam.groups import JudgedSearch, judge_searches
from orchestrion_beam.interfaces import Group, Improver, Scale, ValueEstimator, reward_of
from orchestrion_beam.report import write_iteration, write_report
from orchestrion_beam.search import BeamSearch, Count, run_all
from orchestrion_beam.values import TaskValue


@frozen
class GrpoBeam(ComparisonSettings):
    """Searches many trajectories of the team side by side, and learns from how they compare.

    Each of `rounds` iterations searches `problems` training problems, verifies and rewards the
    finalists of each search, and compares rewards within the problem: A = R - mean(R). Every
    `improve_every` iterations an improver may change learnable settings of the team. A last
    iteration compares the search with baselines with the same number of calls, on validation
    problems that decided nothing.

    Args:
        rounds: iterations that search.
        problems: training problems of an iteration; all searches run concurrently.
        value: estimates the value of unfinished trajectories; the task's partial score by default.
        advantage: `mean` centres rewards within the problem; `std` also divides by the deviation.
        least_std: lower bound of the deviation that `std` divides by.
        credit: credit of turns: equal shares of the advantage; or `counterfactual`, the verified
            score that is lost if the turn is left out and the rest is run again with the same keys.
        credited: for how many trajectories of a problem, best first, turns are left out; the
            others get equal shares.
        improver: changes learnable settings of the team.
        improve_every: iterations between its proposals.
    """

    smoke: ClassVar[Mapping[str, JSON]] = {
        "rounds": 1,
        "problems": 2,
        "beam_width": 2,
        "samples": 2,
        "min_parents": 2,
        "min_roots": 2,
        "improve_every": 1,
        "held_out": 2,
    }

    rounds: Count = 10
    problems: Count = 8
    value: ValueEstimator | None = None
    advantage: Scale = "mean"
    least_std: Annotated[float, Meta(ge=0)] = 0.05
    credit: Literal["equal", "counterfactual"] = "equal"
    credited: Count = 1
    improver: Improver | None = None
    improve_every: Count = 5

    @property
    def iterations(self) -> int:
        """Return the number of iterations: those that search, and one that compares."""
        return self.rounds + (self.held_out > 0)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Yield the runtime."""
        yield BeamTrainer(self, ctx)


class BeamTrainer(Trainer):
    """The runtime of `grpo-beam`; its state are groups for the improver, and the report."""

    def __init__(self, settings: GrpoBeam, ctx: OpenContext) -> None:
        self.settings, self.path, self.key, self.note = settings, ctx.path, ctx.key, ctx.note
        self.estimator: ValueEstimator = settings.value or TaskValue()
        # An inline value is named by its path, which says less than its label.
        [name, *_] = ctx.names.get("value") or [""]
        self.value_name = name if name and not name.startswith(ctx.path) else self.estimator.label
        self.folder = ctx.directory and ctx.directory / "exports" / "beam"
        if self.folder is not None and ctx.path != "trainer":
            # Each stage has a folder of its own.
            self.folder /= re.sub(r"\W+", "-", ctx.path).strip("-")
        self.pending: list[Group] = []
        self.round = 0
        self.report: JSON = None

    @property
    def iterations(self) -> int:
        """Return the number of iterations."""
        return self.settings.iterations

    def check(self, session: Session) -> None:
        """Refuse a team or task that cannot be searched, compared or improved.

        Raises:
            UsageError: a name is no choice of the team, problems are missing, or the improver
                refuses.
        """
        settings = self.settings
        for name in (*settings.rotation, *([settings.single] if settings.single else ())):
            parse_choice(name, session.roster, self.path)
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
        """Search training problems, and improve the team when it is due; at the end, compare."""
        settings = self.settings
        if i >= settings.rounds:
            return await self._compare(session)
        start = getattr(settings.improver, "start", None)
        if i == 0 and start is not None and (overlay := start(session)):
            session.adopt(overlay)
        searches = await self._search_problems(i, session)
        if self.folder is not None:
            write_iteration(self.folder, i, searches)
        metrics = _metrics(searches)
        if settings.improver is not None:
            self.pending += [judged.group for judged in searches]
            if (i + 1) % settings.improve_every == 0:
                metrics |= await self._improve(settings.improver, session)
        return metrics

    # ---------------------------------------------------------------------------------- search

    def search(self, session: Session, problem: Problem, key: Key, training: bool) -> BeamSearch:
        """Return a search with this trainer's settings."""
        chooser = self.settings.chooser(session, training)
        return BeamSearch(self.settings, session, problem, chooser, self.estimator, key)

    async def _search_problems(self, i: int, session: Session) -> list[JudgedSearch]:
        settings = self.settings
        problems = self._problems_of(i, session.problems("train"))
        keys = [session.key.child("search").child(n) for n in range(len(problems))]
        searches = [
            self.search(session, problem, key, training=True)
            for problem, key in zip(problems, keys, strict=True)
        ]
        await run_all(search.run() for search in searches)
        if not any(search.finalists for search in searches):
            errors = [search.counts.last_error for search in searches]
            raise RunError(f"{self.path}: every first turn of every search failed; {max(errors)}")
        judged_searches = await judge_searches(
            session,
            searches,
            select=settings.select,
            scale=settings.advantage,
            least_std=settings.least_std,
            credited=self._credited,
        )
        if all(reward is None for judged in judged_searches for reward in judged.group.rewards):
            raise RunError(
                f"{self.path}: every reward is missing, so there is nothing to compare; the config "
                "may lack a reward, e.g. `reward: {use: exact-outcome}`"
            )
        return judged_searches

    @property
    def _credited(self) -> int:
        return self.settings.credited if self.settings.credit == "counterfactual" else 0

    def _problems_of(self, i: int, problems: Sequence[Problem]) -> list[Problem]:
        """Return iteration i's problems: lap after lap through all, each lap in its own order."""
        count = self.settings.problems
        return [problems[n] for n in laps(len(problems), self.key, i * count, count)]

    # -------------------------------------------------------------------- improve and compare

    def split(self, session: Session) -> tuple[list[Problem], list[Problem]]:
        """Return the validation problems that may decide something, and those held out."""
        problems = list(session.problems("validation"))
        self.key.child("held out").random().shuffle(problems)
        count = self._comparison_size(len(problems))
        return problems[count:], problems[:count]

    def _comparison_size(self, validation: int) -> int:
        """Return how many of so many validation problems are held out."""
        limit = validation if self.settings.improver is None else validation // 2
        return min(self.settings.held_out, max(1, limit))

    async def _improve(self, improver: Improver, session: Session) -> dict[str, float]:
        groups, self.pending = tuple(self.pending), []
        deciding, _ = self.split(session)
        improvement = await improver.improve(self.round, groups, deciding, session)
        self.round += 1
        if improvement.overlay:
            session.adopt(improvement.overlay)
        return {**improvement.metrics, "adopted": float(len(improvement.overlay))}

    async def _compare(self, session: Session) -> Metrics:
        _, held_out = self.split(session)
        report = self.report = await compare(
            self.settings,
            session,
            held_out,
            lambda problem, key: self.search(session, problem, key, training=False),
            self.estimator,
            self.value_name,
            self.key.child("report"),
        )
        if self.folder is not None:
            write_report(self.folder, report)
        for n, sentence in enumerate(report["sentences"]):
            self.note(f"report {n + 1}", sentence)
        metrics = {"held_out": float(report["problems"])}
        for contender in report["contenders"]:
            name, ahead = contender["name"], contender["ahead"]
            metrics[f"calls_{name}"] = contender["calls"]
            if contender["reward"]["mean"] is not None:
                metrics[f"reward_{name}"] = contender["reward"]["mean"]
            if ahead and ahead["mean"] is not None:
                metrics[f"ahead_of_{name}"] = ahead["mean"]
        correlation = report["value"]["correlation"]["mean"]
        return metrics if correlation is None else {**metrics, "value_correlation": correlation}

    # ----------------------------------------------------------------------------------- bound

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan | None:
        """Return the most that iteration `i` uses; None if an improver gives no bound."""
        settings = self.settings
        if i >= settings.rounds:
            search = self._plan_search(credited=0)
            problem = search + settings.plan_baselines(self.estimator, search)
            return _times(problem, self._comparison_size(sizes["validation"]))
        searches = _times(self._plan_search(self._credited), settings.problems)
        if settings.improver is None or (i + 1) % settings.improve_every:
            return searches
        plan = getattr(settings.improver, "plan", None)
        improvement = None if plan is None else plan(i // settings.improve_every, sizes)
        return None if improvement is None else searches + improvement

    def _plan_search(self, credited: int) -> Plan:
        """Return the most that one search uses, with judging its finalists."""
        settings = self.settings
        samples, turns = settings.samples_per_search, settings.turns
        forks = min(credited, settings.beam_width)
        return Plan(
            turns=samples * settings.at_once + forks * turns * (turns - 1) // 2,
            verdicts=settings.beam_width,
            scores=samples * (self.estimator.scores + settings.early_stop) + forks * turns,
            readings=((self.estimator, samples),),
            longest=turns,
        )

    # ----------------------------------------------------------------------------------- state

    def save(self) -> Saved:
        """Return the groups for the next proposal, and the report."""
        pending = as_data(
            [{a.name: getattr(group, a.name) for a in fields(Group)} for group in self.pending]
        )
        return Saved(data={"pending": pending, "round": self.round, "report": self.report})

    def load(self, saved: Saved) -> None:
        """Take over saved state.

        Raises:
            CheckpointError: the state is damaged.
        """
        try:
            self.pending = [structure(group, Group) for group in saved.data["pending"]]
            self.round, self.report = int(saved.data["round"]), saved.data["report"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.path}: the saved state of grpo-beam is damaged: {error!r}"
            ) from error


def _metrics(searches: Sequence[JudgedSearch]) -> dict[str, float]:
    """Return the metrics of an iteration."""
    counts = [judged.search.counts for judged in searches]
    groups = [judged.group for judged in searches]

    def total(name: str) -> float:
        return float(sum(getattr(count, name) for count in counts))

    chosen = [reward_of(j.chosen.episode) for j in searches if j.chosen is not None]
    advantages = [abs(a) for group in groups for a in group.advantages if a is not None]
    roots = [{node.root for node in judged.nodes} for judged in searches]
    return {
        "calls": total("calls"),
        "samples": total("samples"),
        "widest": float(max((count.widest for count in counts), default=0)),
        "scored_share": total("scored") / max(1.0, total("samples") - total("failed")),
        "failed_samples": total("failed"),
        "duplicates": total("duplicates"),
        "estimates": total("estimates"),
        "unreadable": total("unreadable"),
        "cut": total("cut"),
        "credit_turns": total("credit_turns"),
        "ancestors": mean([float(len(roots_of_search)) for roots_of_search in roots]),
        "parents": mean([float(n) for count in counts for n in count.parents]),
        "chosen_reward": mean([reward for reward in chosen if reward is not None]),
        "advantage": mean(advantages),
        "dead_groups": float(sum(not any(group.advantages) for group in groups)),
        "lost_problems": float(sum(not judged.nodes for judged in searches)),
    }


def _times(plan: Plan, count: int) -> Plan:
    return evolve(
        plan,
        turns=plan.turns * count,
        verdicts=plan.verdicts * count,
        scores=plan.scores * count,
        readings=tuple((reader, times * count) for reader, times in plan.readings),
    )
