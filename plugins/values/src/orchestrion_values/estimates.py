"""The posterior of a model of transcripts, from episodes; the model is that of `transcripts`.

Source: Bayesian linear regression with variances by the evidence (Bishop 2006, 3.3 and 3.5).

Deviations:
1. Each group of features has a variance of its own: the one with the highest posterior, under a
   log-normal prior, found by steps of a factor from that of fewer episodes.
2. Replies to a choice are a Dirichlet distribution around those after the same last choice, and
   these around those after all choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from orchestrion_values.arrays import Floats, Ints
from orchestrion_values.fitted import FREE
from orchestrion_values.replies import Cue, signature, telling
from orchestrion_values.transcripts import DONE, LATE, OVER, Played, Tables, bits_of, set_of

VARIANCES = {
    "last": 0.3,
    "reply": 0.5,
    "pair": 0.1,
    "pair_reply": 0.2,
    "reply_last": 0.2,
    "called": 0.1,
    "turns": 0.03,
    "category": 0.1,
    "category_last": 0.3,
    "category_reply": 0.1,
    "category_pair": 0.03,
    "end": 0.1,
    "problem": 0.1,
    "problem_last": 0.1,
    "repeat": 0.3,
}
"""The expected variance of the weights of each group of features, in units of the noise: the last
choice, its reply, the last two choices, these and the last reply, these and the reply before, each
agent that was called, the number of turns; the category, alone and with the first three; the choice
that ended the episode; the problem, alone, with the last choice and with all choices, as the same
choices on the same problem again are hardly new evidence."""
STEP, LEAST, MOST = 3.0, 0.01, 10.0
"""Variances are changed by this factor at a time, within these bounds."""
WIDTH = 1.0
"""The standard deviation of the logarithm of a variance, around its expected value."""
LATEST = 300
"""The variances are chosen by so many of the last episodes."""
FLAT = 100.0
"""The variance of the constant."""
NOISE = 1e-4
"""The least variance of the noise, as a share of that of the outcomes."""
TRIES = 2.0
"""How many replies the distribution counts for that others are pulled towards."""
COLUMNS = 600
DISPENSABLE = (
    "repeat",
    "problem_last",
    "category_pair",
    "category_reply",
    "reply_last",
    "pair_reply",
)
"""The most features in all, and the groups that are left out beyond that, one after the other."""
SHRINK = 2
"""How many outcomes the mean of all counts for, beside those after the same last two choices."""
REPLIES = 600
"""So many of an agent's last replies show which of their words tell anything."""
PROBLEMS = 100
"""The most problems that have features of their own."""

Name = TypeVar("Name")


class Estimates:
    """The posterior of a model, from episodes.

    Args:
        played: at least one.
        agents: of the choices [k]; "" for stopping.
        variances: those of fewer episodes, to start from.
    """

    def __init__(
        self,
        played: Sequence[Played],
        agents: Sequence[str],
        variances: Mapping[str, float] = VARIANCES,
    ) -> None:
        self.agents, k = tuple(agents), len(agents)
        self.cues, signatures = _cues(played, agents)
        self.categories = tuple(dict.fromkeys(episode.category for episode in played))
        outcomes = [episode.outcome for episode in played]
        self.bounds = min(outcomes), max(outcomes)
        late = [episode.outcome for episode in played if episode.end == LATE]
        self.late = sum(late) / len(late) if late else self.bounds[0]
        places = {(k, ""): 0, **{(a, ""): a + 1 for a in range(k)}}
        paths = [
            [0, *_path(episode, patterns, places)]
            for episode, patterns in zip(played, signatures, strict=True)
        ]
        self.heard, h = tuple(places), len(places)
        self._choice = np.array([choice for choice, _ in self.heard])
        self._follows = np.zeros((h, h))
        times, paid = np.zeros(k), np.zeros(k)
        for episode, path in zip(played, paths, strict=True):
            for before, after in pairwise(path):
                self._follows[before, after] += 1
            made = list(zip(episode.choices, episode.rewards, strict=True))
            for choice, reward in made + [(episode.end, episode.paid)] * (episode.end >= 0):
                times[choice] += 1
                paid[choice] += reward
        ended = [pair for pair in zip(played, paths, strict=True) if pair[0].end != LATE]
        y = np.array([episode.outcome for episode, _ in ended])
        self.spread = _spread(y) or 1.0
        # As in `fitted`: going on for nothing is not worth as much as ending.
        goes_on = ~np.isin(np.arange(k), [episode.end for episode in played])
        free = np.array([bool(name) for name in agents]) & (paid == 0) & goes_on
        self.costs = np.where(free, -FREE * self.spread, paid / np.maximum(times, 1))
        self._fit(ended, y / self.spread, variances)

    # ------------------------------------------------------------------ what ending pays

    def _fit(
        self, ended: Sequence[tuple[Played, list[int]]], y: Floats, variances: Mapping[str, float]
    ) -> None:
        problems = _numbered(episode.problem for episode, _ in ended)
        repeats = _numbered((episode.problem, tuple(episode.choices)) for episode, _ in ended)
        self._widths = self._sizes(ended, problems)
        if len(repeats) < len(ended):
            self._widths["repeat"] = len(repeats)
        rows = [self._columns(*pair) for pair in ended]
        for row, (episode, path) in zip(rows, ended, strict=True):
            place, last = problems[episode.problem], int(self._choice[path[-1]])
            row["problem"] = [place]
            row["problem_last"] = [place * (len(self.agents) + 1) + last]
            row["repeat"] = [repeats[episode.problem, tuple(episode.choices)]]
        self._seen: dict[str, Ints] = {
            name: np.array(sorted({column for row in rows for column in row[name]}), np.int64)
            for name in self._widths
        }
        for name in DISPENSABLE:
            if sum(map(len, self._seen.values())) > COLUMNS and name in self._seen:
                del self._seen[name], self._widths[name]
        designs = {}
        for name, columns in self._seen.items():
            designs[name] = np.zeros((len(rows), len(columns)))
            for design, row in zip(designs[name], rows, strict=True):
                design[np.searchsorted(columns, row[name])] = 1.0
        self.variances = _likeliest(designs, y, variances)
        design = np.concatenate([np.ones((len(y), 1)), *designs.values()], axis=1)
        prior = [np.full(part.shape[1], self.variances[name]) for name, part in designs.items()]
        values, vectors = np.linalg.eigh(
            design.T @ design + np.diag(1 / np.concatenate([[FLAT], *prior]))
        )
        self._root = vectors / np.sqrt(values)
        self._mean = self._root @ (self._root.T @ (design.T @ y))
        self._noise = max(NOISE, float(y @ (y - design @ self._mean)) / max(1, len(y)))

    def _sizes(
        self, ended: Sequence[tuple[Played, list[int]]], problems: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the number of features of each group that has any to tell apart."""
        k, h, c = len(self.agents), len(self.heard), len(self.categories)
        bits = int(bits_of(self.agents).max(initial=0)).bit_length()
        longest = max((len(episode.choices) for episode, _ in ended), default=0)
        result = {"last": k + 1, "reply": h, "pair": (k + 1) ** 2, "called": bits}
        result["pair_reply"] = result["reply_last"] = (k + 1) * h
        result["turns"] = longest + 1
        if c > 1:
            result |= {"category": c, "category_last": c * (k + 1), "category_reply": c * h}
            result["category_pair"] = c * (k + 1) ** 2
        if len({episode.end for episode, _ in ended}) > 1:
            result["end"] = k + 1
        if 1 < len(problems) <= min(PROBLEMS, len(ended) - 1):
            result["problem"] = len(problems)
            result["problem_last"] = len(problems) * (k + 1)
        return result

    def _columns(self, episode: Played, path: list[int]) -> dict[str, list[int]]:
        """Return the features of the state in which an episode ended, by group."""
        k, h, last = len(self.agents), len(self.heard), path[-1]
        called = set_of(self.agents, episode.choices)
        heard = path[-2] if len(path) > 1 else 0
        before = int(self._choice[heard])
        choice, kind = int(self._choice[last]), self.categories.index(episode.category)
        pair = before * (k + 1) + choice
        return {
            "last": [choice],
            "reply": [last],
            "pair": [pair],
            "pair_reply": [before * h + last],
            "reply_last": [heard * (k + 1) + choice],
            "called": [bit for bit in range(called.bit_length()) if called >> bit & 1],
            "turns": [len(episode.choices)],
            "category": [kind],
            "category_last": [kind * (k + 1) + choice],
            "category_reply": [kind * h + last],
            "category_pair": [kind * (k + 1) ** 2 + pair],
            "end": [episode.end % (k + 1)],
        }

    # ------------------------------------------------------------------ models

    def tables(self, random: np.random.Generator | None = None) -> Tables:
        """Return the means, or a draw from the posterior, for an unknown problem."""
        sampled = self._mean
        if random is not None:
            noise = random.standard_normal(len(sampled))
            sampled = sampled + self._noise**0.5 * (self._root @ noise)
        weights, at = {"constant": self.spread * sampled[:1]}, 1
        for name, width in self._widths.items():
            # Features that were never met keep their prior.
            row = np.zeros(width)
            if random is not None:
                deviation = (self._noise * self.variances[name]) ** 0.5
                row = deviation * random.standard_normal(width)
            count = len(self._seen[name])
            row[self._seen[name]] = sampled[at : at + count]
            weights[name], at = self.spread * row, at + count
        for name in ("problem", "problem_last", "repeat"):
            weights.pop(name, None)
        bounds = self.bounds if random is None else (-np.inf, np.inf)
        says = self._says(random)
        return Tables(
            self.agents,
            self.heard,
            self.categories,
            weights,
            says,
            self.costs,
            self.late,
            bounds,
        )

    def _says(self, random: np.random.Generator | None) -> Floats:
        of = np.eye(len(self.agents) + 1)[self._choice]  # [h, k + 1]
        alike = of @ of.T  # whether replies are of one choice

        def around(counts: Floats, before: Floats) -> Floats:
            result: Floats = (counts + TRIES * before) / (counts @ alike + TRIES)
            return result

        first = np.maximum(self._follows.sum(axis=0), 1e-3)
        last = around(of.T @ self._follows, (first / (first @ alike))[None])
        result = around(self._follows, of @ last)
        if random is not None:
            weight = (self._follows @ alike + TRIES) * result
            sampled = random.standard_gamma(np.maximum(weight, 1e-3)) + 1e-9
            result = sampled / (sampled @ alike)
        return result


def _likeliest(
    designs: Mapping[str, Floats], y: Floats, start: Mapping[str, float]
) -> dict[str, float]:
    """Return the best variance of each group, found by improving one after the other."""
    names = tuple(designs)
    parts = [designs[name][-LATEST:] for name in names]
    grams = [part @ part.T for part in parts]
    expected = np.array([VARIANCES[name] for name in names])
    outcomes = np.stack([np.ones(len(y[-LATEST:])), y[-LATEST:]], axis=1)
    densities: dict[tuple[float, ...], float] = {}

    def density(variances: tuple[float, ...]) -> float:
        """Return twice the logarithm of the posterior density, but for a constant."""
        if variances not in densities:
            n = len(outcomes)
            covariance = np.eye(n)
            for gram, variance in zip(grams, variances, strict=True):
                covariance += variance * gram
            root = np.linalg.cholesky(covariance)
            ones, left = np.linalg.solve(root, outcomes).T
            left = left - (ones @ left) / (ones @ ones) * ones
            noise = float(left @ left) / n + NOISE
            shift = np.log(np.array(variances) / expected) / WIDTH
            size = 2 * float(np.log(root.diagonal()).sum())
            densities[variances] = -size - n * float(np.log(noise)) - float(shift @ shift)
        return densities[variances]

    best, before = tuple(start.get(name, VARIANCES[name]) for name in names), None
    while len(y) > 1 and best != before:
        before = best
        for i in range(len(names)):
            steps = (best[i] * STEP, best[i] / STEP)
            others = [(*best[:i], v, *best[i + 1 :]) for v in steps if LEAST <= v <= MOST]
            best = max([best, *others], key=density)
    return dict(zip(names, best, strict=True))


def _path(
    episode: Played, patterns: Sequence[str], places: dict[tuple[int, str], int]
) -> list[int]:
    """Return the places of an episode's replies; new ones are added."""
    result = []
    for i, choice in enumerate(episode.choices):
        over = episode.end == DONE and i == len(episode.choices) - 1
        reply = choice, OVER if over else patterns[i]
        result.append(places.setdefault(reply, len(places)))
    return result


def _spread(outcomes: Floats) -> float:
    """Return the standard deviation; 0 for equal outcomes, which deviate by what rounding adds."""
    spread = float(outcomes.std()) if len(outcomes) else 0.0
    return spread if spread > 1e-9 * (1 + abs(outcomes).max(initial=0.0)) else 0.0


def _cues(
    played: Sequence[Played], agents: Sequence[str]
) -> tuple[dict[str, list[Cue]], list[list[str]]]:
    """Return the cues of each agent's replies, and the signatures of all replies by episode."""
    expected = _expected(played)
    equal = not _spread(np.array([episode.outcome for episode in played if episode.end != LATE]))
    rows: dict[str, list[tuple[str, str, float]]] = {}
    places: dict[str, list[tuple[int, int]]] = {}
    for e, episode in enumerate(played):
        for i, choice in enumerate(episode.choices):
            last = i == len(episode.choices) - 1 and episode.end != LATE
            above = np.nan
            if last:
                above = 0.0 if equal else episode.outcome - expected[_pair(episode)]
            rows.setdefault(agents[choice], []).append((episode.replies[i], episode.problem, above))
            places.setdefault(agents[choice], []).append((e, i))
    cues = {}
    signatures = [[""] * len(episode.choices) for episode in played]
    for agent, part in rows.items():
        replies, problems, outcomes = zip(*part[-REPLIES:], strict=True)
        kept, latest = telling(replies, problems, np.array(outcomes))
        patterns = [signature(reply, kept) for reply, *_ in part[:-REPLIES]] + latest
        if kept:
            cues[agent] = kept
        for (e, i), pattern in zip(places[agent], patterns, strict=True):
            signatures[e][i] = pattern
    return cues, signatures


def _expected(played: Sequence[Played]) -> dict[tuple[int, ...], float]:
    """Return the mean outcome of episodes by their last two choices, pulled towards that of all."""
    ended = [episode for episode in played if episode.end != LATE]
    overall = sum(episode.outcome for episode in ended) / max(1, len(ended))
    outcomes: dict[tuple[int, ...], list[float]] = {}
    for episode in ended:
        outcomes.setdefault(_pair(episode), [overall] * SHRINK).append(episode.outcome)
    return {pair: sum(part) / len(part) for pair, part in outcomes.items()}


def _pair(episode: Played) -> tuple[int, ...]:
    return tuple(episode.choices[-2:])


def _numbered(names: Iterable[Name]) -> dict[Name, int]:
    return {name: i for i, name in enumerate(dict.fromkeys(names))}
