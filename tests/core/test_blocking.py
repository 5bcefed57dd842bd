"""Plugins that block the event loop, take no notice of an interrupt, or would end the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from orchestrion._cli import looping
from orchestrion._engine import blocking
from orchestrion._engine.blocking import Work
from tests.core.plugin_support import Site, invoke, site_with_config, status, train

PARTS = '''
import asyncio
import os
import re
import signal
import sys
import time
from contextlib import asynccontextmanager

from orchestrion import Agent, Output
from orchestrion._cli import looping

# What takes seconds otherwise.
looping.TICK, looping.PATIENCE, looping.GRACE = 0.05, 0.4, 0.8


async def swallow():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


def interrupt():
    raise KeyboardInterrupt


@frozen
class Rude(Agent):
    """Misbehaves.

    Args:
        does: how.
    """

    does: str = ""

    async def act(self, view, key, calls):
        if self.does == "deaf":  # like a thread that began to wait just before a signal came
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        print("at work", file=sys.stderr, flush=True)
        if self.does == "swallow":
            await swallow()
        elif self.does == "thread":
            await asyncio.to_thread(time.sleep, 3600)
        elif self.does == "exit in a task":
            asyncio.get_running_loop().call_soon(sys.exit, 3)
            await asyncio.Event().wait()
        elif self.does:
            {
                "block": lambda: time.sleep(3600),
                "deaf": lambda: time.sleep(3600),
                "backtrack": lambda: re.match("(a+)+$", "a" * 60 + "b"),
                "interrupt": interrupt,
                "stop": lambda: asyncio.get_running_loop().stop(),
                "fork": os.fork,
            }[self.does]()
        return Output("done")


@frozen
class Doubts(Task):
    """Has one problem a split.

    Args:
        fails: whether its verifier has a bug.
    """

    fails: bool = False

    def problems(self, split):
        return [Problem(split)]

    async def verify(self, problem, trajectory, state, *, final, calls):
        if self.fails:
            raise ValueError("no verdict")
        return Scores(1.0, True)


@frozen
class Fails(Once):
    """Asks once.

    Args:
        fails: when: to decide, to open, or to close.
    """

    fails: str = ""

    @asynccontextmanager
    async def open(self, ctx):
        if self.fails == "open":
            interrupt()
        yield self
        if self.fails == "close":
            raise ValueError("close boom")

    def decide(self, situations, keys):
        if self.fails == "decide":
            raise ValueError("no decision")
        return super().decide(situations, keys)
'''
CONFIG = """
task: {use: rude-task}
agents:
  a: {use: rude-agent}
policy: {use: rude-policy}
"""
RUDE = "agents.a (rude-agent of orchestrion-rude 1.0)"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    yield from site_with_config(tmp_path, monkeypatch, CONFIG, "rude", PARTS)


def begun(*overrides: str) -> subprocess.Popen[str]:
    """A run in a process of its own, when its agent is at work."""
    words = [word for one in overrides for word in ("-o", one)]
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrion", "train", "c.yaml", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while (line := process.stderr.readline()) != "at work\n":
        assert line, "it ended before its agent was at work"
    return process


def ended(process: subprocess.Popen[str], *codes: int) -> str:
    """What a run still said, which ended with one of these codes."""
    # `communicate` would lose what `begun` has read ahead.
    assert process.stderr is not None
    late = threading.Timer(300, process.kill)
    late.start()
    try:
        with process.stderr as stream:
            said = stream.read()
        process.wait()
    finally:
        late.cancel()
        process.kill()
    assert process.returncode in codes, said
    for word in ("Traceback", "never retrieved", "was destroyed"):
        assert word not in said
    return said


@pytest.mark.parametrize("does", ["block", "swallow", "thread", "backtrack", "deaf"])
def test_one_sigterm_ends_a_run_whatever_its_agent_does(site: Site, does: str) -> None:
    process = begun(f"agents.a.does={does}")
    process.send_signal(signal.SIGTERM)
    said = ended(process, 143)
    assert "go on with: orchestrion resume" in said
    if does in ("block", "swallow"):
        assert f"{RUDE}" in said
        assert "still at work" in said
    assert status() == "cancelled"


@pytest.mark.parametrize("does", ["block", "swallow", "deaf"])
def test_the_second_interrupt_ends_a_run_at_once(site: Site, does: str) -> None:
    process = begun(f"agents.a.does={does}")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    # Whichever the process sees first.
    assert "go on with: orchestrion resume" in ended(process, 130, 143)
    assert status() == "cancelled"


def test_who_blocks_the_loop_is_named_and_ends_the_run_at_its_time_limit(site: Site) -> None:
    said = ended(begun("agents.a.does=block", "run.timeout=0.1"), 1)
    assert f"{RUDE} (in {site.folder / 'rude_parts.py'}, line " in said
    assert "has blocked the event loop" in said
    assert "held up the run for longer than the 0.1 s that run.timeout gives it" in said
    assert status() == "failed"


def test_a_thread_that_never_ends_is_not_waited_for(site: Site) -> None:
    said = ended(begun("agents.a.does=thread", "run.timeout=0.1"), 1)
    assert "no result within 0.1 s" in said


def test_a_task_of_an_agent_that_ends_the_process_is_told_without_a_traceback(site: Site) -> None:
    assert "a component raised SystemExit: 3" in ended(begun("agents.a.does=exit in a task"), 1)


@pytest.mark.parametrize(
    ("does", "error"),
    [
        ("interrupt", "KeyboardInterrupt"),
        ("stop", "RuntimeError: loop.stop() would end the run"),
        ("fork", "RuntimeError: os.fork() would run everything twice"),
    ],
)
def test_what_would_end_the_process_is_the_agents_failed_turn(
    site: Site, does: str, error: str
) -> None:
    result = train(f"agents.a.does={does}")
    assert result.exit_code == 1
    assert f"with: agent a: {error}" in result.stderr


@pytest.mark.parametrize(
    ("override", "error"),
    [
        (
            "policy.fails=decide",
            "policy (rude-policy of orchestrion-rude 1.0): decide() raised Val",
        ),
        (
            "policy.fails=open",
            "policy (rude-policy of orchestrion-rude 1.0) cannot be opened: Ke",
        ),
        (
            "task.fails=true",
            "verifying by task (rude-task of orchestrion-rude 1.0): ValueError",
        ),
    ],
)
def test_an_error_names_the_component_its_distribution_and_version(
    site: Site, override: str, error: str
) -> None:
    result = train(override)
    assert result.exit_code == 1
    assert error in result.stderr


def test_what_was_evaluated_is_reported_though_a_component_fails_to_close(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    result = train("policy.fails=close")
    assert result.exit_code == 0
    assert "100.0%" in result.stdout
    assert status() == "completed"
    where = "policy (rude-policy of orchestrion-rude 1.0)"
    assert f"{where}: raised ValueError: close boom when it was closed" in caplog.text


def test_an_interrupt_that_a_plugin_raises_when_imported_is_its_own(site: Site) -> None:
    (site.folder / "rude_parts.py").write_text("raise KeyboardInterrupt")
    result = invoke("validate", "c.yaml")
    assert result.exit_code == 2
    assert "plugin 'rude' (orchestrion-rude 1.0) cannot be imported" in result.stderr


def test_what_a_loop_imports_is_not_taken_for_blocking(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor, work = looping._Supervisor(None), [Work("agents.a", imports=True)]
    supervisor._probing = True  # the loop does not answer
    monkeypatch.setattr(blocking, "of_stack", lambda thread: work[0])
    monkeypatch.setattr(looping, "TICK", 0.25)
    monkeypatch.setattr(looping, "PATIENCE", 5.0)
    seconds = 4
    for _ in range(40 * seconds):  # a busy machine
        supervisor._look()
    work[0] = Work("agents.a")
    for _ in range(4 * seconds):
        supervisor._look()
    assert not capsys.readouterr().err
    for _ in range(2 * seconds):
        supervisor._look()
    assert "agents.a has blocked the event loop for 5 s" in capsys.readouterr().err
    work[0] = Work("policy", imports=True, frame=sys._getframe())
    for _ in range(61 * seconds):
        supervisor._look()
    assert "policy has been importing modules for 60 s" in capsys.readouterr().err


def test_many_short_steps_one_after_another_are_not_taken_for_blocking(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call() -> FrameType:
        return sys._getframe()

    supervisor = looping._Supervisor(None)
    supervisor._probing = True  # the loop does not answer: it has hundreds of calls to make
    monkeypatch.setattr(blocking, "of_stack", lambda thread: Work("agents.a", frame=call()))
    monkeypatch.setattr(looping, "TICK", 0.25)
    monkeypatch.setattr(looping, "PATIENCE", 5.0)
    for _ in range(100):
        supervisor._look()
    assert not capsys.readouterr().err
