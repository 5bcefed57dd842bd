"""The task `math`: problems with one answer, which is compared by value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from attrs import frozen
from orchestrion_prompted import read_response

from orchestrion import (
    Calls,
    Meta,
    OpenContext,
    Problem,
    Scores,
    Split,
    SplitShares,
    Task,
    Trajectory,
    UsageError,
    did_you_mean,
    no_calls,
    refuse_idle,
    replace,
    splits_of,
)
from orchestrion_math.equality import same
from orchestrion_math.generate import Arithmetic, generate
from orchestrion_math.grader import Grader
from orchestrion_math.problems import load


@frozen
class Math:
    r"""Problems with one answer each, which is compared by value.

    The answer is the last \boxed{...} of the solver's last completed turn, or with `answer: plain`
    the whole text of that turn. Text before `</think>` does not count.

    Args:
        source: `generated`, or a file or folder in the form of GSM8K or MATH.
        test: another file or folder for the test split; its problems are in no other split.
        split: how the problems of `source` are divided.
        generated: the generated problems.
        solver: the agent whose last turn has the answer.
        answer: where the answer is in that turn.
        seconds: of processor time for comparing two expressions; what takes longer is unequal.
    """

    source: Literal["generated"] | Path = "generated"
    test: Path | None = None
    split: SplitShares = SplitShares()
    generated: Arithmetic = Arithmetic()
    solver: str = "solver"
    answer: Literal["boxed", "plain"] = "boxed"
    seconds: Annotated[float, Meta(gt=0)] = 5.0

    def __attrs_post_init__(self) -> None:
        idle = ("generated",) if isinstance(self.source, Path) else ("test", "split")
        refuse_idle(self, idle, f"with `source: {self.source}`")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Yield the task; it compares expressions in another process, which ends with it."""
        team = [member.name for member in ctx.roster]
        if team and self.solver not in team:
            near = did_you_mean(self.solver, team)
            raise UsageError(f"{ctx.path}.solver: no agent {self.solver!r} in the team{near}")
        grader = Grader(self.seconds)
        try:
            yield RunningMath(self, grader)
        finally:
            await asyncio.to_thread(grader.close)

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split."""
        return self.divided()[split]

    def divided(self) -> dict[Split, tuple[Problem, ...]]:
        """Return all problems, by split.

        Raises:
            UsageError: a file is wrong, or there are not enough problems.
        """
        if not isinstance(self.source, Path):
            return generate(self.generated)
        own = load(self.test) if self.test is not None else ()
        tested = {problem.text for problem in own}
        made: dict[Split, list[Problem]] = {"train": [], "validation": [], "test": list(own)}
        new = [problem for problem in load(self.source) if problem.text not in tested]
        splits = splits_of((problem.text for problem in new), self.split)
        for problem in new:
            made[splits[problem.text]].append(problem)
        # The split makes ids different that come from files of equal names.
        return {
            split: tuple(replace(problem, id=f"{split}/{problem.id}") for problem in problems)
            for split, problems in made.items()
        }


class RunningMath(Task):
    """An opened task: its problems, and the process that compares expressions."""

    ceiling = no_calls

    def __init__(self, settings: Math, grader: Grader) -> None:
        self.settings, self.grader = settings, grader

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split."""
        return self._divided[split]

    @cached_property
    def _divided(self) -> dict[Split, tuple[Problem, ...]]:
        return self.settings.divided()

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return 1 for the right answer, else 0; also for an unfinished episode."""
        given = self._answer_in(trajectory)
        hidden = problem.hidden
        if given is None or not isinstance(hidden, dict) or "answer" not in hidden:
            return Scores(0.0)
        wanted = str(hidden["answer"])
        if hidden.get("reverse"):
            given = given[::-1]
        right = await self._right(given.strip(), wanted, problem.text, calls)
        return Scores(float(right), right)

    def _answer_in(self, trajectory: Trajectory) -> str | None:
        """Return the solver's answer as it was written."""
        turns = (past for past in trajectory.backward() if past.agent == self.settings.solver)
        turn = next((past for past in turns if past.status == "completed"), None)
        if turn is None:
            return None
        text = turn.output.content.rpartition("</think>")[2].strip()
        return read_response(text, "boxed") if self.settings.answer == "boxed" else text

    async def _right(self, given: str, wanted: str, question: str, calls: Calls) -> bool:
        if not given:
            return False

        def unknown(left: str, right: str) -> bool:
            raise _NeedsSymbolsError

        try:
            return same(given, wanted, unknown)
        except _NeedsSymbolsError:
            pass
        # An expression of the problem is equal to its answer, but does not answer it.
        if _squeezed(given) in _squeezed(question):
            return False

        async def compare() -> bool:
            return await asyncio.to_thread(same, given, wanted, self.grader.equal)

        equal: bool = await calls.reuse(["orchestrion-math", given, wanted], compare)
        return equal


class _NeedsSymbolsError(Exception):
    pass


def _squeezed(text: str) -> str:
    return "".join(text.split())
