"""`orchestrion new` writes packages that work as they are."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from orchestrion_scaffold.package import KINDS, Package, render, write

from orchestrion import UsageError
from orchestrion._config.nodes import Problems
from orchestrion._config.sources import read_tree
from orchestrion._plugins import Plugins
from orchestrion._schema import Schema
from tests.core.plugin_support import Site, invoke


def new(*args: str) -> Result:
    return invoke("new", *args)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("orchestrion_"):
            del sys.modules[name]


def test_it_prints_the_three_next_commands(here: Path) -> None:
    result = new("agent", "my-critic")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "wrote orchestrion-my-critic; next:",
        "  pip install -e './orchestrion-my-critic[testing,example]'",
        "  orchestrion check my-critic",
        "  orchestrion eval ./orchestrion-my-critic/example.yaml",
    ]


def test_a_package_has_what_a_distribution_needs(here: Path) -> None:
    new("agent", "my-critic", "--dir", "sub dir")
    folder = here / "sub dir" / "orchestrion-my-critic"
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["build-system"]["build-backend"] == "flit_core.buildapi"
    assert project["project"]["name"] == "orchestrion-my-critic"
    assert project["project"]["dependencies"] == ["orchestrion>=0.2,<0.3"]
    entry_points = project["project"]["entry-points"]["orchestrion"]
    assert entry_points == {"my-critic": "orchestrion_my_critic.plugin"}
    files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert files == [
        "README.md",
        "example.yaml",
        "pyproject.toml",
        "src/orchestrion_my_critic/__init__.py",
        "src/orchestrion_my_critic/example_task.py",
        "src/orchestrion_my_critic/my_critic.py",
        "src/orchestrion_my_critic/plugin.py",
        "src/orchestrion_my_critic/py.typed",
        "tests/test_conformance.py",
        "tests/test_my_critic.py",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_generated_loads_and_its_components_can_be_configured(
    here: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert new(kind, f"tiny-{kind}").exit_code == 0
    monkeypatch.syspath_prepend(f"orchestrion-tiny-{kind}/src")
    plugins = Plugins(path=[], env={})
    plugins.register(
        importlib.import_module(f"orchestrion_tiny_{kind}.plugin"), f"orchestrion-tiny-{kind}"
    )
    schema = Schema(plugins)
    schema.document()
    assert schema.problems == []
    assert plugins.find(kind, f"tiny-{kind}")
    example = (here / f"orchestrion-tiny-{kind}" / "example.yaml").read_text()
    assert f"{{use: orchestrion-tiny-{kind}:tiny-{kind}" in example, "whoever else has the name"
    assert {f.kind.name for f in plugins.components()} == {kind, "agent", "task"}


def test_the_generated_tests_of_behaviour_pass(here: Path) -> None:
    for kind in KINDS:
        new(kind, f"tiny-{kind}")
    sources = [str(here / f"orchestrion-tiny-{kind}" / "src") for kind in KINDS]
    tests = [f"orchestrion-tiny-{kind}/tests/test_tiny_{kind}.py" for kind in KINDS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *tests],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sources)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "15 passed" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["my-critic", "agent", "policy", "a1-b2", "sequence"])
def test_every_file_is_complete_python_and_yaml(tmp_path: Path, kind: str, name: str) -> None:
    for path, text in render(Package.of(kind, name)).items():
        assert "$" not in text
        if path.endswith(".py"):
            compile(text, path, "exec")
            assert all(len(line) <= 100 for line in text.splitlines())
        elif path.endswith(".yaml"):
            (tmp_path / "example.yaml").write_text(text)
            problems = Problems()
            assert read_tree(tmp_path / "example.yaml", {}, problems) is not None
            assert problems.found == []


def test_a_class_never_hides_a_name_that_its_module_imports() -> None:
    assert Package.of("agent", "agent").cls == "AgentAgent"
    assert Package.of("policy", "sequence").cls == "SequencePolicy"
    assert Package.of("agent", "my-critic").cls == "MyCritic"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("My-Critic", "cannot be the name of a plugin"),
        ("my_critic", "cannot be the name of a plugin"),
        ("-x", "cannot be the name of a plugin"),
        ("x" * 51, "cannot be the name of a plugin"),
        ("../x", "cannot be the name of a plugin"),
        ("orchestrion-critic", "leave out 'orchestrion-'"),
        ("class", "is reserved"),
        ("plugin", "is reserved"),
        ("conformance", "is reserved"),
    ],
)
def test_names_that_cannot_be_used_are_refused(here: Path, name: str, reason: str) -> None:
    result = new("agent", "--", name)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert list(here.iterdir()) == []


def test_nothing_is_overwritten(here: Path) -> None:
    (here / "orchestrion-x").mkdir()
    result = new("agent", "x")
    assert result.exit_code == 2
    assert "exists; nothing was written" in result.stderr
    assert list((here / "orchestrion-x").iterdir()) == []


def test_a_link_that_leads_nowhere_is_named(here: Path) -> None:
    (here / "gone").symlink_to("nowhere")
    result = new("agent", "x", "--dir", "gone")
    assert result.exit_code == 2
    assert "gone is a link to nowhere, which is not there" in result.stderr


def test_the_name_of_an_installed_plugin_is_taken(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(here / "site"))
    Site(here / "site").plugin("mine", "")
    result = new("agent", "mine")
    assert result.exit_code == 2
    assert "taken by orchestrion-mine 1.0" in result.stderr


def test_a_package_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path.write_text

    def full(self: Path, *args: Any) -> int:
        if self.name == "plugin.py":
            raise OSError(28, os.strerror(28))
        return whole(self, *args)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError, match="cannot be written: No space left"):
        write(Package.of("agent", "mine"), tmp_path)
    assert list(tmp_path.iterdir()) == []
