"""The regret of a policy: exact where it can be, played and labelled where it cannot."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from attrs import evolve
from orchestrion_orchestration_bench.committee import Committee
from orchestrion_orchestration_bench.process import optimum
from orchestrion_orchestration_bench.regret import regret
from orchestrion_orchestration_bench.relay import Relay, Worker
from orchestrion_orchestration_bench.solved import relay_process
from orchestrion_orchestration_bench.stop import Stop

from orchestrion import (
    Activation,
    Decision,
    Key,
    Member,
    Observation,
    Situation,
    UsageError,
    choices,
    is_blocked,
)
from orchestrion.testing import ListTask
from tests.contrib_tasks.orchestration_bench.support import (
    Chooser,
    Uniform,
    committee_team,
    relay_team,
    stop_team,
)

RELAY = Relay(partial=0.3)
TEAM = relay_team(RELAY)


class Table:
    """A learned policy's runtime: probabilities, choices, decide."""

    def __init__(self, roster: Sequence[Member], stop: bool = False) -> None:
        self.known = choices(roster)
        self.choices = [*self.known, *[None] * stop]

    def weights(self, situation: Situation) -> list[float]:
        """Every choice equally."""
        return [1.0] * len(self.choices)

    def probabilities(self, situations: Sequence[Situation]) -> np.ndarray:
        """As the neural policy gives them."""
        rows = np.array([self.weights(one) for one in situations])
        for row, one in zip(rows, situations, strict=True):
            for i, choice in enumerate(self.known):
                row[i] *= not is_blocked(choice, one.observation)
        shares: np.ndarray = rows / rows.sum(axis=1, keepdims=True)
        return shares

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
        """Stops at once; nobody should ask when probabilities are given."""
        return [Decision(stop=True) for _ in situations]


def best_choices(task: Relay, weight: float) -> Chooser:
    """The best policy of the tables, as a function of the observation."""
    process = relay_process(task)
    _, policy = optimum(process, weight)
    rows = {
        repr(layer.show(i)): process.actions[int(acts[i].argmax())].row
        for layer, acts in zip(process.layers, policy, strict=True)
        for i in range(len(layer))
    }
    return lambda seen: {rows[repr(seen)]: 1.0}


def test_the_best_policy_has_no_regret() -> None:
    report = regret(RELAY, best_choices(RELAY, 1.0), TEAM)
    assert report.sampled.method == report.greedy.method == "exact"
    assert report.sampled.regret == pytest.approx(0, abs=1e-12)
    assert report.sampled.worth.by_type == pytest.approx(report.optimum.by_type)


def test_random_probabilities_have_the_regret_of_random() -> None:
    for task, team, weight in (
        (RELAY, TEAM, 1.0),
        (Committee(slots=3), [*committee_team(Committee(slots=3)), Member("stop")], 0.01),
        (evolve(Stop(), horizon=4), stop_team(Stop()), 1.0),
    ):
        report = regret(task, Table(team), team, weight)
        assert report.sampled.method == "exact"
        assert report.sampled.worth.value == pytest.approx(report.random.value, abs=1e-12)
        assert report.sampled.normalized == pytest.approx(1.0)


def test_greedy_takes_the_likeliest_choice() -> None:
    class Mostly(Table):
        def weights(self, situation: Situation) -> list[float]:
            return [2.0 if one == Activation("generalist") else 1.0 for one in self.choices]

    report = regret(RELAY, Mostly(TEAM), TEAM)
    always = regret(RELAY, lambda seen: {"generalist": 1.0}, TEAM)
    assert report.greedy.worth == always.sampled.worth
    assert report.greedy.worth.calls == 10


def test_always_the_generalist() -> None:
    def generalist(seen: Observation) -> dict[str, float]:
        return {"generalist" if seen.data["ready"] else "stop": 1.0}

    for partial, value in ((0.0, 0.5261), (0.3, 0.5552)):
        task = Relay(partial=partial)
        report = regret(task, generalist, relay_team(task))
        assert report.sampled.worth.value == pytest.approx(value, abs=5e-5)
        assert report.single["generalist"] >= value


def test_a_policy_without_probabilities_is_played_and_says_so() -> None:
    report = regret(RELAY, Uniform(TEAM), TEAM, episodes=2000)
    exact = report.optimum.value - report.random.value
    assert report.sampled.method == "monte carlo"
    assert report.sampled.episodes == 2000
    spread = report.sampled.high - report.sampled.low
    assert 0.01 < spread < 0.05
    assert abs(report.sampled.regret - exact) < 2 * spread
    assert "not exact: the policy does not say its probabilities" in report.as_text()
    assert "95 % interval" in report.as_text()


def test_a_policy_that_reads_the_turns_is_found_out_and_played() -> None:
    class Counting(Table):
        def weights(self, situation: Situation) -> list[float]:
            used = sum(turn.agent == "critic" for turn in situation.trajectory)
            return [1.0 + used, *([1.0] * (len(self.choices) - 1))]

    report = regret(RELAY, Counting(TEAM), TEAM, episodes=400)
    assert report.sampled.method == "monte carlo"
    assert "goes by more than the observation" in report.note


def test_a_policy_that_counts_turns_goes_by_the_observation() -> None:
    class Patient(Table):
        def weights(self, situation: Situation) -> list[float]:
            return [1.0 + len(situation.trajectory), *([1.0] * (len(self.choices) - 1))]

    assert regret(RELAY, Patient(TEAM), TEAM).sampled.method == "exact"


def test_a_policy_that_takes_what_is_blocked_is_played() -> None:
    report = regret(Stop(), lambda seen: {"lint": 1.0}, stop_team(Stop()), episodes=60)
    assert report.sampled.method == "monte carlo"
    assert "blocks" in report.note
    # Six refused checks, then what is there is handed in: nothing.
    assert report.sampled.worth.value == 0.0


def test_a_limit_below_the_horizon_cuts_episodes_off() -> None:
    report = regret(RELAY, Table(TEAM), TEAM, turns=3, episodes=100)
    assert "limits.turns" in report.note
    assert report.sampled.worth.calls <= 3
    always = regret(RELAY, lambda seen: {"tester": 1.0}, TEAM, turns=3, episodes=10)
    assert always.sampled.worth.quality == 0.0
    assert always.sampled.worth.cost == pytest.approx(0.09)
    assert regret(RELAY, Table(TEAM), TEAM, turns=10).sampled.method == "exact"


def test_too_many_histories_are_played() -> None:
    task = evolve(Stop(), horizon=8, types={"code": 0.4})
    report = regret(task, lambda seen: {"abstain": 1.0}, stop_team(task), episodes=50)
    assert report.sampled.method == "monte carlo"
    assert "too many to enumerate" in report.note
    assert report.sampled.worth.value == pytest.approx(0.15)
    assert report.optimum.value > 0.639


def test_several_agents_at_once_are_played_as_the_engine_would() -> None:
    class Pair:
        def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
            pair = Decision((Activation("one"), Activation("two")))
            return [Decision(stop=True) if one.trajectory.turns else pair for one in situations]

    task = Relay(
        ("a", "b"),
        {},
        {"both": ("a", "b")},
        {"one": Worker({"a": 1.0}, 0.25), "two": Worker({"b": 1.0}, 0.125)},
    )
    report = regret(task, Pair(), relay_team(task), episodes=10)
    assert report.sampled.worth.quality == 1.0
    assert report.sampled.worth.cost == 0.375
    assert report.sampled.regret == pytest.approx(0.0)


# ---------------------------------------------------------------------- teams


def test_the_best_value_is_that_of_the_team() -> None:
    team = [Member("coder_s"), Member("planner"), Member("stop")]
    report = regret(RELAY, Table(team), team)
    assert report.optimum.value < 0.5
    assert set(report.single) == {"coder_s", "planner"}


def test_agents_go_by_the_row_they_play() -> None:
    other = [Member(f"agent-{i}") for i in range(len(TEAM))]
    plays = {mine.name: row.name for mine, row in zip(other, TEAM, strict=True)}
    assert regret(RELAY, Table(other), other, plays=plays).sampled == (
        regret(RELAY, Table(TEAM), TEAM).sampled
    )


def test_a_policy_may_stop_by_itself_or_by_a_terminator() -> None:
    workers = TEAM[:-1]
    alone = regret(RELAY, Table(workers, stop=True), workers)
    team = [*workers, Member("terminator")]
    with_agent = regret(RELAY, Table(team), team)
    assert alone.sampled.worth == with_agent.sampled.worth
    assert alone.random == with_agent.random


def test_two_agents_of_one_row_count_twice_for_random() -> None:
    team = [*TEAM, Member("planner-2")]
    report = regret(RELAY, Table(team), team, plays={"planner-2": "planner"})
    assert report.sampled.worth.value == pytest.approx(report.random.value)


def test_an_agent_that_plays_no_row_is_reported() -> None:
    with pytest.raises(UsageError, match="agent 'echo' plays no row of the task's table"):
        regret(RELAY, Uniform([]), [Member("echo")])


def test_other_tasks_are_refused() -> None:
    with pytest.raises(UsageError, match="ListTask has no optimum"):
        regret(ListTask(), Uniform([]), [])


def test_answers_that_are_no_distributions_are_refused() -> None:
    with pytest.raises(UsageError, match="do not sum to 1"):
        regret(RELAY, lambda seen: {"planner": 0.5}, TEAM)
    with pytest.raises(UsageError, match="'nobody' is not a choice"):
        regret(RELAY, lambda seen: {"nobody": 1.0}, TEAM)

    class Short(Table):
        def probabilities(self, situations: Sequence[Situation]) -> np.ndarray:
            return super().probabilities(situations)[:, :-1]

    with pytest.raises(UsageError, match=r"shape \(4, 7\), expected \(4, 8\)"):
        regret(RELAY, Short(TEAM), TEAM)


# ---------------------------------------------------------------------- the report


def test_the_report_is_plain_data_and_readable_and_has_the_best_chain_of_two_searches() -> None:
    report = regret(RELAY, Table(TEAM), TEAM)
    assert json.loads(json.dumps(report.as_json()))["optimum"]["value"] == report.optimum.value
    text = report.as_text()
    for part in ("optimum", "0.9036", "best chain", "planner > coder_s", "random", "trivial"):
        assert part in text
    assert report.chain.value == pytest.approx(0.5788, abs=5e-5)
    assert report.chain_by_type_value > 0.7000
    assert report.look_ahead.value == pytest.approx(0.8763, abs=5e-5)
