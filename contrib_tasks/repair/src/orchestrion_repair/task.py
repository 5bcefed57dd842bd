"""The repair task: a buggy function, visible tests to work with, hidden tests to be judged by."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attrs import Factory, asdict, evolve, frozen
from orchestrion_sandbox import Sandbox

from orchestrion import (
    JSON,
    Calls,
    Key,
    Meta,
    Observation,
    OpenContext,
    Problem,
    Scores,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    UsageError,
    learnable,
    no_calls,
)
from orchestrion_repair import suite
from orchestrion_repair.bug import Bug
from orchestrion_repair.features import features, hints
from orchestrion_repair.runner import LEVEL, Runner, shared_runner
from orchestrion_repair.state import (
    RepairState,
    Skills,
    after,
    blocked,
    digest_of,
    ranking_of,
    skills_of,
    target_of,
    testers_of,
)
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits

if TYPE_CHECKING:
    from orchestrion_repair.learned import EditModel, Ranked


BUILTIN = "builtin"
SHOWN = 100
"""How many lines say what was left out of a suite."""


@frozen
class Repair:
    """Buggy Python functions with tests.

    The verifier is the sandbox's judge. It has the final program run on the visible and the hidden
    tests, forwards in one process and backwards in another; neither ever holds a wanted value.
    `parts` say which share of the tests passed, and which share was judged outside the program's
    process. What agents claim does not matter.

    Args:
        suite: `builtin`, or a folder or file of problems (see the README for the forms).
        fractions: shares of the splits for problems without one of their own; by default all of
            them are in `test`.
        max_problems: at most so many problems a split, evenly spread.
        train_problems: at most so many in the split `train`, instead of `max_problems`.
        stop_when_passing: end the episode when an agent's program passes all visible tests.
        steps: loop rounds and calls after which a test counts as failed.
        cpu_seconds: of one program; far above any honest run.
        memory_mb: address space of one program.
        sandbox: where programs run; without one, the best that works here and holds `level`.
        level: the least the sandbox has to hold: 2 barred system calls and files, 3 a view of the
            machine with nothing in it.
        ranking: how edits are ranked: "" for the untrained way, or what the trainer `edit-ranking`
            learned, as it keeps it.
    """

    suite: str = BUILTIN
    fractions: Mapping[Split, float] = Factory(dict)
    max_problems: Annotated[int, Meta(ge=1)] | None = None
    train_problems: Annotated[int, Meta(ge=1)] | None = None
    stop_when_passing: bool = True
    steps: Annotated[int, Meta(ge=100)] = 200_000
    cpu_seconds: Annotated[int, Meta(ge=1)] = 2
    memory_mb: Annotated[int, Meta(ge=64)] = 512
    sandbox: Sandbox | None = None
    level: Annotated[int, Meta(ge=LEVEL, le=3)] = LEVEL
    ranking: str = learnable("")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[RunningRepair]:
        """Yield the task with its problems read and its runner ready."""
        async with shared_runner(self.sandbox, self.level) as runner:
            backend, level = await runner.where()
            ctx.note("sandbox", f"{backend} (level {level})")
            bugs, model = await self._usable(runner), self._model(ctx.path)
            skills, testers = skills_of(ctx.roster), testers_of(ctx.roster)
            yield RunningRepair(self, bugs, runner, skills, testers, model)

    def _model(self, path: str) -> EditModel | None:
        """Return the learned ranking of edits, if there is one."""
        if not self.ranking:
            return None
        from orchestrion_repair.learned import EditModel

        try:
            return EditModel.from_text(self.ranking)
        except ValueError as error:
            raise UsageError(f"{path}.ranking: is no ranking of edits: {error}") from None

    async def _usable(self, runner: Runner) -> tuple[Bug, ...]:
        """Return the bugs that can be mended under the limits; warn of each that cannot."""
        if self.suite == BUILTIN:  # whose every program and solution is run in its tests
            return suite.bugs()
        from structlog import get_logger

        from orchestrion_repair.checking import checked
        from orchestrion_repair.loaders import load_path

        loaded = load_path(Path(self.suite), self.fractions)
        usable = await checked(loaded, runner, self.limits)
        for line in usable.skipped[:SHOWN]:
            get_logger().warning(f"{self.suite}: left out: {line}")
        if len(usable.skipped) > SHOWN:
            get_logger().warning(f"{self.suite}: {len(usable.skipped) - SHOWN} more left out")
        if not usable.bugs:
            raise UsageError(f"{self.suite}: no problem can be used: {usable.skipped[0]}")
        return usable.bugs

    @property
    def limits(self) -> RepairLimits:
        """Return how far one program may go."""
        return RepairLimits(self.steps, self.cpu_seconds, self.memory_mb)


@frozen(eq=False)
class RunningRepair(Task):
    """An opened repair task."""

    ceiling = no_calls

    settings: Repair
    bugs: tuple[Bug, ...]
    runner: Runner
    skills: Skills = ()
    testers: tuple[str, ...] = ()
    model: EditModel | None = None

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split, in a fixed order."""
        bugs = [bug for bug in self.bugs if bug.split == split]
        limit = self.settings.max_problems or len(bugs)
        if split == "train":
            limit = self.settings.train_problems or limit
        count = min(limit, len(bugs))
        return [self.problem_of(bugs[i * len(bugs) // count]) for i in range(count)]

    def problem_of(self, bug: Bug) -> Problem:
        data: dict[str, JSON] = {
            "code": bug.code,
            "entry_point": bug.entry_point,
            "prelude": bug.prelude,
            "visible": [case.to_json() for case in bug.visible],
            "limits": asdict(self.settings.limits),
        }
        hidden: dict[str, JSON] = {"cases": [case.to_json() for case in bug.hidden]}
        if bug.split == "train":  # for trainers; nobody else needs it
            hidden["repair"] = bug.solution
        return Problem(bug.id, problem_text(data), data, bug.category, hidden)

    def problem_from(self, text: str) -> Problem:
        """Return a problem from a path, a line of JSON, or a source with asserts or doctests."""
        from orchestrion_repair.loaders import bug_from_text

        return self.problem_of(bug_from_text(text))

    # ------------------------------------------------------------ the environment

    def start(self, problem: Problem, key: Key) -> Step:
        """Return a state in which only the program and its visible tests are known."""
        data = problem.data
        state = RepairState(
            target_of(data),
            data["code"],
            skills=self.skills,
            testers=self.testers,
            model=self.model,
        )
        return Step(state, observed(state))

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        """Return what the turn showed; the end, if its program passes all visible tests."""
        new = after(state, turn)
        done = new.fixed and self.settings.stop_when_passing
        return Step(new, observed(new), done)

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
        """Return 1 if all tests pass, else 0; before the end, the share of visible ones that do."""
        data = problem.data
        code = state.code if isinstance(state, RepairState) else data["code"]
        visible, hidden = data["visible"], (problem.hidden or {}).get("cases", [])
        outcomes = await _outcomes(self.runner, code, data, [*visible, *(hidden if final else ())])
        shown = outcomes[: len(visible)]
        if not final:
            return Scores(_share(shown), parts={"visible": _share(shown)})
        success = bool(outcomes) and all(outcome.passed for outcome in outcomes)
        judged = outcomes[len(visible) :]
        parts = {
            "visible": _share(shown),
            "hidden": _share(judged),
            "judged_outside": _mean([outcome.apart for outcome in outcomes]),
        }
        names = [f"visible test {i + 1}" for i in range(len(shown))]
        names += [f"hidden test {i + 1}" for i in range(len(judged))]
        verdicts = ("passed" if o.passed else o.error or "wrong value" for o in outcomes)
        return Scores(float(success), success, parts, dict(zip(names, verdicts, strict=True)))


async def _outcomes(
    runner: Runner, code: str, data: Mapping[str, Any], cases: Sequence[Mapping[str, JSON]]
) -> tuple[Outcome, ...]:
    """Judge the cases forwards and, if all pass, backwards.

    A program that is right only at first, or only after certain other calls, is not right.
    """
    limits = RepairLimits(**data["limits"])
    trial = ProgramTrial(code, data["entry_point"], tuple(cases), data.get("prelude", ""))
    forwards = await runner.judge(trial, limits)
    if not all(outcome.passed for outcome in forwards):
        return forwards
    return (await runner.judge(evolve(trial, cases=trial.cases[::-1]), limits))[::-1]


def observed(state: RepairState) -> Observation:
    """Return what a state shows to people, to agents that work on it, and to learned policies."""
    ranked = ranking_of(state)
    data: dict[str, JSON] = {
        "code": state.code,
        "on": digest_of(state.code),
        "entry_point": state.target.entry_point,
        "prelude": state.target.prelude,
        "arguments": list(state.target.arguments),
        "visible": list(state.target.visible),
        "limits": dict(state.target.limits),
        "results": list(state.results) if state.results is not None else None,
        "regions": {name: list(numbers) for name, numbers in ranked.regions.items()},
        "tried": sorted(state.tried),
        "order": ranked.numbers.tolist(),
    }
    passed = [result["passed"] for result in state.results or ()]
    return Observation(
        observation_text(state, ranked),
        data,
        features(state),
        blocked(state),
        _mean(passed) if passed else None,
        hints(state),
    )


def _share(outcomes: Sequence[Outcome]) -> float:
    return _mean([outcome.passed for outcome in outcomes])


def _mean(truths: Sequence[bool]) -> float:
    return sum(truths) / len(truths) if truths else 0.0


# ---------------------------------------------------------------- what is shown as text


WIDE = 100


def problem_text(data: Mapping[str, Any]) -> str:
    """Return the program and its visible tests."""
    tests = "\n".join(f"  {_case(data['entry_point'], case)}" for case in data["visible"])
    return (
        f"`{data['entry_point']}` is wrong: some of its tests fail. Find the edit that makes all "
        f"of them pass, and others like them.\n\n{data['code'].rstrip()}\n\nTests:\n{tests}\n"
    )


def observation_text(state: RepairState, ranked: Ranked) -> str:
    """Return the current program with the most suspicious lines marked, and its known results."""
    marks = dict.fromkeys(ranked.regions["top"], ">>")
    marks |= dict.fromkeys(ranked.regions["next"], " >")
    known = state.suspicion is not None or bool(state.boosts)
    rows = [
        f"{marks.get(number, '') if known else '':2} {number:3} {row}"
        for number, row in enumerate(state.code.splitlines(), start=1)
    ]
    return "\n".join([*rows, "", *_results(state)])


def _results(state: RepairState) -> list[str]:
    entry, cases = state.target.entry_point, state.target.visible
    if state.results is not None:
        return [_row(entry, *pair) for pair in zip(cases, state.results, strict=True)]
    if not state.last:
        return ["Tests: not run yet."]
    last = [(number, result) for number, result in state.last if number < len(cases)]
    rows = [_row(entry, cases[number], result) for number, result in last]
    return ["Tests: run on edits of this program only; the last edit gave:", *rows]


def _row(entry_point: str, case: Mapping[str, JSON], result: Mapping[str, Any]) -> str:
    if result["passed"]:
        return f"pass  {_case(entry_point, case)}"
    raised = result["error"] and result["got"] is None
    what = result["error"] if raised else f"got {_cut(repr(result['got']))}"
    return f"FAIL  {_case(entry_point, case)}: {what}"


def _case(entry_point: str, case: Mapping[str, JSON]) -> str:
    if "call" not in case:
        return _cut(case["assert"])
    arguments = ", ".join(map(repr, case["call"]))
    return _cut(f"{entry_point}({arguments}) == {case['want']!r}")


def _cut(text: str) -> str:
    return text if len(text) <= WIDE else text[: WIDE - 3] + "..."
