"""`dev.py` makes .venv match the workspace: here on a small workspace, with no network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import dev
from tests.packaging.environments import variables
from tests.workspace import ROOT

pytestmark = pytest.mark.packaging

SETTINGS = """
[tool.orchestrion.workspace]
members = ["core", "plugins/*"]
constraints = "constraints.txt"
installer = ["pip"]
tools = []
"""
MEMBER = """
[build-system]
requires = []
build-backend = "flit_core.buildapi"
[project]
name = "{name}"
version = "{version}"
description = "for a test"
"""
SOURCE = '"""A package for a test."""\n'


class Workspace:
    """A checkout with members of no dependencies, built by the flit_core of the outer one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        shutil.copy(ROOT / "dev.py", root)
        (root / "pyproject.toml").write_text(SETTINGS)
        (root / "constraints.txt").write_text("")
        # The members' build backend comes from the environment at hand.
        self.backend = root / "backend"
        self.backend.mkdir()
        self.backend.joinpath("flit_core").symlink_to(_folder_of("flit_core"))
        self.member("core", "pocket-core")

    def member(self, path: str, name: str, version: str = "1.0") -> Path:
        folder = self.root / path
        package = folder / "src" / name.replace("-", "_")
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(SOURCE)
        (folder / "pyproject.toml").write_text(MEMBER.format(name=name, version=version))
        return folder

    def version(self, path: str) -> str:
        data = tomllib.loads((self.root / path / "pyproject.toml").read_text())
        return str(data["project"]["version"])

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "dev.py", *arguments]

    def variables(self, **more: str) -> dict[str, str]:
        return {**variables(PIP_NO_INDEX="1", PYTHONPATH=str(self.backend)), **more}

    def dev(self, *arguments: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env=self.variables(**more),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def installed(self) -> dict[str, str]:
        """Members by name, with their versions, as the environment's interpreter sees them."""
        script = (
            "import json, importlib.metadata as m\n"
            "found = {d.name: d.version for d in m.distributions()}\n"
            "print(json.dumps({n: v for n, v in found.items() if n.startswith('pocket')}))"
        )
        found: dict[str, str] = json.loads(self.dev("python", "-c", script).stdout)
        return found

    @property
    def venv(self) -> Path:
        return self.root / ".venv"


def _folder_of(package: str) -> Path:
    module = __import__(package)
    return Path(str(module.__file__)).parent


class Beginning(NamedTuple):
    """A checkout after its first set-up was killed and two runs at once came after it."""

    workspace: Workspace
    outputs: list[str]
    errors: str


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Beginning:
    workspace = Workspace(tmp_path_factory.mktemp("workspace") / "checkout")
    first = workspace.start()
    unfinished = workspace.venv / "orchestrion-unfinished"
    deadline = time.monotonic() + 60
    while not unfinished.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    first.kill()  # what it started goes on
    first.communicate()
    runs = [workspace.start("python", "-c", f"print({number})") for number in range(2)]
    outputs = [process.communicate(timeout=240) for process in runs]
    return Beginning(workspace, [out for out, _ in outputs], "".join(err for _, err in outputs))


@pytest.fixture
def workspace(beginning: Beginning) -> Workspace:
    return beginning.workspace


def test_a_killed_set_up_is_made_anew_by_one_of_two_runs_at_once(beginning: Beginning) -> None:
    assert beginning.outputs == ["0\n", "1\n"], beginning.errors
    assert beginning.errors.count("one to two minutes the first time") == 1, beginning.errors
    assert beginning.errors.count("is ready after") == 1
    assert "waiting for it" in beginning.errors
    assert not (beginning.workspace.venv / "orchestrion-unfinished").exists()


def test_members_are_installed_in_editable_form(workspace: Workspace) -> None:
    assert workspace.installed() == {"pocket-core": workspace.version("core")}
    source = workspace.root / "core/src/pocket_core/__init__.py"
    source.write_text(SOURCE + "ANSWER = 42\n")
    script = "import pocket_core; print(pocket_core.ANSWER)"
    assert workspace.dev("python", "-c", script).stdout == "42\n"


def test_a_second_run_does_nothing_but_the_command(workspace: Workspace) -> None:
    before = workspace.venv.joinpath("orchestrion-setup.log").stat().st_mtime_ns
    done = workspace.dev("python", "-c", "print('only this')")
    assert (done.stdout, done.stderr) == ("only this\n", "")
    assert workspace.venv.joinpath("orchestrion-setup.log").stat().st_mtime_ns == before


def test_the_exit_code_is_that_of_the_command(workspace: Workspace) -> None:
    workspace.dev("python", "-c", "raise SystemExit(7)", code=7)
    done = workspace.dev("no-such-command", code=127)
    assert "no command 'no-such-command'" in done.stderr


def test_the_command_finds_the_environment_first_and_may_write_byte_code(
    workspace: Workspace,
) -> None:
    script = "import sys; print(sys.prefix, sys.dont_write_bytecode)"
    done = workspace.dev("python", "-c", script, PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout.split() == [str(workspace.venv), "False"]


def test_a_new_and_a_changed_member_are_noticed(workspace: Workspace) -> None:
    workspace.member("plugins/extra", "pocket-extra")
    core = workspace.root / "core/pyproject.toml"  # keeps its version
    core.write_text(core.read_text() + "[project.scripts]\npocket = 'pocket_core:main'\n")
    assert "the workspace changed" in workspace.dev().stderr
    assert workspace.installed() == {"pocket-core": "1.0", "pocket-extra": "1.0"}
    assert list(workspace.venv.glob("*/pocket*"))


def test_a_failing_pip_is_shown_and_the_next_run_recovers_and_uninstalls_what_is_gone(
    workspace: Workspace,
) -> None:
    folder = workspace.member("plugins/broken", "pocket-broken")
    text = (folder / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(text + 'dependencies = ["no-such-thing-anywhere"]\n')
    done = workspace.dev("python", "-c", "print('must not run')", code=1)
    assert "no-such-thing-anywhere" in done.stderr
    assert "the whole log is .venv/orchestrion-setup.log" in done.stderr
    assert "must not run" not in done.stdout

    shutil.rmtree(folder)
    shutil.rmtree(workspace.root / "plugins/extra")
    assert "the workspace changed" in workspace.dev().stderr, "what was there is kept"
    assert workspace.installed() == {"pocket-core": workspace.version("core")}


def test_two_members_of_one_name_are_refused(workspace: Workspace) -> None:
    folder = workspace.member("plugins/double", "pocket-core")
    done = workspace.dev(code=1)
    shutil.rmtree(folder)
    assert "plugins/double/pyproject.toml and core are both named pocket-core" in done.stderr


def test_a_folder_that_is_no_environment_is_left_alone(workspace: Workspace) -> None:
    folder = workspace.root / "precious"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear diary")
    done = workspace.dev("--fresh", code=1, ORCHESTRION_VENV=str(folder))
    assert "is not a virtual environment" in done.stderr
    assert (folder / "letter.txt").read_text() == "dear diary"


def test_a_python_that_cannot_make_environments_gets_a_sentence(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError('No module named ensurepip')")
    elsewhere = str(tmp_path / "venv")
    done = workspace.dev(code=1, ORCHESTRION_VENV=elsewhere, PYTHONPATH=str(tmp_path))
    assert "cannot make virtual environments: No module named ensurepip" in done.stderr
    assert "python3-venv" in done.stderr


# ---------------------------------------------------------------- dev.py test --changed


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A repository of four members, of which "top" needs "middle" and that needs "core"."""
    workspace = Workspace(tmp_path / "checkout")
    for path, name, needs in (
        ("core", "pocket-core", ""),
        ("plugins/middle", "pocket-middle", "Pocket_Core>=1"),
        ("plugins/top", "pocket-top", "pocket-middle[all] ; python_version > '3'"),
        ("plugins/alone", "pocket-alone", ""),
    ):
        file = workspace.member(path, name) / "pyproject.toml"
        if needs:
            file.write_text(f"{file.read_text()}dependencies = [{needs!r}]\n")
        for folder in (f"tests/{path}", "tests/repository"):
            (workspace.root / folder).mkdir(parents=True, exist_ok=True)
    for path in dev.CORE_TESTS:
        (workspace.root / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace.root / path).touch()
    monkeypatch.setattr(dev, "ROOT", workspace.root)
    dev.git("init", "--initial-branch=main")
    dev.git("add", "-A")
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid")
    dev.git(*who, "commit", "-m", "first")
    return workspace


def lane(*options: str) -> list[str]:
    return dev.tests(dev.read_workspace().members, options)


@pytest.mark.parametrize(
    ("changed", "paths"),
    [
        ("plugins/alone/src/pocket_alone/__init__.py", ["tests/plugins/alone"]),
        ("plugins/middle/new.py", ["tests/plugins/middle", "tests/plugins/top"]),
        ("core/README.md", ["tests/core", *dev.CORE_TESTS]),
        ("tests/plugins/middle/test_new.py", ["tests/plugins/middle"]),
        ("tests/docs/test_new.py", ["tests/docs/test_new.py"]),
        ("README.md", []),
    ],
)
def test_what_changed_and_what_needs_it_is_tested(
    changed: str, paths: list[str], repository: Workspace
) -> None:
    file = repository.root / changed
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("pass\n")
    assert lane("--changed", "-q") == [*paths, "tests/repository", "-q"]


def test_a_branch_is_compared_with_where_it_began(repository: Workspace) -> None:
    assert lane("-x") == ["-x"], "everything"
    assert lane("--changed=HEAD") == ["tests/repository"]
    with pytest.raises(SystemExit):
        lane("--changed=nowhere")


def test_options_belong_before_the_command(workspace: Workspace) -> None:
    assert "has no option --frsh" in workspace.dev("--frsh", "pytest", code=2).stderr
    assert "python dev.py COMMAND" in workspace.dev("--help").stdout
