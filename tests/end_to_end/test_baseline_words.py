"""Baselines in one word, the team before its first episode, and what a report says first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrion import Key
from orchestrion._report import compare
from orchestrion.config import from_data
from tests.core.plugin_support import invoke

CONFIG = """
task: {use: relay, partial: 0.3, types: {quick: [code], half: [plan, code]}, train: 8, test: 40}
agents:
  planner: {use: bench-agent}
  coder_l: {use: bench-agent}
  stop:    {use: bench-agent}
policy: {use: sequence, steps: [planner]}
reward: {use: outcome-minus-cost, cost_weight: 1.0}
trainer: {use: best-sequence, length: 3, problems: 8, beam: 2}
evaluation:
  baselines: [untrained, random, by-category]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG)
    return tmp_path


def report(*args: str) -> dict[str, Any]:
    result = invoke(*args, "--json")
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)["report"]
    return data


def test_the_untrained_team_is_the_one_before_the_first_episode(site: Path) -> None:
    trained = report("train", "c.yaml")
    rows = {one["name"]: one for one in trained["contenders"]}
    assert list(rows) == ["learned", "untrained", "random", "by-category"]
    # `planner` alone solves no problem, and gets a part of the result for half of them.
    assert rows["untrained"]["turns"]["mean"] == 1
    assert rows["untrained"]["solved"]["mean"] == 0 < rows["learned"]["solved"]["mean"]
    assert rows["untrained"]["trained_on"] == 0
    as_it_was = report("eval", "c.yaml")["contenders"][0]
    assert rows["untrained"] | {"name": ""} == as_it_was | {"name": ""}


def test_it_is_judged_elsewhere_with_the_run_and_left_out_where_nothing_is_trained(
    site: Path,
) -> None:
    report("train", "c.yaml")
    elsewhere = report("eval", "c-1", "-o", "task.test=10")
    rows = {one["name"]: one for one in elsewhere["contenders"]}
    assert rows["untrained"]["turns"]["mean"] == 1 < rows["learned"]["turns"]["mean"]
    names = [one["name"] for one in report("eval", "c.yaml")["contenders"]]
    assert names == ["policy (untrained)", "random"]


def test_a_run_that_was_cut_off_before_its_report_gives_the_same_one(site: Path) -> None:
    whole = report("train", "c.yaml")
    assert report("resume", "c-1") == whole


def test_the_report_says_first_whom_the_learned_policy_beats(site: Path) -> None:
    printed = " ".join(invoke("train", "c.yaml").stdout.split())
    told = report("resume", "c-1")
    assert printed.startswith(told["verdict"])
    assert "; ahead of untrained and random" in told["verdict"]
    assert told["ahead_of"] == ["untrained", "random"]
    assert told["level_with"] + told["behind"] == ["by-category"]


def test_a_smoke_run_makes_the_trainers_of_words_small(site: Path) -> None:
    result = invoke("train", "c.yaml", "--smoke", "--json")
    assert result.exit_code == 0, result.output
    rows = {one["name"]: one for one in json.loads(result.stdout)["report"]["contenders"]}
    assert list(rows) == ["learned", "untrained", "random", "by-category"]
    assert "evaluation.baselines.by-category.trainer.problems: 16 -> 2" in result.stderr
    assert 0 < rows["by-category"]["trained_on"] <= 2 * 2 * (1 + 2 * 3)


def rows(*rewards: float) -> dict[str, dict[str, float | None]]:
    names = ("solved", "cost", "turns", "missing", "limit", "failed", "usd", "tokens", "calls")
    return {f"p{i}": {**dict.fromkeys(names, 0.0), "reward": r} for i, r in enumerate(rewards)}


def test_the_verdict_goes_by_paired_intervals() -> None:
    results = {
        "learned": rows(1.0, 2.0, 3.0, 4.0),
        "worse": rows(0.5, 1.4, 2.6, 3.5),
        "other": rows(1.5, 1.5, 3.5, 3.5),
        "better": rows(2.0, 3.0, 4.0, 5.0),
        "equal": rows(1.0, 2.0, 3.0, 4.0),
    }
    judged = compare("test", 1, results, {}, Key(1))
    assert judged.verdict.ahead_of == ("worse",)
    assert judged.verdict.level_with == ("other", "equal")
    assert judged.verdict.behind == ("better",)
    assert judged.verdict.as_text(judged) == (
        "by reward, learned is behind better (-1.000 [-1.000, -1.000]); not ahead of other (+0.000 "
        "[-0.500, +0.500]) and equal (+0.000 [+0.000, +0.000]); ahead of worse"
    )
    nothing = compare("test", 1, {"learned": rows(0.0, 0.0), "worse": rows(-1.0, -1.0)}, {}, Key(1))
    assert nothing.verdict.as_text(nothing) == (
        "learned solves nothing; by reward, learned is ahead of worse"
    )
    twice = {**results, "worse too": rows(0.5, 1.4, 2.6, 3.5)}
    repeated = compare("test", 1, twice, {}, Key(1))
    assert repeated.repeated == {"worse too": "worse"}
    assert "ahead of worse and worse too (the same as worse)" in repeated.as_json()["verdict"]
    alone = compare("test", 1, {"learned": rows(1.0)}, {}, Key(1))
    assert "compared with nothing" in alone.as_json()["verdict"]


def config(baselines: Any) -> dict[str, Any]:
    return {
        "task": {"use": "relay"},
        "agents": {"planner": {"use": "bench-agent"}},
        "policy": {"use": "sequence"},
        "trainer": {"use": "best-sequence"},
        "evaluation": {"baselines": baselines},
    }


def test_a_word_is_a_trainer_with_its_policy_or_a_policy() -> None:
    words = from_data(config({"a": "learned-order", "b": "round-robin", "c": "untrained"}))
    spelled = {
        "a": {"policy": {"use": "order"}, "trainer": {"use": "learned-order"}},
        "b": {"policy": {"use": "round-robin"}},
        "c": "untrained",
    }
    assert words.resolved() == from_data(config(spelled)).resolved()
    listed = from_data(config(["round-robin", "learned-order"])).evaluation.baselines
    assert list(listed) == ["round-robin", "learned-order"]
    assert from_data(words.resolved()).digest == words.digest
    as_configured = {"policy": {"use": "round-robin"}, "as_configured": True}
    plain = from_data(config({"d": as_configured})).evaluation.baselines["d"]
    assert plain.as_configured
    assert not plain.untrained
