"""Candidates of reflective evolution: what each scores, instance by instance.

The front is per instance (Agrawal et al. 2025): a candidate stays in play if it is the best on one
instance at least, whatever its mean. So a text that helps with some problems and harms with others
is not lost, and can be improved where it harms, or merged with one that is good there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum

from attrs import frozen

from orchestrion import JSON, Key

__all__ = ["Candidate", "Pool", "merged_roles"]


@frozen
class Candidate:
    """Texts for all roles.

    Args:
        texts: by role.
        scores: one an instance; None where the reward was missing.
        parents: places in the pool it came from; none, one, or two if it was merged.
        changed: the role whose text is new; "" for the first, and for merged ones.
    """

    texts: Mapping[str, str]
    scores: tuple[float | None, ...]
    parents: tuple[int, ...] = ()
    changed: str = ""

    @property
    def mean(self) -> float:
        """Over the instances that have a score; minus infinity without any."""
        known = [one for one in self.scores if one is not None]
        return fsum(known) / len(known) if known else float("-inf")

    def as_json(self) -> JSON:
        """As plain data."""
        return {
            "texts": dict(self.texts),
            "scores": list(self.scores),
            "parents": list(self.parents),
            "changed": self.changed,
        }

    @staticmethod
    def from_json(data: Mapping[str, JSON]) -> Candidate:
        """The inverse."""
        return Candidate(
            dict(data["texts"]), tuple(data["scores"]), tuple(data["parents"]), data["changed"]
        )


class Pool:
    """All candidates that were evaluated on every instance."""

    def __init__(self, candidates: Sequence[Candidate] = ()) -> None:
        self.candidates = list(candidates)

    def add(self, candidate: Candidate) -> int:
        """Take one in; returns its place."""
        self.candidates.append(candidate)
        return len(self.candidates) - 1

    def knows(self, texts: Mapping[str, str]) -> bool:
        """Whether there is one with the same texts."""
        return any(one.texts == texts for one in self.candidates)

    def ranked(self) -> list[int]:
        """Places by mean score, the best first; the older of equal ones."""
        return sorted(
            range(len(self.candidates)), key=lambda place: (-self.candidates[place].mean, place)
        )

    def wins(self) -> dict[int, int]:
        """The front: on how many instances each of its candidates is the best.

        Candidates whose every win another one on the front shares are left out, the weakest first.
        """
        best = [winners for winners in self._winners() if winners]
        kept = {place for winners in best for place in winners}
        for place in reversed(self.ranked()):
            if place in kept and all(len(w & kept) > 1 for w in best if place in w):
                kept.discard(place)
        return {place: sum(place in winners for winners in best) for place in sorted(kept)}

    def _winners(self) -> Iterator[set[int]]:
        for n in range(max((len(one.scores) for one in self.candidates), default=0)):
            scores = {i: one.scores[n] for i, one in enumerate(self.candidates)}
            known = {i: score for i, score in scores.items() if score is not None}
            most = max(known.values(), default=0.0)
            yield {i for i, score in known.items() if score == most}

    def parent(self, key: Key) -> int:
        """One of the front, as likely as it wins instances."""
        wins = self.wins()
        if not wins:
            return 0
        [place] = key.random().choices(list(wins), list(wins.values()))
        return place

    def best(self) -> int:
        """The one with the highest mean."""
        return self.ranked()[0]

    def ancestors(self, place: int) -> set[int]:
        """All it came from."""
        found: set[int] = set()
        todo = list(self.candidates[place].parents)
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += self.candidates[one].parents
        return found

    def couples(self) -> list[tuple[int, int, int]]:
        """Pairs of the front that can be merged, with their latest common ancestor.

        Neither comes from the other, and each is the better one on some instance.
        """
        front = list(self.wins())
        found = []
        for n, first in enumerate(front):
            for second in front[n + 1 :]:
                above_first, above_second = self.ancestors(first), self.ancestors(second)
                common = above_first & above_second
                related = first in above_second or second in above_first
                if common and not related and self._complement(first, second):
                    found.append((first, second, max(common)))
        return found

    def _complement(self, first: int, second: int) -> bool:
        better, worse = self.contested(first, second)
        return bool(better and worse)

    def contested(self, first: int, second: int) -> tuple[list[int], list[int]]:
        """Instances on which the first is better, and those on which the second is."""
        one, other = self.candidates[first].scores, self.candidates[second].scores
        known = [
            (n, a - b)
            for n, (a, b) in enumerate(zip(one, other, strict=True))
            if a is not None and b is not None
        ]
        return [n for n, d in known if d > 0], [n for n, d in known if d < 0]


def merged_roles(
    first: Mapping[str, str], second: Mapping[str, str], ancestor: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The texts of two lineages together, and the roles in which both went ways of their own.

    A role takes the text of the lineage that changed it. Where both did, the first one's stands,
    until somebody combines the two.
    """
    texts, both = {}, []
    for role, before in ancestor.items():
        mine, other = first[role], second[role]
        texts[role] = other if mine == before else mine
        if before != mine != other != before:
            both.append(role)
    return texts, both
