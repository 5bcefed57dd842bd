"""Whatever is killed, and whenever: nothing stays behind, and the next run works.

Processes are judged from /proc: a run's have a name that only the test knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from attrs import evolve
from orchestrion_sandbox import warm
from orchestrion_sandbox.interface import ConversationEnded, Program, Result, SandboxError
from orchestrion_sandbox.warm import WarmBox

from tests.coroutines import given, sync
from tests.plugins.sandbox.conftest import Boxes
from tests.plugins.sandbox.scene import PRELUDE, SMALL, processes, strong, until_none

ROOT = Path(__file__).parents[3]
RUNS = int(os.environ.get("ORCHESTRION_SANDBOX_RUNS", "100"))
"""How many runs must leave nothing behind; the variable asks for more, e.g. 1,000."""

BACKENDS = ["namespaces", "landlock"]
LONG = evolve(SMALL, wall_seconds=20)


class Marked:
    """A name for processes, and those that have it."""

    def __init__(self) -> None:
        self.mark = "a" + secrets.token_hex(6)

    @property
    def world(self) -> str:
        return json.dumps({"mark": self.mark})

    def pids(self) -> list[int]:
        """Return the live processes of that name."""
        return [process.pid for process in processes() if process.name == self.mark]

    def sleeper(self) -> Program:
        """A program that is there until it is released or ended."""
        released = "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
        return Program(released + PRELUDE + "time.sleep(60)", arguments=(self.world,))

    async def release(self, task: asyncio.Task[Result]) -> Result:
        """Let the sleepers end until the task is done; return its result."""
        while not task.done():
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
            await asyncio.wait([task], timeout=0.01)
        return await task

    async def appear(self, count: int = 1) -> list[int]:
        """Wait until there are as many."""
        async with asyncio.timeout(20):
            while len(found := self.pids()) < count:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
        return found


def parent(pid: int) -> int:
    """Return the parent of a live process."""
    return next(process.parent for process in processes() if process.pid == pid)


def descendants(root: int) -> list[int]:
    """Return the live descendants of a process, at any depth."""
    parents = {process.pid: process.parent for process in processes()}

    def is_below(pid: int) -> bool:
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return [pid for pid in parents if pid != root and is_below(pid)]


@contextlib.asynccontextmanager
async def opened(backend: str, **_: Any) -> AsyncIterator[WarmBox]:
    async with asyncio.timeout(60), strong(backend) as box:
        yield box


def run_or_skip(test: Coroutine[Any, Any, None]) -> None:
    """Run a test; skip it where its sandbox cannot start."""
    try:
        asyncio.run(test)
    except SandboxError as error:
        if "cannot start" in str(error):
            pytest.skip(str(error))
        raise


given_box = given(opened, run_or_skip)
"""Gives a test a box of its own, of the backend that is its second argument."""
every_backend = pytest.mark.parametrize("backend", BACKENDS)


# ---------------------------------------------------------------- what is killed


@every_backend
def test_nothing_survives_the_supervisor(backend: str) -> None:
    marked, count = Marked(), 4 if backend == "namespaces" else 2
    if len(os.sched_getaffinity(0)) < 2:
        count //= 2  # one run at a time
    command = [sys.executable, "-m", "tests.plugins.sandbox.supervised", backend, marked.world]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as supervisor:
        end = time.monotonic() + 30
        while len(marked.pids()) < count and time.monotonic() < end:
            if supervisor.poll() is not None:
                pytest.skip(f"it could not start: {(supervisor.stderr or sys.stdin).read()!r}")
            time.sleep(0.01)
        behind = descendants(supervisor.pid)
        assert set(marked.pids()) <= set(behind)
        supervisor.kill()
        supervisor.wait()
    assert until_none(lambda: [p.pid for p in processes() if p.pid in behind]) == []
    assert marked.pids() == []


def test_without_namespaces_a_child_survives_the_supervisor(tmp_path: Path) -> None:
    """The test above can fail: here nothing keeps the program's own child."""
    marked = Marked()
    command = [sys.executable, "-m", "tests.plugins.sandbox.supervised", "unconfined", marked.world]
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as supervisor:
        assert until_none(lambda: [1] * (len(marked.pids()) < 2), 30) == []
        supervisor.kill()
    survivors = until_none(marked.pids, 0.5)
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert survivors


@every_backend
@pytest.mark.parametrize("generations", [1, 2], ids=["its stage", "the warm interpreter"])
@given_box
async def test_a_sandbox_killed_under_a_run_is_no_fault_of_the_program(
    box: WarmBox, backend: str, generations: int
) -> None:
    marked = Marked()
    source = PRELUDE.replace("sys.argv[1]", repr(marked.world))
    source = source + "def wait():\n    time.sleep(60)\n"
    async with box.converse(Program(source), limits=LONG) as run:
        request = b'{"id": 1, "call": "wait", "args": [], "named": {"$": "dict", "v": []}}'
        asking = asyncio.ensure_future(run.ask(request))
        (victim,) = await marked.appear()
        for _ in range(generations):
            victim = parent(victim)
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(ConversationEnded):
            await asking
        result = await run.result()
    assert result.status == "sandbox_failed"
    assert result.exit_code is None
    assert until_none(marked.pids) == []
    assert (await box.run(Program("print(1)"))).stdout == b"1\n"


@every_backend
@given_box
async def test_a_run_whose_sandbox_was_killed_is_tried_again(box: WarmBox, backend: str) -> None:
    marked, others = Marked(), Marked()
    tasks = [asyncio.create_task(box.run(m.sleeper(), limits=LONG)) for m in (marked, others)]
    (first,) = await marked.appear()
    os.kill(parent(parent(first)), signal.SIGKILL)
    assert until_none(lambda: [pid for pid in marked.pids() if pid == first]) == []
    results = [await m.release(t) for m, t in zip((marked, others), tasks, strict=True)]
    assert [result.status for result in results] == ["ok", "ok"]


@every_backend
@given_box
async def test_a_sandbox_that_fails_twice_is_an_error(box: WarmBox, backend: str) -> None:
    marked = Marked()
    task = asyncio.create_task(box.run(marked.sleeper(), limits=LONG))
    for _ in range(2):
        (first,) = await marked.appear()
        os.kill(parent(parent(first)), signal.SIGKILL)
        while first in marked.pids():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
    with pytest.raises(SandboxError, match="failed twice"):
        await task
    assert (await box.run(Program("print(1)"))).stdout == b"1\n"


@every_backend
@mock.patch.multiple(warm, LATE_SECONDS=0.0, GRACE_SECONDS=0.2)
@given_box
async def test_a_sandbox_that_hangs_is_given_up(box: WarmBox, backend: str) -> None:
    marked = Marked()
    task = asyncio.create_task(box.run(marked.sleeper(), limits=LONG))
    (first,) = await marked.appear()
    interpreter = parent(parent(first))
    assert (await marked.release(task)).status == "ok"
    os.kill(interpreter, signal.SIGSTOP)  # it takes jobs no more
    result = await box.run(Program("print(1)"), limits=evolve(SMALL, wall_seconds=2))
    assert result.stdout == b"1\n"  # by a new one


# ---------------------------------------------------------------- what is cancelled


@every_backend
@given_box
async def test_a_cancelled_run_is_over(box: WarmBox, backend: str) -> None:
    await box.run(Program(""))
    marked, before = Marked(), open_descriptors()
    for _ in range(4):  # more than there are places: each is given back
        task = asyncio.create_task(box.run(marked.sleeper(), limits=LONG))
        await marked.appear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert until_none(marked.pids) == []
    assert (await box.run(Program("print(1)"))).stdout == b"1\n"
    assert open_descriptors() == before


@every_backend
@given_box
async def test_a_run_can_be_cancelled_before_it_has_begun(box: WarmBox, backend: str) -> None:
    await box.run(Program(""))
    marked, before = Marked(), open_descriptors()
    for turns in range(12):
        task = asyncio.create_task(box.run(marked.sleeper(), limits=LONG))
        for _ in range(turns):
            await asyncio.sleep(0.0007)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert until_none(marked.pids) == []
    assert open_descriptors() == before


@sync
async def test_a_closed_box_takes_no_runs_and_ends_those_under_way() -> None:
    marked = Marked()
    async with strong() as box:
        task = asyncio.create_task(box.run(marked.sleeper(), limits=LONG))
        await marked.appear()
    with pytest.raises(SandboxError):
        await task
    with pytest.raises(SandboxError, match="closed"):
        await box.run(Program(""))
    assert until_none(marked.pids) == []


# ---------------------------------------------------------------- what is left


def open_descriptors() -> list[str]:
    """What each descriptor of this process is, without the numbers that differ each time."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0])
        except OSError:
            continue  # the folder itself
    return sorted(links)


def of_the_warm_interpreter(pid: int) -> tuple[int, int, int]:
    """How many descriptors, mounts and children it has."""
    mounts = Path(f"/proc/{pid}/mountinfo").read_text().count("\n")
    return len(os.listdir(f"/proc/{pid}/fd")), mounts, len(descendants(pid))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which this process makes its temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@every_backend
@given_box
async def test_many_runs_leave_nothing(box: WarmBox, backend: str, folder: Path) -> None:
    marked = Marked()
    task = asyncio.create_task(box.run(marked.sleeper(), limits=LONG))
    (first,) = await marked.appear()
    interpreter = parent(parent(first))
    await marked.release(task)
    until_none(lambda: descendants(interpreter))
    before = open_descriptors(), of_the_warm_interpreter(interpreter)
    sources = ["print(1)", "1/0", "import os\nos._exit(3)", "import os\nos.abort()"]
    if backend == "namespaces":
        sources.append("import os\nfor _ in range(3): os.fork()\nopen(str(os.getpid()), 'w')")
    programs = [Program(PRELUDE + source, arguments=(marked.world,)) for source in sources]
    for start in range(0, RUNS, 20):
        numbers = range(start, min(start + 20, RUNS))
        await asyncio.gather(*(box.run(programs[n % len(programs)]) for n in numbers))
    assert until_none(marked.pids) == []
    assert until_none(lambda: descendants(interpreter)) == []
    assert (open_descriptors(), of_the_warm_interpreter(interpreter)) == before
    assert os.listdir(folder) == []


@every_backend
def test_fifty_at_once_get_their_own_answers(boxes: Boxes, backend: str) -> None:
    runner, box = boxes(backend)

    async def main() -> None:
        source = (
            "import sys\nopen('own', 'x').write(input())\nprint(open('own').read(), sys.argv[1])"
        )
        if backend == "landlock":
            source = "import sys\nprint(input(), sys.argv[1])"
        runs = (
            box.run(Program(source, arguments=(str(n),)), str(n * n).encode()) for n in range(50)
        )
        results = await asyncio.gather(*runs)
        assert [r.stdout.decode() for r in results] == [f"{n * n} {n}\n" for n in range(50)]
        assert {r.status for r in results} == {"ok"}

    runner.run(main())


# ---------------------------------------------------------------- whose fault it is


@every_backend
@pytest.mark.parametrize(
    "program",
    [
        Program("print(1)", {"x" * 300: b""}),
        Program("print(1)", {"a": b"", "a/b": b""}),
        Program("print(1)", {"\ud800": b""}),
        Program("print(1)", {"big": b"x" * (6 << 20)}),
        Program("print(1)", {str(n): b"" for n in range(100)}),
        Program("x = '\ud800'"),
        Program("(" * 300 + ")" * 300),
        Program("import sys\nsys.exit(type('I', (int,), {'__and__': lambda *a: 1 / 0})(1))"),
        Program("import sys\nsys.stderr = None\n1 / 0"),
        Program("import os\nos.kill(os.getpid(), 9)\nos.abort()"),
        Program("x = [0] * 10 ** 7\ndel x\nraise MemoryError"),
    ],
    ids=lambda p: repr(p)[:50],
)
def test_a_program_cannot_blame_the_sandbox(boxes: Boxes, backend: str, program: Program) -> None:
    """Neither by its size, its files' names nor the way it ends; nor is any of that an `ok`."""
    runner, box = boxes(backend)

    async def main() -> None:
        marked = Marked()
        beside = asyncio.create_task(box.run(marked.sleeper(), limits=LONG))
        await marked.appear()
        interpreter = box._control
        if backend == "landlock" and program.files:  # whoever hands over files hears of it
            with pytest.raises(SandboxError, match="no folder for files"):
                await box.run(program, limits=SMALL)
        else:
            result = await box.run(program, limits=SMALL)
            assert result.status in ("error", "crashed", "memory"), result
        assert (await marked.release(beside)).status == "ok"
        assert interpreter == box._control  # its neighbour was not begun anew
        assert until_none(marked.pids) == []

    runner.run(main())


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", ".", "a\0b"])
def test_files_never_lie_outside_the_programs_folder(boxes: Boxes, name: str) -> None:
    runner, box = boxes("namespaces")
    with pytest.raises(ValueError, match="relative"):
        runner.run(box.run(Program("", {name: b""})))
