"""Runs the command line in real processes, and reads what a run left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from orchestrion.store import RunReader

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def command(*words: str) -> list[str]:
    """A command line for a process of its own."""
    return [sys.executable, "-m", "orchestrion", *words]


def environment(**extra: str) -> dict[str, str]:
    """The environment of such a process."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", **extra}


def orchestrion(
    *words: str, cwd: Path, code: int = 0, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and hold it to an exit code."""
    done = subprocess.run(
        command(*words),
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


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
