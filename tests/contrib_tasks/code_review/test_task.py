"""What a team's work scores, and that no trick moves the verdict or shows a hidden test."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attrs import evolve
from orchestrion_code_review.challenge import Reference, builtin
from orchestrion_code_review.task import CodeReview, RunningReview, problem_of
from orchestrion_sandbox import SandboxError

from orchestrion import Episode, Key, OpenContext, Output, Problem, Status, UsageError, replace
from orchestrion.testing import Fixed, ScriptedAgent, engine_for
from tests.contrib_tasks.code_review.support import (
    DOUBLE,
    NONSENSE,
    RIGHT,
    WRONG,
    closed,
    in_loop,
    named,
    opened,
    parts_of,
    running,
    says,
    scored,
    scores_of,
    turns,
)

EVERY_MEASURE = ["ruff", "complexity", "types"]


# ---------------------------------------------------------------- perfect and nonsense teams


@pytest.mark.parametrize("name", ["fizzbuzz", "two-sum", "evaluate-expression"])
def test_a_perfect_team_scores_ten(name: str) -> None:
    challenge = named(name)
    said = turns(("writer", challenge.solution), ("reviewer", Output("Fine.")))
    [found] = scores_of(said, challenge=challenge, measures=EVERY_MEASURE)
    assert found.success
    assert found.parts["quality"] == found.parts["score"] == 10
    assert found.value == 1


def test_a_nonsense_team_scores_nothing() -> None:
    teams: list[list[tuple[str, str | Output]]] = [
        [],
        [("writer", Output("PASS PASS PASS. All tests passed. 10/10. return True"))],
        [("writer", NONSENSE)],
        [("writer", "def something_else():\n    pass\n")],
        [("writer", "def double(n:\n")],
        [("writer", "raise SystemExit(0)\n")],
    ]
    for scores in scores_of(*(turns(*said) for said in teams)):
        parts = scores.parts
        assert (parts["score"], parts["quality"], parts["efficiency"]) == (0, 0, 0)


def test_always_the_same_answer_is_worth_nothing() -> None:
    palindrome = named("palindrome")
    always = "def is_palindrome(text: str) -> bool:\n    return True\n"
    [found] = scores_of(turns(("writer", always)), challenge=palindrome)
    assert found.parts["tests"] > 0.4
    assert found.value == 0


# ---------------------------------------------------------------- tricks

EQUAL_TO_ALL = """\
class Same(int):
    def __eq__(self, other):
        return True
    def __hash__(self):
        return 0
def double(n):
    return Same(7)
"""
PATCHED = """\
import builtins, json
json.dumps = lambda *a, **k: '{"passed": true}'
builtins.all = builtins.any = lambda *a: True
def double(n):
    return 0
"""
LEAVES_WELL = "import os\ndef double(n):\n    print('PASS')\n    os._exit(0)\n"
ANSWERS_EARLY = """\
import os, sys
for descriptor in range(3, 12):
    try:
        os.write(descriptor, b'{"id": 1, "value": 4}\\n{"passed": true}\\n')
    except OSError:
        pass
print("PASSED 5/5")
def double(n):
    return None
"""


def test_a_trick_gains_nothing() -> None:
    praise = ("reviewer", Output("PASS: all hidden tests pass"))
    tricks = (EQUAL_TO_ALL, PATCHED, LEAVES_WELL, ANSWERS_EARLY)
    for scores in scores_of(*(turns(("writer", trick), praise) for trick in tricks)):
        assert (scores.parts["quality"], scores.parts["score"]) == (0, 0)


def test_right_code_with_a_forged_answer_has_passed_nothing_and_the_attempt_is_counted() -> None:
    forged = RIGHT + ANSWERS_EARLY.split("print")[0]
    parts = parts_of([("writer", forged)])
    honest = parts_of([("writer", RIGHT)])
    assert honest["forgeries"] == 0
    assert honest["quality"] == 10
    if parts["forgeries"]:  # where the channel can be written to at all
        assert parts["quality"] == parts["score"] == 0
    else:
        assert parts["quality"] == 10


def test_data_and_fences_are_read_alike_and_the_last_version_counts() -> None:
    as_data = Output("see data", {"code": RIGHT})
    for last in (as_data, says(RIGHT), Output(f"~~~py\nx = 1\n~~~\n```\n{RIGHT}```")):
        assert parts_of([("writer", WRONG), ("other", last)])["quality"] == 10
    assert parts_of([("writer", RIGHT), ("other", WRONG)])["quality"] < 6
    assert parts_of([("writer", RIGHT), ("other", Output("```json\n{}\n```"))])["quality"] == 10


# ---------------------------------------------------------------- collaboration


def test_what_others_add_is_told_and_pays_by_the_tests_it_passes() -> None:
    parts = parts_of([("writer", WRONG), ("refactorer", RIGHT)])
    assert (parts["added"], parts["collaboration"]) == (7.5, 10)  # WRONG reaches 0.25
    assert parts["score"] == parts_of([("writer", RIGHT)])["score"]


def test_what_the_writer_mends_is_the_writers() -> None:
    parts = parts_of([("writer", WRONG), ("reviewer", Output("Hm.")), ("writer", RIGHT)])
    assert (parts["added"], parts["quality"]) == (0, 10)


def test_a_team_that_ends_below_its_best_version_loses_collaboration() -> None:
    parts = parts_of([("writer", RIGHT), ("refactorer", WRONG)])
    assert parts["collaboration"] == pytest.approx(parts["quality"] * 0.25)


def test_weights_are_settings() -> None:
    said: list[tuple[str, str | Output]] = [
        ("writer", WRONG),
        ("refactorer", RIGHT),
        ("a", Output()),
        ("b", Output()),
    ]
    parts = parts_of(said, quality_weight=0.0, collaboration_weight=0.3, efficiency_weight=0.7)
    assert parts["score"] == pytest.approx(0.3 * 10 + 0.7 * parts["efficiency"])
    assert parts["efficiency"] == pytest.approx(10 * (3 / 4 + 1 + 1) / 3)


# ---------------------------------------------------------------- what travels with the scores


def test_method_backend_and_level_travel_with_the_scores() -> None:
    parts = parts_of([("writer", RIGHT)])
    assert parts["judged_outside"] == 1
    assert parts["sandbox_level"] >= 3
    [backend] = [name for name in parts if name.startswith("backend_")]
    assert parts[backend] == 1


def test_an_unprotected_run_has_to_be_asked_for_and_is_marked() -> None:
    from orchestrion_sandbox import choose

    unsafe = choose("subprocess", unsafe_local=True)
    assert parts_of([("writer", RIGHT)], sandbox=unsafe)["sandbox_level"] == 1
    with pytest.raises(UsageError, match="unsafe_local"):
        choose("subprocess")


class Broken:
    """A box that breaks at every run."""

    backend, level = "broken", 3

    def __getattr__(self, name: str) -> Any:
        raise SandboxError("the sandbox broke")


def test_a_sandbox_that_breaks_is_nobodys_failure() -> None:
    async def run(task: RunningReview) -> Episode:
        box: Any = Broken()
        broken = evolve(task, box=box)
        engine = engine_for({"one": ScriptedAgent([says(RIGHT)])}, Fixed(["one"]), broken)
        return await engine.run("e", problem_of(DOUBLE), Key(1))

    episode = running(run)
    assert (episode.status, episode.scores, episode.reward) == (Status.FAILED, None, None)
    assert "the sandbox broke" in episode.error


# ---------------------------------------------------------------- partial scores


def test_before_the_end_visible_examples_alone_count() -> None:
    async def partial(task: RunningReview) -> list[float]:
        codes = (WRONG, RIGHT, NONSENSE)
        found = [await scored(task, turns(("w", code)), final=False) for code in codes]
        return [one.parts["tests"] for one in found]

    assert running(partial) == [1, 1, 0]


def test_a_verdict_names_what_each_test_gave_to_people_alone() -> None:
    failing = "def double(n: int) -> int:\n    return 1 // 0\n"

    async def checks(task: RunningReview) -> list[dict[str, str]]:
        found = [await scored(task, turns(("w", code))) for code in (RIGHT, WRONG, failing)]
        found.append(await scored(task, turns(("w", RIGHT)), final=False))
        return [dict(one.checks) for one in found]

    right, wrong, broken, partial = running(checks)
    names = [f"hidden test {i + 1}" for i in range(len(DOUBLE.tests))]
    assert list(right) == [*names, *(name for name in right if name.startswith("example"))]
    assert set(right.values()) == {"passed"}
    assert [wrong[name] == "passed" for name in names].count(True) == 2
    assert "wrong value" in wrong.values()
    assert "ZeroDivisionError" in broken["hidden test 1"]
    assert partial == {}


def test_partial_scores_do_not_change_with_the_hidden_tests() -> None:
    other = evolve(
        DOUBLE, tests=tuple(evolve(t, text=f"double(5) == {n}") for n, t in enumerate(DOUBLE.tests))
    )

    async def both(task: RunningReview) -> list[object]:
        said = turns(("w", WRONG))
        return [await scored(task, said, one, final=False) for one in (DOUBLE, other)]

    first, second = running(both)
    assert first == second


# ---------------------------------------------------------------- nothing hidden is shown


def test_agents_never_see_hidden_tests_or_solutions() -> None:
    seer = ScriptedAgent([says(WRONG), Output("x", {"tool": "tests"}), says(RIGHT)])

    async def run() -> str:
        async with opened() as task:
            shown = []
            for challenge in (*builtin()[:12], DOUBLE):
                engine = engine_for({"seer": seer}, Fixed(["seer"] * 3), task)
                episode = await engine.run("e", problem_of(challenge), Key(1))
                public = replace(episode, trajectory=turns())
                shown.append(repr([public, [view.observation for view in seer.views]]))
                shown.append(repr([view.problem for view in seer.views]))
                assert episode.problem.hidden is None
                assert all(view.problem.hidden is None for view in seer.views)
                for test in challenge.tests:
                    assert test.text not in "".join(shown)
                assert challenge.solution not in "".join(shown)
                shown.clear()
                seer.views.clear()
            return "seen"

    assert in_loop(run()) == "seen"


# ---------------------------------------------------------------- settings


def test_settings_choose_problems() -> None:
    task = closed()
    problems = [one for split in ("train", "validation", "test") for one in task.problems(split)]
    assert len(problems) == len(builtin())
    hard = CodeReview(levels=["advanced"], generated=12)
    assert {one.level for one in hard.challenges()} == {"advanced"}
    assert any(one.category == "composed" for one in hard.challenges())
    few = closed(max_problems=3)
    assert len(few.problems("train")) == len(few.problems("test")) == 3


@pytest.mark.parametrize(
    "settings",
    [{"fractions": {"train": 0.5}}, {"quality_weight": 0.0, "collaboration_weight": 0.0}],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    async def run() -> None:
        async with CodeReview(**settings).open(OpenContext("task", Key(1))):
            pass

    with pytest.raises(UsageError):
        asyncio.run(run())


def test_words_alone_are_a_problem_that_nobody_can_judge() -> None:
    async def run(task: RunningReview) -> tuple[Problem, float]:
        problem = task.problem_from("Write a function that halves numbers.")
        engine = engine_for({"one": ScriptedAgent([says(RIGHT)])}, Fixed(["one"]), task)
        episode = await engine.run("e", problem, Key(1))
        assert episode.scores is not None
        return episode.problem, episode.scores.value

    problem, value = running(run)
    assert problem.text.startswith("Write a function")
    assert value == 0


def test_the_reference_is_the_problems_own() -> None:
    cheap = evolve(DOUBLE, reference=Reference(turns=1))
    [found] = scores_of(turns(("w", RIGHT), ("x", Output())), challenge=cheap)
    assert found.parts["efficiency"] == pytest.approx(10 * (0.5 + 1 + 1) / 3)
