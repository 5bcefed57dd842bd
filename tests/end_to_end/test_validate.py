"""`validate` says before a run what would stop it, without one."""

from __future__ import annotations

import json
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrion.cli import main
from tests.end_to_end.support import EXAMPLES, environment

TEAM = """
task: {use: relay}
agents:
  planner: {use: bench-agent}
  stop: {use: terminator}
policy: {use: sequence, steps: [planner, stop]}
"""
RECORDED = """
task: {use: recorded, table: answers.csv}
agents:
  ask: {use: recorded}
policy: {use: random}
"""
CREW = "{use: team, members: [one], policy: {use: random}, final: true}"


def test_reading_configs_imports_no_array_library_and_no_client(tmp_path: Path) -> None:
    script = """
import sys
from orchestrion._cli import main
for path in sys.argv[1:]:
    main.main(["validate", path, "--no-open", "--json"], standalone_mode=False)
print(sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
    paths = [str(EXAMPLES / f"{name}.yaml") for name in ("quick", "relay", "repair", "marl")]
    done = subprocess.run(
        [sys.executable, "-c", script, *paths],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    names = literal_eval(done.stderr.splitlines()[-1])
    assert "orchestrion_reinforce" in names
    assert not {"numpy", "torch", "transformers", "httpx", "cattrs", "rich"} & {*names}


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        (RECORDED, [], "answers.csv"),
        (TEAM, ["policy.steps=[planer]"], "did you mean 'planner'?"),
        (TEAM, ["policy.steps=[]"], "policy (sequence): no agent would ever act"),
        (
            TEAM,
            ["evaluation.baselines=[sequence]"],
            "evaluation.baselines.sequence.policy (sequence): no agent would ever act",
        ),
        (TEAM, ["trainer.use=reinforce"], "reinforce trains policies that learn by gradient"),
        (TEAM, ["trainer.use=learned-order"], "learned-order trains the policy order"),
        (
            TEAM,
            ["evaluation.baselines={b: {policy: {use: random}, trainer: {use: best-sequence}}}"],
            "best-sequence trains the policy sequence",
        ),
    ],
    ids=[
        "missing table",
        "wrong step",
        "no step",
        "no step of a baseline",
        "by gradient",
        "other policy",
        "a baseline",
    ],
)
def test_what_a_run_would_stumble_over_is_told_unless_only_the_file_is_read(
    text: str, overrides: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(text)
    words = ["validate", "team.yaml", *(word for one in overrides for word in ("-o", one))]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    told = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert told["ok"] is False
    assert said in told["problems"][0]["message"]
    assert ": ok" in CliRunner().invoke(main, [*words, "--no-open"]).stdout


@pytest.mark.parametrize("words", [["eval"], ["run", "--input", "a"]])
def test_a_config_under_which_no_agent_acts_is_not_used(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(TEAM)
    done = CliRunner().invoke(main, [*words, "team.yaml", "-o", "policy.steps=[]"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "policy (sequence): no agent would ever act" in done.stderr


@pytest.mark.parametrize(
    ("overrides", "warnings"),
    [
        ([], []),
        (["limits.turns=1"], ["limits.turns: 1 leaves no decision"]),
        (["limits.turns=2", "policy.steps=[one,one]"], ["set 3 or more"]),
        (["limits.turns=2", "policy={use: random}"], []),
        (["limits.turns=1", "agents.stop={use: terminator}"], []),
        (["reward={use: outcome-minus-cost, measure: usd}"], ["`measure: usd` counts no cost"]),
        (["policy={use: neural}"], ["set `policy.stop: true`, or add an agent"]),
        (["policy={use: neural, stop: true}"], []),
        (["policy={use: neural}", "agents.stop={use: terminator}"], []),
        (["policy={use: neural}", f"agents.crew={CREW}"], []),
        (
            ["policy={use: neural, stop: true}", "trainer={use: reinforce}"],
            ["reward: missing: none"],
        ),
    ],
)
def test_what_works_and_comes_to_nothing_is_a_warning(
    overrides: list[str], warnings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": word, "answer": word} for word in ("a", "b", "c", "d", "e", "f")]
    team = {
        "task": {"use": "jsonl", "rows": rows},
        "agents": {"one": {"use": "function", "function": "builtins:str"}},
        "policy": {"use": "sequence", "steps": ["one"]},
    }
    (tmp_path / "team.yaml").write_text(json.dumps(team))
    words = ["team.yaml", *(word for one in overrides for word in ("-o", one))]
    told = json.loads(CliRunner().invoke(main, ["validate", *words, "--json"]).stdout)["warnings"]
    dry = json.loads(CliRunner().invoke(main, ["train", "--dry-run", *words, "--json"]).stdout)
    assert dry["warnings"] == told
    assert len(told) == len(warnings)
    assert all(said in warning for said, warning in zip(warnings, told, strict=True))
    shown = CliRunner().invoke(main, ["validate", *words]).stderr
    assert shown == "".join(f"warning: {warning}\n" for warning in told)
