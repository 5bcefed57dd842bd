"""A plugin that does not work hurts only those who use it, and is reported by name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.packaging.environments import run_cli
from tests.packaging.made_up import BROKEN, broken_plugins, config

pytestmark = pytest.mark.packaging

GOOD = "orchestrion-left:only-left"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broken_plugins(tmp_path_factory.mktemp("broken"))


# ---------------------------------------------------------------- nobody else is hurt


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "plugins",
        "plugins --json",
        "plugins orchestrion-left",
        "runs list",
        "schema",
        "completion bash",
        "train --help",
        "check orchestrion-left",
        "new agent my-critic",
    ],
)
def test_other_commands_work(command: str, broken: Path, tmp_path: Path) -> None:
    run_cli(*command.split(), plugins=broken, cwd=tmp_path)


def test_a_config_that_uses_only_working_plugins_is_valid_and_runs(
    broken: Path, tmp_path: Path
) -> None:
    path = config(tmp_path, GOOD)
    run_cli("validate", path, plugins=broken, cwd=tmp_path)
    done = run_cli("run", path, "--input", "hello", plugins=broken, cwd=tmp_path)
    assert "hello" in done.stdout


def test_a_config_that_names_its_distributions_imports_no_other(
    broken: Path, tmp_path: Path
) -> None:
    run_cli("validate", config(tmp_path, GOOD), plugins=broken, seen=tmp_path / "seen")
    assert _packages(tmp_path / "seen") == {"left", "parrot"}


def test_what_a_plugin_prints_while_it_is_imported_spoils_no_json(
    broken: Path, tmp_path: Path
) -> None:
    done = run_cli("plugins", "--components", "--json", plugins=broken, cwd=tmp_path)
    assert json.loads(done.stdout)["plugins"]


# ---------------------------------------------------------------- what is wrong, and whose fault


@pytest.mark.parametrize(("command", "code"), [("plugins --components", 0), ("doctor", 3)])
def test_a_report_names_each_distribution_its_version_and_the_reason(
    command: str, code: int, broken: Path, tmp_path: Path
) -> None:
    done = run_cli(*command.split(), plugins=broken, cwd=tmp_path, code=code)
    text = _squeezed(done.stdout + done.stderr)
    for fault in BROKEN:
        assert fault.distribution + fault.version in text
        assert _squeezed(fault.says) in text
    assert "orchestrion-first1.8" in text, "which both claim one name"
    assert "orchestrion-second1.9" in text
    if command == "doctor":
        for words in ("critic", "orchestrion-left", "orchestrion-right"):
            assert words in text, "which both supply one agent"
        assert "orchestrion_hollow.speaker" in text, "which does not exist"


def test_a_config_that_needs_a_broken_plugin_gets_the_reason(broken: Path, tmp_path: Path) -> None:
    fault = BROKEN[0]
    path = config(tmp_path, f"{fault.distribution}:{fault.name}")
    done = run_cli("validate", path, plugins=broken, cwd=tmp_path, code=2)
    text = _squeezed(done.stderr)
    assert fault.distribution + fault.version in text
    assert _squeezed(fault.says) in text
    assert "orchestrion.yaml:3" in done.stderr, "the line of the agent"


def _packages(seen: Path) -> set[str]:
    """Packages of plugins among the imported modules, without the project's name."""
    tops = {name.partition(".")[0] for name in seen.read_text().split()}
    return {name.removeprefix("orchestrion_") for name in tops if name.startswith("orchestrion_")}


def _squeezed(text: str) -> str:
    """The text without the line breaks and borders of tables, which depend on the width."""
    return re.sub(r"[\s│|]+", "", text)
