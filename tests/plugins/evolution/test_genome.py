"""Genomes: always acyclic graphs, with equal canonical forms exactly if the graphs are equal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_evolution import Genome, Range, Slot, Space, canonical, crossover, mutate
from orchestrion_evolution.genome import indices_of, live_slots
from orchestrion_evolution.nsga2 import OPERATORS, delete_and_bypass

SPACE = Space(
    ("a", "b:x", "b:y", "c"),
    slots=6,
    fan_in=3,
    settings={
        "agents.a.instructions": Range(values=("short", "long", "none")),
        "agents.b.depth": Range(low=1, high=9, whole=True),
        "agents.c.weight": Range(low=0.01, high=100.0, log=True),
    },
)


@st.composite
def genomes(draw: st.DrawFn, space: Space = SPACE) -> Genome:
    """Return random genomes of a space, with dead slots."""
    return space.draw(Random(draw(st.integers(0, 2**32))))


def is_valid(genome: Genome, space: Space) -> bool:
    """Return whether a genome belongs to a space."""
    most_inputs = space.slots if space.fan_in is None else space.fan_in
    return (
        0 < len(genome.slots) <= space.slots
        and all(
            0 <= slot.choice < len(space.choices)
            and 0 <= slot.reads < 1 << j
            and slot.reads.bit_count() <= most_inputs
            for j, slot in enumerate(genome.slots)
        )
        and all(
            allows(values, value)
            for values, value in zip(space.settings.values(), genome.settings, strict=True)
        )
    )


def allows(values: Range, value: float) -> bool:
    """Return whether a genome can hold this value of a setting."""
    if values.values:
        return value in range(len(values.values))
    assert values.low is not None
    assert values.high is not None
    return values.low <= value <= values.high and value == values.rounded(value)


def meaning(genome: Genome) -> object:
    """Return the smallest of all relabellings of the live nodes: equal exactly for equal graphs.

    Slow, so only for small graphs.
    """
    live = live_slots(genome.slots)
    forms = []
    for order in permutations(range(len(live))):
        label = dict(zip(live, order, strict=True))
        nodes = [
            (label[j], slot.choice, tuple(sorted(label[i] for i in indices_of(slot.reads))))
            for j in live
            for slot in [genome.slots[j]]
        ]
        forms.append((tuple(sorted(nodes)), label[live[-1]]))
    return min(forms), genome.settings


@given(genomes(), genomes(), st.integers(0, 2**32))
def test_children_of_valid_genomes_are_valid(a: Genome, b: Genome, seed: int) -> None:
    rng = Random(seed)
    child = mutate(crossover(a, b, SPACE, rng), SPACE, rng)
    assert is_valid(child, SPACE)
    assert is_valid(canonical(child), SPACE)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_every_operator_gives_valid_genomes_and_often_changes_something(
    operator: Callable[[list[Slot], Space, Random], list[Slot]],
) -> None:
    rng, changed = Random(3), 0
    for _ in range(300):
        genome = SPACE.draw(rng)
        slots = tuple(SPACE.limit_inputs(operator(list(genome.slots), SPACE, rng), rng))
        assert is_valid(Genome(slots, genome.settings), SPACE)
        changed += slots != genome.slots
    assert changed > 100


def test_readers_of_a_deleted_node_read_its_inputs() -> None:
    class Second(Random):
        def randrange(self, *args: int) -> int:  # type: ignore[override]
            return 1

    chain = [Slot(0), Slot(1, 0b1), Slot(2, 0b10)]
    assert delete_and_bypass(chain, SPACE, Second()) == [Slot(0), Slot(2, 0b1)]


@given(genomes(Space(("a", "b"), slots=4)), genomes(Space(("a", "b"), slots=4)))
def test_canonical_forms_are_equal_exactly_if_the_graphs_are(a: Genome, b: Genome) -> None:
    assert (canonical(a) == canonical(b)) == (meaning(a) == meaning(b))


@given(genomes(Space(("a", "b", "c"), slots=6)), st.randoms(use_true_random=False))
def test_the_order_of_slots_does_not_matter(genome: Genome, rng: Random) -> None:
    # Every other order in which inputs come first is the same graph.
    slots = genome.slots
    left, order = list(range(len(slots) - 1)), []
    while left:
        ready = [j for j in left if not set(indices_of(slots[j].reads)) & set(left)]
        order.append(rng.choice(ready))
        left.remove(order[-1])
    order.append(len(slots) - 1)
    new = {old: n for n, old in enumerate(order)}
    moved = tuple(
        Slot(slots[old].choice, sum(1 << new[i] for i in indices_of(slots[old].reads)))
        for old in order
    )
    assert canonical(Genome(moved)) == canonical(genome)


def test_the_space_of_four_slots_and_five_choices_has_8905_graphs() -> None:
    # If only dead slots are dropped, 13,530 remain (the published count).
    graphs, without_dead, some_with_dead = set(), 0, set()
    for size in range(1, 5):
        for choices in product(range(5), repeat=size):
            for reads in product(*(range(1 << j) for j in range(size))):
                slots = tuple(map(Slot, choices, reads))
                if len(live_slots(slots)) == size:
                    without_dead += 1
                    graphs.add(canonical(Genome(slots)))
                elif size < 4:
                    some_with_dead.add(canonical(Genome(slots)))
    assert (len(graphs), without_dead) == (8905, 13530)
    assert some_with_dead < graphs


def test_the_form_of_a_graph_with_many_equal_nodes_takes_no_time() -> None:
    voters = tuple(Slot(0) for _ in range(32))
    graph = Genome((*voters, Slot(1, (1 << 32) - 1)))
    assert canonical(graph) == graph


@given(st.integers(0, 2**32))
def test_every_step_of_a_setting_stays_in_its_range(seed: int) -> None:
    rng = Random(seed)
    for values in SPACE.settings.values():
        value = values.draw(rng)
        for _ in range(20):
            assert allows(values, value)
            value = values.step(value, rng)


def test_a_search_begins_in_the_middle_of_each_range() -> None:
    assert [values.middle() for values in SPACE.settings.values()] == [1, 5, 1.0]


def test_settings_reach_the_config_with_their_types() -> None:
    overlay = SPACE.overlay(Genome((Slot(0),), (1, 4.0, 0.25)))
    assert overlay == {
        "agents.a.instructions": "long",
        "agents.b.depth": 4,
        "agents.c.weight": 0.25,
    }
    assert isinstance(overlay["agents.b.depth"], int)
