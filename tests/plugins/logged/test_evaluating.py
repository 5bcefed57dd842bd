"""Estimates and refusals on logs whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import astuple, evolve
from orchestrion_logged.decisions import Decisions, as_decisions
from orchestrion_logged.evaluating import Evaluator, estimated_propensities, target_of
from orchestrion_logged.records import Context, Logged

from orchestrion import UsageError
from orchestrion.testing import Fixed
from tests.plugins.logged.support import WORTH, decision, pets

NAMES = ("small", "large")


def log(lines: list[Logged]) -> Decisions:
    return as_decisions([(line,) for line in lines], NAMES)


def wanted(decisions: Decisions, choice: dict[str, str]) -> np.ndarray:
    """A policy that goes by the category."""
    places = [NAMES.index(choice[s.problem.category]) for s in decisions.situations]
    return np.eye(2)[places]


BEST = {"dog": "large", "cat": "small"}
TRUTH = (WORTH["dog"]["large"] + WORTH["cat"]["small"]) / 2


def test_every_estimator_finds_the_value_of_another_policy() -> None:
    decisions = log(pets(2000, large=0.7))
    judged = Evaluator(decisions).judge("best", wanted(decisions, BEST))
    assert not judged.refusal
    for name, estimate in judged.estimates.items():
        assert estimate.mean == pytest.approx(TRUTH, abs=0.08), name
    doubly = judged.estimates["dr"]
    assert doubly.low < TRUTH < doubly.high
    assert doubly.high - doubly.low < 0.1
    assert judged.gain is not None
    assert judged.gain.low > 0


def test_estimates_are_the_same_on_every_machine() -> None:
    decisions = log(pets(300, large=0.7))
    judged = Evaluator(decisions).judge("best", wanted(decisions, BEST))
    assert judged.overlap is not None
    assert judged.gain is not None
    parts: dict[str, Any] = {**judged.estimates, "gain": judged.gain, "overlap": judged.overlap}
    expected = {
        "dr": (0.8756728339702856, 0.8112452244579996, 0.9401004434825716),
        "snips": (0.8733766233766233, 0.807931692153994, 0.9388215545992529),
        "ips": (0.8539682539682538, 0.7247397204800311, 0.9831967874564765),
        "direct": (0.873370683401618, 0.8652059588285632, 0.8815354079746729),
        "gain": (0.20567283397028552, 0.14018662743514343, 0.2711590405054276),
        "overlap": (121.0, 0.9777777777777777, 0.06877623519263013, 10 / 3, 0.0340909090909091, 0),
    }
    for name, part in parts.items():
        assert astuple(part) == pytest.approx(expected[name], rel=1e-6), name


def test_a_model_that_is_wrong_does_not_make_the_doubly_robust_estimate_wrong() -> None:
    """Nothing that the model sees tells a dog from a cat; the target policy can."""
    decisions = log(pets(4000, large=0.8))
    target = wanted(decisions, BEST)
    everywhere = evolve(decisions, situations=(decisions.situations[0],) * 4000)
    judged = Evaluator(everywhere).judge("best", target)
    assert judged.estimates["direct"].mean < TRUTH - 0.1
    assert judged.estimates["dr"].low < TRUTH < judged.estimates["dr"].high


def test_what_the_log_never_does_in_a_situation_is_refused() -> None:
    lines = [decision(c, BEST[c], 1.0, 1.0) for c in ("dog", "cat") * 50]
    decisions = log(lines)
    evaluator = Evaluator(decisions)
    same, other = wanted(decisions, BEST), wanted(decisions, {"dog": "small", "cat": "large"})
    assert not evaluator.judge("same", same).refusal
    assert "average 0.00" in evaluator.judge("other", other).refusal
    assert "average 0.50" in evaluator.judge("half", np.eye(2)[np.ones(100, int)]).refusal


def test_without_propensities_there_is_the_models_word_alone() -> None:
    decisions = log([decision(*parts) for parts in _plain(pets(400, large=0.7))])
    judged = Evaluator(decisions).judge("best", wanted(decisions, BEST))
    assert list(judged.estimates) == ["direct"]
    estimated = estimated_propensities(decisions)
    assert estimated.known
    large = decisions.choice == 1
    assert estimated.propensity[large].mean() == pytest.approx(0.7, abs=0.05)
    judged = Evaluator(estimated).judge("best", wanted(decisions, BEST))
    assert judged.estimates["dr"].low < TRUTH < judged.estimates["dr"].high


def _plain(lines: list[Logged]) -> list[tuple[str, str, float | None, None]]:
    return [(line.context.category, line.choice, line.reward, None) for line in lines]


def test_episodes_of_several_decisions_have_one_value() -> None:
    """Small first costs nothing; stopping after it keeps what it brought."""
    draw, episodes = np.random.default_rng(3), []
    for i in range(600):
        second = "large" if draw.random() < 0.5 else "small"
        reward = float(draw.random() < (0.9 if second == "large" else 0.3))
        episodes.append(
            (
                Logged(Context(), "small", NAMES, 1.0, 0.1, episode=str(i)),
                Logged(Context(), second, NAMES, 0.5, reward, episode=str(i), step=1),
            )
        )
    decisions = as_decisions(episodes, NAMES)
    target = np.tile([[1.0, 0.0], [0.0, 1.0]], (600, 1))
    judged = Evaluator(decisions).judge("large second", target)
    assert judged.estimates["dr"].low < 1.0 < judged.estimates["dr"].high
    assert judged.overlap is not None
    assert judged.overlap.effective == pytest.approx(300, rel=0.15)


def test_a_policy_that_only_decides_is_asked_often() -> None:
    decisions = log(pets(4))
    target = target_of(Fixed(["large"]), (*NAMES, "stop"), decisions.situations)
    assert target.tolist() == [[0, 1, 0]] * 4


def test_feedback_is_rewards_or_scores_less_cost() -> None:
    scored = [Logged(Context(), "small", score=1.0, cost=0.5), Logged(Context(), "small")]
    decisions = as_decisions([(line,) for line in scored], NAMES, cost_weight=0.4)
    assert decisions.reward.tolist() == [0.8]
    assert decisions.missing == 1
    with pytest.raises(UsageError, match="1 episodes have a score and no reward"):
        as_decisions([(scored[0],), (Logged(Context(), "small", reward=1.0),)], NAMES)
    with pytest.raises(UsageError, match=r"'smal', which this team does not have.*small"):
        as_decisions([(Logged(Context(), "smal", reward=1.0),)], NAMES)
