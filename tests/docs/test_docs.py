"""The documentation is executed: Python blocks, configs, commands; references are up to date."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from orchestrion import __version__
from orchestrion._config.nodes import Problems, Source
from orchestrion._config.yaml import read_yaml
from orchestrion._plugins import Plugins
from orchestrion.config import from_data
from tests import warm
from tests.docs.pages import ROOT, blocks, commands, matches, pages
from tests.end_to_end.support import called

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
EDITABLE = re.compile(r"pip install -e '?\./(orchestrion-[a-z-]+)")
TRAINING = re.compile(r"\btrain\b|\bpip install|dev\.py|venv/bin/activate")


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "docs"}
    for block in blocks(page):
        if block.language == "python" and "norun" not in block.info:
            code = compile("\n" * block.line + block.text, block.page, "exec")
            exec(code, space)


def test_the_example_of_core_prints_what_its_readme_says() -> None:
    page = ROOT / "core" / "README.md"
    [example] = [block.text for block in blocks(page) if block.language == "python"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, check=True
    )
    assert f"It prints `{done.stdout.strip()}`" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_yaml_blocks_are_yaml_1_2(page: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml":
            problems = Problems()
            read_yaml(block.text, Source(block.page, ROOT), problems)
            assert not problems.found, f"{block.page}:{block.line}: {problems.found}"


@pytest.mark.parametrize("example", sorted((ROOT / "docs" / "examples").glob("*.yaml")), ids=str)
def test_every_example_is_a_valid_config(example: Path) -> None:
    from orchestrion_sweep.plan import read_plan

    from orchestrion.config import load

    config = read_plan(example).base if example.stem == "sweep" else load(example)
    assert from_data(config.resolved(), plugins=Plugins()).digest == config.digest


@pytest.fixture(scope="module")
def bin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an `orchestrion` that starts sooner than the one of the environment."""
    folder = tmp_path_factory.mktemp("bin")
    warm.put_on_path(folder)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_commands_do_what_is_shown(page: Path, bin: Path, tmp_path: Path) -> None:
    """Except those that train for minutes or install from an index: others try these.

    A block whose fence names a file stands in the folder of the commands.
    """
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(bin), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "VIRTUAL_ENV": sys.prefix,
        "COLUMNS": "100",
        "PYTHONPATH": str(tmp_path / "site"),
    }
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        if block.language != "console" or "norun" in block.info:
            continue
        for one in commands(block):
            if package := EDITABLE.search(one.line):
                _put_on_path(tmp_path / package[1], tmp_path / "site")
                continue
            if TRAINING.search(one.line) and "run" not in block.info.split():
                continue
            done = _run(one.line, tmp_path, environment)
            where = f"{block.page}:{block.line}: $ {one.line}"
            assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
            if one.shown.strip():
                assert matches(one.shown, done.stdout), f"{where}\n{done.stdout}"


def _run(line: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell does; a plain `orchestrion` command needs none, nor a process."""
    if line.startswith("orchestrion ") and not set(line) & set("$`*?~|&;<>()\\"):
        return called(shlex.split(line, comments=True)[1:], folder, env)
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _put_on_path(package: Path, site: Path) -> None:
    """What `pip install -e` does, without pip: the source is found, and so is its entry point."""
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = project["name"].replace("-", "_")
    info = site / f"{name}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (site / name).symlink_to(package / "src" / name)
    needs = f"Requires-Dist: orchestrion=={__version__}"
    facts = (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n{needs}\n"
    )
    (info / "METADATA").write_text(facts, encoding="utf-8")
    points = project["entry-points"]["orchestrion"]
    lines = "".join(f"{key} = {value}\n" for key, value in points.items())
    (info / "entry_points.txt").write_text(f"[orchestrion]\n{lines}", encoding="utf-8")


def test_the_reference_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "build_reference.py"))
    for name, page in script["PAGES"].items():
        stored = (ROOT / "docs" / "reference" / name).read_text()
        assert stored == script["NOTE"] + page(), f"{name}: run docs/build_reference.py"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a ... c", "a b c", True),
        ("a\n...\nc", "a\nb\nb\nc", True),
        ("...\nb ...\n...", "a\nb 1\nc", True),
        ("...\nb ...\n...", "a\nc", False),
        ("a", "a b", False),
        ("a   b", "a b", True),
        ("1.5", "125", False),
    ],
)
def test_what_is_shown_is_compared_with_what_is_printed(
    shown: str, printed: str, same: bool
) -> None:
    assert matches(shown, printed) is same
