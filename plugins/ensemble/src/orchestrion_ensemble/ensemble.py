"""The agent `ensemble`: a nested team whose members answer alone; an aggregator combines them.

Also the policy inside it, `FanOut`, and the aggregator `mixture` (mixture of agents, Wang et al.
2024), whose integrator acts last in the nested team.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, cast

from attrs import evolve, frozen

from orchestrion import (
    JSON,
    Activation,
    Agent,
    Calls,
    Decision,
    Key,
    Member,
    Meta,
    OpenContext,
    Output,
    Policy,
    Problem,
    Situation,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    View,
    ceiling_of,
    choice_name,
    choices,
    in_thread,
    learnable,
    note_line,
    replace,
)
from orchestrion_ensemble.answers import Reading, result_to
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result
from orchestrion_ensemble.votes import Plurality

Count = Annotated[int, Meta(ge=1)]


@frozen(kw_only=True)
class Ensemble(Reading):
    """Asks all members at once, each on its own, and makes one result of their answers.

    Members leave the outer team; one with options votes once with each. Their cost is booked once,
    on this agent's turn. A member that fails has no vote, and neither ends nor delays the others;
    a member's final turn ends nothing.

    The turn's content is the answer in the words of its first voter, empty without an answer. Its
    data is the result: `status` (`winner`, `tie`, `no_consensus`), `answer`, `leaders`, `rule`,
    `scores`, `coverage`, `notes`, and `ballots`.

    Args:
        members: the agents to ask; one that is named twice is asked twice.
        aggregator: what makes one result of the answers; by default `plurality`.
        samples: number of times each member is asked, each with its own random key.
        min_votes: with fewer answers there is no consensus.
        early_stop: stop asking once no further answer can change the result; members that still
            run are cancelled. Learnable so that trainers can ask everybody.
        at_once: number of members that run at the same time; null means all. With `early_stop`, 1
            asks one after the other and saves most calls.
        timeout: seconds after which a member has failed; keep it below `run.timeout`.
        on_no_consensus: without an answer, return an `empty` turn with the result, or `fail`.
        final: end the outer episode after this agent's turn.
    """

    members: Annotated[list[Agent], Meta(min_length=1)]
    aggregator: Aggregator | None = None
    samples: Count = 1
    min_votes: Count = 1
    early_stop: bool = learnable(False)
    at_once: Count | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = 120.0
    on_no_consensus: Literal["empty", "fail"] = "empty"
    final: bool = False

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Yield the runtime, which knows the members' names.

        Raises:
            UsageError: settings ask for more ballots than there are, or name unknown voters.
        """
        path = next(iter(ctx.names.get("aggregator", ())), "")
        team = OpenEnsemble(self, ctx.names.get("members", ()), path)
        voters = [choice_name(activation) for activation in team.policy.plan]
        if self.min_votes > len(voters):
            raise UsageError(
                f"{ctx.path}.min_votes: is {self.min_votes}, but there are {len(voters)} ballots"
            )
        try:
            team.aggregator.check(voters)
        except ValueError as error:
            raise UsageError(f"{ctx.path}.aggregator: {error}") from None
        yield team


class OpenEnsemble(Agent):
    """An ensemble whose members are open; `path` is that of its aggregator in the config, if any.

    Raises:
        UsageError: there are no members.
    """

    def __init__(self, settings: Ensemble, names: Sequence[str], path: str = "") -> None:
        if not settings.members:
            raise UsageError("an ensemble needs at least one member")
        self.settings, self.path = settings, path
        self.aggregator: Aggregator = settings.aggregator or Plurality()
        team = dict(zip(names, settings.members, strict=True))
        plan = _plan(names, team, settings.samples, settings.timeout)
        self._notes = _correlations(plan, team)
        self._agents: dict[str, Agent] = {
            name: cast(Agent, _Voter(agent)) for name, agent in team.items()
        }
        self._reader: Activation | None = None
        if (reader := self.aggregator.reader()) is not None:
            name, agent = reader
            # Not wrapped: the reader acts last, so its final turn may end the inner team.
            self._agents.setdefault(name, agent)
            self._reader = Activation(name, timeout=settings.timeout, index=len(plan))
        self.policy = FanOut(plan, self._reader, self.aggregator, settings)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Run the inner team and combine its answers."""
        plan = self.policy.plan
        inner = await calls.team(view, key, self._agents, self.policy, len(plan) + 2)
        ballots = [
            ballot or Ballot(choice_name(activation), "cancelled")
            for activation, ballot in zip(plan, self.policy.ballots(inner), strict=True)
        ]
        result, text = self._result(ballots, inner, view.problem, key)
        if result.answer is None and self.settings.on_no_consensus == "fail":
            scores = ", ".join(f"{answer}: {score:g}" for answer, score in result.scores.items())
            raise RuntimeError(f"{result.status}: {scores or 'nobody gave an answer'}")
        return Output(
            content=text,
            data=result_to(result, ballots),
            final=self.settings.final,
            metadata={"aggregator": self.path} if self.path else {},
            inner=inner,
        )

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the bounds of all members, each on its own, and of the reader of all of them."""
        bounds = [ceiling_of(self._agents[member.agent], tokens) for member in self.policy.plan]
        if self._reader is not None:
            # A member without a bound on its output is taken to write as much as it reads.
            written = sum((bound.output_tokens or tokens) for bound in bounds if bound is not None)
            bounds.append(ceiling_of(self._agents[self._reader.agent], tokens + written))
        finite = [bound for bound in bounds if bound is not None]
        return None if len(finite) < len(bounds) else sum(finite, Usage())

    def _result(
        self, ballots: Sequence[Ballot], inner: Trajectory, problem: Problem, key: Key
    ) -> tuple[Result, str]:
        """Return the result, and its answer in the words of the reader or of its first voter."""
        cast_count = sum(ballot.status == "cast" for ballot in ballots)
        written = self._written(inner)
        if cast_count < self.settings.min_votes:
            note = f"{cast_count} of {len(ballots)} answered; {self.settings.min_votes} are needed"
            result, text = Result("no_consensus", used=cast_count, notes=(note,)), ""
        elif written is not None:
            turn, answer = written
            result = Result("winner", answer, (answer,), f"written by {turn.agent}")
            text = turn.output.content or answer
        else:
            result = self.aggregator.combine(ballots, problem, key.child("combine"))
            answer = result.answer or ""
            voters = (b.text for b in ballots if b.vote is not None and b.vote == result.answer)
            text = next(voters, answer)
        if self._reader is not None:
            result = evolve(result, used=cast_count)
        notes = (*result.notes, *self._notes)
        if len(ballots) == 1:
            notes = (*notes, "one member: its answer is passed through")
        return evolve(result, coverage=result.used / len(ballots), notes=notes), text

    def _written(self, inner: Trajectory) -> tuple[Turn, str] | None:
        """Return the reader's turn and its answer; None without a reader or if it failed."""
        if self._reader is None:
            return None
        turn = next((turn for turn in inner if turn.index == self._reader.index), None)
        answer = None if turn is None else self.settings.ballot(turn.agent, turn).vote
        return None if turn is None or answer is None else (turn, answer)


def _plan(
    names: Sequence[str], team: Mapping[str, Agent], samples: int, timeout: float | None
) -> tuple[Activation, ...]:
    roster = [Member(name, tuple(getattr(team[name], "options", ()))) for name in names]
    voters = [choice for choice in choices(roster) for _ in range(samples)]
    return tuple(replace(v, reads=(), timeout=timeout, index=i) for i, v in enumerate(voters))


def _correlations(plan: Sequence[Activation], team: Mapping[str, Agent]) -> tuple[str, ...]:
    """Return notes on members whose mistakes are likely to be the same."""
    times = Counter(map(choice_name, plan))
    notes = [f"correlated: {name} is asked {n} times" for name, n in times.items() if n > 1]
    users: dict[int, list[str]] = {}
    for name, agent in team.items():
        model = getattr(agent, "model", None)
        # A shared runtime; equal names of models in settings need not mean the same model.
        if model is not None and not isinstance(model, str):
            users.setdefault(id(model), []).append(name)
    notes += [
        f"correlated: {', '.join(m)} use the same model" for m in users.values() if len(m) > 1
    ]
    return tuple(notes)


# ------------------------------------------------------------------ members


class _Voter:
    """Passes on what the engine asks of a member, except what only an outer team may see."""

    ends, role = False, ""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        act: Any = self._agent.act
        try:
            if inspect.iscoroutinefunction(act):
                output = await act(view, key, calls)
            else:
                output = await in_thread(act, view, key, calls)
                if inspect.isawaitable(output):
                    output = await output
        except Exception as error:
            note_line(error, type(self._agent))
            raise
        # The engine refuses anything that is not an Output.
        if getattr(output, "final", False) is True:
            output = replace(output, final=False)
        return cast(Output, output)


# ------------------------------------------------------------------ the policy inside


@frozen
class FanOut(Policy):
    """Starts `plan`, all at once or `at_once` at a time; no member reads another one's answer.

    The plan has one activation for each ballot, with its index. After the vote the reader, if
    there is one, reads all answers.
    """

    plan: tuple[Activation, ...]
    reader: Activation | None
    aggregator: Aggregator
    settings: Ensemble

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return what each ensemble does next."""
        return [self._decide(situation) for situation in situations]

    def _decide(self, situation: Situation) -> Decision:
        done = {turn.index for turn in situation.trajectory}
        running = {activation.index for activation in situation.running}
        missing = [member for member in self.plan if member.index not in done]
        todo = [member for member in missing if member.index not in running]
        room = len(todo) if self.settings.at_once is None else self.settings.at_once - len(running)
        if not done and not running and not self.settings.early_stop and len(todo) <= room:
            return Decision(tuple(todo))  # in one wave: nothing is decided before all are done
        if missing and not (self.settings.early_stop and self._settled(situation, missing)):
            return self._start(todo[:room])
        if self.reader is None or self.reader.index in done:
            return Decision(stop=True)
        if self.reader.index in running:
            return self._start()
        answered = sum(b.status == "cast" for b in self.ballots(situation.trajectory) if b)
        if answered < self.settings.min_votes:
            return Decision(stop=True)
        return self._start([self.reader])

    def _start(self, activations: Sequence[Activation] = ()) -> Decision:
        """Start these, and decide again when the next activation finishes."""
        # Who answers before the vote is settled depends on the order of arrival: record it.
        arrival = self.settings.early_stop and self.settings.at_once != 1
        return Decision(tuple(activations), wait="each", arrival=arrival)

    def ballots(self, trajectory: Trajectory) -> list[Ballot | None]:
        """Return a ballot for each activation of the plan, None if it is not finished."""
        turns = {turn.index: turn for turn in trajectory}
        return [
            self.settings.ballot(choice_name(member), turns[index])
            if (index := member.index) is not None and index in turns
            else None
            for member in self.plan
        ]

    def _settled(self, situation: Situation, missing: Sequence[Activation]) -> bool:
        in_order = self.ballots(situation.trajectory)
        ballots = [ballot for ballot in in_order if ballot is not None]
        if sum(ballot.status == "cast" for ballot in ballots) < self.settings.min_votes:
            return False
        if not self.aggregator.settled(ballots, [choice_name(member) for member in missing]):
            return False
        # A settled vote has one leader, so the key is not used.
        answer = self.aggregator.combine(ballots, situation.problem, Key(0)).answer
        # The text is that of the first voter in member order. It must be known as well, or the
        # order of arrival would choose between spellings.
        arrived = in_order[: in_order.index(None)] if None in in_order else in_order
        return answer is None or any(b is not None and b.vote == answer for b in arrived)


# ------------------------------------------------------------------ mixture of agents


@frozen
class Mixture:
    """Mixture of agents (Wang et al. 2024): the integrator reads the answers of all members.

    It is a member of the inner team that acts last, so its turn, its cost and its failures are
    recorded like theirs. If it fails or gives no answer, `fallback` decides on the answers.

    Args:
        integrator: the agent; it leaves the outer team.
        fallback: what decides without it; by default `plurality`.
    """

    integrator: Agent
    fallback: Aggregator | None = None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Aggregator]:
        """Yield the runtime, which knows the integrator's name."""
        [name] = ctx.names["integrator"]
        if getattr(self.integrator, "options", ()):
            raise UsageError(f"{ctx.path}.integrator: {name} has options; use an agent without")
        yield _OpenMixture(name, self.integrator, self.fallback or Plurality())


@frozen
class _OpenMixture(Aggregator):
    name: str
    integrator: Agent
    fallback: Aggregator

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        result = self.fallback.combine(ballots, problem, key)
        note = f"{self.name} gave no answer: decided by the fallback"
        return evolve(result, notes=(*result.notes, note))

    def check(self, voters: Sequence[str]) -> None:
        self.fallback.check(voters)

    def reader(self) -> tuple[str, Agent]:
        return self.name, self.integrator

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        raise UsageError("a mixture has no weights to learn; train its agents instead")
