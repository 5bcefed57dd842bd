"""What a run takes at most, before anything is paid for.

It is worked out from what components say of themselves (see `bounds`) and makes no call. A byte is
taken for a token, and every episode for as long as its limit allows: a bound, not an estimate.
What fails and is tried again comes on top.
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

_LOOKED_AT = 10_000
"""Problems of a split that are measured: a task may make them as they are asked for."""

_PLANNED = 100_000
"""Iterations of a trainer that are looked at one by one."""


@frozen
class Part:
    """One line: who takes how much in which part of the run.

    Args:
        part: of the run.
        who: "agents", "judge" (verifier and reward), "policy" or "trainer".
        count: turns of agents, or episodes that are judged.
        exact: whether the count is what will be, unless a turn ends its episode early.
        usage: at most; what is known of it.
        unknown: why there is more that nobody can tell; empty if there is not.
    """

    part: str
    who: str
    count: int = 0
    exact: bool = False
    usage: Usage = NO_USAGE
    unknown: tuple[str, ...] = ()


@frozen
class Forecast:
    """What a run takes at most, part by part, and what that rests on."""

    parts: tuple[Part, ...]
    assumptions: tuple[str, ...] = field(factory=tuple)

    @property
    def total(self) -> Usage:
        """The sum of what is known."""
        return sum((part.usage for part in self.parts), NO_USAGE)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why there is more that nobody can tell, each reason once."""
        return tuple(dict.fromkeys(reason for part in self.parts for reason in part.unknown))

    def against(self, caps: Any) -> dict[str, tuple[float, float, bool | None]]:
        """For each cap of a budget: the cap, what is needed at most, and whether it suffices.

        None where that cannot be told.
        """
        total, found = self.total, {}
        needs: dict[str, float] = {
            "calls": total.calls,
            "tokens": total.tokens,
            "usd": total.usd,
        }
        for name, most in needs.items():
            cap = getattr(caps, name)
            if cap is not None:
                sure = not self.unknown and not isnan(most)
                found[name] = (cap, most, most <= cap if sure else None if most <= cap else False)
        return found

    def each(self) -> Usage:
        """What a single call can take, in the part whose calls can take most."""
        parts = [part.usage for part in self.parts if part.usage.calls]
        if not parts:
            return NO_USAGE
        most = max(parts, key=lambda usage: (usage.usd / usage.calls, usage.tokens / usage.calls))
        return Usage(
            1, ceil(most.tokens / most.calls), 0, most.usd / most.calls, most.cost / most.calls
        )


def forecast(opened: Opened) -> Forecast:
    """What a run of these components takes at most.

    Raises:
        RunError: a component raised when it was asked.
    """
    return _Forecaster(opened).all()


@frozen
class _Said:
    """A component as it is asked for its ceiling: its runtime, or else its settings."""

    runtime: Any
    component: Any
    place: str

    def ceiling(self, tokens: int) -> Usage | None:
        with calling(self.place, "ceiling"):
            found = ceiling_of(self.runtime, tokens)
            return found if found is not None else ceiling_of(self.component, tokens)


class _Forecaster:
    def __init__(self, opened: Opened) -> None:
        self.opened, self.config = opened, opened.config
        self.turns = self.config.limits.turns
        task, place = opened.runtimes["task"], place_of(self.config, "task")
        most = self.config.run.problems
        splits = {split: problems_of(task, split, place) for split in get_args(Split)}
        self.sizes: dict[Split, int] = {
            split: len(found) if most is None else min(most, len(found))
            for split, found in splits.items()
        }
        self.tokens = max(
            (
                tokens_of(problem)
                for split, found in splits.items()
                for problem in islice(found, min(_LOOKED_AT, self.sizes[split]))
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
        for name, one in evaluation.baselines.items():
            agents = one.agents or config.roster
            if one.trainer is not None:
                parts += self._training(f"training of {name}", one.trainer, one.policy, agents)
            trained = one.trainer is not None
            parts += self._evaluation(f"evaluation of {name}", one.policy, agents, trained)
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
        taken, end, reasons = self._episode(agents, route)
        usage = NO_USAGE
        if taken and plan.forked:
            usage = times(taken[-1], plan.activations)
        elif taken:
            whole, rest = divmod(plan.activations, len(taken))
            usage = times(sum(taken, NO_USAGE), whole) + sum(taken[:rest], NO_USAGE)
        acting = Part(part, "agents", plan.activations, plan.exact, usage, (*unknown, *reasons))
        own = Part(part, "trainer", 0, plan.exact, *self._own(plan, place, end, unknown))
        judge = self._judge(part, plan.verdicts, plan.scores, plan.exact, end)
        judge = evolve(judge, unknown=(*unknown, *judge.unknown))
        count = 0 if plan.forked else plan.activations + plan.verdicts
        return [acting, judge, own, *self._preparing(part, policy, count, end)]

    def _own(
        self, plan: Plan, place: str, end: int, unknown: tuple[str, ...]
    ) -> tuple[Usage, tuple[str, ...]]:
        """What a trainer's own calls take, and what is not known of that."""
        usage = plan.usage
        for reader, count in plan.readings:
            with calling(place, f"ceiling of {type(reader).__name__}"):
                one = ceiling_of(reader, end)
            if one is None:
                reason = f"{place}: {type(reader).__name__} does not say what it takes"
                unknown = (*unknown, reason)
            else:
                usage += times(one, count)
        return usage, unknown

    def _plan(self, trainer: Any, path: str, place: str) -> tuple[Plan, tuple[str, ...]]:
        """All iterations of a trainer together."""
        count, most = iterations_of(trainer, place), self.config.run.iterations
        count = count if most is None else min(count, most)
        say = getattr(trainer, "plan", None)
        if count > _PLANNED:
            return Plan(forked=False), (f"{place} has {count:,} iterations: too many to look at",)
        total = Plan(exact=True, forked=False)
        for i in range(count):
            with calling(place, f"plan({i})"):
                one: Plan | None = None if say is None else say(i, dict(self.sizes), self.turns)
            if one is None:
                return Plan(forked=False), (f"{place} does not say what an iteration takes",)
            total = Plan(
                total.activations + one.activations,
                total.verdicts + one.verdicts,
                total.scores + one.scores,
                total.usage + one.usage,
                total.exact and one.exact,
                total.forked or one.forked,
                max(total.turns, one.turns),
                (*total.readings, *one.readings),
            )
        return total, ()

    def _evaluation(
        self, part: str, policy: str, agents: Sequence[str], trained: bool
    ) -> list[Part]:
        evaluation = self.config.evaluation
        most = self.sizes[evaluation.split]
        episodes = min(most, evaluation.episodes or most) * evaluation.seeds
        names = tuple(map(_name, agents))
        # What a policy does once it is trained, it cannot say yet.
        asked = None if trained else self.opened.runtimes[policy]
        with calling(place_of(self.config, policy), "route"):
            route = route_of(asked, names, self.turns)
        taken, end, unknown = self._episode(agents, route)
        exact = route is not None and all(len(one) == 1 for one in route)
        count = episodes * len(route or ())
        usage = times(sum(taken, NO_USAGE), episodes)
        acting = Part(part, "agents", count, exact, usage, unknown)
        deciding = self._preparing(part, policy, count + episodes, end)
        return [acting, self._judge(part, episodes, 0, True, end), *deciding]

    def _preparing(self, part: str, policy: str, decisions: int, end: int) -> list[Part]:
        """What a policy gets from the outside before its decisions."""
        runtime = self.opened.runtimes[policy]
        if not getattr(runtime, "prepares", False):
            return []
        usage, place = self._said(policy).ceiling(end), place_of(self.config, policy)
        if usage is None:
            unknown = (f"{place} does not say what preparing a decision takes",)
            return [Part(part, "policy", decisions, False, NO_USAGE, unknown)]
        return [Part(part, "policy", decisions, False, times(usage, decisions), ())]

    def _judge(self, part: str, verdicts: int, scores: int, exact: bool, end: int) -> Part:
        usage, unknown = NO_USAGE, []
        counts = {"task": verdicts + scores, "reward": verdicts}
        for path, count in counts.items():
            if count and path in self.opened.runtimes:
                one = self._said(path).ceiling(end)
                if one is None:
                    unknown.append(f"{place_of(self.config, path)} does not say what it takes")
                else:
                    usage += times(one, count)
        return Part(part, "judge", verdicts + scores, exact, usage, tuple(unknown))

    # ------------------------------------------------------------------ episodes

    def _said(self, path: str) -> _Said:
        entry = self.config.components[path]
        component = entry.wired(self.opened.runtimes)
        return _Said(self.opened.runtimes[path], component, place_of(self.config, path))

    def _episode(
        self, agents: Sequence[str], route: Sequence[Any] | None
    ) -> tuple[list[Usage], int, tuple[str, ...]]:
        """What each turn of an episode takes, what there is to read at its end, what is unknown."""
        team: Mapping[str, _Said] = {_name(path): self._said(path) for path in agents}
        silent = [one.place for one in team.values() if one.ceiling(self.tokens) is None]
        reasons = [f"{place} does not say what a turn takes" for place in silent]
        if route is None:
            free = not silent and all(one.ceiling(self.tokens) == NO_USAGE for one in team.values())
            if not free:
                reasons.append("limits.turns is not set, so that nothing bounds an episode")
            return [], self.tokens, tuple(reasons)
        found = None if silent else reading(team, route, self.tokens, self.tokens)
        if found is None:
            return [], self.tokens, tuple(reasons)
        return found[0], found[1], ()


def tokens_of(problem: Problem) -> int:
    """A bound of the tokens that the public part of a problem has."""
    text = problem.text.encode(errors="surrogatepass")
    return len(text) + (0 if problem.data is None else len(encode(problem.data)))


def _name(path: str) -> str:
    return path.partition(".")[2]
