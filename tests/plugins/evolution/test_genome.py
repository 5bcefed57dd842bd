"""Genomes: always graphs without cycles, equal in canonical form exactly if equal as graphs."""

from __future__ import annotations

from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_evolution import Genome, Setting, Slot, Space, canonical, crossover, mutate
from orchestrion_evolution.genome import live, places, valid
from orchestrion_evolution.operators import OPERATORS

SPACE = Space(
    ("a", "b:x", "b:y", "c"),
    slots=6,
    fan_in=3,
    settings=(
        Setting("agents.a.instructions", values=("short", "long", "none")),
        Setting("agents.b.depth", low=1, high=9, whole=True),
        Setting("agents.c.weight", low=0.01, high=100.0, log=True),
    ),
)


@st.composite
def genomes(draw: st.DrawFn, space: Space = SPACE) -> Genome:
    """Genomes of a space, dead slots and all."""
    return space.draw(Random(draw(st.integers(0, 2**32))))


def meaning(genome: Genome) -> object:
    """What a genome says: an agent applied to the outputs of others, where a node that is read
    twice is one node. An oracle for small graphs: the least relabelling of all there are."""
    kept = live(genome.slots)
    forms = []
    for order in permutations(range(len(kept))):
        label = dict(zip(kept, order, strict=True))
        nodes = [
            (label[j], genome.slots[j].choice, tuple(sorted(label[i] for i in places(s.reads))))
            for j in kept
            for s in [genome.slots[j]]
        ]
        forms.append((tuple(sorted(nodes)), label[kept[-1]]))
    return min(forms), genome.settings


@given(genomes(), genomes(), st.integers(0, 2**32))
def test_children_of_valid_genomes_are_valid(a: Genome, b: Genome, seed: int) -> None:
    rng = Random(seed)
    child = mutate(crossover(a, b, SPACE, rng), SPACE, rng)
    assert valid(child, SPACE)
    assert valid(canonical(child), SPACE)


def test_ten_thousand_operations_in_a_row_leave_a_valid_genome() -> None:
    rng = Random(7)
    genome = SPACE.draw(rng)
    for _ in range(10_000):
        genome = mutate(crossover(genome, SPACE.draw(rng), SPACE, rng), SPACE, rng)
        assert valid(genome, SPACE)
        graph = canonical(genome)
        assert canonical(graph) == graph


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: one.__name__)
def test_every_operator_keeps_inputs_pointing_backwards_and_can_change_something(
    operator: object,
) -> None:
    rng, changed = Random(3), 0
    for _ in range(300):
        genome = SPACE.draw(rng)
        slots = tuple(SPACE.fitted(operator(genome.slots, SPACE, rng), rng))  # type: ignore[operator]
        assert valid(Genome(slots, genome.settings), SPACE)
        changed += slots != genome.slots
    assert changed > 100


def test_deleting_a_node_hands_its_inputs_to_its_readers() -> None:
    class Second(Random):
        def randrange(self, *args: int) -> int:  # type: ignore[override]
            return 1

    from orchestrion_evolution.operators import delete_and_bypass

    chain = (Slot(0), Slot(1, 0b1), Slot(2, 0b10))
    assert delete_and_bypass(chain, SPACE, Second()) == [Slot(0), Slot(2, 0b1)]


@given(genomes(Space(("a", "b"), slots=4)), genomes(Space(("a", "b"), slots=4)))
def test_canonical_forms_are_equal_exactly_if_the_graphs_are(a: Genome, b: Genome) -> None:
    assert (canonical(a) == canonical(b)) == (meaning(a) == meaning(b))


@given(genomes(Space(("a", "b", "c"), slots=6)), st.randoms(use_true_random=False))
def test_the_order_of_slots_does_not_matter(genome: Genome, rng: Random) -> None:
    # Any other order in which inputs still come first is the same graph.
    slots = genome.slots
    left, order = list(range(len(slots) - 1)), []
    while left:
        ready = [j for j in left if not set(places(slots[j].reads)) & set(left)]
        order.append(rng.choice(ready))
        left.remove(order[-1])
    order.append(len(slots) - 1)
    new = {old: n for n, old in enumerate(order)}
    moved = tuple(
        Slot(slots[old].choice, sum(1 << new[i] for i in places(slots[old].reads))) for old in order
    )
    assert canonical(Genome(moved)) == canonical(genome)


def test_dead_slots_do_not_matter() -> None:
    with_dead = Genome((Slot(0), Slot(1, 0b1), Slot(2, 0b1)))
    assert canonical(with_dead) == canonical(Genome((Slot(0), Slot(2, 0b1))))


def test_two_askings_of_one_agent_are_not_one() -> None:
    once = Genome((Slot(0), Slot(1, 0b1)))
    twice = Genome((Slot(0), Slot(0), Slot(1, 0b11)))
    assert canonical(once) != canonical(twice)


def test_a_shared_node_is_not_two_equal_nodes() -> None:
    shared = Genome((Slot(0), Slot(1, 0b1), Slot(1, 0b1), Slot(2, 0b110)))
    apart = Genome((Slot(0), Slot(0), Slot(1, 0b1), Slot(1, 0b10), Slot(2, 0b1100)))
    assert canonical(shared) != canonical(apart)


def test_the_space_of_four_slots_and_five_choices_has_8905_graphs() -> None:
    # 13,530 remain when dead slots are dropped alone (the published count).
    graphs, without_dead = set(), set()
    for size in range(1, 5):
        for choices in product(range(5), repeat=size):
            for reads in product(*(range(1 << j) for j in range(size))):
                slots = tuple(map(Slot, choices, reads))
                graphs.add(canonical(Genome(slots)))
                if len(live(slots)) == size:
                    without_dead.add(slots)
    assert (len(graphs), len(without_dead)) == (8905, 13530)


def test_a_graph_of_many_alike_nodes_has_its_form_at_once() -> None:
    voters = tuple(Slot(0) for _ in range(32))
    graph = Genome((*voters, Slot(1, (1 << 32) - 1)))
    assert canonical(graph) == graph


@given(st.integers(0, 2**32))
def test_a_step_of_a_setting_stays_in_its_range(seed: int) -> None:
    rng = Random(seed)
    for one in SPACE.settings:
        value = one.draw(rng)
        for _ in range(20):
            assert one.allows(value)
            value = one.step(value, rng)
        assert all(one.allows(value) for value in one.grid())


def test_settings_go_into_the_config_as_what_they_are() -> None:
    genome = Genome((Slot(0),), (1, 4, 0.25))
    assert SPACE.overlay(genome) == {
        "agents.a.instructions": "long",
        "agents.b.depth": 4,
        "agents.c.weight": 0.25,
    }
