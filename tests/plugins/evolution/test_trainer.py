"""The trainer through the engine: what it finds, leaves behind, and refuses."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, cast

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_dag import Graph, Node, policy_of, validate
from orchestrion_dag.command import graph as graph_command
from orchestrion_evolution import (
    FAILED,
    Genome,
    Slot,
    Space,
    Value,
    as_text,
    canonical,
    graph_of,
)
from orchestrion_evolution.evaluation import Evaluator
from orchestrion_evolution.evolver import Evolver
from orchestrion_evolution.genome import genome_from_json, genome_of
from orchestrion_evolution.nsga2 import finalists
from orchestrion_evolution.report import front, front_table, metrics_of, report_of
from orchestrion_evolution.trainer import Evolution

from orchestrion import (
    ConfigError,
    Episode,
    Key,
    Member,
    OpenContext,
    Plan,
    Reward,
    RewardFunction,
    Session,
    UsageError,
)
from orchestrion._session import EngineSession
from orchestrion.config import load
from orchestrion.runs import RunReader, open_run
from orchestrion.testing import ListTask, ScriptedAgent, engine_for
from tests.plugins.evolution.support import AGENTS, config, result, train

NAMES = ("anna", "ben", "eve:fast", "head")
ROSTER = [Member("anna"), Member("ben"), Member("eve", ("fast",)), Member("head")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run with all baselines."""
    settings = {
        "baselines": ["single", "self-consistency", "random"],
        "aggregator": "head",
        "evaluations": 120,
        "finalists": 6,
        "fresh": 80,
        "held_out": 120,
    }
    task = {"use": "jury", "train": 60, "validation": 120, "test": 40}
    return train(config(settings, task=task), tmp_path_factory.mktemp("evolution") / "run")


# ------------------------------------------------------------------------------ graphs


@given(st.integers(0, 2**32))
def test_dag_runs_every_genome_and_its_graph_reads_back(seed: int) -> None:
    genome = canonical(Space(NAMES, 6).draw(Random(seed)))
    policy = policy_of(graph_of(genome, NAMES), ROSTER)
    read = genome_of(policy, NAMES)
    assert read is not None
    assert canonical(read) == genome
    wiring = validate(graph_of(genome, NAMES))
    assert len(wiring.nodes) == len(genome.slots)
    # `Aligned` relies on dag running the nodes in the order of the genome.
    assert [step.name for step in policy.plan.steps] == list(wiring.nodes)
    assert len(wiring.edges) == sum(slot.reads.bit_count() for slot in genome.slots)


def test_text_of_a_graph_names_a_shared_node_twice() -> None:
    graph = Genome((Slot(0), Slot(0), Slot(1, 0b11), Slot(3, 0b101)))
    assert as_text(graph, NAMES) == "head(anna, ben(anna, anna#2))"


@pytest.mark.parametrize(
    ("graph", "has_genome"),
    [
        (Graph(edges=["anna -> head"]), True),
        (Graph(edges=["anna -> head when data.ok"]), False),
        (Graph(edges=["anna -> head"], outputs=["anna", "head"]), False),
        (Graph(nodes={"head": Node(fallback="ben")}, edges=["anna -> head"]), False),
        (Graph(nodes={"head": Node(join="any")}, edges=["anna, ben -> head"]), False),
        (Graph(edges=["anna -> zoe"]), False),
    ],
)
def test_only_graphs_of_plain_edges_between_known_agents_have_a_genome(
    graph: Graph, has_genome: bool
) -> None:
    policy = policy_of(graph, [*ROSTER, Member("zoe")])
    assert (genome_of(policy, NAMES) is not None) == has_genome


def test_finalists_are_the_best_and_the_least_crowded() -> None:
    line = [(Genome((Slot(n),)), Value(n / 10, float(n))) for n in range(10)]
    kept = finalists(line, 3, line[4][0])
    assert len(kept) == 3
    assert kept[0] == line[4][0]
    assert line[0][0] in kept


def test_a_lucky_graph_does_not_hide_the_next_best() -> None:
    lucky, solid = (Genome((Slot(0),)), Value(0.9, 1.0)), (Genome((Slot(1),)), Value(0.8, 2.0))
    assert finalists([lucky, solid], 2, lucky[0]) == [lucky[0], solid[0]]


@pytest.mark.parametrize("most_cost", [None, 1.5])
def test_a_failed_graph_is_never_chosen_while_another_has_a_value(most_cost: float | None) -> None:
    space, settings = Space(("a", "b", "c"), 1), Evolution(most_cost=most_cost)
    evolver = Evolver(settings, space, OpenContext("trainer", Key(1)))
    failed, cheap, good = space.singles()
    values = [(failed, FAILED), (cheap, Value(0.5, 1.0)), (good, Value(0.9, 2.0))]
    assert evolver._choose(values) == (good if most_cost is None else cheap)


def test_a_plan_bounds_each_batch_and_the_last_iteration() -> None:
    settings = Evolution(
        evaluations=25,
        batch=10,
        problems=4,
        slots=3,
        finalists=2,
        fresh=8,
        held_out=5,
        aggregator="c",
    )
    evolver = Evolver(settings, Space(("a", "b", "c"), 3), OpenContext("trainer", Key(1)))
    plans = [evolver.plan(i, {"train": 9, "validation": 50, "test": 0}) for i in range(4)]
    batches = [Plan(turns=3 * episodes, verdicts=episodes) for episodes in (40, 40, 20)]
    # Two finalists, three baselines, and two measurements for the price of a vote; random search.
    episodes = (2 + 3 + 2) * 8 + (2 + 3) * 5 + 25 * 4
    votes = (8 + 5) * (32 + 1) + 3 * 8
    last = Plan(turns=3 * episodes + 3 * 4 + votes, verdicts=episodes + 3 * 4)
    assert plans == [*batches, last]
    race = Evolution("successive-halving", evaluations=25, problems=4, slots=3, candidates=4)
    assert [race.plan(i, {}, 3).verdicts for i in (0, 1)] == [100, 0], "all rungs are the first's"


def test_a_report_without_fresh_rewards_has_a_table_and_metrics() -> None:
    member = {
        "name": "front-01",
        "chosen": True,
        "graph": "anna",
        "nodes": 1,
        "search": {"quality": 1.0, "cost": 2.0, "samples": 4},
        "fresh": None,
        "held_out": None,
    }
    report = {"evaluations": 3, "held_out": {"problems": 0}, "front": [member], "baselines": []}
    assert metrics_of(report) == {"evaluations": 3.0, "front": 1.0, "nodes": 1.0}
    assert front_table(report).splitlines()[1].split() == "* front-01 2 1.000 - - anna".split()


# ------------------------------------------------------------------------------ a run


def chosen_of(report: Any) -> Any:
    """Return the entry of the graph that the run uses."""
    [chosen] = [member for member in report["front"] if member["chosen"]]
    return chosen


def baseline_of(report: Any, name: str) -> Any:
    """Return the entry of a baseline."""
    [baseline] = [baseline for baseline in report["baselines"] if baseline["name"] == name]
    return baseline


def test_it_finds_the_team_that_no_single_agent_matches(run: Path) -> None:
    report = report_of(run)
    chosen = chosen_of(report)
    single = baseline_of(report, "single")
    assert chosen["graph"] == "head(anna, ben)"
    assert chosen["held_out"]["reward"]["mean"] >= 0.88
    assert single["held_out"]["reward"]["mean"] <= 0.8
    assert single["behind"]["low"] > 0
    assert single["behind"]["mean"] == pytest.approx(
        chosen["held_out"]["reward"]["mean"] - single["held_out"]["reward"]["mean"]
    )


def test_the_runs_policy_is_the_chosen_graph(run: Path) -> None:
    chosen = chosen_of(report_of(run))

    async def evaluate() -> Any:
        async with open_run(run) as trained:
            return (await trained.evaluate()).contenders[0], trained.config.learnable()

    contender, settings = asyncio.run(evaluate())
    assert list(settings["policy.nodes"]) == list(chosen["config"]["nodes"])
    assert contender.cost.mean == pytest.approx(chosen["held_out"]["cost"]["mean"])
    assert contender.solved.mean >= 0.8


def test_exports_are_the_report_and_configs_that_run(run: Path) -> None:
    folder, report = run / "exports" / "evolution", report_of(run)
    assert json.loads((folder / "front.json").read_text()) == report
    names = [f"{member['name']}.yaml" for member in report["front"]]
    assert sorted(path.name for path in folder.iterdir()) == [*names, "front.json", "front.txt"]

    async def cost(path: Path) -> float:
        async with open_run(path) as opened:
            report = await opened.evaluate("validation", 1, 120, baselines=False)
            return report.contenders[0].cost.mean

    for name, member in zip(names, report["front"], strict=True):
        assert load(folder / name).stages == ()
        measured = asyncio.run(cost(folder / name))
        assert measured == pytest.approx(member["held_out"]["cost"]["mean"])


def test_the_report_keeps_the_three_scores_apart(run: Path) -> None:
    report = report_of(run)
    costs = [member["held_out"]["cost"]["mean"] for member in report["front"]]
    assert costs == sorted(costs)
    for member in report["front"]:
        assert member["fresh"]["samples"] == 80
        assert member["search"]["samples"] >= 20
        assert member["held_out"]["reward"]["count"] == 120
    names = [baseline["name"] for baseline in report["baselines"]]
    assert names == ["single", "random", "self-consistency"]


def test_self_consistency_asks_as_often_as_the_cost_of_the_chosen_graph_allows(run: Path) -> None:
    report = report_of(run)
    chosen, single = chosen_of(report), baseline_of(report, "single")
    voting = baseline_of(report, "self-consistency")
    # It asks at least once, even if that alone costs more.
    most = max(member["held_out"]["cost"]["mean"] for member in (single, chosen))
    assert voting["held_out"]["cost"]["mean"] <= most + 0.1 + 1e-9
    assert voting["graph"].startswith("head(")


def test_self_consistency_asks_twice_for_the_price_of_two_agents_and_a_vote(
    tmp_path: Path,
) -> None:
    agents = {name: AGENTS[name] for name in ("anna", "ben", "head")}
    settings = {"baselines": ["self-consistency"], "aggregator": "head"}
    given = config(settings, agents=agents, policy={"use": "dag", "chain": "anna"})
    report = report_of(train(given, tmp_path / "run"))
    assert chosen_of(report)["fresh"]["cost"] == pytest.approx(2.1)
    voting = baseline_of(report, "self-consistency")
    assert voting["graph"] in ("head(anna, anna#2)", "head(ben, ben#2)")
    assert voting["held_out"]["cost"]["mean"] == pytest.approx(2.1)


@pytest.mark.parametrize(("patience", "measured"), [(2, 3), (None, 8)])
def test_a_search_ends_by_patience_or_when_the_front_has_enough_samples(
    patience: int | None, measured: int, tmp_path: Path
) -> None:
    """With one possible graph the hypervolume stays 0, and only its value can be improved."""
    settings = {
        "agents": ["eve"],
        "slots": 1,
        "patience": patience,
        "evaluations": 48,
        "batch": 4,
        "problems": 5,
        "baselines": [],
        "held_out": 0,
    }
    metrics = result(train(config(settings), tmp_path / "run"))["metrics"]
    episodes = [iteration["evaluation_episodes"] for iteration in metrics[:-1]]
    assert episodes == [5.0] * measured + [0.0] * (12 - measured)
    assert [iteration["new"] for iteration in metrics[:-1]] == [1.0] + [0.0] * 11
    assert {iteration["evaluations"] for iteration in metrics} == {1.0}


def test_nothing_runs_twice_and_no_split_is_mixed_up(run: Path) -> None:
    with RunReader(run) as reader:
        rows = [dict(row) for row in reader.episode_rows()]
    trained = [row for row in rows if row["source"] == "train"]
    assert len(trained) == sum(count for _, _, count in _state(run)["evaluator"]["samples"])
    splits = {row["problem"].partition("-")[0] for row in trained}
    assert splits == {"train"}


def _state(run: Path) -> Any:
    with RunReader(run) as reader:
        checkpoint = reader.usable().checkpoint
    assert checkpoint is not None
    return checkpoint.components["trainer"].data


def test_the_command_shows_the_front(run: Path, tmp_path: Path) -> None:
    table = CliRunner().invoke(front, [str(run)]).output
    assert "held out (120)" in table
    assert "ahead of random by" in table
    file = tmp_path / "front.json"
    CliRunner().invoke(front, [str(run), "--format", "json", "--output", str(file)])
    assert json.loads(file.read_text()) == report_of(run)


def test_the_graph_command_draws_the_chosen_graph_or_the_whole_front(run: Path) -> None:
    chosen = CliRunner().invoke(graph_command, [str(run)]).output
    assert [line.strip() for line in chosen.splitlines()] == [
        "flowchart LR",
        'n1["anna"]',
        'n2["ben"]',
        'n3(["head"])',
        "n1 --> n3",
        "n2 --> n3",
    ]
    members = report_of(run)["front"]
    edges = sum(len(member["config"]["edges"]) for member in members)
    text = CliRunner().invoke(graph_command, [str(run), "--front"]).output
    assert text.count("subgraph ") == len(members)
    assert text.count("-->") == edges
    for member in members:
        value = member["fresh"]
        score = f"reward {value['quality']:.3g} at cost {value['cost']:.3g}"
        assert f"{member['name']}{' *' * member['chosen']}: {score}" in text
    dot = CliRunner().invoke(graph_command, [str(run), "--front", "--format", "dot"]).output
    assert dot.count("subgraph cluster_") == len(members)


def test_an_unfinished_search_has_no_front_to_draw(tmp_path: Path) -> None:
    directory = train(config(), tmp_path / "run", until=1)
    done = CliRunner().invoke(graph_command, [str(directory), "--front"])
    assert isinstance(done.exception, UsageError)
    assert "finished run" in str(done.exception)
    with pytest.raises(UsageError, match="still searching"):
        report_of(directory)


# ------------------------------------------------------------------------------ determinism


@pytest.mark.parametrize("strategy", ["nsga2", "successive-halving"])
def test_parallel_and_serial_and_resumed_runs_are_the_same_bit_for_bit(
    strategy: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"strategy": strategy, "evaluations": 36, "problems": 6}
    if strategy == "successive-halving":
        settings |= {"candidates": 16, "population": 50}

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
    """`head` passes on what it reads, so every graph of eve and head is as good as eve."""
    state, rewards = _state(run), {}
    names = state["choices"]
    for genome, value in (pair for batch in state["batches"] for pair in batch):
        graph = canonical(genome_from_json(genome))
        agents = [names[slot.choice] for slot in graph.slots]
        is_first_measurement = value is not None and value[2] == 20
        if is_first_measurement and agents[0] == "eve" and set(agents[1:]) <= {"head"}:
            rewards[as_text(graph, names)] = value[0]
    assert len(rewards) >= 2
    assert len(set(rewards.values())) == 1, rewards


def test_a_score_that_won_is_too_high_and_scores_measured_afterwards_are_not(
    tmp_path: Path,
) -> None:
    """Six agents toss coins: the winner was lucky, and is right half of the time."""
    scores: dict[str, list[float]] = {"search": [], "fresh": [], "held_out": []}
    for seed in range(4):
        given = config(
            {
                "strategy": "random",
                "population": 50,
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
    noise = 3 * 0.5 / math.sqrt(4 * 60)
    assert mean(scores["search"]) > 0.5 + noise
    assert abs(mean(scores["fresh"]) - 0.5) < noise
    assert abs(mean(scores["held_out"]) - 0.5) < noise


# ------------------------------------------------------------------------------ settings


def test_learnable_settings_are_evolved_with_the_graph(tmp_path: Path) -> None:
    """One of the two jurors in the ensemble is good, and the weights begin the other way round.

    The ensemble is a node of the graph, and one of its members is a nested team.
    """
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
    chosen = chosen_of(report_of(directory))
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
def test_an_impossible_range_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config({"settings": {"agents.anna.x": wrong}})


# ------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("trainer", "parts", "says"),
    [
        ({}, {"policy": {"use": "random"}}, "trains the policy dag"),
        ({"agents": ["ana"]}, {}, "did you mean 'anna'"),
        (
            {"aggregator": "nobody", "baselines": ["self-consistency"]},
            {},
            "'nobody' is not a choice",
        ),
        (
            {"agents": ["eve"], "aggregator": "head", "baselines": ["self-consistency"]},
            {},
            "'head' is not in `agents`; add it",
        ),
        ({}, {"task": {"use": "jury", "validation": 0}}, "no validation problems"),
        ({"settings": {"agents.anna.cost": {"values": [1, 2]}}}, {}, "not learnable"),
    ],
)
def test_a_config_that_cannot_be_searched_is_refused_before_anything_runs(
    trainer: dict[str, Any], parts: dict[str, Any], says: str, tmp_path: Path
) -> None:
    given = config(trainer, **parts)
    with pytest.raises((UsageError, ConfigError), match=says):
        train(given, tmp_path / "run")
    if (tmp_path / "run").exists():  # some are refused in the first iteration only
        with RunReader(tmp_path / "run") as reader:
            assert len(list(reader.episode_rows())) == 0


@pytest.mark.parametrize(
    ("trainer", "says"),
    [
        ({"candidates": 9}, "candidates: does nothing with `strategy: nsga2`"),
        ({"strategy": "random"}, "population: does nothing with `strategy: random`"),
        ({"aggregator": "head"}, "aggregator: does nothing without `self-consistency`"),
    ],
)
def test_settings_that_the_search_never_reads_are_refused(
    trainer: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        config(trainer)


# ------------------------------------------------------------------------------ evaluation


class NoReward(RewardFunction):
    """Gives no reward to episodes in which "ben" took part."""

    async def score(self, episode: Episode, calls: Any) -> Reward | None:
        if any(turn.agent == "ben" for turn in episode.turns):
            return None
        return Reward(1.0)


def test_a_graph_without_any_reward_has_failed_and_does_not_count_as_0() -> None:
    space = Space(("anna", "ben"), 2)
    only_anna, with_ben = Genome((Slot(0),)), Genome((Slot(0), Slot(1, 0b1)))

    async def values() -> list[dict[Genome, Value]]:
        agents = {"anna": ScriptedAgent(), "ben": ScriptedAgent()}
        policy = policy_of(graph_of(only_anna, space.choices), [Member("anna"), Member("ben")])
        engine = engine_for(agents, policy, ListTask(4), NoReward())
        session = EngineSession(engine, "0/0", Key(1), Key(2))
        evaluator = Evaluator(space, Key(3), "turns", "continue")
        first, second = {only_anna: 4, with_ben: 4}, {only_anna: 6}
        measured = [await evaluator.values(session, counts) for counts in (first, second)]
        assert evaluator.episodes == 10
        assert await evaluator.values(session, first) == measured[0]
        assert evaluator.episodes == 10
        return measured

    expected = {only_anna: Value(1.0, 1.0, 4), with_ben: FAILED}
    assert asyncio.run(values()) == [expected, {only_anna: Value(1.0, 1.0, 6)}]


def test_caution_takes_standard_errors_off_the_mean_in_the_search_alone() -> None:
    graph, session = Genome((Slot(0),)), cast("Session", None)  # nothing has to run
    evaluator = Evaluator(Space(("anna",), 1), Key(3), "cost", "continue", caution=2.0)
    samples = [(1.0, 1.0), (0.0, 1.0), (1.0, 3.0), (math.nan, 3.0), (0.0, 9.0)]
    evaluator.samples = {("search", graph): samples, ("fresh", graph): samples}
    cautious = asyncio.run(evaluator.values(session, {graph: 4}))[graph]
    fresh = asyncio.run(evaluator.values(session, {graph: 4}, "fresh"))[graph]
    standard_error = 1 / 3  # of 1, 0 and 1; the missing reward is left out, its cost is not
    assert fresh == pytest.approx((2 / 3, 2.0, 4))
    assert cautious == pytest.approx((2 / 3 - 2 * standard_error, 2.0, 4))


def test_all_graphs_meet_the_same_problems_with_the_same_keys() -> None:
    assert set(AGENTS) == {"anna", "ben", "eve", "head"}
    space = Space(("anna", "ben"), 2)
    agents = {name: ScriptedAgent() for name in space.choices}

    async def run_both() -> None:
        roster = [Member(name) for name in space.choices]
        graphs = [Genome((Slot(0),)), Genome((Slot(1),))]
        engine = engine_for(agents, policy_of(graph_of(graphs[0], space.choices), roster))
        session = EngineSession(engine, "0/0", Key(1), Key(2))
        evaluator = Evaluator(space, Key(3), "turns", "continue")
        await evaluator.values(session, dict.fromkeys(graphs, 9))

    asyncio.run(run_both())
    first, second = ([v.problem.id for v in agents[name].views] for name in space.choices)
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 4
