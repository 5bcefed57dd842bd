#!/usr/bin/env python3
"""Make .venv match the workspace, then run a command in it.

    python dev.py COMMAND ...      for example: orchestrion --help, pytest, python, ruff check .
    python dev.py                  only make .venv match
    python dev.py --fresh ...      build .venv anew first
    python dev.py test --changed   tests of the members that differ from main and of those that
                                   need them; --changed=REF compares with another commit, and all
                                   other options are pytest's

Every folder that [tool.orchestrion.workspace] in pyproject.toml names and that has a
pyproject.toml is installed in editable form, with all its dependencies and the tools for
development. That happens again only when one of those files, the constraints or the interpreter
changed. ORCHESTRION_VENV names another folder than .venv. pip is the only program that touches
the network, with whatever index, wheels and proxies your pip configuration says.
"""

import sys

if sys.version_info < (3, 11):  # must stand before anything an older Python cannot read
    sys.exit(
        "dev.py needs Python 3.11 or newer, "
        f"and this is {sys.version.split()[0]} ({sys.executable}).\n"
        "Run it with a newer one, for example: python3.11 dev.py ..."
    )

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent
WINDOWS = os.name == "nt"
LOG_TAIL = 30
# What covers core outside tests/core: contracts of components, and the dry run.
CORE_TESTS = ("tests/end_to_end/test_dry_run.py", "tests/test_conformance.py")

# Builds editable wheels: arguments are pairs of a member's folder and where its wheel goes. All in
# one process, and without pip, which would start two for each member.
BUILD = """
import importlib, os, sys, tomllib
for folder, to in zip(sys.argv[1::2], sys.argv[2::2]):
    os.chdir(folder)
    with open("pyproject.toml", "rb") as file:
        backend = tomllib.load(file)["build-system"]["build-backend"]
    print(importlib.import_module(backend).build_editable(to), flush=True)
"""


class Member(NamedTuple):
    """One distribution of the workspace."""

    folder: Path
    name: str
    text: bytes  # of its pyproject.toml
    testing: bool  # has an extra of that name
    needs: frozenset[str]  # names of distributions

    @property
    def path(self) -> str:
        return self.folder.relative_to(ROOT).as_posix()


class Workspace(NamedTuple):
    """What the environment should hold."""

    members: tuple[Member, ...]
    installer: tuple[str, ...]
    tools: tuple[str, ...]
    constraints: Path

    def fingerprint(self) -> dict[str, str]:
        """Changes in `base` need a new environment, changes in `content` only pip."""
        content = hashlib.sha256()
        for member in self.members:
            content.update(f"{member.folder.relative_to(ROOT).as_posix()}\0".encode())
            content.update(hashlib.sha256(member.text).digest())
        content.update("\0".join((*self.installer, *self.tools)).encode())
        content.update(self.constraints.read_bytes())
        base = f"{sys.version}\n{sys.base_prefix}\n{ROOT}"
        return {"base": base, "content": content.hexdigest()}


def main(arguments: Sequence[str]) -> int:
    arguments = list(arguments)
    fresh = False
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option in ("-h", "--help"):
            print(__doc__)
            return 0
        if option != "--fresh":
            fail(f"dev.py has no option {option}; options of the command come after its name", 2)
        fresh = True
    venv = Path(os.environ.get("ORCHESTRION_VENV") or ROOT / ".venv").absolute()
    workspace = read_workspace()
    if fresh or read_stamp(venv) != workspace.fingerprint():
        with locked(venv) as lock:
            # Somebody else may have finished the same work while this process waited.
            if fresh or read_stamp(venv) != workspace.fingerprint():
                Setup(venv, workspace, lock).run(fresh)
    if not arguments:
        print(f"{shown(venv)} is up to date; {hint(venv)}")
        return 0
    if arguments[0] == "test":
        arguments = ["pytest", *tests(workspace.members, arguments[1:])]
    return run(venv, arguments)


def read_workspace() -> Workspace:
    settings = read_toml(ROOT / "pyproject.toml")[1]["tool"]["orchestrion"]["workspace"]
    members: dict[str, Member] = {}
    for pattern in settings["members"]:
        for file in sorted(ROOT.glob(f"{pattern}/pyproject.toml")):
            text, data = read_toml(file)
            project = data.get("project", {})
            name = project.get("name")
            if not name:
                fail(f"{shown(file)} has no [project] name; every member needs one")
            if name in members:
                fail(f"{shown(file)} and {shown(members[name].folder)} are both named {name}")
            extras = project.get("optional-dependencies", {})
            needs = [
                re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
                for requirement in requirements(project)
            ]
            members[name] = Member(
                file.parent, name, text, "testing" in extras, frozenset(map(normalised, needs))
            )
    if not members:
        fail(f"no member has a pyproject.toml under {ROOT}; is the checkout complete?")
    return Workspace(
        members=tuple(members.values()),
        installer=tuple(settings["installer"]),
        tools=tuple(settings["tools"]),
        constraints=ROOT / settings["constraints"],
    )


def read_toml(file: Path) -> tuple[bytes, dict[str, Any]]:
    text = file.read_bytes()
    try:
        return text, tomllib.loads(text.decode())
    except ValueError as error:
        fail(f"{shown(file)} is not valid TOML: {error}")


def requirements(project: dict[str, Any]) -> list[str]:
    groups = project.get("optional-dependencies", {}).values()
    return [*project.get("dependencies", []), *(name for group in groups for name in group)]


def tests(members: Sequence[Member], options: Sequence[str]) -> list[str]:
    """Return the arguments of pytest for `dev.py test`."""
    given = [option for option in options if option.partition("=")[0] == "--changed"]
    rest = [option for option in options if option not in given]
    if not given:
        return rest
    return [*changed_tests(members, changes(given[-1].partition("=")[2] or "main")), *rest]


def changes(ref: str) -> list[str]:
    """Return the files that differ from where this branch left `ref`, committed or not."""
    try:
        [base] = git("merge-base", ref, "HEAD")
        differing = git("diff", "--name-only", "-z", base)
        return [*differing, *git("ls-files", "--others", "--exclude-standard", "-z")]
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", None) or error
        fail(f"git cannot tell what changed against {ref}: {str(output).strip()}")


def git(*arguments: str) -> list[str]:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [part for part in re.split(r"[\0\n]", done.stdout) if part]


def changed_tests(members: Sequence[Member], files: Sequence[str]) -> list[str]:
    """Return the tests of changed members, of members that need them, and changed tests.

    Every member needs core. For a change in core, CORE_TESTS run in place of all members' tests.
    """
    hit = {m.name for m in members if any(file.startswith(f"{m.path}/") for file in files)}
    core = {m.name for m in members if m.path == "core"}
    for _ in members:  # what needs those that need them, as far as it goes
        hit |= {m.name for m in members if m.needs & set(map(normalised, hit - core))}
    paths = {f"tests/{m.path}" for m in members if m.name in hit}
    if hit & core:
        paths.update(CORE_TESTS)
    for file in files:
        own = [f"tests/{m.path}" for m in members if file.startswith(f"tests/{m.path}/")]
        if file.startswith("tests/") and not own and Path(file).name.startswith("test_"):
            own = [file]
        paths.update(own)
    existing = sorted(path for path in paths if (ROOT / path).exists())
    # These are quick, and look at all files.
    return [*existing, "tests/repository"]


class Setup:
    """Brings one environment in line with the workspace, under the lock."""

    def __init__(self, venv: Path, workspace: Workspace, lock: IO[bytes]) -> None:
        self.venv = venv
        self.workspace = workspace
        self.lock = lock
        self.log = venv / "orchestrion-setup.log"
        # Present while pip works: an environment that still has it was cut off and is not trusted.
        self.unfinished = venv / "orchestrion-unfinished"

    def run(self, fresh: bool) -> None:
        started = time.monotonic()
        wanted = self.workspace.fingerprint()
        stamp = read_stamp(self.venv)
        stale = bool(stamp) and stamp.get("base") != wanted["base"]
        rebuild = fresh or stale or self.unfinished.exists() or not python_in(self.venv).exists()
        say(
            f"setting up {shown(self.venv)}: "
            + ("one to two minutes the first time" if rebuild else "the workspace changed")
        )
        if rebuild:
            self.clear()
        self.venv.mkdir(parents=True, exist_ok=True)
        stamp_of(self.venv).unlink(missing_ok=True)
        self.unfinished.touch()
        self.log.write_bytes(b"")
        if rebuild:
            self.create()
        self.uninstall_strays()
        self.pip("install", *self.workspace.installer)
        with tempfile.TemporaryDirectory(prefix="orchestrion-wheels-") as folder:
            wheels = self.build(Path(folder))
            # They all stand in one call, so that pip finds those that need each other here and not
            # on an index.
            extras = ["[testing]" if member.testing else "" for member in self.workspace.members]
            self.pip("install", *self.workspace.tools, *map("{}{}".format, wheels, extras))
        self.mark_editable(wheels)
        temporary = stamp_of(self.venv).with_suffix(".new")
        temporary.write_text(json.dumps(wanted), encoding="utf-8")
        os.replace(temporary, stamp_of(self.venv))
        self.unfinished.unlink()
        seconds = time.monotonic() - started
        say(f"{shown(self.venv)} is ready after {seconds:.0f} s; {hint(self.venv)}")

    def clear(self) -> None:
        """Removes the old environment, and refuses to remove anything else."""
        if not self.venv.exists():
            return
        ours = (self.venv / "pyvenv.cfg").exists() or self.unfinished.exists()
        if not ours and any(self.venv.iterdir()):
            fail(f"{self.venv} exists and is not a virtual environment; move it or remove it")
        shutil.rmtree(self.venv)

    def create(self) -> None:
        try:
            import ensurepip  # noqa: F401
            import venv  # noqa: F401
        except ImportError as error:
            fail(
                f"this Python ({sys.executable}) cannot make virtual environments: {error}.\n"
                "On Debian and Ubuntu the package python3-venv supplies what is missing."
            )
        # Started from inside an environment, the interpreter beneath it is the one to build on.
        base = getattr(sys, "_base_executable", sys.executable)
        self.check(self.call([base, "-m", "venv", str(self.venv)]))

    def build(self, folder: Path) -> list[Path]:
        """Returns the editable wheels of all members, each in a folder of its own."""
        places = [(m.folder, folder / str(n)) for n, m in enumerate(self.workspace.members)]
        for _, place in places:
            place.mkdir()
        pairs = [str(path) for pair in places for path in pair]
        self.change([str(python_in(self.venv)), "-c", BUILD, *pairs])
        return [next(place.glob("*.whl")) for _, place in places]

    def mark_editable(self, wheels: Sequence[Path]) -> None:
        """Records of each member that it was installed from its folder, as `pip install -e` does.

        Without that, pip would not install a member again that kept its version.
        """
        folders = {
            wheel.as_uri(): member.folder
            for wheel, member in zip(wheels, self.workspace.members, strict=True)
        }
        for record, entry in self.direct_urls():
            folder = folders.get(entry.get("url", ""))
            if folder:
                editable = {"url": folder.as_uri(), "dir_info": {"editable": True}}
                record.write_text(json.dumps(editable), encoding="utf-8")

    def uninstall_strays(self) -> None:
        """Uninstalls members of this checkout whose folder or name is gone."""
        known = {(m.folder, normalised(m.name)) for m in self.workspace.members}
        strays = [name for folder, name in self.editables() if (folder, name) not in known]
        if strays:
            self.pip("uninstall", "--yes", *strays)

    def editables(self) -> Iterator[tuple[Path, str]]:
        from importlib.metadata import Distribution
        from urllib.parse import urlsplit
        from urllib.request import url2pathname

        for record, entry in self.direct_urls():
            url = urlsplit(entry.get("url", ""))
            folder = Path(url2pathname(url.path))
            if (
                url.scheme == "file"
                and entry.get("dir_info", {}).get("editable")
                and folder.is_relative_to(ROOT)
            ):
                yield folder, normalised(Distribution.at(record.parent).metadata["Name"])

    def direct_urls(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yields, of what came from no index, the files that say from where, and what they say."""
        packages = "Lib/site-packages" if WINDOWS else "lib/python*/site-packages"
        for record in self.venv.glob(f"{packages}/*.dist-info/direct_url.json"):
            yield record, json.loads(record.read_text(encoding="utf-8"))

    def pip(self, command: str, *arguments: str) -> None:
        options = ["--disable-pip-version-check", "--no-input"]
        if command == "install":
            # Byte code is written by the first import of a module: most are never imported.
            options += ["--no-compile", "--progress-bar", "off"]
            options += ["--constraint", str(self.workspace.constraints)]
        self.change([str(python_in(self.venv)), "-m", "pip", command, *options, *arguments])

    def change(self, command: list[str]) -> None:
        code = self.call(command)
        if code > 0:
            # What reported its failure left nothing half done: the next run starts here.
            self.unfinished.unlink(missing_ok=True)
        self.check(code)

    def call(self, command: list[str]) -> int:
        # The child inherits the lock, so that a pip that outlives this process still holds it.
        with self.log.open("ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            return subprocess.run(
                command,
                cwd=ROOT,
                env=environment(self.venv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
                pass_fds=() if WINDOWS else (self.lock.fileno(),),
            ).returncode

    def check(self, code: int) -> None:
        if code == 0:
            return
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        say("\n".join(lines[-LOG_TAIL:]))
        fail(f"setting up failed (exit code {code}); the whole log is {shown(self.log)}")


def run(venv: Path, command: list[str]) -> int:
    variables = environment(venv)
    program = shutil.which(command[0], path=variables["PATH"])
    if program is None:
        say(f"dev.py: no command {command[0]!r} in {shown(venv)} or on PATH")
        return 127
    if not WINDOWS:  # where exec would return to the shell before the command ends
        os.execve(program, [command[0], *command[1:]], variables)
    return subprocess.run([program, *command[1:]], env=variables, check=False).returncode


def environment(venv: Path) -> dict[str, str]:
    """Return the environment's variables: its programs first, nothing that bends Python or pip."""
    variables = dict(os.environ)
    # Without byte code every start compiles its imports anew: torch takes twice as long.
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "__PYVENV_LAUNCHER__", "PIP_TARGET"):
        variables.pop(name, None)
    variables["PIP_USER"] = "0"
    variables["VIRTUAL_ENV"] = str(venv)
    variables["PATH"] = os.pathsep.join(
        [str(python_in(venv).parent), *filter(None, [variables.get("PATH")])]
    )
    return variables


def python_in(venv: Path) -> Path:
    return venv / "Scripts" / "python.exe" if WINDOWS else venv / "bin" / "python"


def hint(venv: Path) -> str:
    """Return how a person gets its programs onto PATH."""
    script = python_in(venv).parent / "activate"
    return f"`{script if WINDOWS else f'. {shown(script)}'}` puts its programs on your PATH"


def stamp_of(venv: Path) -> Path:
    return venv / "orchestrion-stamp.json"


def read_stamp(venv: Path) -> dict[str, str]:
    if not python_in(venv).exists():
        return {}
    try:
        stamp = json.loads(stamp_of(venv).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


@contextlib.contextmanager
def locked(venv: Path) -> Iterator[IO[bytes]]:
    """Holds the lock beside the environment; the system releases it if this process dies."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{venv}.lock", "ab") as file:
        if not try_lock(file):
            say(f"another dev.py is setting up {shown(venv)}; waiting for it")
            while not try_lock(file):
                time.sleep(0.2)
        yield file


def try_lock(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def normalised(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def shown(path: Path) -> str:
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fail(text: str, code: int = 1) -> NoReturn:
    say(f"dev.py: {text}" if "\n" not in text else text)
    sys.exit(code)


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        say("dev.py: interrupted; the next run puts things right")
        code = 130
    sys.exit(code)
