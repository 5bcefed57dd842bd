"""DOC"""

from __future__ import annotations

import asyncio
import io
import json
import os
import select
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
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

__all__ = [
    "FOLDER",
    "Human",
    "HumanReward",
    "LineReader",
    "Question",
    "Questions",
    "ask_line",
    "is_terminal",
    "read_score",
    "say",
]

_LOOK = 0.1
"""Seconds after which a reader looks whether it is still wanted."""


def is_terminal() -> bool:
    """Whether there is somebody to ask."""
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # it is closed
        return False


class LineReader:
    """Lines of a stream. What is left of a read stays here, so keep one for each stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = b""
        try:
            self._file: int | None = stream.fileno()
        except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
            self._file = None

    def line(self, stop: threading.Event) -> str | None:
        """The next line; None at the end of input, or once `stop` is set."""
        if self._file is None:
            return self._stream.readline() or None
        while b"\n" not in self._rest:
            if stop.is_set():
                return None
            ready, _, _ = select.select([self._file], [], [], _LOOK)
            if not ready:
                continue
            read = os.read(self._file, 65536)
            if not read:
                break
            self._rest += read
        line, end, self._rest = self._rest.partition(b"\n")
        return (line + end).decode(errors="replace") or None


_readers: dict[int, tuple[TextIO, LineReader]] = {}


def _reader() -> LineReader:
    stream = sys.stdin
    known = _readers.get(id(stream))
    if known is None or known[0] is not stream:
        known = _readers[id(stream)] = (stream, LineReader(stream))
    return known[1]


async def ask_line() -> str | None:
    """The next line of standard input; None at its end. Cancelling leaves no thread behind."""
    stop = threading.Event()
    reading = asyncio.create_task(asyncio.to_thread(_reader().line, stop))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        stop.set()
        await reading
        raise


def say(text: str) -> None:
    """Show something on standard error; nothing in it that a terminal would obey."""
    from orchestrion.cli import note

    note(text)


FOLDER = "questions"
"""Where in a run's folder questions wait."""

_QUESTION, _ANSWER = ".question.json", ".answer.json"


@frozen
class Question:
    """What a person is asked.

    Args:
        text: the question.
        scale: of the answer.
        material: titles and texts, in order.
    """

    text: str
    scale: Scale
    material: tuple[tuple[str, str], ...]

    @property
    def data(self) -> dict[str, JSON]:
        """As JSON: the question is this and nothing else."""
        scale = {"low": self.scale.low, "high": self.scale.high, "step": self.scale.step}
        return {"question": self.text, "scale": scale, "material": [*map(list, self.material)]}

    @property
    def name(self) -> str:
        """Stands for the question."""
        return blake2b(_bytes(self.data), digest_size=8).hexdigest()

    @property
    def lines(self) -> list[str]:
        """As a person reads it."""
        shown = [f"--- {title}\n{text}" for title, text in self.material]
        return [*shown, f"--- {self.text} ({self.scale.in_words}; empty to skip)"]


def read_score(text: str, scale: Scale) -> float | None:
    """What a person typed, as a score; None if it is none on this scale."""
    try:
        score = float(text.strip())
    except ValueError:
        return None
    return score if scale.has(score) else None


@frozen
class Questions:
    """The questions in a folder, which need not exist yet."""

    folder: Path

    def ask(self, question: Question) -> None:
        """Leave a question there."""
        self._write(question.name + _QUESTION, question.data)

    def answer(self, question: Question, answer: JSON) -> None:
        """Answer one."""
        self._write(question.name + _ANSWER, answer)

    def answer_to(self, question: Question) -> dict[str, JSON] | None:
        """The answer, if there is one.

        Raises:
            RunError: its file holds something else.
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
            f"{question.scale.in_words}; mend or remove it, and resume"
        )

    def waiting(self) -> list[Question]:
        """All without an answer, by name."""
        found = []
        for path in sorted(self.folder.glob(f"*{_QUESTION}")):
            question = _question(path)
            if self.answer_to(question) is None:
                found.append(question)
        return found

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
        raise RunError(f"{path}: is no question ({error})") from None


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
_SKIPPED: dict[str, JSON] = {"skipped": True}


@frozen(kw_only=True)
class Human(Showing):
    """A person's judgement, as a share of the scale, 0 to 1.

    Answers are recorded like calls: a resumed run, and one that meets the same work again, does
    not ask again. A question that is skipped gives no reward. An episode that was not completed,
    or said nothing, has 0 and nobody is asked.

    Args:
        question: what the person is asked.
        scale: what answers there are.
        ask: on the terminal, by a question in a folder that `orchestrion judge RUN` answers, or
            (auto) on the terminal if there is one.
        pending: what a question in the folder does to the run: it pauses, to be resumed once there
            are answers, or goes on without this reward.
        gather: how many seconds without a new question a run goes on before it pauses.
        folder: where questions and answers are kept; the run's own by default. Runs that share one
            share answers.
        tries: lines that are no score before a question counts as skipped.
        unfinished: what a run that was stopped is worth: 0, or what the person says.
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
        """Find out whether there is somebody to ask.

        Raises:
            UsageError: there is not, and no folder in which a question could wait.
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
                f"{ctx.path} ({ctx.path} asks a person): there is no terminal to ask on, and no "
                "run folder in which a question could wait; set `folder`, or `pending: missing`"
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
        """The person's judgement; missing if it was skipped.

        Raises:
            BudgetError: questions wait, and the run is to wait for them.
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
        # What is still pending must not answer for a later question of equal content.
        settled = self.terminal or self.settings.pending == "pause"
        limits = CallLimits(concurrency=1) if self.terminal else CallLimits()
        service = f"human:{self.path}"
        return Request(service, question.data, cache=settled, limits=limits, timeout=_LONG)

    async def _do(self, question: Question) -> Answer:
        if self.questions is not None:
            answer = self.questions.answer_to(question)
            if answer is not None:
                return Answer(answer)
        return Answer(await (self._typed(question) if self.terminal else self._later(question)))

    async def _typed(self, question: Question) -> dict[str, JSON]:
        for line in question.lines:
            say(line)
        for _ in range(self.settings.tries):
            typed = await ask_line()
            if typed is None:
                raise RunError(
                    "there is nobody to ask: the terminal gave no more input; set `ask: queue` to "
                    "let questions wait"
                )
            if not typed.strip():
                break
            score = read_score(typed, question.scale)
            if score is not None:
                return {"score": score}
            say(f"that is no {question.scale.in_words}")
        say("skipped")
        return _SKIPPED

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
        """Wait until no more questions come: many can be answered at a time."""
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
