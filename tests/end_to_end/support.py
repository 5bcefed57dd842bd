"""Runs the command line in real processes, and reads what a run left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from orchestrion.runs import RunReader

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def command(*words: str) -> list[str]:
    """A command line for a process of its own."""
    return [sys.executable, "-m", "orchestrion", *words]


def environment(**extra: str) -> dict[str, str]:
    """The environment of such a process."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", **extra}


def tried(*words: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*words),
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def orchestrion(
    *words: str, cwd: Path, code: int = 0, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and hold it to an exit code."""
    done = tried(*words, cwd=cwd, **extra)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a command, for a test that does not let it end."""
    return subprocess.Popen(
        command(*words),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_iterations(directory: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    """Return once the run has committed so many iterations, or has ended."""
    while process.poll() is None:
        if (directory / "run.db").exists():
            with RunReader(directory) as run:
                if len(run.iterations()) >= count:
                    break
        time.sleep(0.005)  # between two looks at the folder; nothing hangs on its length


def result(directory: Path) -> dict[str, Any]:
    """All that must not depend on how a run was carried out: metrics, checkpoint, report."""
    with RunReader(directory) as run:
        newest = sorted(run.checkpoints.glob("*.safetensors"))[-1]
        return {
            "status": run.status,
            "iterations": [(one.stage, one.iteration, one.metrics) for one in run.iterations()],
            "checkpoint": sha256(newest.read_bytes()).hexdigest(),
            "evaluations": json.dumps(run.load_evaluations(), sort_keys=True),
        }
