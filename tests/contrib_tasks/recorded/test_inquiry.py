"""The policy `inquiry` follows plans that go by who agrees with whom; `best-inquiry` finds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from orchestrion_recorded.baselines import Strategy, matrix
from orchestrion_recorded.belief import Believer, Heard
from orchestrion_recorded.estimate import estimate
from orchestrion_recorded.generate import Generated, generate
from orchestrion_recorded.inquiry import InquiryRunner, follow
from orchestrion_recorded.planning import Planner, best_openings, shortlist
from orchestrion_recorded.task import RecordedTask

from orchestrion import (
    Activation,
    CheckpointError,
    Decision,
    Key,
    Observation,
    Problem,
    Saved,
    Situation,
    Trajectory,
    Turn,
    UsageError,
)
from orchestrion.config import Config
from tests.contrib_tasks.recorded.support import (
    ALL_TRAIN,
    config,
    opened,
    row,
    table,
    trained,
)

CHEAP, OTHER, DEAR = (Activation("ask", name) for name in ("cheap", "other", "dear"))
ABLE = (CHEAP, OTHER, DEAR)
LAST = {"ask": "ask:dear", "then": [None, None, None]}
PLAN = {"ask": "ask:cheap", "then": [LAST, {"ask": "ask:other", "then": [None, None, LAST]}]}
"""Silent: the dear one; else a second opinion, and the dear one where the two differ."""


def next_of(
    runner: InquiryRunner, answers: Mapping[str, str | None], category: str = "", **shown: Any
) -> Decision:
    """What is decided once these answered."""
    turns = [Turn(n, "ask", name) for n, name in enumerate(answers)]
    seen = Observation(data={"answers": dict(answers)}, **shown)
    problem = Problem("p", "x", {"options": 4}, category)
    return runner.decide([Situation(problem, Trajectory(turns), seen)], [Key(0)])[0]


def test_a_plan_goes_by_who_gave_no_answer_and_who_agrees() -> None:
    runner = InquiryRunner(ABLE, {"": {4: PLAN}})
    assert next_of(runner, {}).start == (CHEAP,)
    assert next_of(runner, {"cheap": None}).start == (DEAR,)
    assert next_of(runner, {"cheap": "A"}).start == (OTHER,)
    assert next_of(runner, {"cheap": "A", "other": "a "}).stop
    assert next_of(runner, {"cheap": "A", "other": "B"}).start == (DEAR,)
    assert next_of(runner, {"cheap": "A", "other": "B", "dear": "B"}).stop


def test_who_cannot_be_asked_gives_no_answer() -> None:
    runner = InquiryRunner(ABLE, {"": {4: PLAN}})
    assert next_of(runner, {}, blocked=frozenset({"ask:cheap"})).start == (DEAR,)


def test_each_category_has_a_plan_and_the_nearest_number_of_options_decides() -> None:
    runner = InquiryRunner(ABLE, {"": {4: PLAN}, "law": {2: None, 5: LAST}})
    assert next_of(runner, {}, "law").start == (DEAR,)
    assert next_of(runner, {}, "art").start == (CHEAP,)
    assert next_of(InquiryRunner(ABLE), {}).stop


def test_it_loads_what_it_saved_and_refuses_another_team() -> None:
    runner = InquiryRunner(ABLE, {"": {4: PLAN, 5: PLAN}, "law": {4: None}})
    fresh = InquiryRunner(ABLE)
    fresh.load(runner.save())
    assert fresh.plans == runner.plans
    with pytest.raises(CheckpointError, match="of this team"):
        InquiryRunner((CHEAP,)).load(runner.save())
    with pytest.raises(CheckpointError):
        fresh.load(Saved(data=None))


# ------------------------------------------------------------------------------ planning


@pytest.fixture(scope="module")
def believer() -> Believer:
    made = generate(Generated(questions=200, models=3, groups=2, none=0.2))
    return Believer(estimate(made, 20.0, 3))


@pytest.mark.parametrize("heard", [(), ((0, 0),), ((0, -1),), ((0, 0), (1, 1)), ((0, 0), (2, 0))])
def test_what_a_model_may_say_adds_up_and_agrees_with_bayes(
    believer: Believer, heard: Heard
) -> None:
    kinds = np.array([0, 1, 0]), np.array([4, 4, 2])
    outlook = believer.outlook(kinds, heard)
    asked = {m for m, _ in heard}
    for m in {0, 1, 2} - asked:
        assert outlook.says[:, m].sum(1) == pytest.approx(1)
        # What one more answer is worth, by trying all that may be said.
        after = [
            chance * believer.outlook(kinds, ordered(*heard, (m, code))).now
            for code, chance in enumerate(outlook.says[:, m].T, -1)
        ]
        assert sum(after) - outlook.now == pytest.approx(outlook.gains[:, m])


def test_kinds_are_thought_about_together_as_each_alone(believer: Believer) -> None:
    kinds, heard = [(0, 4), (1, 2), (2, 7)], ((0, 0), (1, 1))
    together = believer.outlook((np.array([0, 1, 2]), np.array([4, 2, 7])), heard)
    for place, (group, options) in enumerate(kinds):
        alone = believer.outlook((np.array([group]), np.array([options])), heard)
        assert together.now[place] == pytest.approx(alone.now[0])
        assert together.says[place] == pytest.approx(alone.says[0])
        assert together.gains[place] == pytest.approx(alone.gains[0])


def ordered(*heard: tuple[int, int]) -> Heard:
    codes: dict[int, int] = {}
    return tuple((m, c if c < 0 else codes.setdefault(c, len(codes))) for m, c in sorted(heard))


def planner(believer: Believer, *prices: float) -> Planner:
    return Planner(believer, prices, [0, 1, 2], [(0, 4)])


def test_who_is_too_dear_is_never_asked_and_who_is_free_always(believer: Believer) -> None:
    names = ["a", "b", "c"]
    assert planner(believer, 2.0, 2.0, 2.0).tree(0, names) is None
    plan = planner(believer, 0.0, 2.0, 2.0).tree(0, names)
    assert follow(plan, {}) == "a"
    assert follow(plan, {"a": "x"}) is None


def test_a_plan_is_worth_what_it_wins_less_what_it_pays(believer: Believer) -> None:
    guess, nobody = planner(believer, 2.0, 2.0, 2.0).best(())
    free, _ = planner(believer, 0.0, 0.0, 0.0).best(())
    worth, first = planner(believer, 0.05, 0.05, 0.05).best(())
    assert nobody == [-1]
    assert first >= [0]
    assert guess < worth <= free - 0.05


def test_an_opening_is_followed_by_the_plan(believer: Believer) -> None:
    plan = planner(believer, 0.01, 0.01, 0.01).tree(0, ["a", "b", "c"], 2)
    assert follow(plan, {}) == "c"
    assert follow(plan, {"c": None}) in {"a", "b"}


def test_a_cascade_is_an_opening_too(believer: Believer) -> None:
    """The first two, and the third unless they agree."""
    plan = planner(believer, 0.0, 0.0, 0.0).tree(0, ["a", "b", "c"], Strategy((1, 0), 2, 2))
    assert follow(plan, {}) == "b"
    assert follow(plan, {"b": "x"}) == "a"
    assert follow(plan, {"b": "x", "a": "x"}) is None
    assert follow(plan, {"b": "x", "a": "y"}) == follow(plan, {"b": None, "a": "y"}) == "c"
    assert follow(plan, {"b": "x", "a": "y", "c": None}) is None
    assert planner(believer, 0.0, 0.0, 0.0).tree(0, ["a", "b", "c"], Strategy(())) is None


def test_where_every_option_was_named_there_is_no_new_answer(believer: Believer) -> None:
    two_options = Planner(believer, (0.0, 0.0, 0.0), [0, 1, 2], [(0, 2)])
    first = two_options.tree(0, ["a", "b", "c"], Strategy((0, 1, 2)))
    second = first["then"][1]  # the first answered
    third = second["then"][2]  # the second gave the other answer
    assert [len(plan["then"]) for plan in (first, second, third)] == [2, 3, 3]


# ------------------------------------------------------------------------------ the trainer


def of(weight: float, **changes: Any) -> Config:
    made = {"questions": 150, "models": 4, "groups": 2, "none": 0.1}
    sections = {"task": {"use": "recorded", "generated": made}, **changes}
    return config({"use": "inquiry"}, "best-inquiry", weight, **sections)


def test_the_trainer_installs_plans_that_pay_at_the_run_s_price() -> None:
    runtimes, metrics, episodes = trained(of(0.1), "train")
    runner, rewards = runtimes["policy"], [one.reward.total for one in episodes]
    assert set(runner.plans) == {"", "g1", "g2"}
    assert metrics["reward"] == pytest.approx(0.6628609036015953, rel=1e-6)
    assert sum(rewards) / len(rewards) > metrics["reward"] - 0.03  # in sample, against across parts
    dear, _, _ = trained(of(50.0))
    assert all(tree is None for plans in dear["policy"].plans.values() for tree in plans.values())


def test_scores_that_cannot_agree_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    scores = {"m1": 1, "m2": 0.5}
    rows = [json.dumps({"id": n, "question": f"q{n}", "scores": scores}) for n in range(12)]
    path.write_text("\n".join(rows))
    task = {
        "use": "recorded",
        "table": str(path),
        "split": {"train": 1.0, "validation": 0.0, "test": 0.0},
    }
    agents = {"ask": {"use": "recorded", "models": ["m1", "m2"]}}
    with pytest.raises(UsageError, match="needs answers"):
        trained(of(0.1, task=task, agents=agents))


def test_groups_lean_on_the_mean_over_all_questions() -> None:
    rewards, groups = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), [0, 1, 1]
    assert best_openings(rewards, groups, 0.0) == {-1: 1, 0: 0, 1: 1}
    assert best_openings(rewards, groups, 50.0) == {-1: 1, 0: 1, 1: 1}


def test_a_model_that_only_stands_behind_a_good_one_is_not_preferred_to_it() -> None:
    """The last model never fails to answer, so whoever is asked after it is never asked."""
    rows = [row(f"q{i}", "A", ("B", "B", "A")) for i in range(30)]
    task = opened(table(*rows), RecordedTask(split=ALL_TRAIN))
    assert shortlist(matrix(task, "train"), 0.1, [0, 1, 2], 1) == [2]
