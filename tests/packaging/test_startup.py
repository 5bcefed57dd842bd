"""Commands that only list or help are quick, however many plugins are installed: they import
little. Times are printed by `python -m tests.benchmarks.startup`; here only imports count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.packaging.environments import run_cli
from tests.packaging.made_up import DUMMIES, dummy_plugins

pytestmark = pytest.mark.packaging

HEAVY = {"torch", "numpy", "anthropic", "openai", "hypothesis"}
LATE = {"attr", "structlog", "rich", "cattrs", "msgspec", "pluggy", "ruamel", "sqlite3", "asyncio"}


@pytest.fixture(scope="module")
def fifty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty plugins, each of which imports hypothesis when it is imported itself."""
    return dummy_plugins(tmp_path_factory.mktemp("fifty"), heading="import hypothesis\n")


def imported(*arguments: str, folder: Path, plugins: Path | None = None) -> set[str]:
    """Every module that a command imports, whole names and those above them."""
    run_cli(*arguments, plugins=plugins, cwd=folder, seen=folder / "seen")
    names = (folder / "seen").read_text().split()
    assert "orchestrion._cli" in names
    return {part for name in names for part in (name, name.partition(".")[0])}


@pytest.mark.parametrize(
    "command", ["--help", "--version", "plugins", "plugins --json", "train --help", "runs list"]
)
def test_listing_and_help_import_no_plugin_and_nothing_heavy(
    command: str, fifty: Path, tmp_path: Path
) -> None:
    modules = imported(*command.split(), folder=tmp_path, plugins=fifty)
    assert modules & HEAVY == set()
    assert [name for name in modules if name.startswith(("orchestrion_", "dummy_"))] == []
    if command in ("--help", "plugins", "plugins --json"):
        assert modules & LATE == set(), "only other commands need it"


def test_all_fifty_are_listed(fifty: Path) -> None:
    listed = json.loads(run_cli("plugins", "--json", plugins=fifty).stdout)["plugins"]
    names = {plugin["name"] for plugin in listed if plugin["name"].startswith("dummy-")}
    assert len(names) == DUMMIES
    assert run_cli("plugins", plugins=fifty).stdout.count("dummy-") >= DUMMIES


def test_what_components_import_would_be_noticed(fifty: Path, tmp_path: Path) -> None:
    modules = imported("plugins", "--components", folder=tmp_path, plugins=fifty)
    assert "hypothesis" in modules
    assert "dummy_00_plugin" in modules


def test_listing_the_components_of_every_member_imports_nothing_heavy(tmp_path: Path) -> None:
    modules = imported("plugins", "--components", folder=tmp_path)
    assert modules & HEAVY == set()
