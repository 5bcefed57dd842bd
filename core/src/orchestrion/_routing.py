"""Decide with a trained policy alone, inside somebody else's loop."""

from __future__ import annotations

import asyncio
import threading
import warnings
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from itertools import count
from math import exp
from pathlib import Path
from typing import Any

from attrs import field, frozen

from orchestrion._activations import END
from orchestrion._choices import choice_name
from orchestrion._conversation import problem_and_turns
from orchestrion._engine.checks import (
    check_decision,
    first_step,
    has_steps,
    next_step,
    text_problem,
)
from orchestrion._engine.opening import load_states, open_routing
from orchestrion._errors import UsageError
from orchestrion._guards import calling, place_of
from orchestrion._interfaces import Situation
from orchestrion._keys import Key
from orchestrion._records import Decision, Problem, Step, Trajectory, Turn, Usage, replace
from orchestrion._report import own_name
from orchestrion._store import RunReader
from orchestrion._store.conduct import mean_costs
from orchestrion._trained import doubt, find


@frozen
class Route:
    """One decision of a router.

    Args:
        agent: who acts next; the router's `end` if nobody does.
        option: of the agent, if it has options.
        decision: the policy's own record.
        situation: what it decided on.
        forced: whether the task, a limit or an agent ended it, and the policy was not asked.
    """

    agent: str
    option: str | None
    decision: Decision
    situation: Situation = field(repr=False)
    _policy: Any = field(repr=False)
    _end: str = field(repr=False)
    forced: bool = False

    @property
    def probabilities(self) -> Mapping[str, float] | None:
        """Return the probability of each choice ("agent" or "agent:option"); None if not stated."""
        stated = getattr(self._policy, "probabilities", None)
        if not callable(stated):
            return None
        names = [self._end if c is None else choice_name(c) for c in self._policy.choices]
        return dict(zip(names, map(float, stated([self.situation])[0]), strict=True))

    @property
    def propensity(self) -> float | None:
        """Return the probability with which the policy chose this; None if it is not stated."""
        if self.decision.logp is not None:
            return exp(self.decision.logp)
        if (stated := self.probabilities) is None:
            return None
        start = self.decision.start
        return stated.get(choice_name(start[0]) if start else self._end)


class Router:
    """Says which agent is next: `name = route(messages)`. Nothing else of a team is run.

    It can be called with one argument, as a conditional edge of LangGraph is, and from several
    threads.

    Attributes:
        agents: names of the team, in the config's order.
    """

    def __init__(self, target: str | Path, overrides: Sequence[str], end: str) -> None:
        trained = find(target, overrides)
        config, checkpoint = trained.config, trained.checkpoint
        if checkpoint is not None and checkpoint.overlay:
            config = config.with_overlay(dict(checkpoint.overlay))
        self._config = config
        stack = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        # Components may hold what belongs to the loop, so it lives as long as they.
        self._finalizer = weakref.finalize(self, _close, self._loop, stack)
        try:
            opened = _run(self._loop, open_routing(config, stack))
            if checkpoint is not None:
                load_states(opened, checkpoint.components)
            self._policy, self._task = opened.runtimes["policy"], opened.runtimes["task"]
            self._place = place_of(config, "policy")
            if getattr(self._policy, "prepares", False):
                raise UsageError(
                    f"{self._place}: makes calls before it decides, which a router cannot; use "
                    "`orchestrion.load`"
                )
            roster = opened.roster()
        except BaseException:
            self.close()
            raise
        self.agents = tuple(member.name for member in roster)
        self._ends = {member.name for member in roster if member.ends}
        self._turns, self._end = config.limits.turns, end
        self._categories, self._doubted = trained.categories, False
        self._costs, self._unknown_costs = dict[str, float](), False
        if trained.directory is not None:
            with RunReader(trained.directory) as run:
                self._costs = mean_costs(run, own_name(config))
                spent = run.usage_by_source().values()
            self._unknown_costs = not self._costs and any(usage.cost for usage in spent)
        self._key, self._numbers = Key(config.seed).child("route"), count()
        self._lock = threading.Lock()

    def __call__(self, state: Any) -> str:
        """Return the name of the agent that is next, or `end`; see `decide`."""
        return self.decide(state).agent

    def decide(
        self,
        state: Any,
        turns: Sequence[Turn] = (),
        key: Key | None = None,
        *,
        category: str = "",
    ) -> Route:
        """Return the decision on a conversation.

        Args:
            state: the problem as text, or messages, or a mapping or an object with `messages`: the
                last message of the user is the problem; later ones are turns by agent `name`.
            turns: further ones, for what messages cannot hold, such as data and usage. Turns of
                messages count with the mean cost that their agent's turns had in the run.
            key: the randomness of the decision; None for one that only this decision has.
            category: of the problem, as those that the policy learned from have one.

        Raises:
            UsageError: the messages cannot be read, or the decision is none for a router.
            RunError: the policy or the task broke its contract.
        """
        text, said = problem_and_turns(state, self.agents)
        past = [self._with_cost(turn) for turn in said]
        if past and self._unknown_costs:
            self._unknown_costs = False
            warnings.warn(
                "the policy may read what turns cost, which messages do not say, and the run kept "
                "no turns to estimate it from: give `decide(text, turns)` turns with their usage",
                stacklevel=2,
            )
        for turn in turns:
            if turn.agent not in self.agents:
                raise UsageError(f"a turn is by {turn.agent!r:.80}, which is not in the team")
            past.append(replace(turn, index=len(past), decision=len(past)))
        problem = text_problem(self._task, text, place_of(self._config, "task"), category)
        if not self._doubted and (reason := doubt(problem, self._categories)):
            self._doubted = True
            advice = "" if category else ": give `decide(..., category=...)`"
            warnings.warn(reason + advice, stacklevel=2)
        key = key or self._key.child(next(self._numbers))
        with self._lock:
            return self._decided(problem, past, key)

    def close(self) -> None:
        """Close the components, which else happens when the router is not used any more."""
        self._finalizer()

    def _with_cost(self, turn: Turn) -> Turn:
        """Return a turn of a message with what its agent's turns cost in the run on average."""
        cost = self._costs.get(turn.agent, 0.0)
        return replace(turn, output=replace(turn.output, usage=Usage(cost=cost)))

    def _decided(self, problem: Problem, turns: Sequence[Turn], key: Key) -> Route:
        trajectory = Trajectory(turns)
        step = self._step(problem, turns)
        turns_left = None if self._turns is None else max(0, self._turns - len(turns))
        situation = Situation(problem.public(), trajectory, step.observation, (), turns_left)
        if step.done or turns_left == 0 or (turns and turns[-1].agent in self._ends):
            # Here the loop of an episode ends without asking the policy.
            return self._route(Decision(stop=True, logp=0.0), situation, forced=True)
        with calling(self._place, "decide()"):
            [decision] = self._policy.decide([situation], [key])
        check_decision(decision, self._place)
        if decision.error:
            raise UsageError(f"{self._place}: cannot decide here: {decision.error}")
        return self._route(decision, situation)

    def _step(self, problem: Problem, turns: Sequence[Turn]) -> Step:
        """Return the task's environment after the turns."""
        task, place = self._task, place_of(self._config, "task")
        key = self._key.child("problem", problem.text)
        step = first_step(task, problem, key, place)
        for turn in turns if has_steps(task) else ():
            step = next_step(task, step.state, turn, key, place)
        return step

    def _route(self, decision: Decision, situation: Situation, forced: bool = False) -> Route:
        agent, option = self._end, None
        if decision.start:
            first = decision.start[0]
            agent, option = first.agent, first.option
            if len(decision.start) > 1 or first.index is not None:
                raise UsageError(
                    f"{self._place}: starts agents side by side, and a router names one after the "
                    "other; use `orchestrion.load`"
                )
        return Route(agent, option, decision, situation, self._policy, self._end, forced)


def router(target: str | Path, overrides: Sequence[str] = (), *, end: str = END) -> Router:
    """Return what decides as a run's policy does, for a loop of your own.

    No agent or model is opened for work, so that no key of theirs is needed. Blocks until the
    policy is open, also within a running event loop.

    Args:
        target: a run's folder, its name below `runs/`, or a config file.
        overrides: as `-o`.
        end: what to return when nobody is next, e.g. `langgraph.graph.END`.

    Raises:
        UsageError: there is no such run, or its policy makes calls of its own.
    """
    return Router(target, overrides, end)


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of work on a loop, whether or not this thread runs another one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return loop.run_until_complete(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(loop.run_until_complete, work).result()


def _close(loop: asyncio.AbstractEventLoop, stack: AsyncExitStack) -> None:
    _run(loop, stack.aclose())
    loop.close()
