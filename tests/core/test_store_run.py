"""A run folder: what goes in comes out, whole iterations at a time."""

from __future__ import annotations

import errno
import json
import math
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrion import (
    CheckpointError,
    Episode,
    Problem,
    StoreError,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    replace,
)
from orchestrion._engine.calls import Recorded
from orchestrion._engine.recording import Facts
from orchestrion._store import Retention, database
from orchestrion._store.evaluations import keep_evaluation, read_evaluation
from orchestrion._store.journal import CallRow, CallSum
from orchestrion._store.lock import RunLock
from orchestrion._store.spending import spent_by
from orchestrion.runs import RunReader, RunStore, add_note, glance, run_identity
from tests.core import store_support as support
from tests.core.store_support import checkpoint, episode


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path / "run", "seed: 7\n", {"seed": 7}) as store:
        yield store


def commit(store: RunStore, i: int, stage: int = 0, reward: float = 1.0) -> None:
    """A small iteration with two episodes and a checkpoint."""
    episodes = [episode(f"{stage}/{i}/{k}", reward=reward) for k in range(2)]
    store.commit_iteration(
        stage, i, episodes, {"loss": 1 / (i + 1)}, checkpoint(i, b"w", stage), seconds=1.5
    )


# --------------------------------------------------------------------------------- creation


def test_a_new_run_holds_its_config_and_manifest(store: RunStore) -> None:
    assert (store.directory / "config.yaml").read_text() == "seed: 7\n"
    assert store.config_text == "seed: 7\n"
    assert store.manifest == {"seed": 7}
    assert store.status == "running"
    assert store.last_iteration() is None
    assert store.latest().checkpoint is None
    names = {path.name for path in store.directory.iterdir()} - {"run.db-wal", "run.db-shm"}
    assert names == {"config.yaml", "run.db", "checkpoints", "exports", "run.lock"}


def test_a_folder_with_files_is_never_taken_over(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="already holds files; choose another"):
        RunStore.create(tmp_path / "mine", "")
    assert [p.name for p in tmp_path.rglob("*")] == ["mine", "thesis.txt"]
    (tmp_path / "empty").mkdir()
    RunStore.create(tmp_path / "empty", "").close()
    assert RunReader(tmp_path / "empty").config_text == ""


def test_a_run_that_cannot_be_created_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(StoreError, match=r"run: the disk is full; make room$"):
        RunStore.create(tmp_path / "run", "")
    assert list(tmp_path.iterdir()) == []


def test_numbers_go_up_and_are_never_used_twice(tmp_path: Path) -> None:
    for wanted in ("repair-1", "repair-2", "other-1", "repair-3"):
        name = wanted.partition("-")[0]
        with RunStore.create(tmp_path / "runs", "", numbered=name) as store:
            assert store.directory.name == wanted


def test_two_that_take_the_same_number_get_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "x-1"
    names = iter([directory, tmp_path / "x-2"])
    monkeypatch.setattr("orchestrion._store.run_store.next_directory", lambda *_: next(names))
    with (
        RunStore.create(directory, "first"),
        RunStore.create(tmp_path, "second", numbered="x") as two,
    ):
        assert two.directory.name == "x-2"
        assert RunReader(directory).config_text == "first"


# ------------------------------------------------------------------------------- iterations


def test_an_iteration_comes_back_with_its_episodes_metrics_and_checkpoint(
    store: RunStore,
) -> None:
    commit(store, 0, reward=0.25)
    (row,) = store.iterations()
    assert (row.stage, row.iteration, row.metrics) == (0, 0, {"loss": 1.0})
    assert (row.episodes, row.successes, row.unrewarded, row.reward) == (2, 2, 0, 0.25)
    assert row.seconds == store.seconds == 1.5
    assert [found.episode for found in store.episodes()] == [
        episode("0/0/0", reward=0.25),
        episode("0/0/1", reward=0.25),
    ]
    assert store.latest().checkpoint == checkpoint(0, b"w")


@settings(max_examples=12)
@given(st.lists(support.record(Episode), max_size=2, unique_by=lambda episode: episode.id))
def test_every_episode_comes_back_equal_but_for_what_is_hidden(
    tmp_path_factory: pytest.TempPathFactory, episodes: list[Episode]
) -> None:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with RunStore.create(folder, "") as store:
        store.commit_iteration(0, 0, episodes, {})
        found = list(store.episodes())
    assert [one.episode for one in found] == [
        replace(one, problem=one.problem.public()) for one in episodes
    ]
    assert [one.turn_count for one in found] == [len(one.turns) for one in episodes]
    assert [one.usage for one in found] == [one.usage for one in episodes]


def test_names_with_characters_that_no_database_takes_are_stored(store: RunStore) -> None:
    odd = Episode("\ud800", Problem("\udfff", category="\ud800é"), Trajectory([Turn(0, "\ud800")]))
    store.commit_iteration(0, 0, [odd], {})
    (found,) = store.episodes()
    assert found.episode == odd
    assert sum(store.iterations()[0].agents.values()) == 1


def test_the_hidden_part_of_a_problem_is_not_stored(store: RunStore) -> None:
    secret = replace(episode("1"), problem=Problem("p", hidden="the solution"))
    store.commit_iteration(0, 0, [secret], {})
    store.close()
    for path in store.directory.rglob("*"):
        assert path.is_dir() or b"the solution" not in path.read_bytes()


def test_metrics_that_are_no_numbers_come_back_as_nan(store: RunStore) -> None:
    store.commit_iteration(0, 0, [], {"loss": math.nan, "b": 2, "a": math.inf})
    metrics = store.iterations()[0].metrics
    assert list(metrics) == ["a", "b", "loss"]
    assert math.isnan(metrics["loss"])
    assert math.isnan(metrics["a"])
    assert metrics["b"] == 2
    with pytest.raises(TypeError, match="change a copy"):
        metrics["b"] = 3  # type: ignore[index]


def test_episodes_are_found_by_what_they_are(store: RunStore) -> None:
    for stage, i in ((0, 0), (0, 1), (1, 0)):
        commit(store, i, stage)
    failed = replace(episode("failed"), scores=None, reward=None)
    store.save_evaluation("test", {}, [failed])

    def ids(**wanted: object) -> list[str]:
        return [found.episode.id for found in store.episodes(**wanted)]  # type: ignore[arg-type]

    assert ids(stage=0, iteration=1) == ["0/1/0", "0/1/1"]
    assert ids(stage=1, source="train") == ["1/0/0", "1/0/1"]
    assert ids(success=False) == ids(source="test") == ["failed"]
    assert ids(id="0/1/1") == ids(problem="problem of 0/1/1") == ["0/1/1"]
    assert ids(status="limit") == []
    assert len(ids()) == 7
    assert store.iterations(first=1) == store.iterations()[1:]
    worker = [(0, "worker"), (0, "worker")]
    assert store.turn_orders(stage=0, iteration=1) == [worker, worker]
    assert store.turn_orders(stage=0, iteration=1, limit=1) == [worker]
    assert store.turn_orders(source="test") == [worker]


def test_many_episodes_come_back_in_order(store: RunStore) -> None:
    store.commit_iteration(0, 0, [episode(str(i), turns=0) for i in range(600)], {})
    assert [found.episode.id for found in store.episodes()] == [str(i) for i in range(600)]


def test_turns_can_be_read_by_any_sql_tool(store: RunStore) -> None:
    commit(store, 0)
    with sqlite3.connect(f"file:{store.directory}/run.db?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT episode, number, agent, cost FROM turns").fetchall()
    connection.close()
    assert rows == [(f"0/0/{k}", i, "worker", 2.0) for k in range(2) for i in range(2)]


def test_a_failing_commit_leaves_nothing_behind(store: RunStore) -> None:
    commit(store, 0)
    with pytest.raises(StoreError):
        store.commit_iteration(0, 1, [episode("same"), episode("same")], {}, checkpoint(1))
    assert store.last_iteration() == (0, 0)
    assert [found.episode.id for found in store.episodes()] == ["0/0/0", "0/0/1"]
    assert store.restore().checkpoint == checkpoint(0, b"w")
    assert len(list(store.checkpoints.iterdir())) == 1, "the orphaned file is removed"
    commit(store, 1)
    assert store.last_iteration() == (0, 1)


def test_committing_again_replaces_and_drops_what_came_after(store: RunStore) -> None:
    for i in range(3):
        commit(store, i)
    store.save_evaluation("late", 1)
    commit(store, 1, reward=9.0)
    assert [(i.iteration, i.reward) for i in store.iterations()] == [(0, 1.0), (1, 9.0)]
    assert len(list(store.episodes())) == 4
    assert store.load_evaluations() == {}


def test_only_the_newest_checkpoints_are_kept(store: RunStore) -> None:
    for i in range(5):
        commit(store, i)
    names = [f"00-00000{i}.safetensors" for i in (2, 3, 4)]
    assert sorted(path.name for path in store.checkpoints.iterdir()) == names
    assert [i.checkpoint for i in store.iterations()] == [None, None, *names]
    assert store.usable(after=4).checkpoint == checkpoint(3, b"w")
    with pytest.raises(UsageError, match="after 2 iterations; it has those after 3, 4, 5 "):
        store.usable(after=2)


# --------------------------------------------------------------------------------- going on


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("truncated", "its checksum does not match: it is truncated or damaged"),
        ("flipped", "its checksum does not match: it is truncated or damaged"),
        ("missing", "cannot be read: no such file or directory"),
        ("other", "it is not the file that this run wrote"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_its_iteration_dropped(
    store: RunStore, damage: str, reason: str
) -> None:
    for i in range(3):
        commit(store, i)
    store.save_evaluation("late", 1)
    newest = store.checkpoints / "00-000002.safetensors"
    data = newest.read_bytes()
    newest.unlink()
    if damage != "missing":
        other = (store.checkpoints / "00-000001.safetensors").read_bytes()
        flipped = bytes([*data[:-1], data[-1] ^ 1])
        contents = {"truncated": data[:-1], "flipped": flipped, "other": other}
        newest.write_bytes(contents[damage])
    restored = store.restore()
    assert restored.checkpoint == checkpoint(1, b"w")
    assert restored.refused == (f"{newest}: {reason}",)
    assert store.last_iteration() == (0, 1)
    assert len(list(store.episodes())) == 4
    assert store.load_evaluations() == {}
    (event,) = store.events()
    assert (event.kind, event.data) == ("checkpoint refused", f"{newest}: {reason}")
    commit(store, 2)
    assert store.restore().checkpoint == checkpoint(2, b"w")


def test_without_any_valid_checkpoint_a_run_is_not_guessed_at(store: RunStore) -> None:
    for i in range(2):
        commit(store, i)
    for path in store.checkpoints.iterdir():
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"(?s)no checkpoint is valid.*000001.*000000"):
        store.restore()
    assert store.last_iteration() == (0, 1), "nothing was dropped"


def test_iterations_since_the_last_checkpoint_are_run_again(store: RunStore) -> None:
    for i in range(5):
        due = i % 2 == 1
        store.commit_iteration(0, i, [episode(str(i))], {}, checkpoint(i) if due else None)
    store.save_evaluation("late", 1)
    restored = store.restore()
    assert restored.checkpoint == checkpoint(3)
    assert store.last_iteration() == (0, 3)
    assert store.load_evaluations() == {}


def test_a_run_without_checkpoints_starts_at_its_beginning(store: RunStore) -> None:
    store.save_evaluation("before", 1)
    store.commit_iteration(0, 0, [episode("1")], {})
    assert store.restore().checkpoint is None
    assert store.last_iteration() is None
    assert store.load_evaluations() == {"before": 1}


# ---------------------------------------------------------------------- calls and their cost


def call(key: str, answer: object = "yes", usage: Usage = Usage(1, 10, 5, 0.25)) -> Recorded:  # noqa: B008
    return Recorded(key, "digest", answer, usage)


@pytest.mark.parametrize("answer", [None, "text", {"a": [1, 2.5]}, math.inf, "\ud800", 2**80])
def test_a_recorded_call_comes_back_exactly(store: RunStore, answer: object) -> None:
    store.journal.put_many([call("k", answer)])
    assert store.journal.get("k") == call("k", answer)
    assert store.journal.get("other") is None
    with RunReader(store.directory) as reader:
        assert reader.journal.get("k") == call("k", answer)


def known(store: RunStore, key: str) -> Recorded:
    row = store.journal.get(key)
    assert row is not None
    return row


def test_an_answer_that_is_json_already_is_not_written_again(store: RunStore) -> None:
    store.journal.put_many([Recorded("k", "digest", {"a": "é"}, Usage(1), text='{"a":"é"}')])
    assert known(store, "k").answer == {"a": "é"}


def test_a_call_that_is_repeated_is_paid_twice(store: RunStore) -> None:
    store.journal.put_many([call("1")])
    store.journal.put_many([call("1", "again")])
    assert known(store, "1").answer == "again"
    assert store.spend() == Usage(2, 20, 10, 0.5)


def test_a_call_of_unknown_price_does_not_hide_what_others_cost(store: RunStore) -> None:
    store.journal.put_many([call("1", usage=Usage(1, usd=math.nan)), call("2")])
    assert math.isnan(known(store, "1").usage.usd)
    assert store.spend().usd == 0.25


def test_the_journal_tells_what_calls_took_and_what_a_crash_cut_off_is_kept_as_lost(
    store: RunStore,
) -> None:
    facts = Facts("m", "talker", "training", 0.5, attempts=3)
    answered = call("1", {"text": "a", "billed": {"images": 2, "unit": "x"}})._replace(facts=facts)
    failed = call("2", ["no", "permanent"], Usage(1))._replace(kind="failed")
    store.journal.put_many([answered, failed, call("3")._replace(kind="cached")])
    store.journal.put_many([call(key)._replace(kind="started") for key in ("4", "5")])
    lasting = call("6", usage=Usage())._replace(kind="started")
    store.journal.put_many([lasting, call("7")._replace(kind="arrival", usage=Usage(), ends="5")])
    spent = store.spend()
    assert (known(store, "3").usage, spent) == (call("3").usage, Usage(3, 20, 10, 0.5))
    assert store.journal.get("4") is None
    rows = store.journal.rows()
    assert [row.kind for row in rows] == ["answer", "failed", "cached", "started", "started"]
    assert rows[0] == CallRow(
        *("m", "talker", "training", "answer"), 0.5, 3, 0, {"images": 2}, call("1").usage
    )
    assert [row.usage for row in rows[1:3]] == [Usage(1), Usage()]
    answers, cached, failures, started = store.journal.sums()
    assert answers == CallSum(1, "answer", "", 1, 2, call("1").usage)
    assert (cached.kind, cached.number, cached.usage) == ("cached", 1, Usage())
    assert (failures.kind, failures.fault, failures.retried) == ("failed", "permanent", 0)
    assert (started.kind, started.number) == ("started", 2)
    store.close()
    with RunStore.open(store.directory) as again:
        assert again.spend() == spent
        lost = again.journal.rows()[-1]
        assert (lost.kind, lost.estimated, len(again.journal.rows())) == ("lost", 1, 4)
        assert again.journal.forgotten() == 0


def test_spending_is_summed_with_how_sure_it_is() -> None:
    paid = Usage(1, 10, 5, 0.25)

    def row(kind: str = "answer", seconds: float | None = None, usage: Usage = paid) -> CallRow:
        billed = {"images": 2.0} if kind == "answer" else {}
        return CallRow("m", "talker", "training", kind, seconds, 3, 0, billed, usage)

    unpriced = row(usage=Usage(1, usd=math.nan, cost=1.5))._replace(estimated=1)
    rows = [row(seconds=s) for s in (3.0, 1.0, 2.0)]
    rows += [row("cached", usage=Usage()), row("failed"), row("timeout"), row("timeout"), unpriced]
    ((_, spent),) = spent_by(rows, lambda row: row.who).items()
    assert (spent.answered, spent.cached, spent.failed) == (4, 1, 1)
    assert (spent.retried, spent.unpriced, spent.billed) == (10, 1, {"images": 8})
    assert spent.usage == Usage(7, 60, 30, 1.5, 1.5)
    assert spent.booked == {"timeout": (2, paid + paid)}
    assert spent.estimated == Usage(3, 20, 10, 0.5, 1.5)
    assert spent.latencies() == {0.5: 2.0, 0.9: 3.0, 0.99: 3.0}


def test_what_is_computed_again_keeps_the_usage_of_once_and_the_rest_beside_it(
    store: RunStore,
) -> None:
    again = call("1")._replace(computed=True)
    store.journal.put_many([again])
    store.journal.put_many([again, again])
    assert known(store, "1").usage == again.usage
    assert (store.stated(), store.spend()) == (Usage(2, 20, 10, 0.5), Usage(3, 30, 15, 0.75))


def test_a_cached_answer_is_used_again_and_costs_nothing(store: RunStore) -> None:
    store.cache.put(call("digest"))
    assert store.cache.get("digest") == call("digest")
    assert store.cache.get("other") is None
    assert store.spend() == Usage(usd=0.0)


def test_a_reader_records_nothing(store: RunStore) -> None:
    with RunReader(store.directory) as reader:
        with pytest.raises(StoreError, match="for reading only"):
            reader.journal.put_many([call("1")])
        with pytest.raises(StoreError, match="for reading only"):
            reader.cache.put(call("1"))


# -------------------------------------------------------------------------------- retention


@pytest.mark.parametrize(
    ("retention", "episodes", "turns", "answers"),
    [("all", 8, 2, 8), ("turns", 8, 2, 6), ("episodes", 8, 0, 6), ("none", 0, 0, 6)],
)
def test_retention_says_what_is_kept(
    tmp_path: Path, retention: Retention, episodes: int, turns: int, answers: int
) -> None:
    with RunStore.create(tmp_path / "run", "", retention=retention, keep=2) as store:
        for i in range(4):
            store.journal.put_many([call(f"{i}/{k}") for k in range(2)])
            commit(store, i)
        store.journal.put_many([call("4/0"), call("4/1")])
        found = list(store.episodes())
        assert len(found) == episodes
        assert all(len(one.episode.turns) == turns for one in found)
        assert all(one.turn_count == 2 and one.usage == Usage(2, cost=4.0) for one in found)
        assert all(one.episode.reward == episode("").reward for one in found)
        # Whatever a resume from the oldest kept checkpoint (of iteration 2) asks for is there.
        known = [f"{i}/{k}" for i in range(5) for k in range(2) if store.journal.get(f"{i}/{k}")]
        assert len(known) == answers + 2 if retention == "all" else known == known[-4:]
        assert {"3/0", "3/1", "4/0", "4/1"} <= set(known)
        assert store.spend().calls == 10, "what was paid is never forgotten"
        assert [i.episodes for i in store.iterations()] == [2, 2, 2, 2]


def test_shrinking_a_run_frees_room_and_keeps_the_numbers(store: RunStore) -> None:
    for i in range(4):
        store.journal.put_many([call(str(i), "x" * 20_000)])
        commit(store, i)
    iterations = [evolve(i, checkpoint=None, digest=None) for i in store.iterations()]
    store.shrink("episodes", 1)
    store.close()
    size = (store.directory / "run.db").stat().st_size
    with RunReader(store.directory) as reader:
        assert [evolve(i, checkpoint=None, digest=None) for i in reader.iterations()] == iterations
        assert [one.episode.turns for one in reader.episodes()] == [()] * 8
        assert reader.spend().calls == 4
        assert reader.latest().checkpoint == checkpoint(3, b"w")
        assert reader.retention == "episodes"
    assert len(list(store.checkpoints.iterdir())) == 1
    assert size < 120_000
    with RunStore.open(store.directory) as again:
        again.shrink("all", 9)
        assert (again.retention, again.keep) == ("episodes", 1), "what is gone is gone"
        again.shrink("none")
        assert list(again.episodes()) == []


# ----------------------------------------------------------------------- status, evaluations


def test_the_status_and_the_time_of_a_run_are_kept(store: RunStore) -> None:
    commit(store, 0)
    store.set_status("budget", "3 of 3 dollars are spent", seconds=2.0)
    store.close()
    with RunReader(store.directory) as reader:
        assert (reader.status, reader.detail) == ("budget", "3 of 3 dollars are spent")
        assert reader.seconds == 3.5
        assert reader.finished is not None
        assert reader.finished >= reader.created


def test_a_run_that_nobody_works_on_is_interrupted(store: RunStore) -> None:
    with RunReader(store.directory) as reader:
        before = reader.status
        store.close()
        assert (before, reader.status) == ("running", "interrupted")


def test_an_evaluation_is_replaced_by_one_of_the_same_name(store: RunStore) -> None:
    store.save_evaluation("b", 1, [episode("1")])
    store.save_evaluation("a", {"x": math.inf})
    store.save_evaluation("b", 2, [episode("2")])
    assert store.load_evaluations() == {"a": {"x": math.inf}, "b": 2}
    assert [found.episode.id for found in store.episodes()] == ["2"]
    with pytest.raises(UsageError, match="cannot be called 'train'"):
        store.save_evaluation("train", 3)


def test_results_that_are_booked_are_known_to_the_rest_of_a_run_and_no_event(
    store: RunStore,
) -> None:
    assert store.booked.add("sum")
    commit(store, 0)
    store.close()
    with RunStore.open(store.directory) as again:
        assert (again.booked.add("sum"), again.events()) == (False, [])


def test_a_glance_tells_how_a_run_stands(store: RunStore) -> None:
    begun = run_identity(store.directory)
    store.plan(0, 4)
    for i in range(2):
        commit(store, i, reward=i / 2)
    store.journal.put_many([call("1")])
    store.set_status("budget", "3 dollars are spent")
    written = run_identity(store.directory)
    seen = glance(store.directory)
    assert (seen.status, seen.detail) == ("budget", "3 dollars are spent")
    assert (seen.iterations, seen.planned, seen.episodes, seen.solved) == (2, 4, 4, 1.0)
    assert (seen.rewards, seen.pace, seen.seconds) == ((0.0, 0.5), 1.5, 3.0)
    assert seen.spend == call("1").usage
    store.close()
    assert len({begun, written, run_identity(store.directory)}) == 3
    (store.directory / "run.db").write_bytes(b"x" * 5000)
    broken = glance(store.directory)
    assert (broken.status, "damaged" in broken.detail) == ("unreadable", True)
    assert (broken.iterations, broken.episodes, broken.spend) == (0, 0, Usage())


def test_notes_are_events_and_a_line_that_was_cut_off_is_none(store: RunStore) -> None:
    add_note(store.directory, "served", {"port": 1})
    with (store.directory / "notes.jsonl").open("ab") as file:
        file.write(b'\n[1.0, "cut')
    add_note(store.directory, "again")
    served, again = store.events()
    assert (served.kind, served.data, again.kind, again.data) == (
        "served",
        {"port": 1},
        "again",
        None,
    )
    assert store.created - 1 < served.at <= again.at
    with pytest.raises(StoreError, match=r"notes\.jsonl"):
        add_note(store.directory / "none", "served")


def test_evaluations_made_later_are_files_that_notice_a_change(store: RunStore) -> None:
    document = {"report": {"outcomes": {"learned": {}}, "seeds": 1}}
    first, second = (keep_evaluation(store.directory, document) for _ in range(2))
    second.write_text(second.read_text().replace('"seeds": 1', '"seeds": 2'))
    (first.parent / "notes.json").write_text("{}")
    kept = store.kept_evaluations()
    assert list(kept) == ["1.json", "2.json"]
    assert kept["1.json"] == document
    assert "is damaged: its content is not what was written" in kept["2.json"]["error"]
    first.write_text(json.dumps(document))
    assert read_evaluation(first) == document, "as `eval --json` prints it"
    for text in ("{", "[]", '{"report": {"outcomes": {}, "seeds": 1}}'):
        first.write_text(text)
        with pytest.raises(StoreError, match="is not an evaluation"):
            read_evaluation(first)
    first.unlink()
    with pytest.raises(StoreError, match=r"1\.json: cannot be read"):
        read_evaluation(first)


# -------------------------------------------------------------------------------- databases


def test_network_folders_get_the_older_journal_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"none / ext4 rw 0 0\nserver:/x {tmp_path}/net\\040share nfs4 rw 0 0\n")
    monkeypatch.setattr(database, "_MOUNTS", mounts)
    for folder, mode in (("net share", "delete"), ("local", "wal")):
        with RunStore.create(tmp_path / folder / "run", "") as store:
            assert store._writer.one("PRAGMA journal_mode") == (mode,)
            commit(store, 0)
            store.journal.put_many([call("1")])
            assert store.restore().checkpoint == checkpoint(0, b"w")
            assert store.journal.get("1") == call("1")


def test_where_readers_cannot_share_memory_the_older_journal_mode_is_used(store: RunStore) -> None:
    commit(store, 0)
    store.close()
    (store.directory / "run.db-shm").mkdir()
    with RunReader(store.directory) as reader:
        assert reader.last_iteration() == (0, 0), "the file is read as it is"
    with RunStore.open(store.directory) as again:
        assert again._writer.one("PRAGMA journal_mode") == ("delete",)
        commit(again, 1)
        assert [one.iteration for one in again.iterations()] == [0, 1]
    (store.directory / "run.db-shm").rmdir()
    with RunStore.open(store.directory) as again:
        assert again._writer.one("PRAGMA journal_mode") == ("wal",)
        assert again.last_iteration() == (0, 1)


def test_an_older_sqlite_does_without_strict_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with RunStore.create(tmp_path / "run", "") as store:
        (tables,) = store._reader.one("SELECT group_concat(sql) FROM sqlite_master")
        assert "STRICT" not in tables
        assert "->" not in tables
        commit(store, 0)
        assert store.restore().checkpoint == checkpoint(0, b"w")


def test_a_database_of_another_schema_is_refused_not_guessed_at(store: RunStore) -> None:
    store.close()
    path = store.directory / "run.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for opened in (RunReader, RunStore.open):
        with pytest.raises(
            StoreError, match=r"written by a later version of orchestrion \(its schema is 99"
        ):
            opened(store.directory)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 7")
    connection.close()
    with pytest.raises(StoreError, match="not the database of a run"):
        RunReader(store.directory)
    path.write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match="damaged, or not a run's database"):
        RunReader(store.directory)
    path.unlink()
    with pytest.raises(StoreError, match="holds no run"):
        RunReader(store.directory)


def test_a_database_that_another_program_keeps_locked_is_said_so(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store._writer._connection.execute("PRAGMA busy_timeout=1")
    other = sqlite3.connect(store.directory / "run.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another program keeps it locked"):
        commit(store, 0)
    other.close()
    commit(store, 0)


def test_what_killed_makers_of_runs_left_is_removed_after_a_while(tmp_path: Path) -> None:
    drafts = [tmp_path / f".{name}.1.new" for name in ("old", "fresh", "held")]
    same_process = tmp_path / f".run.{os.getpid()}.new"  # as in a container that begins anew
    for draft in (*drafts, same_process):
        draft.mkdir()
    held = RunLock(drafts[2])
    for draft in (drafts[0], drafts[2]):
        os.utime(draft, (0, 0))
    RunStore.create(tmp_path / "run", "").close()
    held.release()
    assert [draft.exists() for draft in (*drafts, same_process)] == [False, True, True, False]


def test_what_killed_writers_left_is_removed(store: RunStore) -> None:
    store.close()
    left = [store.directory / ".x.1.tmp", store.checkpoints / ".00-000001.safetensors.1.tmp"]
    for path in left:
        path.write_bytes(b"half")
    RunReader(store.directory).close()
    assert all(path.exists() for path in left), "only the one writer may tidy up"
    RunStore.open(store.directory).close()
    assert not any(path.exists() for path in left)


def test_file_modes_are_the_users_own(store: RunStore) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for path in (store.directory, store.directory / "run.db", store.directory / "config.yaml"):
        wanted = 0o777 if path.is_dir() else 0o666
        assert path.stat().st_mode & wanted & mask == 0
