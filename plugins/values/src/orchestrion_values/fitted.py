"""Fitted Q iteration with randomised values: the arithmetic, without episodes.

Sources: fitted Q iteration on regression trees (Ernst, Geurts, Wehenkel 2005) and randomised
least-squares value iteration (Osband, Van Roy, Wen 2016): every member of the ensemble is fitted
on targets with noise and shrunk towards values drawn at random, so that members differ where
little is known; whoever acts by one member for an episode tries that out (Thompson sampling).

    Q(s, a) = w z(s) + u[problem] + b[a] + V[a] z(s) + c x(s, a)  +  trees(z(s), a, x(s, a))
    target  = r, at the end; else r + max over allowed a' of Q(s', a'), within what was returned

Departures:
1. The members share one design and one regression of trees on what the linear part leaves over,
   weighted by how well it predicts rows it was not fitted on; so a refit is one factorisation.
2. The value of a problem, u, takes up what is easy or hard about it, so that choices tried on
   different problems can be compared; a problem that is not known has 0.
3. The penalty is chosen by the error on episodes left out, in closed form, and the noise is that.
4. Member 0 has neither noise nor a draw: it is the mean, and what is used in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion_values.policy import Floats
from orchestrion_values.transitions import Ints, Transitions, widened

__all__ = ["Fitted", "Scale", "Trees", "fit"]

WIDE, COMPONENTS = 96, 32
"""Blocks of the context that are wider are projected on as many principal components."""
STRENGTHS = (0.0, 1.0, 3.0)
"""What a wide block may count for beside a narrow one."""
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
SWEEPS = 12
ROUNDS = 3
BLOCK = 4096
FEWEST = 150
"""Decisions below which no trees are fitted."""


@frozen(eq=False)
class Scale:
    """Numbers of situations, brought to one scale: z = (context - mean) @ project.

    Args:
        mean: of the context [w].
        project: to d numbers [w, d].
        middle: mean of the numbers of choices [v].
        width: their deviation, 1 where they do not vary [v].
    """

    mean: Floats
    project: Floats
    middle: Floats
    width: Floats

    @classmethod
    def of(cls, data: Transitions, strength: float = 1.0) -> Scale:
        """The scale of these situations.

        Each block of the context has a variance of 1 altogether: numbers of a narrow one are
        alike, a wide one is projected on its principal components, and has `strength`.
        """
        mean, start = data.context.mean(axis=0), 0
        parts = []
        for width in data.blocks or (len(mean),):
            block = data.context[:, start : start + width] - mean[start : start + width]
            project = np.zeros((len(mean), 0))
            if width:
                shape = _components(block) * strength if width > WIDE else _alike(block)
                project = np.zeros((len(mean), shape.shape[1]))
                project[start : start + width] = shape
            parts.append(project)
            start += width
        deviation = data.choices.std(axis=(0, 1))
        width_of = np.where(deviation > 1e-9, deviation, 1.0)
        return cls(mean, np.concatenate(parts, axis=1), data.choices.mean(axis=(0, 1)), width_of)

    def situations(self, context: Floats, category: Ints, categories: int) -> Floats:
        """z [n, d + categories]: the context, and which category it is."""
        z = (context - self.mean) @ self.project
        # Far outside of what was seen a linear value says nothing.
        z = np.clip(z, -1.5, 1.5)
        if categories < 2:
            return z
        known = np.zeros((len(z), categories))
        at = np.flatnonzero(category >= 0)
        known[at, category[at]] = 1.0
        return np.concatenate([z, known], axis=1)

    def of_choices(self, choices: Floats) -> Floats:
        """x [n, k, v]."""
        known = len(self.middle)
        result: Floats = (widened(choices, known)[:, :, :known] - self.middle) / self.width
        return result


def _alike(block: Floats) -> Floats:
    """Every number that varies, at one deviation [w, d]."""
    spread = block.std(axis=0)
    varied = np.flatnonzero(spread > 1e-9)
    result = np.zeros((len(spread), len(varied)))
    result[varied, np.arange(len(varied))] = 1 / (spread[varied] * max(1.0, len(varied) ** 0.5))
    return result


def _components(block: Floats) -> Floats:
    """The principal components, each with the deviation that it has [w, d]."""
    values, vectors = np.linalg.eigh(block.T @ block / len(block))
    best = vectors[:, ::-1][:, :COMPONENTS]
    # The sign of a component is a matter of the library's version.
    best = best * np.where(best[abs(best).argmax(axis=0), np.arange(best.shape[1])] < 0, -1, 1)
    result: Floats = best / max(1e-9, values.clip(0).sum() ** 0.5)
    return result


@frozen(eq=False)
class Trees:
    """A forest as arrays: node 0 of each tree is its root; leaves have `left` -1.

    Args:
        left: [trees, nodes].
        right: likewise.
        feature: what a node asks about.
        threshold: up to this, left.
        value: what a leaf says.
        weight: how far to trust them, 0 to 1.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Floats
    value: Floats
    weight: float

    @classmethod
    def of(cls, grown: Sequence[Any], weight: float) -> Trees:
        """Fitted trees of scikit-learn."""
        trees = [one.tree_ for one in grown]
        size = max(tree.node_count for tree in trees)

        def table(of: Any, kind: Any) -> Any:
            result = np.zeros((len(trees), size), kind)
            for row, tree in zip(result, trees, strict=True):
                row[: tree.node_count] = of(tree)
            return result

        return cls(
            table(lambda t: t.children_left, np.int32),
            table(lambda t: t.children_right, np.int32),
            table(lambda t: t.feature, np.int32),
            table(lambda t: t.threshold, np.float64),
            table(lambda t: t.value[:, 0, 0], np.float64),
            weight,
        )

    def predict(self, rows: NDArray[Any]) -> Floats:
        """The weighted mean of all trees [n]."""
        x = rows.astype(np.float32)  # as the trees were grown
        count, size = self.left.shape
        first = np.arange(count) * size
        left, right = (self.left + first[:, None]).ravel(), (self.right + first[:, None]).ravel()
        inner = self.left.ravel() >= 0
        feature, threshold, value = self.feature.ravel(), self.threshold.ravel(), self.value.ravel()
        total = np.zeros(len(x))
        for begin in range(0, len(x), BLOCK):
            part = x[begin : begin + BLOCK]
            node = np.broadcast_to(first, (len(part), count)).copy()
            at, tree = np.nonzero(inner[node])
            while len(at):
                here = node[at, tree]
                goes = part[at, feature[here]] <= threshold[here]
                here = np.where(goes, left[here], right[here])
                node[at, tree] = here
                going = inner[here]
                at, tree = at[going], tree[going]
            total[begin : begin + BLOCK] = value[node].sum(axis=1)
        result: Floats = self.weight * total / len(self.left)
        return result


@frozen(eq=False)
class Fitted:
    """An ensemble of m value functions of k choices; member 0 is the mean.

    Args:
        scale: what numbers are brought to.
        categories: names, in the order of the last numbers of z.
        shared: weights of z that all choices have [m, d].
        bias: of the choices [m, k].
        own: weights of z by choice [m, k, d].
        told: weights of the choices' own numbers [m, v].
        centre: what is added to every value.
        trees: what the linear part leaves over; None with few decisions.
        lost: root of the mean squared error on episodes left out, in rewards.
    """

    scale: Scale
    categories: tuple[str, ...]
    shared: Floats
    bias: Floats
    own: Floats
    told: Floats
    centre: float
    trees: Trees | None = None
    lost: float = 0.0

    def values(self, context: Floats, choices: Floats, category: Ints) -> Floats:
        """Q of every member, situation and choice [m, n, k]."""
        z = self.scale.situations(context, category, len(self.categories))
        x = self.scale.of_choices(choices)
        result = self.linear(z, x)
        if self.trees is not None:
            result += self.trees.predict(_rows(z, x)).reshape(result.shape[1:])
        return result

    def linear(self, z: Floats, x: Floats) -> Floats:
        """The linear part [m, n, k]."""
        result: Floats = self.own @ z.T  # [m, k, n]
        result += (self.shared @ z.T)[:, None] + self.bias[:, :, None] + self.centre
        if x.shape[2]:
            result += np.moveaxis(x @ self.told.T, 2, 0).swapaxes(1, 2)
        return result.swapaxes(1, 2)

    def save(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arrays, and plain data."""
        arrays = {name: getattr(self, name) for name in WEIGHTS}
        arrays |= {f"scale.{name}": getattr(self.scale, name) for name in SCALE}
        weight = None
        if self.trees is not None:
            weight = self.trees.weight
            arrays |= {f"trees.{name}": getattr(self.trees, name) for name in TREES}
        return arrays, {
            "categories": list(self.categories),
            "centre": self.centre,
            "lost": self.lost,
            "weight": weight,
        }

    @classmethod
    def load(cls, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> Fitted:
        """What `save` gave."""
        trees = None
        if data["weight"] is not None:
            nodes: Any = {name: np.asarray(arrays[f"trees.{name}"]) for name in TREES}
            trees = Trees(**nodes, weight=data["weight"])
        scale: Any = {name: np.asarray(arrays[f"scale.{name}"]) for name in SCALE}
        weights: Any = {name: np.asarray(arrays[name]) for name in WEIGHTS}
        return cls(
            Scale(**scale),
            tuple(data["categories"]),
            **weights,
            centre=data["centre"],
            trees=trees,
            lost=data["lost"],
        )


WEIGHTS = ("shared", "bias", "own", "told")
SCALE = ("mean", "project", "middle", "width")
TREES = ("left", "right", "feature", "threshold", "value")


def _rows(z: Floats, x: Floats) -> Floats:
    """What trees see of every situation and choice [n k, d + v + k]."""
    n, k, _ = x.shape
    each = np.broadcast_to(z[:, None], (n, k, z.shape[1]))
    which = np.broadcast_to(np.eye(k), (n, k, k))
    return np.concatenate([each, x, which], axis=2).reshape(n * k, -1)


def fit(data: Transitions, seed: int, *, members: int = 16, trees: int = 40) -> Fitted:
    """Fit an ensemble on decisions.

    Args:
        data: at least one situation with a choice.
        seed: of noise, draws and trees.
        members: besides the mean.
        trees: how many; 0 for none.
    """
    return _Fit(data, seed, members, trees).fitted()


@frozen(eq=False)
class _Design:
    """Rows of the regression, and where the weights of each part stand."""

    rows: Floats
    parts: tuple[slice, ...]

    @classmethod
    def of(cls, z: Floats, x: Floats, place: Ints, problem: Ints, problems: int) -> _Design:
        k = x.shape[1]
        n, which = len(place), np.eye(k)[place]
        own = (which[:, :, None] * z[:, None]).reshape(n, -1)
        easy = np.zeros((n, problems))
        at = np.flatnonzero(problem >= 0) if problems else np.zeros(0, np.int64)
        easy[at, problem[at]] = 0.5
        blocks = [z, which, own, x[np.arange(n), place], easy]
        ends = np.cumsum([block.shape[1] for block in blocks]).tolist()
        starts = [0, *ends[:-1]]
        return cls(np.concatenate(blocks, axis=1), tuple(map(slice, starts, ends)))


def _folds(episode: Ints) -> Ints:
    """The rows of each episode [e, l], filled up with -1."""
    places: dict[int, list[int]] = {}
    for row, first in enumerate(episode.tolist()):
        places.setdefault(first, []).append(row)
    longest = max(map(len, places.values()))
    return np.array([rows + [-1] * (longest - len(rows)) for rows in places.values()], np.int64)


def _left_out(left: Floats, inverse: Floats, y: Floats, folds: Ints) -> float:
    """The root of the mean squared error of a ridge regression on episodes that it did not see.

    Rows of one episode share its luck, so that leaving out single ones would flatter. What is left
    of a fold's y is (I - H)^-1 times what the fit on all leaves of it, H its part of the hat matrix
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
        # Who comes once or never again is better known by what is shown of it.
        first = data.episode[self.at]
        episodes = len(set(first.tolist()))
        problems = len(data.problems)
        if not 2 * problems <= episodes or problems > 200:
            problems = 0
        self.problem = np.where(problem < problems, problem, -1)
        self.after = data.after[self.at]
        self.going = np.flatnonzero(self.after >= 0)
        self.next = self.after[self.going]
        returns = data.returns[self.at]
        self.low, self.high = float(returns.min()), float(returns.max())
        self.centre = float(returns.mean())
        self.spread = float(returns.std()) or 1.0
        self.returns = (returns - self.centre) / self.spread
        self.folds = _folds(first)
        self.noise = np.inf
        wide = any(width > WIDE for width in data.blocks or (data.context.shape[1],))
        for strength in STRENGTHS if wide else (1.0,):
            self._try(strength, problems)

    def _try(self, strength: float, problems: int) -> None:
        """Take over a scale, and the penalty that goes with it, if they predict returns better."""
        data = self.data
        scale = Scale.of(data, strength)
        z = scale.situations(data.context, data.category, len(data.categories))
        x = scale.of_choices(data.choices)
        design = _Design.of(z[self.at], x[self.at], self.place, self.problem, problems)
        rows = design.rows
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
                self.scale, self.z, self.x, self.design = scale, z, x, design

    def solve(self, y: Floats, prior: Floats) -> Floats:
        """Weights [D, m] nearest to `prior` [D, m] that fit y [n, m]."""
        rows = self.design.rows
        gradient = rows.T @ (y - rows @ prior)
        return prior + self.basis @ (self.inverse[:, None] * (self.basis.T @ gradient))

    def fitted(self) -> Fitted:
        n, width, m = len(self.at), self.design.rows.shape[1], self.members + 1
        eased = self.random.standard_normal((n, m)) * self.noise
        prior = self.random.standard_normal((width, m)) * self.noise / np.sqrt(self.penalty)
        eased[:, 0], prior[:, 0] = 0.0, 0.0
        forest, over = None, np.zeros(n)
        every = np.zeros(self.x.shape[:2])  # what the trees say of every choice
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
            mean = self.targets(weights[:, :1], every[:, :])[:, 0]
            forest, over, every = self.grown(mean - self.design.rows @ weights[:, 0])
        return self.model(weights, forest)

    def targets(self, weights: Floats, every: Floats) -> Floats:
        """What each decision was worth [n, m], by what the weights say of the next one."""
        result = np.repeat((self.data.reward[self.at] / self.spread)[:, None], weights.shape[1], 1)
        model = self.model(weights, None, scaled=True)
        # [m, n', k]
        values = model.linear(self.z[self.next], self.x[self.next]) + every[self.next]
        parts, m = self.design.parts, weights.shape[1]
        if parts[4].stop > parts[4].start:
            easy = np.concatenate([weights[parts[4]] * 0.5, np.zeros((1, m))])
            values += easy[self.problem[self.going]].T[:, :, None]
        values = np.where(self.data.allowed[self.next], values, -np.inf).max(axis=2)
        low, high = (self.low - self.centre) / self.spread, (self.high - self.centre) / self.spread
        result[self.going] += np.clip(values, low, high).T
        ends = np.ones(len(result), np.bool_)
        ends[self.going] = False
        result[ends] -= self.centre / self.spread
        return result

    def grown(self, left: Floats) -> tuple[Trees, Floats, Floats]:
        """Trees on what the linear part leaves over.

        With what they say of each decision [n], and of every choice [n', k].
        """
        from sklearn.tree import ExtraTreeRegressor  # type: ignore[import-untyped]

        k, episodes = self.x.shape[1], len(self.folds)
        every = _rows(self.z, self.x).astype(np.float32)
        rows = every[self.at * k + self.place]
        fold = np.zeros(len(rows), np.int64)
        for number, places in enumerate(self.folds):
            fold[places[places >= 0]] = number
        grown, total, count = [], np.zeros(len(rows)), np.zeros(len(rows))
        for _ in range(self.trees):
            # Whole episodes are drawn, or a tree would know the luck of those it is tried on.
            drawn = np.bincount(self.random.integers(episodes, size=episodes), minlength=episodes)
            weight = drawn[fold].astype(np.float64)
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
        # Of a row itself the trees may only say what others show, or the linear part sees nothing.
        return trees, weight_of * guess, trees.predict(every).reshape(-1, k)

    def model(self, weights: Floats, trees: Trees | None, *, scaled: bool = False) -> Fitted:
        """The weights as value functions, in rewards unless `scaled`."""
        unit = 1.0 if scaled else self.spread
        k, d, m = self.x.shape[1], self.z.shape[1], weights.shape[1]
        shared, bias, own, told, _ = ((unit * weights[part]).T for part in self.design.parts)
        if trees is not None and not scaled:
            trees = Trees(
                trees.left, trees.right, trees.feature, trees.threshold,
                trees.value * unit, trees.weight,
            )  # fmt: skip
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
