"""A plugin that does not work hurts only those who use it, and is reported by name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.packaging.environments import run_cli
from tests.packaging.made_up import BROKEN, Fault, broken_plugins, config

pytestmark = pytest.mark.packaging

GOOD = "orchestrion-left:only-left"

every_fault = pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.name)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broken_plugins(tmp_path_factory.mktemp("broken"))


@pytest.fixture(scope="module")
def components(broken: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `plugins --components` prints; it lists, so problems do not make it fail."""
    folder = tmp_path_factory.mktemp("components")
    return run_cli("plugins", "--components", plugins=broken, cwd=folder).stdout


@pytest.fixture(scope="module")
def doctor(broken: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `doctor` prints; 3 is its exit code for problems."""
    folder = tmp_path_factory.mktemp("doctor")
    done = run_cli("doctor", plugins=broken, cwd=folder, code=3)
    return done.stdout + done.stderr


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


@pytest.mark.parametrize("command", ["--help", "--version", "plugins", "runs list"])
def test_commands_that_need_no_plugin_import_none(
    command: str, broken: Path, tmp_path: Path
) -> None:
    """So that the one that takes a second to import costs them nothing."""
    run_cli(*command.split(), plugins=broken, cwd=tmp_path, seen=tmp_path / "seen")
    assert _packages(tmp_path / "seen") == set()


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


@every_fault
def test_components_and_doctor_name_distribution_version_and_reason(
    fault: Fault, components: str, doctor: str
) -> None:
    for report in (components, doctor):
        text = _squeezed(report)
        assert fault.distribution + fault.version in text
        assert _squeezed(fault.says) in text


@every_fault
def test_a_config_that_needs_a_broken_plugin_gets_the_reason(
    fault: Fault, broken: Path, tmp_path: Path
) -> None:
    path = config(tmp_path, f"{fault.distribution}:{fault.name}")
    done = run_cli("validate", path, plugins=broken, cwd=tmp_path, code=2)
    text = _squeezed(done.stderr)
    assert fault.distribution + fault.version in text
    assert _squeezed(fault.says) in text
    assert "orchestrion.yaml:3" in done.stderr, "the line of the agent"


def test_a_name_claimed_by_two_distributions_names_both(
    components: str, doctor: str, broken: Path, tmp_path: Path
) -> None:
    listing = run_cli("plugins", plugins=broken, cwd=tmp_path).stdout
    path = config(tmp_path, "twin:from-first")
    refused = run_cli("validate", path, plugins=broken, cwd=tmp_path, code=2).stderr
    for report in (components, doctor, listing, refused):
        assert "orchestrion-first1.8" in _squeezed(report)
        assert "orchestrion-second1.9" in _squeezed(report)
    by_distribution = config(tmp_path, "orchestrion-second:from-second")
    run_cli("validate", by_distribution, plugins=broken, cwd=tmp_path)


def test_a_component_supplied_by_two_needs_its_distribution(broken: Path, tmp_path: Path) -> None:
    path = config(tmp_path, "critic")
    done = run_cli("validate", path, plugins=broken, cwd=tmp_path, code=2)
    assert "orchestrion-left:critic" in done.stderr
    assert "orchestrion-right:critic" in done.stderr
    run_cli("validate", config(tmp_path, "orchestrion-left:critic"), plugins=broken, cwd=tmp_path)


def test_doctor_names_the_component_that_two_supply(doctor: str) -> None:
    text = _squeezed(doctor)
    assert "critic" in text
    assert "orchestrion-left" in text
    assert "orchestrion-right" in text


def test_doctor_names_a_component_whose_module_is_missing(doctor: str) -> None:
    text = _squeezed(doctor)
    assert "from-hollow" in text
    assert "orchestrion_hollow.speaker" in text


# ---------------------------------------------------------------- blocking


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_blocked_plugin_is_not_imported_and_listed_as_blocked(
    how: str, broken: Path, tmp_path: Path
) -> None:
    option = ("--block", "slow", "--block", "orchestrion-raises") if how == "option" else ()
    done = run_cli(
        *(*option, "plugins", "--components", "--json"),
        plugins=broken,
        cwd=tmp_path,
        block="" if option else "slow,orchestrion-raises",
        seen=tmp_path / "seen",
    )
    states = {item["name"]: item["state"] for item in json.loads(done.stdout)["plugins"]}
    assert (states["slow"], states["raises"]) == ("blocked", "blocked")
    assert states["lacks"] == "broken"
    packages = _packages(tmp_path / "seen")
    assert "lacks" in packages
    assert packages & {"slow", "raises"} == set()


def test_the_allow_list_leaves_everything_else_unimported(broken: Path, tmp_path: Path) -> None:
    arguments = ("plugins", "--components")
    run_cli(*arguments, plugins=broken, allow="left,parrot", seen=tmp_path / "seen")
    assert _packages(tmp_path / "seen") == {"left", "parrot"}


def _packages(seen: Path) -> set[str]:
    """Packages of plugins among the imported modules, without the project's name."""
    tops = {name.partition(".")[0] for name in seen.read_text().split()}
    return {name.removeprefix("orchestrion_") for name in tops if name.startswith("orchestrion_")}


def _squeezed(text: str) -> str:
    """The text without the line breaks and borders of tables, which depend on the width."""
    return re.sub(r"[\s│|]+", "", text)
