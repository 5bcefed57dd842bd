"""Sweeps: checked before they begin, under one budget, resumable, judged on test once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_sweep.plan import read_plan
from orchestrion_sweep.settings import Dimension, Sweep
from orchestrion_sweep.space import Space, at, name_of
from orchestrion_sweep.sweeping import best, check_unchanged, create, front
from orchestrion_sweep.trials import Trial, ahead, merged

from orchestrion import Key
from orchestrion._plugins import Plugins
from orchestrion._schema import json_schema
from orchestrion.config import read_data
from orchestrion.runs import RunReader
from tests.end_to_end.support import EXAMPLES, command, environment, here

RELAY = """
task: {use: relay, partial: 0.3, train: 8, validation: 6, test: 6}
agents: {planner: {use: bench-agent}, coder_l: {use: bench-agent}, stop: {use: bench-agent}}
policy: {use: sequence}
trainer: {use: best-sequence, problems: 4, beam: 2, length: 2}
reward: {use: outcome-minus-cost}
limits: {turns: 6}
"""

FIXED = """
task: {use: relay, partial: 0.3, train: 2, validation: 6, test: 6}
agents:
  planner: {use: bench-agent}
  coder_l: {use: bench-agent}
  tester: {use: bench-agent}
  stop: {use: bench-agent}
  broken: {use: "broken_agents:Broken"}
policy: {use: sequence, steps: [planner, stop]}
reward: {use: outcome-minus-cost}
limits: {turns: 12}
evaluation: {baselines: [random]}
"""

BROKEN = """
from attrs import frozen
from orchestrion import Agent, RewardFunction

@frozen
class Broken(Agent):
    def act(self, view, key, calls):
        raise ValueError("no idea")

@frozen
class Silent(RewardFunction):
    async def score(self, episode, calls):
        return None
"""

QUESTIONS = f"""
task:
  use: jsonl
  file: {EXAMPLES / "questions.csv"}
  extract: 'Category:\\s*(\\w+)'
  split: {{train: 0.2, validation: 0.4, test: 0.4}}
speakers:
  beginner: {{use: clerk, skill: 0.4}}
  specialist: {{use: clerk, skill: 0.97}}
models:
  tiny: {{use: offline, speaker: beginner, max_tokens: 50, price: {{input: 0.1, output: 0.4}}}}
  large: {{use: offline, speaker: specialist, max_tokens: 50, price: {{input: 2, output: 8}}}}
agents:
  tiny: {{use: chat, model: tiny, instructions: Sort the ticket.}}
  large: {{use: chat, model: large, instructions: Sort the ticket.}}
policy: {{use: sequence, steps: [tiny]}}
reward: {{use: outcome-minus-cost, measure: usd, cost_weight: 500}}
limits: {{turns: 3}}
evaluation: {{episodes: 8}}
search: {{policy.steps: {{choice: [[tiny], [large], [tiny, large]]}}}}
sweep: {{method: grid, parallel: 2}}
"""


def written(folder: Path, text: str, name: str = "team.yaml") -> str:
    """Write a config, and return its path."""
    (folder / name).write_text(text)
    return name


def report_of(folder: Path) -> dict[str, Any]:
    """Read a sweep's report, without the names of its folders."""
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    del report["sweep"], report["best_config"]
    return report


def held(folder: Path) -> dict[str, Any]:
    """Return what the runs of a sweep hold, without times."""
    runs = {}
    for database in sorted(folder.glob("*/run.db")):
        with RunReader(database.parent) as run:
            iterations = [(i.stage, i.iteration, i.metrics, i.digest) for i in run.iterations()]
            runs[database.parent.name] = run.status, iterations, run.load_evaluations()
    return runs


# ------------------------------------------------------------------ checked before it begins


@pytest.mark.parametrize(
    ("search", "problem"),
    [
        ("trainer.beem: {choice: [8]}", "team.yaml:9: trainer.beem: unknown key; did you"),
        ("trainer.beam: {choice: [x]}", "team.yaml:9: trainer.beam: expected an integer"),
        ("trainer.beam: {integers: [-4, 9]}", "team.yaml:9: trainer.beam: must be at"),
        ("trainer.beam: {uniform: [2.5, 9]}", "team.yaml:9: trainer.beam: expected an int"),
        ("task.partial: {uniform: [0, 1]}", "team.yaml:9: search.task.partial: task cannot be"),
        ("trainer.beam: {choice: [8], integers: [1, 2]}", "team.yaml:9: search.trainer.beam"),
        ('limits.turns: {choice: ["${env:HOME}"]}', "a section of a command takes no variable"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_before_anything_is_run(
    search: str, problem: str, tmp_path: Path
) -> None:
    config = written(tmp_path, f"{RELAY}search:\n  {search}\nsweep: {{trials: 3}}\n")
    done = here("sweep", config, cwd=tmp_path, code=2)
    assert problem in done.stderr
    assert not (tmp_path / "runs").exists()


def test_what_is_wrong_in_the_config_and_among_the_values_is_said_together(tmp_path: Path) -> None:
    text = RELAY.replace("{use: sequence}", "{use: sequence, stepps: []}")
    search = "search: {trainer.beam: {choice: [x, 2]}, trainer.length: {choice: [3]}}\n"
    config = written(tmp_path, f"{text}{search}sweep: {{trials: 3}}\n")
    done = here("sweep", config, cwd=tmp_path, code=2)
    assert "2 problems" in done.stderr
    assert "team.yaml:4: policy.stepps" in done.stderr
    assert "team.yaml:8: trainer.beam: expected an integer, got 'x'" in done.stderr


def test_a_task_without_a_validation_split_is_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    config = written(tmp_path, QUESTIONS.replace("0.2, validation: 0.4", "0.6, validation: 0.0"))
    done = here("sweep", config, cwd=tmp_path, code=2)
    assert "its split 'validation' has no problems" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_sweep_goes_on_with_paths_that_its_choices_name_by_their_place_beside_the_config(
    tmp_path: Path,
) -> None:
    choice = "agents.planner: {choice: [{use: recorded, table: answers.csv}, {use: bench-agent}]}"
    runs = f"run: {{directory: {tmp_path / 'runs'}}}\n"
    config = written(tmp_path, f"{RELAY}{runs}search:\n  {choice}\nsweep: {{trials: 2}}\n")
    plan = read_plan(tmp_path / config)
    first = {"use": "recorded", "table": str(tmp_path / "answers.csv")}
    assert plan.space.dimensions["agents.planner"].choice == (first, {"use": "bench-agent"})
    folder = create(plan, "team")
    assert read_plan(folder / "sweep.yaml").space == plan.space
    check_unchanged(read_plan(folder / "sweep.yaml"), folder)


def test_editors_know_the_sections_of_a_sweep() -> None:
    validator = jsonschema.Draft202012Validator(json_schema(Plugins()))
    good = {
        "include": ["quick.yaml"],
        "trainer": {"iterations": 20},
        "search": {"policy.hidden": {"choice": [[16], [64]]}},
        "sweep": {"method": "random", "trials": 8},
    }
    validator.validate(good)
    for name, value in (("search", {"a": {"choise": [1]}}), ("sweep", {"trials": 1})):
        assert not validator.is_valid({**good, name: value})
    del good["include"]
    assert not validator.is_valid(good)


@pytest.mark.parametrize(
    ("sweep", "problem"),
    [
        ("{method: grid}", "team.yaml:9: sweep.method: a grid of 3,000,000,000 trials"),
        ("{trials: 1000000000}", "sweep.trials: must be at most 10000"),
        ("{trials: 3, seeds: 1000000000}", "sweep.seeds: must be at most 1000"),
    ],
)
def test_a_sweep_without_end_is_refused_before_its_trials_are_made(
    sweep: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Space, "grid")
    monkeypatch.delattr(Space, "draw")
    search = "{limits.turns: {choice: [3, 4, 5]}, trainer.beam: {integers: [1, 1000000000]}}"
    config = written(tmp_path, f"{RELAY}search: {search}\nsweep: {sweep}\n")
    assert problem in here("sweep", config, "--dry-run", cwd=tmp_path, code=2).stderr


@pytest.mark.parametrize(
    "search",
    ["traces.headers.x-key: {choice: [n-99]}", "traces.headers: {choice: [{x-key: n-99}]}"],
)
def test_secrets_are_not_searched(search: str, tmp_path: Path) -> None:
    traces = 'traces: {use: otlp, endpoint: "http://127.0.0.1:9/v1/traces", headers: {a: b}}'
    text = f"{RELAY}{traces}\nsearch: {{{search}}}\nsweep: {{trials: 3}}\n"
    done = here("sweep", written(tmp_path, text), cwd=tmp_path, code=2)
    assert "traces.headers is a secret, which would be stored" in done.stderr
    assert "n-99" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Dimension, {}, "give one of choice, uniform, log_uniform, integers"),
        (Dimension, {"uniform": (2.0, 1.0)}, "uniform: 2 must be less than 1"),
        (Dimension, {"uniform": (1.0, 1.0)}, "uniform: 1 must be less than 1"),
        (Dimension, {"log_uniform": (0.0, 1.0)}, "both ends must be greater than 0"),
        (Dimension, {"integers": (0, 2**53)}, "more than 2\\*\\*53 values"),
        (Sweep, {"method": "grid", "trials": 3}, "`trials` has no effect with `method: grid`"),
        (Sweep, {"method": "random"}, "`trials` is missing"),
        (Sweep, {"trials": 3, "objective": ("cost", "cost")}, "one stands there twice"),
        (Sweep, {"trials": 3, "prune": True}, "`prune` needs `method: optuna`"),
        (
            Sweep,
            {"trials": 3, "method": "optuna", "prune": True, "objective": ("reward", "cost")},
            "`prune` needs a single objective",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    kind: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**settings)


def test_folders_are_named_by_number_values_and_seed() -> None:
    values = {"a.hidden": [16, 0.123456], "policy": {"use": "dag", "x": 1}, "note": "a b/c"}
    assert name_of(3, values, 7) == "003-hidden=16,0.1235-policy=dag-note=abc-seed7"
    assert name_of(0, {}) == "000-as-configured"


def test_of_several_objectives_the_first_decides_and_what_nothing_beats_is_the_front() -> None:
    settings = Sweep(trials=5, objective=("reward", "cost"))
    plan: Any = SimpleNamespace(settings=settings, base=SimpleNamespace(seed=1))
    figures = [(0.5, 2.0), (0.9, 9.0), (0.5, 1.0), (0.9, 9.0), (0.1, 1.0)]
    trials = [
        Trial(number, {}, [], rows={"p": {"reward": reward, "solved": 1.0, "cost": cost}})
        for number, (reward, cost) in enumerate(figures)
    ]
    winner = best(plan, trials)
    assert winner is not None
    assert winner.number == 1
    assert [trial.number for trial in front(plan, trials)] == [1, 2, 3]


def test_results_are_means_over_seeds_and_differences_of_common_problems() -> None:
    first = {"p": {"reward": 1.0, "solved": 1.0, "cost": None}}
    second = {"p": {"reward": 0.0, "solved": 1.0, "cost": 2.0}}
    rows = merged([first, second, {}])
    assert rows == {"p": {"reward": 0.5, "solved": 1.0, "cost": 2.0}}
    assert ahead(first, {**second, "q": first["p"]}, "reward", Key(1)).mean == 1.0
    assert ahead(first, second, "cost", Key(1)).count == 0


def test_train_does_not_take_the_sections_of_a_sweep(tmp_path: Path) -> None:
    config = written(tmp_path, f"{RELAY}search: {{limits.turns: {{choice: [3]}}}}\n")
    stderr = here("train", config, cwd=tmp_path, code=2).stderr
    assert "search: unknown section here: it is for the command of orchestrion-sweep" in stderr


@given(st.floats(0, 1, exclude_max=True), st.integers())
def test_draws_are_within_their_ranges(share: float, seed: int) -> None:
    space = Space(
        {
            "a": Dimension(uniform=(share, share + 1)),
            "b": Dimension(log_uniform=(1e-5, 1e-5 + share + 1e-9)),
            "c": Dimension(integers=(-2, 3)),
            "d": Dimension(choice=([32], [64])),
        }
    )
    drawn = space.draw(Key(seed))
    assert share <= drawn["a"] <= share + 1
    assert 1e-5 <= drawn["b"] <= 1e-5 + share + 1e-9
    assert drawn["c"] in range(-2, 4)
    assert drawn["d"] in ([32], [64])
    assert drawn == space.draw(Key(seed))


@pytest.mark.parametrize(
    ("dimension", "value"),
    [
        (Dimension(uniform=(2.0, 10.0)), 4.0),
        (Dimension(log_uniform=(1.0, 10_000.0)), 10.0),
        (Dimension(log_uniform=(0.1, 0.2)), 0.1189),
        (Dimension(integers=(-2, 5)), 0),
        (Dimension(choice=("a", "b", "c", "d")), "b"),
    ],
)
def test_a_quarter_of_all_values_is_below_a_draw_of_a_quarter(
    dimension: Dimension, value: Any
) -> None:
    assert at(dimension, 0.25) == value


# ------------------------------------------------------------------ trials and their winner

GRID = """
search:
  policy.steps:
    choice: [[planner, stop], [coder_l, stop], [broken], [planner, coder_l, tester, stop]]
sweep: {method: grid, parallel: 2}
"""


def test_the_best_by_validation_is_judged_on_test_once(tmp_path: Path) -> None:
    (tmp_path / "broken_agents.py").write_text(BROKEN)
    config = written(tmp_path, FIXED + GRID)
    done = here("sweep", config, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    folder = tmp_path / "runs" / "team-sweep-1"
    report = report_of(folder)
    trials = report["trials"]
    # The first combination is the config as it is, and is not tried twice.
    assert [trial["values"].get("policy.steps") for trial in trials] == [
        None, ["coder_l", "stop"], ["broken"], ["planner", "coder_l", "tester", "stop"],
    ]  # fmt: skip
    assert [trial["status"] for trial in trials] == [
        "completed",
        "completed",
        "failed",
        "completed",
    ]
    assert "no idea" in trials[2]["reason"]
    assert "trial 2 failed" in done.stdout
    assert "its validation figure is the best of 3, so it is too high" in done.stdout
    figures = {t["trial"]: t["validation"]["reward"]["mean"] for t in trials if t["validation"]}
    best = report["best"]["trial"]
    assert figures[best] == max(figures.values())
    assert best != 0
    assert report["test"]["best"]["reward"]["count"] == 6
    assert report["test"]["ahead"]["reward"]["low"] is not None
    for trial in trials:
        with RunReader(folder / trial["runs"][0]) as run:
            sources = {stored.source for stored in run.episodes()}
            ids = {stored.episode.problem.id for stored in run.episodes()}
        assert sources <= {"team"}
        assert all("-validation-" in name for name in ids), ids
    judged = sorted(path.name for path in folder.glob("test-*"))
    assert judged == sorted(f"test-{trials[i]['runs'][0]}" for i in (0, best))
    chosen = read_data(folder / "best.yaml")
    assert chosen["policy"]["steps"] == trials[best]["values"]["policy.steps"]
    assert (chosen["evaluation"]["split"], *chosen["evaluation"]["baselines"]) == ("test", "random")
    here("train", str(folder / "best.yaml"), cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert "003-steps=planner,coder_l,tester,stop" in here(
        "runs", "list", "--root", str(folder), cwd=tmp_path
    ).stdout.replace("[", "").replace("]", "")
    again = here("sweep", "--resume", str(folder), "--json", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert json.loads(again.stdout)["trials"] == trials


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("[planner, stop]", "[broken]", "no idea"),
        ("{use: outcome-minus-cost}", '{use: "broken_agents:Silent"}', "no problem of the val"),
    ],
)
def test_if_all_fail_the_exit_code_is_1(tmp_path: Path, old: str, new: str, why: str) -> None:
    (tmp_path / "broken_agents.py").write_text(BROKEN)
    text = FIXED.replace(old, new).replace("[random]", "{}")
    text += "search: {policy.steps: {choice: [[broken, broken]]}}\nsweep: {method: grid}\n"
    config = written(tmp_path, text)
    done = here("sweep", config, cwd=tmp_path, code=1, PYTHONPATH=str(tmp_path))
    assert why in done.stdout
    assert not list(tmp_path.glob("runs/*/best.yaml"))


# ------------------------------------------------------------------ killed


def test_kill_9_changes_nothing(tmp_path: Path) -> None:
    text = "search: {trainer.problems: {integers: [1, 8]}}\nsweep: {trials: 3, seeds: 2}\n"
    config = written(tmp_path, RELAY + text)
    here("sweep", config, "-o", "run.directory=whole", cwd=tmp_path)
    words = ["sweep", config]
    for point in (50, 90):
        fault = environment(ORCHESTRION_FAULT=f"*:kill@{point}")
        done = subprocess.run(command(*words), cwd=tmp_path, env=fault, capture_output=True)
        assert done.returncode == -9, done.stderr
        words = ["sweep", "--resume", "runs/team-sweep-1"]
    here(*words, cwd=tmp_path)
    killed, whole = (tmp_path / name / "team-sweep-1" for name in ("runs", "whole"))
    assert held(killed) == held(whole)
    assert report_of(killed) == report_of(whole)
    here("sweep", "--resume", "runs/team-sweep-1", "-o", "trainer.beam=5", cwd=tmp_path, code=2)


# ------------------------------------------------------------------ one budget


def test_one_budget_holds_for_all_trials(tmp_path: Path) -> None:
    config = written(tmp_path, QUESTIONS)
    dry = json.loads(here("sweep", config, "--dry-run", "--json", cwd=tmp_path).stdout)
    assert (dry["trials"], dry["judged_on_test"]) == (3, 2)
    lines = here("sweep", config, "--dry-run", "-o", "budget.calls=9", cwd=tmp_path).stdout
    assert lines.startswith("3 trials by grid, 3 runs, then 2 runs judged on test at most\n")
    assert "no estimate: there is no completed run of this config" in lines
    assert "budget.calls: 9, for all trials together, may run out" in lines
    done = here("sweep", config, "-o", "budget.usd=0.004", cwd=tmp_path, code=4)
    folder = tmp_path / "runs" / "team-sweep-1"
    assert "budget.usd" in done.stderr
    assert "waiting" in done.stderr
    assert 0.001 < spent(folder) <= 0.004
    here("sweep", "--resume", str(folder), "-o", "budget.usd=1", cwd=tmp_path)
    report = report_of(folder)
    assert report["spend"]["usd"] == pytest.approx(spent(folder))
    assert dry["bound"]["usd"] >= report["spend"]["usd"]
    assert [trial["status"] for trial in report["trials"]] == ["completed"] * 3
    assert report["best"]["values"]["policy.steps"][-1] == "large"


def spent(folder: Path) -> float:
    """Return what all runs of a sweep were paid."""
    total = 0.0
    for database in folder.glob("*/run.db"):
        with RunReader(database.parent) as run:
            total += run.spend().usd
    return total
