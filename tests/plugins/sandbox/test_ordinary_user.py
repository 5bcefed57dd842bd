"""What root's sandbox holds, an ordinary user's holds as well.

Only root can try both: it runs the attacks again as somebody else, with an interpreter and modules
that this somebody can read. Where the whole suite runs as an ordinary user, it has shown it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.sandbox.attacks.every import ATTACKS

SOMEBODY = 64_321
ROOT = Path(__file__).parents[3]
MODULE = "tests.plugins.sandbox.ordinary"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user already")


@functools.cache
def _interpreter() -> str:
    """One that somebody else can run, of the same version as this."""
    about = "import sys; print(*sys.version_info[:2])"
    wanted = f"{sys.version_info[0]} {sys.version_info[1]}"
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            answer = _as_somebody([python, "-I", "-c", about], {})
        except OSError:
            continue
        if answer.stdout.strip() == wanted:
            return python
    pytest.skip(f"no Python {wanted} here can be run by other users")


def _as_somebody(
    command: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment,
        cwd="/",
        user=SOMEBODY,
        group=SOMEBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def modules() -> Iterator[Path]:
    """A folder with all that the attacks import, which everybody can read."""
    with tempfile.TemporaryDirectory(prefix="orchestrion-readable-") as name:
        folder = Path(name)
        show = (
            f"import json, sys, {MODULE}\n"
            "files = {n: getattr(m, '__file__', None) for n, m in sys.modules.items()}\n"
            "print(json.dumps(files))"
        )
        done = subprocess.run(
            [sys.executable, "-c", show], cwd=ROOT, capture_output=True, text=True, check=True
        )
        standard = sysconfig.get_path("stdlib")
        for module, file in json.loads(done.stdout).items():
            if file and (not file.startswith(standard) or "-packages" in file):
                parts = module.split(".")
                target = folder.joinpath(*parts[:-1], Path(file).name)
                if Path(file).name == "__init__.py":
                    target = folder.joinpath(*parts, "__init__.py")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
                if module == "orchestrion_sandbox":
                    inside = Path(file).parent / "inside"
                    shutil.copytree(inside, target.parent / "inside", dirs_exist_ok=True)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield folder


@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_every_attack_is_held_for_an_ordinary_user(backend: str, modules: Path) -> None:
    command = [_interpreter(), "-m", MODULE, backend]
    done = _as_somebody(command, {"PYTHONPATH": str(modules), "PYTHONDONTWRITEBYTECODE": "1"})
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if lines and "failed" in lines[0]:
        pytest.skip(lines[0]["failed"])
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = {line["name"]: line for line in lines}
    for attack in ATTACKS:
        outcome = outcomes[attack.name]
        if backend == "namespaces" or not attack.landlock:
            assert outcome["breaches"] == [], (attack.name, outcome["result"])
        if backend == "namespaces":
            assert outcome["status"] in attack.ends, (attack.name, outcome["result"])
