"""The ranking of edits: which of a program's candidates is tried next.

A conditional logit (McFadden, 1974): the probability that candidate c of a program is the right one
is exp(w . x(c)) / sum over all untried c' of exp(w . x(c')), where x are the traits of `traits.py`.
There are three such rankings:

- `begin`, before anything was learned: a line counts by its suspicion, every kind of edit is as
  likely as any other, and the candidates of a kind share what it promises;
- `counted`, without context: a candidate's kind counts by how often such edits were right;
- `fit` (`fitting.py`) draws the weights from those of `counted` towards the candidates that turned
  out right.

Only the `DEPTH` candidates that kinds and lines make likeliest are read in full; the others come
after them.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from attrs import Factory, frozen
from numpy.typing import NDArray

from orchestrion_repair.counts import Kind
from orchestrion_repair.ranking import NEXT, REGIONS, ProbeResults, Program
from orchestrion_repair.syntax import line_syntax
from orchestrion_repair.traits import (
    SIZE,
    Evidence,
    Reader,
    Trait,
    of_crossing,
    of_effect,
    of_kind,
    of_line,
    slot,
)

Floats = NDArray[np.float64]
N = TypeVar("N", int, str, tuple[str, str])
DEPTH = 200
BY_HAND = {"suspicion": 2.0, "gain": 2.0, "odd": 0.8}
"""Weights of traits that no ranking has to learn first."""
RATE = slot("rate")
"""How often edits of a kind were right."""


@frozen(eq=False)
class EditModel:
    """A ranking.

    Args:
        weights: of traits [SIZE].
        rates: how often edits of a kind were right; empty if they were not counted.
    """

    weights: Floats
    rates: Mapping[Kind, float] = Factory(dict)

    @property
    def contextual(self) -> bool:
        """Return whether it goes by more than kinds and lines."""
        return bool(np.count_nonzero(self.weights) > len(BY_HAND) + 1)

    def to_text(self) -> str:
        """Return the rates, and the weights in single precision as base64, as JSON."""
        rates = {"/".join(kind): rate for kind, rate in sorted(self.rates.items())}
        weights = b64encode(self.weights.astype("<f4").tobytes()).decode()
        return json.dumps({"rates": rates, "weights": weights})

    @staticmethod
    @lru_cache(maxsize=64)
    def from_text(text: str) -> EditModel:
        """Return the inverse of `to_text`; equal texts share one model.

        Raises:
            ValueError: it is none.
        """
        try:
            data = json.loads(text)
            rates = {_kind(name): float(rate) for name, rate in data["rates"].items()}
            raw = b64decode(data["weights"], validate=True)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"expected an object with rates and weights ({error!r})") from None
        if len(raw) != 4 * SIZE:
            raise ValueError(f"expected {4 * SIZE} bytes, got {len(raw)}")
        weights = np.frombuffer(raw, "<f4").astype(float)
        if not np.isfinite(weights).all():
            raise ValueError("some weights are no finite numbers")
        if not all(0 < rate <= 1 for rate in rates.values()):
            raise ValueError("some rates are not between 0 and 1")
        return EditModel(weights, rates)

    @cached_property
    def _weights(self) -> list[float]:
        return list(map(float, self.weights))

    def dot(self, traits: Iterable[Trait]) -> float:
        """Return the score that some traits give."""
        weights, total = self._weights, 0.0
        for index, value in traits:
            total += weights[index] * value
        return total


def _kind(name: str) -> Kind:
    family, _, sub = name.partition("/")
    return family, sub


@lru_cache(maxsize=1)
def begin() -> EditModel:
    """Return the ranking before anything was learned."""
    return EditModel(_weights(slot("alike"), -1.0))


def counted(rates: Mapping[Kind, float]) -> EditModel:
    """Return the ranking by counts alone, see `Counts.rates`."""
    return EditModel(_weights(RATE, 1.0), rates)


def _weights(index: int, value: float) -> Floats:
    weights = np.zeros(SIZE)
    for name, weight in BY_HAND.items():
        weights[slot(name)] = weight
    weights[index] = value
    return weights


def log_rate(rates: Mapping[Kind, float], kind: Kind) -> float:
    """Return the logarithm of a kind's rate; of its family's or the lowest if it is unknown."""
    return math.log(rates.get(kind) or rates.get((kind[0], "")) or min(rates.values(), default=1))


@frozen
class EditSituation:
    """What is known of a program, all public and all hashable.

    Args:
        suspicion: by line; None if no tests were run with coverage.
        symptoms: how tests fail, without zeros.
        gains, moved: by line, see `State.boosts` and `State.moved`.
        raised, odd: lines.
        tried: numbers of candidates.
        seen: what probes showed of candidates.
    """

    suspicion: tuple[tuple[int, float], ...] | None = None
    symptoms: tuple[tuple[str, float], ...] = ()
    gains: tuple[tuple[int, float], ...] = ()
    moved: tuple[tuple[int, int], ...] = ()
    raised: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    tried: frozenset[int] = frozenset()
    seen: ProbeResults = ProbeResults()


@frozen(eq=False)
class Ranked:
    """A program's lines and its untried candidates, the likeliest first.

    Args:
        order: the lines.
        regions: the lines by region.
        numbers: of the candidates [n].
        chances: that each is the right one, if any is [n].
        family: of each, as a number [n]; `families` has the names.
        region: of each, as a number [n].
    """

    order: tuple[int, ...]
    regions: Mapping[str, tuple[int, ...]]
    numbers: NDArray[np.int64]
    chances: Floats
    family: NDArray[np.int64]
    families: Sequence[str]
    region: NDArray[np.int64]

    def best(self, families: Sequence[str], limit: int) -> list[tuple[float, int]]:
        """Return, by region, what the best candidates of families promise, and how many it has."""
        mine = np.array([name in families for name in self.families], bool)[self.family]
        by_region = []
        for region in range(len(self.regions)):
            places = np.flatnonzero(mine & (self.region == region))
            by_region.append((float(self.chances[places[:limit]].sum()), len(places)))
        return by_region


# ---------------------------------------------------------------- scores


class CandidateTable:
    """A program's candidates as arrays, and what was read of them."""

    def __init__(self, program: Program) -> None:
        self.edits = program.candidates
        self.lines, self.line = _numbered([edit.line for edit in self.edits])
        self.kinds, self.kind = _numbered([(edit.family, edit.sub) for edit in self.edits])
        self.number = np.bincount(self.kind).tolist()
        self.families, self.family = _numbered([edit.family for edit in self.edits])
        self.words = line_syntax(program)
        assert program.source is not None
        self._reader = Reader(program.source)
        self._model: EditModel | None = None
        self._known: dict[int, float] = {}

    def traits(self, number: int) -> list[Trait]:
        """Return the traits of a candidate that depend on the program alone."""
        return self._reader.traits(self.edits[number])

    def own(self, model: EditModel, numbers: Sequence[int]) -> list[float]:
        """Return what the candidates' own traits give."""
        if not model.contextual:
            return [0.0] * len(numbers)
        if self._model is not model:
            self._model, self._known = model, {}
        for number in set(numbers).difference(self._known):
            self._known[number] = model.dot(self.traits(number))
        return [self._known[number] for number in numbers]

    def evidence(self, situation: EditSituation) -> list[Evidence]:
        """Return what is known of each line."""
        known = dict(situation.suspicion or ())
        scores = [known.get(line, 0.0) for line in self.lines]
        gains, moved = dict(situation.gains), dict(situation.moved)
        numbers = [number for number in situation.tried if number < len(self.edits)]
        tried = np.bincount(self.line[numbers], minlength=len(self.lines)).tolist()
        return [
            Evidence(
                suspicion=None if situation.suspicion is None else scores[i],
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


def _numbered(names: Sequence[N]) -> tuple[list[N], NDArray[np.int64]]:
    """Return the different names in order, and of each name which of them it is."""
    different = sorted(set(names))
    numbers = {name: number for number, name in enumerate(different)}
    return different, np.array([numbers[name] for name in names], int)


@lru_cache(maxsize=1_000)
def table_of(program: Program) -> CandidateTable:
    """Return a program's candidates as arrays."""
    return CandidateTable(program)


@lru_cache(maxsize=1_000)
def effects(program: Program, seen: ProbeResults) -> tuple[NDArray[np.bool_], Floats]:
    """Return what probes showed of each candidate.

    Whether it changes nothing in some failing test, and in which share of the passing tests it
    changes something: -1 where nobody looked.
    """
    size = len(program.candidates)
    probed = _bits(seen.probed, size)
    kept = [_bits(bits, size) for bits in seen.kept]
    changed = 1 - np.mean(kept, axis=0) if kept else np.zeros(size)
    return _bits(seen.inert, size), np.where(probed, changed, -1.0)


def _bits(text: str, size: int) -> NDArray[np.bool_]:
    width = size // 8 + 1
    number = int(text, 16) & ((1 << size) - 1)
    row = np.frombuffer(number.to_bytes(width, "little"), np.uint8)
    return np.unpackbits(row, bitorder="little")[:size].astype(bool)


@lru_cache(maxsize=1_000)
def rank(model: EditModel, program: Program, situation: EditSituation) -> Ranked:
    """Return the program's lines and candidates in the order to try them."""
    if not program.candidates:
        none = np.zeros(0, int)
        return Ranked((), dict.fromkeys(REGIONS, ()), none, np.zeros(0), none, (), none)
    table = table_of(program)
    symptoms, rate = dict(situation.symptoms), model.weights[RATE]
    kinds = np.array(
        [
            model.dot(of_kind(*kind, number, symptoms)) + rate * log_rate(model.rates, kind)
            for kind, number in zip(table.kinds, table.number, strict=True)
        ]
    )
    evidence = table.evidence(situation)
    lines = np.array([model.dot(of_line(known)) for known in evidence])
    crossed = np.array(
        [[model.dot(of_crossing(name, known)) for name in table.families] for known in evidence]
    )
    scores = kinds[table.kind] + lines[table.line] + crossed[table.line, table.family]
    inert, changed = effects(program, situation.seen)
    if model.contextual:
        values, place = np.unique(changed, return_inverse=True)
        effect = np.array(
            [[model.dot(of_effect(name, v)) for v in values] for name in table.families]
        )
        scores += effect[table.family, place]
    fresh = ~inert
    fresh[[number for number in situation.tried if number < len(scores)]] = False
    numbers, chances = np.flatnonzero(fresh), np.zeros(0)
    if len(numbers):
        best = numbers[np.argsort(-scores[numbers], kind="stable")]
        first, rest = best[:DEPTH], best[DEPTH:]
        full = scores[first] + table.own(model, first.tolist())
        again = np.argsort(-full, kind="stable")
        # Those that were not read are at most as likely as the last that was.
        numbers = np.concatenate([first[again], rest])
        values = np.concatenate([full[again], np.minimum(scores[rest], full.min())])
        chances = np.exp(values - values.max())
        chances /= chances.sum()
    masses = np.bincount(table.line[numbers], chances, len(table.lines))
    places = np.argsort(-masses, kind="stable")
    order = tuple(table.lines[i] for i in places)
    where = np.zeros(len(order), int)
    where[places[1:]], where[places[1 + NEXT :]] = 1, 2
    regions = {"top": order[:1], "next": order[1 : 1 + NEXT], "rest": order[1 + NEXT :]}
    family, region = table.family[numbers], where[table.line[numbers]]
    return Ranked(order, regions, numbers, chances, family, table.families, region)
