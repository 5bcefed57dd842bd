"""The trainer through the engine: what it finds, leaves behind, and refuses."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_dag import policy_of, validate
from orchestrion_dag.command import graph
from orchestrion_evolution import (
    FAILED,
    Genome,
    RandomSearch,
    Slot,
    Space,
    Told,
    Value,
    as_text,
    canonical,
    graph_of,
)
from orchestrion_evolution.command import front, report_of
from orchestrion_evolution.evaluation import Evaluator
from orchestrion_evolution.final import finalists
from orchestrion_evolution.topology import genome_of

from orchestrion import ConfigError, Episode, Key, Member, Reward, RewardFunction, UsageError
from orchestrion._session import EngineSession
from orchestrion.config import load
from orchestrion.runs import RunReader, open_run
from orchestrion.testing import ListTask, ScriptedAgent, engine_for
from tests.plugins.evolution.support import AGENTS, config, result, train

NAMES = ("anna", "ben", "eve:fast", "head")
ROSTER = [Member("anna"), Member("ben"), Member("eve", ("fast",)), Member("head")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with all baselines."""
    settings = {
        "baselines": ["single", "self-consistency", "random"],
        "aggregator": "head",
        "evaluations": 240,
        "population": 24,
        "held_out": 120,
    }
    task = {"use": "jury", "train": 60, "validation": 120, "test": 40}
    return train(config(settings, task=task), tmp_path_factory.mktemp("evolution") / "run")


# ------------------------------------------------------------------------------ graphs


@given(st.integers(0, 2**32))
def test_every_genome_is_a_graph_that_dag_runs_and_that_reads_back(seed: int) -> None:
    genome = canonical(Space(NAMES, 6).draw(Random(seed)))
    policy = policy_of(graph_of(genome, NAMES), ROSTER)
    read = genome_of(policy.plan, NAMES)
    assert read is not None
    assert canonical(read) == genome
    wiring = validate(graph_of(genome, NAMES))
    assert len(wiring.nodes) == len(genome.slots)
    # Agents read in the order of the genome, which `Aligned` relies on.
    assert [step.name for step in policy.plan.steps] == list(wiring.nodes)
    assert len(wiring.edges) == sum(slot.reads.bit_count() for slot in genome.slots)


def test_a_graph_in_words_names_a_shared_node_twice() -> None:
    graph = Genome((Slot(0), Slot(0), Slot(1, 0b11), Slot(3, 0b101)))
    assert as_text(graph, NAMES) == "head(anna, ben(anna, anna#2))"


def test_finalists_are_the_fittest_and_those_most_alone() -> None:
    line = [(Genome((Slot(n),)), Value(n / 10, float(n))) for n in range(10)]
    kept = finalists(line, 3, line[4])
    assert len(kept) == 3
    assert line[0][0] in kept
    assert line[4][0] in kept


def test_of_graphs_that_are_exactly_as_good_the_smallest_is_used() -> None:
    search = RandomSearch(Space(("a", "b"), 3))
    idle = Genome((Slot(0), Slot(1, 0b1), Slot(0, 0b11)))
    needed = Genome((Slot(0), Slot(1), Slot(0, 0b11)))
    search.tell([Told(one, Value(0.9, 3.0)) for one in (idle, needed)])
    assert [graph for graph, _ in search.front()] == [needed]
    found = search.best()
    assert found is not None
    assert found[0] == needed


def test_a_lucky_graph_does_not_hide_the_next_best() -> None:
    lucky, solid = (Genome((Slot(0),)), Value(0.9, 1.0)), (Genome((Slot(1),)), Value(0.8, 2.0))
    assert finalists([lucky, solid], 2, lucky) == [lucky[0], solid[0]]


# ------------------------------------------------------------------------------ a run


def test_it_finds_the_team_that_no_single_agent_matches(run: Path) -> None:
    report = report_of(run)
    chosen = next(one for one in report["front"] if one["chosen"])
    [single] = [one for one in report["baselines"] if one["name"] == "single"]
    assert chosen["graph"] == "head(anna, ben)"
    assert chosen["held_out"]["reward"]["mean"] >= 0.88
    assert single["held_out"]["reward"]["mean"] <= 0.8
    assert single["behind"]["low"] > 0
    assert single["behind"]["mean"] == pytest.approx(
        chosen["held_out"]["reward"]["mean"] - single["held_out"]["reward"]["mean"]
    )


def test_the_runs_policy_is_the_chosen_graph(run: Path) -> None:
    chosen = next(one for one in report_of(run)["front"] if one["chosen"])

    async def evaluate() -> Any:
        async with open_run(run) as trained:
            return (await trained.evaluate()).contenders[0], trained.config.learnable()

    contender, settings = asyncio.run(evaluate())
    assert list(settings["policy.nodes"]) == list(chosen["config"]["nodes"])
    assert contender.cost.mean == pytest.approx(chosen["held_out"]["cost"]["mean"])
    assert contender.solved.mean >= 0.8


def test_exports_are_configs_that_run_and_a_picture(run: Path) -> None:
    folder, report = run / "exports" / "evolution", report_of(run)
    assert json.loads((folder / "front.json").read_text()) == report
    assert (folder / "front.svg").read_text().count("<circle") >= len(report["front"])
    for one in report["front"]:
        given = load(folder / f"{one['name']}.yaml")
        assert given.stages == ()
        assert (folder / f"{one['name']}.svg").read_text().startswith("<svg")

        async def cost(path: Path) -> float:
            async with open_run(path) as opened:
                report = await opened.evaluate("validation", 1, 120, baselines=False)
                return report.contenders[0].cost.mean

        found = asyncio.run(cost(folder / f"{one['name']}.yaml"))
        assert found == pytest.approx(one["held_out"]["cost"]["mean"])


def test_the_report_keeps_the_three_scores_apart(run: Path) -> None:
    report = report_of(run)
    assert [one["held_out"]["cost"]["mean"] for one in report["front"]] == sorted(
        one["held_out"]["cost"]["mean"] for one in report["front"]
    )
    for one in report["front"]:
        assert one["fresh"]["samples"] == 80
        assert one["search"]["samples"] >= 20
        assert one["held_out"]["reward"]["count"] == 120
    names = [one["name"] for one in report["baselines"]]
    assert names == ["single", "random", "self-consistency"]


def test_self_consistency_asks_as_often_as_the_chosen_graph_costs(run: Path) -> None:
    report = report_of(run)
    chosen = next(one for one in report["front"] if one["chosen"])
    voting = next(one for one in report["baselines"] if one["name"] == "self-consistency")
    # Once at least, even if that alone costs more.
    single = next(one for one in report["baselines"] if one["name"] == "single")
    most = max(one["held_out"]["cost"]["mean"] for one in (single, chosen))
    assert voting["held_out"]["cost"]["mean"] <= most + 0.1 + 1e-9
    assert voting["graph"].startswith("head(")


def test_nothing_is_run_twice_and_no_split_is_mixed_up(run: Path) -> None:
    with RunReader(run) as reader:
        rows = [dict(row) for row in reader.episode_rows()]
    state = _state(run)
    counts = {
        purpose: sum(count for _, count in state["evaluator"]["samples"][purpose])
        for purpose in ("search", "fresh")
    }
    trained = [row for row in rows if row["source"] == "train"]
    assert len(trained) == counts["search"] + counts["fresh"]
    problems = Counter(row["problem"].partition("-")[0] for row in trained)
    assert set(problems) == {"train"}


def _state(run: Path) -> Any:
    with RunReader(run) as reader:
        checkpoint = reader.usable().checkpoint
    assert checkpoint is not None
    return checkpoint.components["trainer"].data


def test_the_command_shows_the_front(run: Path) -> None:
    shown = CliRunner().invoke(front, [str(run)]).output
    assert "held out (120)" in shown
    assert "ahead of random by" in shown
    picture = CliRunner().invoke(front, [str(run), "--format", "svg"]).output
    assert picture.startswith("<svg")


def test_the_graph_command_draws_the_chosen_graph_or_the_whole_front(run: Path) -> None:
    chosen = CliRunner().invoke(graph, [str(run)]).output
    assert [line.strip() for line in chosen.splitlines()] == [
        "flowchart LR",
        'n1["anna"]',
        'n2["ben"]',
        'n3(["head"])',
        "n1 --> n3",
        "n2 --> n3",
    ]
    members = report_of(run)["front"]
    nodes = sum(one["nodes"] for one in members)
    edges = sum(len(one["config"]["edges"]) for one in members)
    text = CliRunner().invoke(graph, [str(run), "--front"]).output
    assert text.count("subgraph ") == len(members)
    assert text.count("-->") == edges
    for one in members:
        value = one["fresh"]
        said = f"reward {value['quality']:.3g} at cost {value['cost']:.3g}"
        assert f"{one['name']}{' *' * one['chosen']}: {said}" in text
    dot = CliRunner().invoke(graph, [str(run), "--front", "--format", "dot"]).output
    assert dot.count("subgraph cluster_") == len(members)
    svg = CliRunner().invoke(graph, [str(run), "--front", "--format", "svg"]).output
    assert svg.count("<rect") == len(members) + nodes


def test_a_search_that_has_not_ended_has_no_front_to_draw(tmp_path: Path) -> None:
    directory = train(config(), tmp_path / "run", until=1)
    done = CliRunner().invoke(graph, [str(directory), "--front"])
    assert isinstance(done.exception, UsageError)
    assert "finished run" in str(done.exception)


# ------------------------------------------------------------------------------ determinism


@pytest.mark.parametrize(
    "strategy",
    [
        "nsga2",
        "mu-plus-lambda",
        "map-elites",
        "edge-reinforce",
        "successive-halving",
        "random",
    ],
)
def test_parallel_and_serial_and_resumed_runs_are_the_same_bit_for_bit(
    strategy: str, tmp_path: Path
) -> None:
    settings = {"strategy": strategy, "evaluations": 36, "candidates": 16, "problems": 8}

    def given(concurrency: int) -> Any:
        return config(settings, run={"concurrency": concurrency})

    serial = result(train(given(1), tmp_path / "serial"))
    parallel = result(train(given(64), tmp_path / "parallel"))
    train(given(64), tmp_path / "cut", until=2)
    resumed = result(train(given(64), tmp_path / "cut"))
    assert parallel == serial
    assert resumed == serial
    assert len(serial["metrics"]) == (5 if strategy == "successive-halving" else 4)


def test_an_agent_draws_the_same_on_the_same_sample_in_every_graph(run: Path) -> None:
    """`head` alone passes on what it reads, so every graph of eve and head is as good as eve."""
    data = _state(run)
    names, known = data["choices"], {}
    for batch in data["batches"]:
        for genome, value in batch[0]:
            graph = canonical(_genome(genome))
            chosen = [names[slot.choice] for slot in graph.slots]
            if chosen[0] == "eve" and set(chosen[1:]) <= {"head"}:
                known[as_text(graph, names)] = value[0]
    assert len(known) >= 2
    assert len(set(known.values())) == 1, known


def _genome(data: Any) -> Genome:
    return Genome(tuple(Slot(*one) for one in data[0]), tuple(data[1]))


def test_a_score_that_won_is_too_high_and_scores_measured_afterwards_are_not(
    tmp_path: Path,
) -> None:
    """Six agents that toss coins: whichever wins was lucky, and is right half of the time."""
    scores: dict[str, list[float]] = {"search": [], "fresh": [], "held_out": []}
    for seed in range(6):
        given = config(
            {
                "strategy": "random",
                "evaluations": 6,
                "again": 0,
                "problems": 10,
                "slots": 1,
                "finalists": 1,
                "fresh": 60,
                "held_out": 60,
                "baselines": [],
            },
            seed=seed,
            agents={name: {"use": "juror", "accuracy": 0.5} for name in "abcdef"},
            task={"use": "jury", "train": 60, "validation": 60},
            policy={"use": "dag", "chain": "a"},
        )
        [won] = report_of(train(given, tmp_path / str(seed)))["front"]
        scores["search"].append(won["search"]["quality"])
        scores["fresh"].append(won["fresh"]["quality"])
        scores["held_out"].append(won["held_out"]["reward"]["mean"])
    noise = 3 * 0.5 / math.sqrt(6 * 60)
    assert mean(scores["search"]) > 0.5 + noise
    assert abs(mean(scores["fresh"]) - 0.5) < noise
    assert abs(mean(scores["held_out"]) - 0.5) < noise


# ------------------------------------------------------------------------------ settings


def test_learnable_settings_are_evolved_with_the_graph(tmp_path: Path) -> None:
    """Only one of the two jurors in the ensemble is any good, and the weights start the other way;
    the ensemble is one node of the graph, and a nested team one of its members."""
    agents = {
        "good": {"use": "juror", "accuracy": 0.95},
        "bad": {"use": "juror", "accuracy": 0.3},
        "inner": {
            "use": "team",
            "members": ["bad"],
            "policy": {"use": "dag", "chain": "bad"},
        },
        "crowd": {"use": "ensemble", "members": ["good", "inner"], "aggregator": "weights"},
        "head": {"use": "foreman"},
    }
    given = config(
        {
            "evaluations": 48,
            "settings": {
                "aggregators.weights.weights.good": {"low": 0.1, "high": 4.0, "log": True},
                "agents.crowd.early_stop": {"values": [False, True]},
            },
        },
        agents=agents,
        aggregators={"weights": {"use": "weighted", "weights": {"good": 0.1, "inner": 1.0}}},
        policy={"use": "dag", "chain": "crowd"},
    )
    directory = train(given, tmp_path / "run")
    chosen = next(one for one in report_of(directory)["front"] if one["chosen"])
    assert chosen["held_out"]["reward"]["mean"] >= 0.8
    assert chosen["settings"]["aggregators.weights.weights.good"] > 1.0

    async def learned() -> Any:
        async with open_run(directory) as trained:
            return trained.config.learnable()["aggregators.weights.weights"]

    weights = asyncio.run(learned())
    assert weights["good"] == chosen["settings"]["aggregators.weights.weights.good"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"values": [1]}, "two values"),
        ({"low": 2, "high": 1}, "greater `high`"),
        ({"low": 0, "high": 1, "log": True}, "above 0"),
        ({"values": [1, 2], "low": 0, "high": 1}, "not both"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config({"settings": {"agents.anna.x": wrong}})


# ------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("trainer", "parts", "says"),
    [
        ({}, {"policy": {"use": "random"}}, "trains the policy dag"),
        ({"agents": ["ana"]}, {}, "did you mean 'anna'"),
        ({"aggregator": "nobody"}, {}, "'nobody' is not a choice"),
        ({}, {"task": {"use": "jury", "validation": 0}}, "no validation problems"),
        ({"settings": {"agents.anna.cost": {"values": [1, 2]}}}, {}, "not learnable"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_runs(
    trainer: dict[str, Any], parts: dict[str, Any], says: str, tmp_path: Path
) -> None:
    given = config(trainer, **parts)
    with pytest.raises((UsageError, ConfigError), match=says):
        train(given, tmp_path / "run")
    with RunReader(tmp_path / "run") as reader:
        assert len(list(reader.episode_rows())) == 0


def test_a_run_of_another_trainer_has_no_front(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="still searching"):
        report_of(train(config(), tmp_path / "run", until=1))


# ------------------------------------------------------------------------------ evaluation


class NoReward(RewardFunction):
    """Has none for episodes in which "ben" took part."""

    async def score(self, episode: Episode, calls: Any) -> Reward | None:
        if any(turn.agent == "ben" for turn in episode.turns):
            return None
        return Reward(1.0)


def test_a_graph_whose_rewards_are_all_missing_has_failed_and_is_no_zero() -> None:
    space = Space(("anna", "ben"), 2)
    only_anna, with_ben = Genome((Slot(0),)), Genome((Slot(0), Slot(1, 0b1)))

    async def values() -> list[Value]:
        agents = {"anna": ScriptedAgent(), "ben": ScriptedAgent()}
        policy = policy_of(graph_of(only_anna, space.choices), [Member("anna"), Member("ben")])
        engine = engine_for(agents, policy, ListTask(4), NoReward())
        session = EngineSession(engine, "0/0", Key(1), Key(2))
        evaluator = Evaluator(space, Key(3), "turns", "continue")
        wanted = [(only_anna, 4), (with_ben, 4), (only_anna, 6)]
        found = await evaluator.values(session, wanted)
        assert evaluator.episodes == 10
        assert await evaluator.values(session, wanted) == found
        assert evaluator.episodes == 10
        engine.close()
        return found

    assert asyncio.run(values()) == [Value(1.0, 1.0, 4), FAILED, Value(1.0, 1.0, 6)]


def test_all_graphs_meet_the_same_problems_with_the_same_keys() -> None:
    assert set(AGENTS) == {"anna", "ben", "eve", "head"}
    space = Space(("anna", "ben"), 2)
    agents = {name: ScriptedAgent() for name in space.choices}

    async def met() -> None:
        roster = [Member(name) for name in space.choices]
        graphs = [Genome((Slot(0),)), Genome((Slot(1),))]
        engine = engine_for(agents, policy_of(graph_of(graphs[0], space.choices), roster))
        session = EngineSession(engine, "0/0", Key(1), Key(2))
        evaluator = Evaluator(space, Key(3), "turns", "continue")
        await evaluator.values(session, [(graph, 9) for graph in graphs])
        engine.close()

    asyncio.run(met())
    first, second = ([v.problem.id for v in agents[name].views] for name in space.choices)
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 4
