"""The diagnosis of a run: what is found in a store, and that a good run gives no finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from orchestrion import (
    Episode,
    Output,
    Reward,
    Saved,
    Scores,
    Status,
    Trajectory,
    Turn,
    Usage,
    replace,
)
from orchestrion._report import kinds, outcomes
from orchestrion._store.checkpoint import Checkpoint
from orchestrion._store.diagnosis import Finding, diagnose, stopped_at_once, warning_level
from orchestrion._store.exports import summarize
from orchestrion.runs import RunStore
from tests.core.store_support import checkpoint, episode

RISING = [0.1, 0.3, 0.5, 0.7, 0.8, 0.8, 0.8, 0.8] + [0.8, 0.81] * 8


def played(name: str, reward: float, kind: str = "sums", turns: Sequence[Turn] = ()) -> Episode:
    one = episode(name)
    return replace(
        one,
        problem=replace(one.problem, id=name.rpartition("/")[2], category=kind),
        trajectory=Trajectory(turns or [Turn(0, "worker", output=Output("x", usage=Usage(1)))]),
        scores=Scores(reward, reward > 0.5),
        reward=Reward(reward),
        status=Status.COMPLETED,
    )


STOP = [Turn(0, "stop", output=Output("", final=True))]


def run(
    folder: Path,
    rewards: Sequence[float] = RISING,
    metrics: Sequence[Mapping[str, float]] = (),
    config: str = "",
    roster: Sequence[str] = ("worker",),
    **contenders: Sequence[Episode],
) -> RunStore:
    """A run of one episode an iteration, whose reward is given, and evaluations by name."""
    store = RunStore.create(folder, config, {"seed": 1})
    for i, reward in enumerate(rewards):
        own = dict(metrics[i]) if metrics else {}
        last = evolve(checkpoint(i), roster=tuple(roster)) if i + 1 == len(rewards) else None
        store.commit_iteration(0, i, [played(f"0/{i}", reward)], own, last)
    for name, episodes in contenders.items():
        store.save_evaluation(
            name,
            {"outcomes": outcomes(episodes), "kinds": kinds(episodes), "trained_on": 1},
            episodes,
        )
    return store


def found(store: RunStore) -> dict[str, Finding]:
    with store:
        return {finding.name: finding for finding in diagnose(store)}


def judged(name: str, rewards: Sequence[float], **options: Any) -> list[Episode]:
    return [played(f"{name}/{i}", reward, **options) for i, reward in enumerate(rewards)]


def test_training_without_a_reward_is_a_warning(tmp_path: Path) -> None:
    metrics = [{"episodes": 1.0, "missing": 1.0}] * len(RISING)
    assert found(run(tmp_path / "run", metrics=metrics))["no_reward"].level == 2
    metrics[0] = {"episodes": 1.0, "missing": 0.0}
    assert "no_reward" not in found(run(tmp_path / "other", metrics=metrics))


def test_episodes_that_end_at_a_limit_are_a_warning(tmp_path: Path) -> None:
    cut = [replace(played(f"e/{i}", 0.0), status=Status.LIMIT) for i in range(12)]
    finding = found(run(tmp_path / "run", learned=cut))["cut_off"]
    assert finding.level == 2
    assert "100% of the evaluated episodes" in finding.text
    assert "cut_off" not in found(run(tmp_path / "other", learned=[played("e/0", 0.9)]))


def test_training_in_which_limits_end_what_is_tried_is_a_warning(tmp_path: Path) -> None:
    def training(name: str, *rewards: float) -> dict[str, Finding]:
        limits = "limits: {turns: 8, calls: null, tokens: 100}"
        store = RunStore.create(tmp_path / name, limits, {"seed": 1})
        for i, reward in enumerate(rewards):
            status = Status.COMPLETED if reward or i > 1 else Status.LIMIT
            episodes = [replace(played(f"0/{i}", reward), status=status)]
            store.commit_iteration(0, i, episodes, {}, checkpoint(i))
        return found(store)

    finding = training("never", 0.0, 0.0, 0.0, 0.0)["limits_too_low"]
    assert finding.level == 2
    assert finding.advice.startswith("let something end an episode (`policy: {stop: true}`")
    assert "raise `limits.turns` or `limits.tokens`: " in finding.advice
    assert "1 of the first 1 were ended by a limit" in finding.text
    assert "limits_too_low" not in training("solved later", 0.0, 0.0, 0.0, 0.9)
    assert "limits_too_low" not in training("in time", 0.1, 0.0, 0.0, 0.0)


def test_a_verifier_that_accepts_nothing_is_a_warning_with_an_example(tmp_path: Path) -> None:
    def training(name: str, *scores: Scores) -> dict[str, Finding]:
        store = RunStore.create(tmp_path / name, "", {"seed": 1})
        episodes = [replace(played(f"0/{i}", 0.0), scores=one) for i, one in enumerate(scores)]
        store.commit_iteration(0, 0, episodes, {}, checkpoint(0))
        return found(store)

    wrong = Scores(0.0, checks={"answer": "got 'x', want 'y'"})
    finding = training("never", wrong, wrong)["never_accepted"]
    assert finding.level == 2
    assert "problem 0 was answered 'x' (answer: got 'x', want 'y')" in finding.text
    assert "never_accepted" not in training("once", wrong, Scores(1.0, True))
    assert "never_accepted" not in training("in part", wrong, Scores(0.5))


def test_an_agent_whose_turns_fail_is_named_with_the_reason_and_is_a_warning_if_most_do(
    tmp_path: Path,
) -> None:
    def training(name: str, failures: int, learned: str = "") -> dict[str, Finding]:
        store = RunStore.create(tmp_path / name, "", {"seed": 1})
        errors = ["now and then", "reason\n0", "reason\n0"][:failures]
        broken = [Turn(n, "broken", status="failed", error=e) for n, e in enumerate(errors)]
        turns = [*broken, Turn(8, "broken"), Turn(9, "worker")]
        for i in range(2):
            store.commit_iteration(0, i, [played(f"0/{i}", 0.9, turns=turns)], {}, checkpoint(i))
        if learned:
            episodes = judged("e", [0.9], turns=[Turn(0, learned)])
            results = {"outcomes": outcomes(episodes), "kinds": kinds(episodes), "trained_on": 1}
            store.save_evaluation("learned", results, episodes)
        return found(store)

    finding = training("mostly", 3)["agent_fails"]
    assert (finding.level, finding.about) == (2, ("broken",))
    assert "6 of 8 turns of broken failed, most often with reason 0" in finding.text
    assert training("not used", 3, "worker")["agent_fails"] == finding
    useful = training("used", 3, "broken")["agent_fails"]
    assert useful.level == 1
    assert useful.advice.startswith("what was learned makes use of broken; if it should not fail,")
    note = training("at times", 1)["agent_fails"]
    assert (note.level, note.about) == (1, ("broken",))
    assert "2 of 4 turns of broken failed, most often with now and then" in note.text
    assert "agent_fails" not in training("never", 0)


def test_a_member_of_a_team_whose_turns_fail_is_named(tmp_path: Path) -> None:
    inner = Trajectory([Turn(0, "anna", status="failed", error="gone"), Turn(1, "ben")])
    vote = Turn(0, "vote", output=Output("x", inner=inner))
    store = RunStore.create(tmp_path / "run", "", {"seed": 1})
    store.commit_iteration(0, 0, [played("0/0", 0.9, turns=[vote])], {}, checkpoint(0))
    finding = found(store)["agent_fails"]
    assert (finding.level, finding.about) == (2, ("anna",))
    assert finding.text == "1 of 1 turns of anna failed, most often with gone"


def test_a_good_run_has_no_finding(tmp_path: Path) -> None:
    store = run(
        tmp_path / "run",
        learned=judged("learned", [0.9, 0.8] * 10),
        random=judged("random", [0.1, 0.2] * 10),
    )
    with store:
        assert diagnose(store) == []
        assert warning_level(diagnose(store)) == 0
        assert summarize(store)["warning_level"] == 0


def test_nothing_is_said_of_a_run_that_was_not_trained(tmp_path: Path) -> None:
    assert found(run(tmp_path / "run", [], learned=judged("learned", [0.0] * 20))) == {}


@pytest.mark.parametrize("by_agent", [True, False])
def test_kinds_that_are_stopped_at_once_are_a_warning(tmp_path: Path, by_agent: bool) -> None:
    """Whether an agent ends the episode or the policy; five of 20 `riddles` were tried."""
    riddles = judged("learned", [0.0] * 20, kind="riddles", turns=STOP)
    if not by_agent:
        riddles = [replace(one, trajectory=Trajectory()) for one in riddles]
    riddles[:5] = [played(f"learned/{i}", -0.5, "riddles") for i in range(5)]
    sums = [played(f"learned/{i}", 0.9) for i in range(20, 40)]
    finding = found(run(tmp_path / "run", learned=[*riddles, *sums]))["stopped_at_once"]
    assert (finding.about, finding.level) == (("riddles",), 2)
    assert "in 1 of 2 categories of problems: riddles" in finding.text
    alone = found(run(tmp_path / "alone", learned=riddles))["stopped_at_once"]
    assert alone.text == "what was learned stops at once on most problems"


def test_stopping_at_once_is_fine_where_it_pays_and_nothing_pays_more(tmp_path: Path) -> None:
    abstains = judged("learned", [0.15] * 20, turns=STOP)
    worse, better = judged("other", [0.1] * 20), judged("other", [0.4] * 20)
    assert "stopped_at_once" not in found(run(tmp_path / "a", learned=abstains, other=worse))
    assert "stopped_at_once" in found(run(tmp_path / "b", learned=abstains, other=better))


def test_what_costs_or_calls_something_was_not_stopped_at_once() -> None:
    """A single answer that ends the episode is work, where it was paid for."""
    answer = [Turn(0, "worker", output=Output("42", final=True, usage=Usage(1)))]
    for turns, at_once in ((answer, []), (STOP, ["sums"])):
        one = replace(played("learned/0", 0.0, turns=turns))
        assert stopped_at_once({"learned": {"kinds": kinds([one])}}) == at_once


def test_baselines_that_are_not_behind_are_named(tmp_path: Path) -> None:
    findings = found(
        run(
            tmp_path / "run",
            learned=judged("learned", [0.5, 0.6] * 10),
            chain=judged("chain", [0.9, 0.8] * 10),
            level=judged("level", [0.6, 0.5] * 10),
            same=judged("same", [0.5, 0.6] * 10),
            random=judged("random", [0.1, 0.2] * 10),
        )
    )
    named = {name: (finding.level, finding.about) for name, finding in findings.items()}
    assert named["behind_baseline"] == (2, ("chain",))
    assert named["not_ahead"] == (1, ("level",))
    assert named["same_as_baseline"] == (1, ("same",))


TABLE = """
policy: {use: POLICY}
trainer: {use: TRAINER, episodes: 9}
agents: {worker: {use: echo}, spare: {use: echo}, other: {use: echo}}
evaluation:
  baselines:
    chain-by-category: {policy: {use: by-category}, trainer: {use: chain-by-category, length: 10}}
    mine: {policy: {use: sequence, steps: ["other:x"]}, trainer: null}
    untrained: untrained
"""


@pytest.mark.parametrize("name", ["behind_baseline", "same_as_baseline", "not_ahead"])
def test_the_advice_to_use_a_baseline_has_its_lines(tmp_path: Path, name: str) -> None:
    rewards = {"behind_baseline": [0.9, 0.8], "same_as_baseline": [0.5, 0.6]}
    contenders: dict[str, Any] = {
        "learned": judged("learned", [0.5, 0.6] * 10),
        "chain-by-category": judged("c", rewards.get(name, [0.6, 0.5]) * 10),
        "untrained": judged("u", rewards.get(name, [0.6, 0.5]) * 10),
    }

    def advice(policy: str, trainer: str) -> str:
        config = TABLE.replace("POLICY", policy).replace("TRAINER", trainer)
        findings = found(run(tmp_path / trainer, config=config, **contenders))
        return findings[name].advice if name in findings else ""

    lines = "(`policy: {use: by-category}`, `trainer: {use: chain-by-category}`)"
    assert lines in advice("values", "bandit")
    # What is of the same kind is not simpler.
    assert ("chain" in advice("by-category", "chain-by-category")) == (name == "behind_baseline")


def test_agents_of_baselines_are_not_to_be_left_out(tmp_path: Path) -> None:
    team = ("worker", "spare", "other")
    finding = found(run(tmp_path / "run", config=TABLE, roster=team))["never_tried"]
    assert finding.about == ("spare", "other")
    assert finding.advice == "train for longer or explore more, or leave out spare"


def test_a_policy_that_learned_nothing_was_not_to_try_agents_of_baselines(tmp_path: Path) -> None:
    for name, about in (("worker", None), ("spare", ("spare",))):
        store = RunStore.create(tmp_path / name, TABLE, {"seed": 1})
        state = {"policy": Saved(data={"use": "POLICY"})}
        last = Checkpoint(0, 0, state, roster=("worker", name, "other"))
        store.commit_iteration(0, 0, [played("0/0", 0.9)], {}, last)
        finding = found(store).get("never_tried")
        assert (finding and finding.about) == about


@pytest.mark.parametrize(
    ("rewards", "level"), [([0.5, 0.6] * 10, 1), ([0.9] * 8 + [0.2] * 12, 2), (RISING, 0)]
)
def test_training_that_did_not_raise_the_reward_is_told(
    tmp_path: Path, rewards: list[float], level: int
) -> None:
    finding = found(run(tmp_path / "run", rewards)).get("no_rise")
    assert (finding.level if finding else 0) == level
    said = {1: "it is not shown that the reward rose in training: +0 (+-", 2: "the reward fell in"}
    assert finding is None or finding.text.startswith(said[level])


def test_held_out_reward_counts_where_training_explores_to_its_end(tmp_path: Path) -> None:
    learned = judged("learned", [0.9, 0.8] * 10)
    assert "no_rise" not in found(run(tmp_path / "run", [0.5, 0.52] * 10, learned=learned))


@pytest.mark.parametrize(
    ("rewards", "advice"),
    [
        # Every 20 iterations halve what is missing; 10 % of it are left after 66 more.
        ([1 - 2 ** (-i / 20) for i in range(60)], "train for about 66 more episodes"),
        # Nothing slowed down: as many again.
        ([i / 60 for i in range(60)], "train for about 60 more episodes"),
        # The last third adds next to nothing.
        ([min(i, 20) / 2 + i / 100 for i in range(60)], ""),
    ],
)
def test_how_many_more_episodes_would_help_is_estimated_from_how_it_slowed_down(
    tmp_path: Path, rewards: list[float], advice: str
) -> None:
    finding = found(run(tmp_path / "run", rewards)).get("still_improving")
    assert (finding.advice if finding else "") == advice


def test_entropy_that_is_gone_early_is_told_unless_the_reward_still_rose(tmp_path: Path) -> None:
    entropies = [{"entropy": value} for value in [0.9, 0.4, 0.01] + [0.001] * 21]
    flat = [0.1, 0.2] + [0.3, 0.31] * 11
    assert found(run(tmp_path / "a", flat, entropies))["entropy_gone"].level == 1
    rising = [i / 24 for i in range(24)]
    assert "entropy_gone" not in found(run(tmp_path / "b", rising, entropies))
    late = [{"entropy": 0.9 - i / 27} for i in range(24)]
    assert "entropy_gone" not in found(run(tmp_path / "c", flat, late))


def test_few_problems_are_told(tmp_path: Path) -> None:
    findings = found(run(tmp_path / "run", learned=judged("learned", [0.8, 0.9])))
    assert "only 2 problems to be judged on" in findings["few_problems"].text


def test_problems_of_another_split_than_train_count_as_trained_on(tmp_path: Path) -> None:
    store = run(tmp_path / "run")  # one episode each on as many problems as it has iterations
    episodes = judged("learned", [0.9] * 20)
    results = {"outcomes": outcomes(episodes), "kinds": kinds(episodes), "train_problems": 1}
    store.save_evaluation("learned", {**results, "trained_on": 24}, episodes)
    assert "few_problems" not in found(store)


@pytest.mark.parametrize("played", [0, 1])
def test_who_learned_from_a_log_was_not_short_of_problems(tmp_path: Path, played: int) -> None:
    episodes = judged("learned", [0.9] * 20)
    results = {"outcomes": outcomes(episodes), "kinds": kinds(episodes), "train_problems": 3}
    store = run(tmp_path / "run", [0.9])
    store.save_evaluation("learned", {**results, "trained_on": played}, episodes)
    assert ("few_problems" in found(store)) == bool(played)


def test_a_result_with_nothing_beside_it_is_told(tmp_path: Path) -> None:
    alone = judged("learned", [0.8] * 12)
    assert "eval RUN" in found(run(tmp_path / "a", learned=alone))["no_baseline"].advice
    beside = run(tmp_path / "b", learned=alone, random=judged("random", [0.1] * 12))
    assert "no_baseline" not in found(beside)
    assert "no_baseline" not in found(run(tmp_path / "c"))
    untrained = judged("untrained", [0.1] * 12)
    only = run(tmp_path / "d", config=TABLE, learned=alone, untrained=untrained)
    assert "the same team before its first" in found(only)["no_baseline"].text
