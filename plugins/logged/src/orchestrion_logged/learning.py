"""The trainer `from-logs` at work: doubly robust regression, or fitted Q for several decisions.

Sources:
    Dudik, Langford & Li 2011, "Doubly robust policy evaluation and learning": the scores
    Ernst, Geurts & Wehenkel 2005, "Tree-based batch mode reinforcement learning": fitted Q
    Jin, Yang & Wang 2021, "Is pessimism provably efficient for offline RL?": lower bounds

One decision per episode, known propensities:

    q      cross-fitted ridge regressions of the reward, one per choice
    psi_a  = q(x, a) + 1{a was chosen} / mu(a | x) * (r - q(x, a)), for all decisions and choices
    values = ridge regressions of psi_a on x

Without propensities the values are q. With several decisions in an episode

    target = r + max over supported a of bound(x', a)

fitted as many times as the longest episode has steps.

The policy takes the choice with the highest `bound`; see `ridges`.

Deviations: regressions are ridges, not trees, so that their bounds have a closed form; 1 / mu is
cut at `clip`, which adds a little bias if the model is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from orchestrion_values import ValuePolicy, serial

from orchestrion import Metrics, Plan, Session, Split, Trainer, UsageError
from orchestrion_logged.decisions import Decisions, Floats, as_decisions
from orchestrion_logged.fitting import Shape, choose, fit
from orchestrion_logged.reading import read
from orchestrion_logged.ridges import Inputs, Ridges, inputs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrion_logged.from_logs import FromLogs

FOLDS = 5


class Learning(Trainer):
    """See `FromLogs`."""

    def __init__(self, settings: FromLogs) -> None:
        self.settings = settings

    @property
    def iterations(self) -> int:
        return 1

    def check(self, session: Session) -> None:
        """Check that the policy is `values` and that the log fits the team; raise `UsageError`."""
        decisions_for(self.settings, session.policy, logging.getLogger("orchestrion").warning)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Return an empty plan: no episode is played."""
        return Plan()

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Learn from the log and install the model."""
        decisions = decisions_for(self.settings, session.policy)
        policy: ValuePolicy = session.policy
        if policy.prepares:
            key = session.key.child("prepare")
            for place, situation in enumerate(decisions.situations):
                await policy.prepare(situation, session.calls(key.child(place)))
        inputs = inputs_of(decisions.situations, policy.encode_alike)
        draw = np.random.default_rng(int.from_bytes(session.key.child("features").digest[:8]))
        model = learn(
            decisions, inputs, draw, self.settings.least, self.settings.caution, self.settings.clip
        )
        model.encode = policy.encode_alike
        policy.model = model
        episodes = len(decisions.first)
        return {
            "logged": float(episodes),
            "logged_reward": float(decisions.reward.sum()) / episodes,
            "without_feedback": float(decisions.missing),
            "propensities": float(decisions.known),
            "unsupported": float((~model.supported).sum()),
            "bent": float(len(model.features.phases) > 0),
        }


def decisions_for(
    settings: FromLogs, policy: object, tell: Callable[[str], None] = lambda text: None
) -> Decisions:
    """Return the log as a policy's team sees it; `tell` is called with what was left out of it.

    Raises:
        UsageError: the policy is not `values`, or cannot learn from the log.
    """
    if not isinstance(policy, ValuePolicy):
        raise UsageError("from-logs trains the policy `values`; write `policy: {use: values}`")
    where, log = str(settings.log), read(settings.log)
    for text in log.notes:
        tell(f"{where}: {text}")
    decisions = as_decisions(log.episodes, policy.names, settings.cost_weight, where)
    times = np.bincount(decisions.choice, minlength=1)
    if times.max() < settings.least:
        raise UsageError(
            f"{where}: no choice was logged {settings.least} times with feedback; log more, or set "
            "`least` lower"
        )
    return decisions


@serial()
def learn(
    decisions: Decisions,
    inputs: Inputs,
    draw: np.random.Generator,
    least: int = 10,
    caution: float = 1.0,
    clip: float = 20.0,
) -> Ridges:
    """Return a model of the values of choices; `least`, `caution` and `clip` are of `FromLogs`.

    Args:
        decisions: n logged ones.
        inputs: their situations as numbers.
        draw: draws features and folds.
    """
    if decisions.several:
        model = _fitted_q(decisions, inputs, draw, least, caution)
    else:
        shape = choose(inputs, decisions.choice, decisions.reward, draw)
        target = decisions.reward
        if decisions.known:
            target = _corrected(decisions, inputs, shape, draw, clip)
        model = fit(shape, inputs, decisions.choice, target, least=least, spread=True)
    model.caution = caution
    return model


def _corrected(
    decisions: Decisions, inputs: Inputs, shape: Shape, draw: np.random.Generator, clip: float
) -> Floats:
    """Return psi [n, k]; NaN for choices that were not allowed."""
    n = len(decisions.choice)
    fold = draw.permutation(n) % min(FOLDS, n)
    psi = np.empty(decisions.allowed.shape)
    for part in range(int(fold.max()) + 1):
        aside = fold == part
        model = fit(shape, inputs[~aside], decisions.choice[~aside], decisions.reward[~aside])
        psi[aside] = model.values(inputs[aside])
    at = np.arange(n)
    weight = np.minimum(1 / decisions.propensity, clip)
    psi[at, decisions.choice] += weight * (decisions.reward - psi[at, decisions.choice])
    psi[~decisions.allowed] = np.nan
    return psi


def _fitted_q(
    decisions: Decisions, inputs: Inputs, draw: np.random.Generator, least: int, caution: float
) -> Ridges:
    follows = np.flatnonzero(~decisions.last)
    returns = decisions.returns
    shape = choose(inputs, decisions.choice, returns, draw)
    model: Ridges | None = None
    for _ in range(int(decisions.lengths.max())):
        target = decisions.reward.copy()
        if model is not None:
            bound = np.where(decisions.allowed, model.bounds(inputs), -np.inf).max(axis=1)
            # Bootstrapped values stay within the returns that occurred.
            target[follows] += bound[follows + 1].clip(returns.min(), returns.max())
        model = fit(shape, inputs, decisions.choice, target, least=least, spread=True)
        model.caution = caution
    assert model is not None
    return model
