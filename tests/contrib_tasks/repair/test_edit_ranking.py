"""The trainer `edit-ranking`: what it learns of episodes, keeps, and leaves to baselines."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from orchestrion_repair.edit_ranking import EditRanking, _Learner, row_of
from orchestrion_repair.learned import EditModel, begin, counted
from orchestrion_repair.ranking import program
from orchestrion_repair.state import digest_of
from orchestrion_repair.task import Repair, RunningRepair

from orchestrion import (
    Episode,
    Key,
    Output,
    Problem,
    Reward,
    Saved,
    Scores,
    Split,
    Status,
    Trajectory,
    Turn,
    UsageError,
    replace,
)
from orchestrion.config import from_data
from orchestrion.runs import RunReader, atrain, open_run, train
from tests.contrib_tasks.repair.support import TOTAL, bug
from tests.coroutines import sync

WRONG = TOTAL.replace("value > 0", "value < 0")
TASK: Any = RunningRepair(Repair(), (), None)  # type: ignore[arg-type]
PROBLEM: Problem = TASK.problem_of(bug(WRONG))


def episode(*edits: list[int], code: str, success: bool) -> Episode:
    """An episode whose turns tried edits; the last edit became the program."""
    report = {"tool": "edits", "on": digest_of(WRONG), "region": "top", "gains": [], "moved": []}
    turns = [
        Turn(i, "a", "top", Output(data={**report, "tried": numbers}))
        for i, numbers in enumerate(edits)
    ]
    last = {**report, "tried": edits[-1], "code": code, "results": []}
    turns[-1] = Turn(len(edits) - 1, "a", "top", Output(data=last))
    scores = Scores(float(success), success)
    return Episode(
        id="e",
        problem=PROBLEM,
        trajectory=Trajectory(turns),
        status=Status.COMPLETED,
        scores=scores,
        reward=Reward(float(success)),
    )


def number_of(code: str) -> int:
    return next(one.number for one in program(WRONG).candidates if one.apply(WRONG) == code)


def learner() -> _Learner:
    return _Learner(EditRanking(), Key(1))


async def spread(function: Any, items: Any) -> list[Any]:
    return [function(*item) for item in items]


def learned(one: _Learner, problems: dict[str, Problem]) -> str | None:
    return asyncio.run(one._learn(spread, problems))


def row(one: _Learner, number: int, problem: Problem) -> Any:
    asyncio.run(one._look_at(spread, [problem]))
    return row_of(*one._item(number, 0, problem, begin()))


RIGHT, FALSE = number_of(TOTAL), number_of(WRONG.replace("value < 0", "value != 0"))


def test_the_edit_that_repaired_a_program_is_what_was_right() -> None:
    one = learner()
    one._learn_of(episode([1, 2], [3, RIGHT], code=TOTAL, success=True))
    [seen] = one.seen
    assert (one.right, seen.tried) == ({PROBLEM.id: {RIGHT}}, (1, 2, 3, RIGHT))
    first, later = seen.situations
    assert (first.tried, later.tried) == (frozenset(), {1, 2})  # type: ignore[comparison-overlap]


def test_an_edit_that_fails_a_hidden_test_was_wrong() -> None:
    one = learner()
    one._learn_of(episode([FALSE], code=WRONG.replace("< 0", "!= 0"), success=False))
    assert not one.right
    assert one.wrong == {PROBLEM.id: {FALSE}}
    assert learned(one, {PROBLEM.id: PROBLEM}) is None
    one._learn_of(episode([1], [RIGHT], code=TOTAL, success=True))
    rows = row(one, 1, PROBLEM)
    assert rows is not None
    assert rows.right.sum() == 1
    ranking = EditModel.from_text(learned(one, {PROBLEM.id: PROBLEM}) or "")
    scores, before = rows.matrix @ ranking.weights, rows.matrix @ counted({}).weights
    # First the right one, then those that are known to be wrong.
    assert scores[0] - scores[1:3].max() > before[0] - before[1:3].max()


def test_a_known_repair_teaches_what_no_episode_tried() -> None:
    known = replace(PROBLEM, hidden={**PROBLEM.hidden, "repair": TOTAL})
    one = learner()
    one._learn_of(episode([1, FALSE], code=WRONG.replace("< 0", "!= 0"), success=False))
    assert not one.right
    rows = row(one, 0, known)
    assert rows is not None
    assert rows.right.sum() == 1
    ranking = EditModel.from_text(learned(one, {PROBLEM.id: known}) or "")
    assert rows.matrix[0] @ ranking.weights > rows.matrix[0] @ counted({}).weights
    without = _Learner(EditRanking(repairs=False), Key(1), seen=one.seen, wrong=one.wrong)
    assert learned(without, {PROBLEM.id: known}) is None


def test_without_context_it_learns_how_often_kinds_of_edits_are_right() -> None:
    known = replace(PROBLEM, hidden={**PROBLEM.hidden, "repair": TOTAL})
    one = _Learner(EditRanking(episodes=0, context=False), Key(1))
    ranking = EditModel.from_text(learned(one, {PROBLEM.id: known}) or "")
    assert max(ranking.rates, key=lambda kind: ranking.rates[kind])[0] == "comparison"
    assert np.array_equal(ranking.weights, counted({}).weights.astype("<f4"))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_only_training_problems_tell_their_repair(split: Split) -> None:
    problem = TASK.problem_of(bug(WRONG, split=split, solution=TOTAL))
    assert problem.hidden.get("repair") == (TOTAL if split == "train" else None)


def test_what_was_seen_is_saved_and_gives_the_same_ranking() -> None:
    one, other = learner(), learner()
    one._learn_of(episode([FALSE], code=WRONG.replace("< 0", "!= 0"), success=False))
    one._learn_of(episode([1, 2], [3, RIGHT], code=TOTAL, success=True))
    saved = one.save()
    other.load(Saved(data=json.loads(json.dumps(saved.data))))
    assert other.save() == saved
    assert other.seen == one.seen
    problems = {PROBLEM.id: PROBLEM}
    assert learned(other, problems) == learned(one, problems)


def config(**changes: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "task": {"use": "repair", "max_problems": 2, "train_problems": 4, "steps": 2000},
        "agents": {
            "tests": {"use": "run-tests"},
            "small": {"use": "mutate", "operators": ["comparison", "off-by-one", "condition"]},
        },
        "policy": {"use": "hinted"},
        "reward": {"use": "outcome-minus-cost", "cost_weight": 0.001},
        "trainer": {"use": "edit-ranking", "episodes": 2, "batch": 1},
        "limits": {"turns": 4},
        "evaluation": {
            "split": "validation",
            "baselines": {
                "counted": {
                    "policy": {"use": "hinted"},
                    "trainer": {"use": "edit-ranking", "context": False, "episodes": 0},
                    "as_configured": True,
                },
                "untrained": {"policy": {"use": "hinted"}, "as_configured": True},
            },
        },
        **changes,
    }


@sync
async def test_a_run_learns_a_ranking_that_its_baselines_do_not_have(tmp_path: Path) -> None:
    report = (await atrain(from_data(config()), tmp_path / "one")).report
    with RunReader(tmp_path / "one") as reader:
        checkpoint = reader.usable().checkpoint
        seen = [iteration.metrics["seen"] for iteration in reader.iterations(0)]
    assert checkpoint is not None
    ranking = checkpoint.overlay["task.ranking"]
    assert (EditModel.from_text(ranking).weights != begin().weights).any()
    # Two problems had an episode; of the others, one can be repaired by an edit and was studied.
    assert seen == [1, 3]
    async with open_run(tmp_path / "one") as trained, AsyncExitStack() as stack:
        baseline = trained.config.evaluation.baselines["untrained"]
        configured = await trained.components.of_contender(baseline, stack)
        task, plain = (opened.runtimes["task"] for opened in (trained.opened, configured))
        assert task.settings.ranking == ranking
        assert plain.settings.ranking == ""
        # What a baseline's own trainer learned is kept with the run, and used again.
        kept = EditModel.from_text(trained.overlays["counted"]["task.ranking"])
        assert np.array_equal(kept.weights, counted({}).weights.astype("<f4"))
        assert kept.rates == EditModel.from_text(ranking).rates
        assert trained.overlays["untrained"] == {}
        assert (await trained.evaluate()).outcomes == report.outcomes
    # Another run of the same config learns the same.
    await atrain(from_data(config()), tmp_path / "two")
    with RunReader(tmp_path / "two") as reader:
        again = reader.usable().checkpoint
    assert again is not None
    assert again.overlay == checkpoint.overlay


def test_it_refuses_a_task_without_a_ranking(tmp_path: Path) -> None:
    other = config(task={"use": "relay"}, agents={"planner": {"use": "bench-agent"}}, evaluation={})
    with pytest.raises(UsageError, match="teaches the task `repair`"):
        train(from_data(other), tmp_path / "run")


def test_a_ranking_that_is_none_is_refused(tmp_path: Path) -> None:
    wrong = config(task={"use": "repair", "max_problems": 2, "ranking": "AAAA"})
    with pytest.raises(UsageError, match=r"task\.ranking: is no ranking of edits"):
        train(from_data(wrong), tmp_path / "run")
