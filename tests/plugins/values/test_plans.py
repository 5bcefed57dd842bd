"""Fixed sequences: what is believed of them, how they are followed, when they win over values."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from orchestrion_values.fitted import fit
from orchestrion_values.fitted_learner import FittedLearner, FittedModel
from orchestrion_values.fitted_q import FittedQ
from orchestrion_values.learner import probing
from orchestrion_values.plans import LEARNED, Arm, ArmEpisode, Process, next_of
from orchestrion_values.policy import RecordedChoice
from orchestrion_values.transitions import Transitions

from orchestrion import Episode, Job, Key, OpenContext, Problem, Saved, gather
from tests.plugins.values.support import ROSTER, episode, names, policy, situation


def tried(seed: int, count: int) -> list[ArmEpisode]:
    """Choice 2 after choice 0 pays 1, any other end .4; each call costs .1."""
    random = np.random.default_rng(seed)
    result = []
    for n in range(count):
        arm = tuple(random.integers(3, size=random.integers(4)).tolist())
        worth = 0.0 if not arm else 1.0 if arm[-2:] == (0, 2) else 0.4
        noise = 0.1 * random.standard_normal()
        result.append(ArmEpisode(arm, f"p{n % 5}", worth - 0.1 * len(arm) + noise))
    return result


def test_beliefs_are_those_of_a_bayesian_regression_on_what_sequences_share() -> None:
    seen = tried(1, 30)
    process = Process(seen, 3)
    setting = process.setting
    arms = tuple(dict.fromkeys(attempt.arm for attempt in seen))
    beliefs = process.seen()
    # The same in weights: what arms share, the problem, and what an episode repeats of another.
    alike = setting.of_arms(process._terms(arms, arms))
    features = np.linalg.cholesky(alike + 1e-12 * np.eye(len(arms)))
    at = [arms.index(attempt.arm) for attempt in seen]
    problem = np.eye(5)[[int(attempt.problem[1:]) for attempt in seen]]
    ours = features[at] / np.sqrt(alike.diagonal()[at])[:, None]
    both = (ours[:, :, None] * problem[:, None]).reshape(len(seen), -1)
    parts = features[at], setting.problem**0.5 * problem, setting.repeat**0.5 * both
    x = np.concatenate(parts, axis=1)
    y = np.array([attempt.reward for attempt in seen]) / process.spread - process._mean
    noise = (1 - setting.repeat) * np.eye(x.shape[1])
    weights = np.linalg.solve(x.T @ x + noise, x.T @ y)
    expected = features @ weights[: len(arms)] + process._mean
    assert beliefs.outcome == pytest.approx(expected * process.spread)
    assert np.linalg.eigvalsh(beliefs.covariance).min() > -1e-9


def test_what_choices_pay_is_known_and_only_outcomes_are_learned() -> None:
    """Choice 1 always answers right, for 0.3; choice 0 costs 0.01 and adds nothing."""
    random, price = np.random.default_rng(5), np.array([-0.01, -0.3])
    attempts = []
    for n in range(120):
        arm = [(1,), (0, 1), (0,), (1, 1)][n % 4]
        paid = float(price[list(arm)].sum())
        right = float(1 in arm) - 0.4 * (random.random() < 0.3)
        attempts.append(ArmEpisode(arm, f"p{n}", right + paid, paid=paid))
    seen = Process(attempts, 2).seen()
    assert seen.best == (1,)
    values = dict(zip(seen.arms, seen.mean, strict=True))
    assert values[1,] - values[1, 1] == pytest.approx(0.3, abs=0.08)


def test_the_same_answer_to_the_same_problem_is_no_new_evidence() -> None:
    """Choice 0 solved one problem, often asked; choice 1 eleven of twelve."""
    attempts = [ArmEpisode((0,), "p0", 1.0) for _ in range(40)]
    attempts += [ArmEpisode((1,), f"p{n}", float(n > 0)) for n in range(12) for _ in range(2)]
    attempts += [ArmEpisode((0,), f"p{n}", float(n > 4)) for n in range(1, 8)]
    process = Process(attempts, 2)
    assert process.setting.repeat > 0.5
    assert process.seen().best == (1,)


def test_no_sequence_is_believed_to_do_better_than_all_that_was_seen() -> None:
    """Choices 0 and 1 both answer right; making both costs more and gains nothing."""
    random = np.random.default_rng(3)
    attempts = []
    for n in range(60):
        arm = [(0,), (1,), (2,), (2, 2)][n % 4]
        paid = -0.02 * len(arm)
        attempts.append(
            ArmEpisode(arm, f"p{n}", float(2 not in arm or random.random() < 0.2) + paid, paid=paid)
        )
    beliefs = Process(attempts, 3).promising(3)
    assert beliefs.mean.max() <= 0.98
    assert len(beliefs.best) == 1


def test_the_best_sequence_is_found_among_neighbours_of_what_was_tried() -> None:
    beliefs = Process(tried(2, 80), 3).promising(3)
    assert beliefs.best == (0, 2)
    drawn = beliefs.draws(np.random.default_rng(1), 40)
    assert drawn.count((0, 2)) > 20
    assert all(len(arm) <= 3 for arm in beliefs.arms)


def by_kind(count: int) -> list[ArmEpisode]:
    """Choice 0 solves problems of kind x, and choice 1 those of kind y."""
    random = np.random.default_rng(4)
    result = []
    for n in range(count):
        choice, kind = int(random.integers(2)), "xy"[n % 2]
        worth = float("xy"[choice] == kind) + 0.1 * random.standard_normal()
        result.append(ArmEpisode((choice,), f"p{n}", worth, kind))
    return result


def test_the_best_sequence_can_depend_on_the_category() -> None:
    process = Process(by_kind(40), 2)
    best = {kind: process.promising(1, kind).best for kind in "xy"}
    assert best == {"x": (0,), "y": (1,)}
    known, other = process.seen("x"), process.seen(process.context("z"))
    assert known.mean.max() > other.mean.max() + 0.1  # nobody knows which one solves kind z
    assert other.covariance.trace() > known.covariance.trace()


def test_categories_that_pay_alike_change_little() -> None:
    several = [attempt._replace(category=attempt.problem) for attempt in tried(2, 80)]
    process = Process(several, 3)
    assert process.setting.share == 0.2
    assert {process.seen(f"p{n}").best for n in range(5)} == {(0, 2)}


def test_hard_problems_do_not_hide_the_best_sequence() -> None:
    """Choice 0 is better, but met the hard problems."""
    random = np.random.default_rng(6)
    seen = []
    for n in range(60):
        hard = n % 10 < 5
        choice = int(random.random() < (0.1 if hard else 0.9))
        reward = 0.3 * (choice == 0) + (not hard) + 0.1 * random.standard_normal()
        seen.append(ArmEpisode((choice,), f"p{n % 10}", reward))
    mean = {arm: np.mean([e.reward for e in seen if e.arm == arm]) for arm in ((0,), (1,))}
    assert mean[1,] > mean[0,]
    assert Process(seen, 2).seen().best == (0,)


def test_of_sequences_without_costs_the_shortest_is_the_best() -> None:
    ways: list[Arm] = [(0,), (1, 0), (1, 1, 0), (1, 1), ()]
    attempts = [
        ArmEpisode(arm, f"p{n}", float(arm[-1:] == (0,)), free=max(0, len(arm) - 1))
        for n in range(8)
        for arm in ways
    ]
    assert Process(attempts, 2).seen().best == (0,)


def test_uncertain_sequences_are_drawn_too() -> None:
    beliefs = Process(tried(3, 8), 3).promising(3)
    assert len(set(beliefs.draws(np.random.default_rng(1), 40))) > 3


def test_a_sequence_passes_over_what_is_blocked_and_then_stops() -> None:
    runtime = policy()  # a, b:x, b:y, c, stop
    arm = (0, 3, 1)
    assert next_of(arm, runtime, situation()) == 0
    assert next_of(arm, runtime, situation("a")) == 3
    assert next_of(arm, runtime, situation("a", blocked=["c"])) == 1
    assert next_of(arm, runtime, situation("a", "b:x")) == 4
    assert next_of(arm, policy(stop=False), situation("a", "b:x")) is None


def learner(**settings: Any) -> FittedLearner:
    return FittedLearner(FittedQ(trees=0, **settings), OpenContext("trainer", Key(1), ROSTER))


@pytest.mark.parametrize(("by_values", "kept"), [(0.0, (0,)), (1.0, LEARNED)])
def test_the_better_of_values_and_sequences_is_kept(by_values: float, kept: Arm) -> None:
    runtime = policy()
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner()
    for acted, reward in (("a", 0.5), ("c", 0.1)):
        plain = [episode(runtime, [acted, "stop"], reward, features=[n]) for n in range(10)]
        at_work.absorb(plain, session)
    assert isinstance(runtime.model, FittedModel)
    assert runtime.model.plans == {}  # the values were not yet tried
    learned = [episode(runtime, ["b:x", "stop"], by_values, features=[0.0])] * 10
    at_work.absorb(learned, session, [LEARNED] * 10)
    assert runtime.model.plans == {None: kept}
    if kept != LEARNED:
        shown = [situation(features=[0.0]), situation("a", features=[0.0])]
        assert names(runtime.decide(shown, [Key(1)] * 2)) == ["a", "stop"]


def test_where_nothing_can_be_reacted_to_the_best_sequence_is_kept_untested() -> None:
    runtime = policy()
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner(episodes=100, plans=0.1)
    at_work.absorb([episode(runtime, ["a", "stop"], 0.5)] * 10, session)
    at_work.absorb([episode(runtime, ["c", "stop"], 0.1)] * 10, session)
    assert isinstance(runtime.model, FittedModel)
    assert runtime.model.plans == {None: (0,)}
    problems, keys = [Problem(f"n{i}") for i in range(4)], [Key(1).child(i) for i in range(4)]
    assert LEARNED not in at_work._duels(runtime, problems, keys)[2]
    assert None not in at_work._arms(runtime, problems, keys)


def test_no_sequence_is_so_long_that_it_ends_at_the_limit() -> None:
    """There is no turn left to stop in, so that the episode would not count as solved."""
    runtime = policy()
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner(episodes=100)
    at_work.turns = 3
    at_work.absorb([episode(runtime, ["a", "c", "stop"], 0.5)] * 10, session)
    keys = [Key(1).child(i) for i in range(200)]
    arms = at_work._arms(runtime, [Problem(f"n{i}") for i in range(200)], keys)
    assert max(len(arm) for arm in arms if arm is not None) == 2
    drawn = probing(runtime, 3)
    done = drawn.decide([situation("a", "c")], [Key(1)])
    assert done[0].stop


def test_sequences_are_saved_with_the_policy() -> None:
    runtime, again = policy(), policy()
    data = Transitions.of(
        runtime, gather([episode(runtime, ["a", "stop"], 1.0)] * 4, RecordedChoice)
    )
    assert data is not None
    runtime.model = FittedModel(fit(data, 1), runtime, plans={None: (3, 1), "x": (3, 0)})
    again.load(runtime.save())
    assert isinstance(again.model, FittedModel)
    assert again.model.plans == runtime.model.plans
    named = {"": [again.names[3], again.names[1]], "x": [again.names[3], again.names[0]]}
    assert again.save().data["learned"] == {"sequences": named}
    shown = [situation("c"), situation("c", category="x"), situation("c", category="other")]
    assert names(again.decide(shown, [Key(1)] * 3)) == ["b:x", "a", "b:x"]


@pytest.mark.parametrize(("plan", "read"), [([3, 1], {None: (3, 1)}), (None, {})])
def test_a_policy_saved_with_one_sequence_for_all_categories_is_read(
    plan: list[int] | None, read: dict[str | None, Arm]
) -> None:
    runtime = policy()
    data = Transitions.of(runtime, gather([episode(runtime, ["a"], 1.0)] * 4, RecordedChoice))
    assert data is not None
    saved = FittedModel(fit(data, 1), runtime).save()
    old: Any = {**saved.data, "plan": plan}
    del old["plans"]
    assert FittedModel.load(Saved(saved.arrays, old), runtime).plans == read


def test_each_category_has_its_own_sequence_and_rivals() -> None:
    runtime = policy()
    at_work = learner(plans=1.0, episodes=100)
    session: Any = SimpleNamespace(policy=runtime)
    at_work.absorb([episode(runtime, ["a", "stop"], 0.0, features=[n]) for n in (0, 1)], session)
    at_work._tried = by_kind(40) + [ArmEpisode(LEARNED, "p", 0.2, kind) for kind in "xy"]
    problems = [Problem(f"n{i}", category="xy"[i % 2]) for i in range(6)]
    keys = [Key(1).child(i) for i in range(6)]
    met, with_keys, arms = at_work._duels(runtime, problems, keys)
    assert [problem.id for problem in met] == ["n0"] * 3 + ["n1"] * 3
    assert with_keys == [keys[0]] * 3 + [keys[1]] * 3
    assert arms == [LEARNED, (0,), (1,), LEARNED, (1,), (0,)]
    plans = at_work._fitted(runtime).plans
    assert (plans["x"], plans["y"]) == ((0,), (1,))
    explored = at_work._arms(runtime, problems * 10, keys * 10)
    for arms, answers in ((explored[::2], 0), (explored[1::2], 1)):
        assert sum(arm is not None and arm[-1:] == (answers,) for arm in arms) > 14


def test_no_sequences_are_tried_where_none_are_wanted() -> None:
    runtime = policy()
    at_work = learner(plans=0.0)
    session: Any = SimpleNamespace(policy=runtime)
    at_work.absorb([episode(runtime, ["a", "stop"], 1.0)] * 4, session)
    assert at_work._tried == []


def test_half_of_the_sequences_were_tried_before() -> None:
    runtime = policy()
    at_work = learner(plans=1.0, episodes=300)
    session: Any = SimpleNamespace(policy=runtime)
    ways = [["a", "stop"], ["c", "stop"], ["a", "c", "stop"], ["b:x", "c", "a", "stop"]]
    at_work.absorb([episode(runtime, way, 0.1 * n) for n, way in enumerate(ways)], session)
    at_work._tried += [ArmEpisode((choice,), "p", 0.0) for choice in range(4)] * 4
    before = {attempt.arm for attempt in at_work._tried}
    arms = at_work._arms(runtime, [Problem("p")] * 40, [Key(2).child(n) for n in range(40)])
    assert sum(arm in before for arm in arms) >= 20
    assert set(arms[1::2]) <= before
    assert not set(arms[::2]) <= before


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
def test_small_batches_too_follow_their_share_of_new_and_tried_sequences(share: float) -> None:
    runtime = policy()
    at_work = learner(plans=share, episodes=300)
    at_work._tried = [ArmEpisode((choice,), "p", 0.1 * choice) for choice in range(4)] * 4
    before = {attempt.arm for attempt in at_work._tried}
    followed: list[Arm | None] = []
    for batch in range(10):
        keys = [Key(batch).child(n) for n in range(8)]
        followed += at_work._arms(runtime, [Problem("p")] * 8, keys)
        at_work._seen += 8
    assert sum(arm is not None for arm in followed) == pytest.approx(80 * share, abs=1)
    again = sum(arm in before for arm in followed)
    assert 80 * share / 2 - 1 <= again < 80 * share - 1


@pytest.mark.parametrize(("episodes", "times"), [(300, 4), (60, 2), (10, 0)])
def test_each_choice_is_first_tried_alone_in_each_category(episodes: int, times: int) -> None:
    at_work = learner(episodes=episodes)
    at_work._tried = [ArmEpisode((0,), "p", 0.0, "x"), ArmEpisode((0, 1), "p", 0.0, "x")]
    problems = [Problem(f"n{i}", category="xy"[i % 2]) for i in range(40)]
    arms = at_work._singles(4, problems)
    # Two categories of four choices: 60 x .3 / 8 = 2 times each; 4 are enough.
    assert arms.count(None) == 40 - max(0, 8 * times - 1)
    assert [arms[::2].count((c,)) for c in range(4)] == [max(0, times - 1), *[times] * 3]
    assert [arms[1::2].count((c,)) for c in range(4)] == [times] * 4


def test_choices_alone_are_explored_before_longer_sequences() -> None:
    runtime = policy()
    at_work = learner(plans=1.0)
    session: Any = SimpleNamespace(policy=runtime)
    at_work.absorb([episode(runtime, ["c", "a", "stop"], 0.1)] * 4, session)
    arms = at_work._arms(runtime, [Problem("p")] * 20, [Key(2).child(n) for n in range(20)])
    assert arms[:16] == [(0,), (1,), (2,), (3,)] * 4
    assert any(len(arm or ()) > 1 for arm in arms[16:])


def test_the_last_third_compares_what_was_learned_with_the_best_sequences() -> None:
    runtime = policy()
    at_work = learner(episodes=100)
    problems = [Problem(f"p{i}") for i in range(5)]

    async def rollout(jobs: list[Job]) -> list[Episode]:
        return [episode(runtime, ["a", "stop"], 0.5, features=[n]) for n in range(len(jobs))]

    session: Any = SimpleNamespace(
        policy=runtime, key=Key(1), problems=lambda split: problems, rollout=rollout
    )
    compared = []
    for i in range(len(at_work.sizes)):
        before = len(at_work._tried)
        asyncio.run(at_work.iterate(i, session))
        compared.append(any(attempt.arm == LEARNED for attempt in at_work._tried[before:]))
    left = [sum(at_work.sizes[i:]) for i in range(len(at_work.sizes))]
    assert compared == [count <= 30 for count in left]
    assert left[-1] <= 30 < left[0]
