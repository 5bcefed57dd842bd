"""Run episodes from start to reward; extend and judge unfinished ones for trainers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from attrs import evolve

from orchestrion._engine.activation import EpisodeContext, act
from orchestrion._engine.batch import DecisionBatcher
from orchestrion._engine.calls import ActivationCalls, Host, RunEpisode
from orchestrion._engine.checks import first_step, judged
from orchestrion._engine.deadline import result_of
from orchestrion._engine.loop import Loop
from orchestrion._engine.recording import Facts, Failure
from orchestrion._engine.team import member_of, seats_of
from orchestrion._errors import RunError
from orchestrion._events import WHERE
from orchestrion._guards import FATAL, describe, note_line, raise_named
from orchestrion._interfaces import Agent, Branch, Policy, View
from orchestrion._interrupts import from_outside
from orchestrion._keys import Key
from orchestrion._records import (
    Activation,
    Decision,
    Episode,
    Output,
    Problem,
    Scores,
    Status,
    Step,
    Trajectory,
    Turn,
    replace,
)


def computed(function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield what a function returns for each item.

    A generator makes another error of StopIteration, which no future takes: whoever awaits a
    thread that raised it would wait for ever.
    """
    for item in items:
        yield function(*item)


class Engine(Host):
    """Run episodes of one team; the module `orchestrion._interfaces` has the loop in words.

    `timeout` limits one activation, in seconds; None means no limit.
    """

    def batcher(self, policy: Policy) -> DecisionBatcher:
        """Return the batcher of a policy; all its episodes share it."""
        if id(policy) not in self._batchers:
            batcher = DecisionBatcher(policy, self.place(policy, "policy"))
            self._batchers[id(policy)] = batcher
        return self._batchers[id(policy)]

    async def run(
        self,
        name: str,
        problem: Problem,
        key: Key,
        policy: Policy | None = None,
        training: bool = False,
    ) -> Episode:
        """Run one episode from start to reward."""
        self.unfinished += 1
        self.idle.clear()
        where = WHERE.set({**WHERE.get(), "episode": name})
        try:
            step = self.first_step(problem, key)
            loop = Loop(self._context(name, problem, key), name, step, training, self.limits)
            self.active += 1
            try:
                await loop.run(self.batcher(policy or self.team.policy))
            finally:
                self.active -= 1
            episode = await self.judge(loop.episode(), problem, loop.step.state, key)
        finally:
            WHERE.reset(where)
            self.unfinished -= 1
            if not self.unfinished:
                self.idle.set()
        if self.observers.episode_finished is not None:
            self.observers.episode_finished(episode)
        return episode

    def runner(self) -> AbstractAsyncContextManager[RunEpisode]:
        """Open the function to run episodes with: `run`, or one like it in other processes."""
        return nullcontext(self.run) if self.elsewhere is None else self.elsewhere()

    def cancelled_within(self, name: str) -> RunError:
        """Return the error of an episode that was cancelled, and not from outside."""
        agents = self.cut_off.get(name) or "no agent"
        return RunError(
            f"episode {name} was cancelled from within, in or after a turn of {agents}: an agent "
            "must not cancel the task it runs in"
        )

    async def act(self, agent: str, view: View, key: Key, label: str | None = None) -> Turn:
        """Return the turn of one agent of the team on a view that comes from elsewhere.

        Whatever the agent raises makes it a failed turn. It is part of no episode, and `key` is
        the agent's own. `label` is the agent's for the `viewer`.
        """
        handle = ActivationCalls(self, key, "", agent, label)
        try:
            output = await act(self, self.seats[agent], view, key, handle, self.timeout)
        except FATAL:
            raise
        except BaseException as error:
            if from_outside(error):
                raise
            note_line(error, type(self.seats[agent].agent))
            failed = Output(usage=handle.used)
            return Turn(0, agent, view.option, failed, "failed", describe(error, self.timeout))
        return Turn(0, agent, view.option, output)

    def _context(self, episode: str, problem: Problem, key: Key) -> EpisodeContext:
        return EpisodeContext(self, problem.public(), key, self.seats, self.team.roster, episode)

    def first_step(self, problem: Problem, key: Key) -> Step:
        task = self.team.task
        return first_step(task, problem, key, self.place(task, "task"))

    async def verify(self, branch: Branch, *, final: bool) -> Scores:
        """Return the verifier's scores of a branch, which may be unfinished."""
        key = branch.key.child("score", int(final))
        handle = ActivationCalls(self, key, who="verifier")
        task = self.team.task
        try:
            return await task.verify(
                branch.problem, branch.trajectory, branch.step.state, final=final, calls=handle
            )
        except Exception as error:
            raise_named(self.place(task, "task"), "verify()", error)

    async def judge(self, episode: Episode, problem: Problem, state: Any, key: Key) -> Episode:
        """Return the episode with scores and reward.

        If the verifier fails, the episode fails. If the reward function fails, the scores stay,
        the reward is None, and `error` says why.
        """
        made = list(episode.calls)
        episode = await self._judge(episode, problem, state, key, made)
        return replace(episode, calls=tuple(made)) if made else episode

    async def _judge(
        self, episode: Episode, problem: Problem, state: Any, key: Key, made: list[str]
    ) -> Episode:
        task, function = self.team.task, self.team.reward
        child = key.child("verify")
        handle = ActivationCalls(self, child, who="verifier", made=made)
        failure = self.calls.late(episode.id, child)
        if failure is None:
            try:
                scores = await self._result(
                    task.verify(problem, episode.trajectory, state, final=True, calls=handle),
                    self.place(task, "the verifier of"),
                )
                episode = judged(episode, scores)
            except BaseException as error:
                failure = await self._failed(error, episode.id, child, "verifier", task)
        if failure is not None:
            place = self.places.get(id(task))
            by = f" by {place}" if place else ""
            message = f"verifying{by}: {failure.message}"
            self.count_failure("verifier", message)
            return replace(episode, status=Status.FAILED, error=message, scores=None, reward=None)
        if function is None:
            return episode
        child = key.child("reward")
        handle = ActivationCalls(self, child, who="reward", made=made)
        failure = self.calls.late(episode.id, child)
        who = self.place(function, "reward function")
        if failure is None:
            try:
                reward = await self._result(function.score(episode, handle), who)
                return judged(episode, scores, reward, self.seats)
            except BaseException as error:
                failure = await self._failed(error, episode.id, child, "reward", function)
        self.count_failure(who, failure.message)
        return replace(episode, error=episode.error or f"{who}: {failure.message}")

    async def _result(self, work: Coroutine[Any, Any, Any], who: str) -> Any:
        """Return the result of a verifier or reward function, within the time limit of a turn."""
        return await result_of(work, self.timeout, who)

    async def _failed(
        self, error: BaseException, episode: str, key: Key, who: str, component: Any
    ) -> Failure:
        """Return the failure of a verifier or reward function; record it if it was late.

        Raises:
            BaseException: the error is the run's own, or the user's interrupt.
        """
        if isinstance(error, FATAL) or from_outside(error):
            raise error
        note_line(error, type(component))
        failure = Failure(describe(error, self.timeout))
        if isinstance(error, TimeoutError):
            facts = Facts(who=who, stage=self.stage)
            await self.calls.record_late(episode, key, failure, facts)
        return failure

    async def extend(
        self, name: str, branch: Branch, activations: tuple[Activation, ...], key: Key
    ) -> Branch:
        """Return a branch after these activations, which run in parallel."""
        loop = Loop(
            self._context(name, branch.problem, key),
            name,
            branch.step,
            training=True,
            trajectory=branch.trajectory,
            started=1 + max((turn.index for turn in branch.trajectory.turns), default=-1),
            decisions=[Decision(activations)],
        )
        await loop.start(activations)
        return Branch(branch.problem, loop.trajectory, loop.step, key)

    async def nested(
        self,
        caller: ActivationCalls,
        view: View,
        key: Key,
        members: Mapping[str, Agent],
        policy: Policy,
        turns: int | None,
    ) -> tuple[Trajectory, str]:
        context = EpisodeContext(
            self,
            view.problem.public(),
            key,
            seats_of(members),
            tuple(member_of(name, agent) for name, agent in members.items()),
            caller.episode,
            given=view.turns,
            who=f"{caller.who or view.agent}/",
            label=f"{caller.label} > " if caller.label else "",
        )
        limits = evolve(self.limits, turns=turns or self.limits.turns)
        step = Step(None, view.observation)
        loop = Loop(context, view.agent, step, False, limits, nested=True)
        self.active += 1
        try:
            await loop.run(self.batcher(policy))
        finally:
            self.active -= 1
        return loop.trajectory, loop.error
