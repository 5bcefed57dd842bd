"""The trainer: it learns, repeats itself to the bit, and resumes where it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import asdict, evolve
from orchestrion_reinforce.neural import Neural
from orchestrion_reinforce.ppo import Novelty, Steps, draw
from orchestrion_reinforce.reinforce import Reinforce

from orchestrion import (
    CheckpointError,
    Episode,
    Job,
    Key,
    Problem,
    RunError,
    Trajectory,
    UsageError,
    replace,
)
from tests.plugins.reinforce.support import TinySession, learner, policy, train, weights

SMALL = Neural(hidden=[16])
QUICK = Reinforce(iterations=40, episodes=32, learning_rate=0.01, value_hidden=[16], novelty=0)
WITHOUT_VALUE = evolve(QUICK, baseline="none", value_hidden=[64, 64])


def world(problem: Problem, acted: Sequence[str]) -> list[float]:
    """Shows which problem it is, and whether "a" or "b" acted last."""
    last = acted[-1] if acted else ""
    return [float(problem.id == "1"), float(last == "a"), float(last == "b")]


def pay(problem: Problem, acted: Sequence[str]) -> float:
    """Problem 0 wants a, b and then c; problem 1 wants b and then c."""
    wanted = ["a", "b", "c"] if problem.id == "0" else ["b", "c"]
    return float(list(acted) == wanted)


def session(runtime: Any, key: Key) -> TinySession:
    return TinySession(runtime, world, pay, key)


def reached(settings: Reinforce, seed: int, offset: float = 0.0) -> float:
    """Mean reward of the last five iterations, less the offset; at best 1 - 2.5 x .05 = .875."""

    def raised(runtime: Any, key: Key) -> TinySession:
        return TinySession(runtime, world, lambda *how: pay(*how) + offset, key)

    trainer, _ = train(settings, policy(SMALL, seed=seed), raised, seed)
    means = [mean for _, mean in trainer._history]
    assert len(means) == settings.iterations
    return float(np.mean(means[-5:])) - offset


# ------------------------------------------------------------------------------ learning


@pytest.mark.parametrize("baseline", ["none", "running", "leave-one-out", "value"])
def test_every_baseline_learns(baseline: Any) -> None:
    group = 8 if baseline == "leave-one-out" else 1
    start = QUICK if baseline == "value" else WITHOUT_VALUE
    assert reached(evolve(start, baseline=baseline, group=group), 0) > 0.75


def test_a_baseline_beats_none_where_every_reward_is_high() -> None:
    """Plain REINFORCE (Williams 1992) with and without a baseline; all rewards are 3 higher."""
    plain = evolve(WITHOUT_VALUE, normalize=False, clip=None, epochs=1, entropy=0.02)
    compared = evolve(plain, baseline="leave-one-out", group=8)
    none, others = ([reached(s, seed, 3.0) for seed in range(2)] for s in (plain, compared))
    assert np.mean(others) > np.mean(none) + 0.1, (none, others)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"baseline": "none", "gae_lambda": 0.5}, "gae_lambda: does nothing with `baseline: none`"),
        ({"baseline": "running", "value_hidden": [8]}, "value_hidden: does nothing with"),
        ({"running_rate": 0.5}, "running_rate: does nothing with `baseline: value`"),
        ({"novelty": 0.0, "novelty_share": 0.3}, "novelty_share: does nothing with `novelty: 0`"),
        ({"entropy": 0.0, "entropy_power": 1.0}, "entropy_power: does nothing with `entropy`"),
        ({"baseline": "leave-one-out"}, "needs at least 2"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Reinforce(**settings)


def test_minibatches_and_a_discount_learn_as_well() -> None:
    assert reached(evolve(QUICK, minibatches=3, gamma=0.95, epochs=2), 0) > 0.8


def test_a_rare_situation_earns_its_bonus_and_stopping_none() -> None:
    """c x spread / sqrt(n) for entering; most situations must have come before."""
    a, b = np.array([0.0]), np.array([1.0])
    records = [SimpleNamespace(familiar=row) for row in (a, b, a, b, a, a, a, b)]
    lengths = np.array([2, 2, 1, 3])
    totals, problems = np.array([0.0, 0.0, 0.0, 4.0]), (Problem("p", category="k"),) * 4
    steps = Steps(tuple(records), np.zeros(8), lengths, totals, problems)
    novelty = Novelty()
    spread = np.sqrt(3.0)
    # b is entered three times, a once, so that three of four had been entered before or again.
    scale = 2.0 * spread * (2 * 3 / 4 - 1)
    expected = [scale / 3**0.5, 0, scale / 3**0.5, 0, 0, scale, scale / 3**0.5, 0]
    assert novelty.added(steps, 2.0).rewards == pytest.approx(expected)
    again = Novelty(**asdict(novelty))
    assert again.added(steps, 2.0).rewards[0] == pytest.approx(2.0 * spread / 6**0.5)


def test_an_advantage_raises_the_probability_of_what_earned_it() -> None:
    """One group, one decision each: only problem 1 with "c" first pays."""
    settings = Reinforce(
        iterations=1, episodes=64, group=64, baseline="leave-one-out", entropy=0, learning_rate=0.01
    )
    runtime = policy(SMALL)
    tiny = TinySession(runtime, world, lambda _, acted: acted == ["c"], Key(1), [Problem("1")], 1)
    seen = [tiny._situation(Problem("1"), Trajectory())]
    before = runtime.probabilities(seen)[0]
    train(settings, runtime, lambda r, k: tiny)
    after = runtime.probabilities(seen)[0]
    assert after[3] > before[3] + 0.01
    assert (after[:3] < before[:3]).all()


def test_equal_rewards_teach_nothing() -> None:
    settings = Reinforce(iterations=3, entropy=0, group=4, baseline="leave-one-out", episodes=16)
    runtime = policy(SMALL)
    flat = lambda r, k: TinySession(r, world, lambda *_: 0.5, k, turns=1, cost=0.1)  # noqa: E731
    train(settings, runtime, flat, stop=1)
    before = weights(runtime)
    train(settings, runtime, flat)
    assert (weights(runtime) == before).all()


# ------------------------------------------------------------------------------ schedules


def test_entropy_weight_and_learning_rate_fall_as_set() -> None:
    settings = evolve(
        QUICK, iterations=4, entropy=2.0, entropy_end=0.4, entropy_power=2, learning_rate_end=0.5
    )
    _, metrics = train(settings, policy(SMALL), session)
    weights = [row["entropy_weight"] for row in metrics]
    assert weights == pytest.approx([2.0, 0.4 + 1.6 * 0.5625, 0.4 + 1.6 * 0.25, 0.4 + 1.6 / 16])
    rates = [row["learning_rate"] for row in metrics]
    assert rates == pytest.approx([0.01, 0.00875, 0.0075, 0.00625])


def test_a_high_entropy_weight_keeps_the_policy_open() -> None:
    kept = evolve(QUICK, entropy=5.0, entropy_end=5.0)
    gone = evolve(QUICK, entropy=0.0)
    entropy = [train(s, policy(SMALL), session)[1][-1]["entropy"] for s in (kept, gone)]
    assert entropy[0] > 0.8 > 0.3 > entropy[1]


def test_one_epoch_measures_its_own_drift_and_clips_nothing() -> None:
    metrics = train(
        evolve(QUICK, epochs=1, iterations=1, learning_rate=1e-5), policy(SMALL), session
    )[1]
    assert 0 < metrics[0]["kl"] < 1e-4
    assert metrics[0]["clip_fraction"] == 0


# --------------------------------------------------------------------- problems and groups


def test_groups_are_samples_of_one_problem_with_keys_of_their_own() -> None:
    problems = [Problem(str(i)) for i in range(5)]
    jobs = draw(problems, Key(3), Reinforce(episodes=24, group=4, baseline="leave-one-out"))
    ids = [job.problem.id for job in jobs]
    assert [len(set(ids[i : i + 4])) for i in range(0, 24, 4)] == [1] * 6
    assert sorted(Counter(ids).values()) == [4, 4, 4, 4, 8]
    assert len({job.key for job in jobs}) == 24
    assert jobs == draw(problems, Key(3), Reinforce(episodes=24, group=4))
    other = draw(problems, Key(4), Reinforce(episodes=21, group=4))
    assert ids != [job.problem.id for job in other]
    assert len(other) == 24, "whole groups"
    with pytest.raises(UsageError, match="no training problems"):
        draw([], Key(0), Reinforce())


def test_a_policy_without_a_gradient_is_refused() -> None:
    class Plain:
        def decide(self, situations: Any, keys: Any) -> Any:
            raise AssertionError

    with pytest.raises(UsageError, match="the policy of this team does not"):
        train(QUICK, Plain(), session, stop=1)


# -------------------------------------------------------------------- what goes wrong


def without_rewards(missing: int) -> Any:
    """A session in which the first episodes have no reward."""

    class Unjudged(TinySession):
        async def rollout(self, jobs: Sequence[Job]) -> list[Episode]:
            episodes = await super().rollout(jobs)
            unjudged = [replace(episode, reward=None) for episode in episodes[:missing]]
            return unjudged + episodes[missing:]

    return lambda runtime, key: Unjudged(runtime, world, pay, key)


def test_missing_rewards_are_counted_and_the_rest_is_learned_from() -> None:
    _, metrics = train(QUICK, policy(SMALL), without_rewards(16), stop=2)
    assert [row["excluded"] for row in metrics] == [16, 16]
    assert metrics[1]["gradient_norm"] > 0


def test_without_any_reward_nothing_changes() -> None:
    runtime = policy(SMALL)
    runtime.decide([session(runtime, Key(0))._situation(Problem("0"), Trajectory())], [Key(0)])
    before = weights(runtime)
    _, metrics = train(QUICK, runtime, without_rewards(32), stop=1)
    assert metrics[0]["excluded"] == 32
    assert (weights(runtime) == before).all()
    assert all(np.isfinite(list(metrics[0].values())))


def test_an_update_that_is_not_finite_is_skipped_and_counted() -> None:
    runtime = policy(SMALL)
    train(QUICK, runtime, session, stop=1)
    settings = evolve(WITHOUT_VALUE, normalize=False, minibatches=32, epochs=1)
    with np.errstate(all="ignore"):
        _, metrics = train(settings, runtime, _endless("0"), stop=1)
    assert 0 < metrics[0]["skipped_updates"] < 32
    assert weights(runtime).isfinite().all()
    assert all(np.isfinite(list(metrics[0].values())))


def test_an_iteration_of_which_nothing_is_learned_says_so() -> None:
    runtime = policy(SMALL)
    with (
        np.errstate(all="ignore"),
        pytest.raises(RunError, match=r"all 4 updates of iteration 1 were skipped.* inf"),
    ):
        train(evolve(QUICK, normalize=False), runtime, _endless("0123456789"), stop=1)


def _endless(problems: str) -> Any:
    """A session in which the reward of these problems is infinite."""

    def paid(problem: Problem, acted: Sequence[str]) -> float:
        return float("inf") if problem.id in problems else pay(problem, acted)

    return lambda runtime, key: TinySession(runtime, world, paid, key)


# ------------------------------------------------------------------- repeating and resuming


@pytest.mark.parametrize("settings", [QUICK, evolve(QUICK, minibatches=3, novelty=1)])
def test_the_same_seed_gives_the_same_bytes(settings: Reinforce) -> None:
    results = []
    for _ in range(2):
        runtime = policy(SMALL)
        trainer, metrics = train(settings, runtime, session, stop=5)
        results.append((runtime.save(), trainer.save(), metrics))
    assert results[0] == results[1]
    other = policy(SMALL)
    train(settings, other, session, seed=1, stop=5)
    assert other.save() != results[0][0]


class _OneByOne(TinySession):
    """Runs its jobs one at a time, the last one first."""

    async def rollout(self, jobs: Sequence[Job]) -> list[Episode]:
        found = [(await super(_OneByOne, self).rollout([job]))[0] for job in reversed(jobs)]
        return found[::-1]


def test_learning_does_not_depend_on_which_decisions_were_taken_together() -> None:
    results = []
    for kind in (TinySession, _OneByOne):
        runtime = policy(SMALL)
        trainer, metrics = train(QUICK, runtime, lambda r, k, t=kind: t(r, world, pay, k), stop=6)  # type: ignore[misc]
        results.append((runtime.save(), trainer.save(), metrics))
    assert results[0] == results[1]


@pytest.mark.parametrize("baseline", ["running", "value"])
def test_resuming_goes_on_to_the_same_bytes(baseline: Any) -> None:
    start = QUICK if baseline == "value" else WITHOUT_VALUE
    settings = evolve(
        start, baseline=baseline, iterations=8, episodes=12, novelty=1, novelty_share=1
    )
    whole = policy(SMALL)
    trainer, metrics = train(settings, whole, session)
    first = policy(SMALL)
    half, _ = train(settings, first, session, stop=4)
    resumed, again = policy(SMALL), learner(settings, 100)
    resumed.load(first.save())
    again.load(half.save())
    assert again.save() == half.save()
    _, rest = train(settings, resumed, session, start=4, trainer=again)
    assert (resumed.save(), again.save()) == (whole.save(), trainer.save())
    assert rest == metrics[4:]


def test_it_saves_and_loads_before_its_first_iteration() -> None:
    first, second = learner(), learner(seed=9)
    second.load(first.save())
    assert second.save() == first.save()


def test_a_damaged_state_is_refused() -> None:
    saved = learner().save()
    with pytest.raises(CheckpointError, match="damaged"):
        learner().load(replace(saved, data={"steps": 1}))
    trained = train(evolve(QUICK, episodes=4), policy(SMALL), session, stop=1)[0].save()
    with pytest.raises(CheckpointError, match="no array"):
        learner(QUICK).load(replace(trained, arrays={}))


# ------------------------------------------------------------------------------ reporting


def test_metrics_name_what_the_team_did_and_how_far_the_update_went() -> None:
    _, metrics = train(QUICK, policy(SMALL), session)
    last = metrics[-1]
    for name in ("entropy", "kl", "clip_fraction", "gradient_norm", "value_loss", "compactness"):
        assert np.isfinite(last[name])
    assert sum(last[f"share/{name}"] for name in "abc") == pytest.approx(1)
    assert 32 <= last["episodes_to_90"] < 32 * QUICK.iterations
