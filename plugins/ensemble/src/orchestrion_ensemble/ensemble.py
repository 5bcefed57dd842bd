"""The agent `ensemble`: a nested team that answers together."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from attrs import evolve, frozen

from orchestrion import (
    Activation,
    Agent,
    Calls,
    Key,
    Member,
    Meta,
    OpenContext,
    Output,
    Trajectory,
    Usage,
    UsageError,
    View,
    ceiling_of,
    choice_name,
    choices,
    learnable,
)
from orchestrion_ensemble.answers import Normal, Reading
from orchestrion_ensemble.ballots import result_to
from orchestrion_ensemble.fan_out import FanOut
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Result
from orchestrion_ensemble.votes import Plurality

__all__ = ["Ensemble", "OpenEnsemble"]

Count = Annotated[int, Meta(ge=1)]


@frozen
class Ensemble:
    """Asks all members at once, each on its own, and makes one result of what they say.

    Members leave the outer team; one with options has a vote for each. What they cost is booked
    once, on this agent's turn. A member that fails has no vote, and neither ends nor delays the
    others; a member's final turn ends nothing.

    The turn's content is the answer as its first voter said it, empty without one. Its data is the
    typed result: `status` (`winner`, `tie`, `no_consensus`), `answer`, `leaders`, `rule`, `scores`,
    `coverage`, `notes`, and `ballots`.

    Args:
        members: who is asked; one that is named twice is asked twice.
        aggregator: what makes one result of the answers; by default `plurality`.
        samples: how often each member is asked, with draws of its own.
        min_votes: with fewer answers there is no consensus.
        early_stop: stop asking once the rest cannot change the answer; what runs is cancelled.
            Learnable so that trainers can ask everybody.
        at_once: how many members run at the same time; null means all. With `early_stop`, 1 asks
            one after the other and saves most calls.
        timeout: seconds after which a member has failed; keep it below `run.timeout`.
        normalise: when two answers are the same: `exact`; `text` but for case, white space,
            quotes around and punctuation at the end; `number`, rounded; `choice`, a single word.
        decimals: places that numbers are rounded to.
        choices: the answers there are, for `choice`.
        abstain: answers that decline, e.g. "I don't know".
        renormalise: accept probabilities that do not sum to 1.
        on_no_consensus: without an answer, return an `empty` turn with the typed result, or `fail`.
        final: end the outer episode after this agent's turn.
    """

    members: Annotated[list[Agent], Meta(min_length=1)]
    aggregator: Aggregator | None = None
    samples: Count = 1
    min_votes: Count = 1
    early_stop: bool = learnable(False)
    at_once: Count | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = 120.0
    normalise: Normal = "text"
    decimals: Annotated[int, Meta(ge=0, le=20)] = 6
    choices: tuple[str, ...] = ()
    abstain: tuple[str, ...] = ()
    renormalise: bool = False
    on_no_consensus: Literal["empty", "fail"] = "empty"
    final: bool = False

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Learn the members' names."""
        names = ctx.names.get("members", ())
        path = next(iter(ctx.names.get("aggregator", ())), "")
        yield OpenEnsemble(self, names, path)


class OpenEnsemble(Agent):
    """An ensemble whose members are open.

    Args:
        settings: with the members' runtimes.
        names: of the members, in order.
        path: of the aggregator in the config, where it has one.

    Raises:
        UsageError: there is no member.
    """

    def __init__(self, settings: Ensemble, names: Sequence[str], path: str = "") -> None:
        if not settings.members:
            raise UsageError("an ensemble needs at least one member")
        self.settings, self.path = settings, path
        self.aggregator: Aggregator = settings.aggregator or Plurality()
        self.reading = Reading(
            settings.normalise,
            settings.decimals,
            settings.choices,
            settings.abstain,
            settings.renormalise,
        )
        team = dict(zip(names, settings.members, strict=True))
        plan = _plan(names, team, settings.samples, settings.timeout)
        self._notes = _correlated(plan, team)
        self._agents: dict[str, Agent] = {name: _voter(agent) for name, agent in team.items()}
        reader, self._reader = self.aggregator.reader(), None
        if reader is not None:
            name, agent = reader
            self._agents.setdefault(name, agent)
            # It may stop the inner team: it is the last.
            self._reader = Activation(name, timeout=settings.timeout, index=len(plan))
        self.policy = FanOut(
            plan,
            self._reader,
            self.aggregator,
            self.reading,
            settings.early_stop,
            settings.min_votes,
            settings.at_once,
        )

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Ask all, then combine."""
        turns = len(self.policy.plan) + 2
        inner = await calls.team(view, key, self._agents, self.policy, turns)
        found = self.policy.ballots(inner)
        asked = zip(self.policy.plan, found, strict=True)
        ballots = [one or Ballot(choice_name(activation), "cancelled") for activation, one in asked]
        result = self._result(ballots, inner, view, key)
        if result.answer is None and self.settings.on_no_consensus == "fail":
            raise RuntimeError(f"{result.status}: {_tallied(result) or 'nobody gave an answer'}")
        return Output(
            content=self._text(ballots, result, inner),
            data=result_to(result, ballots),
            final=self.settings.final,
            metadata={"aggregator": self.path} if self.path else {},
            inner=inner,
        )

    def ceiling(self, tokens: int) -> Usage | None:
        """What all members take at most, each on its own; and the reader, who reads them all."""
        asked = [ceiling_of(self._agents[one.agent], tokens) for one in self.policy.plan]
        if self._reader is not None:
            # A tool that does not say how much it writes is taken to write as much as it reads.
            said = sum((one.output_tokens or tokens) for one in asked if one is not None)
            asked.append(ceiling_of(self._agents[self._reader.agent], tokens + said))
        known = [one for one in asked if one is not None]
        return None if len(known) < len(asked) else sum(known, Usage())

    def _result(self, ballots: Sequence[Ballot], inner: Trajectory, view: View, key: Key) -> Result:
        cast = sum(ballot.status == "cast" for ballot in ballots)
        if cast < self.settings.min_votes:
            note = f"{cast} of {len(ballots)} answered, and {self.settings.min_votes} are needed"
            result = Result("no_consensus", used=cast, notes=(note,))
        else:
            result = self._read(inner) or self.aggregator.combine(
                ballots, view.problem, key.child("combine")
            )
            if self._reader is not None:
                result = evolve(result, used=cast)
        notes = (*result.notes, *self._notes)
        if len(ballots) == 1:
            notes = (*notes, "one member: its answer is passed through")
        return evolve(result, coverage=result.used / len(ballots), notes=notes)

    def _read(self, inner: Trajectory) -> Result | None:
        """What the reader made of the answers; None if there is none, or it failed."""
        turn = self._reader_turn(inner)
        if turn is None:
            return None
        ballot = self.reading.ballot(turn.agent, turn)
        if ballot.status != "cast" or ballot.answer is None:
            return None
        return Result("winner", ballot.answer, (ballot.answer,), f"written by {turn.agent}")

    def _reader_turn(self, inner: Trajectory) -> Any:
        if self._reader is None:
            return None
        index = self._reader.index
        return next((t for t in inner if t.index == index and t.status == "completed"), None)

    def _text(self, ballots: Sequence[Ballot], result: Result, inner: Trajectory) -> str:
        """The answer as the reader, or its first voter, said it."""
        if result.answer is None:
            return ""
        turn = self._reader_turn(inner)
        if turn is not None and result.rule == f"written by {turn.agent}":
            return str(turn.output.content) or result.answer
        said = (one.text for one in ballots if one.votes and one.answer == result.answer)
        return next(said, result.answer)


def _plan(
    names: Sequence[str], team: Mapping[str, Agent], samples: int, timeout: float | None
) -> tuple[Activation, ...]:
    roster = [Member(name, tuple(getattr(team[name], "options", ()))) for name in names]
    asked = [one for one in choices(roster) for _ in range(samples)]
    return tuple(evolve(one, reads=(), timeout=timeout, index=i) for i, one in enumerate(asked))


def _correlated(plan: Sequence[Activation], team: Mapping[str, Agent]) -> tuple[str, ...]:
    """Whose mistakes are likely to come together."""
    times = Counter(choice_name(one) for one in plan)
    notes = [
        f"correlated: {name} is asked {count} times" for name, count in times.items() if count > 1
    ]
    users: dict[int, list[str]] = {}
    for name, agent in team.items():
        model = getattr(agent, "model", None)
        # A shared runtime; settings that name a model are text, and say nothing of each other.
        if model is not None and not isinstance(model, str):
            users.setdefault(id(model), []).append(name)
    for shared in users.values():
        if len(shared) > 1:
            notes.append(f"correlated: {', '.join(shared)} use the same model")
    return tuple(notes)


def _tallied(result: Result) -> str:
    return ", ".join(f"{answer}: {score:g}" for answer, score in result.scores.items())


def _voter(agent: Agent) -> Agent:
    """A member whose final turn is its last word, not everybody's."""
    return _Waiting(agent) if inspect.iscoroutinefunction(agent.act) else _Plain(agent)


@frozen(slots=False)
class _Member(Agent):
    """What the engine sees of a member: all that it is, but for `final`."""

    agent: Agent

    @property
    def options(self) -> Sequence[str]:
        return tuple(getattr(self.agent, "options", ()))

    @property
    def pure(self) -> bool:
        return bool(getattr(self.agent, "pure", False))

    @property
    def memo(self) -> Any:
        return getattr(self.agent, "memo", None)

    def ceiling(self, tokens: int) -> Usage | None:
        return ceiling_of(self.agent, tokens)


@frozen(slots=False)
class _Waiting(_Member):
    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        work: Any = self.agent.act(view, key, calls)
        return _not_final(await work)


@frozen(slots=False)
class _Plain(_Member):
    # A plain function: the engine runs it in a worker thread.
    def act(self, view: View, key: Key, calls: Calls) -> Any:
        result = self.agent.act(view, key, calls)
        return _awaited(result) if inspect.isawaitable(result) else _not_final(result)


async def _awaited(work: Any) -> Output:
    return _not_final(await work)


def _not_final(output: Output) -> Output:
    # Anything else than an Output is for the engine to refuse.
    return evolve(output, final=False) if getattr(output, "final", False) is True else output
