"""Calibration, dynamic weights, Dawid-Skene and the meta-learner."""

from __future__ import annotations

import sys
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_ensemble.dawid_skene import Crowd, DawidSkene, dawid_skene
from orchestrion_ensemble.interfaces import Ballot, Example
from orchestrion_ensemble.stacked import (
    Learned,
    Stacked,
    fit_logistic,
    predicted,
)
from orchestrion_ensemble.weighted import (
    Confidence,
    Dynamic,
    Remembered,
    calibrated,
    fit_platt,
    logit,
    similarity,
)

from orchestrion import Key, Problem, UsageError
from tests.plugins.ensemble.support import PROBLEM, ballots, combine

# ------------------------------------------------------------------ confidence


def test_a_confidence_that_never_varies_becomes_the_accuracy() -> None:
    slope, shift = fit_platt([0.99] * 1000, [True] * 600 + [False] * 400)
    assert calibrated(0.99, slope, shift) == pytest.approx(0.6, abs=0.01)


def test_without_data_confidence_stays_as_stated() -> None:
    assert fit_platt([], []) == (1.0, 0.0)


def test_platt_scaling_agrees_with_scikit_learn() -> None:
    """With its penalty moved to where ours is: a slope of 1."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(2)
    stated = rng.uniform(0.05, 0.95, 500)
    right = rng.random(500) < 0.7 * stated
    x = np.array([[logit(p)] for p in stated])
    theirs = LogisticRegression(C=1e6, tol=1e-10, max_iter=1000).fit(x, right)
    ours = fit_platt(stated.tolist(), right.tolist(), strength=1e-6)
    assert ours == pytest.approx((theirs.coef_[0, 0], theirs.intercept_[0]), abs=1e-3)


def test_a_boaster_loses_its_weight_once_calibrated() -> None:
    cast = ballots("a", "b", "b", confidence=[0.99, 0.7, 0.7])
    assert combine(Confidence(), cast).answer == "a"
    examples = [
        Example(PROBLEM, tuple(ballots("a", "b", confidence=[0.99, 0.7])), (n % 2 == 0, n < 70))
        for n in range(100)
    ]
    learned = Confidence().learn(examples, Key(1))["calibration"]
    taught = Confidence(calibration={name: tuple(pair) for name, pair in learned.items()})
    assert combine(taught, cast).answer == "b"


def test_a_ballot_without_confidence_counts_as_unstated() -> None:
    cast = ballots("a", "b", confidence=[None, 0.6])
    assert combine(Confidence(unstated=0.9), cast).answer == "a"
    assert combine(Confidence(unstated=0.5), cast).answer == "b"


# ------------------------------------------------------------------ dynamic


def remembered(text: str, category: str = "", **right: float) -> Remembered:
    """A problem and who was right on it."""
    return Remembered(text, category, right)


def test_similarity_is_half_category_half_words() -> None:
    one = remembered("sum of two numbers", "maths")
    assert similarity("sum of two numbers", "maths", one) == 1
    assert similarity("sum of many things", "maths", one) == 0.5 + 0.5 * 2 / 4
    assert similarity("", "law", one) == 0


def test_voters_that_were_right_on_similar_problems_weigh_more() -> None:
    memory = [
        *[remembered(f"sum {n}", "maths", v0=1, v1=0) for n in range(20)],
        *[remembered(f"court {n}", "law", v0=0, v1=1) for n in range(20)],
    ]
    dynamic = Dynamic(memory=tuple(memory), nearest=10)
    cast = ballots("a", "b")
    assert dynamic.combine(cast, Problem("1", "sum 77", category="maths"), Key(1)).answer == "a"
    assert dynamic.combine(cast, Problem("2", "court 77", category="law"), Key(1)).answer == "b"


def test_recent_problems_count_more() -> None:
    memory = [remembered("sum", "m", v0=0)] * 30 + [remembered("sum", "m", v0=1)] * 10
    problem = Problem("1", "sum", category="m")
    slow = Dynamic(memory=tuple(memory), nearest=40, half_life=None).accuracy("v0", problem)
    fast = Dynamic(memory=tuple(memory), nearest=40, half_life=3).accuracy("v0", problem)
    assert slow == pytest.approx((10 + 2) / (40 + 3))
    assert fast > 0.7 > 0.5 > slow


def test_with_nothing_to_remember_all_weigh_the_same() -> None:
    result = combine(Dynamic(), ballots("a", "b", "b"))
    assert result.answer == "b"
    assert result.scores["b"] == pytest.approx(2 * result.scores["a"])
    assert "no similar problem" in result.notes[0]


def test_no_streak_makes_a_voter_certain() -> None:
    memory = tuple([remembered("sum", "m", v0=1)] * 1000)
    sure = Dynamic(memory=memory, nearest=1000, half_life=None, floor=0.05)
    result = sure.combine(ballots("a"), Problem("1", "sum", category="m"), Key(1))
    assert result.scores["a"] == pytest.approx(log(0.95 / 0.05))


def test_the_memory_grows_and_forgets_the_oldest() -> None:
    example = Example(Problem("p", "new", category="m"), tuple(ballots("a", None)), (True, None))
    dynamic = Dynamic(memory=(remembered("old"), remembered("older")), keep=2)
    assert dynamic.learn([example], Key(1))["memory"] == [
        {"text": "older", "category": "", "right": {}},
        {"text": "new", "category": "m", "right": {"v0": 1.0}},
    ]


# ------------------------------------------------------------------ Dawid-Skene


def crowd_votes(n: int, accuracies: list[float], classes: int, seed: int) -> tuple[np.ndarray, ...]:
    """Truths, and votes whose mistakes are spread evenly."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, n)
    slips = (truth[:, None] + rng.integers(1, classes, (n, len(accuracies)))) % classes
    right = rng.random((n, len(accuracies))) < accuracies
    return truth, np.where(right, truth[:, None], slips)


def plain_em(votes: np.ndarray, classes: int, smoothing: float, steps: int) -> np.ndarray:
    """Dawid and Skene's equations with loops, written apart from the code under test."""
    n, k = votes.shape
    posterior = np.zeros((n, classes))
    for i in range(n):
        for v in votes[i]:
            if v >= 0:
                posterior[i, v] += 1
        total = posterior[i].sum()
        posterior[i] = posterior[i] / total if total else 1 / classes
    for _ in range(steps):
        prior = np.array([posterior[:, c].sum() + smoothing for c in range(classes)])
        prior /= prior.sum()
        rates = np.full((k, classes, classes), smoothing)
        for i in range(n):
            for j in range(k):
                if votes[i, j] >= 0:
                    rates[j, :, votes[i, j]] += posterior[i]
        for j in range(k):
            for c in range(classes):
                rates[j, c] /= rates[j, c].sum()
        for i in range(n):
            for c in range(classes):
                value = prior[c]
                for j in range(k):
                    if votes[i, j] >= 0:
                        value *= rates[j, c, votes[i, j]]
                posterior[i, c] = value
            posterior[i] /= posterior[i].sum()
    return posterior


def estimated(votes: np.ndarray, classes: int, **settings_: float) -> Crowd:
    """The estimate, with the promises that hold for every input."""
    crowd = dawid_skene(votes, classes, **settings_)  # type: ignore[arg-type]
    assert crowd.posterior.sum(axis=1) == pytest.approx(1)
    assert crowd.confusion.sum(axis=2) == pytest.approx(1)
    assert all(b >= a - 1e-9 * abs(a) for a, b in zip(crowd.scores, crowd.scores[1:], strict=False))
    return crowd


def test_dawid_skene_agrees_with_its_equations_written_out() -> None:
    _, votes = crowd_votes(40, [0.9, 0.7, 0.6, 0.4], 3, seed=1)
    votes[3, :] = -1
    votes[5, 1] = -1
    crowd = estimated(votes, 3, steps=25, tolerance=0.0)
    assert crowd.posterior == pytest.approx(plain_em(votes, 3, 0.01, 25), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3).flatmap(
        lambda k: st.lists(
            st.lists(st.integers(-1, 2), min_size=k, max_size=k), min_size=1, max_size=8
        )
    )
)
def test_dawid_skene_never_lowers_its_score(table: list[list[int]]) -> None:
    estimated(np.array(table), 3)


def crowd_examples(n: int, seed: int) -> list[Example]:
    """Votes of a good voter and two poor ones; nobody says who is right."""
    _, votes = crowd_votes(n, [0.95, 0.55, 0.6], 2, seed)
    names = np.array(["no", "yes"])
    return [Example(PROBLEM, tuple(ballots(*names[row].tolist())), (None,) * 3) for row in votes]


def test_the_aggregator_believes_the_consistent_voter() -> None:
    cast = ballots("yes", "no", "no")
    plain = combine(DawidSkene(), cast)
    assert (plain.answer, plain.notes) == ("no", ("no confusion matrices are known: plurality",))
    learned = DawidSkene().learn(crowd_examples(600, seed=4), Key(1))
    taught = DawidSkene(
        tuple(learned["answers"]),
        tuple(learned["prior"]),
        {name: tuple(map(tuple, rows)) for name, rows in learned["confusion"].items()},
    )
    result = combine(taught, cast)
    assert (result.status, result.answer, result.used) == ("winner", "yes", 3)
    assert combine(taught, [Ballot("stranger", answer="yes")]).status == "no_consensus"
    assert combine(taught, ballots("maybe", "yes")).used == 1, "an answer it never saw has no say"


def test_learning_without_answers_is_refused() -> None:
    with pytest.raises(UsageError, match="nobody gave an answer"):
        DawidSkene().learn([Example(PROBLEM, tuple(ballots(None)), (None,))], Key(1))


# ------------------------------------------------------------------ meta-learner


def test_accuracy_is_measured_on_points_that_the_model_has_not_seen() -> None:
    """A point with a feature of its own is always right in sample, and unknown out of fold."""
    labels = np.arange(20) % 2
    _, _, accuracy = fit_logistic(np.eye(20), labels, 5, [1.0], seed=1)
    assert accuracy < 0.6


@pytest.mark.parametrize("classes", [2, 3])
def test_the_stored_regression_predicts_as_scikit_learn_does(classes: int) -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(6)
    x = rng.normal(size=(90, 4))
    y = (x @ rng.normal(size=(4, classes))).argmax(axis=1)
    coefficients, intercepts, _ = fit_logistic(x, y, 5, [1.0], seed=1)
    theirs = LogisticRegression(C=1.0, max_iter=1000).fit(x, y).predict_proba(x)
    ours = predicted(coefficients, intercepts, x)
    assert ours == pytest.approx(theirs, abs=1e-6)


def specialists(n: int, seed: int) -> list[Example]:
    """v0 is right where the answer is "a", v1 where it is "b"; v2 guesses."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(n):
        truth, other = rng.permutation(["a", "b", "c"]).tolist()[:2]
        said = [
            truth if truth == "a" else other if rng.random() < 0.8 else truth,
            truth if truth == "b" else other if rng.random() < 0.8 else truth,
            truth if rng.random() < 0.5 else other,
        ]
        right = tuple(one == truth for one in said)
        examples.append(Example(PROBLEM, tuple(ballots(*said)), right, truth))
    return examples


def test_a_meta_learner_learns_whom_to_believe_about_what() -> None:
    learned = Stacked().learn(specialists(500, seed=7), Key(1))["model"]
    model = Learned(
        tuple(learned["answers"]),
        tuple(tuple(one) for one in learned["features"]),
        tuple(map(tuple, learned["coefficients"])),
        tuple(learned["intercepts"]),
        learned["accuracy"],
    )
    fresh = specialists(500, seed=8)

    def accuracy(aggregator: Stacked) -> float:
        hits = [combine(aggregator, one.ballots).answer == one.truth for one in fresh]
        return sum(hits) / len(hits)

    taught, untaught = accuracy(Stacked(model)), accuracy(Stacked())
    assert taught > untaught + 0.1
    assert taught == pytest.approx(model.accuracy, abs=0.06), "what it told of itself holds"


def test_a_silent_voter_is_a_row_of_zeros_to_the_meta_learner() -> None:
    model = Learned(("a", "b"), (("v0", "a"), ("v0", "b")), ((3.0, 0.0), (0.0, 3.0)), (0.0, 0.5))
    assert combine(Stacked(model), ballots("a", None)).answer == "a"
    assert combine(Stacked(model), ballots(None, "a")).answer == "b", "the intercepts decide"
    assert combine(Stacked(model), ballots(None)).status == "no_consensus"


def test_a_meta_learner_needs_two_problems_with_a_known_answer() -> None:
    with pytest.raises(UsageError, match="at least two"):
        Stacked().learn(specialists(1, seed=1), Key(1))


def test_one_class_alone_is_learned_as_such() -> None:
    coefficients, intercepts, _ = fit_logistic([[1.0], [0.0]], [0, 0], 5, [1.0], seed=1)
    assert predicted(coefficients, intercepts, [[1.0]]).tolist() == [[1.0]]


def test_a_class_missing_from_a_fold_costs_no_shape_error() -> None:
    labels = [0] * 10 + [1] * 10 + [2]
    coefficients, _, _ = fit_logistic(np.eye(21), labels, 3, [1.0], seed=1)
    assert len(coefficients) == 3


def test_without_scikit_learn_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(UsageError, match=r"pip install 'orchestrion-ensemble\[stacked\]'"):
        Stacked().learn(specialists(20, seed=1), Key(1))
