"""A run that is killed, or whose disk fails, goes on as if nothing had happened."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from orchestrion import StoreError
from orchestrion._store import faults
from orchestrion.runs import RunReader, RunStore
from tests.core import store_support as support
from tests.core.store_support import contents, ended, forked, inject, train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are made by fork")

# What a kill leaves is in the system's memory, on a disk or not; without a disk it is faster.
MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    parent = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=parent) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a run that nobody disturbs leaves behind."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    train(directory)
    return contents(directory)


# ------------------------------------------------------------------------------------ kill -9


def test_every_kind_of_write_has_its_fault_points(folder: Path) -> None:
    passed = Counter(support.points(lambda: train(folder / "run")))
    assert set(passed) == {
        *(f"config.{name}" for name in ("half", "unsynced", "written", "renamed", "synced")),
        *(f"checkpoint.{name}" for name in ("half", "unsynced", "written", "renamed", "synced")),
        *(f"export.{name}" for name in ("half", "unsynced", "written", "renamed", "synced")),
        *("create.written", "create.committed", "create.renamed"),
        *("restore.written", "restore.committed"),
        *("journal.written", "journal.committed"),
        *("commit.written", "commit.committed", "checkpoint.pruned"),
        *("evaluation.written", "evaluation.committed", "status.written", "status.committed"),
    }
    assert passed["commit.committed"] == support.ITERATIONS


def test_killed_at_any_point_it_ends_in_the_same_bytes(
    folder: Path, whole: dict[str, object]
) -> None:
    names = list(support.points(lambda: train(folder / "whole")))
    last = {name: nth for nth, name in enumerate(names, 1)}
    for nth, name in enumerate(names, 1):
        if nth not in (names.index(name) + 1, last[name]):
            continue  # the first and the last time that it is passed tell as much as all
        directory = folder / f"run-{nth}"
        work = partial(train, directory)
        assert ended(forked(work, inject(f"*:kill@{nth}"))) == support.KILLED
        _check_whole_iterations(directory)
        work()
        assert contents(directory) == whole, f"killed at point {nth}, {name}"
        shutil.rmtree(directory)


def _check_whole_iterations(directory: Path) -> None:
    """What a run left holds whole iterations only, with or without a writer to tidy up."""
    if not directory.exists():
        return
    with RunReader(directory) as reader:
        done = [row.iteration for row in reader.iterations()]
        assert done == list(range(len(done)))
        ids = [found.episode.id for found in reader.episodes(source="train")]
        assert ids == [f"{i}/{k}" for i in done for k in range(2)]
        newest = reader.latest()
        assert newest.refused == ()
        assert newest.checkpoint is None or newest.checkpoint.iteration == done[-1]
        for found in reader.episodes(source="train"):
            assert reader.journal.get(f"0/{found.episode.id}") is not None
        assert reader.status in ("interrupted", "completed")


def test_killed_at_random_moments_it_ends_in_the_same_bytes(
    folder: Path, whole: dict[str, object]
) -> None:
    moments, directory, kills = random.Random(1), folder / "run", 0
    began = time.monotonic()
    assert ended(forked(lambda: train(folder / "undisturbed"))) == 0
    took = time.monotonic() - began
    for n in range(12):
        child = forked(lambda: train(directory))
        time.sleep(moments.uniform(0, took) if n else 0)  # at once, then anywhere in a run
        os.kill(child, signal.SIGKILL)
        kills += ended(child) == support.KILLED
        _check_whole_iterations(directory)
    train(directory)
    assert contents(directory) == whole
    assert kills > 0


def test_a_fault_is_chosen_by_an_environment_variable(tmp_path: Path) -> None:
    """As users' processes would see it: a fresh interpreter, nothing patched."""
    code = "import sys; from pathlib import Path; from tests.core.store_support import train; "
    command = [sys.executable, "-c", code + "train(Path(sys.argv[1]))", str(tmp_path / "run")]
    root = str(Path(__file__).parents[2])

    def run(**variables: str) -> int:
        environment = {**os.environ, "PYTHONPATH": root, **variables}
        return subprocess.run(command, env=environment, check=False).returncode

    assert run(ORCHESTRION_FAULT="commit.written:kill@2") == support.KILLED
    with RunReader(tmp_path / "run") as reader:
        assert reader.last_iteration() == (0, 0)
    assert run() == 0


def test_without_the_variable_a_point_does_nothing() -> None:
    assert faults._active is None
    faults.fault_point("commit.written")


# ------------------------------------------------------------------------------ a full disk


def test_a_disk_that_fails_at_any_point_gives_a_clear_error_and_the_run_goes_on(
    folder: Path, whole: dict[str, object]
) -> None:
    names = list(support.points(lambda: train(folder / "whole")))
    for nth in range(1, len(names) + 1, 3):
        action = ("enospc", "eio")[nth % 2]
        directory = folder / f"run-{nth}"

        def work(directory: Path = directory) -> None:
            with pytest.raises(StoreError, match=r"make room|check it|disk is full"):
                train(directory)

        assert ended(forked(work, inject(f"*:{action}@{nth}"))) == 0, names[nth - 1]
        train(directory)
        assert contents(directory) == whole
        shutil.rmtree(directory)


def test_a_file_that_may_not_grow_gives_a_clear_error_and_the_run_goes_on(
    folder: Path, whole: dict[str, object]
) -> None:
    def work() -> None:
        with pytest.raises(StoreError, match=r"raise the limit|make room"):
            train(folder / "run")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))

    assert ended(forked(work, limit)) == 0
    _check_whole_iterations(folder / "run")
    train(folder / "run")
    assert contents(folder / "run") == whole


# ------------------------------------------------------------------------- a read-only folder


def _as_nobody() -> None:
    """Root may write everywhere; be somebody else."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def test_a_folder_that_may_not_be_written_to_is_said_so_and_can_still_be_read(
    folder: Path,
) -> None:
    directory = folder / "run"
    train(directory)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)

    def work() -> None:
        with pytest.raises(StoreError, match=r"permission denied; choose a run folder"):
            RunStore.open(directory)
        with pytest.raises(StoreError, match=r"permission denied; choose a run folder"):
            RunStore.create(folder / "other", "")
        with RunReader(directory) as reader:
            assert reader.status == "completed"
            assert len(list(reader.episodes())) == 2 * support.ITERATIONS + 1

    try:
        assert ended(forked(work, _as_nobody)) == 0
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
