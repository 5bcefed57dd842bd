"""Fitted Q: its arithmetic beside refits and closed forms, what it remembers, what it explores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from orchestrion_values import fitted as fitted_module
from orchestrion_values.ensemble import Fitted, Trees
from orchestrion_values.fitted import _folds, _left_out, fit
from orchestrion_values.fitted_learner import FittedModel
from orchestrion_values.fitted_q import batches
from orchestrion_values.learner import chances
from orchestrion_values.policy import RecordedChoice
from orchestrion_values.transitions import Transitions, from_steps

from orchestrion import Episode, Problem, Reward, gather
from tests.plugins.values.support import episode, policy, situation, trajectory


def chain(count: int, seed: int = 0) -> Transitions:
    """Two steps: going right twice pays 1, stopping pays .3, going left ends with nothing.

    Choices are left, right and stop; which step it is stands in the context.
    """
    random = np.random.default_rng(seed)
    step, choice, reward, done = [], [], [], []
    for _ in range(count):
        for now in (0, 1):
            taken = int(random.integers(3))
            over = taken != 1 or now == 1
            step.append([float(now), random.standard_normal()])
            choice.append(taken)
            reward.append({0: 0.0, 1: float(now), 2: 0.3}[taken])
            done.append(over)
            if over:
                break
    n = len(step)
    nothing, free = np.zeros((n, 3, 0)), np.ones((n, 3), np.bool_)
    context = np.array(step)
    after = np.where(np.array(done)[:, None], 0.0, context + np.array([1, 0]))
    return from_steps(
        context, nothing, free, np.array(choice), np.array(reward),
        after, nothing, free, np.array(done),
    )  # fmt: skip


def values_at(fitted: Fitted, now: float) -> np.ndarray:
    unknown = np.array([-1])
    return fitted.values(np.array([[now, 0.0]]), np.zeros((1, 3, 0)), unknown)[:, 0]


def test_what_comes_after_a_choice_is_part_of_its_value() -> None:
    # Going right at first pays nothing by itself, and returns under random choices are below .3
    # ... (1/3) 1 + (1/3) .3 + 0 = .43; by the best choice after it, it is worth 1.
    first = values_at(fit(chain(300), 1), 0.0)[0]
    assert first.argmax() == 1
    assert first[1] == pytest.approx(1.0, abs=0.15)
    assert first[2] == pytest.approx(0.3, abs=0.1)


def test_free_choices_are_charged_for_or_an_episode_would_go_on_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Choice 0 changes nothing and costs nothing, choice 1 ends the episode with 1 or, half as
    # often, with 0: going on would be worth as much as ending.
    random = np.random.default_rng(3)
    choice = random.integers(2, size=200)
    done = choice == 1
    done[-1] = True
    reward = np.where(done & (random.random(200) < 0.67), 1.0, 0.0)
    context, nothing = np.zeros((200, 1)), np.zeros((200, 2, 0))
    free = np.ones((200, 2), np.bool_)
    data = from_steps(context, nothing, free, choice, reward, context, nothing, free, done)

    def ahead() -> float:
        fitted = fit(data, 1)
        values = fitted.values(np.zeros((1, 1)), np.zeros((1, 2, 0)), np.array([-1]))[0, 0]
        return float(values[1] - values[0])

    charged = ahead()
    monkeypatch.setattr(fitted_module, "FREE", 0.0)
    assert charged > ahead() + 0.01


def test_a_fit_weighs_what_was_returned_and_what_may_follow() -> None:
    data = chain(60, 3)
    noise = 0.2 * np.random.default_rng(4).standard_normal(len(data))
    fitted = fit(evolve(data, reward=data.reward + noise), 7, members=2, trees=0)
    assert fitted.lost == pytest.approx(0.235081899, rel=1e-6)
    for now, values in {
        0.0: [-0.011768062, 0.952194855, 0.279319243],
        1.0: [-0.013142061, 0.964630819, 0.345085215],
    }.items():
        assert values_at(fitted, now)[0] == pytest.approx(values, rel=1e-6)


def test_easy_problems_are_not_taken_for_good_choices() -> None:
    """Choice 1 is .2 better, but met the hard problems."""
    random, count = np.random.default_rng(5), 200
    problem = np.arange(count) % 10
    easy = problem < 5
    choice = np.where(random.random(count) < np.where(easy, 0.2, 0.8), 1, 0)
    reward = easy + 0.2 * choice + 0.05 * random.standard_normal(count)
    assert reward[choice == 1].mean() < reward[choice == 0].mean()
    shown, free = np.zeros((count, 1)), np.ones((count, 2), np.bool_)
    nothing, done = np.zeros((count, 2, 0)), np.ones(count, np.bool_)
    steps = from_steps(shown, nothing, free, choice, reward, shown, nothing, free, done)
    data = evolve(steps, problem=problem, problems=tuple(f"p{i}" for i in range(10)))
    values = fit(data, 1, trees=0).values(np.zeros((1, 1)), nothing[:1], np.array([-1]))[0, 0]
    assert values[1] - values[0] == pytest.approx(0.2, abs=0.05)


def test_members_differ_where_little_is_known_and_agree_where_much_is() -> None:
    few, many = (values_at(fit(chain(n), 1), 0.0)[1:].std(axis=0).mean() for n in (6, 300))
    assert few > 3 * many


def test_a_fit_is_a_function_of_data_and_seed() -> None:
    first, same, other = (values_at(fit(chain(40), seed), 0.0) for seed in (1, 1, 2))
    assert first.tobytes() == same.tobytes()
    assert first[1:].tolist() != other[1:].tolist()


def test_the_error_on_episodes_left_out_is_that_of_refits_without_them() -> None:
    random = np.random.default_rng(5)
    rows, y = random.standard_normal((12, 4)), random.standard_normal(12)
    episodes = np.array([0, 0, 2, 2, 2, 5, 6, 6, 8, 8, 8, 11])
    penalty, squares = 0.7, 0.0
    for first in set(episodes.tolist()):
        seen = episodes != first
        gram = rows[seen].T @ rows[seen] + penalty * np.eye(4)
        squares += ((y - rows @ np.linalg.solve(gram, rows[seen].T @ y[seen]))[~seen] ** 2).sum()
    values, vectors = np.linalg.eigh(rows.T @ rows)
    error = _left_out(rows @ vectors, 1 / (values + penalty), y, _folds(episodes))
    assert error == pytest.approx((squares / 12) ** 0.5)


def test_trees_as_arrays_say_what_scikit_learn_says() -> None:
    from sklearn.tree import ExtraTreeRegressor

    random = np.random.default_rng(3)
    x, y = random.standard_normal((80, 5)).astype(np.float32), random.standard_normal(80)
    grown = [ExtraTreeRegressor(random_state=seed).fit(x[:60], y[:60]) for seed in range(4)]
    expected = 0.5 * np.mean([tree.predict(x) for tree in grown], axis=0)
    assert Trees.of(grown, 0.5).predict(x) == pytest.approx(expected)


def test_a_wide_text_does_not_drown_what_else_is_shown() -> None:
    data, random = chain(60), np.random.default_rng(2)
    noise = random.standard_normal((len(data), 200))
    wide = Transitions(
        np.concatenate([data.context, noise], axis=1), data.choices, data.allowed, data.choice,
        data.reward, data.after, data.problem, data.category, blocks=(2, 200),
    )  # fmt: skip
    fitted = fit(wide, 1)
    shown = np.concatenate([[[0.0, 0.0]], random.standard_normal((1, 200))], axis=1)
    first = fitted.values(shown, np.zeros((1, 3, 0)), np.array([-1]))[0, 0]
    assert first.argmax() == 1


def test_a_model_is_cautious_and_saved_and_loaded_to_the_bit() -> None:
    runtime = policy()
    made = [episode(runtime, ["a", "c", "stop"], 1.0), episode(runtime, ["c", "stop"], 0.2)] * 30
    data = Transitions.of(runtime, gather(made, RecordedChoice))
    assert data is not None
    model = FittedModel(fit(data, 1), runtime, caution=0.5)
    assert model.fitted.trees is not None
    runtime.model = model
    again = policy()
    again.load(runtime.save())
    shown = [situation(), situation("a"), situation("a", "c")]
    members = model.members(shown)
    assert isinstance(again.model, FittedModel)
    assert again.model.members(shown).tobytes() == members.tobytes()
    cautious = again.model.scores(shown, runtime.allowed(shown))
    assert cautious == pytest.approx(members[0] - 0.5 * members[1:].std(axis=0))
    assert again.model.caution == 0.5


# ---------------------------------------------------------------- decisions as arrays


def test_episodes_become_rows_that_follow_each_other() -> None:
    runtime = policy()
    made = [
        episode(runtime, ["a", "c", "stop"], 1.0, turns=(-0.1, -0.2)),
        episode(runtime, ["c"], 0.5),
    ]
    data = Transitions.of(runtime, gather(made, RecordedChoice))
    assert data is not None
    assert data.after.tolist() == [1, 2, -1, -1]
    assert data.reward == pytest.approx([-0.1, -0.2, 1.3, 0.5])
    assert data.returns == pytest.approx([1.0, 1.1, 1.3, 0.5])
    assert data.episode.tolist() == [0, 0, 0, 3]


@pytest.mark.parametrize(
    ("second", "apart"),
    [
        ({}, False),
        ({"features": [2.0]}, True),
        ({"features": [2.0], "category": "other"}, False),
        ({"blocked": ["c"]}, True),
    ],
)
def test_situations_differ_if_a_policy_could_react(second: dict[str, Any], apart: bool) -> None:
    runtime, steps = policy(), []
    for shown in ({"features": [1.0]}, {"features": [1.0], **second}):
        first = situation(**shown)
        allowed = runtime.allowed([first])[0]
        steps.append(runtime.take(0, first, allowed, 1.0))
    episodes = [Episode("e", Problem("p"), trajectory("a"), (d,), reward=Reward(1)) for d in steps]
    data = Transitions.of(runtime, gather(episodes, RecordedChoice))
    assert data is not None
    assert data.tells_apart == apart


def test_joined_data_is_that_of_all_episodes_at_once() -> None:
    runtime = policy()
    made = [episode(runtime, names, 1.0) for names in (["a", "stop"], ["c", "a", "stop"])]
    parts = [Transitions.of(runtime, gather([single], RecordedChoice)) for single in made]
    whole = Transitions.of(runtime, gather(made, RecordedChoice))
    assert parts[0] is not None
    assert parts[1] is not None
    assert whole is not None
    joined = parts[0].joined(parts[1])
    for name in ("context", "choices", "allowed", "choice", "reward", "after", "problem"):
        assert getattr(joined, name).tolist() == getattr(whole, name).tolist()
    assert joined.problems == whole.problems


def test_hints_that_a_task_shows_only_later_are_zeros_before() -> None:
    runtime = policy()
    early = Transitions.of(runtime, gather([episode(runtime, ["a"], 1.0)], RecordedChoice))
    assert early is not None
    width = early.choices.shape[2]
    late = Transitions(
        early.context, np.ones((1, 5, width + 2)), early.allowed, early.choice,
        early.reward, early.after, early.problem, early.category,
        early.problems, early.categories,
    )  # fmt: skip
    joined = early.joined(late)
    assert joined.choices.shape == (2, 5, width + 2)
    assert not joined.choices[0, :, width:].any()


# ---------------------------------------------------------------- first episodes


@pytest.mark.parametrize("episodes", [1, 7, 50, 100, 300, 1000])
def test_all_episodes_are_spent_and_no_more(episodes: int) -> None:
    sizes = batches(episodes)
    assert sum(sizes) == episodes
    assert min(sizes) >= 1


def test_probing_episodes_have_any_length_and_rarely_none() -> None:
    runtime = policy()
    stopping = []
    for done in range(4):
        shown = [situation(*["a"] * done)]
        row = chances(runtime, shown, runtime.allowed(shown), 3)[0]
        assert row.sum() == pytest.approx(1)
        stopping.append(row[4])
    assert stopping == pytest.approx([0.25 / 3.25, 1 / 3, 1 / 2, 1])


def test_probing_prefers_what_hints_promise_and_never_takes_what_is_blocked() -> None:
    runtime = policy()
    shown = [situation(blocked=["c"], hints={"a": (1.0,), "b:x": (0.0,)})]
    row = chances(runtime, shown, runtime.allowed(shown), 3)[0]
    assert row[3] == 0
    assert row[0] > row[2] > row[1] > 0
