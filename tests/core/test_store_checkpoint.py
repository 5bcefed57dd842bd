"""Checkpoint files: whole and exact, or refused."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrion import Array, CheckpointError, Saved, StoreError
from orchestrion._store import Checkpoint, files, read_checkpoint, write_checkpoint
from orchestrion._store.checkpoint import (
    checkpoint_name,
    checkpoint_paths,
    decode_checkpoint,
    encode_checkpoint,
    prune_checkpoints,
)
from orchestrion._store.safetensors import pack, unpack
from tests.core import store_support as support

SMALL = Checkpoint(
    stage=1,
    iteration=12,
    components={
        "policy": Saved(
            {"weight": Array("F32", (2, 2), bytes(range(16))), "steps": Array("I64", (), bytes(8))},
            {"best": float("-inf"), "names": ["a", "b"]},
        ),
        "agents.critic": Saved(data="learned text"),
    },
    overlay={"agents.critic.instructions": "Look twice."},
    seed=7,
    config="digest",
    roster=("a", "b"),
    versions={"python": "3.11.7"},
    threads=2,
)
BYTES = b"".join(encode_checkpoint(SMALL))


# ------------------------------------------------------------------------------- the format


def _backwards(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return dict(reversed(list(mapping.items())))


@settings(max_examples=40)
@given(support.checkpoints)
def test_a_checkpoint_is_safetensors_comes_back_equal_and_has_the_same_bytes_in_any_order(
    checkpoint: Checkpoint,
) -> None:
    data = b"".join(encode_checkpoint(checkpoint))
    assert decode_checkpoint(data) == checkpoint
    other = evolve(
        checkpoint,
        components={
            path: Saved(_backwards(saved.arrays), saved.data)
            for path, saved in _backwards(checkpoint.components).items()
        },
        versions=_backwards(checkpoint.versions),
        overlay=_backwards(checkpoint.overlay),
    )
    assert b"".join(encode_checkpoint(other)) == data
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 8 == 0
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    assert all(isinstance(value, str) for value in metadata.values())
    end = 0
    for entry in header.values():
        begin = entry["data_offsets"][0]
        assert begin == end, "arrays follow one another without holes"
        end = entry["data_offsets"][1]
        items = 1
        for size in entry["shape"]:
            items *= size
        if items:
            assert begin % ((end - begin) // items) == 0, "each is aligned to its item"
    assert 8 + length + end == len(data)


def test_the_order_of_data_is_kept() -> None:
    saved = Saved(data={"b": 1, "a": {"z": 1, "y": 2}})
    back = decode_checkpoint(b"".join(encode_checkpoint(Checkpoint(0, 0, {"policy": saved}))))
    assert json.dumps(back.components["policy"].data) == json.dumps(saved.data)


def test_paths_and_array_names_with_slashes_do_not_meet() -> None:
    components = {
        "a": Saved({"b/c": Array("U8", (1,), b"1")}),
        "a/b": Saved({"c": Array("U8", (1,), b"2")}),
        "a%2Fb": Saved({"c": Array("U8", (1,), b"3")}),
    }
    checkpoint = Checkpoint(0, 0, components)
    assert decode_checkpoint(b"".join(encode_checkpoint(checkpoint))) == checkpoint


@pytest.mark.parametrize(
    ("saved", "reason"),
    [
        (
            Saved({"w": Array("F32", (3,), b"1234")}),
            r"array policy/w: F32 .* takes 12 bytes, got 4",
        ),
        (Saved({"w": Array("C64", (0,), b"")}), r"array policy/w: type 'C64' is none of"),
        (Saved(data={"rng": object()}), r"\$\.policy\.rng.*object"),
        (Saved(data={1: 2}), r"\$\.policy: key 1 is not text"),
    ],
)
def test_state_that_cannot_be_kept_exactly_is_refused_and_nothing_is_written(
    tmp_path: Path, saved: Saved, reason: str
) -> None:
    with pytest.raises(CheckpointError, match=reason):
        write_checkpoint(tmp_path, Checkpoint(0, 0, {"policy": saved}))
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------- damaged files


def test_no_truncated_file_is_accepted() -> None:
    for length in range(len(BYTES)):
        with pytest.raises(CheckpointError):
            decode_checkpoint(BYTES[:length])


@settings(max_examples=100)
@given(st.integers(0, len(BYTES) * 8 - 1))
def test_no_file_with_a_flipped_bit_is_accepted(bit: int) -> None:
    data = bytearray(BYTES)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CheckpointError):
        decode_checkpoint(bytes(data))


@settings(max_examples=40)
@given(st.binary(max_size=200), st.binary(max_size=64))
def test_no_other_bytes_are_accepted(noise: bytes, tail: bytes) -> None:
    for data in (noise, BYTES + tail + b"x", BYTES[: len(noise)] + noise, b""):
        with pytest.raises(CheckpointError):
            decode_checkpoint(data)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"orchestrion": "{}"},
        {"orchestrion": "not JSON"},
        {"orchestrion": "[]", "components": "{}", "overlay": "{}"},
        {"orchestrion": '{"format": 1}', "components": "[]", "overlay": "{}"},
    ],
)
def test_a_file_that_somebody_built_is_refused_without_a_crash(metadata: dict[str, str]) -> None:
    with pytest.raises(CheckpointError, match="malformed"):
        decode_checkpoint(b"".join(pack({}, metadata)))


@pytest.mark.parametrize(
    ("length", "header", "reason"),
    [
        (1 << 40, b"", "its header is longer than the file"),
        (len(BYTES) - 7, b"", "its header is longer than the file"),
        (94, b',"a":1', "its header is malformed"),
        (94, b'},"a":', "its header is malformed"),
    ],
)
def test_a_header_that_somebody_built_is_refused(length: int, header: bytes, reason: str) -> None:
    data = length.to_bytes(8, "little") + BYTES[8:35] + b"0" * 64 + b'"' + header + BYTES[106:]
    digest = sha256(data).hexdigest().encode()
    with pytest.raises(CheckpointError, match=reason):
        unpack(data[:35] + digest + data[99:])


def test_a_checkpoint_of_another_format_is_refused_not_guessed_at() -> None:
    _, metadata = unpack(BYTES)
    metadata["orchestrion"] = metadata["orchestrion"].replace('"format":1', '"format":2')
    with pytest.raises(CheckpointError, match="format 2, this version of orchestrion reads 1"):
        decode_checkpoint(b"".join(pack({}, metadata)))


# ----------------------------------------------------------------------------- on the disk


def test_files_sort_by_stage_and_iteration_also_beyond_six_digits(tmp_path: Path) -> None:
    wanted = [(0, 9), (0, 10), (0, 999_999), (0, 1_000_000), (1, 0), (100, 0)]
    for stage, iteration in reversed(wanted):
        (tmp_path / checkpoint_name(stage, iteration)).touch()
    (tmp_path / "notes.txt").touch()
    names = [path.name for path in checkpoint_paths(tmp_path)]
    assert names == [checkpoint_name(stage, iteration) for stage, iteration in wanted]


def test_pruning_keeps_what_it_is_told_and_files_of_others(tmp_path: Path) -> None:
    paths = [write_checkpoint(tmp_path, support.checkpoint(i))[0] for i in range(4)]
    (tmp_path / "mine.safetensors").touch()
    prune_checkpoints(tmp_path, [paths[1].name, paths[3].name])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {paths[1].name, paths[3].name, "mine.safetensors"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failing_disk_leaves_the_old_file_and_no_part_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path, _ = write_checkpoint(tmp_path, support.checkpoint(1, b"old"))

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match=r"000001.*(make room|read-only|check it).* resumed"):
        write_checkpoint(tmp_path, support.checkpoint(1, b"new"))
    assert list(tmp_path.iterdir()) == [path]
    assert read_checkpoint(path) == support.checkpoint(1, b"old")


# ------------------------------------------------------------------------------ power loss
#
# A killed process leaves what it wrote in the system's memory; a power cut does not. So the
# operations of four checkpoints are recorded, and every state that a disk may be left in after a
# cut between any two of them is built and read: data that was not synced may be missing in whole or
# in part, and of the names changed since the folder was synced any number may be lost.


@frozen
class Operation:
    """What was done to the folder: write, sync, rename, folder, unlink, or done (acknowledged)."""

    kind: str
    name: str = ""
    data: bytes = b""
    to: str = ""


class Recorder:
    """Notes what is done to one folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operations: list[Operation] = []
        fsync, replace, unlink = os.fsync, os.replace, Path.unlink

        def recorded_fsync(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            fsync(descriptor)
            if path.is_dir():
                self.operations.append(Operation("folder"))
            else:
                self.operations.append(Operation("write", path.name, path.read_bytes()))
                self.operations.append(Operation("sync", path.name))

        def recorded_replace(source: Path, target: Path) -> None:
            if self.operations[-1] != Operation("sync", source.name):
                self.operations.append(Operation("write", source.name, source.read_bytes()))
            replace(source, target)
            self.operations.append(Operation("rename", source.name, to=target.name))

        def recorded_unlink(path: Path, missing_ok: bool = False) -> None:
            unlink(path, missing_ok=missing_ok)
            self.operations.append(Operation("unlink", path.name))

        monkeypatch.setattr(os, "fsync", recorded_fsync)
        monkeypatch.setattr(os, "replace", recorded_replace)
        monkeypatch.setattr(Path, "unlink", recorded_unlink)


def crash_states(operations: list[Operation]) -> Iterator[tuple[int, dict[str, bytes]]]:
    """(how many checkpoints were acknowledged, files) for every state a cut may leave."""
    for cut in range(len(operations) + 1):
        done = operations[:cut]
        acknowledged = sum(op.kind == "done" for op in done)
        folder_synced = max((i for i, op in enumerate(done) if op.kind == "folder"), default=-1)
        names = [op for op in done[folder_synced + 1 :] if op.kind in ("write", "rename", "unlink")]
        for kept in range(len(names) + 1):
            applied = done[: folder_synced + 1] + names[:kept]
            synced = {op.name for op in done if op.kind == "sync"}
            for loss in (lambda data: b"", lambda data: data[: len(data) // 2], lambda data: data):
                yield acknowledged, _apply(applied, synced, loss)


def _apply(
    operations: list[Operation], synced: set[str], loss: Callable[[bytes], bytes]
) -> dict[str, bytes]:
    state: dict[str, bytes] = {}
    for op in operations:
        if op.kind == "write":
            state[op.name] = op.data if op.name in synced else loss(op.data)
        elif op.kind == "rename":
            state[op.to] = state.pop(op.name)
        elif op.kind == "unlink":
            state.pop(op.name, None)
    return state


def _write_four(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Operation]:
    with monkeypatch.context() as patch:
        recorder = Recorder(folder, patch)
        for i in range(4):
            path, _ = write_checkpoint(folder, support.checkpoint(i, bytes([i]) * 64))
            recorder.operations.append(Operation("done"))
            names = [*(p.name for p in checkpoint_paths(folder)[-2:]), path.name]
            prune_checkpoints(folder, names)
    return recorder.operations


def _losses(operations: list[Operation], folder: Path) -> tuple[int, int]:
    """(crash states, those in which an acknowledged checkpoint is gone)."""
    states = lost = 0
    for acknowledged, content in crash_states(operations):
        states += 1
        for path in folder.iterdir():
            path.unlink()
        for name, data in content.items():
            (folder / name).write_bytes(data)
        newest = -1
        for path in checkpoint_paths(folder):
            with suppress(CheckpointError):
                valid = read_checkpoint(path)
                newest = valid.iteration
                assert valid == support.checkpoint(newest, bytes([newest]) * 64)
        lost += newest < acknowledged - 1
    return states, lost


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="names of open files come from /proc"
)


@needs_proc
def test_no_power_cut_loses_a_checkpoint_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = _write_four(tmp_path, monkeypatch)
    assert [op.kind for op in operations[:5]] == ["write", "sync", "rename", "folder", "done"]
    states, lost = _losses(operations, tmp_path)
    assert states > 60
    assert lost == 0


@needs_proc
@pytest.mark.parametrize("missing", ["sync", "folder"])
def test_the_check_above_sees_a_missing_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    operations = [op for op in _write_four(tmp_path, monkeypatch) if op.kind != missing]
    _, lost = _losses(operations, tmp_path)
    assert lost > 0


def test_a_folder_that_cannot_be_synced_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    files.sync_folder(tmp_path)
