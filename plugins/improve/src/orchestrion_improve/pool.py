"""Hold the candidates of `gepa`, and say which are on the front, and which can be merged."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import fsum, inf

from attrs import define, field
from msgspec import Struct

from orchestrion import Key


class Texts(Struct, frozen=True):
    """Hold a candidate: one text for each agent, and its scores."""

    texts: Mapping[str, str]  # by agent
    scores: tuple[float | None, ...]  # one for each instance; None where the reward was missing
    parents: tuple[int, ...] = ()  # positions in the pool; two if it was merged
    changed: str = ""  # the agent whose text is new; empty for the first and for merged ones

    @property
    def mean(self) -> float:
        """Return the mean over the instances with a score; minus infinity without any."""
        scores = [score for score in self.scores if score is not None]
        return fsum(scores) / len(scores) if scores else -inf


@define
class Pool:
    """Hold all candidates that were scored on every instance."""

    candidates: list[Texts] = field(factory=list)

    def has(self, texts: Mapping[str, str]) -> bool:
        """Return whether a candidate has the same texts."""
        return any(candidate.texts == texts for candidate in self.candidates)

    def ranked(self) -> list[int]:
        """Return positions by mean score, the best first, the older of equal ones first."""
        means = [candidate.mean for candidate in self.candidates]
        return sorted(range(len(means)), key=lambda position: (-means[position], position))

    def wins(self) -> dict[int, int]:
        """Return the front: its positions, each with the number of instances where it is the best.

        A candidate that shares all its wins with others of the front is left out, weakest first.
        """
        winners_by_instance = [winners for winners in self._winners() if winners]
        kept = {position for winners in winners_by_instance for position in winners}
        for position in reversed(self.ranked()):
            own = [winners for winners in winners_by_instance if position in winners]
            if position in kept and all(len(winners & kept) > 1 for winners in own):
                kept.discard(position)
        return {
            position: sum(position in winners for winners in winners_by_instance)
            for position in sorted(kept)
        }

    def _winners(self) -> list[set[int]]:
        """Return for each instance the positions with the highest score."""
        all_winners = []
        for n in range(max((len(c.scores) for c in self.candidates), default=0)):
            scores = {i: candidate.scores[n] for i, candidate in enumerate(self.candidates)}
            defined = {i: score for i, score in scores.items() if score is not None}
            highest = max(defined.values(), default=0.0)
            all_winners.append({i for i, score in defined.items() if score == highest})
        return all_winners

    def parent(self, key: Key) -> int:
        """Return a position of the front, drawn in proportion to its wins."""
        wins = self.wins() or {0: 1}
        [position] = key.random().choices(list(wins), list(wins.values()))
        return position

    def best(self) -> int:
        """Return the position with the highest mean."""
        return self.ranked()[0]

    def ancestors(self, position: int) -> set[int]:
        """Return all candidates that this one comes from."""
        ancestors: set[int] = set()
        to_visit = list(self.candidates[position].parents)
        while to_visit:
            parent = to_visit.pop()
            if parent not in ancestors:
                ancestors.add(parent)
                to_visit += self.candidates[parent].parents
        return ancestors

    def couples(self) -> list[tuple[int, int, int]]:
        """Return pairs of the front that can be merged, with their latest common ancestor.

        Neither comes from the other, and each is the better one on some instance.
        """
        couples = []
        for first, second in combinations(self.wins(), 2):
            of_first, of_second = self.ancestors(first), self.ancestors(second)
            common = of_first & of_second
            are_related = first in of_second or second in of_first
            if common and not are_related and all(self.contested(first, second)):
                couples.append((first, second, max(common)))
        return couples

    def contested(self, first: int, second: int) -> tuple[list[int], list[int]]:
        """Return the instances where the first is better, and those where the second is."""
        pairs = zip(self.candidates[first].scores, self.candidates[second].scores, strict=True)
        known = [(n, a, b) for n, (a, b) in enumerate(pairs) if a is not None and b is not None]
        return [n for n, a, b in known if a > b], [n for n, a, b in known if a < b]


def merged_texts(
    first: Mapping[str, str], second: Mapping[str, str], ancestor: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the texts of two lineages together, and the agents that both lineages rewrote.

    An agent has the text of the lineage that changed it. Where both did, it has the first one's,
    until the two are combined.
    """
    texts, rewritten_by_both = {}, []
    for role, before in ancestor.items():
        texts[role] = second[role] if first[role] == before else first[role]
        if before != first[role] != second[role] != before:
            rewritten_by_both.append(role)
    return texts, rewritten_by_both
