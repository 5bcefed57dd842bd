"""The task `jsonl`: questions and answers from a file of your own, and a check of the answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from attrs import Attribute, field, frozen

from orchestrion import (
    Calls,
    Episode,
    Meta,
    OpenContext,
    Output,
    Problem,
    RewardFunction,
    RunError,
    Scores,
    Split,
    SplitShares,
    Task,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    answering,
    ceiling_of,
    did_you_mean,
    refuse_idle,
    splits_of,
)
from orchestrion_jsonl.checks import (
    NAMES,
    WITH_TOLERANCE,
    Check,
    any_decimal,
    check_expected,
    compiled,
    make_check,
    texts,
)
from orchestrion_jsonl.rows import TABLES, Numeral, Row, form_of, read_rows, with_numbers

SHOWN = 10
"""The most wrong rows that an error lists."""
JUDGE = "judge"
"""The check that uses the setting of the same name."""
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@frozen
class Jsonl:
    """Questions from a file, each with an answer that a check compares.

    The last completed turn that says something is judged, or the last such turn of a `solver`,
    whatever any agent claims. The answer is hidden from agents and policies, and so are all other
    columns except for those of the question, the category and `show`.

    Args:
        file: JSON lines, JSON (a list of objects), CSV or TSV, each also as .gz.
        rows: the rows themselves, instead of a file.
        question: the column with the question; several columns are shown with their names.
        answer: the column with the expected answer; a list holds several accepted ones. A cell of
            CSV is a list if it is one of JSON; a text of JSON or YAML never is.
        check: `exact`, `contains`, `regex` (the answer column holds patterns), `number`, `json`
            (each field counts), `judge`, or a function of your own as `module:function`, called
            with the answer, the expected one and the row (its hidden columns, those of `show`,
            the category, and `question`); it returns True or False, or 0 to 1.
        judge: the reward that judges, for `check: judge`, such as `llm-judge`. For every verdict
            it gets the question, the expected answer and the given one.
        ignore_case: whether `exact`, `contains` and `regex` ignore upper and lower case.
        tolerance: the largest difference of numbers that count as equal.
        extract: a pattern; its last match in the turn is the answer, or that match's first group.
        category: the column with the kind of question, for policies and reports.
        show: columns that agents and policies see as data.
        id: the column with a name for each row; by default their numbers.
        splits: the column with `train`, `validation` or `test`.
        split: without such a column, the shares of the rows and a `seed`; equal questions stay
            together.
        solver: the agent, or a list of agents, of which the last completed turn is judged.
    """

    file: Path | None = None
    rows: list[dict[str, Any]] = field(factory=list)
    question: str | list[str] = "question"
    answer: str = "answer"
    check: str = field(default="exact")
    ignore_case: bool = False
    tolerance: Annotated[float, Meta(ge=0)] = 0.0
    extract: str | None = field(default=None)
    category: str | None = None
    show: list[str] = field(factory=list)
    id: str | None = None
    splits: str | None = None
    split: SplitShares = SplitShares()
    solver: str | list[str] | None = None
    judge: RewardFunction | None = None

    @check.validator
    def _check_name(self, attribute: Attribute[Any], value: str) -> None:
        names = (*NAMES, JUDGE)
        if value not in names and ":" not in value:
            near = did_you_mean(value, names)
            raise ValueError(
                f"no check {value!r}: use {', '.join(names)}, or module:function{near}"
            )

    @extract.validator
    def _check_pattern(self, attribute: Attribute[Any], value: str | None) -> None:
        if value is not None:
            compiled(value)

    def __attrs_post_init__(self) -> None:
        if (self.file is None) == (not self.rows):
            raise ValueError("give either `file` or `rows`")
        if not self.questions:
            raise ValueError("question: name at least one column")
        if self.answer in {*self.questions, *self.show, self.category, self.id}:
            raise ValueError(
                f"answer: the column {self.answer!r} is also one that agents see; name another"
            )
        if (self.check == JUDGE) != (self.judge is not None):
            raise ValueError("`check: judge` and `judge: {use: llm-judge, ...}` need each other")
        if self.splits is not None:
            refuse_idle(self, ("split",), "with `splits`")
        idle = [] if self.check in WITH_TOLERANCE else ["tolerance"]
        if self.check in WITH_TOLERANCE or self.check not in NAMES:
            idle.append("ignore_case")
        refuse_idle(self, idle, f"with `check: {self.check}`")

    @property
    def questions(self) -> list[str]:
        """The columns with the question."""
        return [self.question] if isinstance(self.question, str) else self.question

    @property
    def solvers(self) -> list[str]:
        """The agents whose turns are judged; none stands for all."""
        return [self.solver] if isinstance(self.solver, str) else self.solver or []

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Yield the task; rows are read on first use, so that serving a team needs no file.

        Raises:
            UsageError: `solver` is no agent of the team, or the check cannot be loaded.
        """
        team = [member.name for member in ctx.roster]
        for name in self.solvers if team else ():
            if name not in team:
                near = did_you_mean(name, team)
                raise UsageError(f"{ctx.path}.solver: no agent {name!r} in the team{near}")
        check = None
        if self.check != JUDGE:
            check = make_check(self.check, self.ignore_case, self.tolerance, f"{ctx.path}.check")
        yield RunningJsonl(self, check)

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split."""
        return divided(self)[split]


class RunningJsonl(Task):
    """An opened `jsonl` task: the check, and the problems by split once they are read."""

    def __init__(self, settings: Jsonl, check: Check | None) -> None:
        self.settings, self.check = settings, check
        self._extract = None if settings.extract is None else compiled(settings.extract)

    @cached_property
    def _problems(self) -> Mapping[Split, Sequence[Problem]]:
        return divided(self.settings)

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split.

        Raises:
            UsageError: the file or a row is wrong.
        """
        return self._problems[split]

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return the result of the check; a problem is solved if it is 1."""
        answer = self._answer(trajectory)
        hidden = problem.hidden
        if answer is None or not isinstance(hidden, dict) or "expected" not in hidden:
            return Scores(0.0)
        if self.check is None:
            return await self._judge_scores(problem, hidden["expected"], answer, calls)
        row = {**hidden["row"], **(problem.data or {}), "question": problem.text}
        value = self.check(answer, hidden["expected"], row)
        checks = {} if value else {"answer": f"got {answer!r:.80}, want {hidden['expected']!r:.80}"}
        return Scores(value, value == 1.0, checks=checks)

    async def _judge_scores(
        self, problem: Problem, expected: Any, answer: str, calls: Calls
    ) -> Scores:
        """Return the judge's verdict.

        Raises:
            CallError: a call of the judge failed.
            RunError: it gave no verdict, or one that is not from 0 to 1; the episode fails.
        """
        assert self.settings.judge is not None
        shown = Problem(problem.id, problem.text + _reference(expected), category=problem.category)
        turn = Turn(0, "answer", output=Output(answer))
        episode = Episode(f"check-{problem.id}", shown, Trajectory([turn]))
        reward = await self.settings.judge.score(episode, calls)
        if reward is None:
            raise RunError("judge: gave no verdict that can be read")
        if not 0 <= reward.total <= 1:
            raise RunError(f"judge: gave {reward.total:g}; want a reward from 0 to 1")
        return Scores(reward.total, reward.total == 1.0)

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that a verdict takes: nothing without a judge."""
        if self.settings.judge is None:
            return Usage()
        hidden: list[Any] = [p.hidden for problems in self._problems.values() for p in problems]
        longest = max(len(_reference(row["expected"]).encode()) for row in hidden)
        return ceiling_of(self.settings.judge, tokens + longest)

    def answering(self, turns: Iterable[Turn]) -> Turn | None:
        """Return the last turn that says something, of a `solver` if there are any."""
        solvers = self.settings.solvers
        return answering(turn for turn in turns if not solvers or turn.agent in solvers)

    def _answer(self, trajectory: Trajectory) -> str | None:
        """Return the text to judge; None if there is none."""
        turn = self.answering(trajectory.backward())
        return None if turn is None else self._extracted(turn.output.content.strip()) or None

    def _extracted(self, text: str) -> str | None:
        if self._extract is None:
            return text
        matches = list(self._extract.finditer(text))
        if not matches:
            return None
        match = matches[-1].group(1 if self._extract.groups else 0)
        return None if match is None else match.strip()


def _reference(expected: Any) -> str:
    """Return the text for a judge after the question; its bytes bound its tokens."""
    return "\n\nA right answer is:\n" + "\nor\n".join(texts(expected))


def divided(settings: Jsonl) -> dict[Split, tuple[Problem, ...]]:
    """Return all problems by split.

    Raises:
        UsageError: a row is wrong, two rows have the same name, or there are no rows.
    """
    rows: list[tuple[Split | None, Problem]] = []
    wrong: list[str] = []
    places: dict[str, str] = {}
    for number, (place, row) in enumerate(_rows(settings), 1):
        if number == 1:
            _check_columns(settings, place, row)
        try:
            split, problem = _problem(settings, row, number)
            if problem.id in places:
                raise ValueError(f"has the same name as {places[problem.id]}: {problem.id!r}")
        except ValueError as error:
            wrong.append(f"{place}: {error}")
        except RecursionError:
            wrong.append(f"{place}: is nested too deep")
        else:
            places[problem.id] = place
            rows.append((split, problem))
    source = settings.file or "rows"
    if wrong:
        more = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise UsageError(
            "\n  ".join([f"{source}: rows that are wrong: {len(wrong)}", *wrong[:SHOWN]]) + more
        )
    if not places:
        raise UsageError(f"{source}: has no rows")
    shared = splits_of((problem.text for _, problem in rows), settings.split)
    problems: dict[Split, list[Problem]] = {split: [] for split in SPLITS}
    for named, problem in rows:
        problems[named or shared[problem.text]].append(problem)
    return {split: tuple(group) for split, group in problems.items()}


def _check_columns(settings: Jsonl, place: str, row: Row) -> None:
    """Raise UsageError with all columns that the first row lacks."""
    named = [("question", column) for column in settings.questions]
    named += [("show", column) for column in settings.show]
    for name in ("answer", "category", "id", "splits"):
        if (column := getattr(settings, name)) is not None:
            named.append((name, column))
    columns = ", ".join(map(repr, row)) or "none"
    missing = [
        f"no column {column!r}, which `{setting}` names{did_you_mean(column, list(row))}"
        for setting, column in named
        if column not in row
    ]
    if missing:
        if settings.file is not None and form_of(settings.file) in TABLES:
            place = f"{settings.file}:1"  # the header
        raise UsageError(f"{place}: {'; '.join(missing)}; the columns are {columns}")


def _rows(settings: Jsonl) -> Iterator[tuple[str, Row]]:
    if settings.file is not None:
        return read_rows(settings.file)
    return ((f"rows, element {number}", row) for number, row in enumerate(settings.rows, 1))


def _problem(settings: Jsonl, row: Row, number: int) -> tuple[Split | None, Problem]:
    """Return a row as a problem, and the split that it names; raise ValueError if it is wrong."""
    question = _question(row, settings.question)
    expected = _expected(row, settings)
    name = f"row-{number}" if settings.id is None else _text(row, settings.id)
    category = "" if settings.category is None else _text(row, settings.category)
    split = None
    if settings.splits is not None:
        named = _text(row, settings.splits)
        if named not in SPLITS:
            raise ValueError(f"column {settings.splits!r}: {named!r}; want {', '.join(SPLITS)}")
        split = named
    data = {column: with_numbers(_value(row, column), float) for column in settings.show} or None
    public = {*settings.questions, *settings.show, settings.id}
    rest = {
        column: with_numbers(value, float) for column, value in row.items() if column not in public
    }
    hidden = {"expected": expected, "row": rest}
    return split, Problem(name, question, data=data, category=category, hidden=hidden)


def _question(row: Row, columns: str | list[str]) -> str:
    if isinstance(columns, str):
        return _text(row, columns)
    return "\n".join(f"{column}: {_text(row, column)}" for column in columns)


def _expected(row: Row, settings: Jsonl) -> Any:
    expected = _value(row, settings.answer)
    if expected is None:
        raise ValueError(f"column {settings.answer!r}: is empty")
    in_table = settings.file is not None and form_of(settings.file) in TABLES
    if in_table and expected.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):  # a text may begin with a bracket
            expected = json.loads(expected, parse_float=Numeral)
    expected = _with_digits(expected, settings.check)
    try:
        check_expected(settings.check, expected)
    except ValueError as error:
        raise ValueError(f"column {settings.answer!r}: {error}") from None
    return expected


def _with_digits(expected: Any, check: str) -> Any:
    """Return what a row expects with its numbers as the check needs them."""
    if check == "json":
        return with_numbers(expected, any_decimal)
    if ":" in check:
        return with_numbers(expected, float)
    if isinstance(expected, list):
        return [_with_digits(item, check) for item in expected]
    return str(expected) if isinstance(expected, Numeral) else with_numbers(expected, float)


def _text(row: Row, column: str) -> str:
    value = _value(row, column)
    if value is None:
        raise ValueError(f"column {column!r} is empty")
    text = str(value) if isinstance(value, str) else json.dumps(with_numbers(value, float))
    if not text.strip():
        raise ValueError(f"column {column!r} is empty")
    return text


def _value(row: Row, column: str) -> Any:
    if column not in row:
        near = did_you_mean(column, list(row))
        columns = ", ".join(map(repr, row)) or "none"
        raise ValueError(f"no column {column!r}{near}; there are {columns}")
    return row[column]
