"""The log of a run: what stands in it, and that nothing in it or around it hurts the run."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from orchestrion import _runlog
from orchestrion._events import DEBUG, INFO, LOGGER, WARNING, event, within
from orchestrion._runlog import run_log
from orchestrion._secrets import register
from tests.core.plugin_support import Site, invoke, site_with_config, train

KEY = "sk-log-5f1e0c77aa"


@pytest.fixture(autouse=True)
def unconfigured() -> None:
    """Libraries of other tests may have configured structlog, and a run leaves that alone."""
    structlog.reset_defaults()


PARTS = '''
import logging

from structlog import get_logger

from orchestrion import Agent, Answer, CallError, Output, Request, Usage


TRIES = []


@frozen
class Chatty(Agent):
    """Logs what it does, calls a service that fails at first, and fails itself on some problems.

    Args:
        key: its secret.
    """

    key: str = ""

    async def act(self, view, key, calls):
        logging.getLogger("httpx").warning("slow answer for %s", self.key)
        logging.getLogger("httpx").info("POST 200")
        get_logger("noisy").warning("100% left out", count=3)

        async def do():
            TRIES.append(1)
            if len(TRIES) == 1:
                raise CallError("try again", "transient", retry_after=0.001)
            return Answer("fine", Usage(calls=1))

        await calls.run(Request("letters", "1", view.problem.id), do, Usage(calls=1))
        if view.problem.id.endswith("1"):
            raise ValueError(f"no {self.key}")
        return Output("done")
'''
CONFIG = """
seed: 1
task: {use: noisy-task}
agents:
  a: {use: noisy-agent, key: "${env:NOISY_KEY}"}
policy: {use: noisy-policy}
trainer: {use: noisy-trainer}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site whose agent logs."""
    monkeypatch.setenv("NOISY_KEY", KEY)
    yield from site_with_config(tmp_path, monkeypatch, CONFIG, "noisy", PARTS)


def lines(path: str | Path = "runs/c-1/run.log") -> list[dict[str, Any]]:
    """The lines of a log; each is whole."""
    text = Path(path).read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_leaves_a_line_for_what_happened_and_no_secret(site: Site) -> None:
    handlers = list(logging.getLogger().handlers), LOGGER.level
    done = train()
    assert done.exit_code == 0, done.stderr
    log = lines()
    events = [line["event"] for line in log if "logger" not in line]
    assert events[:2] == ["run started", "stage"]
    assert events[-2:] == ["spent", "run finished"]
    assert events.count("iteration") == events.count("checkpoint") == 2
    assert {"time", "level", "run"} <= set.intersection(*(set(line) for line in log))
    assert {line["run"] for line in log} == {"c-1"}

    failed = next(line for line in log if line["event"] == "failed")
    assert failed["level"] == "warning"
    where = {name: failed[name] for name in ("stage", "iteration", "episode", "agent")}
    assert where == {"stage": 0, "iteration": 0, "episode": "0/0/1", "agent": "a"}
    retry = next(line for line in log if line["event"] == "retry")
    assert (retry["service"], retry["agent"], retry["fault"]) == ("letters", "a", "transient")
    assert retry["episode"] == "0/0/0"

    sdk = next(line for line in log if line.get("logger") == "httpx")
    assert (sdk["level"], sdk["event"]) == ("warning", "slow answer for [NOISY_KEY]")
    assert sdk["episode"] == "0/0/0"
    own = next(line for line in log if line["event"] == "100% left out")
    assert own["count"] == 3
    assert not any(line["event"] in ("POST 200", "episode") for line in log)
    iteration = next(line for line in log if line["event"] == "iteration")
    assert iteration["metrics"]["own"] == 0.5
    assert log[-1]["status"] == "completed"

    assert KEY not in Path("runs/c-1/run.log").read_text() + done.output + done.stderr
    assert "slow answer" in done.stderr, "warnings of libraries are printed as they were"
    assert "retry" not in done.stderr
    assert (list(logging.getLogger().handlers), LOGGER.level) == handlers


def test_v_prints_events_and_vv_episodes_and_information_too(site: Site) -> None:
    said = invoke("train", "c.yaml", "-v").stderr
    assert "run started" in said
    assert "retry" in said
    assert said.count("iteration=") == said.count("stage=0 iteration=")
    assert "episode=0/0/1 agent=a error=" in said
    assert "POST 200" not in said
    level = logging.getLogger().level
    logging.getLogger("httpx").setLevel(logging.NOTSET)  # tests before this one may have set it
    said = invoke("-vv", "train", "c.yaml").stderr
    assert "POST 200" in said
    assert "status=completed success=True" in said
    assert logging.getLogger().level == level
    episodes = [line for line in lines("runs/c-2/run.log") if line["event"] == "episode"]
    assert len(episodes) == 6
    assert episodes[0]["agents"] == ["a"]


def test_a_run_that_ends_early_says_why_and_goes_on_in_its_log(site: Site) -> None:
    assert train("budget.calls=3").exit_code == 4
    before = lines()
    assert [line["status"] for line in before if line["event"] == "run finished"] == ["budget"]
    assert before[-1]["event"] == "run ended early"
    assert before[-1]["level"] == "warning"
    assert "budget" in before[-1]["error"]

    assert invoke("resume", "c-1", "-o", "budget.calls=100").exit_code == 0
    after = lines()
    assert after[: len(before)] == before
    assert [line["done"] for line in after if line["event"] == "stage"] == [0, 1]
    assert after[-1]["status"] == "completed"


def test_a_log_that_cannot_be_written_is_said_once_and_fails_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_runlog, "NAME", "../full")
    Path("runs").mkdir()
    Path("runs/full").symlink_to("/dev/full")
    done = train()
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("full cannot be written: No space left on device") == 1


def test_the_file_is_bounded_and_begins_behind_its_last_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_runlog, "LIMIT", 2_000)
    said: list[str] = []
    with run_log(tmp_path, said.append):
        for i in range(100):
            event(INFO, "step", number=i)
    both = [*lines(tmp_path / "run.log.1"), *lines(tmp_path / "run.log")]
    numbers = [line["number"] for line in both]
    assert numbers == list(range(100 - len(numbers), 100))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * 2_000
    assert {path.name for path in tmp_path.iterdir()} == {"run.log", "run.log.1"}

    whole = (tmp_path / "run.log").read_bytes()
    (tmp_path / "run.log").write_bytes(whole + b'{"time": "2026')
    monkeypatch.setattr(_runlog, "LIMIT", 10**6)
    with run_log(tmp_path, said.append, verbose=2):
        event(DEBUG, "a \x00 text", long="x" * 9_000, thing=Path("/a"), deep=[{1: float("inf")}])
    assert (tmp_path / "run.log").read_bytes().startswith(whole)
    last = lines(tmp_path / "run.log")[-1]
    assert last["event"] == "a \x00 text"
    assert len(last["long"]) < 4_100
    assert (last["thing"], last["deep"]) == ("/a", [{"1": None}])


def test_half_of_a_secret_is_not_shown(tmp_path: Path) -> None:
    register("CUT_KEY", "cut-0123456789abcdef")
    with run_log(tmp_path, lambda text: None):
        event(INFO, "long", text="x" * (_runlog.LONGEST - 6) + "cut-0123456789abcdef" * 2)
    assert "cut-01" not in (tmp_path / "run.log").read_text()


def test_runs_at_the_same_time_have_logs_of_their_own(tmp_path: Path) -> None:
    async def run(name: str) -> None:
        (tmp_path / name).mkdir()
        with run_log(tmp_path / name):
            for i in range(3):
                with within(iteration=i):
                    event(INFO, "step")
                    await asyncio.sleep(0)
                    logging.getLogger("sdk").warning("slow")

    async def both() -> None:
        await asyncio.gather(run("one"), run("two"))

    asyncio.run(both())
    for name in ("one", "two"):
        log = lines(tmp_path / name / "run.log")
        assert {line["run"] for line in log} == {name}
        assert [line["iteration"] for line in log] == [0, 0, 1, 1, 2, 2]
    event(WARNING, "after")
    assert len(lines(tmp_path / "one" / "run.log")) == 6
