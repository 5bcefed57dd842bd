"""Fitted Q iteration with randomised values: the arithmetic, without episodes.

Sources: fitted Q iteration on regression trees (Ernst, Geurts, Wehenkel 2005) and randomised
least-squares value iteration (Osband, Van Roy, Wen 2016): every member of the ensemble is fitted
on noisy targets and shrunk towards random values, so that members differ where little is known.
Following one member for an episode explores that (Thompson sampling).

    Q(s, a) = w z(s) + u[problem] + b[a] + V[a] z(s) + c x(s, a)  +  trees(z(s), a, x(s, a))
    target  = r, at the end; else r + max over allowed a' of Q(s', a'), within what was returned

Deviations:
1. The members share one design and one regression of trees on the residuals of the linear part,
   weighted by how well it predicts rows it was not fitted on; so a refit is one factorisation.
2. The value of a problem, u, is its difficulty, so that choices tried on different problems can be
   compared; it is 0 for unknown problems.
3. The penalty is chosen by the error on left-out episodes, in closed form; the noise is that error.
4. Member 0 has neither noise nor random values: it is the mean, and is used in the end.
5. A choice without a reward is charged `FREE` if the episode goes on. Else going on would be worth
   as much as ending, and an episode might never end.
"""

from __future__ import annotations

import numpy as np
from attrs import evolve

from orchestrion_values.arrays import Floats, Ints
from orchestrion_values.ensemble import WIDE, Fitted, Scale, Trees, rows_of
from orchestrion_values.transitions import Transitions

STRENGTHS = (0.0, 1.0, 3.0)
"""Candidate weights of a wide block beside a narrow one."""
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
FREE = 0.05
"""What a free choice is charged, in standard deviations of the returns."""
SWEEPS = 12
ROUNDS = 3
FEWEST = 150
"""The minimum of decisions for trees."""


def fit(data: Transitions, seed: int, *, members: int = 16, trees: int = 40) -> Fitted:
    """Fit an ensemble on decisions.

    Args:
        data: at least one situation with a choice.
        seed: of noise, draws and trees.
        members: besides the mean.
        trees: how many; 0 for none.
    """
    return _Fit(data, seed, members, trees).fitted()


def _design(
    z: Floats, x: Floats, place: Ints, problem: Ints, problems: int
) -> tuple[Floats, list[slice]]:
    """Return the rows of the regression, and the slices of its parts."""
    n, which = len(place), np.eye(x.shape[1])[place]
    own = (which[:, :, None] * z[:, None]).reshape(n, -1)
    easy = np.zeros((n, problems))
    at = np.flatnonzero(problem >= 0)
    easy[at, problem[at]] = 0.5
    blocks = [z, which, own, x[np.arange(n), place], easy]
    ends = np.cumsum([block.shape[1] for block in blocks]).tolist()
    return np.concatenate(blocks, axis=1), list(map(slice, [0, *ends[:-1]], ends))


def _folds(episode: Ints) -> Ints:
    """Return the rows of each episode [e, l], padded with -1."""
    places: dict[int, list[int]] = {}
    for row, first in enumerate(episode.tolist()):
        places.setdefault(first, []).append(row)
    longest = max(map(len, places.values()))
    return np.array([rows + [-1] * (longest - len(rows)) for rows in places.values()], np.int64)


def _left_out(left: Floats, inverse: Floats, y: Floats, folds: Ints) -> float:
    """Return the root mean squared error of a ridge regression on left-out episodes.

    Rows of one episode are correlated, so whole episodes are left out. The residuals of a fold are
    (I - H)^-1 times those of the fit on all rows, H its block of the hat matrix
    `left diag(inverse) left^T`.
    """
    over = np.append(y - left @ (inverse * (left.T @ y)), 0.0)
    rows = np.concatenate([left, np.zeros((1, left.shape[1]))])
    total = 0.0
    for begin in range(0, len(folds), 256):
        fold = folds[begin : begin + 256]
        part = rows[fold]  # [e, l, D]; the row of zeros where a fold has no more
        hat = (part * inverse) @ part.swapaxes(1, 2)
        error = np.linalg.solve(np.eye(fold.shape[1]) - hat, over[fold][:, :, None])
        total += float((error**2).sum())
    return float(np.sqrt(total / len(y)))


class _Fit:
    def __init__(self, data: Transitions, seed: int, members: int, trees: int) -> None:
        self.data, self.members, self.trees = data, members, trees
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.at = np.flatnonzero(data.choice >= 0)
        self.place = data.choice[self.at]
        problem = data.problem[self.at]
        # Problems that rarely come back are better described by what they show.
        first = data.episode[self.at]
        episodes = len(set(first.tolist()))
        problems = len(data.problems)
        if not 2 * problems <= episodes or problems > 200:
            problems = 0
        self.problem = np.where(problem < problems, problem, -1)
        self.after = data.after[self.at]
        self.going = np.flatnonzero(self.after >= 0)
        self.next = self.after[self.going]
        paid = data.reward[self.at[self.going]]
        returns = data.returns[self.at]
        self.centre = float(returns.mean())
        self.spread = float(returns.std()) or 1.0
        self.returns = (returns - self.centre) / self.spread
        self.charge = np.where(paid == 0, FREE, 0.0)
        self.folds = _folds(first)
        self.noise = np.inf
        wide = any(width > WIDE for width in data.blocks or (data.context.shape[1],))
        for strength in STRENGTHS if wide else (1.0,):
            self._try(strength, problems)

    def _try(self, strength: float, problems: int) -> None:
        """Adopt a scale and its best penalty if they predict returns better."""
        data = self.data
        scale = Scale.of(data, strength)
        z = scale.situations(data.context, data.category, len(data.categories))
        x = scale.of_choices(data.choices)
        rows, parts = _design(z[self.at], x[self.at], self.place, self.problem, problems)
        if rows.shape[1] <= len(rows):
            values, vectors = np.linalg.eigh(rows.T @ rows)
            values = values.clip(0)
            left = rows @ vectors
        else:
            values, left = np.linalg.eigh(rows @ rows.T)
            values = values.clip(0)
            vectors = (rows.T @ left) / np.sqrt(values.clip(1e-10))
            left = left * np.sqrt(values)
        for penalty in PENALTIES:
            inverse = 1 / (values + penalty)
            error = _left_out(left, inverse, self.returns, self.folds)
            if error < self.noise:
                self.noise, self.penalty = error, penalty
                self.basis, self.inverse = vectors, inverse
                self.scale, self.z, self.x = scale, z, x
                self.rows, self.parts = rows, parts

    def solve(self, y: Floats, prior: Floats) -> Floats:
        """Return weights [D, m] that fit y [n, m], shrunk towards `prior` [D, m]."""
        gradient = self.rows.T @ (y - self.rows @ prior)
        return prior + self.basis @ (self.inverse[:, None] * (self.basis.T @ gradient))

    def fitted(self) -> Fitted:
        n, width, m = len(self.at), self.rows.shape[1], self.members + 1
        eased = self.random.standard_normal((n, m)) * self.noise
        prior = self.random.standard_normal((width, m)) * self.noise / np.sqrt(self.penalty)
        eased[:, 0], prior[:, 0] = 0.0, 0.0
        forest, over = None, np.zeros(n)
        every = np.zeros(self.x.shape[:2])  # the trees' prediction for every choice
        weights = self.solve(self.returns[:, None] + eased, prior)
        for turn in range(ROUNDS):
            for _ in range(SWEEPS):
                target = self.targets(weights, every)
                before = weights
                weights = self.solve(target - over[:, None] + eased, prior)
                if abs(weights - before).max() < 1e-3:
                    break
            if not self.trees or n < FEWEST or turn == ROUNDS - 1:
                break
            mean = self.targets(weights[:, :1], every)[:, 0]
            forest, over, every = self.grown(mean - self.rows @ weights[:, 0])
        return self.model(weights, forest)

    def targets(self, weights: Floats, every: Floats) -> Floats:
        """Return targets of decisions [n, m], by the values of the next decision."""
        result = np.repeat((self.data.reward[self.at] / self.spread)[:, None], weights.shape[1], 1)
        model = self.model(weights, None, scaled=True)
        # [m, n', k]
        values = model.linear(self.z[self.next], self.x[self.next]) + every[self.next]
        easy = weights[self.parts[4]] * 0.5
        if len(easy):
            easy = np.concatenate([easy, np.zeros((1, weights.shape[1]))])
            values += easy[self.problem[self.going]].T[:, :, None]
        values = np.where(self.data.allowed[self.next], values, -np.inf).max(axis=2)
        values = np.clip(values, self.returns.min(), self.returns.max())
        result[self.going] += values.T - self.charge[:, None]
        result[self.after < 0] -= self.centre / self.spread
        return result

    def grown(self, left: Floats) -> tuple[Trees, Floats, Floats]:
        """Return trees on residuals; their predictions of decisions [n] and all choices [n', k]."""
        from sklearn.tree import ExtraTreeRegressor

        k, episodes = self.x.shape[1], len(self.folds)
        every = rows_of(self.z, self.x).astype(np.float32)
        rows = every[self.at * k + self.place]
        fold = np.zeros(len(rows), np.int64)
        for number, places in enumerate(self.folds):
            fold[places[places >= 0]] = number
        grown, total, count = [], np.zeros(len(rows)), np.zeros(len(rows))
        for _ in range(self.trees):
            # Whole episodes are drawn, as rows of one episode are correlated.
            times = np.bincount(self.random.integers(episodes, size=episodes), minlength=episodes)
            weight = times[fold].astype(np.float64)
            seed = int(self.random.integers(2**31))
            tree = ExtraTreeRegressor(max_features=0.5, min_samples_leaf=3, random_state=seed)
            tree.fit(rows[weight > 0], left[weight > 0], weight[weight > 0])
            unseen = weight == 0
            total[unseen] += tree.predict(rows[unseen]) if unseen.any() else 0.0
            count[unseen] += 1
            grown.append(tree)
        guess = total / np.maximum(count, 1)
        power = float(guess @ guess)
        weight_of = float(np.clip(left @ guess / power, 0, 1)) if power > 0 else 0.0
        trees = Trees.of(grown, weight_of)
        # For fitted rows the out-of-bag prediction is used, or no residual would be left.
        return trees, weight_of * guess, trees.predict(every).reshape(-1, k)

    def model(self, weights: Floats, trees: Trees | None, *, scaled: bool = False) -> Fitted:
        """Return the weights as value functions, in rewards unless `scaled`."""
        unit = 1.0 if scaled else self.spread
        k, d, m = self.x.shape[1], self.z.shape[1], weights.shape[1]
        shared, bias, own, told, _ = ((unit * weights[part]).T for part in self.parts)
        if trees is not None and not scaled:
            trees = evolve(trees, value=trees.value * unit)
        return Fitted(
            self.scale,
            self.data.categories,
            shared,
            bias,
            own.reshape(m, k, d),
            told,
            0.0 if scaled else self.centre,
            trees,
            self.noise * self.spread,
        )
