"""Plugins that misbehave, and stores that are damaged: how a run ends, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrion
from orchestrion import RunError, Saved, UsageError
from orchestrion._cli import common
from orchestrion._cli.common import failure_lines
from orchestrion._cli.display import EVERY_ITERATION
from orchestrion._session import summarize
from orchestrion._training import create_run
from orchestrion.config import load
from orchestrion.runs import RunReader, RunStore, newest_states
from tests.core.plugin_support import Site, invoke, site_with_config, status, train

HOOKS = """
@hookimpl
def orchestrion_iteration_finished(metrics):
    metrics["reward"] = "changed by an observer"

@hookimpl
def orchestrion_run_finished(status):
    import moody_parts
    moody_parts.ENDS.append(status)
    if moody_parts.SULKS:
        raise ValueError("the observer sulks")
"""
PARTS = '''
import asyncio
import shutil
import sys

from orchestrion import Agent, Output, Saved, UsageError

ENDS, SULKS, MENDED = [], [], []
MOODS = {
    "raise": lambda: 1 / 0,
    "loud": lambda: (_ for _ in ()).throw(ZeroDivisionError("\\x1b[31mred")),
    "gone": lambda: shutil.rmtree("runs/c-1"),
    "exit": lambda: sys.exit(0),
    "cancel": lambda: (_ for _ in ()).throw(asyncio.CancelledError()),
    "memory": lambda: (_ for _ in ()).throw(MemoryError()),
    "moody": lambda: None,
    "usage": lambda: (_ for _ in ()).throw(UsageError("that policy cannot be trained")),
}


def mood(name):
    MOODS.get(name, lambda: None)()


@frozen
class Worker(Agent):
    """Works.

    Args:
        mood: how it feels.
    """

    mood: str = ""

    async def act(self, view, key, calls):
        if self.mood != "moody" or view.problem.id.endswith("1"):
            mood("loud" if self.mood == "moody" else self.mood)
        return Output("done")


@frozen
class Work(Two):
    """Gives the problems of its mood.

    Args:
        mood: how it feels.
    """

    mood: str = ""

    def problems(self, split):
        mood(self.mood)
        if self.mood == "none":
            return None
        if self.mood == "twice":
            return [Problem("p"), Problem("p")]
        if self.mood == "shared":
            return [Problem("p")]
        if self.mood == f"no {split}":
            return []
        return super().problems(split)


@frozen
class Moody(Once):
    """Asks once.

    Args:
        save_mood: how it feels.
    """

    save_mood: str = ""

    def save(self):
        mood(self.save_mood)
        return None if self.save_mood == "none" else Saved()

    def load(self, saved):
        if self.save_mood == "no load":
            raise ValueError("no load")


@frozen
class Practice(Trainer):
    """Plays.

    Args:
        mood: how it feels.
        iterations: how often.
        plays: of each problem.
    """

    mood: str = ""
    iterations: int = 2
    plays: int = 1

    def check(self, session):
        if self.mood == "refuse":
            raise UsageError(f"it trains no {type(session.policy).__name__}")
        if self.mood == "break":
            raise ValueError("the check is wrong itself")

    async def iterate(self, i, session):
        if self.mood != "late" or (i == 1 and not MENDED):
            mood("raise" if self.mood == "late" else self.mood)
        problems = list(session.problems()) * self.plays
        await session.rollout([Job(p, Key(i).child(n)) for n, p in enumerate(problems)])
        mood(self.mood.partition("then ")[2])
        values = {"override": {"success": 99.0, "own": 2.0}, "nan": {"own": float("nan")},
                  "text": {"own": "1"}, "nothing": None}
        return values.get(self.mood, {})
'''
CONFIG = """
task: {use: moody-task}
agents:
  a: {use: moody-agent}
policy: {use: moody-policy}
trainer: {use: moody-trainer}
"""


def supplied(said: str) -> str:
    """A message with the distribution and version that it names after the component."""
    return said.replace("):", " of orchestrion-moody 1.0):", 1)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    yield from site_with_config(tmp_path, monkeypatch, CONFIG, "moody", PARTS, HOOKS)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trainer.mood=raise", "trainer (moody-trainer): iterate(0) raised ZeroDivisionError"),
        ("trainer.mood=exit", "trainer (moody-trainer): iterate(0) raised SystemExit: 0"),
        ("trainer.mood=cancel", "trainer (moody-trainer): iterate(0) raised CancelledError"),
        ("trainer.mood=memory", "trainer (moody-trainer): iterate(0) raised MemoryError"),
        ("trainer.mood=nan", "trainer (moody-trainer): metric 'own' must be a finite number"),
        ("trainer.mood=text", "trainer (moody-trainer): metric 'own' must be a finite number"),
        ("trainer.mood=nothing", "trainer (moody-trainer): iterate returned a NoneType"),
        ("policy.save_mood=raise", "policy (moody-policy): save raised ZeroDivisionError"),
        ("policy.save_mood=none", "policy (moody-policy): save returned a NoneType"),
    ],
)
def test_a_component_that_breaks_its_contract_is_named_and_the_run_failed(
    site: Site, override: str, said: str
) -> None:
    result = train(override)
    assert result.exit_code == 1
    assert supplied(said) in result.stderr
    assert "Traceback" not in result.stderr
    assert status() == "failed"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("task.mood=raise", "task (moody-task): problems('train') raised ZeroDivisionError"),
        ("task.mood=none", "task (moody-task): problems('train') must return a sequence"),
        ("task.mood=twice", "task (moody-task): problem 'p' is twice in 'train'"),
        ("task.mood=shared", "problem 'p' is in 'train' and 'validation'"),
        ("task.mood=memory", "task (moody-task): problems('train') raised MemoryError"),
    ],
)
def test_problems_that_are_wrong_leave_no_run_folder(site: Site, override: str, said: str) -> None:
    result = train(override)
    assert result.exit_code == 1
    assert supplied(said) in result.stderr
    assert "nothing was run, and the run's folder is removed" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(Path("runs").iterdir()) == []
    with pytest.raises(RunError):
        orchestrion.train("c.yaml", "runs/mine", overrides=[override])
    assert list(Path("runs").iterdir()) == []


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_split_that_is_used_and_empty_is_refused(site: Site, split: str) -> None:
    result = train(f"task.mood=no {split}")
    assert result.exit_code == 2
    assert supplied(f"task (moody-task): its split '{split}' has no prob") in result.stderr
    assert train("task.mood=no validation").exit_code == 0


def test_the_names_of_cores_metrics_are_cores(site: Site) -> None:
    assert tuple(summarize([])) == EVERY_ITERATION
    assert train("trainer.mood=override").exit_code == 0
    with RunReader(Path("runs/c-1")) as run:
        metrics = run.iterations()[-1].metrics
    assert (metrics["success"], metrics["own"]) == (1.0, 2.0)


def test_an_observer_that_sulks_at_the_end_hides_neither_report_nor_error(site: Site) -> None:
    import moody_parts  # type: ignore[import-not-found]

    moody_parts.SULKS.append(True)
    good = train()
    assert good.exit_code == 0
    assert "held-out split" in good.stdout
    assert "the observer sulks" in good.stderr
    bad = train("trainer.mood=raise")
    assert "iterate(0) raised ZeroDivisionError" in bad.stderr.splitlines()[-1]
    assert moody_parts.ENDS == ["completed", "failed"]


def test_failed_turns_are_counted_below_the_report(site: Site) -> None:
    result = train("agents.a.mood=moody")
    assert result.exit_code == 0
    assert "failed: 3 turns, 0 verifications" in result.stderr  # 2 x 1 of training, 1 held out
    assert "3 x a: ZeroDivisionError" in result.stderr


def test_only_the_most_frequent_failures_are_listed() -> None:
    lines = failure_lines({f"a: {i}": i for i in range(1, 8)} | {"verifier: no": 9})
    assert lines[0] == "failed: 28 turns, 9 verifications"
    assert lines[1] == "  9 x verifier: no"
    assert lines[-1] == "  and 3 other reasons"
    assert failure_lines({}) == []
    others = {"reward (cost of x): no": 2, "a: (no)": 1, "policy (dag of x): no": 3}
    assert failure_lines(others)[0] == ("failed: 1 turns, 0 verifications, 2 rewards, 3 decisions")


# ------------------------------------------------------------------ refusals change nothing


def test_a_refused_resume_keeps_a_run_that_had_not_begun(site: Site) -> None:
    store = create_run(load("c.yaml"))  # as one that was interrupted while it opened its parts
    store.close()
    assert invoke("resume", "c-1", "-o", "task.mood=raise").exit_code == 2
    assert Path("runs/c-1/run.db").exists()


def test_a_refused_resume_leaves_a_completed_run_completed(site: Site) -> None:
    assert train().exit_code == 0
    other = invoke("resume", "c-1", "-o", "seed=5")
    assert other.exit_code == 2
    assert "`-o seed=5` changes what decides the result" in other.stderr
    assert "resumed" not in other.stderr
    assert status() == "completed"


def test_a_run_whose_checkpoints_are_gone_says_so_everywhere_and_stays_completed(
    site: Site,
) -> None:
    assert train().exit_code == 0
    for path in Path("runs/c-1/checkpoints").iterdir():
        path.write_bytes(b"damaged")
    for words in (["resume", "c-1"], ["eval", "c-1"]):
        result = invoke(*words)
        assert result.exit_code == 1
        assert "no checkpoint is valid" in result.stderr
        assert "00-000001.safetensors" in result.stderr
    assert status() == "completed"


def test_the_checkpoint_that_stands_in_for_a_damaged_one_is_named(site: Site) -> None:
    assert train().exit_code == 0
    Path("runs/c-1/checkpoints/00-000001.safetensors").write_bytes(b"damaged")
    result = invoke("eval", "c-1")
    assert result.exit_code == 0
    assert "00-000000.safetensors is used instead" in result.stderr


def test_training_in_which_nothing_ever_works_ends(site: Site) -> None:
    result = train("agents.a.mood=raise", "trainer.plays=10")
    assert result.exit_code == 1
    assert "all 20 turns of iteration 1 failed, each with: agent a: ZeroDivisi" in result.stderr
    assert "orchestrion resume" in result.stderr, "the agent may be mended"
    assert status() == "failed"


def test_a_few_failed_turns_do_not_end_training_but_a_policy_of_which_nothing_comes_is_no_result(
    site: Site,
) -> None:
    result = train("agents.a.mood=raise")
    assert result.exit_code == 1
    assert "all 2 turns of the evaluation of learned failed" in result.stderr
    with RunReader(Path("runs/c-1")) as run:
        assert len(run.iterations()) == 2


def test_an_agent_that_fails_in_turn_after_turn_is_told_once(site: Site) -> None:
    result = train("agents.a.mood=raise", "trainer.iterations=14")
    said = "agents.a: warning: its last 20 turns failed, the latest with: ZeroDivisionError"
    assert result.stderr.count(said) == 1


def test_a_config_that_cannot_be_trained_is_not_worth_resuming(site: Site) -> None:
    result = train("trainer.mood=then usage")
    assert result.exit_code == 2
    assert "that policy cannot be trained" in result.stderr
    assert "start a new run" in result.stderr
    assert "orchestrion resume" not in result.stderr


def test_a_trainer_that_refuses_before_its_first_episode_leaves_no_run_folder(site: Site) -> None:
    result = train("trainer.mood=usage")
    assert result.exit_code == 2
    assert "that policy cannot be trained" in result.stderr
    assert "nothing was run, and the run's folder is removed" in result.stderr
    assert not Path("runs/c-1").exists()
    with pytest.raises(UsageError):
        orchestrion.train("c.yaml", "runs/mine", overrides=["trainer.mood=usage"])
    assert not Path("runs/mine").exists()


def test_a_trainer_is_asked_before_anything_is_run(site: Site) -> None:
    result = train("trainer.mood=refuse")
    assert result.exit_code == 2
    assert "it trains no Moody" in result.stderr
    assert not Path("runs/c-1").exists()
    broken = train("trainer.mood=break")
    assert broken.exit_code == 1
    assert supplied("trainer (moody-trainer): check raised ValueError") in broken.stderr


def test_so_is_the_trainer_of_a_baseline_and_validate_asks_as_well(site: Site) -> None:
    trainer = "{use: moody-trainer, mood: refuse}"
    baseline = f"evaluation.baselines={{b: {{policy: {{use: moody-policy}}, trainer: {trainer}}}}}"
    result = invoke("validate", "c.yaml", "-o", baseline)
    assert result.exit_code == 2
    assert "it trains no Moody" in result.stderr
    assert invoke("validate", "c.yaml", "-o", baseline, "--no-open").exit_code == 0


@pytest.mark.parametrize(
    ("override", "code", "said"),
    [
        ("task.mood=raise", 1, "task (moody-task): problems('train') raised ZeroDivisionError"),
        ("task.mood=no test", 2, "its split 'test' has no problems"),
    ],
)
def test_validate_finds_what_only_an_open_component_shows(
    site: Site, override: str, code: int, said: str
) -> None:
    result = invoke("validate", "c.yaml", "-o", override, "--json")
    assert result.exit_code == code
    problems = json.loads(result.stdout)["problems"]
    assert [supplied(said) in one["message"] for one in problems] == [True]
    assert not Path("runs").exists()


def test_a_run_is_shown_with_the_report_it_ended_with(site: Site) -> None:
    baseline = "evaluation.baselines={other: {policy: {use: moody-policy}}}"
    told = train(baseline).stdout
    report = told[told.index("held-out split") : told.index("intervals:")]
    assert "other" in report
    assert report in invoke("runs", "show", "c-1").stdout


def test_escape_sequences_do_not_reach_a_terminal(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = types.SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(common, "sys", types.SimpleNamespace(stdout=terminal))
    for result in (train("agents.a.mood=moody"), invoke("runs", "show", "c-1")):
        assert r"\x1b[31mred" in result.stdout
        assert "\x1b" not in result.stdout
    with RunStore.open(Path("runs/c-1")) as store:
        store.set_status("failed", "400 \x1b[31mred")
    assert r"400 \x1b[31mred" in invoke("runs", "show", "c-1").stdout


def test_eval_judges_as_the_config_says_unless_told_otherwise(site: Site) -> None:
    assert train().exit_code == 0

    def judged(*words: str) -> list[object]:
        result = invoke("eval", "c-1", "--json", *words)
        assert result.exit_code == 0, result.stderr
        report = json.loads(result.stdout)["report"]
        return [report["split"], report["seeds"]]

    overrides = ("-o", "evaluation.split=train", "-o", "evaluation.seeds=3")
    assert judged() == ["test", 1]
    assert judged(*overrides) == ["train", 3]
    assert judged(*overrides, "--split", "validation", "--seeds", "2") == ["validation", 2]


def test_a_config_is_not_called_learned(site: Site) -> None:
    assert train().exit_code == 0

    def first(target: str) -> str:
        report = json.loads(invoke("eval", target, "--json").stdout)["report"]
        return str(report["contenders"][0]["name"])

    assert (first("c.yaml"), first("c-1")) == ("policy (untrained)", "learned")
    assert "policy (untrained)" in invoke("eval", "c.yaml").stdout


def test_a_baseline_called_untrained_is_another_row(site: Site) -> None:
    words = ["-o", "evaluation.baselines={untrained: {policy: {use: moody-policy}}}", "--json"]
    report = json.loads(invoke("eval", "c.yaml", *words).stdout)["report"]
    assert [one["name"] for one in report["contenders"]] == ["policy (untrained)", "untrained"]


def test_an_agent_that_was_never_tried_is_reported(site: Site) -> None:
    idle = "agents.idle={use: moody-agent}"
    lines = train(idle).stdout.splitlines()
    assert [line for line in lines if line.endswith("episodes: idle")]
    again = json.loads(invoke("train", "c.yaml", "-o", idle, "--json").stdout)
    assert again["never_tried"] == ["idle"]
    assert "never_tried" in [finding["name"] for finding in again["diagnosis"]]
    assert again["warning_level"] == max(finding["level"] for finding in again["diagnosis"])
    assert "never tried" in invoke("runs", "show", "c-1").stdout
    assert "never tried" not in train().stdout


def test_exports_that_cannot_be_written_leave_the_run_completed(site: Site) -> None:
    assert train().exit_code == 0
    for path in Path("runs/c-1/exports").iterdir():
        path.unlink()
    Path("runs/c-1/exports").rmdir()
    Path("runs/c-1/exports").write_text("in the way")
    result = invoke("resume", "c-1")
    assert result.exit_code == 1
    assert "held-out split" in result.stdout
    assert "exports could not be written" in result.stderr
    assert status() == "completed"


# ------------------------------------------------------------------ what is asked for


@pytest.mark.parametrize("name", ["learned", "team", "train"])
def test_a_baseline_cannot_be_called_like_what_reports_and_stores_name_themselves(
    site: Site, name: str
) -> None:
    result = train(f"evaluation.baselines={{{name}: {{policy: {{use: moody-policy}}}}}}")
    assert result.exit_code == 2
    assert f"evaluation.baselines.{name}" in result.stderr
    assert "choose another name" in result.stderr


def test_the_name_of_another_run_is_refused_and_that_run_is_left_alone(site: Site) -> None:
    assert train("run.name=mine").exit_code == 0
    again = train("run.name=mine", "seed=5")
    assert again.exit_code == 2
    assert "mine: already holds files; choose another name" in again.stderr
    with RunReader(Path("runs/mine")) as run:
        assert (run.status, (run.manifest or {})["seed"]) == ("completed", 0)


def test_a_resume_of_a_completed_run_says_that_nothing_is_left(site: Site) -> None:
    first = train()
    again = invoke("resume", "c-1")
    assert again.stdout == first.stdout
    assert "c-1: the run is complete, and nothing is left to do" in again.stderr
    assert "iterations are done" in again.stderr
    assert "goes on after" not in again.stderr


def test_a_resume_keeps_other_checkpoints_but_moves_no_run(site: Site) -> None:
    assert train("trainer.iterations=4").exit_code == 0
    keeps = ["resume", "c-1", "-o", "run.keep=1"]
    refused = {
        "run.name=other": "a run goes on in its own folder; leave this out, and rename or move",
        "run.directory=other": "a run goes on in its own folder",
        "run.retention=turns": "c-1 --retention LEVEL` keeps less of the run",
    }
    for override, reason in refused.items():
        result = invoke(*keeps, "-o", override)
        assert result.exit_code == 2
        assert f"{override.partition('=')[0]}: " in result.stderr
        assert reason in result.stderr
    assert len(list(Path("runs/c-1/checkpoints").iterdir())) == 3
    assert invoke(*keeps).exit_code == 0
    assert len(list(Path("runs/c-1/checkpoints").iterdir())) == 1
    with RunReader(Path("runs/c-1")) as run:
        assert run.keep == 1
    assert invoke("runs", "prune", "c-1", "--retention", "turns").exit_code == 0
    assert invoke("resume", "c-1", "-o", "run.retention=turns").exit_code == 0


def test_running_a_team_of_which_nothing_came_is_no_success(site: Site) -> None:
    words = ["run", "c.yaml", "--problem", "test-0"]
    assert invoke(*words).exit_code == 0
    result = invoke(*words, "-o", "agents.a.mood=raise")
    assert result.exit_code == 1
    assert "none of its 1 turns gave anything" in result.stderr
    as_json = invoke(*words, "-o", "agents.a.mood=raise", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["episode"]["status"] == "failed"


def test_free_input_is_not_called_unsolved_where_no_answer_is_known(site: Site) -> None:
    result = invoke("run", "c.yaml", "--input", "what now?")
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert result.stderr.splitlines()[-2] == "answer:", "what stands on standard output"
    assert result.stderr.endswith("cost 0, not judged: no answer to this input is known\n")
    as_json = json.loads(invoke("run", "c.yaml", "--input", "what now?", "--json").stdout)
    assert as_json["known_answer"] is False
    assert (as_json["episode"]["scores"], as_json["episode"]["reward"]) == (None, None)
    known = invoke("run", "c.yaml", "--problem", "test-0")
    assert known.stderr.endswith("cost 0, score 1, solved\n")


def test_a_smoke_run_gives_no_advice_on_its_results(site: Site) -> None:
    assert "few_problems" in invoke("train", "c.yaml", "--json").stdout
    smoke = invoke("train", "c.yaml", "--smoke")
    assert (smoke.exit_code, "held-out split" in smoke.stdout) == (0, True)
    for told in (smoke, invoke("runs", "show", "c-smoke")):
        assert "note:" not in told.stdout
        assert "warning:" not in told.stdout


def test_text_that_is_not_utf_8_is_refused(site: Site) -> None:
    result = invoke("run", "c.yaml", "--input", "\udcff", "--json")
    assert result.exit_code == 2
    assert "not valid UTF-8" in result.stderr


def test_blocking_what_is_not_installed_is_worth_a_warning(site: Site) -> None:
    for words in (["--block", "nope"], ["-o", "run.block=[nope]"]):
        result = invoke("validate", "c.yaml", *words)
        assert result.exit_code == 0
        assert "names 'nope', and no such plugin is installed" in result.stderr


@pytest.mark.parametrize("name", ["/dev/null", "c.yaml", "c.yaml/runs"])
def test_a_run_folder_below_something_else_is_refused(site: Site, name: str) -> None:
    result = train(f"run.directory={name}")
    assert result.exit_code == 2
    assert "is not a folder" in result.stderr


def test_a_config_or_include_that_is_no_file_is_refused_and_not_waited_for(
    site: Site, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "i.yaml").write_text("include: [pipe]")
    (tmp_path / "nul.yaml").write_text('include: ["\\0"]')
    for name in ("pipe", "i.yaml", "nul.yaml", "/dev/zero"):
        result = invoke("validate", name)
        assert result.exit_code == 2, result.stderr


def test_metadata_that_is_not_utf_8_stops_neither_doctor_nor_check(site: Site) -> None:
    info = site.folder / "orchestrion_odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_bytes(b"Name: orchestrion-odd\nSummary: \xff\n")
    (info / "entry_points.txt").write_bytes(b"[orchestrion]\nodd = odd_\xff\n")
    result = invoke("doctor")
    assert result.exit_code == 3
    assert "orchestrion-odd" in result.stdout
    assert "internal error" not in result.stderr


def test_the_newest_states_are_those_of_a_run(site: Site) -> None:
    train("run.name=whole")
    directory, states = newest_states("whole")
    assert directory.name == "whole"
    assert states["policy"] == Saved()
    with pytest.raises(UsageError, match=r"c\.yaml: is a file; name a run"):
        newest_states("c.yaml")
    with pytest.raises(UsageError, match="no run 'other' here"):
        newest_states("other")


def test_a_run_whose_folder_is_deleted_while_it_works_fails(site: Site) -> None:
    result = train("trainer.mood=gone")
    assert result.exit_code == 1
    assert "run.db: was moved, deleted or replaced while the run was writing" in result.stderr
    assert list(Path("runs").iterdir()) == [], "and nothing is put where it was"


def test_what_nothing_learned_is_not_called_learned(site: Site) -> None:
    Path("c.yaml").write_text(CONFIG.replace("trainer: {use: moody-trainer}\n", ""))
    told = train().stdout
    assert "\nteam " in told
    assert "\nlearned " not in told
    assert "one training seed" not in told
    assert "\nteam " in invoke("eval", "c.yaml").stdout


def test_a_trained_run_says_what_can_be_done_with_it(site: Site) -> None:
    told = train().stdout
    assert "orchestrion runs show c-1" in told
    assert "orchestrion eval c-1" in told
    assert "orchestrion run c-1 --input TEXT" in told


def test_eval_keeps_and_shows_what_came_of_each_problem(site: Site) -> None:
    assert train().exit_code == 0
    printed = invoke("eval", "c-1", "--json", "-o", "agents.a.mood=moody")
    report = json.loads(printed.stdout)["report"]
    rows = report["outcomes"]["learned"]
    # Every second turn fails, and an episode in which none gave anything is no success.
    assert {name: row["solved"] for name, row in rows.items()} == {"test-0": 1.0, "test-1": 0.0}
    assert {name: row["failed"] for name, row in rows.items()} == {"test-0": 0.0, "test-1": 1.0}
    assert report["contenders"][0]["trained_on"] == 4
    kept = Path("runs/c-1/evaluations/1.json")
    assert f"kept: {kept}" in printed.stderr
    assert json.loads(kept.read_text())["report"] == report
    told = invoke("eval", "c-1", "--problems").stdout
    assert "4 episodes" in told
    assert told.splitlines()[-1].split() == ["test-1", "solved", "missing"]
    assert "test-1" in invoke("runs", "show", "c-1", "--problems").stdout
    compared = invoke("runs", "compare", "c-1", str(kept), "--json")
    assert json.loads(compared.stdout)["comparison"]["problems"] == 2
    damaged = kept.read_text().replace('"solved": 1.0', '"solved": 0.0', 1)
    kept.write_text(damaged)
    refused = invoke("runs", "compare", "c-1", str(kept))
    assert (refused.exit_code, "is damaged" in refused.stderr) == (1, True)
    shutil.rmtree(kept.parent)
    kept.parent.write_text("in the way")
    again = invoke("eval", "c-1")
    assert (again.exit_code, "not kept: " in again.stderr) == (0, True)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("c-2", "no run 'c-2'"),
        ("c-1:random", "has no evaluation of 'random'; it has learned"),
        ("c.yaml", "is not an evaluation as `orchestrion eval --json` prints it"),
    ],
)
def test_what_cannot_be_compared_is_named(site: Site, other: str, said: str) -> None:
    assert train().exit_code == 0
    result = invoke("runs", "compare", "c-1", other)
    assert result.exit_code in (1, 2)
    assert said in result.stderr


def test_a_resume_with_other_versions_says_so_and_notes_from_where_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    import moody_parts

    assert train("trainer.mood=late").exit_code == 1
    moody_parts.MENDED.append(True)
    monkeypatch.setattr("platform.python_version", lambda: "3.99.1")
    resumed = invoke("resume", "c-1")
    assert resumed.exit_code == 0
    assert "run: goes on with other versions than before: python 3." in resumed.stderr
    assert "-> 3.99.1" in resumed.stderr
    with RunReader(Path("runs/c-1")) as run:
        (since,) = run.manifest["resumed"]
        assert since["after_iterations"] == 1
        assert since["versions"]["python"] == "3.99.1"
        assert run.manifest["versions"]["python"] != "3.99.1"
        assert [event.kind for event in run.events()] == ["versions changed"]
    assert "versions" not in invoke("resume", "c-1").stderr, "nothing was run again"
    replayed = invoke("replay", "c-1")
    assert (replayed.exit_code, replayed.stdout[:9]) == (0, "identical"), replayed.stdout
    assert "iterations from 1 on were recorded with other versions" in replayed.stderr
