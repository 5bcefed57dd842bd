"""A learned ranking of edits: which of a program's candidates is the right one.

A conditional logit (McFadden, 1974): the probability that candidate c of a program is the right one
is exp(w . x(c)) / sum over all untried c' of exp(w . x(c')), where x are the traits of `traits.py`.
The weights `w` begin with those that make it the hand-made ranking of `ranking.py`, and `fit` draws
them towards the candidates that turned out right. Deviations:

- Several candidates may be right: the likelihood is that any of them is.
- Of the wrong ones that were not tried a sample stands for all, weighted accordingly.
- Only the `DEPTH` candidates that kinds and lines make likeliest are read in full; the others come
  after them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion_repair.ranking import NEXT, Map, Program
from orchestrion_repair.syntax import line_syntax
from orchestrion_repair.traits import (
    SIZE,
    Evidence,
    Reader,
    Trait,
    of_crossing,
    of_kind,
    of_line,
    slot,
)

__all__ = [
    "DEPTH",
    "Case",
    "Floats",
    "Model",
    "Ranked",
    "Situation",
    "begin",
    "fit",
    "rank",
    "rows_of",
    "situation_from",
    "situation_json",
]

Floats = NDArray[np.float64]
DEPTH = 200


@frozen(eq=False)
class Model:
    """The weights of traits [SIZE]."""

    weights: Floats

    def to_text(self) -> str:
        """The weights in single precision, as base64."""
        return b64encode(self.weights.astype("<f4").tobytes()).decode()

    @staticmethod
    def from_text(text: str) -> Model:
        """The inverse of `to_text`; equal texts share one model.

        Raises:
            ValueError: it is none.
        """
        return _model(text)

    def dot(self, traits: Sequence[Trait]) -> float:
        """The score that some traits give."""
        weights = self.weights
        return float(sum(weights[index] * value for index, value in traits))


@lru_cache(maxsize=64)
def _model(text: str) -> Model:
    data = b64decode(text, validate=True)
    if len(data) != 4 * SIZE:
        raise ValueError(f"expected {4 * SIZE} bytes, got {len(data)}")
    weights = np.frombuffer(data, "<f4").astype(float)
    if not np.isfinite(weights).all():
        raise ValueError("some weights are no finite numbers")
    return Model(weights)


def begin() -> Model:
    """The weights before anything was learned: those of the hand-made ranking."""
    weights = np.zeros(SIZE)
    weights[slot("prior")] = 1.0
    weights[slot("suspicion")] = 2.0
    weights[slot("gain")] = 2.0
    return Model(weights)


@frozen
class Situation:
    """What is known of a program, all public and all hashable.

    Args:
        suspicion: by line; None if no tests were run with coverage.
        symptoms: how tests fail, without zeros.
        gains, moved: by line, see `State.boosts` and `State.moved`.
        raised, odd: lines.
        tried: numbers of candidates.
    """

    suspicion: tuple[tuple[int, float], ...] | None = None
    symptoms: tuple[tuple[str, float], ...] = ()
    gains: tuple[tuple[int, float], ...] = ()
    moved: tuple[tuple[int, int], ...] = ()
    raised: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    tried: frozenset[int] = frozenset()


@frozen(eq=False)
class Ranked(Map):
    """A program's lines and its untried candidates, the likeliest first.

    Args:
        numbers: of the candidates [n].
        chances: that each is the right one, if any is [n].
        family: of each, as a number [n]; `families` has the names.
        region: of each, as a number [n].
    """

    numbers: NDArray[np.int64]
    chances: Floats
    family: NDArray[np.int64]
    families: Sequence[str]
    region: NDArray[np.int64]

    def best(self, families: Sequence[str], limit: int) -> list[tuple[float, int]]:
        """By region: what the best candidates of some families promise, and how many there are."""
        mine = np.array([name in families for name in self.families], bool)[self.family]
        by_region = []
        for region in range(len(self.regions)):
            places = np.flatnonzero(mine & (self.region == region))
            by_region.append((float(self.chances[places[:limit]].sum()), len(places)))
        return by_region


# ---------------------------------------------------------------- scores


class _Table:
    """A program's candidates as arrays, and what was read of them."""

    def __init__(self, program: Program) -> None:
        edits = program.candidates
        self.edits = edits
        self.lines = sorted({edit.line for edit in edits})
        at = {line: i for i, line in enumerate(self.lines)}
        self.line = np.array([at[edit.line] for edit in edits], int)
        self.kinds = sorted({(edit.family, edit.sub) for edit in edits})
        kind = {pair: i for i, pair in enumerate(self.kinds)}
        self.kind = np.array([kind[edit.family, edit.sub] for edit in edits], int)
        self.families = sorted({family for family, _ in self.kinds})
        family = {name: i for i, name in enumerate(self.families)}
        self.family = np.array([family[edit.family] for edit in edits], int)
        self.words = line_syntax(program)
        assert program.source is not None
        self._reader = Reader(program.source)
        self._traits: dict[int, tuple[Trait, ...]] = {}
        self._model: Model | None = None
        self._known: dict[int, float] = {}

    def traits(self, number: int) -> tuple[Trait, ...]:
        found = self._traits.get(number)
        if found is None:
            found = self._traits[number] = tuple(self._reader.traits(self.edits[number]))
        return found

    def own(self, model: Model, numbers: Sequence[int]) -> list[float]:
        """What the candidates' own traits give."""
        if self._model is not model:
            self._model, self._known = model, {}
        known = self._known
        for number in numbers:
            if number not in known:
                known[number] = model.dot(tuple(self._reader.traits(self.edits[number])))
        return [known[number] for number in numbers]

    def evidence(self, situation: Situation) -> list[Evidence]:
        """What is known of each line."""
        known = None if situation.suspicion is None else dict(situation.suspicion)
        scores = [known.get(line, 0.0) if known is not None else 0.0 for line in self.lines]
        gains, moved = dict(situation.gains), dict(situation.moved)
        tried = [0] * len(self.lines)
        for number in situation.tried:
            if number < len(self.edits):
                tried[self.line[number]] += 1
        return [
            Evidence(
                suspicion=None if known is None else scores[i],
                rank=sum(score > scores[i] for score in scores),
                raised=line in situation.raised,
                gain=gains.get(line, 0.0),
                tried=tried[i],
                moved=moved.get(line, 0),
                odd=line in situation.odd,
                words=self.words.get(line, frozenset()),
            )
            for i, line in enumerate(self.lines)
        ]


@lru_cache(maxsize=1_000)
def _table(program: Program) -> _Table:
    return _Table(program)


@lru_cache(maxsize=2_000)
def _kind_scores(model: Model, program: Program, symptoms: tuple[tuple[str, float], ...]) -> Floats:
    named = dict(symptoms)
    return np.array([model.dot(tuple(of_kind(*kind, named))) for kind in _table(program).kinds])


def _crossing(evidence: Evidence) -> tuple[frozenset[str], float | None, bool, bool]:
    return evidence.words, evidence.suspicion, evidence.raised, evidence.gain > 0


@lru_cache(maxsize=20_000)
def _crossed(model: Model, table: _Table, *line: Any) -> tuple[float, ...]:
    """What each family is worth on such a line."""
    return tuple(model.dot(tuple(of_crossing(name, *line))) for name in table.families)


@lru_cache(maxsize=10_000)
def rank(model: Model, program: Program, situation: Situation) -> Ranked:
    """The program's lines and candidates in the order to try them."""
    if not program.candidates:
        none = np.zeros(0, int)
        empty: dict[str, tuple[int, ...]] = {"top": (), "next": (), "rest": ()}
        return Ranked((), {}, empty, none, np.zeros(0), none, (), none)
    table = _table(program)
    kinds = _kind_scores(model, program, situation.symptoms)
    evidence = table.evidence(situation)
    lines = np.array([model.dot(tuple(of_line(known))) for known in evidence])
    crossed = np.array([_crossed(model, table, *_crossing(known)) for known in evidence])
    scores = kinds[table.kind] + lines[table.line] + crossed[table.line, table.family]
    fresh = np.ones(len(scores), bool)
    fresh[[number for number in situation.tried if number < len(scores)]] = False
    numbers = np.flatnonzero(fresh)
    if not len(numbers):
        chances = np.zeros(0)
    else:
        order = numbers[np.argsort(-scores[numbers], kind="stable")]
        first, rest = order[:DEPTH], order[DEPTH:]
        full = scores[first] + table.own(model, first.tolist())
        again = np.argsort(-full, kind="stable")
        # Those that were not read are at most as likely as the last that was.
        numbers = np.concatenate([first[again], rest])
        cut = full.min() if len(full) else 0.0
        values = np.concatenate([full[again], np.minimum(scores[rest], cut)])
        chances = np.exp(values - values.max())
        chances /= chances.sum()
    return _ranked(table, numbers, chances)


def _ranked(table: _Table, numbers: NDArray[np.int64], chances: Floats) -> Ranked:
    masses = np.bincount(table.line[numbers], chances, len(table.lines))
    places = np.argsort(-masses, kind="stable")
    order = tuple(table.lines[i] for i in places)
    where = np.zeros(len(order), int)
    where[places[1:]], where[places[1 + NEXT :]] = 1, 2
    regions = {"top": order[:1], "next": order[1 : 1 + NEXT], "rest": order[1 + NEXT :]}
    weights = dict(zip(table.lines, masses.tolist(), strict=True))
    family, region = table.family[numbers], where[table.line[numbers]]
    return Ranked(order, weights, regions, numbers, chances, family, table.families, region)


# ---------------------------------------------------------------- learning


@frozen
class Case:
    """What an episode showed: in this situation `right` were right and `wrong` were not.

    `others` stand for all `rest` candidates of which nothing is known.
    """

    program: Program
    situation: Situation
    right: tuple[int, ...]
    wrong: tuple[int, ...]
    others: tuple[int, ...]
    rest: int


def rows_of(case: Case) -> tuple[Any, NDArray[np.bool_], Floats]:
    """Traits [n, SIZE], which rows are right [n], and what is added to their scores [n]."""
    from scipy.sparse import csr_matrix

    table = _table(case.program)
    evidence = table.evidence(case.situation)
    named = dict(case.situation.symptoms)
    numbers = (*case.right, *case.wrong, *case.others)
    shared: dict[tuple[int, int], tuple[Trait, ...]] = {}
    indices: list[int] = []
    values: list[float] = []
    starts = [0]
    for number in numbers:
        line, kind = int(table.line[number]), int(table.kind[number])
        if (line, kind) not in shared:
            family, sub = table.kinds[kind]
            one = evidence[line]
            shared[line, kind] = (
                *of_line(one), *of_kind(family, sub, named), *of_crossing(family, *_crossing(one))
            )  # fmt: skip
        for index, value in (*table.traits(number), *shared[line, kind]):
            indices.append(index)
            values.append(value)
        starts.append(len(indices))
    known = len(case.right) + len(case.wrong)
    right = np.arange(len(numbers)) < len(case.right)
    offset = np.zeros(len(numbers))
    if case.others:
        offset[known:] = np.log(case.rest / len(case.others))
    matrix = csr_matrix((values, indices, starts), shape=(len(numbers), SIZE))
    return matrix, right, offset


def fit(rows: Sequence[tuple[Any, Any, Any]], doubt: float, steps: int = 100) -> Model:
    """The most likely weights, drawn towards `begin()`: doubt / 2 times their squared distance."""
    from scipy.optimize import minimize
    from scipy.sparse import vstack

    first = begin().weights
    matrix = vstack([row[0] for row in rows]).tocsr()
    right = np.concatenate([row[1] for row in rows])
    offset = np.concatenate([row[2] for row in rows])
    sizes = np.array([len(row[1]) for row in rows])
    starts, case = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(rows)), sizes)
    columns = np.unique(matrix.indices)
    matrix = matrix[:, columns].tocsr()
    transposed = matrix.T.tocsr()
    base = matrix @ first[columns]

    def softmax(scores: Floats) -> tuple[float, Floats]:
        """The sum over the cases of the logarithm of their sums, and shares of these."""
        top = np.maximum.reduceat(scores, starts)
        parts = np.exp(scores - top[case])
        sums = np.add.reduceat(parts, starts)
        return float((top + np.log(sums)).sum()), parts / sums[case]

    def loss(change: Floats) -> tuple[float, Floats]:
        scores = base + matrix @ change
        every, shares = softmax(scores + offset)
        good, mine = softmax(np.where(right, scores, -1e9))
        value = every - good + doubt / 2 * float(change @ change)
        return value, transposed @ (shares - mine) + doubt * change

    optimum = minimize(
        loss, np.zeros(len(columns)), jac=True, method="L-BFGS-B", options={"maxiter": steps}
    )
    weights = first.copy()
    weights[columns] += optimum.x
    return Model(weights)


def situation_from(data: Mapping[str, Any]) -> Situation:
    """The inverse of `situation_json`."""
    pairs = ("suspicion", "symptoms", "gains", "moved")
    given: dict[str, Any] = {
        name: None if data[name] is None else tuple((a, b) for a, b in data[name]) for name in pairs
    }
    lines = {name: tuple(data[name]) for name in ("raised", "odd")}
    return Situation(**given, **lines, tried=frozenset(data["tried"]))


def situation_json(situation: Situation) -> Mapping[str, Any]:
    """A situation as JSON."""
    from attrs import asdict

    return {**asdict(situation), "tried": sorted(situation.tried)}
