"""Whole runs: a team and a judge behind real HTTP, through the real SDK, into a report.

How a biased judge is reported is tested without processes, in `test_report`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrion.runs import RunReader
from tests.plugins.judge.support import orchestrion

JUDGE = {"use": "judge", "noise": 0.05}
HANDS = {"use": "offline", "speaker": {"use": "solver", "skill": 0.4, "remarks": 4, "skills": {}}}


def run(folder: Path, speaker: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Let a simulated judge reward 48 episodes on 24 problems; its report."""
    config = {
        "seed": 11,
        "task": {"use": "steps", "steps": 3, "train": 1, "validation": 1, "test": 24},
        "models": {"hands": HANDS, "judge": {"use": "offline", "speaker": speaker}},
        "agents": {"writer": {"use": "chat", "model": "hands", "preset": "solver"}},
        "policy": {"use": "sequence", "steps": ["writer"] * 3},
        "reward": {
            "use": "llm-judge",
            "model": "judge",
            "show": "transcript",
            "rubric": "research-report",
            **settings,
        },
        "run": {"name": "judged"},
        "evaluation": {"split": "test", "seeds": 2},
    }
    (folder / "orchestrion.yaml").write_text(json.dumps(config))
    orchestrion("train", cwd=folder)
    done = orchestrion("judge-report", "judged", "--json", cwd=folder)
    exported = json.loads((folder / "runs/judged/exports/judge.json").read_text())
    printed = json.loads(done.stdout)
    assert exported["judges"] == printed["judges"]
    [report] = printed["judges"]
    return dict(report)


def test_an_accurate_judge_agrees_with_the_verifier(tmp_path: Path) -> None:
    report = run(tmp_path, JUDGE, orders="both")
    assert report["judged"] == 48
    assert report["missing"] == {}
    assert report["agreement"]["low"] > 0.8
    assert report["tells_success"]["low"] > 0.9
    assert not any("position" in line for line in report["findings"])
    with RunReader(tmp_path / "runs" / "judged") as store:
        for stored in store.episodes():
            reward = stored.episode.reward
            assert reward is not None
            assert 0 <= reward.total == reward.parts["judge"] <= 1


def test_a_judge_that_cannot_be_read_leaves_every_reward_missing(tmp_path: Path) -> None:
    report = run(tmp_path, {"use": "echo", "prefix": "I like it: "})
    assert report["judged"] == 0
    assert report["missing"] == {"no judgement that could be used": 48}


def test_a_search_can_be_led_and_rewarded_by_a_judge(tmp_path: Path) -> None:
    config = {
        "seed": 3,
        "task": {"use": "steps", "steps": 2, "train": 2, "validation": 2, "test": 2},
        "models": {"hands": HANDS, "judge": {"use": "offline", "speaker": JUDGE}},
        "agents": {"writer": {"use": "chat", "model": "hands", "preset": "solver"}},
        "policy": {"use": "sequence", "steps": ["writer"] * 2},
        "reward": {
            "use": "hybrid",
            "weight": 0.5,
            "judge": {"use": "llm-judge", "model": "judge", "show": "transcript"},
        },
        "trainer": {
            "use": "grpo-beam",
            "rounds": 1,
            "problems": 2,
            "beam_width": 2,
            "samples": 2,
            "turns": 2,
            "held_out": 0,
            "value": {"use": "judge", "model": "judge"},
        },
        "run": {"name": "searched"},
        "evaluation": {"split": "test"},
    }
    (tmp_path / "orchestrion.yaml").write_text(json.dumps(config))
    orchestrion("train", cwd=tmp_path)
    with RunReader(tmp_path / "runs" / "searched") as store:
        rewards = [one.episode.reward for one in store.episodes(source="train")]
    assert rewards
    for reward in rewards:
        assert reward is not None
        cheap, judged = reward.parts["hybrid.cheap"], reward.parts["judge"]
        assert reward.total == pytest.approx((cheap + judged) / 2)
    orchestrion("replay", "searched", cwd=tmp_path)
