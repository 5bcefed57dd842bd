"""Relay's exact values: the published figures, and every table against plain recursion."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_orchestration_bench.process import (
    Process,
    best_chain,
    evaluate,
    look_ahead,
    optimum,
    uniform,
)
from orchestrion_orchestration_bench.relay import Relay
from orchestrion_orchestration_bench.solved import relay_process

from tests.contrib_tasks.orchestration_bench.support import (
    agrees_with_random_play,
    reference_value,
    relay_team,
    relays,
)

SPARSE, PARTIAL = relay_process(Relay(partial=0.0)), relay_process(Relay(partial=0.3))


def test_the_best_value_with_the_default_tables() -> None:
    worth, _ = optimum(SPARSE, 1.0)
    assert worth.value == pytest.approx(0.902943, abs=1e-6)
    assert list(worth.by_type.values()) == pytest.approx([0.9635, 0.9425, 0.9015, 0.8043], abs=5e-5)
    assert (worth.quality, worth.cost) == pytest.approx((0.9968, 0.0939), abs=5e-5)
    assert worth.calls == pytest.approx(3.71, abs=5e-3)
    worth, _ = optimum(PARTIAL, 1.0)
    assert worth.value == pytest.approx(0.903550, abs=1e-6)
    assert list(worth.by_type.values()) == pytest.approx([0.9635, 0.9425, 0.9017, 0.8065], abs=5e-5)
    assert (worth.quality, worth.cost) == pytest.approx((0.9975, 0.0940), abs=5e-5)


def test_the_best_value_at_other_cost_weights() -> None:
    assert optimum(SPARSE, 0.5)[0].value == pytest.approx(0.9504, abs=5e-5)
    assert optimum(SPARSE, 2.0)[0].value == pytest.approx(0.8094, abs=5e-5)


@pytest.mark.parametrize(
    ("process", "random", "ahead"), [(SPARSE, 0.0479, 0.2167), (PARTIAL, 0.0924, 0.8763)]
)
def test_simple_policies(process: Process, random: float, ahead: float) -> None:
    assert evaluate(process, uniform(process), 1.0).value == pytest.approx(random, abs=5e-5)
    assert evaluate(process, look_ahead(process, 1.0), 1.0).value == pytest.approx(ahead, abs=5e-5)


@pytest.mark.parametrize(
    ("process", "overall", "by_type"), [(SPARSE, 0.5592, 0.6820), (PARTIAL, 0.5788, 0.7000)]
)
def test_the_best_fixed_chains_of_a_beam_of_400(
    process: Process, overall: float, by_type: float
) -> None:
    chain = best_chain(process, 1.0, 400)
    assert chain.value == pytest.approx(overall, abs=5e-5)
    assert len([one for one in chain.actions if not one.final]) == 8
    each = [best_chain(process.of(i), 1.0, 400).value for i in range(4)]
    assert np.mean(each) == pytest.approx(by_type, abs=5e-5)


def test_a_chain_is_worth_what_playing_it_is_worth() -> None:
    chain = best_chain(PARTIAL, 1.0)
    names = [one.row for one in PARTIAL.actions]
    policy = []
    for t, layer in enumerate(PARTIAL.layers):
        acts = np.zeros((len(layer), len(names)))
        acts[:, names.index(chain.actions[min(t, len(chain.actions) - 1)].row)] = 1.0
        policy.append(acts)
    assert evaluate(PARTIAL, policy, 1.0).value == pytest.approx(chain.value, abs=1e-12)


@settings(max_examples=20)
@given(relays(), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_the_best_value_of_any_table_is_that_of_plain_recursion(task: Relay, weight: float) -> None:
    worth, _ = optimum(relay_process(task), weight)
    assert worth.value == pytest.approx(reference_value(task, weight), abs=1e-9)
    assert worth.value == pytest.approx(worth.quality - weight * worth.cost, abs=1e-9)


@settings(max_examples=20)
@given(relays(), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0]))
def test_no_policy_beats_the_best(task: Relay, seed: int, weight: float) -> None:
    process = relay_process(task)
    best, _ = optimum(process, weight)
    draws = np.random.default_rng(seed)
    policy = [draws.dirichlet(np.ones(len(process.actions)), len(one)) for one in process.layers]
    others = [
        evaluate(process, policy, weight).value,
        evaluate(process, uniform(process), weight).value,
        evaluate(process, look_ahead(process, weight), weight).value,
        best_chain(process, weight, 20).value,
        best_chain(process, weight, 20, rank="bound").value,
    ]
    assert max(others) <= best.value + 1e-9


@settings(max_examples=8)
@given(relays(), st.integers(0, 99))
def test_playing_agrees_with_the_exact_value(task: Relay, seed: int) -> None:
    assert agrees_with_random_play(task, relay_process(task), relay_team(task), seed, 0.3)
