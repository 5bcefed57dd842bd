"""Runs the command line, here or in real processes, and reads what a run left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import chdir
from hashlib import sha256
from importlib import invalidate_caches
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

from click.testing import CliRunner

from orchestrion.cli import main
from orchestrion.runs import RunReader
from tests import warm

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def command(*words: str) -> list[str]:
    """A command line for a process of its own."""
    return [sys.executable, "-m", "orchestrion", *words]


def environment(**extra: str) -> dict[str, str]:
    """The environment of such a process."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", **extra}


def tried(
    *words: str, cwd: Path, typed: str = "", **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `typed` is its input, the rest are environment variables."""
    return warm.run(*words, cwd=cwd, env=environment(**extra), typed=typed)


def here(*words: str, cwd: Path, code: int = 0, **extra: str) -> CompletedProcess[str]:
    """Run a command to its end in this process, and hold it to an exit code; see `called`."""
    done = called(words, cwd, extra)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def called(words: Sequence[str], cwd: Path, extra: Mapping[str, str]) -> CompletedProcess[str]:
    """Run a command to its end in this process.

    Args:
        words: of the command.
        cwd: the folder to run it in.
        extra: environment variables; modules in the folders of PYTHONPATH are imported anew.
    """
    folders = [part for part in extra.get("PYTHONPATH", "").split(os.pathsep) if part]
    before, modules = sys.path[:], set(sys.modules)
    with chdir(cwd), mock.patch.dict(os.environ, extra):
        sys.path[:0] = folders
        invalidate_caches()
        try:
            done = CliRunner().invoke(main, words)
        finally:
            sys.path[:] = before
            for name in set(sys.modules) - modules:
                file = str(getattr(sys.modules[name], "__file__", ""))
                if any(file.startswith(folder) for folder in folders):
                    del sys.modules[name]
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def anew(*words: str, cwd: Path) -> None:
    """Run a command in a Python that was started for it, so that its hash seed is another one."""
    subprocess.run(
        command(*words),
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def orchestrion(
    *words: str, cwd: Path, code: int = 0, typed: str = "", **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and hold it to an exit code."""
    done = tried(*words, cwd=cwd, typed=typed, **extra)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def start(folder: Path, *words: str, **extra: str) -> warm.Command:
    """Start a command, for a test that does not let it end."""
    return warm.Command(words, folder, environment(**extra))


def wait_for_iterations(directory: Path, count: int, process: warm.Command) -> None:
    """Return once the run has committed so many iterations, or has ended."""
    while process.poll() is None:
        if (directory / "run.db").exists():
            with RunReader(directory) as run:
                if len(run.iterations()) >= count:
                    break
        time.sleep(0.02)  # between two looks at the folder; nothing hangs on its length


def wait_until_stopped(process: warm.Command) -> None:
    """Return once a process stands still (SIGSTOP)."""
    status = Path(f"/proc/{process.pid}/stat")
    while status.read_text().rpartition(")")[2].split()[0] != "T":
        assert process.poll() is None, process.returncode
        time.sleep(0.005)  # between two looks


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
