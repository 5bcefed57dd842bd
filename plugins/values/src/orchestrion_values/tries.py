"""Sums over tries, and Bayesian linear values of each choice from them.

Sources: LinUCB (Li, Chu, Langford, Schapire 2010) and Thompson sampling for linear payoffs (Agrawal
and Goyal 2013). With x = [1, numbers of the situation and the choice], each choice a has

    A = sum x x',   b = sum x r,   c = sum r r
    theta[a] = theta[all] + (A + L)^-1 (b - A theta[all])        covariance  s^2 (A + L)^-1

Deviations:
1. Two levels: theta[all] is fitted on the tries of all choices, and each choice is shrunk towards
   it, so that a rarely tried choice is expected to be like the others.
2. s is the residual standard deviation of the rewards, so that exploration has their scale; L is
   one try for the mean and, for each number, its variance times a strength chosen by the evidence
   (Bishop 2006, 3.5).
3. A, b, c are sums: statistics of several runs can be added, and scaled down to a number of tries,
   so that new episodes can outvote a warm start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from orchestrion import UsageError
from orchestrion_values.arrays import Floats

STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Candidate strengths of the prior, in tries per number."""
LEAST = 1e-9


@frozen(eq=False)
class Tries:
    """Sums over the tries of k choices, on d numbers each.

    Args:
        names: of the choices.
        columns: names of the numbers; only sums with equal names can be added.
        squares: A, of [1, numbers] [k, d + 1, d + 1].
        rewards: b [k, d + 1].
        spread: c [k].
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    squares: Floats
    rewards: Floats
    spread: Floats

    @classmethod
    def none(cls, names: Sequence[str], columns: Sequence[str]) -> Tries:
        """Return sums over no tries."""
        k, d = len(names), len(columns) + 1
        zeros = np.zeros((k, d, d)), np.zeros((k, d)), np.zeros(k)
        return cls(tuple(names), tuple(columns), *zeros)

    @property
    def counts(self) -> Floats:
        """Return the number of tries of each choice [k]."""
        return self.squares[:, 0, 0]

    def tried(self, numbers: Floats, choice: Sequence[int], rewards: Sequence[float]) -> Tries:
        """Return the sums with n more tries: numbers [n, d], choice [n] and reward [n]."""
        x = np.concatenate([np.ones((len(numbers), 1)), numbers], axis=1)
        places, r = np.asarray(choice), np.asarray(rewards, np.float64)
        squares, sums, spread = self.squares.copy(), self.rewards.copy(), self.spread.copy()
        for a in np.unique(places):
            mine = places == a
            squares[a] += x[mine].T @ x[mine]
            sums[a] += x[mine].T @ r[mine]
            spread[a] += r[mine] @ r[mine]
        return evolve(self, squares=squares, rewards=sums, spread=spread)

    def merged(self, other: Tries) -> Tries:
        """Return the sums of both, for the choices of this one.

        Raises:
            UsageError: their numbers differ.
        """
        if other.columns != self.columns:
            raise UsageError(
                f"the statistics are about other numbers ({_listed(other.columns)}) than this run "
                f"({_listed(self.columns)}); use the encoders of the run that made them"
            )
        squares, sums, spread = self.squares.copy(), self.rewards.copy(), self.spread.copy()
        mine = [place for place, name in enumerate(self.names) if name in other.names]
        theirs = [other.names.index(self.names[place]) for place in mine]
        squares[mine] += other.squares[theirs]
        sums[mine] += other.rewards[theirs]
        spread[mine] += other.spread[theirs]
        return evolve(self, squares=squares, rewards=sums, spread=spread)

    def capped(self, most: float) -> Tries:
        """Return sums with the same averages and at most `most` tries of each choice."""
        share = np.minimum(1.0, most / np.maximum(self.counts, LEAST))
        return evolve(
            self,
            squares=self.squares * share[:, None, None],
            rewards=self.rewards * share[:, None],
            spread=self.spread * share,
        )

    def exported(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "choices": list(self.names),
            "numbers": list(self.columns),
            "squares": self.squares.tolist(),
            "rewards": self.rewards.tolist(),
            "spread": self.spread.tolist(),
        }

    @classmethod
    def imported(cls, data: Mapping[str, Any]) -> Tries:
        """Return the sums from `exported`.

        Raises:
            UsageError: the data have another form, or no tries can have such sums.
        """
        try:
            names, columns = tuple(data["choices"]), tuple(data["numbers"])
            sums = [np.array(data[name], np.float64) for name in ("squares", "rewards", "spread")]
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"these are not statistics of a bandit: {error!r}") from None
        result = cls(names, columns, *sums)
        k, d = len(names), len(columns) + 1
        shapes = [array.shape for array in sums]
        if shapes != [(k, d, d), (k, d), (k,)] or not all(
            np.isfinite(array).all() for array in sums
        ):
            raise UsageError("the statistics are damaged: sums are missing or not finite")
        # Cauchy and Schwarz: (sum r)^2 <= n sum r^2 holds for any rewards.
        excess = result.rewards[:, 0] ** 2 - result.counts * result.spread
        if (result.counts < 0).any() or (excess > 1e-6 * (1 + result.spread)).any():
            raise UsageError("the statistics are damaged: no tries have such sums")
        return result

    @classmethod
    def of_state(cls, arrays: Mapping[str, Floats], data: Mapping[str, Any]) -> Tries:
        """Return the sums in the saved state of a trainer `bandit`."""
        sums = arrays["squares"], arrays["rewards"], arrays["spread"]
        return cls(tuple(data["names"]), tuple(data["columns"]), *sums)

    def posterior(self) -> Posterior | None:
        """Return the posterior of each choice; None before any try."""
        n, d = float(self.counts.sum()), len(self.columns)
        if n <= 0:
            return None
        squares, sums = self.squares.sum(axis=0), self.rewards.sum(axis=0)
        mean = squares[0] / n
        variance = np.maximum(np.diag(squares) / n - mean**2, 0.0)
        total = max(self.spread.sum() / n - (sums[0] / n) ** 2, LEAST)
        posteriors = []
        for strength in STRENGTHS:
            # The numbers together explain the same share, however many there are.
            prior = np.where(variance > LEAST, strength * d * variance, 1.0)
            prior[0] = 1.0
            posteriors.append(self._fitted(mean, squares, sums, prior, total))
        return max(posteriors, key=lambda posterior: posterior.evidence)

    def _fitted(
        self, mean: Floats, squares: Floats, sums: Floats, prior: Floats, total: float
    ) -> Posterior:
        """Return the posterior of centred numbers: the first coefficient is a mean reward."""
        d = len(prior)
        centre = np.eye(d)
        centre[0, 1:] = -mean[1:]
        # x - mean = centre' x: sums of centred numbers follow from the sums.
        squares, sums = centre.T @ squares @ centre, centre.T @ sums
        each = centre.T @ self.squares @ centre
        own = self.rewards @ centre
        common = np.linalg.solve(squares + np.diag(np.where(np.arange(d), prior, LEAST)), sums)
        left = own - each @ common
        full = each + np.diag(prior)
        inverse: Floats = np.asarray(np.linalg.inv(full), np.float64)
        shift: Floats = np.einsum("aij,aj->ai", inverse, left)
        # Squared residuals of the common part, minus what each choice explains.
        lost = (self.spread - 2 * own @ common + each @ common @ common) - np.einsum(
            "ai,ai->a", left, shift
        )
        n = float(self.counts.sum())
        # Two tries with the variance of all rewards, so that a few equal ones are not certain.
        noise = (max(float(lost.sum()), 0.0) + 2 * total) / (n + 2)
        signs = np.linalg.slogdet(full)[1] - np.log(prior).sum()
        evidence = -0.5 * (n + 2) * np.log(noise) - 0.5 * float(signs.sum())
        return Posterior(
            mean[1:],
            np.asarray(common + shift, np.float64),
            inverse,
            float(np.sqrt(noise)),
            evidence,
        )


@frozen(eq=False)
class Posterior:
    """Coefficients of k choices, and their uncertainty.

    Args:
        middle: subtracted from numbers [d].
        coefficients: of [1, numbers] [k, d + 1].
        inverse: (A + L)^-1 [k, d + 1, d + 1].
        noise: s, in units of reward.
        evidence: log evidence of the strength of the prior.
    """

    middle: Floats
    coefficients: Floats
    inverse: Floats
    noise: float
    evidence: float = 0.0

    def means(self, numbers: Floats) -> Floats:
        """Return expected rewards [n, k] of numbers [n, k, d]."""
        x = numbers - self.middle
        result: Floats = self.coefficients[:, 0] + np.einsum(
            "nkd,kd->nk", x, self.coefficients[:, 1:]
        )
        return result

    def deviations(self, numbers: Floats) -> Floats:
        """Return the standard deviations of expected rewards [n, k]."""
        x = np.concatenate([np.ones((*numbers.shape[:2], 1)), numbers - self.middle], axis=2)
        half = (x.transpose(1, 0, 2) @ self.inverse).transpose(1, 0, 2)
        result: Floats = self.noise * np.sqrt(np.maximum((half * x).sum(axis=2), 0.0))
        return result


def read_tries(path: Path) -> Tries:
    """Return the statistics in a file that `exported` or `orchestrion statistics` made.

    Raises:
        UsageError: it cannot be read, or holds other data.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if not isinstance(data, Mapping):
        raise UsageError(f"{path}: these are not statistics of a bandit")
    return Tries.imported(data)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6]) or "none"
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")
