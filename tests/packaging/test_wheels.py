"""Each member is a distribution that works when it is installed from its wheel."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, files
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.environments import Environment, closure, variables
from tests.packaging.made_up import config, write_parrot
from tests.workspace import Member, members
from tests.workspace import files as repository_files

pytestmark = pytest.mark.packaging

every_member = pytest.mark.parametrize("member", members(), ids=repr)
MEGABYTE = 1_000_000
[CORE] = [member for member in members() if member.is_core]
Errors = dict[str, str]
Order = tuple[str, str, list[str]]  # a member's path, its package, folders for sys.path


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


IMPORTER = """
import gc, importlib, json, os, pkgutil, sys, traceback

gc.disable()  # nothing that is imported goes away

def import_all(package):
    \"\"\"Import every module of a package; return how many.\"\"\"
    path = importlib.import_module(package).__path__
    names = [module.name for module in pkgutil.walk_packages(path, package + ".")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    return len(names)

for base, members in json.load(sys.stdin):
    sys.path += base["folders"]
    for package in base["packages"]:
        import_all(package) if package == "orchestrion" else importlib.import_module(package)
    for member, package, folders in members:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            continue
        sys.path += folders
        try:
            error = "" if import_all(package) else f"{package} has no module"
        except BaseException:
            error = traceback.format_exc()
        print(json.dumps([member, error]), flush=True)
        os._exit(0)
"""
SHARED = ("numpy", "torch")  # imported once for all members whose metadata leads to both


@pytest.fixture(scope="module")
def import_errors(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Errors:
    """Import every module of each member where only that is found to which its metadata leads.

    Members come out of their wheels; third-party packages are links to those of the environment
    at hand. One process without `site-packages` imports core, and torch, and forks for each
    member: to import these for each one anew would take longer than all other tests here.

    Returns:
        What went wrong, by the member's path; "" for nothing.
    """
    place = tmp_path_factory.mktemp("visible")
    built: dict[str, Path] = {
        canonicalize_name(member.name): wheels[member.path] for member in members()
    }

    def folders(names: set[str]) -> list[str]:
        return [_visible(name, place, built.get(name)) for name in sorted(names)]

    core = {"orchestrion", *closure(CORE.requirements)}
    shared = set(closure(map(Requirement, SHARED)))
    groups: tuple[list[Order], list[Order]] = ([], [])
    for member in members():
        # What an extra needs may be missing where nobody asked for it, here as there.
        extras = [extra for extra in member.extras if _installed(extra.name)]
        needed = {canonicalize_name(member.name), *closure([*member.requirements, *extras])} | core
        found = core | shared if shared <= needed else core
        groups[shared <= needed].append((member.path, member.package, folders(needed - found)))
    bases = (
        {"folders": folders(core), "packages": ["orchestrion"]},
        {"folders": folders(shared - core), "packages": SHARED},
    )
    done = subprocess.run(
        [sys.executable, "-IS", "-W", "error::UserWarning", "-c", IMPORTER],
        input=json.dumps(list(zip(bases, groups, strict=True))),
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env=variables(),
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@every_member
def test_a_wheel_imports_with_only_what_it_declares(member: Member, import_errors: Errors) -> None:
    assert import_errors[member.path] == ""


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _visible(name: str, place: Path, wheel: Path | None) -> str:
    """Return a folder for `sys.path` that shows one distribution, and no other.

    It holds what is in the wheel, or else links to the top entries of what is installed.
    """
    folder = place / name
    if folder.exists():
        return str(folder)
    folder.mkdir()
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)  # all that pip does with a pure wheel, sooner
        return str(folder)
    home = Path(str(distribution(name).locate_file("")))
    tops = {file.parts[0] for file in files(name) or ()} - {"..", "__pycache__"}
    for top in tops:
        (folder / top).symlink_to(home / top)
    return str(folder)


def test_an_undeclared_dependency_would_be_noticed(tmp_path: Path) -> None:
    folder = _visible("attrs", tmp_path, None)
    for package, error in (("attrs", ""), ("pluggy", "No module named 'pluggy'")):
        base: dict[str, list[str]] = {"folders": [], "packages": []}
        done = subprocess.run(
            [sys.executable, "-IS", "-c", IMPORTER],
            input=json.dumps([[base, [["member", package, [folder]]]]]),
            capture_output=True,
            text=True,
            check=True,
        )
        [(_, message)] = map(json.loads, done.stdout.splitlines())
        assert error in message if error else message == ""
