"""A person as a reward: asked on the terminal, or by a question that waits in a folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

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
from orchestrion_judge.prompt import Block, encodable
from orchestrion_judge.questions import FOLDER, Question, Questions, read_score
from orchestrion_judge.rubric import Scale
from orchestrion_judge.showing import Showing, unjudged
from orchestrion_judge.terminal import ask_line, is_terminal, say

__all__ = ["Human", "HumanReward"]

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
