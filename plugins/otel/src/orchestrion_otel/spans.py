"""Spans of a finished episode, from its record and those of its calls; no OpenTelemetry here.

    invoke_workflow TEAM
      plan POLICY            a decision
      invoke_agent AGENT     a turn
        chat MODEL           a call of a model
        execute_tool TOOL    a call of a tool
        invoke_agent MEMBER  a turn of a nested team
      chat MODEL             a call of the verifier or the reward function

Ids are digests of the run, the episode and the place in it: sent again, it is the same trace.
Times are those of the calls in the journal; a turn without calls ends when its end was noticed,
and begins when the turns before it had ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from attrs import frozen

from orchestrion import Decision, Episode, Turn
from orchestrion_otel import constants as c
from orchestrion_otel.calls import Value, call_facts, call_times, usage_attributes
from orchestrion_otel.contents import text_message

if TYPE_CHECKING:
    from orchestrion.runs import RunReader, StoredCall

Times = tuple[float, float]
MOST_LINKS: Final = 32


@frozen
class RunFacts:
    """The run of an episode."""

    name: str  # of its folder
    created: float  # when (Unix time); with the name it tells runs apart
    workflow: str  # the name of the system, the same for all its runs
    policy: str  # what decides

    def trace_of(self, episode: str) -> int:
        """Return the id of an episode's trace."""
        return _digest(f"{self.name}\0{self.created!r}\0{episode}", 16)


def facts_of(reader: RunReader) -> RunFacts:
    """Return what spans say of a run: the same while it runs and later."""
    from orchestrion.runs import stored_config

    policy, name = stored_config(reader).get("policy") or {}, reader.directory.name
    return RunFacts(
        name=name,
        created=reader.created,
        # Runs are numbered: chat-1, chat-2.
        workflow=re.sub(r"-\d+$", "", name) or name,
        policy=str(policy.get("use", "policy") if isinstance(policy, dict) else policy),
    )


def iteration_ends(reader: RunReader) -> dict[tuple[int | None, int | None], float]:
    """Return about when iterations ended: for episodes that made no calls."""
    at = reader.created
    ends: dict[tuple[int | None, int | None], float] = {(None, None): at}
    for iteration in reader.iterations():
        at += iteration.seconds
        ends[iteration.stage, iteration.iteration] = at
    return ends


@frozen
class Event:
    """Something that happened in a span."""

    name: str
    attributes: Mapping[str, Value]


@frozen
class Span:
    """A span, before it is sent."""

    trace: int  # id of its trace
    path: str  # its place in the episode, which its id is made of; "" for the episode itself
    parent: str | None  # the path of its parent; None for the episode itself
    name: str
    start: float  # Unix time in seconds
    end: float  # Unix time in seconds
    attributes: Mapping[str, Value] = {}
    remote: bool = False  # whether its kind is CLIENT, and not INTERNAL
    events: tuple[Event, ...] = ()
    links: tuple[str, ...] = ()  # paths of spans that it goes back to
    error: str = ""  # what went wrong, if it did

    @property
    def id(self) -> int:
        """Return its id."""
        return self.id_of(self.path)

    def id_of(self, path: str) -> int:
        """Return the id of a span of the same trace."""
        return _digest(f"{self.trace:032x}/{path}", 8)


def _digest(text: str, size: int) -> int:
    """Return a number of so many bytes that is not 0."""
    return int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=size).digest()) or 1


def spans_of(
    episode: Episode,
    run: RunFacts,
    calls: Callable[[Sequence[str]], Sequence[StoredCall]],
    *,
    contents: bool = False,
    at: float,
    ends: Mapping[int, float] | None = None,
) -> list[Span]:
    """Return the spans of an episode, the one of the episode itself first.

    Args:
        episode: finished, with its turns.
        run: where it comes from.
        calls: gives the records of calls by name, as `RunReader.calls` does.
        contents: whether what was asked and answered is part of them.
        at: when it was, if it made no calls (Unix time).
        ends: when turns ended, by index, where that was noticed.
    """
    trace = run.trace_of(episode.id)
    return _Episode(episode, run, calls, contents, at, ends or {}, trace).spans()


@frozen
class _Episode:
    episode: Episode
    run: RunFacts
    calls: Callable[[Sequence[str]], Sequence[StoredCall]]
    contents: bool
    at: float
    ends: Mapping[int, float]
    trace: int

    def spans(self) -> list[Span]:
        episode = self.episode
        judged = [*self.calls(episode.calls)]
        times = _placed(episode.turns, self._times(episode.turns), self.ends, self._first(judged))
        inner = [
            *self._plans(times, [call for call in judged if call.who == "policy"]),
            *self._turns(episode.turns, times, "", ""),
            *self._call_spans([call for call in judged if call.who != "policy"], "", "judged "),
        ]
        inner.sort(key=lambda span: span.start)
        start = min((span.start for span in inner), default=self.at)
        return [self._root(start, max((span.end for span in inner), default=self.at)), *inner]

    def _root(self, start: float, end: float) -> Span:
        episode, run = self.episode, self.run
        attributes: dict[str, Value] = {
            c.OPERATION: "invoke_workflow",
            c.WORKFLOW: run.workflow,
            c.AGENT: run.workflow,
            c.CONVERSATION: self._conversation,
            c.SESSION: self._conversation,
            c.KIND: "CHAIN",
            "orchestrion.run.id": run.name,
            "orchestrion.episode": episode.id,
            **_iteration(episode.id),
            "orchestrion.problem": episode.problem.id,
            "orchestrion.status": str(episode.status),
            "orchestrion.success": episode.success,
            "orchestrion.cost": episode.usage.cost,
        }
        if self.contents:
            attributes[c.INPUT_MESSAGES] = text_message("user", episode.problem.text)
            if episode.answer is not None:
                attributes[c.OUTPUT_MESSAGES] = text_message("assistant", episode.answer)
        error = episode.error if episode.status == "failed" else ""
        if error:
            attributes[c.ERROR_TYPE] = str(episode.status)
        return self._span(
            "", None, f"invoke_workflow {run.workflow}", (start, end), attributes,
            events=tuple(_evaluations(episode)), error=error,
        )  # fmt: skip

    @property
    def _conversation(self) -> str:
        return f"{self.run.name}/{self.episode.id}"

    def _span(
        self,
        path: str,
        parent: str | None,
        name: str,
        times: Times,
        attributes: Mapping[str, Value],
        *,
        remote: bool = False,
        events: tuple[Event, ...] = (),
        links: tuple[str, ...] = (),
        error: str = "",
    ) -> Span:
        start, end = times
        return Span(
            self.trace, path, parent, name, start, max(start, end), attributes, remote, events,
            links, error,
        )  # fmt: skip

    # ------------------------------------------------------------------ decisions

    def _plans(self, times: Mapping[int, Times], calls: Sequence[StoredCall]) -> Iterator[Span]:
        """Yield the decisions; calls that prepared one are its children."""
        first = min((start for start, _ in times.values()), default=self.at)
        turns = self.episode.turns
        for number, decision in enumerate(self.episode.decisions):
            begun = [times[turn.index][0] for turn in turns if turn.decision == number]
            ended = [times[turn.index][1] for turn in turns if turn.decision < number]
            at = min(begun) if begun else max(ended, default=first)
            path = f"decision {number}"
            # Those that had ended by then, and no earlier decision had.
            last = number == len(self.episode.decisions) - 1
            own = [call for call in calls if last or (call_times(call) or (0.0, 0.0))[1] <= at]
            calls = [call for call in calls if call not in own]
            children = list(self._call_spans(own, path, f"{path}/"))
            start = min([at, *(child.start for child in children)])
            yield self._span(
                path, "", f"plan {self.run.policy}",
                (start, max([at, *(child.end for child in children)])),
                self._decision(decision), error=decision.error,
            )  # fmt: skip
            yield from children

    def _decision(self, decision: Decision) -> dict[str, Value]:
        chosen = tuple(
            a.agent if a.option is None else f"{a.agent}:{a.option}" for a in decision.start
        )
        attributes: dict[str, Value] = {
            c.OPERATION: "plan",
            c.AGENT: self.run.policy,
            c.CONVERSATION: self._conversation,
            c.KIND: "AGENT",
            "orchestrion.policy.chosen": chosen or (("stop",) if decision.stop else ()),
        }
        if decision.logp is not None:
            attributes["orchestrion.policy.logp"] = decision.logp
        if decision.error:
            attributes[c.ERROR_TYPE] = "policy"
        return attributes

    # ------------------------------------------------------------------ turns and their calls

    def _turns(
        self, turns: Sequence[Turn], times: Mapping[int, Times], parent: str, before: str
    ) -> Iterator[Span]:
        """Yield the turns of the team or of a nested one, each with its calls and its members'."""
        for turn in turns:
            path = f"{before}turn {turn.index}"
            senders = _senders(turn, turns)
            calls = self.calls(turn.output.calls)
            attributes = self._turn(turn, senders)
            if turn.output.calls and not calls:  # they are not kept where a team is served
                attributes |= usage_attributes(turn.usage)
            yield self._span(
                path, parent, f"invoke_agent {turn.agent}", times[turn.index],
                attributes,
                links=tuple(f"{before}turn {sender.index}" for sender in senders[-MOST_LINKS:]),
                error=(turn.error or turn.status) if turn.status != "completed" else "",
            )  # fmt: skip
            yield from self._call_spans(calls, path, f"{path}/")
            if turn.output.inner is not None:
                inner = turn.output.inner.turns
                placed = _placed(inner, self._times(inner), {}, times[turn.index][0])
                yield from self._turns(inner, placed, path, f"{path}/")

    def _turn(self, turn: Turn, senders: Sequence[Turn]) -> dict[str, Value]:
        attributes: dict[str, Value] = {
            c.OPERATION: "invoke_agent",
            c.AGENT: turn.agent,
            c.CONVERSATION: self._conversation,
            c.NODE: turn.agent,
            "orchestrion.turn": turn.index,
            "orchestrion.cost": turn.usage.cost,
        }
        if turn.option is not None:
            attributes["orchestrion.option"] = turn.option
        if senders:
            attributes[c.NODE_PARENT] = senders[-1].agent
            attributes["orchestrion.edge.from"] = tuple(sender.agent for sender in senders)
            attributes["orchestrion.edge.to"] = turn.agent
        if turn.status != "completed":
            attributes[c.ERROR_TYPE] = turn.status
        if self.contents and turn.output.content:
            attributes[c.OUTPUT_MESSAGES] = text_message("assistant", turn.output.content)
        return attributes

    def _call_spans(self, calls: Sequence[StoredCall], parent: str, before: str) -> Iterator[Span]:
        for number, call in enumerate(calls):
            facts = call_facts(call, self.contents)
            yield self._span(
                f"{before}call {number}", parent, facts.name,
                call_times(call) or (self.at, self.at), facts.attributes,
                remote=facts.remote, error=facts.error,
            )  # fmt: skip

    # ------------------------------------------------------------------ times

    def _times(self, turns: Sequence[Turn]) -> dict[int, Times]:
        """Return when the calls of each turn began and ended, where it made any."""
        known = {}
        for turn in turns:
            times = [times for call in self.calls(turn.output.calls) if (times := call_times(call))]
            if turn.output.inner is not None:
                times += self._times(turn.output.inner.turns).values()
            if times:
                known[turn.index] = min(times)[0], max(end for _, end in times)
        return known

    def _first(self, judged: Sequence[StoredCall]) -> float:
        """Return when the episode began, as far as its turns do not say."""
        began = [times[0] for call in judged if (times := call_times(call))]
        return min([*began, *self.ends.values()], default=self.at)


def _placed(
    turns: Sequence[Turn], known: Mapping[int, Times], ends: Mapping[int, float], first: float
) -> dict[int, Times]:
    """Return when each turn began and ended: by its calls, or else between its neighbours."""
    first = min([first, *(start for start, _ in known.values())])
    placed: dict[int, Times] = {}
    for turn in turns:
        if turn.index in known:
            placed[turn.index] = known[turn.index]
            continue
        end = ends.get(turn.index)
        earlier = [
            placed[other.index][1]
            for other in turns
            if other.decision < turn.decision and other.index in placed
        ]
        start = max((time for time in earlier if end is None or time <= end), default=first)
        placed[turn.index] = start, start if end is None else end
    return placed


def _senders(turn: Turn, turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns whose work reached this one: those it read, or those of the last step."""
    completed = [other for other in turns if other.status == "completed"]
    if turn.reads is not None:
        return [other for other in completed if other.index in turn.reads]
    before = [other for other in completed if other.decision < turn.decision]
    last = max((other.decision for other in before), default=0)
    return [other for other in before if other.decision == last]


def _iteration(episode: str) -> dict[str, Value]:
    """Return the stage and the iteration of a training episode, which its id begins with."""
    stage, iteration, *rest = [*episode.split("/"), "", ""]
    if rest and stage.isdecimal() and iteration.isdecimal():
        return {"orchestrion.stage": int(stage), "orchestrion.iteration": int(iteration)}
    return {}


def _evaluations(episode: Episode) -> Iterator[Event]:
    scores, reward = episode.scores, episode.reward
    if scores is not None:
        label = "solved" if scores.success else "not solved"
        yield _evaluation("score", scores.value, **{c.EVALUATION_LABEL: label})
        for name, value in scores.parts.items():
            yield _evaluation(f"score/{name}", value)
    if reward is not None:
        yield _evaluation("reward", reward.total)
        for name, value in reward.parts.items():
            yield _evaluation(f"reward/{name}", value)


def _evaluation(name: str, value: float, **more: Value) -> Event:
    return Event(c.EVALUATION, {c.EVALUATION_NAME: name, c.EVALUATION_VALUE: value, **more})
