"""The reward `human`: a person is asked on the terminal, or by questions that wait in a folder.

A question is a file `NAME.question.json`, its answer `NAME.answer.json` beside it, where NAME is a
hash of the question. An answer is {"score": 7} or {"skipped": true}.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal, TextIO

import msgspec
from attrs import define, frozen

from orchestrion import (
    JSON,
    Answer,
    BudgetError,
    CallLimits,
    Calls,
    Episode,
    Meta,
    OpenContext,
    Request,
    Reward,
    RewardFunction,
    RunError,
    UsageError,
    no_calls,
)
from orchestrion_judge.prompt import Block, Showing, encodable, unjudged
from orchestrion_judge.rubric import Scale

_LOOK = 0.1
"""Seconds between two checks whether a reader is cancelled."""


def is_terminal() -> bool:
    """Return whether standard input is a terminal."""
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # it is closed
        return False


class LineReader:
    """Reads lines of a stream; it keeps the rest of a read, so use one reader per stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = b""
        try:
            self._file: int | None = stream.fileno()
        except (OSError, ValueError, AttributeError):
            self._file = None

    def line(self, stop: threading.Event) -> str | None:
        """Return the next line; None at the end of input, or once `stop` is set."""
        if self._file is None:
            return self._stream.readline() or None
        while b"\n" not in self._rest:
            if stop.is_set():
                return None
            ready, _, _ = select.select([self._file], [], [], _LOOK)
            read = os.read(self._file, 65536) if ready else b""
            if ready and not read:
                break
            self._rest += read
        line, end, self._rest = self._rest.partition(b"\n")
        return (line + end).decode(errors="replace") or None


@lru_cache(maxsize=1)
def _reader(stream: TextIO) -> LineReader:
    return LineReader(stream)


async def ask_line() -> str | None:
    """Return the next line of standard input; None at its end. Cancelling it ends its thread."""
    stop = threading.Event()
    reading = asyncio.create_task(asyncio.to_thread(_reader(sys.stdin).line, stop))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        stop.set()
        await reading
        raise


def say(text: str) -> None:
    """Print a text to standard error, without control characters."""
    from orchestrion.cli import note

    note(text)


FOLDER = "questions"
"""The folder of questions inside a run's folder."""

_QUESTION, _ANSWER = ".question.json", ".answer.json"


@frozen
class Question:
    """A question to a person."""

    text: str
    scale: Scale
    material: tuple[tuple[str, str], ...]  # titles and texts, in order

    @property
    def data(self) -> dict[str, JSON]:
        """Return the question as JSON; it is hashed and stored."""
        scale = {"low": self.scale.low, "high": self.scale.high, "step": self.scale.step}
        return {"question": self.text, "scale": scale, "material": [*map(list, self.material)]}

    @property
    def name(self) -> str:
        """Return the hash of the question."""
        return blake2b(_bytes(self.data), digest_size=8).hexdigest()

    @property
    def lines(self) -> list[str]:
        """Return the question as a person reads it."""
        shown = [f"--- {title}\n{text}" for title, text in self.material]
        return [*shown, f"--- {self.text} ({self.scale.in_words}; empty to skip)"]


def read_score(text: str, scale: Scale) -> float | None:
    """Return the typed text as a score; None if it is not on the scale."""
    try:
        score = float(text.strip())
    except ValueError:
        return None
    return score if scale.has(score) else None


@frozen
class Questions:
    """The questions in a folder, which may not exist yet."""

    folder: Path

    def ask(self, question: Question) -> None:
        """Write a question."""
        self._write(question.name + _QUESTION, question.data)

    def answer(self, question: Question, answer: JSON) -> None:
        """Write the answer to a question."""
        self._write(question.name + _ANSWER, answer)

    def answer_to(self, question: Question) -> dict[str, JSON] | None:
        """Return the answer; None if there is none yet.

        Raises:
            RunError: the file does not hold an answer.
        """
        path = self.folder / (question.name + _ANSWER)
        if not path.exists():
            return None
        answer = _read(path)
        if answer == {"skipped": True}:
            return answer
        score = answer.get("score")
        if set(answer) == {"score"} and type(score) in (int, float):
            score = read_score(str(score), question.scale)
            if score is not None:
                return {"score": score}
        raise RunError(
            f'{path}: must be {{"skipped": true}} or {{"score": N}} with a score on its scale, '
            f"{question.scale.in_words}; correct or remove it, then resume"
        )

    def waiting(self) -> list[Question]:
        """Return the questions without an answer, by name."""
        questions = [_question(path) for path in sorted(self.folder.glob(f"*{_QUESTION}"))]
        return [question for question in questions if self.answer_to(question) is None]

    def _write(self, name: str, data: JSON) -> None:
        from orchestrion.runs import make_folder, write_atomic

        write_atomic(make_folder(self.folder) / name, [_bytes(data)])


def _question(path: Path) -> Question:
    data = _read(path)
    try:
        scale = Scale(**data["scale"])
        material = tuple((str(title), str(text)) for title, text in data["material"])
        return Question(str(data["question"]), scale, material)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path}: is not a question ({error})") from None


def _read(path: Path) -> dict[str, JSON]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from None
    if not isinstance(data, dict):
        raise RunError(f"{path}: is not a JSON object")
    return data


def _bytes(data: JSON) -> bytes:
    return msgspec.json.encode(data, order="deterministic")


_LONG = 30 * 24 * 3600.0


@frozen(kw_only=True)
class Human(Showing):
    """A person's judgement as a share of the scale, 0 to 1.

    Answers are recorded like calls: a resumed run, or one with the same work again, does not ask
    again. A skipped question gives no reward. An episode that was not completed, or has no content,
    gets 0 without a question.

    Args:
        question: the text of the question.
        scale: the possible scores.
        ask: `terminal` asks there; `queue` leaves the question in a folder, where
            `orchestrion judge RUN` answers it; `auto` uses the terminal if there is one.
        pending: what the run does with an open question in the folder: pause until it is answered
            and the run resumed, or go on without this reward.
        gather: seconds without a new question after which the run pauses.
        folder: of questions and answers; the run's own by default. Runs with a common folder share
            answers.
        tries: unreadable lines after which a question counts as skipped.
        unfinished: the reward of a stopped episode: 0, or the judgement.
    """

    question: str = "How good is this work?"
    scale: Scale = Scale(0, 10)
    ask: Literal["auto", "terminal", "queue"] = "auto"
    pending: Literal["pause", "missing"] = "pause"
    gather: Annotated[float, Meta(ge=0)] = 2.0
    folder: Path | None = None
    tries: Annotated[int, Meta(ge=1)] = 3
    unfinished: Literal["zero", "judge"] = "zero"

    ceiling = no_calls

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[HumanReward]:
        """Choose between terminal and folder, and yield the reward.

        Raises:
            UsageError: there is neither.
        """
        terminal = self.ask == "terminal" or (self.ask == "auto" and is_terminal())
        folder = self.folder
        if folder is None and ctx.directory is not None:
            folder = ctx.directory / FOLDER
        if terminal:
            ctx.note("asks", "on the terminal; run.timeout also holds for answers")
        elif folder is not None:
            ctx.note("asks", f"by questions in {folder}")
        elif self.pending == "pause" and ctx.live:
            raise UsageError(
                f"{ctx.path} asks a person, but there is neither a terminal nor a run folder for "
                "questions; set `folder`, or `pending: missing`"
            )
        yield HumanReward(self, ctx.path, terminal, None if folder is None else Questions(folder))


@define
class HumanReward(RewardFunction):
    """An opened `Human`."""

    settings: Human
    path: str
    terminal: bool
    questions: Questions | None
    _asked: int = 0

    ceiling = no_calls

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        """Return the person's judgement; None if the question was skipped.

        Raises:
            BudgetError: questions are open, and the run pauses for them.
        """
        settings = self.settings
        work = settings.shown(episode.problem, episode.trajectory, episode.observation)
        if (reward := unjudged(episode, work, settings.unfinished)) is not None:
            return reward
        question = Question(settings.question, settings.scale, tuple(_material(work.blocks)))
        answer = await calls.run(self._request(question), lambda: self._do(question))
        score = answer.data.get("score")
        if score is None:
            return None
        value = settings.scale.share(float(score))
        parts = {"human": value, "human.score": float(score), "human.length": float(work.length)}
        return Reward(value, parts=parts)

    def _request(self, question: Question) -> Request:
        # "Pending" must not be reused as the answer to an equal question later.
        settled = self.terminal or self.settings.pending == "pause"
        limits = CallLimits(concurrency=1) if self.terminal else CallLimits()
        service = f"human:{self.path}"
        return Request(service, question.data, cache=settled, limits=limits, timeout=_LONG)

    async def _do(self, question: Question) -> Answer:
        answer = None if self.questions is None else self.questions.answer_to(question)
        if answer is None:
            answer = await (self._typed(question) if self.terminal else self._later(question))
        return Answer(answer)

    async def _typed(self, question: Question) -> dict[str, JSON]:
        for line in question.lines:
            say(line)
        for _ in range(self.settings.tries):
            typed = await ask_line()
            if typed is None:
                raise RunError(
                    "the terminal has no more input; set `ask: queue` to leave questions in a "
                    "folder"
                )
            if not typed.strip():
                break
            score = read_score(typed, question.scale)
            if score is not None:
                return {"score": score}
            say(f"that is no {question.scale.in_words}")
        say("skipped")
        return {"skipped": True}

    async def _later(self, question: Question) -> dict[str, JSON]:
        if self.questions is not None:
            self.questions.ask(question)
        if self.settings.pending == "missing":
            return {"pending": True}
        self._asked += 1
        await self._gathered()
        assert self.questions is not None
        raise BudgetError(
            f"{len(self.questions.waiting())} questions wait for a person in "
            f"{self.questions.folder}; answer them with `orchestrion judge`, then resume"
        )

    async def _gathered(self) -> None:
        """Wait until no more questions come, so that they are answered together."""
        seen = -1
        while seen != self._asked:
            seen = self._asked
            await asyncio.sleep(self.settings.gather)


def _material(blocks: tuple[Block, ...]) -> Iterator[tuple[str, str]]:
    for block in blocks:
        if block.parts:
            yield from _material(block.parts)
        else:
            yield block.title, encodable(block.text)
