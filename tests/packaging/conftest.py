"""Wheels, built once for the session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import Environment, closure, pip, variables
from tests.workspace import members


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every member's wheel by the member's path, built by its backend as pip would have it."""
    folder = tmp_path_factory.mktemp("wheels")
    # One process for all: pip would start two a member. The environment at hand has the backend.
    orders = [
        (member.data["build-system"]["build-backend"], str(member.folder)) for member in members()
    ]
    script = (
        "import importlib, os\n"
        f"for backend, source in {orders!r}:\n"
        "    os.chdir(source)\n"
        f"    importlib.import_module(backend).build_wheel({str(folder)!r})\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=variables())
    built = {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}
    assert len(built) == len(members())
    return {member.path: built[member.name.replace("-", "_")] for member in members()}


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels that core depends on, in the versions of the environment at hand."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    [core] = [member for member in members() if member.is_core]
    pinned = [f"{name}=={version}" for name, version in closure(core.requirements).items()]
    pip("download", "--no-deps", "--only-binary", ":all:", "--dest", folder, *pinned)
    return folder


@pytest.fixture(scope="module")
def clean(
    tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path], wheelhouse: Path
) -> Environment:
    """An environment that holds core's wheel and what core's metadata asks for."""
    environment = Environment(tmp_path_factory.mktemp("clean") / "venv")
    environment.install(wheels["core"], find=wheelhouse)
    return environment
