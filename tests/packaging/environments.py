"""Environments of their own for wheels, and made-up plugins for the environment at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import warm

__all__ = ["Environment", "closure", "pip", "run_cli", "variables"]

# What the console script does; `finally` also sees the SystemExit it ends with. -X importtime
# would miss what importlib.import_module imports.
_MAIN = """
import sys
sys.argv[0] = "orchestrion"
try:
    from orchestrion._cli import main
    sys.exit(main())
finally:
    with open({seen!r}, "w") as file:
        file.write(" ".join(sys.modules))
"""


def pip(*arguments: str | Path, python: Path | None = None) -> str:
    """The pip of this environment, working on another one if `python` names its interpreter."""
    target = ["--python", str(python)] if python else []
    command = [sys.executable, "-m", "pip", *target, *map(str, arguments), "--no-input", "-q"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=variables(), timeout=300
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def variables(**more: str) -> dict[str, str]:
    """The variables of this process without those that point Python or the project elsewhere."""
    dropped = ("PYTHON", "ORCHESTRION", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def closure(requirements: Iterable[Requirement]) -> dict[str, str]:
    """What these requirements need in all, by name, in the versions of this environment."""
    found: dict[str, str] = {}
    todo = [(requirement, "") for requirement in requirements]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        seen = name in found
        found[name], needs = _metadata(name)
        extras = [*requirement.extras] if seen else ["", *requirement.extras]
        todo += [(needed, extra) for needed in needs for extra in extras]
    return found


@cache
def _metadata(name: str) -> tuple[str, list[Requirement]]:
    """Return an installed distribution's version and what it needs."""
    installed = distribution(name)
    return installed.version, [Requirement(text) for text in installed.requires or ()]


class Environment:
    """A virtual environment without pip."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.folder = folder
        self.programs = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.programs / "python"
        script = "import sysconfig; print(sysconfig.get_path('purelib'))"
        self.packages = Path(self.run(self.python, "-c", script).stdout.strip())

    def install(self, *wheels: str | Path, find: Path | None = None) -> None:
        """Installs wheels; what they need comes from the folder `find`, or is left out."""
        needs = ["--find-links", find] if find else ["--no-deps"]
        pip(
            *("install", "--no-index", "--no-compile", *needs, *wheels),
            python=self.python,
        )

    def uninstall(self, name: str) -> None:
        pip("uninstall", "--yes", name, python=self.python)

    def run(
        self, *command: str | Path, code: int = 0, plugins: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program outside the checkout, with made-up plugins, and checks its exit code."""
        beside = {"PYTHONPATH": str(plugins)} if plugins else {}
        return _run(list(map(str, command)), variables(**beside), self.folder, code)

    def cli(
        self, *arguments: str | Path, code: int = 0, plugins: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.run(self.programs / "orchestrion", *arguments, code=code, plugins=plugins)

    def listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.cli("plugins", "--json").stdout)["plugins"]
        return found


def run_cli(
    *arguments: str | Path,
    plugins: Path | None = None,
    cwd: Path | None = None,
    code: int = 0,
    seen: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with all plugins of this environment.

    A Python is started for it only if what is imported is to be seen.

    Args:
        arguments: of the command.
        plugins: a folder of made-up plugins, beside those that are installed.
        cwd: where it runs.
        code: the exit code it must end with.
        seen: a file to write the names of all modules to that were imported.
    """
    more = {"PYTHONPATH": str(plugins)} if plugins else {}
    if seen is None:
        done = warm.run(*map(str, arguments), cwd=cwd, env=variables(**more))
        return _checked(done, code)
    main = _MAIN.format(seen=str(seen))
    return _run([sys.executable, "-c", main, *map(str, arguments)], variables(**more), cwd, code)


def _run(
    command: list[str], env: dict[str, str], cwd: Path | None, code: int
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
    )
    return _checked(done, code)


def _checked(done: subprocess.CompletedProcess[str], code: int) -> subprocess.CompletedProcess[str]:
    shown = " ".join("orchestrion" if _MAIN[:20] in word else word for word in done.args)
    said = f"{shown}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, said
    assert "Traceback" not in done.stderr, said
    return done
