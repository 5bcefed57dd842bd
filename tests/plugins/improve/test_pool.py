"""The per-instance front, parents, and merging of lineages."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins
from orchestrion_improve.pool import Pool, Texts, merged_texts

from orchestrion import Key

SCORES = st.lists(
    st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), min_size=4, max_size=4),
    min_size=1,
    max_size=6,
)


def pool(*scores: list[float | None], parents: dict[int, tuple[int, ...]] | None = None) -> Pool:
    links = parents or {}
    return Pool(
        [
            Texts({"anna": str(n)}, tuple(own), links.get(n, (0,) if n else ()))
            for n, own in enumerate(scores)
        ]
    )


def test_the_best_on_one_instance_is_on_the_front_whatever_its_mean() -> None:
    candidates = pool([0.6, 0.6, 0.6], [1.0, 0.0, 0.0], [0.0, 0.7, 0.7])
    assert candidates.wins() == {1: 1, 2: 2}
    assert candidates.best() == 0


def test_parents_are_drawn_by_how_many_instances_they_win() -> None:
    candidates = pool([1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0])
    parents = Counter(candidates.parent(Key(1).child(n)) for n in range(400))
    assert 0.65 < parents[1] / 400 < 0.85


@given(SCORES)
def test_the_front_wins_every_instance_and_each_of_it_wins_one_alone(
    scores: list[list[float | None]],
) -> None:
    candidates = pool(*scores)
    wins = candidates.wins()
    numbers = [[-1.0 if score is None else score for score in own] for own in scores]
    for n in range(4):
        highest = max(own[n] for own in numbers)
        if highest >= 0:
            assert any(numbers[position][n] == highest for position in wins)
    for position in wins:
        others = [i for i in wins if i != position]
        alone = [all(numbers[i][n] < numbers[position][n] for i in others) for n in range(4)]
        assert any(alone)


def test_merging_takes_the_changed_texts_of_each_lineage() -> None:
    before = {"anna": "a", "ben": "b", "eve": "e"}
    first, second = {**before, "anna": "a1", "eve": "e1"}, {**before, "ben": "b2", "eve": "e2"}
    texts, both = merged_texts(first, second, before)
    assert texts == {"anna": "a1", "ben": "b2", "eve": "e1"}
    assert both == ["eve"]


def test_only_lineages_that_complement_each_other_are_merged() -> None:
    scores: tuple[list[float | None], ...] = ([0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0])
    assert pool(*scores[:3]).couples() == [(1, 2, 0)]
    child = pool(*scores[:3], parents={1: (0,), 2: (1,)})
    assert child.couples() == []
    assert pool(scores[0], scores[1], scores[3]).couples() == []


@given(SCORES)
def test_candidates_survive_json(scores: list[list[float | None]]) -> None:
    for candidate in pool(*scores).candidates:
        data = json.loads(json.dumps(to_builtins(candidate)))
        assert convert(data, Texts) == candidate
