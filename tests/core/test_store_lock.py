"""One writer a run folder, and how runs are found by name."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest
from attrs import asdict, evolve

from orchestrion import StoreError, UsageError
from orchestrion._store import lock, next_directory, run_directories
from orchestrion._store.lock import Holder, RunLock, lock_holder
from orchestrion._store.names import is_run, run_folder
from orchestrion.runs import RunStore, find_run, run_folders
from tests.core.store_support import ended, forked

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are made by fork")


def write_holder(folder: Path, holder: Holder) -> None:
    (folder / "run.lock").write_text(json.dumps(asdict(holder)))


# ------------------------------------------------------------------------------------ locks


def test_a_second_lock_is_refused_and_names_the_process(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    with pytest.raises(StoreError, match=rf"in use by process {os.getpid()} on .*wait until"):
        RunLock(tmp_path)
    first.release()
    first.release()
    RunLock(tmp_path).release()


@needs_fork
def test_a_lock_is_free_when_its_holder_was_killed(tmp_path: Path) -> None:
    def hold() -> None:
        RunLock(tmp_path)
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(hold)) == -signal.SIGKILL
    assert (tmp_path / "run.lock").read_text() != ""
    assert lock_holder(tmp_path) is None
    RunLock(tmp_path).release()


@needs_fork
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_killed_holder_is_known_to_be_gone_before_its_parent_asks_how_it_ended(
    tmp_path: Path,
) -> None:
    def hold() -> None:
        RunLock(tmp_path)
        os.kill(os.getpid(), signal.SIGKILL)

    pid = forked(hold)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is left as it is
    assert Holder(**json.loads((tmp_path / "run.lock").read_text())).pid == pid
    assert lock_holder(tmp_path) is None
    assert ended(pid) == -signal.SIGKILL


@needs_fork
def test_a_child_that_outlives_a_killed_holder_does_not_keep_its_lock(tmp_path: Path) -> None:
    ready, say_ready = os.pipe()
    wait, let_go = os.pipe()

    def outlive() -> None:
        os.close(let_go)
        os.write(say_ready, b".")
        os.read(wait, 1)

    def hold() -> None:
        RunLock(tmp_path)
        forked(outlive)
        os.read(ready, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(hold)) == -signal.SIGKILL
    RunLock(tmp_path).release()
    for descriptor in (let_go, wait, ready, say_ready):
        os.close(descriptor)


@needs_fork
def test_a_child_that_cleans_up_does_not_free_its_parents_lock(tmp_path: Path) -> None:
    held = RunLock(tmp_path)
    assert ended(forked(held.release)) == 0
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()} "):
        RunLock(tmp_path)
    held.release()


def test_who_holds_a_lock_can_be_asked_without_disturbing_it(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None
    held = RunLock(tmp_path)
    assert lock_holder(tmp_path) == Holder.this()
    held.release()
    assert lock_holder(tmp_path) is None


@pytest.mark.parametrize("change", [{"pid": 2**22 + 1}, {"started": "1"}, {"boot": "another boot"}])
def test_a_process_that_is_gone_holds_nothing_though_its_number_may_be_taken(
    tmp_path: Path, change: dict[str, object]
) -> None:
    write_holder(tmp_path, evolve(Holder.this(), **change))  # type: ignore[arg-type]
    assert lock_holder(tmp_path) is None
    RunLock(tmp_path).release()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_torn_lock_file_locks_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.lock").write_text(text)
    assert lock_holder(tmp_path) is None
    RunLock(tmp_path).release()


def test_without_system_locks_the_file_says_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    held = RunLock(tmp_path)
    with pytest.raises(
        StoreError, match=f"in use by process {os.getpid()} on {socket.gethostname()}"
    ):
        RunLock(tmp_path)
    held.release()
    write_holder(tmp_path, evolve(Holder.this(), host="elsewhere"))
    with pytest.raises(StoreError, match="on elsewhere"):
        RunLock(tmp_path)


def test_a_refused_writer_changes_nothing(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", "") as store:
        (store.checkpoints / ".being-written.tmp").touch()
        with pytest.raises(StoreError, match="in use by process"):
            RunStore.open(store.directory)
        assert (store.checkpoints / ".being-written.tmp").exists()
        store.set_status("completed")
    RunStore.open(tmp_path / "run").close()


# ------------------------------------------------------------------------------------ names


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("repair-1", "repair-2", "repair-10", "relay-1", "by-hand"):
        RunStore.create(tmp_path / "runs" / name, "").close()
    (tmp_path / "runs" / "repair-11").mkdir()
    (tmp_path / "runs" / ".draft-1").mkdir()
    return tmp_path / "runs"


def test_runs_are_listed_by_name_and_number(runs: Path) -> None:
    names = [path.name for path in run_directories(runs)]
    assert names == ["by-hand", "relay-1", "repair-1", "repair-2", "repair-10"]
    assert run_directories(runs / "nowhere") == []


@pytest.mark.parametrize(
    ("name", "found"),
    [("repair-2", "repair-2"), ("repair", "repair-10"), ("relay", "relay-1"), ("by-hand",) * 2],
)
def test_a_run_is_found_by_its_name_or_as_the_newest_of_its_name(
    runs: Path, name: str, found: str
) -> None:
    assert find_run(name, runs) == runs / found


def test_a_folder_that_cannot_be_read_hides_no_other_run(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> bool:
        if folder.name == "repair-11":
            raise PermissionError(13, "Permission denied", str(folder))
        return is_run(folder)

    (runs / "repair-1").rename(runs / "repair-11" / "nested")
    monkeypatch.setattr("orchestrion._store.glance.is_run", refuse)
    names = ["by-hand", "relay-1", "repair-10", "repair-2"]
    assert list(run_folders(runs)) == [runs / name for name in names]
    monkeypatch.undo()
    assert list(run_folders(runs / "repair-11")) == [runs / "repair-11/nested"]


def test_a_run_is_found_by_its_path(runs: Path) -> None:
    assert find_run(runs / "repair-1", Path("elsewhere")) == runs / "repair-1"


def test_an_unknown_run_is_an_error_that_names_the_nearest(runs: Path) -> None:
    with pytest.raises(UsageError, match=r"no run 'repair-3' .*did you mean repair-[12]"):
        find_run("repair-3", runs)
    with pytest.raises(UsageError, match=r"no run 'zzz' .*5 runs are in"):
        find_run("zzz", runs)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("a\0b", "cannot be used"), ("by-hand/run.db/x", "run.db is not a folder")],
)
def test_what_cannot_be_a_folder_of_runs_is_refused(runs: Path, name: str, reason: str) -> None:
    assert run_folder(str(runs / "new/folder")) == runs / "new/folder"
    with pytest.raises(UsageError, match=f"run.directory: .*{reason}"):
        run_folder(str(runs / name))


@pytest.mark.parametrize(
    ("name", "next_name"),
    [
        ("repair", "repair-12"),
        ("relay", "relay-2"),
        ("new", "new-1"),
        ("by-hand", "by-hand-1"),
        ("a b/../c", "a-b-..-c-1"),
        ("../..", "run-1"),
        ("repair-1", "repair-1-1"),
    ],
)
def test_the_next_number_is_above_all_in_use_and_names_are_made_safe(
    runs: Path, name: str, next_name: str
) -> None:
    assert next_directory(name, runs) == runs / next_name
