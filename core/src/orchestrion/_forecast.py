"""Bounds the calls, tokens and costs of a run before it starts.

The bound is computed from those that components give (see `_bounds`) and makes no call. It counts a
byte as a token, and every episode as long as its limit allows. Retries of failed calls are not
included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from math import ceil, isnan
from typing import Any, get_args

from attrs import evolve, field, frozen

from orchestrion._bounds import ceiling_of, reading, route_of, times
from orchestrion._engine.checks import iterations_of, problems_of
from orchestrion._engine.opening import Opened
from orchestrion._guards import calling, place_of
from orchestrion._interfaces import Plan
from orchestrion._records import NO_USAGE, Problem, Split, Usage
from orchestrion._report import own_name
from orchestrion._store.serial import encode

__all__ = ["Forecast", "Part", "forecast"]

_MAX_PROBLEMS = 10_000
"""Problems of a split that are measured: a task may make each problem when it is read."""

_MAX_ITERATIONS = 100_000
"""Iterations of a trainer that are planned, one by one."""


@frozen
class Part:
    """A line of the forecast: the bound for one role in one part of the run.

    Args:
        part: the part of the run.
        who: "agents", "judge" (verifier and reward), "policy" or "trainer".
        count: turns of agents, or episodes that are judged.
        exact: whether the count is exact, unless a turn ends its episode early.
        usage: the known part of the bound.
        unknown: reasons why the bound is incomplete; empty if it is complete.
    """

    part: str
    who: str
    count: int = 0
    exact: bool = False
    usage: Usage = NO_USAGE
    unknown: tuple[str, ...] = ()


@frozen
class Forecast:
    """The bound of a run, part by part, and its assumptions."""

    parts: tuple[Part, ...]
    assumptions: tuple[str, ...] = field(factory=tuple)

    @property
    def total(self) -> Usage:
        """Return the sum of the known bounds."""
        return sum((part.usage for part in self.parts), NO_USAGE)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the reasons why the bound is incomplete, each once."""
        return tuple(dict.fromkeys(reason for part in self.parts for reason in part.unknown))

    def against(self, caps: Any) -> dict[str, tuple[float, float, bool | None]]:
        """Return for each cap of a budget: the cap, the bound, and whether the cap suffices.

        The last is None if that is not known.
        """
        total, comparison = self.total, {}
        needs: dict[str, float] = {
            "calls": total.calls,
            "tokens": total.tokens,
            "usd": total.usd,
        }
        for name, bound in needs.items():
            cap = getattr(caps, name)
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
        return Usage(
            1, ceil(part.tokens / part.calls), 0, part.usd / part.calls, part.cost / part.calls
        )


def forecast(opened: Opened) -> Forecast:
    """Return the bound of a run of these components.

    Raises:
        RunError: a component raised an exception when it had to give its bound.
    """
    return _Forecaster(opened).all()


@frozen
class _Bounded:
    """A component that gives its ceiling by its runtime, or else by its settings."""

    runtime: Any
    component: Any
    place: str

    def ceiling(self, tokens: int) -> Usage | None:
        with calling(self.place, "ceiling"):
            usage = ceiling_of(self.runtime, tokens)
            return usage if usage is not None else ceiling_of(self.component, tokens)


class _Forecaster:
    def __init__(self, opened: Opened) -> None:
        self.opened, self.config = opened, opened.config
        self.turns = self.config.limits.turns
        task, place = opened.runtimes["task"], place_of(self.config, "task")
        limit = self.config.run.problems
        splits = {split: problems_of(task, split, place) for split in get_args(Split)}
        self.sizes: dict[Split, int] = {
            split: len(problems) if limit is None else min(limit, len(problems))
            for split, problems in splits.items()
        }
        self.tokens = max(
            (
                tokens_of(problem)
                for split, problems in splits.items()
                for problem in islice(problems, min(_MAX_PROBLEMS, self.sizes[split]))
            ),
            default=0,
        )

    def all(self) -> Forecast:
        config, evaluation = self.config, self.config.evaluation
        parts: list[Part] = []
        for path in config.stages:
            parts += self._training(path, path, "policy", config.roster)
        parts += self._evaluation(
            f"evaluation of {own_name(config)}", "policy", config.roster, bool(config.stages)
        )
        for name, baseline in evaluation.baselines.items():
            agents, policy = baseline.agents or config.roster, baseline.policy
            if baseline.trainer is not None:
                parts += self._training(f"training of {name}", baseline.trainer, policy, agents)
            trained = baseline.trainer is not None
            parts += self._evaluation(f"evaluation of {name}", policy, agents, trained)
        notes = [f"a byte is taken for a token; the longest problem has {self.tokens:,}"]
        if any(part.usage.calls for part in parts):
            notes.append("tools, and what the task shows, add no more in a turn than that")
        return Forecast(tuple(parts), tuple(notes))

    # ------------------------------------------------------------------ parts

    def _training(self, part: str, path: str, policy: str, agents: Sequence[str]) -> list[Part]:
        trainer, place = self.opened.runtimes[path], place_of(self.config, path)
        plan, unknown = self._plan(trainer, path, place)
        turns = max(self.turns or 0, plan.turns)
        route = [tuple(map(_name, agents))] * turns if turns else None
        bounds, end, reasons = self._episode(agents, route)
        usage = NO_USAGE
        if bounds and plan.forked:
            usage = times(bounds[-1], plan.activations)
        elif bounds:
            whole, rest = divmod(plan.activations, len(bounds))
            usage = times(sum(bounds, NO_USAGE), whole) + sum(bounds[:rest], NO_USAGE)
        acting = Part(part, "agents", plan.activations, plan.exact, usage, (*unknown, *reasons))
        own = Part(part, "trainer", 0, plan.exact, *self._own(plan, place, end, unknown))
        judge = self._judge(part, plan.verdicts, plan.scores, plan.exact, end)
        judge = evolve(judge, unknown=(*unknown, *judge.unknown))
        count = 0 if plan.forked else plan.activations + plan.verdicts
        return [acting, judge, own, *self._preparing(part, policy, count, end)]

    def _own(
        self, plan: Plan, place: str, end: int, unknown: tuple[str, ...]
    ) -> tuple[Usage, tuple[str, ...]]:
        """Return the bound of a trainer's own calls, and the reasons why it is incomplete."""
        usage = plan.usage
        for reader, count in plan.readings:
            with calling(place, f"ceiling of {type(reader).__name__}"):
                bound = ceiling_of(reader, end)
            if bound is None:
                reason = f"{place}: {type(reader).__name__} gives no bound (`ceiling`)"
                unknown = (*unknown, reason)
            else:
                usage += times(bound, count)
        return usage, unknown

    def _plan(self, trainer: Any, path: str, place: str) -> tuple[Plan, tuple[str, ...]]:
        """Return the sum of the plans of all iterations, and the reasons why it is incomplete."""
        count, limit = iterations_of(trainer, place), self.config.run.iterations
        count = count if limit is None else min(count, limit)
        give_plan = getattr(trainer, "plan", None)
        if count > _MAX_ITERATIONS:
            return Plan(forked=False), (f"{place} has {count:,} iterations: too many to plan",)
        total = Plan(exact=True, forked=False)
        for i in range(count):
            with calling(place, f"plan({i})"):
                plan: Plan | None = (
                    None if give_plan is None else give_plan(i, dict(self.sizes), self.turns)
                )
            if plan is None:
                return Plan(forked=False), (f"{place} gives no bound of an iteration (`plan`)",)
            total = Plan(
                total.activations + plan.activations,
                total.verdicts + plan.verdicts,
                total.scores + plan.scores,
                total.usage + plan.usage,
                total.exact and plan.exact,
                total.forked or plan.forked,
                max(total.turns, plan.turns),
                (*total.readings, *plan.readings),
            )
        return total, ()

    def _evaluation(
        self, part: str, policy: str, agents: Sequence[str], trained: bool
    ) -> list[Part]:
        evaluation = self.config.evaluation
        size = self.sizes[evaluation.split]
        episodes = min(size, evaluation.episodes or size) * evaluation.seeds
        names = tuple(map(_name, agents))
        # The route of a policy that is still to be trained is not known yet.
        runtime = None if trained else self.opened.runtimes[policy]
        with calling(place_of(self.config, policy), "route"):
            route = route_of(runtime, names, self.turns)
        bounds, end, unknown = self._episode(agents, route)
        exact = route is not None and all(len(turn) == 1 for turn in route)
        count = episodes * len(route or ())
        usage = times(sum(bounds, NO_USAGE), episodes)
        acting = Part(part, "agents", count, exact, usage, unknown)
        deciding = self._preparing(part, policy, count + episodes, end)
        return [acting, self._judge(part, episodes, 0, True, end), *deciding]

    def _preparing(self, part: str, policy: str, decisions: int, end: int) -> list[Part]:
        """Return the bound of the calls that a policy makes before its decisions."""
        runtime = self.opened.runtimes[policy]
        if not getattr(runtime, "prepares", False):
            return []
        usage, place = self._bounded(policy).ceiling(end), place_of(self.config, policy)
        if usage is None:
            unknown = (f"{place} gives no bound of preparing a decision (`ceiling`)",)
            return [Part(part, "policy", decisions, False, NO_USAGE, unknown)]
        return [Part(part, "policy", decisions, False, times(usage, decisions), ())]

    def _judge(self, part: str, verdicts: int, scores: int, exact: bool, end: int) -> Part:
        usage, unknown = NO_USAGE, []
        counts = {"task": verdicts + scores, "reward": verdicts}
        for path, count in counts.items():
            if count and path in self.opened.runtimes:
                bound = self._bounded(path).ceiling(end)
                if bound is None:
                    unknown.append(f"{place_of(self.config, path)} gives no bound (`ceiling`)")
                else:
                    usage += times(bound, count)
        return Part(part, "judge", verdicts + scores, exact, usage, tuple(unknown))

    # ------------------------------------------------------------------ episodes

    def _bounded(self, path: str) -> _Bounded:
        entry = self.config.components[path]
        component = entry.wired(self.opened.runtimes)
        return _Bounded(self.opened.runtimes[path], component, place_of(self.config, path))

    def _episode(
        self, agents: Sequence[str], route: Sequence[Any] | None
    ) -> tuple[list[Usage], int, tuple[str, ...]]:
        """Return the bound of each turn, the tokens to read at the end, and reasons for gaps."""
        team: Mapping[str, _Bounded] = {_name(path): self._bounded(path) for path in agents}
        ceilings = {agent.place: agent.ceiling(self.tokens) for agent in team.values()}
        unbounded = [place for place, ceiling in ceilings.items() if ceiling is None]
        reasons = [f"{place} gives no bound of a turn (`ceiling`)" for place in unbounded]
        if route is None:
            if any(ceiling != NO_USAGE for ceiling in ceilings.values()):
                reasons.append("`limits.turns` is not set, so an episode has no bound; set it")
            return [], self.tokens, tuple(reasons)
        bounds = None if unbounded else reading(team, route, self.tokens, self.tokens)
        if bounds is None:
            return [], self.tokens, tuple(reasons)
        return bounds[0], bounds[1], ()


def tokens_of(problem: Problem) -> int:
    """Return an upper bound of the tokens in the public part of a problem."""
    text = problem.text.encode(errors="surrogatepass")
    return len(text) + (0 if problem.data is None else len(encode(problem.data)))


def _name(path: str) -> str:
    return path.partition(".")[2]
