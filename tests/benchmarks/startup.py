"""CPU milliseconds that commands take to start, with every member and fifty more plugins.

    python dev.py python -m tests.benchmarks.startup

Best of five, user and system time of the child, beside an interpreter that does nothing.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.packaging.environments import variables
from tests.packaging.made_up import DUMMIES, dummy_plugins
from tests.workspace import members

TARGETS = {
    "--version": 50,
    "--help": 50,
    "plugins": 50,
    "plugins --json": 60,
    "validate docs/examples/quick.yaml": 200,
    "validate docs/examples/quick.yaml --no-open": 200,
}
REPEATS = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = dummy_plugins(Path(name))
        env = variables(PYTHONPATH=str(folder))
        floor = measure([sys.executable, "-c", "pass"], env)
        print(f"{len(members()) - 1} plugins of this repository and {DUMMIES} made up")
        print(f"{'python -c pass':<56} {floor:6.1f} ms")
        program = str(Path(sys.executable).parent / "orchestrion")
        for arguments, target in TARGETS.items():
            best = measure([program, *arguments.split()], env)
            verdict = "within" if best < target else "ABOVE"
            print(f"{'orchestrion ' + arguments:<56} {best:6.1f} ms  {verdict} {target} ms")
        best = measure([program, "plugins", "--components"], env)
        print(f"{'orchestrion plugins --components':<56} {best:6.1f} ms  imports all of them")


def measure(command: list[str], env: dict[str, str]) -> float:
    """Return the least CPU time of several runs, after one that writes byte code."""
    subprocess.run(command, env=env, check=True, capture_output=True)
    times = []
    for _ in range(REPEATS):
        before = children()
        subprocess.run(command, env=env, check=True, capture_output=True)
        times.append(children() - before)
    return min(times) * 1000


def children() -> float:
    """Return the processor time of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
