"""Bound the calls, tokens and costs of a run before it starts.

The bound is computed from those that components give (see `_bounds`) and makes no call. It counts a
byte as a token, and every episode as long as its limit allows. Retries of failed calls are not
included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from math import ceil, isnan
from pathlib import Path
from typing import Any

from attrs import frozen

from orchestrion._bounds import ceiling_of, times, turn_ceilings, turns_of
from orchestrion._engine.checks import has_steps, iterations_of, problems_of
from orchestrion._engine.opening import Opened
from orchestrion._errors import OrchestrionError, RunError
from orchestrion._guards import calling, place_of
from orchestrion._interfaces import Plan
from orchestrion._offline import no_network
from orchestrion._readiness import ready, sizes_of
from orchestrion._records import NO_USAGE, Problem, Split, Usage
from orchestrion._report import LEARNED, own_name
from orchestrion._store import RunReader
from orchestrion._store.names import run_directories
from orchestrion._store.serial import encode
from orchestrion.config import Config

_MAX_PROBLEMS = 10_000
"""Problems of a split that are measured: a task may make each problem when it is read."""

_MAX_ITERATIONS = 100_000
"""Iterations of a trainer that are planned, one by one."""


@frozen
class Part:
    """A line of the forecast: the bound for one role in one part of the run."""

    part: str
    who: str  # "agents", "judge" (verifier and reward), "policy" or "trainer"
    count: int = 0
    usage: Usage = NO_USAGE
    unknown: tuple[str, ...] = ()


@frozen
class Forecast:
    """The bound of a run, part by part, and its assumptions."""

    parts: tuple[Part, ...]
    assumptions: tuple[str, ...] = ()

    @property
    def total(self) -> Usage:
        return sum((part.usage for part in self.parts), NO_USAGE)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the reasons why the bound is incomplete, each once."""
        return tuple(dict.fromkeys(reason for part in self.parts for reason in part.unknown))

    def against(self, caps: Any) -> dict[str, tuple[float, float, bool | None]]:
        """Return for each cap of a budget: the cap, the bound, and whether the cap suffices.

        The last is None if that is not known.
        """
        comparison: dict[str, tuple[float, float, bool | None]] = {}
        for name in ("calls", "tokens", "usd", "cost"):
            cap, bound = getattr(caps, name), getattr(self.total, name)
            if cap is not None:
                is_complete = not self.unknown and not isnan(bound)
                suffices = None if bound <= cap and not is_complete else bound <= cap
                comparison[name] = (cap, bound, suffices)
        return comparison

    def each(self) -> Usage:
        """Return the mean bound of a call, in the part where that is highest."""
        parts = [part.usage for part in self.parts if part.usage.calls]
        if not parts:
            return NO_USAGE
        part = max(parts, key=lambda usage: (usage.usd / usage.calls, usage.tokens / usage.calls))
        tokens = ceil(part.tokens / part.calls)
        return Usage(1, tokens, 0, part.usd / part.calls, part.cost / part.calls)


async def forecast_of(config: Config) -> Forecast:
    """Return the bound of a config's run; opens its components, without network access.

    Raises:
        RunError: a component cannot be opened, or not without network access.
    """
    with no_network(RunError, "a dry run asks nobody"):
        async with ready(config) as (opened, _):
            return forecast(opened)


def spent_before(config: Config, root: Path) -> tuple[Path, Usage] | None:
    """Return the newest completed run of the same config under `root`, and all that it took."""
    completed = []
    for directory in run_directories(root):
        with suppress(OrchestrionError), RunReader(directory) as run:
            if run.status == "completed" and (run.manifest or {}).get("digest") == config.digest:
                completed.append((run.created, directory, run.spend()))
    return max(completed)[1:] if completed else None


def forecast(opened: Opened) -> Forecast:
    """Return the bound of a run of these components."""
    return _Forecaster(opened).all()


def training_episodes(opened: Opened, sizes: Mapping[Split, int]) -> dict[str, int | None]:
    """Return the most episodes that the run trains on, as "learned", and each trained baseline.

    None is where that is not known.
    """
    config = opened.config
    trainers = {LEARNED: config.stages} if config.stages else {}
    for name, baseline in config.evaluation.baselines.items():
        if baseline.trainer is not None:
            trainers[name] = (baseline.trainer,)
    counts: dict[str, int | None] = {}
    for name, paths in trainers.items():
        plans = [plan_of(opened, path, sizes) for path in paths]
        known = not any(unknown for _, unknown in plans)
        counts[name] = sum(p.episodes + p.verdicts for p, _ in plans) if known else None
    return counts


def plan_of(opened: Opened, path: str, sizes: Mapping[Split, int]) -> tuple[Plan, tuple[str, ...]]:
    """Return the sum of the plans of a trainer's iterations, and reasons why it is incomplete."""
    trainer, place = opened.runtimes[path], place_of(opened.config, path)
    count, limit = iterations_of(trainer, place), opened.config.run.iterations
    count = count if limit is None else min(count, limit)
    give_plan = getattr(trainer, "plan", None)
    if count > _MAX_ITERATIONS:
        return Plan(), (f"{place} has {count:,} iterations: too many to plan",)
    total = Plan()
    for i in range(count):
        with calling(place, f"plan({i})"):
            plan: Plan | None = None if give_plan is None else give_plan(i, dict(sizes))
        if plan is None:
            return Plan(), (f"{place} gives no bound of an iteration (`plan`)",)
        total += plan
    return total, ()


@frozen
class _Bounded:
    """A component with its place in the config; the first source that gives a ceiling counts."""

    place: str
    sources: tuple[Any, ...]
    is_shown: bool = False  # what the environment shows

    def ceiling(self, tokens: int) -> Usage | None:
        if self.is_shown:
            tokens += max(getattr(source, "observes", 0) for source in self.sources)
        with calling(self.place, "ceiling"):
            bounds = (ceiling_of(source, tokens) for source in self.sources)
            return next((bound for bound in bounds if bound is not None), None)


class _Forecaster:
    def __init__(self, opened: Opened) -> None:
        self.opened, self.config = opened, opened.config
        self.limit = self.config.limits.turns
        task, place = opened.runtimes["task"], place_of(self.config, "task")
        self.shows = has_steps(task)
        self.sizes = sizes_of(opened)
        self.tokens = 0
        """Of the longest problem."""
        for split, size in self.sizes.items():
            problems = islice(problems_of(task, split, place), min(_MAX_PROBLEMS, size))
            self.tokens = max([self.tokens, *map(tokens_of, problems)])

    def all(self) -> Forecast:
        config = self.config
        parts: list[Part] = []
        for path in config.stages:
            parts += self._training(path, path, "policy", config.roster)
        part, trained = f"evaluation of {own_name(config)}", bool(config.stages)
        parts += self._evaluation(part, "policy", config.roster, trained)
        for name, baseline in config.evaluation.baselines.items():
            agents, policy = baseline.agents or config.roster, baseline.policy
            trained = baseline.trainer is not None
            if baseline.trainer is not None:
                parts += self._training(f"training of {name}", baseline.trainer, policy, agents)
            parts += self._evaluation(f"evaluation of {name}", policy, agents, trained)
        notes = [f"a byte is taken for a token; the longest problem has {self.tokens:,}"]
        if any(part.usage.calls for part in parts):
            notes.append(
                "agents without a model, tools, and what the task shows are taken to add no more "
                "in a turn than that"
            )
        return Forecast(tuple(parts), tuple(notes))

    # ------------------------------------------------------------------ parts

    def _training(self, part: str, path: str, policy: str, agents: Sequence[str]) -> list[Part]:
        place = place_of(self.config, path)
        plan, unknown = plan_of(self.opened, path, self.sizes)
        # Whole episodes end at the limit of the run, which only the trainer itself may exceed.
        has_limit = self.limit is not None or (plan.longest and not plan.episodes)
        length = max(self.limit or 0, plan.longest) if has_limit else None
        bounds, end, reasons = self._episode(agents, length)
        usage = times(sum(bounds, NO_USAGE), plan.episodes)
        usage += times(bounds[-1] if bounds else NO_USAGE, plan.turns)
        turns, verdicts = plan.episodes * (length or 0) + plan.turns, plan.episodes + plan.verdicts
        acting = Part(part, "agents", turns, usage, (*unknown, *reasons))
        judging = self._judging(part, verdicts, plan.scores, end, unknown)
        ceilings = [
            (_Bounded(f"{place}: {type(reader).__name__}", (reader,)), number)
            for reader, number in plan.readings
        ]
        learning = self._sum(part, "trainer", 0, ceilings, end, plan.usage, unknown)
        return [acting, judging, learning, *self._preparing(part, policy, turns + verdicts, end)]

    def _evaluation(
        self, part: str, policy: str, agents: Sequence[str], trained: bool
    ) -> list[Part]:
        evaluation = self.config.evaluation
        size = self.sizes[evaluation.split]
        episodes = min(size, evaluation.episodes or size) * evaluation.seeds
        # How long the episodes of a policy are that is still to be trained is not known yet.
        runtime = None if trained else self.opened.runtimes[policy]
        with calling(place_of(self.config, policy), "longest"):
            length = turns_of(runtime, self.limit)
        bounds, end, unknown = self._episode(agents, length)
        turns, usage = episodes * (length or 0), times(sum(bounds, NO_USAGE), episodes)
        acting = Part(part, "agents", turns, usage, unknown)
        preparing = self._preparing(part, policy, turns + episodes, end)
        return [acting, self._judging(part, episodes, 0, end), *preparing]

    def _judging(
        self, part: str, verdicts: int, scores: int, end: int, unknown: tuple[str, ...] = ()
    ) -> Part:
        counts = {"task": verdicts + scores, "reward": verdicts}
        judges = [
            (self._bounded(path), count)
            for path, count in counts.items()
            if path in self.opened.runtimes
        ]
        return self._sum(part, "judge", verdicts + scores, judges, end, NO_USAGE, unknown)

    def _preparing(self, part: str, policy: str, decisions: int, end: int) -> list[Part]:
        """Return the bound of the calls that a policy makes before its decisions."""
        if not getattr(self.opened.runtimes[policy], "prepares", False):
            return []
        return [self._sum(part, "policy", decisions, [(self._bounded(policy), decisions)], end)]

    # ------------------------------------------------------------------ sums

    def _sum(
        self,
        part: str,
        who: str,
        count: int,
        readers: Sequence[tuple[_Bounded, int]],
        tokens: int,
        usage: Usage = NO_USAGE,
        unknown: tuple[str, ...] = (),
    ) -> Part:
        """Return a usage with those of components that read so many tokens so many times each."""
        for reader, number in readers:
            bound = reader.ceiling(tokens) if number else NO_USAGE
            if bound is None:
                what = " of preparing a decision" if who == "policy" else ""
                unknown = (*unknown, f"{reader.place} gives no bound{what} (`ceiling`)")
            else:
                usage += times(bound, number)
        return Part(part, who, count, usage, unknown)

    def _bounded(self, path: str) -> _Bounded:
        runtime = self.opened.runtimes[path]
        settings = self.config.components[path].wired(self.opened.runtimes)
        return _Bounded(place_of(self.config, path), (runtime, settings), self.shows)

    def _episode(
        self, agents: Sequence[str], turns: int | None
    ) -> tuple[list[Usage], int, tuple[str, ...]]:
        """Return the bound of each turn, the tokens to read at the end, and reasons for gaps."""
        team = {path: self._bounded(path) for path in agents}
        ceilings = {agent.place: agent.ceiling(self.tokens) for agent in team.values()}
        unknown = [place for place, ceiling in ceilings.items() if ceiling is None]
        reasons = [f"{place} gives no bound of a turn (`ceiling`)" for place in unknown]
        if turns is None and any(ceiling != NO_USAGE for ceiling in ceilings.values()):
            reasons.append("`limits.turns` is not set, so an episode has no bound; set it")
        bounds = None if reasons else turn_ceilings(team, turns or 0, self.tokens, self.tokens)
        return (*(bounds or ([], self.tokens)), tuple(reasons))


def tokens_of(problem: Problem) -> int:
    """Return an upper bound of the tokens in the public part of a problem."""
    text = problem.text.encode(errors="surrogatepass")
    return len(text) + (0 if problem.data is None else len(encode(problem.data)))
