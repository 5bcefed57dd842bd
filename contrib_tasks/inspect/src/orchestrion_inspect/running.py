"""An opened task `inspect`: samples as problems, and verdicts by Inspect's own scorers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from copy import deepcopy
from typing import Any

from attrs import define, field
from inspect_ai import Task as Evaluation
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessage, ChatMessageUser, ModelName, ModelOutput
from inspect_ai.scorer import INCORRECT, NOANSWER, Score, Scorer, Target, value_to_float
from inspect_ai.solver import TaskState, chain
from inspect_ai.util import registry_create, registry_info

from orchestrion import (
    JSON,
    CallError,
    Calls,
    Key,
    Problem,
    RunError,
    Scores,
    Split,
    Task,
    Trajectory,
    Usage,
    UsageError,
    answering,
    load_function,
    splits_of,
)
from orchestrion_inspect.grading import AskedError, grading, nobody
from orchestrion_inspect.task import Inspect

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
TEAM = ModelName("orchestrion/team")


class _QuestionError(Exception):
    """Raised to leave a solver once it has asked its question."""


@define
class _Team:
    """The function that Inspect calls `generate`: gives the team's answer to a solver.

    Args:
        answer: of the team; None to leave the solver once it has asked its question.
        questions: the messages of each question.
    """

    answer: str | None
    questions: list[list[tuple[str, str]]] = field(factory=list)

    async def __call__(self, state: TaskState, *args: Any, **kwargs: Any) -> TaskState:
        self.questions.append([(message.role, message.text) for message in state.messages])
        if len(self.questions) > 1:
            raise RunError(
                "the solver asks a second time, and a team answers once; evaluate it with Inspect "
                "itself, or leave the second question out of it"
            )
        if self.answer is None:
            raise _QuestionError
        _say(state, self.answer)
        return state


class RunningInspect(Task):
    """An opened task: its samples by problem, and its scorers by name."""

    def __init__(self, settings: Inspect, where: str) -> None:
        self.settings = settings
        evaluation = _evaluation(settings, where)
        self.scorers = _scorers(evaluation, settings, where)
        steps: Any = (evaluation.setup, evaluation.solver)
        self.solvers = [chain(step) for step in steps if step is not None]
        samples = list(evaluation.dataset)[: settings.limit]
        self.samples: dict[str, Sample] = {}
        for number, sample in enumerate(samples, 1):
            name = str(number if sample.id is None else sample.id)
            if name in self.samples:
                raise UsageError(f"{where}: two samples have the id {name!r}")
            self.samples[name] = sample
        if not samples:
            raise UsageError(f"{where}: {settings.evaluation} has no samples")
        _check_samples(self.samples, evaluation, where)
        self._problems: dict[Split, list[Problem]] = {split: [] for split in SPLITS}

    @classmethod
    async def loaded(cls, settings: Inspect, where: str) -> RunningInspect:
        """Return the task with its questions written.

        Raises:
            UsageError: a solver failed.
        """
        running = cls(settings, where)
        inputs = (str(sample.input) for sample in running.samples.values())
        splits = splits_of(inputs, settings.split)
        for name, sample in running.samples.items():
            try:
                question = await _apart(running._messages_for(sample))
            except Exception as error:  # whatever a solver raises
                raise UsageError(
                    f"{where}: the solver of {settings.evaluation} failed on the sample {name!r}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            text = _question(question)
            choices: list[JSON] = list(sample.choices or ())
            data: JSON = {"choices": choices} if choices else None
            target: JSON = sample.target if isinstance(sample.target, str) else [*sample.target]
            running._problems[splits[str(sample.input)]].append(
                Problem(name, text, data=data, hidden=target)
            )
        return running

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split."""
        return self._problems[split]

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that a verdict takes: nothing without a grader; unknown with one."""
        return Usage() if self.settings.model is None else None

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return the scorers' verdict on the last turn that says something; 0 for free input.

        Raises:
            CallError: a call of the grader failed.
            RunError: a scorer failed, or its score is not one number from 0 to 1.
        """
        turn = answering(trajectory.backward())
        if turn is None or problem.hidden is None:
            return Scores(0.0)
        scores = await _apart(self._scores(problem, turn.output.content, calls))
        first = next(iter(scores.values()))
        return Scores(first, first == 1.0, scores if len(scores) > 1 else {})

    async def _messages_for(self, sample: Sample) -> list[tuple[str, str]]:
        """Return the messages that the solver would send to a model, or the sample's own."""
        nobody()
        team, state = _Team(None), _begun(sample)
        with suppress(_QuestionError, AskedError):
            await self._solved(state, team)
        if team.questions:
            return team.questions[0]
        return [(message.role, message.text) for message in _begun(sample).messages]

    async def _solved(self, state: TaskState, team: _Team) -> TaskState:
        for solver in self.solvers:
            state = await solver(state, team)
        return state

    async def _state_with(self, problem: Problem, answer: str) -> TaskState:
        """Return the state of a sample in which the team has given its answer."""
        nobody()
        sample = self.samples[problem.id]
        team = _Team(answer)
        try:
            state = await self._solved(_begun(sample), team)
        except AskedError:
            team.questions.clear()
        if not team.questions:
            state = _begun(sample)
            _say(state, answer)
        elif _question(team.questions[0]) != problem.text:
            raise RunError(
                f"the solver of {self.settings.evaluation} asks another question each time, such "
                "as choices in a random order; shuffle the data set with a seed instead"
            )
        state.completed = True
        return state

    async def _scores(self, problem: Problem, answer: str, calls: Calls) -> dict[str, float]:
        state = await self._state_with(problem, answer)
        target = Target(self.samples[problem.id].target)
        scores = {}
        for name, scorer in self.scorers.items():
            key = Key().child("inspect", problem.id, name)
            with grading(self.settings.model, calls, key):
                try:
                    score = await scorer(deepcopy(state), target)
                except (CallError, RunError):
                    raise
                except Exception as error:  # whatever a scorer raises
                    raise RunError(
                        f"the scorer {name} failed on the sample {problem.id!r}: "
                        f"{type(error).__name__}: {error}"
                    ) from error
            value = _number(score, name)
            scores[name] = 0.0 if value is None else value
            if value is None:
                scores[f"{name}.withheld"] = 1.0
        return scores


def _evaluation(settings: Inspect, where: str) -> Evaluation:
    """Return the Inspect task; raise UsageError if there is none."""
    name = settings.evaluation
    try:
        if ":" in name:
            evaluation: Any = load_function(name, f"{where}.evaluation")(**settings.args)
        else:
            evaluation = registry_create("task", name, **settings.args)
    except UsageError:
        raise
    except Exception as error:  # whatever an evaluation raises, e.g. when its data is not there
        raise UsageError(
            f"{where}: cannot load {name!r}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(evaluation, Evaluation):
        raise UsageError(f"{where}: {name!r} is {evaluation!r:.80}, not a task of Inspect")
    return evaluation


def _scorers(evaluation: Evaluation, settings: Inspect, where: str) -> dict[str, Scorer]:
    """Return the scorers by name; raise UsageError if one asks a model of its own."""
    scorers: dict[str, Scorer] = {}
    for scorer in evaluation.scorer or ():
        info = registry_info(scorer)
        name = info.name.rpartition("/")[2]
        given = getattr(scorer, "__registry_params__", {}).get("model")
        if given is not None:
            raise UsageError(
                f"{where}: the scorer {name} asks the model {given} past the run's budget and "
                "record; leave its `model` out, and set `model` of this task"
            )
        if name.startswith("model_graded") and settings.model is None:
            raise UsageError(f"{where}: the scorer {name} asks a model; set `model`")
        scorers[f"{name}{len(scorers) + 1}" if name in scorers else name] = scorer
    if not scorers:
        raise UsageError(f"{where}: {settings.evaluation} has no scorer")
    return scorers


def _check_samples(samples: Mapping[str, Sample], evaluation: Evaluation, where: str) -> None:
    """Raise UsageError for a sample that an answer in text cannot solve."""
    for name, sample in samples.items():
        if evaluation.sandbox or sample.sandbox or sample.files or sample.setup:
            raise UsageError(
                f"{where}: the sample {name!r} needs a sandbox, which a team's answer has not; "
                "evaluate with Inspect itself"
            )
        for message in [] if isinstance(sample.input, str) else sample.input:
            parts = [] if isinstance(message.content, str) else message.content
            if any(part.type != "text" for part in parts):
                raise UsageError(f"{where}: the sample {name!r} shows more than text")


def _begun(sample: Sample) -> TaskState:
    """Return the initial state of a sample, as Inspect makes it."""
    given = sample.input
    messages: list[ChatMessage] = (
        [ChatMessageUser(content=given)] if isinstance(given, str) else deepcopy(given)
    )
    return TaskState(
        model=TEAM,
        sample_id=0 if sample.id is None else sample.id,
        epoch=1,
        input=given,
        messages=messages,
        target=Target(sample.target),
        choices=sample.choices,
        metadata=deepcopy(sample.metadata or {}),
    )


def _say(state: TaskState, answer: str) -> None:
    """Add an answer to a state as if a model had given it."""
    state.output = ModelOutput.from_content("orchestrion", answer)
    state.messages.append(state.output.message)


def _question(messages: Sequence[tuple[str, str]]) -> str:
    """Return messages as one text, without the role if there is only one."""
    if len(messages) == 1:
        return messages[0][1]
    return "\n\n".join(text if role == "system" else f"{role}: {text}" for role, text in messages)


def _number(score: Score | None, name: str) -> float | None:
    """Return a score as a number; None for a withheld one, for which Inspect writes NaN.

    Raises:
        RunError: it is not a number from 0 to 1, nor a known grade.
    """
    if score is None:
        return None
    if isinstance(score.value, str | bool | int | float):
        value = float(value_to_float()(score.value))
        if math.isnan(value):
            return None
        if value == 0.0 and isinstance(score.value, str) and not _says_zero(score.value):
            raise RunError(
                f"the scorer {name} gave {score.value!r:.80}, which is no grade of Inspect; want "
                "C, P, I, N, yes, no or a number from 0 to 1"
            )
        if 0 <= value <= 1:
            return value
    raise RunError(f"the scorer {name} gave {score.value!r:.80}; want one number from 0 to 1")


def _says_zero(grade: str) -> bool:
    """Return whether a grade that Inspect reads as 0 means it: what it cannot read is 0 too."""
    try:
        return float(grade) == 0.0
    except ValueError:
        return grade in (INCORRECT, NOANSWER) or grade.lower() in ("no", "false")


async def _apart(work: Any) -> Any:
    """Await work in a separate context, to which Inspect's settings of a verdict are limited."""
    return await asyncio.get_running_loop().create_task(work, context=copy_context())
