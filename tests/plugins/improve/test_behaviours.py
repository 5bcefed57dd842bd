"""Habits through the engine: adopted, refused, retired, stored and loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrion import UsageError
from orchestrion.runs import RunReader
from tests.plugins.improve.support import (
    EFFECTS,
    HABITS,
    HARMFUL,
    HELPFUL,
    USELESS,
    checkpoint_of,
    config,
    metrics_of,
    result,
    state_of,
    train,
)

SEEDS = 3


def habits_of(run: Path, role: str = "anna") -> dict[str, Any]:
    """Habits of a run by text."""
    learned = state_of(run)["learned"]["habits"].get(role, {})
    return {habit["text"]: habit for by in learned.values() for habit in by}


def pupil(**settings: Any) -> dict[str, Any]:
    return {"agents": {"anna": {"use": "pupil", "effects": EFFECTS, **settings}}}


def test_only_the_helpful_habit_is_adopted_in_nearly_every_seed(tmp_path: Path) -> None:
    right = 0
    for seed in range(SEEDS):
        habits = habits_of(train(config(seed=seed), tmp_path / str(seed)))
        active = {text for text, habit in habits.items() if habit["status"] == "active"}
        assert set(habits) == {HELPFUL, HARMFUL, USELESS}
        right += active == {HELPFUL}
    assert right >= SEEDS - 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three rounds."""
    return train(config({"iterations": 3}), tmp_path_factory.mktemp("habits") / "run")


def test_the_agent_is_told_what_was_adopted(run: Path) -> None:
    assert checkpoint_of(run).overlay == {"agents.anna.habits": [HELPFUL]}


def test_every_habit_has_its_effect_its_interval_and_a_reason(run: Path) -> None:
    habits = habits_of(run)
    helpful, harmful, useless = (habits[text] for text in (HELPFUL, HARMFUL, USELESS))
    low, high = helpful["interval"]
    assert 0 < low <= helpful["effect"] <= high
    assert helpful["tested_on"] == {"split": "validation", "problems": 84, "pairs": 168}
    assert harmful["reason"] == "harms"
    assert harmful["effect"] < 0
    assert useless["reason"] == "does not help"
    assert useless["tested_on"]["pairs"] < 168, "it was not given up early"


def test_no_habit_is_proposed_twice_and_habits_in_use_are_tried_again(run: Path) -> None:
    rounds = metrics_of(run)
    assert [metrics["habits_proposed"] for metrics in rounds] == [3, 0, 0]
    assert [metrics["habits_tried_again"] for metrics in rounds] == [0, 1, 1]
    again = habits_of(run)[HELPFUL]["tested_again"]
    assert again["pairs"] == 2 * 168
    assert 0.05 < again["effect"] < 0.25


def test_the_gain_is_measured_on_problems_that_decided_nothing(run: Path) -> None:
    state, last = state_of(run), metrics_of(run)[-1]
    with RunReader(run) as reader:
        seen = {row["problem"] for row in reader.episode_rows() if row["source"] == "train"}
    held = {name for name in seen if name.startswith("validation")} - set(state["judged_on"])
    assert len(held) == last["held_out_problems"] == 36
    assert last["held_out_gain_low"] > 0
    assert not any(name.startswith("test") for name in seen)
    assert all(name.startswith("validation") for name in state["judged_on"])


def test_the_export_shows_habits_by_role_and_category_and_begins_another_run(
    run: Path, tmp_path: Path
) -> None:
    from orchestrion._store.exports import export_run

    with RunReader(run) as reader:
        export_run(reader)
    data = json.loads((run / "exports" / "learned_behaviors.json").read_text())
    assert data["settings"] == {"agents.anna.habits": [HELPFUL]}
    texts = [
        habit["text"] for habit in data["learned"]["trainer.improver"]["habits"]["anna"]["any"]
    ]
    assert texts[0] == HELPFUL
    later = train(config({"begin_with": str(run)}, seed=9), tmp_path / "later")
    first = metrics_of(later)[0]
    assert first["team_reward"] > metrics_of(run)[0]["team_reward"]
    assert first["habits_tried_again"] == 1
    assert habits_of(later)[HELPFUL]["round"] == -1
    assert first["held_out_gain"] > 0


def test_a_habit_that_no_longer_helps_is_retired(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"anna": {"any": [HARMFUL]}}))
    given = config({"begin_with": str(file)}, models=_coach())
    habits = habits_of(train(given, tmp_path / "run"))
    assert habits[HARMFUL]["status"] == "retired"
    assert habits[HARMFUL]["reason"] == "no longer helps"
    assert metrics_of(tmp_path / "run")[-1]["habits_active"] == 0


def _coach(*habits: Any, **settings: Any) -> dict[str, Any]:
    return {"coach": {"use": "practice-coach", "habits": list(habits), **settings}}


def test_a_habit_for_one_category_is_tried_there_and_names_it(tmp_path: Path) -> None:
    effects = {"carry": {"sums": 0.3, "differences": -0.4}}
    given = config(models=_coach({"habit": "carry", "category": "sums"}), **pupil(effects=effects))
    run = train(given, tmp_path / "run")
    [habit] = state_of(run)["learned"]["habits"]["anna"]["sums"]
    assert habit["status"] == "active"
    assert habit["tested_on"]["problems"] == 42
    [told] = checkpoint_of(run).overlay["agents.anna.habits"]
    assert told == "When the problem is about sums: carry"


def test_a_habit_of_one_category_that_harms_in_another_is_refused(tmp_path: Path) -> None:
    effects = {"carry": {"sums": 0.3, "differences": -0.4}}
    given = config(
        models=_coach({"habit": "carry", "category": "sums"}),
        **pupil(effects=effects, heeds=False),
    )
    habits = habits_of(train(given, tmp_path / "run"))
    assert habits["carry"]["reason"] == "harms on other categories"


def test_a_habit_that_helps_at_a_higher_cost_is_refused(tmp_path: Path) -> None:
    given = config(models=_coach({"habit": HELPFUL}), **pupil(dear={HELPFUL: 0.5}))
    habits = habits_of(train(given, tmp_path / "run"))
    assert habits[HELPFUL]["reason"] == "helps, but takes 50% more"


def test_with_too_few_problems_habits_are_refused_as_untested(tmp_path: Path) -> None:
    task = {"use": "practice", "train": 32, "validation": 5, "test": 4}
    run = train(config({"held_out": 0}, task=task), tmp_path / "run")
    assert {habit["status"] for habit in habits_of(run).values()} == {"refused"}
    assert all("are needed" in habit["reason"] for habit in habits_of(run).values())
    assert metrics_of(run)[-1]["habits_trial_episodes"] == 0


def test_at_the_cap_a_better_habit_replaces_the_weakest(tmp_path: Path) -> None:
    effects = {"weak": {"any": 0.2}, "strong": {"any": 0.4}}
    ideas = [{"habit": "weak"}, {"habit": "strong"}]
    given = config(
        {"cap": 1, "proposals": 1, "iterations": 2, "again": 0},
        models=_coach(*ideas),
        **pupil(effects=effects, skill=0.3),
    )
    habits = habits_of(train(given, tmp_path / "run"))
    assert habits["strong"]["status"] == "active"
    assert habits["weak"]["status"] == "retired"
    assert habits["weak"]["reason"] == "made room for a better one"


def test_two_winners_of_one_round_have_to_win_beside_each_other(tmp_path: Path) -> None:
    # The second adds nothing to the first.
    effects = {"add": {"any": 0.3}, "count": {"any": 0.29}, "add + count": {"any": -0.29}}
    given = config(
        models=_coach({"habit": "count"}, {"habit": "add"}), **pupil(effects=effects, skill=0.4)
    )
    habits = habits_of(train(given, tmp_path / "run"))
    assert sorted(habit["status"] for habit in habits.values()) == ["active", "refused"]


def test_unusable_answers_are_asked_again_then_counted(tmp_path: Path) -> None:
    given = config(models=_coach(*HABITS, garbled=1.0))
    [metrics] = metrics_of(train(given, tmp_path / "run"))
    assert metrics["habits_unusable"] == 2
    assert metrics["habits_proposed"] == 0
    assert metrics["habits_active"] == 0


def test_habits_that_the_config_gives_stay(tmp_path: Path) -> None:
    given = config(**pupil(habits=["smile"]))
    run = train(given, tmp_path / "run")
    assert checkpoint_of(run).overlay == {"agents.anna.habits": ["smile", HELPFUL]}


def test_parallel_and_serial_and_resumed_runs_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    settings = {"iterations": 3, "every": 2, "pairs": 24}

    def given(concurrency: int) -> Any:
        return config(settings, run={"concurrency": concurrency}, models=_coach(*HABITS))

    serial = result(train(given(1), tmp_path / "serial"))
    assert result(train(given(64), tmp_path / "parallel")) == serial
    for until in (1, 2):
        folder = tmp_path / f"cut-{until}"
        train(given(64), folder, until=until)
        assert result(train(given(64), folder)) == serial


def test_in_a_beam_search_it_decides_on_problems_that_the_report_does_not_use(
    tmp_path: Path,
) -> None:
    beam = {
        "use": "grpo-beam",
        "rounds": 2,
        "improve_every": 1,
        "problems": 4,
        "samples": 3,
        "beam_width": 3,
        "turns": 1,
        "held_out": 20,
        "baselines": [],
        "improver": "habits",
    }
    parts: dict[str, Any] = {
        "improvers": {"habits": {"use": "behaviours", "model": "coach", "pairs": 160}},
        "task": {"use": "practice", "train": 32, "validation": 120, "test": 4},
    }
    run = train(config(trainer=beam, **parts), tmp_path / "run")
    state = state_of(run, "improvers.habits")
    [active] = [
        habit for habit in state["learned"]["habits"]["anna"]["any"] if habit["status"] == "active"
    ]
    assert active["text"] == HELPFUL
    assert len(state["judged_on"]) <= 100
    assert [metrics["adopted"] for metrics in metrics_of(run)[:2]] == [1, 0]


@pytest.mark.parametrize(
    ("trainer", "parts", "message"),
    [
        (
            {},
            {"agents": {"anna": {"use": "echo"}}},
            "no agent of this team has a learnable setting",
        ),
        ({"begin_with": "nowhere.json"}, {}, "no such file"),
        ({"held_out": 0.99}, {"task": {"use": "practice", "validation": 0}}, "no validation"),
    ],
)
def test_what_cannot_be_improved_is_refused_before_anything_runs(
    trainer: dict[str, Any], parts: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        train(config(trainer, **parts), tmp_path / "run")


def test_a_file_with_habits_of_unknown_agents_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"zoe": {"any": ["be zoe"]}}))
    with pytest.raises(UsageError, match="habits of 'zoe'"):
        train(config({"begin_with": str(file)}), tmp_path / "run")
