"""From a request's text to an episode of the team that it names.

What happens first decides the answer: the episode ends, the client goes, or the time is up. What
still runs then is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from math import ceil
from typing import Any

from starlette.types import Receive

from orchestrion import (
    BudgetError,
    CallError,
    Key,
    OrchestrionError,
    Output,
    Policy,
    Problem,
    Status,
    Turn,
    UsageError,
    hidden,
    replace,
)
from orchestrion.cli import note
from orchestrion.runs import TeamAnswer, Trained, paying
from orchestrion_serve.in_use import InUse
from orchestrion_serve.keys import Keys
from orchestrion_serve.limits import Room
from orchestrion_serve.names import Names
from orchestrion_serve.recording import OpenRequest
from orchestrion_serve.refusals import Refusal, encodable, failed, gone, stopping, wrong
from orchestrion_serve.requests import Call, Settings, disconnected

WATCHED_AFTER = 0.1
"""Seconds after which an episode is watched for a client that goes away."""
CANCELLING = 5.0
"""Seconds that the agents of a cancelled episode get to clean up."""
WARNINGS = 20
"""Models and categories that are warned of: clients can make up any number of categories."""


class Episodes:
    """Runs an episode for each request.

    Args:
        teams: by model name.
        settings: the limits.
        uses: see `using`.
        keys: whose models and logs some of them are.
    """

    def __init__(
        self,
        teams: Mapping[str, Trained],
        settings: Settings,
        uses: Mapping[str, InUse] | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._teams, self._settings, self._uses = teams, settings, uses or {}
        self._calls: dict[str, Call] = {}
        self._work: set[asyncio.Task[TeamAnswer]] = set()
        self._warned: set[tuple[str, str]] = set()
        self.names = Names(teams, keys.models if keys is not None else None)
        for client, log in keys.logs.items() if keys is not None else ():
            places = {f"{log}/{model}" for model in self.names.of(client).values()}
            if not places <= set(self._uses):
                raise UsageError(f"--keys: log={log} has no effect without --log FOLDER")
        self.room = Room(settings.concurrency, keys is not None and len(keys) > 1)

    def running(self) -> int:
        """Return how many episodes run now."""
        return len(self._work)

    def choose(self, call: Call, name: str) -> None:
        """Note which model a request asks for.

        Raises:
            Refusal: there is none of this name.
        """
        call.model, call.pinned = self.names.find(call.tenant, name)
        call.requested = name

    async def run(
        self, call: Call, text: str, *, steps: bool, category: str = ""
    ) -> AsyncGenerator[Turn | TeamAnswer, None]:
        """Yield the finished turns, with `steps`, and then the answer to a text.

        The model of the request has to be chosen before.

        Raises:
            Refusal: it failed, took too long, or the client has gone; it is cancelled then.
        """
        news = asyncio.Queue[Turn | Refusal | None]()  # None: the episode has ended

        def refuse(refusal: Refusal) -> None:
            # At once: whoever reads the answer may read it late, or never.
            work.cancel()
            news.put_nowait(refusal)

        if steps:
            call.turns = news.put_nowait
        work = self._start(call, text, category, lambda: news.put_nowait(None))
        call.refuse = refuse
        watch = _Watch(refuse, call.receive, call.seconds or self._settings.timeout)
        try:
            while (item := await news.get()) is not None:
                if isinstance(item, Refusal):
                    raise item
                yield item
            yield self._answer_of(work, call.id)
        finally:
            watch.stop()
            call.refuse = call.turns = None
            if not work.done():
                # What it took is known when its agents have been cancelled.
                work.cancel()
                await asyncio.wait([work], timeout=CANCELLING)

    async def drain(self) -> None:
        """Admit no more requests, and wait for those in flight; cancel what takes too long."""
        self.room.closed = True
        if self._work:
            await asyncio.wait(self._work, timeout=self._settings.drain)
        for work in self._work:
            work.cancel()
        if self._work:
            # What they took is known when their agents have been cancelled.
            await asyncio.wait(self._work, timeout=CANCELLING)

    # ------------------------------------------------------------------ one episode

    def _start(
        self, call: Call, text: str, category: str, ended: Callable[[], None]
    ) -> asyncio.Task[TeamAnswer]:
        """Start the episode of a request: here a version is chosen, and the log that it goes to.

        `ended` is called once it has ended, however it did.
        """
        assert call.model is not None
        use = self._uses.get(f"{call.log}/{call.model}" if call.log else call.model)
        team, share, answered = self._teams[call.model], None, None
        self.room.take(call.tenant)
        try:
            key = _key(team, call)
            if use is not None and not call.pinned:
                team, share = use.version_for(team, key)
            observers = team.engine.observers
            if getattr(observers, "calls", None) is not self._calls:
                traces = getattr(observers, "traces", observers)
                team.engine.observers = _Observers(self._calls, traces)
            problem = _problem(team, text, category, call.id)
            self._check_category(team, problem, call.model)
            call.episode = key.hex()
            if use is not None:
                answered = use.begin(call.id, call.tenant, team, problem, key, share)
            policy = answered.policy if answered is not None else None
            with paying(call.spend):
                work = asyncio.create_task(_ask(team, call.id, problem, key, policy))
        except BaseException:
            self.room.give(call.tenant)
            raise
        self._work.add(work)
        self._calls[call.id] = call
        work.add_done_callback(partial(self._ended, call, use, answered, ended))
        return work

    def _check_category(self, team: Trained, problem: Problem, model: str) -> None:
        """Warn of a category that a team did not learn from, once.

        Raises:
            Refusal: the settings allow only those that it learned from.
        """
        if not (doubt := team.doubt(problem)):
            return
        if self._settings.known_categories:
            raise wrong(doubt, "orchestrion.category")
        place = (model, problem.category)
        if place not in self._warned and len(self._warned) < WARNINGS:
            self._warned.add(place)
            note(f"warning: {model}: {doubt}")

    def _ended(
        self,
        call: Call,
        use: InUse | None,
        answered: OpenRequest | None,
        ended: Callable[[], None],
        work: asyncio.Task[TeamAnswer],
    ) -> None:
        """Forget an episode: called once for each that started, however it ended."""
        ended()
        self._work.discard(work)
        self.room.give(call.tenant)
        del self._calls[call.id]
        if use is not None and answered is not None:
            use.ended(answered, None if work.cancelled() or work.exception() else work.result())

    def _answer_of(self, work: asyncio.Task[TeamAnswer], identity: str) -> TeamAnswer:
        """Return the answer that a finished task has.

        Raises:
            Refusal: there is none.
        """
        if work.cancelled():
            raise stopping() if self.room.closed else failed("the episode was cancelled")
        error = work.exception()
        if error is None:
            return work.result()
        if isinstance(error, BudgetError):
            raise _paused(error)
        if isinstance(error, OrchestrionError):
            raise _unanswered(identity, str(error))
        raise _broken(error, identity)


async def _ask(
    team: Trained, name: str, problem: Problem, key: Key, policy: Policy | None
) -> TeamAnswer:
    """Run an episode; where the budget is used up, no agent acts."""
    team.engine.calls.budget.check()
    episode = await team.engine.run(name, problem, key, policy)
    return TeamAnswer.of(episode, team.answering(episode))


class _Watch:
    """Ends a request early when its time is up or its client has gone.

    Watching the client begins only after a while, so that a short episode costs a single timer.
    """

    def __init__(self, refuse: Callable[[Refusal], None], receive: Receive, seconds: float) -> None:
        self._refuse, self._receive, self._seconds = refuse, receive, seconds
        self._leaving: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(min(WATCHED_AFTER, seconds), self._begin)

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._leaving is not None:
            self._leaving.cancel()

    def _begin(self) -> None:
        left = max(0.0, self._seconds - WATCHED_AFTER)
        self._timer = self._loop.call_later(left, self._late)
        self._leaving = asyncio.create_task(disconnected(self._receive))
        self._leaving.add_done_callback(lambda _: self._refuse(gone()))

    def _late(self) -> None:
        message = f"the episode took longer than {self._seconds:g} s"
        self._refuse(failed(message, 504, "timeout"))


class _Observers:
    """Passes each finished turn on to the request of its episode, and to a version's traces."""

    def __init__(self, calls: Mapping[str, Call], traces: Any) -> None:
        self.calls, self.traces = calls, traces
        self.turn_finished: Callable[[str, Turn], None] | None = self._turn
        self.episode_finished = traces.episode_finished

    def _turn(self, episode: str, turn: Turn) -> None:
        if self.traces.turn_finished is not None:
            self.traces.turn_finished(episode, turn)
        call = self.calls.get(episode)
        if call is None:
            return
        call.agents[turn.agent] += 1
        if call.turns is not None:
            call.turns(turn)


def _problem(team: Trained, text: str, category: str, identity: str) -> Problem:
    if not category.isprintable() or len(category) > 200:
        raise wrong("a category is up to 200 printable characters", "orchestrion.category")
    try:
        problem = team.engine.team.task.problem_from(text)
        return replace(problem, category=category) if category else problem
    except (OrchestrionError, ValueError) as error:
        raise wrong(
            f"the task cannot use this text: {hidden(str(error))[:500]}", "messages"
        ) from None
    except Exception as error:
        raise _broken(error, identity) from None


def _key(team: Trained, call: Call) -> Key:
    """Return the episode's key: a random one, or the client's own for its name."""
    name = call.head(b"idempotency-key")
    if b"idempotency-key" in call.heads and not 0 < len(name) <= 255:
        raise wrong("the header Idempotency-Key has 1 to 255 characters", "Idempotency-Key")
    return Key(team.config.seed).child("serve", call.model or "", call.tenant, name or call.id)


# ---------------------------------------------------------------------------- what protocols say


def answer_of(answer: TeamAnswer) -> str:
    """Return the text of an answer.

    Raises:
        Refusal: the episode failed or gave no answer.
    """
    identity = answer.episode.id
    if answer.status is Status.FAILED or answer.text is None:
        raise _unanswered(identity, answer.error or "no turn was completed")
    if not answer.text and not images_of(answer):
        for turn in reversed(answer.turns):
            if turn.status == "failed":
                raise _unanswered(identity, f"{turn.agent}: {turn.error}")
    return encodable(answer.text)


def finish_reason(answer: TeamAnswer) -> str:
    """Return "length" if a limit of the team's config ended an episode, else "stop"."""
    return "length" if answer.status is Status.LIMIT else "stop"


def images_of(answer: TeamAnswer) -> list[str]:
    """Return the images that came with an answer, as URLs; their content as data URLs."""
    images = Output(data=answer.data).images
    last = next((turn for turn in reversed(answer.turns) if turn.status == "completed"), None)
    if not images and last is not None and not last.output.content.strip():
        images = last.output.images  # of an agent that draws, and leaves the text to another
    return [
        image.get("url") or f"data:{image['media_type']};base64,{image['data']}" for image in images
    ]


def line_of(turn: Turn) -> str:
    """Return a finished turn as text for those who watch."""
    text = turn.output.content if turn.status == "completed" else f"({turn.status})"
    return encodable(f"{turn.agent}: {text}\n")


def _unanswered(identity: str, reason: str) -> Refusal:
    return failed(
        f"the team gave no answer; the server's log says why: request {identity}", reason=reason
    )


def _broken(error: BaseException, identity: str) -> Refusal:
    message = f"something broke in the server; its log says what: request {identity}"
    return failed(message, 500, "internal_error", f"{type(error).__name__}: {error}")


def _paused(error: BudgetError) -> Refusal:
    """Return the refusal for a used-up budget or a service that makes the team wait."""
    cause, reason = error.__cause__, str(error)
    if isinstance(cause, CallError) and cause.retry_after is not None:
        headers = {"retry-after": str(max(1, ceil(cause.retry_after)))}
        message = "a service that the team uses asks to wait"
        return Refusal(503, "service_waits", message, headers=headers, reason=reason)
    message, code = "the team's budget is used up", "insufficient_quota"
    if isinstance(cause, CallError):
        message = "the account of a service that the team uses is empty"
    elif "price" in reason:
        message, code = "the team may not use what nobody knows the price of", "unknown_price"
    return Refusal(402, code, message, reason=reason)
