"""Evaluate policies on a log: cross-fitted estimates, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen
from orchestrion_encoders import Counts, Hints
from orchestrion_encoders.interfaces import Encoded, join
from orchestrion_values import serial
from sklearn.linear_model import LogisticRegression

from orchestrion import Key, Policy, Situation, UsageError, choice_name
from orchestrion_logged.decisions import STOP, Decisions, Floats, activation
from orchestrion_logged.estimating import (
    Overlap,
    PolicyValue,
    Terms,
    direct,
    dr,
    effective,
    ips,
    mean_of,
    snips,
)
from orchestrion_logged.fitting import choose, fit
from orchestrion_logged.ridges import FeatureMap, Inputs, inputs_of

LARGE = 500
"""Episodes of a log for which fewer folds of cross-fitting are enough."""
FOLDS = 5
"""Folds of the regression of unknown propensities."""
DRAWS = 32
"""The number of draws from a policy that does not state its probabilities."""


@frozen
class PolicyEvaluation:
    """The evaluation of a policy on a log."""

    name: str  # of the policy
    refusal: str  # why there are no estimates; "" if there are
    estimates: Mapping[str, PolicyValue]  # by the name of the estimator
    gain: PolicyValue | None = None  # over the logged rewards, doubly robust; None if unknown
    overlap: Overlap | None = None  # None without propensities


class Evaluator:
    """Estimates of policies on one log.

    Args:
        decisions: of the log.
        encode: turns situations into numbers; see `encode_by`.
        least: the minimum of effective episodes for an estimate.
    """

    @serial()
    def __init__(
        self,
        decisions: Decisions,
        encode: Callable[[Sequence[Situation]], Encoded] | None = None,
        least: float = 20,
    ) -> None:
        if len(decisions.first) < 2:
            raise UsageError("the log has fewer than two episodes with feedback")
        self.decisions, self.least = decisions, least
        self._inputs = inputs_of(decisions.situations, encode or encode_by(decisions.names))
        draw = np.random.default_rng(0)
        episodes = len(decisions.first)
        folds = min(5 if episodes >= LARGE else 10, episodes)
        self._fold = (draw.permutation(episodes) % folds)[decisions.episode]
        self._shape = choose(self._inputs, decisions.choice, decisions.returns, draw)
        # With one decision per episode, q is the same for all policies.
        self._known = None if decisions.several else self._fitted(np.zeros(()), 1)

    def _fitted(self, target: Floats, steps: int) -> Floats:
        """Return cross-fitted q [n, k]: fitted evaluation of the target policy [n, k] by steps."""
        d = self.decisions
        q = np.zeros((len(d.choice), len(d.names)))
        for part in range(int(self._fold.max()) + 1):
            aside, model = self._fold == part, None
            rest = ~aside
            inputs, follows = self._inputs[rest], ~d.last[rest]
            for _ in range(steps):
                goal = d.reward[rest].copy()
                if model is not None:
                    value = (target[rest] * model.values(inputs)).sum(axis=1)
                    goal[follows] += value[np.flatnonzero(follows) + 1]
                model = fit(self._shape, inputs, d.choice[rest], goal)
            assert model is not None
            q[aside] = model.values(self._inputs[aside])
        return q

    @serial()
    def judge(self, name: str, target: Floats) -> PolicyEvaluation:
        """Return the evaluation of a policy with the probabilities `target` [n, k]."""
        d = self.decisions
        at = np.arange(len(d.choice))
        logged = np.bincount(d.choice, minlength=len(d.names)) > 0
        outside = float((target * ~(d.allowed & logged)).sum(axis=1).mean())
        q = self._known
        if q is None:
            q = self._fitted(target, int(d.lengths.max()))
        ratio = target[at, d.choice] / d.propensity
        guess, value = q[at, d.choice], (target * q).sum(axis=1)
        terms = Terms(d.reward, ratio, value, guess, d.first)
        if not d.known:
            if outside > 0.01:
                return PolicyEvaluation(name, Overlap(0, 1, 0, 0, 0, outside).refusal(0), {})
            return PolicyEvaluation(name, "", {"direct": direct(terms)})
        overlap = Overlap.of(terms.whole, outside)
        refusal = overlap.refusal(self.least)
        if refusal:
            return PolicyEvaluation(name, refusal, {}, None, overlap)
        estimate, values = dr(terms)
        gain = mean_of(values - terms.total(d.reward), effective(terms.whole))
        estimates = {
            "dr": estimate, "snips": snips(terms), "ips": ips(terms), "direct": direct(terms),
        }  # fmt: skip
        return PolicyEvaluation(name, "", estimates, gain, overlap)

    def logging(self) -> PolicyEvaluation:
        """Return the evaluation of the logging policy: the mean of the logged rewards."""
        rewards = np.add.reduceat(self.decisions.reward, self.decisions.first)
        return PolicyEvaluation("as logged", "", {"mean": mean_of(rewards)})

    def single(self) -> list[PolicyEvaluation]:
        """Return the evaluations of always making the same choice, for each choice.

        If it is not allowed, another is drawn. Empty for logs with several decisions per episode.
        """
        d, result = self.decisions, []
        for place in np.flatnonzero(d.allowed.any(axis=0)).tolist() if not d.several else []:
            target = d.allowed / np.maximum(d.allowed.sum(axis=1, keepdims=True), 1)
            target[d.allowed[:, place]] = np.eye(len(d.names))[place]
            result.append(self.judge(f"always {d.names[place]}", target))
        return result


def encode_by(names: Sequence[str]) -> Callable[[Sequence[Situation]], Encoded]:
    """Return the default encoding of situations: `counts` and `hints`."""
    choices = [None if name == STOP else activation(name) for name in names]
    encoders = (Counts(), Hints())
    return lambda situations: join([encoder.encode(situations, choices) for encoder in encoders])


def target_of(policy: Policy, names: Sequence[str], situations: Sequence[Situation]) -> Floats:
    """Return the probabilities of a policy's choices [n, k].

    A policy that does not state them is drawn from `DRAWS` times: estimates are linear in the
    probabilities, so frequencies keep them unbiased.

    Raises:
        UsageError: it starts several agents at once.
    """
    places = {name: place for place, name in enumerate(names)}
    counts = np.zeros((len(situations), len(names)))
    stated: Any = getattr(policy, "probabilities", None)
    own = tuple(getattr(policy, "names", ()))
    if callable(stated) and own and set(own) <= places.keys():
        counts[:, [places[name] for name in own]] = stated(situations)
        return counts
    for draw in range(DRAWS):
        keys = [Key(0).child("ope", i, draw) for i in range(len(situations))]
        for row, decision in zip(counts, policy.decide(situations, keys), strict=True):
            if len(decision.start) > 1:
                raise UsageError(
                    "the policy starts several agents at once; only policies that make one choice "
                    "at a time can be judged by a log"
                )
            # Stopping may be a choice that the log never has.
            chosen = choice_name(decision.start[0]) if decision.start else STOP
            row[places[chosen]] += 1 / DRAWS
    return counts


def estimated_propensities(decisions: Decisions) -> Decisions:
    """Return the decisions with estimates of unknown propensities.

    They come from cross-fitted multinomial logistic regression on the situations, over the allowed
    choices, and are right only if the logging policy used nothing else.
    """
    inputs = inputs_of(decisions.situations, encode_by(decisions.names))
    n, k, p = inputs.numbers.shape
    flat = Inputs(inputs.numbers.reshape(n, 1, k * p), inputs.categories)
    features = FeatureMap.of(flat, 0, np.random.default_rng(0))(flat, 0)
    chance = np.full((n, k), 1e-3)
    part = np.random.default_rng(0).permutation(len(decisions.first)) % FOLDS
    fold = part[decisions.episode]
    for aside in (fold == i for i in range(FOLDS)):
        known = np.unique(decisions.choice[~aside])
        if len(known) < 2 or not aside.any():
            chance[np.ix_(aside, known)] = 1.0
            continue
        model = LogisticRegression(max_iter=1000).fit(features[~aside], decisions.choice[~aside])
        chance[np.ix_(aside, known)] += model.predict_proba(features[aside])
    chance *= decisions.allowed
    chance /= chance.sum(axis=1, keepdims=True)
    unknown = np.isnan(decisions.propensity)
    estimate = chance[np.arange(n), decisions.choice]
    return evolve(decisions, propensity=np.where(unknown, estimate, decisions.propensity))
