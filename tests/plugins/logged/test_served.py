"""The log of a served team: joined, cut off, full, and while it is being written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from orchestrion_logged import Context, Feedback, Logged, ServedLog, ServedRequest, ServedStep, read

from orchestrion import StoreError, UsageError

SIZE = 10_000_000


def decision(identity: str, choice: str = "small", step: int = 0) -> Logged:
    return Logged(Context(features=(1.0,)), choice, ("small", "large"), 0.5, None, None, 0.1,
                  identity, step)  # fmt: skip


def test_decisions_are_joined_with_the_score_that_counts(tmp_path: Path) -> None:
    with ServedLog(tmp_path, SIZE) as log:
        for name in ("late", "missing", "repeated", "corrected", "verified", "overruled"):
            log.append(decision(name), decision(name, "large", 1), ServedRequest(name))
        log.append(Feedback("repeated", 1.0))
        log.append(Feedback("repeated", 1.0))
        log.append(Feedback("corrected", 1.0))
        log.append(Feedback("corrected", 0.25))
        log.append(Feedback("verified", 0.5, "verifier"))
        log.append(Feedback("overruled", 1.0))
        log.append(Feedback("overruled", 0.0, "verifier"))
        log.append(Feedback("nobody's", 1.0))
    with ServedLog(tmp_path, SIZE) as log:  # another file
        log.append(Feedback("late", 0.75))
        content = read(tmp_path)  # while it is written
    scores = {episode[0].episode: episode[-1].score for episode in content.episodes}
    assert scores == {
        "late": 0.75, "missing": None, "repeated": 1.0, "corrected": 0.25, "verified": 0.5,
        "overruled": 1.0,
    }  # fmt: skip
    assert all(episode[0].score is None for episode in content.episodes)
    assert content.notes == ["left out: feedback on 1 requests that were removed"]


def test_a_line_that_was_cut_off_is_skipped_and_said(tmp_path: Path) -> None:
    with ServedLog(tmp_path, SIZE) as log:
        log.append(decision("whole"), ServedRequest("whole"))
        log.append(decision("torn"), ServedRequest("torn"))
    [path] = sorted(tmp_path.glob("0*.jsonl"))
    path.write_bytes(path.read_bytes()[:-5])
    with ServedLog(tmp_path, SIZE) as log:
        log.append(decision("after"), ServedRequest("after"))
    content = read(tmp_path)
    assert [episode[0].episode for episode in content.episodes] == ["whole", "after"]
    assert content.notes == [
        "left out: 1 lines that were cut off, or are being written",
        "left out: 1 requests whose last line is not there",
    ]
    path.write_bytes(b"not JSON\n" * 3)  # more than there is to read
    with pytest.raises(UsageError, match=r"000001.jsonl:1: "):
        read(tmp_path)


def test_the_oldest_requests_go_when_the_log_is_full(tmp_path: Path) -> None:
    notes: list[str] = []
    removed: list[int] = []
    with ServedLog(tmp_path, 200_000, notes.append, removed.append) as log:
        for i in range(3000):
            log.append(decision(f"r{i}"), ServedRequest(f"r{i}"))
        log.sync()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 200_000
    assert len([*tmp_path.glob("0*.jsonl")]) == 3, "no more goes than has to"
    assert len(notes) == 1
    assert "the log is full" in notes[0]
    assert removed == list(range(1, len(removed) + 1))
    kept = [episode[0].episode for episode in read(tmp_path).episodes]
    assert kept == [f"r{i}" for i in range(3000 - len(kept), 3000)]
    assert kept


def test_one_server_writes_to_a_log(tmp_path: Path) -> None:
    with ServedLog(tmp_path, SIZE) as log:
        with pytest.raises(StoreError, match="another server"):
            ServedLog(tmp_path, SIZE)
        log.close()
        with pytest.raises(StoreError, match="is closed"):
            log.append(ServedRequest("late"))
    with ServedLog(tmp_path, SIZE):
        pass


def test_a_line_of_a_served_log_is_no_decision_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"served":"x"}\n')
    with pytest.raises(UsageError, match=r"log.jsonl:1: is a line of a served log"):
        read(path)
    assert os.listdir(tmp_path) == ["log.jsonl"]


def test_after_a_full_disk_the_same_file_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with ServedLog(tmp_path, SIZE) as log:
        log.append(decision("before"), ServedRequest("before"))
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:20]))
        for _ in range(3):
            with pytest.raises(StoreError, match="cut off after 20 bytes"):
                log.append(decision("lost"), ServedRequest("lost"))
        monkeypatch.undo()
        log.append(decision("after"), ServedRequest("after"))
        log.step(ServedStep("serving", "v1"))
    with (tmp_path / "steps.jsonl").open("a") as steps:
        steps.write('{"step":"prom')
    with ServedLog(tmp_path, SIZE) as log:
        log.step(ServedStep("rolled back", "v1"))
    content = read(tmp_path)
    assert list(content.served) == ["before", "after"]
    assert len([*tmp_path.glob("0*.jsonl")]) == 2, "one a start"
    assert [step.step for step in content.steps] == ["serving", "rolled back"]
    assert any("1 damaged lines, the first is " in note for note in content.notes)


def test_zeros_in_the_middle_cost_only_the_requests_that_they_hit(tmp_path: Path) -> None:
    """As a power cut leaves them: a part of the file was never written."""
    with ServedLog(tmp_path, SIZE) as log:
        for name in ("first", "hit", "last"):
            steps = [decision(name, step=step) for step in (0, 1)]
            log.append(*steps, ServedRequest(name, decisions=2))
    [path] = tmp_path.glob("0*.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[4] = lines[4][:9] + bytes(20) + lines[4][29:]
    path.write_bytes(b"\n".join(lines))
    content = read(tmp_path)
    assert [episode[0].episode for episode in content.episodes] == ["first", "last"]
    assert any(f"1 damaged lines, the first is {path}:5: " in note for note in content.notes)


def test_the_folder_above_a_log_is_none(tmp_path: Path) -> None:
    with ServedLog(tmp_path / "logs" / "model", SIZE):
        pass
    with pytest.raises(UsageError, match="is no log of a served model"):
        read(tmp_path / "logs")


def test_an_answer_that_a_limit_ended_counts_as_in_an_evaluation(tmp_path: Path) -> None:
    with ServedLog(tmp_path, SIZE) as log:
        for name, status in (("whole", "completed"), ("cut", "limit"), ("silent", "limit")):
            log.append(decision(name), ServedRequest(name, status=status))
        log.append(Feedback("whole", 1.0), Feedback("cut", 0.75))
    content = read(tmp_path)
    scores = {episode[0].episode: episode[-1].score for episode in content.episodes}
    assert scores == {"whole": 1.0, "cut": 0.0, "silent": None}
    assert content.feedback["cut"].score == 0.75  # what its user said stays on record
    assert content.notes == [
        "1 answers with a score above 0 came when a limit ended the episode: they count as 0 here, "
        "as they do in an evaluation"
    ]
