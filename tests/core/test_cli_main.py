"""The command line as a whole: what is listed, what is imported, how commands end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from orchestrion import BudgetError, OrchestrionError, RunError, UsageError, _discovery
from orchestrion._cli import COMMANDS
from orchestrion.cli import main
from tests.core.plugin_support import Site, invoke


def in_process_of_its_own(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orchestrion", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)


def raising(exc: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `orchestrion boom` raise."""

    @click.command("boom")
    def boom() -> None:
        raise exc

    monkeypatch.setitem(sys.modules, "orchestrion._cli.boom", SimpleNamespace(command=boom))
    monkeypatch.setitem(COMMANDS, "boom", "Raise.")


# ------------------------------------------------------------------ what there is


def test_help_lists_the_commands_in_the_order_of_their_use() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    listed = [
        line.split()[0] for line in result.stdout.partition("Commands:")[2].splitlines() if line
    ]
    assert listed[: len(COMMANDS)] == list(COMMANDS)


def test_every_command_of_core_exists_and_carries_its_name() -> None:
    with click.Context(main) as ctx:
        for name in COMMANDS:
            command = main.get_command(ctx, name)
            assert command is not None
            assert command.name == name
            assert command.help


def test_a_mistyped_command_gets_a_hint() -> None:
    result = invoke("validte")
    assert result.exit_code == 2
    assert "no such command: validte; did you mean 'validate'?" in result.stderr


def test_a_command_of_a_plugin_that_is_missing_names_its_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_discovery, "installed", lambda group="orchestrion": [])
    result = invoke("new")
    assert result.exit_code == 2
    assert "no such command: new; install orchestrion-scaffold, which supplies it" in result.stderr


def test_version_is_printed() -> None:
    assert invoke("--version").stdout == "orchestrion 0.2.0\n"


# ------------------------------------------------------------------ how commands end


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (UsageError("wrong"), 2),
        (RunError("failed"), 1),
        (BudgetError("used up"), 4),
        (OrchestrionError("other"), 1),
    ],
)
def test_errors_raised_on_purpose_are_a_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, exc: OrchestrionError, code: int
) -> None:
    raising(exc, monkeypatch)
    result = invoke("boom")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"error: {exc}\n"


def test_unexpected_errors_are_one_line_unless_debug_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raising(KeyError("two\nlines"), monkeypatch)
    result = invoke("boom")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "re-run with --debug" in result.stderr
    for args in (("--debug", "boom"), ("boom", "--debug")):
        assert "Traceback" in invoke(*args).stderr


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(KeyboardInterrupt(), monkeypatch)
    result = invoke("boom")
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr


def test_a_closed_pipe_is_no_traceback() -> None:
    script = f"{sys.executable} -m orchestrion schema | head -c 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300)
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


# ------------------------------------------------------------------ commands of plugins

COMMAND = """
import click

@click.command("greet")
def greet():
    click.echo("hello")

nothing = 3
"""


def add_command(site: Site, name: str, distribution: str, value: str, source: str) -> None:
    module = value.partition(":")[0]
    site.add(distribution, {"orchestrion.commands": {name: value}}, {module: source})


def test_a_plugins_command_is_listed_from_metadata_and_imported_when_invoked(site: Site) -> None:
    add_command(site, "greet", "orchestrion-greet", "greet_cli:greet", COMMAND)
    result = invoke("--help")
    assert "greet" in result.stdout
    assert "from orchestrion-greet 1.0" in result.stdout
    assert "greet_cli" not in sys.modules
    assert invoke("greet").stdout == "hello\n"


def test_a_plugins_command_cannot_replace_one_of_core(site: Site) -> None:
    add_command(site, "validate", "orchestrion-evil", "evil_cli:greet", COMMAND)
    assert "from orchestrion-evil" not in invoke("--help").stdout
    assert "hello" not in invoke("validate", "--help").stdout
    assert "evil_cli" not in sys.modules


def test_two_suppliers_of_one_command_are_an_error_naming_both(site: Site) -> None:
    add_command(site, "greet", "first", "greet_one:greet", COMMAND)
    add_command(site, "greet", "second", "greet_two:greet", COMMAND)
    assert "from first 1.0 and from second 1.0" in invoke("--help").stdout
    result = invoke("greet")
    assert result.exit_code == 2
    assert "both first 1.0 and second 1.0 supply a command 'greet'" in result.stderr
    assert invoke("--block", "first", "greet").stdout == "hello\n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('no')", "cannot be loaded: RuntimeError: no"),
        ("import sys; sys.exit(0)", "cannot be loaded: SystemExit: 0"),
        ("greet = 3", "is a int, not a click command"),
    ],
)
def test_a_broken_command_names_its_distribution(site: Site, source: str, reason: str) -> None:
    add_command(site, "greet", "orchestrion-greet", "greet_bad:greet", source)
    result = invoke("greet")
    assert result.exit_code == 2
    assert f"command 'greet' of orchestrion-greet 1.0 {reason}" in result.stderr
    assert invoke("--help").exit_code == 0


# ------------------------------------------------------------------ completion and schema


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "_ORCHESTRION_COMPLETE" in result.stdout


def test_completion_of_commands_imports_none_of_them() -> None:
    env = {
        **os.environ,
        "_ORCHESTRION_COMPLETE": "bash_complete",
        "COMP_WORDS": "orchestrion va",
        "COMP_CWORD": "1",
    }
    done = in_process_of_its_own(env=env)
    assert "plain,validate" in done.stdout
    assert "plain,train" not in done.stdout


def test_schema_prints_json_and_writes_files(tmp_path: Path) -> None:
    assert json.loads(invoke("schema").stdout)["title"] == "Orchestrion config"
    result = invoke("schema", "--output", str(tmp_path / "s.json"))
    assert result.stdout == ""
    assert json.loads((tmp_path / "s.json").read_text())["type"] == "object"


@pytest.mark.parametrize(("words", "collected"), [("plugins", True), ("validate none.yaml", False)])
def test_validate_alone_ends_without_a_search_for_cycles(words: str, collected: bool) -> None:
    code = f"""
import os, sys
from orchestrion.cli import main
class InACycle:
    def __del__(self, write=os.write):
        write(1, b"collected")
value, sys.argv = InACycle(), ["orchestrion", *{words.split()}]
main()
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.stdout.endswith("collected") is collected, result.stderr
