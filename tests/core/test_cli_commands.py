"""validate, plugins, doctor, check, init: what they print and how they end."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrion._cli import init
from orchestrion.cli import main
from tests.core.plugin_support import PARTS, Site, hooks_of, invoke

SUPPLIES = f"""{hooks_of("cli_parts", PARTS)}
@hookimpl
def orchestrion_run_finished(status):
    pass
"""
GOOD = "task: {use: toy}\nagents:\n  a: {use: echo}\npolicy: {use: order}\n"


@pytest.fixture(autouse=True)
def parts(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which only some plugins are allowed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCHESTRION_PLUGINS", "parts,bad,late")
    site.plugin("parts", SUPPLIES, cli_parts=PARTS)


def data(result: Result) -> Any:
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    return document


# ------------------------------------------------------------------ validate


def test_a_good_config_is_ok_and_summed_up(tmp_path: Path) -> None:
    (tmp_path / "orchestrion.yaml").write_text(GOOD)
    result = invoke("validate")
    assert result.exit_code == 0
    assert result.stdout.startswith("orchestrion.yaml: ok\n")
    assert "plugins: orchestrion-parts 1.0" in result.stdout


def test_a_bad_config_exits_with_2_and_its_problems(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(GOOD + "limits: {turns: 0}\n")
    result = invoke("validate", "c.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "c.yaml:5: limits.turns: must be at least 1" in result.stderr
    document = data(invoke("validate", "c.yaml", "--json"))
    assert document["ok"] is False
    assert document["problems"] == [
        {
            "file": "c.yaml",
            "line": 5,
            "path": "limits.turns",
            "message": "must be at least 1, got 0 (an integer)",
        }
    ]


def test_overrides_and_json_and_resolved(tmp_path: Path) -> None:
    (tmp_path / "orchestrion.yaml").write_text(GOOD)
    document = data(invoke("validate", "--json", "--resolved", "-o", "agents.a.times=4"))
    assert document["ok"] is True
    assert document["roster"] == ["agents.a"]
    assert document["resolved"]["agents"]["a"]["times"] == 4
    assert "times: 1" in invoke("validate", "--resolved").stdout
    assert invoke("validate", "-o", "agents.a.times=40").exit_code == 2


def test_a_folder_stands_for_the_config_in_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "orchestrion.yml").write_text("seed: -1")
    result = invoke("validate", "sub")
    assert result.exit_code == 2
    assert "sub/orchestrion.yml:1: seed: must be at least 0" in result.stderr


@pytest.mark.parametrize("args", [(), ("none.yaml",), ("empty",)])
def test_a_config_that_is_not_there_is_a_usage_error(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "empty").mkdir()
    result = invoke("validate", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no" in result.stderr


def test_a_blocked_plugin_is_missing_to_a_config(tmp_path: Path) -> None:
    (tmp_path / "orchestrion.yaml").write_text(GOOD)
    for args in (("--block", "parts", "validate"), ("validate", "--block", "parts")):
        result = invoke(*args)
        assert result.exit_code == 2
        assert "blocked plugins might: " in result.stderr


# ------------------------------------------------------------------ plugins


def test_plugins_are_listed_from_metadata(site: Site) -> None:
    site.plugin("bad", "raise RuntimeError('imported')")
    listed = {p["name"]: p for p in data(invoke("plugins", "--json"))["plugins"]}
    assert listed["bad"]["state"] == "installed"
    assert listed["parts"]["distribution"] == "orchestrion-parts"
    assert "bad_plugin" not in sys.modules
    assert "orchestrion-parts 1.0" in invoke("plugins").stdout


def test_components_are_listed_by_loading_and_broken_plugins_degrade(site: Site) -> None:
    site.plugin("bad", "import no_such_library")
    result = invoke("plugins", "--components")
    assert result.exit_code == 0
    assert re.search("agent +echo +says something", result.stdout)
    assert "broken" in result.stdout
    assert "No module named 'no_such_library'" in result.stdout
    listed = {p["name"]: p for p in data(invoke("plugins", "--components", "--json"))["plugins"]}
    assert listed["parts"]["components"][0] == {
        "kind": "agent",
        "name": "echo",
        "summary": "says something",
        "version": "1",
    }
    assert "cli_parts" not in sys.modules, "classes are not needed for a listing"


def test_one_plugin_is_shown_with_the_settings_of_its_components() -> None:
    result = invoke("plugins", "parts")
    assert "agent echo: says something" in result.stdout
    assert "one of 'a', 'b', 3" in result.stdout
    assert "orchestrion_run_finished" in result.stdout
    detail = data(invoke("plugins", "parts", "--json"))["plugin"]
    settings = {s["name"]: s for s in detail["components"][0]["settings"]}
    assert settings["text"]["learnable"] is True
    assert settings["text"]["help"] == "what to say, always."
    assert settings["times"]["default"] == 1


def test_a_component_is_shown_by_its_name() -> None:
    output = invoke("plugins", "echo").stdout
    assert "agent echo: says something" in output
    assert "agent team" not in output
    assert max(map(len, output.splitlines())) <= 80
    detail = data(invoke("plugins", "echo", "--json"))["plugin"]
    assert [component["name"] for component in detail["components"]] == ["echo"]
    for name, hint in (("ehco", "echo"), ("part", "parts")):
        unknown = invoke("plugins", name)
        assert (unknown.exit_code, f"did you mean '{hint}'?" in unknown.stderr) == (2, True)


# ------------------------------------------------------------------ doctor


def findings(*args: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    result = invoke("doctor", "--json", *args)
    found: dict[str, list[tuple[str, str]]] = {}
    for finding in data(result)["findings"]:
        found.setdefault(finding["topic"], []).append((finding["state"], finding["text"]))
    return result.exit_code, found


def test_doctor_finds_nothing_wrong_where_nothing_is() -> None:
    code, found = findings()
    assert code == 0
    assert found["plugin parts"][0][1].startswith("orchestrion-parts 1.0, 7 components")
    assert invoke("doctor").stdout.endswith("no problems\n")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_library", "orchestrion-bad 1.0 is broken: ModuleNotFoundError"),
        ("@hookimpl\ndef orchestrion_agent(): return []", "did you mean 'orchestrion_agents'?"),
        ("ORCHESTRION_API = 99", "orchestrion-bad 1.0 is incompatible"),
        (
            "@hookimpl\ndef orchestrion_agents(): yield Component('x', 'no_such_module:X', '')",
            "agent 'x' of plugin 'bad' (orchestrion-bad 1.0) cannot be imported",
        ),
        (
            "@hookimpl\ndef orchestrion_components(): yield 'judge', Component('x', 'm:X', '')",
            "of kind 'judge', which no installed",
        ),
    ],
)
def test_doctor_says_what_is_wrong_and_whose_fault_it_is(
    site: Site, source: str, words: str
) -> None:
    site.plugin("bad", source)
    code, found = findings()
    assert code == 3
    (finding,) = found["plugin bad"]
    assert finding[0] == "problem"
    assert words in finding[1]


def test_doctor_shows_names_of_keys_and_never_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    (tmp_path / "orchestrion.yaml").write_text('x: "${env:HERE}"\ny: "${env:MISSING}"\n')
    (tmp_path / ".env").write_text("HERE=sk-secret\n")
    code, found = findings()
    assert code == 3
    assert ("ok", "HERE is set") in found["keys"]
    assert ("problem", "MISSING is not set, and the config here needs it") in found["keys"]
    assert ("ok", "SOME_API_KEY is set") in found["keys"]
    assert "sk-secret" not in invoke("doctor").output


def test_doctor_warns_of_switched_off_byte_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "byte code" in findings()[1]
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    assert "byte code" not in findings()[1]


def test_doctor_names_two_distributions_that_supply_one_name(site: Site) -> None:
    hook = "@hookimpl\ndef orchestrion_agents(): yield Component('x', 'm:X', '')"
    for name, side in (("bad", "left"), ("late", "right")):
        site.plugin(name, hook, distribution=f"orchestrion-{side}")
    code, found = findings()
    assert code == 3
    [(state, text)] = found["components"]
    assert state == "problem"
    assert text.startswith("agent 'x' is supplied by orchestrion-left 1.0 and orchestrion-right")


# ------------------------------------------------------------------ beside broken plugins


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "plugins --json",
        "plugins --components --json",
        "plugins parts",
        "runs list",
        "schema",
        "completion bash",
        "train --help",
        "validate",
        "validate --json",
    ],
)
def test_a_command_works_beside_plugins_that_do_not(
    site: Site, tmp_path: Path, command: str
) -> None:
    (tmp_path / "orchestrion.yaml").write_text(GOOD)
    site.plugin("bad", "print('noise')\nraise SystemExit(7)")
    site.plugin("late", "import no_such_library")
    result = invoke(*command.split())
    assert result.exit_code == 0
    assert "noise" not in result.stdout
    if "json" in command:
        assert json.loads(result.stdout)["schema"]


def test_a_config_that_needs_a_broken_plugin_gets_the_line_and_the_reason(
    site: Site, tmp_path: Path
) -> None:
    site.plugin("bad", "raise RuntimeError('it fell over')")
    (tmp_path / "orchestrion.yaml").write_text(GOOD.replace("echo", "orchestrion-bad:echo"))
    result = invoke("validate")
    assert result.exit_code == 2
    assert "orchestrion.yaml:3: agents.a.use: plugin 'bad' (orchestrion-bad 1.0)" in result.stderr
    assert "RuntimeError: it fell over" in result.stderr


# ------------------------------------------------------------------ check


class Check:
    """A check as the kit yields it."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.component, self.name, self.error = "agent echo", name, error

    def run(self) -> int:
        if self.error is not None:
            raise self.error
        return 25


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """A conformance kit that yields these checks."""
    found: list[Check] = []
    module = types.ModuleType("orchestrion.testing._kit")
    module.__dict__["checks"] = lambda plugin: iter(found)
    monkeypatch.setitem(sys.modules, "orchestrion.testing._kit", module)
    return found


def test_check_reports_every_check_with_counts(kit: list[Check]) -> None:
    kit += [Check("is frozen"), Check("acts")]
    result = invoke("check", "parts")
    assert result.exit_code == 0
    assert "ok   parts agent echo is frozen\n" in result.stdout
    assert "2 checks of 1 components, 50 examples" in result.stdout
    assert "none failed" in result.stdout


def test_check_exits_with_3_when_one_fails(kit: list[Check]) -> None:
    kit += [
        Check("is frozen"),
        Check("acts", AssertionError("it says nothing")),
        Check("x", KeyError("k")),
    ]
    result = invoke("check", "parts")
    assert result.exit_code == 3
    assert "FAIL parts agent echo acts\n       it says nothing\n" in result.stdout
    assert "KeyError: 'k'" in result.stdout
    document = data(invoke("check", "parts", "--json"))
    assert [c["ok"] for c in document["checks"]] == [True, False, False]


def test_a_plugin_with_nothing_to_check_fails(kit: list[Check]) -> None:
    assert invoke("check", "parts").exit_code == 3


def test_a_plugin_that_cannot_be_loaded_cannot_be_checked(site: Site, kit: list[Check]) -> None:
    site.plugin("bad", "import no_such_library")
    assert invoke("check", "bad").exit_code == 2


# ------------------------------------------------------------------ init


def test_init_writes_a_config_that_is_valid_also_with_the_settings_in_its_comments(
    tmp_path: Path,
) -> None:
    result = invoke("init", "--task", "toy", "--agent", "echo", "--policy", "order", "--yes")
    assert result.exit_code == 0
    assert "it can be read" in result.stderr
    assert json.loads((tmp_path / "orchestrion.schema.json").read_text())["title"]
    assert invoke("validate").exit_code == 0
    text = (tmp_path / "orchestrion.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=orchestrion.schema.json\n")
    assert "    # times: 1 # how often.\n" in text
    head, _, rest = text.partition("task:\n")
    # "    # times: 1 # how often." is a setting; "# reward: {use: ...} # one of: ..." is none.
    settings = re.sub(r"^( +)# (?=\w+: )", r"\1", rest, flags=re.MULTILINE)
    (tmp_path / "orchestrion.yaml").write_text(f"{head}task:\n{settings}")
    assert "\n    times: 1 #" in settings
    result = invoke("validate")
    assert result.exit_code == 0, result.stderr


def test_init_names_every_agent_apart_and_shows_settings_without_a_default(tmp_path: Path) -> None:
    words = ["init", "--task", "toy", "--agent", "echo", "--agent", "echo", "--policy", "order"]
    result = invoke(*words, "--yes")
    assert "it can be read" in result.stderr
    text = (tmp_path / "orchestrion.yaml").read_text()
    assert re.findall(r"^  (\w+):$", text, re.MULTILINE) == ["echo", "echo_2"]


def test_init_gives_a_team_that_is_to_be_trained_an_agent_that_ends_the_episode(
    site: Site, tmp_path: Path
) -> None:
    site.plugin(
        "late",
        """
@hookimpl
def orchestrion_agents():
    yield Component("terminator", "cli_parts:Echo", "ends the episode")

@hookimpl
def orchestrion_trainers():
    yield Component("drill", "cli_parts:Order", "trains")
""",
    )
    words = ["init", "--task", "toy", "--agent", "echo", "--policy", "order", "--yes", "--force"]
    for more, agents in (([], ["echo"]), (["--trainer", "drill"], ["echo", "terminator"])):
        assert invoke(*words, *more).exit_code == 0
        text = (tmp_path / "orchestrion.yaml").read_text()
        assert re.findall(r"^  (\w+):$", text, re.MULTILINE) == agents


def test_init_without_choices_lists_what_there_is_and_what_is_missing(tmp_path: Path) -> None:
    result = invoke("init", "new/c.yaml", "--yes")
    assert result.exit_code == 0
    assert "still to be filled in" in result.stderr
    assert "# policy: {use: ...} # one of: order" in (tmp_path / "new" / "c.yaml").read_text()


def test_init_asks_on_a_terminal_for_what_no_option_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = types.SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(init, "sys", types.SimpleNamespace(stdin=terminal, stderr=terminal))
    result = CliRunner().invoke(main, ["init", "--task", "toy"], input="echo, echo\norder\n\n\n")
    assert "agent: echo, team\nagent (several: with commas): " in result.stderr
    assert "reward (empty: none): " in result.stderr
    assert "it can be read" in result.stderr
    text = (tmp_path / "orchestrion.yaml").read_text()
    assert re.findall(r"^  (\w+):$", text, re.MULTILINE) == ["echo", "echo_2"]


def test_init_overwrites_nothing_unless_told_to(tmp_path: Path) -> None:
    (tmp_path / "orchestrion.yaml").write_text("mine")
    assert invoke("init", "--yes").exit_code == 2
    assert (tmp_path / "orchestrion.yaml").read_text() == "mine"
    assert invoke("init", "--yes", "--force").exit_code == 0


def test_init_refuses_components_that_are_not_there(tmp_path: Path) -> None:
    result = invoke("init", "--task", "toys", "--yes")
    assert result.exit_code == 2
    assert "did you mean 'toy'?" in result.stderr
    assert not (tmp_path / "orchestrion.yaml").exists()
