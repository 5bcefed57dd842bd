"""Training of tiny teams: which weights change, which must not, and what is reported."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from orchestrion_local.interfaces import Generation
from orchestrion_local.runtime import LocalModel
from orchestrion_marl.calls import Sampled, groups_that_differ, sampled_of

from orchestrion import (
    ConfigError,
    Episode,
    Output,
    Problem,
    Reward,
    Status,
    Trajectory,
    Turn,
    UsageError,
)
from orchestrion.config import from_data
from tests.plugins.marl.support import MODEL, SIZES, Trained, config, tensors, train

WARM = {"episodes": 16, "steps": 30, "batch": 16}
WIDER = {**MODEL, "architecture": {**SIZES, "width": 32}}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("warm")
    return train(
        folder / "run",
        config(
            dict.fromkeys("vsa", WIDER),
            warm={"episodes": 192, "steps": 120, "batch": 64},
            iterations=14,
            problems=8,
            group=8,
            updates=2,
            optimizer={"learning_rate": 0.003},
            validate_every=14,
        ),
    )


def test_the_team_gets_better_after_the_warm_start(warm: Trained) -> None:
    rewards = [metrics["reward"] for metrics in warm.metrics[1:]]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
    assert 0 <= warm.metrics[-1]["validation_success"] <= 1


def test_the_model_of_an_agent_with_train_false_keeps_its_bytes(
    tmp_path: Path,
) -> None:
    run = train(tmp_path / "run", config(agents={"searcher": {"train": False}}))
    before = train(
        tmp_path / "none",
        config(
            iterations=1,
            agents={name: {"train": False} for name in ("verifier", "searcher", "answerer")},
        ),
    )
    assert tensors(run, "models.s") == tensors(before, "models.s")
    assert tensors(run, "models.v") != tensors(before, "models.v")


def test_a_model_that_is_never_called_keeps_weights_and_optimizer(tmp_path: Path) -> None:
    # Both responses of the verifier lead to the answerer.
    data = config()
    data["agents"]["verifier"]["route"] = {"y": "answerer", "n": "answerer"}
    run = train(tmp_path / "run", data)
    assert run.metrics[-1]["searcher/calls"] == 0
    assert not [name for name in tensors(run, "trainer[0]") if name.startswith("s/")]
    assert run.states["trainer[0]"].data["optimizers"]["s"]["steps"] == 0
    assert run.states["models.s"].data["version"] == 0


def test_a_step_whose_gradient_is_not_finite_is_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = LocalModel.score

    def broken(self: LocalModel, generations: Any, **options: Any) -> Any:
        scored = score(self, generations, **options)
        if self.name == "a" and torch.is_grad_enabled():
            scored.logprobs.register_hook(lambda gradient: gradient * math.nan)  # type: ignore[no-untyped-call]
        return scored

    monkeypatch.setattr(LocalModel, "score", broken)
    run = train(tmp_path / "run", config())
    assert [metrics["a/skipped"] for metrics in run.metrics] == [1.0, 1.0]
    assert [metrics["v/skipped"] for metrics in run.metrics] == [0.0, 0.0]
    assert run.states["trainer[0]"].data["optimizers"]["a"]["steps"] == 0


def episode(reward: Reward | None, status: Status = Status.COMPLETED) -> Episode:
    """An episode of two turns; the second response was cut and could not be read."""
    generations = [
        Generation("m", 0, (1,), (2, 3), (-0.5, -0.25), stop=stop) for stop in ("end", "length")
    ]
    turns = tuple(
        Turn(i, agent, output=Output("x", metadata={"generations": [g.to_json()], "valid": valid}))
        for i, (agent, g, valid) in enumerate(zip("ab", generations, (True, False), strict=True))
    )
    return Episode("e", Problem("p"), Trajectory(turns), status=status, reward=reward)


def test_calls_have_the_reward_of_their_agent_and_failed_episodes_have_none() -> None:
    sampled = sampled_of(
        [
            episode(None),
            episode(Reward(1.0, agents={"b": 0.25})),
            episode(Reward(1.0), Status.FAILED),
            episode(Reward(0.5), Status.LIMIT),
        ],
        [4, 4, 5, 5],
    )
    calls = sampled.calls
    assert (sampled.groups, sampled.lost) == ([4, 5], 2)
    assert [(call.agent, call.episode, call.group, call.turn, call.outcome) for call in calls] == [
        ("a", 0, 4, 0, 1.0),
        ("b", 0, 4, 1, 0.25),
        ("a", 1, 5, 0, 0.5),
        ("b", 1, 5, 1, 0.5),
    ]
    assert [call.valid for call in calls] == [True, False, True, False]
    assert [call.is_truncated for call in calls] == [False, True, False, True]
    assert msgspec.json.decode(msgspec.json.encode(sampled), type=Sampled) == sampled


def test_dynamic_sampling_keeps_groups_with_different_rewards() -> None:
    rewards = [1.0, 1.0, 0.0, 1.0, None, 1.0]
    episodes = [episode(None if reward is None else Reward(reward)) for reward in rewards]
    assert groups_that_differ(episodes, [3, 3, 4, 4, 5, 5]) == {4}


VARIANTS: dict[str, dict[str, Any]] = {
    "shared": {},
    "adapters": {"lora": {"rank": 2}},
    "copies": {"copy": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_line_of_config_selects_how_agents_share_weights(tmp_path: Path, variant: str) -> None:
    own = {"use": "hf", "base": "base", **VARIANTS[variant]}
    data = config({"base": MODEL, **dict.fromkeys("vsa", own)}, warm={**WARM, "steps": 5})
    data["trainer"][0]["base"] = True
    run = train(tmp_path / "run", data)
    kept = {name for name in run.states if name.startswith("models.")}
    moved = {name.split("/")[0] for name in run.metrics[-1] if name.endswith("/norm_max")}
    learned = {name.split("/")[0] for name in run.metrics[0] if name.endswith("/loss")}
    if variant == "shared":
        assert kept == {"models.base"}
        assert (learned, moved) == ({"base"}, {"base"})
    else:
        assert kept == {"models.base", "models.v", "models.s", "models.a"}
        assert moved <= {"v", "s", "a"}
        assert learned == ({"base"} if variant == "adapters" else {"v", "s", "a"})
    only_warm = {**data, "trainer": data["trainer"][:1]}
    before = train(tmp_path / "warm", only_warm)
    same = tensors(run, "models.base") == tensors(before, "models.base")
    assert same == (variant != "shared")
    assert run.states["models.base"].data["version"] == {"shared": 3, "adapters": 1}.get(variant, 0)


def test_the_divergence_is_measured_from_the_weights_of_the_previous_stage(tmp_path: Path) -> None:
    data = config(warm=WARM, kl={"weight": 0.01}, optimizer={"learning_rate": 1e-9}, iterations=1)
    run = train(tmp_path / "run", data)
    # From the random weights before `sft` it would be some nats.
    assert abs(run.metrics[-1]["answerer/kl"]) < 1e-4


@pytest.mark.parametrize("where", ["loss", "reward"])
def test_the_divergence_is_taken_from_advantages_only_where_it_is_part_of_the_reward(
    tmp_path: Path, where: str
) -> None:
    data = config(
        kl={"weight": 0.5, "form": "k2", "where": where},
        entropy=1.0,  # moves the weights also where all rewards are equal
        optimizer={"learning_rate": 0.05},
        iterations=2,
        penalty=0.0,
        truncated="learn",
    )
    last = train(tmp_path / "run", data).metrics[-1]
    assert last["answerer/kl"] > 0.001 if where == "loss" else "answerer/kl" not in last
    # Dr.MAS' own advantages have the mean 0 in each group.
    advantage = last["answerer/advantage"]
    assert advantage < -1e-3 if where == "reward" else abs(advantage) < 1e-9


def test_weights_that_two_names_share_have_one_learning_rate(tmp_path: Path) -> None:
    same = {"use": "hf", "base": "base"}
    data = config(
        {"base": MODEL, "v": same, "s": same, "a": MODEL},
        optimizers={"v": {"learning_rate": 0.1}, "s": {"learning_rate": 0.2}},
    )
    with pytest.raises(UsageError, match=r"optimizers\.[sv]: these are the weights of base"):
        train(tmp_path / "run", data)


@pytest.mark.parametrize(
    "settings",
    [
        {
            "advantage": {"estimator": "grpo"},
            "kl": {"weight": 0.1},
            "entropy": 0.01,
            "epochs": 2,
            "updates": 2,
        },
        {
            "advantage": {"estimator": "global_step"},
            "dynamic": 3,
            "aggregation": "seq-mean-token-sum-norm",
            "dual_clip": None,
        },
        {
            "advantage": {
                "estimator": "drmas",
                "center": "group",
                "fined": "inside",
                "floor": 0.05,
            },
            "overlong": {"longest": 2, "buffer": 1},
            "truncated": "drop",
        },
        {
            "advantage": {"estimator": "rloo"},
            "kl": {"weight": 0.1, "form": "k1", "where": "reward"},
        },
        {
            "advantage": {"estimator": "reinforce", "baseline": "moving"},
            "group": 1,
            "agents": {"answerer": {"aggregation": "seq-mean-token-mean"}},
            "micro_batch": 64,
        },
        {
            "advantage": {"estimator": "reinforce++", "centered": True},
            "agents": {
                "answerer": {"advantage": {"estimator": "grpo"}, "weight": 2, "penalty": 0.5}
            },
        },
        {"advantage": {"estimator": "gigpo", "gamma": 0.9}},
        {"advantage": {"estimator": "gae"}, "group": 1},
    ],
    ids=lambda settings: settings["advantage"]["estimator"],
)
def test_every_setting_trains_and_gives_finite_metrics(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    run = train(tmp_path / "run", config(iterations=1, **settings))
    metrics = run.metrics[-1]
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["v/steps"] + metrics["a/steps"] > 0
    reported = "calls valid truncated reward dead f clipped entropy shift mismatch tokens".split()
    assert {f"answerer/{name}" for name in reported} <= set(metrics)


def test_settings_without_effect_are_an_error() -> None:
    for settings, reason in (
        (
            {"advantage": {"estimator": "grpo", "lam": 0.5}},
            "lam: does nothing with `estimator: grpo`",
        ),
        (
            {"advantage": {"estimator": "reinforce", "memory": 0.5}},
            "memory: does nothing with `baseline: agent`",
        ),
        (
            {"advantage": {"scale": "none", "std": "population"}},
            "std: does nothing with `scale: none`",
        ),
        ({"kl": {"where": "reward"}}, "where: does nothing without a `weight`"),
        ({"group": 1}, "drmas compares episodes of one problem"),
        ({"overlong": {"longest": 2, "buffer": 3}}, "buffer: 3 is more than longest"),
    ):
        with pytest.raises(ConfigError, match=reason):
            from_data(config(**settings))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"agents": {"verifer": {}}}, "'verifer' is none of"),
        ({"optimizers": {"w": {}}}, "'w' is none of"),
        ({"trained": ["v", "teacher"], "warm": WARM}, "no weights to train"),
    ],
)
def test_what_names_no_agent_or_trained_model_is_an_error_before_the_run(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        train(tmp_path / "run", config(**settings))
