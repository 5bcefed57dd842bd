"""`train --dry-run` checks each example as `validate` does, and says what it would do."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrion import Key
from orchestrion._cli.smoke import smaller
from orchestrion._engine.opening import open_components
from orchestrion._forecast import Forecast, forecast
from orchestrion._readiness import sizes_of
from orchestrion.config import Config, load
from orchestrion.runs import RunReader, train
from tests.end_to_end.support import EXAMPLES, here

THEIRS = ("math", "search", "drmas-math-7b", "drmas-search-3b")
"""Examples to put files of one's own into."""
USAGE = ("calls", "input_tokens", "output_tokens", "usd")
OURS = [
    path
    for path in sorted(EXAMPLES.glob("*.yaml"))
    if path.stem not in (*THEIRS, "sweep")  # which `train` does not take
]


@pytest.mark.parametrize("example", OURS, ids=lambda path: path.stem)
def test_an_example_is_described_and_nothing_is_left_behind(example: Path, tmp_path: Path) -> None:
    done = here("train", str(example), "--dry-run", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["problems"]["train"] > 0
    assert told["problems"][told["evaluated_on"]] > 0
    trained = "\ntrainer:" in example.read_text()
    assert bool(told["stages"]) == trained
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", THEIRS)
def test_an_example_for_files_of_ones_own_is_valid_and_says_which_are_missing(
    name: str, tmp_path: Path
) -> None:
    example = str(EXAMPLES / f"{name}.yaml")
    here("validate", "--no-open", example, cwd=tmp_path)
    done = here("train", example, "--dry-run", cwd=tmp_path, code=2)
    assert "No such file or directory: '/data/" in done.stderr
    assert not list(tmp_path.iterdir())


async def bound_of(config: Config) -> Forecast:
    """Return the bound of a run that opens the components without any calls."""
    async with AsyncExitStack() as stack:
        key = Key(config.seed)
        return forecast(await open_components(config, stack, key, live=False, trial=True))


# A trainer of whole episodes, one of branches, one with questions of its own, and a judge.
@pytest.mark.parametrize("name", ["tickets", "beam", "behaviours", "judge"])
def test_a_run_takes_no_more_than_its_bound(name: str, tmp_path: Path) -> None:
    path = EXAMPLES / f"{name}.yaml"
    config = load(path, smaller(load(path))[0])
    bound = asyncio.run(bound_of(config))
    train(config, tmp_path / "run")
    with RunReader(tmp_path / "run") as run:
        spent, turns = run.spend(), sum(len(stored.episode.trajectory) for stored in run.episodes())
    assert not bound.unknown
    assert 0 < spent.calls <= bound.total.calls
    assert 0 < spent.input_tokens <= bound.total.input_tokens
    assert 0 < spent.output_tokens <= bound.total.output_tokens
    assert spent.usd <= bound.total.usd
    assert turns <= sum(part.count for part in bound.parts if part.who == "agents")


def test_a_completed_run_of_the_same_config_is_the_estimate(tmp_path: Path) -> None:
    example = str(EXAMPLES / "judge.yaml")
    smaller = ("-o", "run.iterations=1", "-o", "run.problems=2", "--json")

    def estimate(*changes: str) -> Any:
        done = here("train", example, "--dry-run", *smaller, *changes, cwd=tmp_path)
        return json.loads(done.stdout)["estimate"]

    assert estimate() is None
    run = json.loads(here("train", example, *smaller, cwd=tmp_path).stdout)["run"]
    total = json.loads(here("cost", run, "--json", cwd=tmp_path).stdout)["total"]
    assert estimate() == {"run": f"runs/{Path(run).name}", **{name: total[name] for name in USAGE}}
    assert total["calls"] > 0
    assert estimate("-o", "seed=8") is None


def test_the_judge_is_bounded_by_verdicts_and_partial_scores() -> None:
    async def main() -> tuple[int, int, int]:
        async with AsyncExitStack() as stack:
            config = load(EXAMPLES / "beam.yaml")
            opened = await open_components(config, stack, Key(1), live=False, trial=True)
            trainer, sizes = opened.runtimes["trainer"], sizes_of(opened)
            plans = [trainer.plan(i, sizes) for i in range(trainer.iterations)]
            [judged] = [
                part.count
                for part in forecast(opened).parts
                if (part.part, part.who) == ("trainer", "judge")
            ]
            return judged, sum(p.verdicts for p in plans), sum(p.scores for p in plans)

    judged, verdicts, scores = asyncio.run(main())
    assert verdicts
    assert scores
    assert judged == verdicts + scores


def test_turns_are_counted_also_where_no_service_is_called(tmp_path: Path) -> None:
    config = (
        "task: {use: relay, horizon: 3, train: 8, test: 8}\n"
        "agents: {coder_l: {use: bench-agent}, stop: {use: bench-agent}}\n"
        "policy: {use: values}\ntrainer: {use: bandit, episodes: 12}\n"
        "evaluation: {baselines: [best-sequence]}\n"
    )
    (tmp_path / "relay.yaml").write_text(config)
    told = here("train", "relay.yaml", "--dry-run", cwd=tmp_path).stdout
    assert "training of best-sequence" in told
    assert "what agents take by themselves" in told
    assert "costs nothing" not in told
    assert "turns of agents" in told


def test_a_run_says_first_which_baselines_take_more_episodes_than_it_trains_on(
    tmp_path: Path,
) -> None:
    config = (
        "task: {use: relay, horizon: 2, train: 4, test: 4}\n"
        "agents: {coder_l: {use: bench-agent}, stop: {use: bench-agent}}\n"
        "policy: {use: values}\ntrainer: {use: bandit, episodes: 12}\n"
        "evaluation: {baselines: {chain: {policy: {use: sequence}, trainer: "
        "{use: best-sequence, length: 2, beam: 2}}}}\n"
    )
    (tmp_path / "relay.yaml").write_text(config)
    told = here("train", "relay.yaml", "--dry-run", cwd=tmp_path).stdout
    assert "  training episodes at most: learned 12, chain 28\n" in told
    said = here("train", "relay.yaml", cwd=tmp_path).stderr.splitlines()
    warned = said.index(
        "evaluation.baselines: note: the run trains on at most 12 episodes, and on more: chain 28"
    )
    assert warned < said.index("evaluating learned")
    assert "training chain first, on at most 28 episodes" in said
    again = here("resume", "runs/relay-1", cwd=tmp_path).stderr
    assert "on more" not in again


def test_costs_in_the_agents_own_unit_have_a_column_and_a_budget(tmp_path: Path) -> None:
    config = (
        "task: {use: jsonl, rows: [{question: one, answer: x}, {question: two, answer: x}], "
        "split: {train: 0.0, validation: 0.0, test: 1.0}}\n"
        "agents: {a: {use: function, function: 'parts:a', give: view, cost: 7}}\n"
        "policy: {use: sequence, steps: [a, a]}\nbudget: {cost: 10}\n"
    )
    (tmp_path / "c.yaml").write_text(config)
    (tmp_path / "parts.py").write_text("def a(view):\n    return 'x'\n")
    told = here("train", "c.yaml", "--dry-run", cwd=tmp_path).stdout
    problems = json.loads(here("train", "c.yaml", "--dry-run", "--json", cwd=tmp_path).stdout)
    most = problems["bound"]["total"]["cost"]
    assert most == 14 * problems["problems"]["test"]
    assert "cost (agents' unit)" in told
    assert "budget.cost: 10 may run out; the run then ends and can be resumed with more" in told


@pytest.mark.parametrize(
    ("task", "is_shown"),
    [("{use: jsonl, rows: [{question: one, answer: x}]}", False), ("{use: relay}", True)],
)
def test_what_a_task_shows_counts_only_where_it_shows_something(
    task: str, is_shown: bool, tmp_path: Path
) -> None:
    config = (
        f"task: {task}\nspeakers: {{s: {{use: clerk}}}}\n"
        "models: {m: {use: offline, speaker: s}}\nagents: {a: {use: chat, model: m}}\n"
        "policy: {use: sequence, steps: [a]}\nevaluation: {split: train, episodes: 1}\n"
    )
    (tmp_path / "c.yaml").write_text(config)

    def tokens(observation: int) -> int:
        given = load(tmp_path / "c.yaml", [f"agents.a.sees.observation={observation}"])
        return asyncio.run(bound_of(given)).total.input_tokens

    assert (tokens(4000) - tokens(0) > 4000) == is_shown
    assert is_shown or tokens(4000) == tokens(0)
