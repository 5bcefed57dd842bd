"""The code-review task: a function to write, examples to see, hidden tests to be judged by."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from attrs import Factory, asdict, field, frozen
from orchestrion_repair import Skills, skills_of
from orchestrion_repair.rows import listed
from orchestrion_sandbox import Box, Limits, Profile, Sandbox, choose, require
from structlog import get_logger

from orchestrion import (
    JSON,
    Calls,
    Key,
    Meta,
    OpenContext,
    Problem,
    Scores,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    no_calls,
    replace,
)
from orchestrion_code_review.challenge import (
    FRACTIONS,
    LEVELS,
    Challenge,
    Level,
    Reference,
    Test,
    builtin,
    check_fractions,
    split_of,
)
from orchestrion_code_review.generator import generate
from orchestrion_code_review.judging import Judgement, judge, only_shown, sound
from orchestrion_code_review.loading import from_text, load
from orchestrion_code_review.scoring import VersionVerdict, Weights, scores
from orchestrion_code_review.static import Measure, StaticTools, opened_tools
from orchestrion_code_review.versions import versions_of
from orchestrion_code_review.work import advanced, begun, shown, target_data

BUILTIN = "builtin"


@frozen
class CodeReview:
    """Functions to write, review and refactor.

    The program a team hands in is the last version any turn brought, as `Output.data["code"]` or
    as a fenced block of Python. The verifier runs it on hidden tests in a sandbox and measures it
    with static tools; what agents claim does not matter. See `scoring` for the formula.

    Args:
        suite: `builtin`, or a file or folder of problems (see the README for the forms).
        generated: how many composed problems to add.
        generator_seed: which ones.
        levels: leave out problems of other levels.
        fractions: about these shares of problems without a split of their own; a hash decides.
        max_problems: at most so many problems a split, evenly spread.
        quality_weight: weight of the hidden tests and static measures.
        collaboration_weight: weight of what the team kept of the best version it had.
        efficiency_weight: weight of turns, tokens and US dollars against the problem's reference.
        static_weight: the part of quality that static measures decide, once all tests pass.
        measures: which static measures are taken.
        sandbox: where programs run; by default the best that works here.
        level: the least that sandbox has to hold.
        wall_seconds: for one program.
        cpu_seconds: for one program.
        memory_mb: for one program.
    """

    suite: str = BUILTIN
    generated: Annotated[int, Meta(ge=0, le=10_000)] = 0
    generator_seed: int = 0
    levels: list[Level] = Factory(lambda: list(LEVELS))
    fractions: Mapping[Split, float] = Factory(lambda: dict(FRACTIONS))
    max_problems: Annotated[int, Meta(ge=1)] | None = None
    quality_weight: Annotated[float, Meta(ge=0)] = 0.4
    collaboration_weight: Annotated[float, Meta(ge=0)] = 0.4
    efficiency_weight: Annotated[float, Meta(ge=0)] = 0.2
    static_weight: Annotated[float, Meta(ge=0, lt=1)] = 0.4
    measures: list[Measure] = Factory(lambda: ["ruff", "complexity", "types"])
    sandbox: Sandbox | None = None
    level: Annotated[int, Meta(ge=2, le=4)] = 3
    wall_seconds: Annotated[float, Meta(gt=0)] = 15.0
    cpu_seconds: Annotated[int, Meta(ge=1)] = 3
    memory_mb: Annotated[int, Meta(ge=64)] = 512

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[RunningReview]:
        """Open a sandbox and the static tools, and read the problems."""
        check_fractions(self.fractions)
        if not self.quality_weight + self.collaboration_weight > 0:
            raise UsageError("task code-review: quality and collaboration cannot both weigh 0")
        sandbox = self.sandbox or choose("auto", level=self.level)
        with opened_tools(self.measures) as tools:
            async with sandbox.open(Profile()) as box:
                require(box, self.level, "task code-review")
                challenges = self.challenges()
                if self.suite != BUILTIN:
                    challenges = await self._sound(challenges, box)
                yield RunningReview(self, challenges, skills_of(ctx.roster), box, tools)

    @property
    def limits(self) -> Limits:
        """The limits of one program."""
        return Limits(self.wall_seconds, self.cpu_seconds, self.memory_mb)

    @property
    def weights(self) -> Weights:
        """The weights of the parts of the score."""
        return Weights(
            self.quality_weight,
            self.collaboration_weight,
            self.efficiency_weight,
            self.static_weight,
        )

    def challenges(self) -> tuple[Challenge, ...]:
        """Return all problems, in a fixed order, before their solutions are checked.

        Raises:
            UsageError: the suite cannot be read, or has no problem of the levels.
        """
        chosen: list[Challenge] = []
        if self.suite == BUILTIN:
            chosen += builtin()
        else:
            loaded = load(Path(self.suite))
            self._warn(loaded.skipped)
            chosen += loaded.challenges
        if self.generated:
            chosen += generate(self.generated, Key(self.generator_seed).child("code-review"))
        chosen = [challenge for challenge in chosen if challenge.level in self.levels]
        if not chosen:
            raise UsageError(f"task code-review: {self.suite} has no problem of these levels")
        return tuple(chosen)

    async def _sound(self, challenges: Sequence[Challenge], box: Box) -> tuple[Challenge, ...]:
        """Return the problems without a solution, or whose solution passes within the limits.

        Raises:
            UsageError: there are none.
        """
        loaded = await sound(challenges, box, self.limits)
        if not loaded.challenges:
            raise UsageError(f"{self.suite}: no problem can be judged{listed(loaded.skipped)}")
        self._warn(loaded.skipped)
        return loaded.challenges

    def _warn(self, left_out: Sequence[str]) -> None:
        if left_out:
            count = len(left_out)
            get_logger().warning(f"left out of {self.suite}: {count}{listed(left_out)}")


@frozen(eq=False)
class RunningReview(Task):
    """An opened code-review task."""

    ceiling = no_calls

    settings: CodeReview
    challenges: tuple[Challenge, ...]
    skills: Skills
    box: Box
    tools: StaticTools
    _problems: dict[Split, tuple[Problem, ...]] = field(factory=dict, init=False)

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split, in a fixed order."""
        if split not in self._problems:
            fractions = self.settings.fractions
            chosen = [c for c in self.challenges if split_of(c, fractions) == split]
            limit = self.settings.max_problems or len(chosen)
            if len(chosen) > limit:
                chosen = [chosen[i * len(chosen) // limit] for i in range(limit)]
            self._problems[split] = tuple(map(problem_of, chosen))
        return self._problems[split]

    def problem_from(self, text: str) -> Problem:
        """Return the problem of a path or a line of JSON; of other text, one without tests."""
        challenge = from_text(text)
        return problem_of(challenge) if challenge is not None else Problem("input", text)

    # ------------------------------------------------------------ the environment

    def start(self, problem: Problem, key: Key) -> Step:
        """Return the beginning, where only the problem is known."""
        if problem.data is None:
            return Step()
        work = begun(problem.data, self.skills)
        return Step(work, shown(work))

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        """Return the work after a turn. The team decides when it is done."""
        if state is None:
            return Step()
        work = advanced(state, turn)
        return Step(work, shown(work))

    # ------------------------------------------------------------ the verdict

    async def verify(
        self,
        problem: Problem,
        trajectory: Trajectory,
        state: Any,
        *,
        final: bool,
        calls: Calls,
    ) -> Scores:
        """Return the scores; before the end, the visible examples replace the hidden tests."""
        versions = versions_of(trajectory.turns)
        challenge = _challenge_of(problem, final)
        weights, reference = self.settings.weights, challenge.reference
        usage, turns = sum((turn.usage for turn in trajectory), Usage()), len(trajectory)
        if not challenge.tests or not versions:
            return scores([("", VersionVerdict())], {}, usage, turns, weights, reference)
        verdicts = [await self._verdict(version.code, challenge, calls) for version in versions]
        last, static = verdicts[-1], {}
        if last.judged.passed:
            static = await self._static(versions[-1].code, reference.complexity, calls)
        pairs = [(v.agent, verdict.judged) for v, verdict in zip(versions, verdicts, strict=True)]
        result = scores(pairs, static, usage, turns, weights, reference)
        parts = {**result.parts, **last.parts()}
        return replace(result, parts=parts, checks=last.checks() if final else {})

    async def _verdict(self, code: str, challenge: Challenge, calls: Calls) -> Judgement:
        """Return how a program does on all tests; equal programs share a verdict."""
        groups = (challenge.tests, only_shown(challenge))
        tests, examples = ([test.to_json() for test in group] for group in groups)
        content = ["code-review", code, challenge.entry_point, tests, examples, challenge.prelude]
        limits = self.settings.limits
        judgement: Judgement = await calls.reuse(
            content, lambda: judge(self.box, code, challenge, limits)
        )
        return judgement

    async def _static(self, code: str, complexity: int, calls: Calls) -> dict[str, float]:
        """Return the static measures of a program; equal programs share them."""
        measures: dict[str, float] = await calls.reuse(
            ["code-review static", code, complexity], lambda: self.tools.measure(code, complexity)
        )
        return measures


def _challenge_of(problem: Problem, final: bool) -> Challenge:
    """Return what a verdict needs of a problem; before the end, the examples are its tests."""
    data, hidden = problem.data or {}, problem.hidden or {}
    examples = tuple(Test(**row) for row in data.get("examples", []))
    tests = tuple(Test(**row) for row in hidden.get("tests", [])) if final else ()
    return Challenge(
        problem.id,
        problem.text,
        entry_point=data.get("entry_point", ""),
        examples=examples,
        tests=tests or examples,
        prelude=hidden.get("prelude", ""),
        names=tuple(hidden.get("names", ())),
        reference=Reference(**data.get("reference", {})),
    )


# ---------------------------------------------------------------- problems as others see them


@cache
def problem_of(challenge: Challenge) -> Problem:
    """Return a challenge as a problem: tests and solutions are in its hidden part alone."""
    data: dict[str, JSON] = {
        **target_data(challenge),
        "reference": asdict(challenge.reference),
    }
    hidden = {
        "tests": [test.to_json() for test in challenge.tests],
        "prelude": challenge.prelude,
        "names": list(challenge.names),
    }
    return Problem(challenge.id, text_of(challenge), data, challenge.category, hidden)


def text_of(challenge: Challenge) -> str:
    """Return what is asked, the function's first line, and the examples."""
    parts = [challenge.text.strip()]
    if header := _header(challenge):
        parts.append(f"Write the function `{header}`.")
    if challenge.examples:
        rows = "\n".join(f"    {example.text}" for example in challenge.examples)
        parts.append(f"Examples:\n\n{rows}")
    return "\n\n".join(parts) + "\n"


def _header(challenge: Challenge) -> str:
    try:
        tree = ast.parse(challenge.solution)
    except (SyntaxError, ValueError):
        return challenge.entry_point
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == challenge.entry_point:
            gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            return f"def {node.name}({ast.unparse(node.args)}){gives}"
    return challenge.entry_point
