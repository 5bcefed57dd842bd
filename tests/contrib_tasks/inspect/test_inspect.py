"""The task `inspect` asks what Inspect asks, and judges an answer as Inspect judges it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import warnings
from collections.abc import Iterator
from typing import Any, get_args

import inspect_ai
import pytest
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import (
    Score,
    Target,
    accuracy,
    choice,
    exact,
    f1,
    includes,
    match,
    model_graded_qa,
    scorer,
    value_to_float,
)
from inspect_ai.solver import (
    Generate,
    TaskState,
    generate,
    multiple_choice,
    prompt_template,
    solver,
    system_message,
)
from orchestrion_inspect.task import Inspect

from orchestrion import Key, OpenContext, Output, RunError, Scores, Split, Task, Trajectory, Turn
from orchestrion.testing import ScriptedModel


@pytest.fixture(autouse=True, scope="module")
def logging_as_it_was() -> Iterator[None]:
    """Undo what an evaluation does to the root logger, which other tests listen to."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers = handlers


@inspect_ai.task
def numbers() -> inspect_ai.Task:
    """Two samples, each with a prompt that the solver writes."""
    return inspect_ai.Task(
        [Sample("2 + 2?", target=["4", "four"]), Sample("3 * 3?", target="9")],
        solver=[
            system_message("You count."),
            prompt_template("{prompt} Say ANSWER last."),
            generate(),
        ],
        scorer=match(numeric=True),
    )


@inspect_ai.task
def letters() -> inspect_ai.Task:
    """Questions of which several answers may be right, and one that is."""
    return inspect_ai.Task(
        [
            Sample("Even?", choices=["1", "2", "4"], target=["B", "C"], id="even"),
            Sample("Prime?", choices=["4", "6", "7"], target="C", id="prime"),
        ],
        solver=multiple_choice(multiple_correct=True),
        scorer=choice(),
    )


@inspect_ai.task
def words() -> inspect_ai.Task:
    """A conversation whose last answer three scorers judge."""
    said: Any = [ChatMessageSystem(content="Be brief."), ChatMessageUser(content="Who wrote it?")]
    samples = [Sample(said, target="the old man"), Sample("Name a sea.", target="North Sea")]
    return inspect_ai.Task(samples, scorer=[f1(), includes(), exact()])


ANSWERS = ["It is 4.", "9", "ANSWER: C", "answer: (b) and c.", "the old man", "north sea!", ""]


def opened(evaluation: str, **config: Any) -> Task:
    settings = Inspect(f"{__name__}:{evaluation}", **config)

    async def main() -> Task:
        async with settings.open(OpenContext("task", Key(0))) as task:
            return task

    return asyncio.run(main())


def problems_of(task: Task) -> dict[str, Any]:
    return {p.id: p for split in get_args(Split) for p in task.problems(split)}


def verdict(task: Task, problem: Any, answer: str) -> Scores:
    trajectory = Trajectory([Turn(0, "a", output=Output(answer))])
    return asyncio.run(task.verify(problem, trajectory, None, final=True, calls=None))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return the samples that Inspect's own evaluation logs, each once with every answer."""
    tasks = {evaluation.__name__: evaluation() for evaluation in (numbers, letters, words)}
    for task in tasks.values():
        task.epochs = len(ANSWERS)
    turn = itertools.count()

    def say(*args: Any) -> ModelOutput:
        output = ModelOutput.from_content("mockllm", ANSWERS[next(turn) % len(ANSWERS)])
        output.usage = ModelUsage()  # else it counts tokens by a vocabulary from the network
        return output

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # Inspect leaves streams open
        # It imports the vendors' SDKs, for conversations that no sample here has.
        patch.setattr("inspect_ai._eval.task.run.init_sample_assistant_internal", lambda: None)
        # It asks of every distribution whether it has the task, and reads a list of models.
        patch.setattr("inspect_ai._eval.task.log.resolve_task_distribution", lambda name: None)
        patch.setattr("inspect_ai.model._model_info._model_info_cache", {})
        logs = inspect_ai.eval(
            list(tasks.values()),
            model=get_model("mockllm/model", custom_outputs=say, memoize=False),
            display="none",
            log_dir=str(tmp_path_factory.mktemp("logs")),
            log_level="error",
            max_samples=1,
            max_tasks=1,
            ctl_server=False,
        )
        gc.collect()
    return {log.eval.task.rpartition("/")[2]: log.samples or [] for log in logs}


@pytest.mark.parametrize("evaluation", ["numbers", "letters", "words"])
def test_questions_and_scores_are_those_of_inspect(
    evaluation: str, logged: dict[str, list[Any]]
) -> None:
    task = opened(evaluation)
    problems = problems_of(task)
    assert len(logged[evaluation]) == len(ANSWERS) * len(problems)
    values = set()
    for sample in logged[evaluation]:
        problem = problems[str(sample.id)]
        assert sample.messages[-2].text in problem.text  # what the model was asked last
        scores = verdict(task, problem, sample.output.completion)
        expected = {n: value_to_float()(s.value) for n, s in sample.scores.items()}
        first = next(iter(expected.values()))
        assert scores == Scores(first, first == 1, expected if len(expected) > 1 else {})
        values.add(first)
    assert {0.0, 1.0} <= values


def test_a_question_is_written_by_the_solver() -> None:
    assert problems_of(opened("numbers"))["1"].text == "You count.\n\nuser: 2 + 2? Say ANSWER last."
    even = problems_of(opened("letters"))["even"]
    assert even.text.endswith("Even?\n\nA) 1\nB) 2\nC) 4")
    assert even.data["choices"] == ("1", "2", "4") or even.data["choices"] == ["1", "2", "4"]
    assert even.public().hidden is None
    assert list(problems_of(opened("letters", limit=1))) == ["even"]


@solver
def asks_itself() -> Any:
    """A solver that asks the model past `generate`, as agents do."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output = await get_model().generate(state.messages)
        return state

    return solve


@inspect_ai.task
def agentic() -> inspect_ai.Task:
    return inspect_ai.Task([Sample("Go.", target="gone")], solver=asks_itself(), scorer=exact())


def test_a_solver_that_asks_models_itself_is_left_out() -> None:
    task = opened("agentic")
    problem = problems_of(task)["1"]
    assert problem.text == "Go."
    assert verdict(task, problem, "gone").success
    assert not verdict(task, problem, "stayed").success


@inspect_ai.task
def revised() -> inspect_ai.Task:
    steps = [generate(), prompt_template("Are you sure? {prompt}"), generate()]
    return inspect_ai.Task([Sample("Go.", target="gone")], solver=steps, scorer=exact())


def test_a_solver_that_asks_twice_is_not_given_one_answer_twice() -> None:
    task = opened("revised")
    with pytest.raises(RunError, match="asks a second time"):
        verdict(task, problems_of(task)["1"], "gone")


@inspect_ai.task
def essays(grader: str | None = None) -> inspect_ai.Task:
    return inspect_ai.Task(
        [Sample("Write.", target="a poem")],
        scorer=model_graded_qa(model=grader, partial_credit=True),
    )


@pytest.mark.parametrize(("grade", "value"), [("C", 1.0), ("P", 0.5), ("I", 0.0), ("?", 0.0)])
def test_a_scorer_that_grades_by_a_model_asks_the_one_that_is_given(
    grade: str, value: float
) -> None:
    model = ScriptedModel([f"GRADE: {grade}"])
    task = opened("essays", model=model)
    scores = verdict(task, problems_of(task)["1"], "Roses are red. GRADE: C")
    assert (scores.value, scores.success) == (value, value == 1)
    assert scores.parts.get("model_graded_qa.withheld", 0) == (grade == "?")
    (request,) = model.requests
    (message,) = request["messages"]
    assert "Roses are red" in message["content"]
    assert "a poem" in message["content"]


@scorer(metrics=[accuracy()])
def asks() -> Any:
    async def score(state: TaskState, target: Target) -> Score:
        await get_model().generate("Is it good?")
        return Score(value=1)

    return score


@scorer(metrics=[accuracy()])
def points(value: Any) -> Any:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=value)

    return score


@inspect_ai.task
def made(**settings: Any) -> inspect_ai.Task:
    sample = Sample("Write.", target="x", **settings.pop("sample", {}))
    scorers = {"asks": asks(), "points": points(7), "none": None, "text": points("excellent")}
    return inspect_ai.Task([sample], scorer=scorers[settings.pop("by", "asks")], **settings)


def listed() -> list[str]:
    return ANSWERS


@pytest.mark.parametrize(
    ("evaluation", "args", "message"),
    [
        ("essays", {}, "the scorer model_graded_qa asks a model; set `model`"),
        ("essays", {"grader": "mockllm/model"}, "asks the model mockllm/model past the run"),
        ("made", {"sandbox": "docker"}, "'1' needs a sandbox"),
        ("made", {"sample": {"files": {"a": "b"}}}, "'1' needs a sandbox"),
        ("made", {"by": "none"}, "made has no scorer"),
        ("ANSWERS", {}, "is a list, not a function"),
        ("listed", {}, "not a task of Inspect"),
        ("mad", {}, "cannot load"),
    ],
)
def test_what_an_answer_cannot_solve_is_refused(
    evaluation: str, args: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        opened(evaluation, args=args)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("asks", "the evaluation asks a model: set `model`"),
        ("points", "points gave 7; want one"),
        ("text", "points gave 'excellent', which is no grade of Inspect; want C"),
    ],
)
def test_a_scorer_that_cannot_be_used_is_named(by: str, message: str) -> None:
    task = opened("made", args={"by": by})
    with pytest.raises(Exception, match=message):
        verdict(task, problems_of(task)["1"], "x")
