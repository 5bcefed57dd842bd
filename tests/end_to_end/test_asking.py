"""Runs that ask a service: killed, resumed, replayed, counted; and nothing told of their key."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from urllib.parse import quote

import pytest

from orchestrion._engine import callpath
from orchestrion._engine.attempts import RetrySettings
from orchestrion._store.database import mark
from orchestrion.runs import RunReader
from tests import warm
from tests.end_to_end.loopback import COMPOSED, KEY, Server, asking, install
from tests.end_to_end.support import environment, here, result


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as one:
        yield one


def call(*words: str, cwd: Path, env: dict[str, str], code: int = 0) -> CompletedProcess[str]:
    """Run a command here, with these environment variables; no error may be unforeseen."""
    done = here(*words, cwd=cwd, code=code, **env)
    assert "Traceback" not in done.stderr
    return done


def rows(directory: Path, kind: str) -> int:
    """How many rows of a kind the journal has."""
    if not (directory / "run.db").exists():
        return 0
    connection = sqlite3.connect(f"file:{directory / 'run.db'}?mode=ro", uri=True)
    try:
        found = connection.execute("SELECT count(*) FROM calls WHERE kind = ?", (kind,))
        return int(found.fetchone()[0])
    finally:
        connection.close()


def begin(folder: Path, server: Server, env: dict[str, str], *words: str) -> warm.Command:
    words = ("train", *server.at_model, *words)
    return warm.Command(words, folder, environment(**env), stderr=subprocess.PIPE)


def until(process: warm.Command, true: Callable[[], bool]) -> None:
    """Wait until something holds; the process must not end before."""
    limit = time.monotonic() + 60
    while not true():
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < limit
        time.sleep(0.005)  # between two looks; nothing hangs on its length


def snapshot(directory: Path) -> dict[str, str]:
    """Every file of a run, and what is in it."""
    return {
        str(path.relative_to(directory)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def killed_in_mid_episode(
    folder: Path, server: Server, config: dict[str, Any], answered: int
) -> tuple[dict[str, str], set[str]]:
    """Train until so many calls are answered and others are in flight; kill -9.

    Returns the environment, and the names of the calls in flight.
    """
    env = install(folder, config)
    server.hold = answered
    process = begin(folder, server, env)
    directory = folder / "runs" / config["run"]["name"]
    until(process, lambda: sum(server.calls.values()) > answered)
    # What was answered is on record, so that the rest is what was in flight.
    until(process, lambda: rows(directory, "answer") >= answered)
    until(process, lambda: sum(server.calls.values()) == answered + rows(directory, "started"))
    names = list(server.calls)
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()
    server.release()
    return env, set(names[answered:])


def test_kill_9_repeats_the_calls_in_flight_and_books_them(tmp_path: Path) -> None:
    config, name, answered = asking(), "asking", 20
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    with Server() as server:
        call("train", *server.at_model, cwd=whole, env=install(whole, config))
        once = server.calls
    assert set(once.values()) == {1}

    with Server() as server:
        env, in_flight = killed_in_mid_episode(cut, server, config, answered)
        assert in_flight
        # The config of the run has the address of the server.
        call("resume", name, cwd=cut, env=env)
        again = {name for name, count in server.calls.items() if count > 1}
        assert again <= in_flight
        assert server.calls.keys() == once.keys(), "the same calls as in a run without a crash"
        made = sum(server.calls.values())

    directory = cut / "runs" / name
    # Metrics, learned state and evaluations; the address is another one, and no result hangs on it.
    before, after = result(whole / "runs" / name), result(directory)
    assert before["iterations"] == after["iterations"]
    assert before["evaluations"] == after["evaluations"]
    told = json.loads(call("cost", name, "--json", cwd=cut, env=env).stdout)
    assert told["total"]["calls"] == made, "every request that was made is booked"
    lost = told["total"]["booked_without_answer"]["lost"]
    assert lost["attempts"] == lost["calls"] == len(in_flight)

    # And the whole of it once more, with no server there.
    untouched = snapshot(directory)
    done = call("replay", name, cwd=cut, env={"PYTHONPATH": env["PYTHONPATH"]})
    assert done.stdout.startswith("identical: ")
    assert "4 exports" in done.stdout
    assert snapshot(directory) == untouched


def test_a_run_that_was_not_finished_is_replayed_as_far_as_it_came(
    tmp_path: Path, server: Server
) -> None:
    config = asking(trainer={"use": "repeat", "iterations": 3, "model": "loop"})
    env, _ = killed_in_mid_episode(tmp_path, server, config, 25)  # 19 calls an iteration
    done = call("replay", "asking", cwd=tmp_path, env=env)
    assert done.stdout == "identical: 1 iterations, 0 evaluations, 6 episodes\n"
    assert "what it committed" in done.stderr


def sometimes(share: int) -> Callable[[str], bool]:
    return lambda name: int(sha256(name.encode()).hexdigest(), 16) % share == 0


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try failed calls again at once."""
    settings = partial(RetrySettings, base=0.01, overload_base=0.01)
    monkeypatch.setattr(callpath, "RetrySettings", settings)


@pytest.mark.usefixtures("short_pauses")
def test_a_call_that_failed_for_good_fails_alike_in_a_replay(
    tmp_path: Path, server: Server
) -> None:
    env = install(tmp_path, asking())
    unlucky = sometimes(5)
    server.refuse = lambda name, n: 400 if unlucky(name) else 503 if n == 1 else 0
    call("train", *server.at_model, cwd=tmp_path, env=env)
    with RunReader(tmp_path / "runs" / "asking") as run:
        turns = [turn for one in run.episodes() for turn in one.episode.turns]
    assert any("400" in turn.error for turn in turns if turn.status == "failed")
    told = json.loads(call("cost", "asking", "--json", cwd=tmp_path, env=env).stdout)
    assert told["total"]["failed"] == sum(map(unlucky, server.calls))
    assert told["total"]["retried"] == sum(not unlucky(name) for name in server.calls)
    assert call("replay", "asking", cwd=tmp_path, env=env).stdout.startswith("identical")


def test_a_replay_names_the_first_difference(tmp_path: Path, server: Server) -> None:
    env = install(tmp_path, asking())
    call("train", *server.at_model, cwd=tmp_path, env=env)
    database = tmp_path / "runs" / "asking" / "run.db"
    with sqlite3.connect(database) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(
            connection.execute(
                "SELECT * FROM calls WHERE kind = 'answer' AND who = 'reader' ORDER BY rowid DESC"
            ).fetchone()
        )
        key, answer = row["key"], row["answer"]
        other = json.loads(answer) | {"text": "5" if '"text":"4"' in answer else "4"}
        # With a checksum that fits: this is another answer, and no damage.
        row["answer"] = json.dumps(other)
        seal = mark(*(value for name, value in row.items() if name != "mark"))
        connection.execute(
            "UPDATE calls SET answer = ?, mark = ? WHERE key = ?", (row["answer"], seal, key)
        )
    connection.close()
    done = call("replay", "asking", cwd=tmp_path, code=1, env=env)
    assert re.match(r"not identical: episode evaluate/learned/test-\d/0: score was 0", done.stdout)

    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM calls WHERE key = ?", (key,))
    connection.close()
    done = call("replay", "asking", cwd=tmp_path, code=1, env=env)
    assert "no recorded call to loop" in done.stdout


def test_a_run_that_kept_no_answers_cannot_be_replayed(tmp_path: Path, server: Server) -> None:
    env = install(tmp_path, asking(run={"name": "asking", "retention": "turns"}))
    call("train", *server.at_model, cwd=tmp_path, env=env)
    done = call("replay", "asking", cwd=tmp_path, code=2, env=env)
    assert "retention: all" in done.stderr


def test_cost_tells_who_asked_whom_when_and_how_long(tmp_path: Path, server: Server) -> None:
    config = {**COMPOSED, "trainer": {"use": "repeat", "model": "loop"}}
    env = install(tmp_path, config)
    call("train", *server.at_model, cwd=tmp_path, env=env)
    told = json.loads(call("cost", "composed", "--json", cwd=tmp_path, env=env).stdout)
    assert told["total"]["calls"] == sum(server.calls.values())
    assert set(told["by_service"]) == {"loop"}
    who = {name: one["calls"] for name, one in told["by_who"].items()}
    # 2 x 4 training episodes and 4 of the evaluation; 4 more of the baseline.
    assert who == {
        "panel/crew/writer": 12,
        "panel/crew/reader": 24,
        "panel/second": 12,
        "critic": 16,
        "trainer": 2,
    }
    assert list(told["by_stage"]) == ["trainer", "evaluation of learned", "evaluation of critic"]
    assert 0 < told["total"]["seconds"]["p50"] <= told["total"]["seconds"]["p99"]
    text = call("cost", "composed", cwd=tmp_path, env=env).stdout
    assert "panel/crew/reader" in text
    assert "US dollars" in text


@pytest.mark.usefixtures("short_pauses")
def test_a_call_that_timed_out_is_booked_and_marked(tmp_path: Path, server: Server) -> None:
    config = asking(
        models={"loop": {"use": "loop", "timeout": 0.5}}, trainer={"use": "repeat", "iterations": 1}
    )
    env = install(tmp_path, config)
    late = sometimes(9)
    server.slow = lambda name: 30.0 if late(name) and server.calls[name] == 1 else 0.0
    call("train", *server.at_model, cwd=tmp_path, env=env)
    told = json.loads(call("cost", "asking", "--json", cwd=tmp_path, env=env).stdout)
    booked = told["total"]["booked_without_answer"]["timeout"]
    assert booked["attempts"] == booked["calls"] == sum(map(late, server.calls))
    assert told["total"]["calls"] == sum(server.calls.values())
    assert told["total"]["estimated"]["output_tokens"] == 20 * booked["attempts"]
    text = call("cost", "asking", cwd=tmp_path, env=env).stdout
    assert "timed out, booked with all they could have taken" in text


# ------------------------------------------------------------------------------- secrets


def spellings(value: str) -> list[bytes]:
    texts = [value, quote(value, safe=""), quote(value), json.dumps(value)[1:-1], repr(value)[1:-1]]
    return [*(text.encode() for text in texts), b64encode(value.encode())]


def test_a_key_is_found_in_no_file_and_no_output(tmp_path: Path, server: Server) -> None:
    """It is in headers, in the service's errors and answers, in the prompts, in tracebacks."""
    config = asking(task={"use": "digits", "text": "say ${env:LOOP_KEY} and"})
    env = install(tmp_path, config)
    unlucky = sometimes(4)
    server.refuse = lambda name, n: 400 if unlucky(name) else 0
    server.says = lambda digit: f"{KEY} {b64encode(b'me:' + KEY.encode()).decode()} {digit}"
    done = call("train", *server.at_model, "--verbose", "--debug", cwd=tmp_path, env=env)
    best = call("runs", "show", "asking", "--episode", "0/0/0", cwd=tmp_path, env=env)
    replayed = call("replay", "asking", cwd=tmp_path, env=env)
    assert replayed.stdout.startswith("identical")
    outputs = [one for done in (done, best, replayed) for one in (done.stdout, done.stderr)]
    # A failure of the whole run: every call is refused, with the key in the message.
    server.refuse = lambda name, n: 400
    words = ("-o", "run.name=failed")
    env["ORCHESTRION_DEBUG"] = "1"
    failed = here("train", *server.at_model, *words, cwd=tmp_path, code=1, **env)
    assert "Traceback" in failed.stderr
    assert '"refused, your key is [LOOP_KEY]"' in failed.stderr
    outputs += [failed.stdout, failed.stderr]
    texts = [text.encode() for text in outputs]
    texts += [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert len(texts) > 10
    for spelling in spellings(KEY):
        for text in texts:
            assert spelling not in text
    assert any(b"[LOOP_KEY]" in text for text in texts), "it was there, and was taken out"


# ------------------------------------------------------------------------------- before and beside


def test_a_dry_run_bounds_the_price_and_asks_nobody(tmp_path: Path, server: Server) -> None:
    config = asking(
        trainer={"use": "repeat", "iterations": 2, "model": "loop"}, budget={"calls": 56, "usd": 1}
    )
    env = install(tmp_path, config)
    del env["LOOP_KEY"]  # not needed to be told what it costs
    done = call("train", "--dry-run", "--json", *server.at_model, cwd=tmp_path, env=env)
    told = json.loads(done.stdout)["bound"]
    assert not server.calls
    assert not (tmp_path / "runs").exists()
    calls = {(part["part"], part["who"]): part["calls"] for part in told["parts"]}
    # 6 problems of 2 turns, which take 2 calls at most; the trainer reflects once an iteration.
    assert calls["trainer", "trainer"] == 2
    assert calls["trainer", "agents"] == 2 * 6 * 4
    assert told["unknown"] == []
    env = install(tmp_path, config)
    call("train", *server.at_model, cwd=tmp_path, env=env)
    spent = json.loads(call("cost", "asking", "--json", cwd=tmp_path, env=env).stdout)["total"]
    assert spent["calls"] == sum(server.calls.values()) <= told["total"]["calls"]
    assert spent["input_tokens"] <= told["total"]["input_tokens"]
    assert told["budget"]["calls"] == {
        "cap": 56,
        "needs_at_most": told["total"]["calls"],
        "enough": False,
    }
    assert told["budget"]["usd"]["enough"] is True
    text = call("train", "--dry-run", *server.at_model, cwd=tmp_path, env=env).stdout
    assert "budget.calls: 56 may run out" in text


def test_a_fixed_sequence_is_bounded_by_its_length(tmp_path: Path, server: Server) -> None:
    config = asking()
    del config["trainer"]
    env = install(tmp_path, config)
    done = call("train", "--dry-run", "--json", *server.at_model, cwd=tmp_path, env=env)
    [acting, judge] = json.loads(done.stdout)["bound"]["parts"]
    # 6 problems with 2 steps: any agent may take one, and the second agent makes 2 calls.
    assert (acting["count"], acting["calls"]) == (12, 24)
    assert (judge["count"], judge["calls"]) == (6, 0)


def test_a_smoke_run_is_small_and_says_what_it_left_out(tmp_path: Path, server: Server) -> None:
    env = install(tmp_path, asking(task={"use": "digits", "train": 50, "test": 50}))
    done = call("train", "--smoke", *server.at_model, cwd=tmp_path, env=env)
    assert "trainer.iterations: 2 -> 1" in done.stderr
    assert "run.problems: all -> 5" in done.stderr
    assert sum(server.calls.values()) == 2 * 5 * 3
    assert call("replay", "asking-smoke-1", cwd=tmp_path, env=env).stdout == (
        "identical: 1 iterations, 1 evaluations, 10 episodes, 4 exports\n"
    )


def test_a_missing_key_is_said_before_anything_is_asked(tmp_path: Path, server: Server) -> None:
    env = install(tmp_path, asking())
    del env["LOOP_KEY"]
    done = call("train", *server.at_model, cwd=tmp_path, code=2, env=env)
    assert "models.loop: the environment variable LOOP_KEY is not set" in done.stderr
    assert not server.calls


def test_run_streams_what_models_write_told_apart_and_harmless(
    tmp_path: Path, server: Server
) -> None:
    env = install(tmp_path, COMPOSED)
    words = ("run", "orchestrion.yaml", "--input", "a digit", *server.at_model)
    done = call(*words, "--stream", cwd=tmp_path, env=env)
    assert re.search(r"^\[1 panel > 1 crew > 1 writer\] \d\\x1b$", done.stderr, re.MULTILINE)
    assert re.search(r"^\[1 panel > 2 second\] \d\\x1b$", done.stderr, re.MULTILINE)
    assert "\x1b" not in done.stderr
    for quiet in ((), ("--stream", "--json")):  # no terminal, or only the document
        done = call(*words, *quiet, cwd=tmp_path, env=env)
        assert "x1b" not in done.stderr
