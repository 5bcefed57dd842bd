"""Answers that runs share (`run.cache`): by what was asked, by any number of processes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from orchestrion import Answer, Request, Usage, UsageError
from orchestrion._engine.calls import CallPath, Recorded
from orchestrion._store.shared import SharedAnswers, cache_folder
from tests.core.store_support import KILLED, ended, forked
from tests.core.test_calls import make

ONE = Usage(1, 10, 5, 0.25, 0.25)


def ask(folder: Path, *requests: Request) -> tuple[list[int], list[Answer], Usage]:
    """A run's calls: which were made, what all were answered, and what was spent."""
    made: list[int] = []

    async def main(path: CallPath) -> list[Answer]:
        answers = []
        for i, request in enumerate(requests):

            async def do(i: int = i) -> Answer:
                made.append(i)
                return Answer({"text": f"answer {i}"}, ONE)

            answers.append(await make(path, f"s/{i}", request, do, ONE))
        return answers

    with SharedAnswers(str(folder)) as shared:
        path = CallPath(shared=shared)
        answers = asyncio.run(main(path))
        return made, answers, path.budget.spent


def request(text: str = "q", sample: str = "", cache: bool | None = None) -> Request:
    return Request("model", {"messages": [text]}, "1", sample, cache)


def test_a_later_run_is_answered_with_full_cost_and_no_spend(tmp_path: Path) -> None:
    made, first, spent = ask(tmp_path, request("a"), request("b"))
    assert (made, spent) == ([0, 1], Usage(2, 20, 10, 0.5, 0.5))
    made, again, spent = ask(tmp_path, request("b"), request("a"), request("c"))
    assert made == [2], "only what was not asked before"
    assert [again[1], again[0]] == first
    assert [one.usage for one in again] == [ONE] * 3
    assert spent == ONE


def test_samples_versions_and_services_have_answers_of_their_own(tmp_path: Path) -> None:
    samples = [request(sample=str(n)) for n in range(4)]
    others = [Request("other", {"messages": ["q"]}, "1", "0", None)]
    others += [Request("model", {"messages": ["q"]}, "2", "0", None)]
    made, first, _ = ask(tmp_path, *samples, *others)
    assert made == list(range(6))
    assert len({str(one.data) for one in first}) == 6
    made, again, _ = ask(tmp_path, *samples, *others)
    assert (made, again) == ([], first)


def test_who_does_not_want_it_is_not_answered_from_it(tmp_path: Path) -> None:
    for _ in range(2):
        assert ask(tmp_path, request(cache=False))[0] == [0]
    assert ask(tmp_path, request(cache=True))[0] == [0]
    assert ask(tmp_path, request(cache=True))[0] == []


def test_an_entry_that_is_not_what_was_written_is_asked_again(tmp_path: Path) -> None:
    ask(tmp_path, request("a"), request("b"))
    [file] = tmp_path.glob("*.db")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE answers SET answer = replace(answer, 'answer 0', 'answer 9')")
    connection.close()
    assert ask(tmp_path, request("a"), request("b"))[0] == [0]
    assert ask(tmp_path, request("a"), request("b"))[0] == []


def test_processes_share_it_and_one_that_is_killed_harms_nobody(tmp_path: Path) -> None:
    def fill(n: int) -> None:
        ask(tmp_path, *(request(f"{n // 2} {i}") for i in range(50)))

    def die() -> None:
        import os
        import signal

        with SharedAnswers(str(tmp_path)) as shared:
            writer = shared._writer
            assert writer is not None
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("DELETE FROM answers")
            os.kill(os.getpid(), signal.SIGKILL)

    children = [forked(lambda n=n: fill(n)) for n in range(4)]  # type: ignore[misc]
    assert [ended(pid) for pid in children] == [0] * 4
    assert ended(forked(die)) == KILLED
    assert ask(tmp_path, *(request(f"{n} {i}") for n in (0, 1) for i in range(50)))[0] == []


def test_a_folder_that_cannot_be_used_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=r"run\.cache: .*file cannot be used"):
        SharedAnswers(str(tmp_path / "file")).__enter__()
    (tmp_path / "answers-1.db").write_text("no database, and long enough to be looked at" * 9)
    with pytest.raises(UsageError, match="cannot be used as a folder of answers"):
        SharedAnswers(str(tmp_path)).__enter__()


@pytest.mark.parametrize("reading", [True, False])
def test_a_cache_that_breaks_down_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reading: bool
) -> None:
    with SharedAnswers(str(tmp_path)) as shared:
        assert shared._writer is not None
        shared._writer.execute("DROP TABLE answers")
        for _ in range(2):
            if reading:
                assert shared.get("k") is None
            else:
                shared.put_many([Recorded("k", "k", "x", ONE)])
    assert caplog.text.count("is not used any more") == 1


@pytest.mark.parametrize(
    ("platform", "environment", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/c"}, "/c/orchestrion"),
        ("linux", {}, "/home/ann/.cache/orchestrion"),
        ("darwin", {"XDG_CACHE_HOME": "/c"}, "/home/ann/Library/Caches/orchestrion"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/orchestrion"),
        ("win32", {}, "/home/ann/AppData/Local/orchestrion"),
    ],
)
def test_shared_is_the_platforms_folder(
    monkeypatch: pytest.MonkeyPatch, platform: str, environment: dict[str, str], folder: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("HOME", "/home/ann")
    assert cache_folder("shared", environment) == Path(folder)
    assert cache_folder("here/answers") == Path("here/answers")
