"""A store that is not what it was: flipped bits, rows that are gone, a folder that moved."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrion import StoreError, Usage
from orchestrion._engine.calls import Recorded
from orchestrion.runs import EpisodeFilter, RunReader, RunStore
from tests.core.store_support import checkpoint, episode


def write_run(directory: Path) -> Path:
    """A finished run with iterations, an evaluation, answers of both kinds and events."""
    with RunStore.create(directory, "seed: 7\n", {"seed": 7}) as store:
        for i in range(4):
            episodes = [episode(f"0/{i}/{k}", reward=i + k / 8) for k in range(6)]
            store.journal.put_many(
                [Recorded(f"{i}/{k}", "digest", f"answer {k}", Usage(1, 10, 5)) for k in range(6)]
            )
            store.commit_iteration(0, i, episodes, {"loss": 1 / (i + 1)}, checkpoint(i))
        store.cache.put(Recorded("request", "digest", "kept", Usage(1)))
        store.save_evaluation("learned", {"solved": 0.5}, [episode("evaluate/0")])
        store.record_event("resumed", "after a crash")
        store.set_status("completed")
    return directory


def contents(reader: RunReader) -> object:
    """Everything that a person or a resume can read."""
    keys = [f"{i}/{k}" for i in range(4) for k in range(6)]
    return (
        *(reader.config_text, reader.manifest, reader.iterations(), reader.load_evaluations()),
        *(list(reader.episodes()), [reader.journal.get(key) for key in keys]),
        *(reader.cache.get("request"), reader.events(), reader.stated(), reader.spend()),
        *(reader.retention, reader.keep, reader.detail, reader.created, reader.finished),
    )


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_of_100_flipped_bits_none_is_accepted_that_changes_what_is_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / "run.db"
    data = path.read_bytes()
    with RunReader(run) as reader:
        before = contents(reader)
    draw, refused = random.Random(4), 0
    for _ in range(100):
        path.write_bytes(flipped(data, draw.randrange(8 * len(data))))
        try:
            with RunReader(run) as reader:
                reader.verify()
                after = contents(reader)
        except StoreError:
            refused += 1
        else:
            assert after == before
    assert refused > 20, "the rest of the file is indexes and free room"


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("UPDATE episodes SET reward = 9.0 WHERE number = 3", lambda r: list(r.episodes())),
        ("UPDATE iterations SET metrics = '{\"loss\":0.5}'", lambda r: r.iterations()),
        ("UPDATE calls SET answer = '\"no\"' WHERE key = '0/0'", lambda r: r.journal.get("0/0")),
        ("UPDATE cache SET answer = '\"no\"'", lambda r: r.cache.get("request")),
        ("UPDATE problems SET record = record || ' '", lambda r: list(r.episodes())),
        ("DELETE FROM problems", lambda r: list(r.episodes())),
        ("UPDATE evaluations SET results = '1'", lambda r: r.load_evaluations()),
        ("UPDATE state SET value = '8' WHERE key = 'stated'", lambda r: r.stated()),
    ],
)
def test_a_changed_row_is_noticed_by_whoever_reads_it_and_nothing_is_added_to_it(
    tmp_path: Path, change: str, read: Callable[[RunReader], object]
) -> None:
    run = write_run(tmp_path / "run")
    with sqlite3.connect(run / "run.db") as connection:
        connection.execute(change)
    connection.close()
    with RunReader(run) as reader, pytest.raises(StoreError, match=r"is damaged: .* start a new"):
        read(reader)
    if "DELETE" not in change:
        with pytest.raises(StoreError, match="is not what was written"):
            RunStore.open(run)


def test_a_record_that_was_written_and_is_none_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    with RunStore.open(run) as store:
        with store._writer.transaction("test"):
            store._writer.change("episodes", "number = 3", record="'\"worker\"'")
        with pytest.raises(StoreError, match="is damaged: episode '0/0/2' cannot be read"):
            list(store.episodes())
        with pytest.raises(StoreError, match="the record of an episode cannot be read"):
            store.episode_page(EpisodeFilter(agent="worker"))


@pytest.mark.parametrize("loss", ["deleted", "moved", "replaced"])
def test_a_run_whose_folder_is_gone_ends_instead_of_writing_where_nobody_looks(
    tmp_path: Path, loss: str
) -> None:
    with RunStore.create(tmp_path / "run", "") as store:
        store.commit_iteration(0, 0, [episode("0")], {})
        if loss == "deleted":
            shutil.rmtree(tmp_path / "run")
        else:
            (tmp_path / "run").rename(tmp_path / "elsewhere")
            if loss == "replaced":
                RunStore.create(tmp_path / "run", "").close()
        writes: list[Callable[[], object]] = [
            lambda: store.commit_iteration(0, 1, [episode("1")], {}),
            lambda: store.save_evaluation("learned", {}),
            lambda: store.journal.put_many([Recorded("k", "digest", "yes", Usage(1))]),
            lambda: store.set_status("completed"),
        ]
        for write in writes:
            with pytest.raises(StoreError, match=r"run\.db: was moved, deleted or replaced"):
                write()
    if loss != "deleted":
        with RunReader(tmp_path / "elsewhere") as kept:
            assert len(kept.iterations()) == 1


def test_sixteen_threads_may_commit_at_once(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", "", keep=16) as store, ThreadPoolExecutor(16) as pool:

        def work(i: int) -> None:
            store.journal.put_many([Recorded(str(i), "digest", i, Usage(1))])
            store.commit_iteration(
                0, i, [episode(str(i))], {}, checkpoint(i), seconds=1, stated=Usage(1)
            )
            store.save_evaluation(f"e{i}", i, [episode(f"e{i}")])

        list(pool.map(work, range(16)))
        assert {one.iteration for one in store.iterations()} == set(range(16))
        assert len(list(store.episodes())) == 32
        assert len(list(store.checkpoints.iterdir())) == 16
        assert (store.seconds, store.stated()) == (16.0, Usage(16))
        assert store.spend() == Usage(32)
        assert [store.journal.get(str(i)) is None for i in range(16)] == [False] * 16
