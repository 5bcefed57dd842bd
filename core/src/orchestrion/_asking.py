"""Ask an opened team questions from Python, as `orchestrion serve` does for its clients."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count

from attrs import field, frozen

from orchestrion._config.loading import ConfigLike
from orchestrion._engine.checks import why_empty
from orchestrion._errors import UsageError
from orchestrion._keys import Key
from orchestrion._observers import EpisodeObservers
from orchestrion._records import JSON, Episode, Output, Problem, Status, Turn, Usage
from orchestrion._trained import Trained, open_run


@frozen
class TeamAnswer:
    """What a team made of a question.

    Args:
        text: of the turn that the task takes for the answer, by default the last completed one
            that says something; None if there is none.
        data: of the same turn.
        usage: of the whole team.
        turns: all of them, in order.
        status: how the episode ended.
        error: why there is no text, or no success; else empty.
        episode: the full record.
    """

    text: str | None
    data: JSON
    usage: Usage
    turns: tuple[Turn, ...]
    status: Status
    error: str
    episode: Episode = field(repr=False)

    @classmethod
    def of(cls, episode: Episode, turn: Turn | None) -> TeamAnswer:
        """Return the answer of an episode that is in this turn; None if it has none."""
        output = Output() if turn is None else turn.output
        text = None if turn is None else output.content
        error = episode.error or why_empty(episode.trajectory)
        if turn is None and episode.turns:
            error = error or "no turn that the task takes for the answer was completed"
        return cls(text, output.data, episode.usage, episode.turns, episode.status, error, episode)


class AskedTeam:
    """A team that answers questions: `await team("question")`, at most `concurrency` at once."""

    def __init__(self, trained: Trained, concurrency: int) -> None:
        self.trained = trained
        """Gives access to all the rest, e.g. `evaluate`."""
        self._room = asyncio.Semaphore(concurrency)
        self._key = Key(trained.config.seed).child("ask")
        self._numbers = count()
        self._watchers: dict[str, Callable[[Turn], None]] = {}
        self._open, self._doubted = True, False
        trained.engine.observers = EpisodeObservers(self._turn_finished, None)

    async def __call__(
        self, question: str | Problem, key: Key | None = None, *, category: str = ""
    ) -> TeamAnswer:
        """Return the team's answer.

        Args:
            question: a text for the task, or a problem of it.
            key: the episode's randomness; None for one by the number of the question.
            category: of the text, as the problems that the team learned from have one.

        Raises:
            UsageError: the team is closed, or the task cannot use the text.
            BudgetError: the config's budget is used up.
            RunError: the policy or the task broke its contract.
        """
        return await self._answer(*self._prepare(question, key, category))

    async def stream(
        self, question: str | Problem, key: Key | None = None, *, category: str = ""
    ) -> AsyncGenerator[Turn | TeamAnswer, None]:
        """Yield each turn when it has finished, and the answer last.

        Closing the iterator early (`contextlib.aclosing`) cancels the rest. Arguments and errors
        are those of a call.
        """
        name, problem, chosen = self._prepare(question, key, category)
        events: asyncio.Queue[Turn | asyncio.Task[TeamAnswer]] = asyncio.Queue()
        self._watchers[name] = events.put_nowait
        work = asyncio.create_task(self._answer(name, problem, chosen))
        work.add_done_callback(events.put_nowait)
        try:
            while isinstance(event := await events.get(), Turn):
                yield event
            yield event.result()
        finally:
            del self._watchers[name]
            work.cancel()
            await asyncio.wait([work])

    def close(self) -> None:
        self._open = False

    def _prepare(
        self, question: str | Problem, key: Key | None, category: str
    ) -> tuple[str, Problem, Key]:
        if not self._open:
            raise UsageError("the team is closed: ask it inside `async with orchestrion.load(...)`")
        number = next(self._numbers)
        if isinstance(question, str):
            question = self.trained.problem(question, category)
        elif category:
            raise UsageError("a problem has its own category; give `category` with a text only")
        if (doubt := self.trained.doubt(question)) and not self._doubted:
            self._doubted = True
            advice = "" if question.category else ": give `category`"
            warnings.warn(doubt + advice, stacklevel=3)
        return f"ask/{number}", question, key or self._key.child(number)

    async def _answer(self, name: str, problem: Problem, key: Key) -> TeamAnswer:
        engine = self.trained.engine
        async with self._room:
            engine.calls.budget.check()
            episode = await engine.run(name, problem, key)
            return TeamAnswer.of(episode, self.trained.answering(episode))

    def _turn_finished(self, episode: str, turn: Turn) -> None:
        if watcher := self._watchers.get(episode):
            watcher(turn)


@asynccontextmanager
async def load(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    concurrency: int | None = None,
    block: Sequence[str] = (),
) -> AsyncIterator[AskedTeam]:
    """Open a run, or a config as it is, to ask its team questions until the block ends.

        async with orchestrion.load("runs/team") as team:
            answer = await team("What is it?")

    Args:
        target: a run's folder, its name below `runs/`, or a config in any form.
        overrides: as `-o`.
        concurrency: questions at once; others wait; None for the config's `run.concurrency`.
        block: plugins that are never imported.

    Raises:
        UsageError: there is no such run, its task takes no text, or as `open_run`.
    """
    if concurrency is not None and concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}; it must be at least 1")
    async with open_run(target, overrides, block) as trained:
        team = AskedTeam(trained, concurrency or trained.config.run.concurrency)
        try:
            yield team
        finally:
            team.close()
