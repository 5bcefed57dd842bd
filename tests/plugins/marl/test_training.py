"""Teams of tiny models in training: what moves, what must not, and what is said about it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from orchestrion_local.runtime import LocalModel

from orchestrion import ConfigError, UsageError
from orchestrion.config import from_data
from tests.plugins.marl.support import MODEL, SIZES, Trained, config, tensors, train

WARM = {"episodes": 192, "steps": 120, "batch": 64}
WIDER = {**MODEL, "architecture": {**SIZES, "width": 32}}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("warm")
    return train(
        folder / "run",
        config(
            dict.fromkeys("vsa", WIDER),
            warm=WARM,
            iterations=14,
            problems=8,
            group=8,
            updates=2,
            optimizer={"learning_rate": 0.003},
            validate_every=14,
        ),
    )


def test_the_team_gets_better_than_its_teacher_left_it(warm: Trained) -> None:
    rewards = [one["reward"] for one in warm.metrics[1:]]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
    assert 0 <= warm.metrics[-1]["validation_success"] <= 1


def test_by_agent_nobody_is_pushed_up_or_down_as_a_whole(warm: Trained) -> None:
    for metrics in warm.metrics[1:]:
        for agent in ("verifier", "searcher", "answerer"):
            if metrics[f"{agent}/calls"]:
                # What is left is the fine of a call that could not be read.
                fined = 0.01 * (1 - metrics[f"{agent}/valid"])
                assert metrics[f"{agent}/advantage"] == pytest.approx(-fined, abs=1e-9)


def test_every_agent_is_reported_on(warm: Trained) -> None:
    last = warm.metrics[-1]
    for name in "calls valid truncated reward reward_std dead advantage advantage_rms f".split():
        assert math.isfinite(last[f"verifier/{name}"])
    for name in "clipped entropy shift".split():
        assert math.isfinite(last[f"answerer/{name}"])
    assert last["a/norm_max"] >= last["a/norm_median"] > 0
    assert last["verifier/calls"] >= 1


def test_who_is_frozen_stays_the_same_to_the_byte(tmp_path: Path) -> None:
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
    # The verifier's only word leads to the answerer.
    data = config()
    data["agents"]["verifier"]["route"] = {"y": "answerer", "n": "answerer"}
    run = train(tmp_path / "run", data)
    assert run.metrics[-1]["searcher/calls"] == 0
    assert not [name for name in tensors(run, "trainer[0]") if name.startswith("s/")]
    assert run.states["trainer[0]"].data["optimizers"]["s"]["steps"] == 0
    assert run.states["models.s"].data["version"] == 0


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = LocalModel.score

    def broken(self: LocalModel, generations: Any, *, hidden: bool = False) -> Any:
        scored = score(self, generations, hidden=hidden)
        if self.name == "a" and torch.is_grad_enabled():
            scored.logprobs.register_hook(lambda gradient: gradient * math.nan)  # type: ignore[no-untyped-call]
        return scored

    monkeypatch.setattr(LocalModel, "score", broken)
    run = train(tmp_path / "run", config())
    assert [one["a/skipped"] for one in run.metrics] == [1.0, 1.0]
    assert [one["v/skipped"] for one in run.metrics] == [0.0, 0.0]
    assert run.states["trainer[0]"].data["optimizers"]["a"]["steps"] == 0


SHARED = dict.fromkeys(("verifier", "searcher", "answerer"), "m")
ADAPTERS = {
    "base": MODEL,
    **{name: {"use": "hf", "base": "base", "lora": {"rank": 2}, "max_tokens": 2} for name in "vsa"},
}


def test_agents_that_name_one_model_train_it_together(tmp_path: Path) -> None:
    run = train(tmp_path / "run", config({"m": MODEL}, SHARED))
    calls = [one["m/steps"] for one in run.metrics]
    assert calls == [1.0, 1.0]
    assert {"verifier/entropy", "answerer/entropy"} <= set(run.metrics[-1])


def test_adapters_on_one_base_train_apart_and_leave_it_as_it_is(tmp_path: Path) -> None:
    run = train(tmp_path / "run", config(ADAPTERS, trained=["v", "s", "a"]))
    still = train(
        tmp_path / "still",
        config(
            ADAPTERS,
            trained=["v", "s", "a"],
            iterations=1,
            agents={name: {"train": False} for name in ("verifier", "searcher", "answerer")},
        ),
    )
    assert tensors(run, "models.base") == tensors(still, "models.base")
    for name in "va":
        mine = tensors(run, f"models.{name}")
        assert mine
        assert all("lora_" in one for one in mine)
        assert mine != tensors(still, f"models.{name}")


VARIANTS: dict[str, dict[str, Any]] = {
    "one for all": {},
    "adapters": {"lora": {"rank": 2}},
    "apart": {"copy": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_line_says_who_shares_weights_with_whom(tmp_path: Path, variant: str) -> None:
    own = {"use": "hf", "base": "base", **VARIANTS[variant]}
    data = config({"base": MODEL, **dict.fromkeys("vsa", own)}, warm={**WARM, "steps": 5})
    data["trainer"][0]["base"] = True
    run = train(tmp_path / "run", data)
    kept = {name for name in run.states if name.startswith("models.")}
    moved = {name.split("/")[0] for name in run.metrics[-1] if name.endswith("/norm_max")}
    learned = {name.split("/")[0] for name in run.metrics[0] if name.endswith("/loss")}
    if variant == "one for all":
        assert kept == {"models.base"}
        assert (learned, moved) == ({"base"}, {"base"})
    else:
        assert kept == {"models.base", "models.v", "models.s", "models.a"}
        assert moved <= {"v", "s", "a"}
        assert learned == ({"base"} if variant == "adapters" else {"v", "s", "a"})
    only_warm = {**data, "trainer": data["trainer"][:1]}
    before = train(tmp_path / "warm", only_warm)
    same = tensors(run, "models.base") == tensors(before, "models.base")
    assert same == (variant != "one for all")
    assert run.states["models.base"].data["version"] == {"one for all": 3, "adapters": 1}.get(
        variant, 0
    )


def test_a_divergence_is_taken_from_what_the_trainer_before_left(tmp_path: Path) -> None:
    warm = {**WARM, "steps": 30}
    data = config(warm=warm, kl={"weight": 0.01}, optimizer={"learning_rate": 1e-9}, iterations=1)
    run = train(tmp_path / "run", data)
    # From where the models were before their teacher, it would be some nats.
    assert abs(run.metrics[-1]["answerer/kl"]) < 1e-4


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
        {"advantage": {"estimator": "grpo"}},
        {"advantage": {"estimator": "global_step"}},
        {"advantage": {"estimator": "drmas", "center": "group", "fined": "inside", "floor": 0.05}},
        {"advantage": {"estimator": "rloo"}},
        {"advantage": {"estimator": "reinforce", "baseline": "moving"}, "group": 1},
        {"advantage": {"estimator": "reinforce++", "centered": True}},
        {"advantage": {"estimator": "gigpo", "gamma": 0.9}},
        {"advantage": {"estimator": "gae"}, "group": 1},
        {"kl": {"weight": 0.1}, "entropy": 0.01, "epochs": 2, "updates": 2},
        {"kl": {"weight": 0.1, "form": "k1", "where": "reward"}},
        {"dynamic": 3, "aggregation": "seq-mean-token-sum-norm", "dual_clip": None},
        {"overlong": {"longest": 2, "buffer": 1}, "truncated": "drop"},
        {"agents": {"answerer": {"advantage": {"estimator": "grpo"}, "weight": 2, "penalty": 0.5}}},
        {"agents": {"answerer": {"aggregation": "seq-mean-token-mean"}}, "micro_batch": 64},
    ],
    ids=str,
)
def test_every_way_to_train_moves_the_weights_and_stays_finite(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    run = train(tmp_path / "run", config(iterations=1, **settings))
    metrics = run.metrics[-1]
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["v/steps"] + metrics["a/steps"] > 0


def test_parts_of_a_batch_add_up_to_the_whole(tmp_path: Path) -> None:
    """The size of what is computed at once is a matter of memory, not of the result."""
    whole = train(tmp_path / "whole", config(iterations=1))
    parts = train(tmp_path / "parts", config(iterations=1, micro_batch=1))
    for name in "va":
        first, second = (one.metrics[-1][f"{name}/norm_max"] for one in (whole, parts))
        assert first == pytest.approx(second, rel=1e-4)


def test_settings_that_would_do_nothing_are_refused() -> None:
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


def test_names_that_do_not_exist_are_refused_before_anything_runs(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"agents": {"verifer": {}}}, "'verifer' is none of"),
        ({"optimizers": {"w": {}}}, "'w' is none of"),
    ]
    for settings, reason in wrong:
        with pytest.raises(UsageError, match=reason):
            train(tmp_path / str(settings), config(**settings))


def test_a_model_without_weights_cannot_be_trained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no weights to train"):
        train(tmp_path / "run", config(trained=["v", "teacher"], warm=WARM))
