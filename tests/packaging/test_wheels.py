"""Each member is a distribution that works when it is installed from its wheel."""

from __future__ import annotations

import subprocess
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, files
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.packaging.environments import Environment, closure, variables
from tests.packaging.made_up import config, write_parrot
from tests.workspace import Member, members
from tests.workspace import files as repository_files

pytestmark = pytest.mark.packaging

every_member = pytest.mark.parametrize("member", members(), ids=repr)
MEGABYTE = 1_000_000


@every_member
def test_a_wheel_holds_every_file_of_the_package(member: Member, wheels: dict[str, Path]) -> None:
    source = member.folder / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in repository_files()
        if path.is_relative_to(source) and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheels[member.path]) as wheel:
        assert expected - set(wheel.namelist()) == set()


def test_core_alone_has_no_plugin_and_a_working_command_line(clean: Environment) -> None:
    assert clean.listed() == []
    assert "train" in clean.cli("--help").stdout
    assert "0.2.0" in clean.cli("--version").stdout


def test_core_with_its_dependencies_is_small(clean: Environment) -> None:
    sizes = {
        path: path.stat().st_size
        for path in clean.packages.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert sum(sizes.values()) < 15 * MEGABYTE


def test_a_plugin_wheel_appears_is_used_and_disappears(
    clean: Environment, wheels: dict[str, Path], tmp_path: Path
) -> None:
    parrot = tmp_path / "parrot"  # a task and a policy to go with the agent
    write_parrot(parrot)
    path = config(tmp_path, "echo")
    assert "echo" in clean.cli("validate", path, code=2, plugins=parrot).stderr

    clean.install(wheels["contrib_agents/basic"])
    [listed] = clean.listed()
    assert listed["name"] == "basic-agents"
    assert listed["distribution"] == "orchestrion-basic-agents"
    assert listed["version"] == distribution("orchestrion-basic-agents").version
    clean.cli("validate", path, plugins=parrot)
    assert "so it goes" in clean.cli("run", path, "--input", "so it goes", plugins=parrot).stdout

    clean.uninstall("orchestrion-basic-agents")
    assert clean.listed() == []
    assert "echo" in clean.cli("validate", path, code=2, plugins=parrot).stderr


@every_member
def test_a_wheel_imports_with_only_what_it_declares(
    member: Member, wheels: dict[str, Path], tmp_path: Path
) -> None:
    """Every module of it, in an environment that holds what its metadata leads to, no more.

    Third-party packages are links to those of the environment at hand (a copy of torch would take
    longer than all other tests here); members come out of their wheels.
    """
    environment = Environment(tmp_path / "venv")
    paths: dict[str, str] = {canonicalize_name(other.name): other.path for other in members()}
    # What an extra needs may be missing where nobody asked for it, here as there.
    extras = [one for one in member.extras if _installed(one.name)]
    needed = {canonicalize_name(member.name), *closure([*member.requirements, *extras])}
    for name in needed - paths.keys():
        _link(name, environment.packages)
    for name in needed & paths.keys():
        with zipfile.ZipFile(wheels[paths[name]]) as wheel:
            wheel.extractall(environment.packages)  # all that pip does with a pure wheel, sooner
    script = (
        f"import importlib, pkgutil, {member.package} as package\n"
        "modules = pkgutil.walk_packages(package.__path__, package.__name__ + '.')\n"
        "names = [module.name for module in modules if not module.name.endswith('__main__')]\n"
        "for name in names:\n"
        "    importlib.import_module(name)\n"
        "print(len(names))\n"
    )
    done = subprocess.run(
        [environment.python, "-W", "error::UserWarning", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=variables(),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _link(name: str, packages: Path) -> None:
    """Makes an installed distribution appear in another folder, by links to its top entries."""
    home = Path(str(distribution(name).locate_file("")))
    tops = {
        file.parts[0] for file in files(name) or () if file.parts[0] not in ("..", "__pycache__")
    }
    for top in tops:
        link = packages / top
        if not link.exists():
            link.symlink_to(home / top)


def test_an_undeclared_dependency_would_be_noticed(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    _link("attrs", environment.packages)
    environment.run(environment.python, "-c", "import attrs")
    missing = "import importlib.util as u, sys; sys.exit(u.find_spec('pluggy') is None)"
    environment.run(environment.python, "-c", missing, code=1)
