"""What an attack is, what it can harm, and who looks at the harm: always from outside.

A `Scene` holds what an attacker could want: a secret in a file and in another process's memory, a
file to change, a process to kill, sockets that somebody listens on. An `Attack` is a program that
tries; afterwards `Scene.breaches` says what it reached. A program that finds out itself that
something was open to it prints a line that begins with BREACH.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from attrs import define, evolve, field, frozen
from orchestrion_sandbox.interface import Limits, Profile, Program, Result
from orchestrion_sandbox.warm import WarmBox

SMALL = Limits(
    wall_seconds=30,  # bounds a hang, not a busy machine
    cpu_seconds=2,
    memory_mb=128,
    processes=8,
    output_bytes=1 << 14,
    scratch_mb=4,
    files=64,
    open_files=32,
)

PRELUDE = '''
import ctypes, errno, json, os, signal, socket, sys, time
WORLD = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.prctl(15, WORLD["mark"].encode(), 0, 0, 0)  # its name, by which the test finds it

def call(number, *arguments):
    """A system call; its result, or OSError."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def together(count, work):
    """Fork children that each do some work, and hold what they got until all have done it."""
    reader, writer = os.pipe()
    def done():
        os.write(writer, b"x")
        time.sleep(20)
        os._exit(0)
    children = []
    for _ in range(count):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                work(done)
            finally:
                done()
    for _ in children:
        os.read(reader, 1)
    time.sleep(1.5)  # enough for whoever looks now and then
    for child in children:
        os.kill(child, signal.SIGKILL)

def attempt(what, function):
    """Try; a breach is whatever comes back but None or False."""
    try:
        found = function()
    except (OSError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        print("held", what, type(error).__name__, error, flush=True)
        return None
    if found is None or found is False:
        print("held", what, flush=True)
    else:
        print("BREACH", what, str(found)[:200], flush=True)
    return found
'''


T = TypeVar("T")


@frozen
class Attack:
    """A program that tries to get past a wall.

    Args:
        name: of the family it belongs to, and what it does.
        program: comes after `PRELUDE`.
        ends: how the run may end on the default backend; anything else means that the attack did
            not do what it was written to do.
        limits: what it tries to exceed.
        before: a program run in the same box first, with the same names.
        beside: one run at the same time, which must not be disturbed.
        judge: what else counts as a breach.
        watch: whether its processes are looked at while it runs.
        weak: the backend that it does get past: `weak.NO_WALLS`, or one wall taken down.
        landlock: why it is let through where only system calls and files are barred.
    """

    name: str
    program: str
    ends: tuple[str, ...] = ("ok",)
    limits: Limits = SMALL
    before: str = ""
    beside: str = ""
    judge: Callable[[Scene, Result], str] = lambda scene, result: ""
    watch: bool = False
    weak: str = "nothing"
    landlock: str = ""


@define
class Peak:
    """The most that was seen of a run's processes while it ran."""

    tasks: int = 0
    memory_mb: int = 0
    shared_mb: int = 0
    core: set[str] = field(factory=set)


class Process(NamedTuple):
    """A live process: one that has ended but was not waited for is none."""

    pid: int
    name: str
    parent: int


def processes() -> list[Process]:
    """Return all live processes that can be seen from here."""
    alive = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text(errors="replace")
            except OSError:  # it has just gone
                continue
            state, parent = text.rpartition(")")[2].split()[:2]
            if state not in "ZX":
                name = text[text.index("(") + 1 : text.rindex(")")]
                alive.append(Process(int(folder.name), name, int(parent)))
    return alive


class Scene:
    """What can be harmed. Use as a context manager."""

    def __init__(self) -> None:
        self.mark = "a" + secrets.token_hex(6)  # names of processes have at most 15 characters
        self.secret = "secret-" + secrets.token_hex(12)
        self.heard: list[str] = []
        self.peak = Peak()

    def __enter__(self) -> Scene:
        with contextlib.ExitStack() as stack:
            self.folder = Path(tempfile.mkdtemp(prefix="orchestrion-scene-"))
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.chmod(0o777)
            self.canary = self.folder / "canary"
            self.canary.write_text("untouched")
            self.canary.chmod(0o666)
            (self.folder / "secret").write_text(self.secret)
            environment = {"TOKEN": self.secret}
            self.victim = subprocess.Popen(["/bin/sleep", "60"], env=environment)
            stack.callback(self._end_victim)
            self._listen(stack)
            self._before = self._state()
            self._shared = _shared_mb()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        for pid in self.marked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for path in Path("/tmp").glob(f"{self.mark}*"):
            path.unlink()
        self._stack.close()

    def _listen(self, stack: contextlib.ExitStack) -> None:
        self.tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.udp.bind(("127.0.0.1", 0))
        self.unix: list[socket.socket] = []
        for address in (str(self.folder / "unix"), "\0" + self.mark):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                listener = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
                listener.bind(address + ("s" if kind == socket.SOCK_STREAM else "d"))
                if kind == socket.SOCK_STREAM:
                    listener.listen()
                self.unix.append(listener)
        self._terminal, end = pty.openpty()
        self.terminal = os.ttyname(end)
        os.fchmod(end, 0o666)
        for fd in (self._terminal, end):
            stack.callback(os.close, fd)

    def _end_victim(self) -> None:
        self.victim.kill()
        self.victim.wait()

    def world(self) -> str:
        """What every program of this scene is told."""
        return json.dumps(
            {
                "mark": self.mark,
                "folder": str(self.folder),
                "tcp": self.tcp.getsockname()[1],
                "udp": self.udp.getsockname()[1],
                "terminal": self.terminal,
                "victim": self.victim.pid,
                "supervisor": os.getpid(),
                "host": os.uname().nodename[::-1],
                "here": str(Path(__file__).parents[3])[::-1],
            }
        )

    # ------------------------------------------------------------ one attack

    async def play(self, box: WarmBox, attack: Attack) -> Result:
        """Run an attack, and what comes before and beside it."""
        world, limits = self.world(), attack.limits
        if attack.before:
            await box.run(Program(PRELUDE + attack.before, arguments=(world,)), limits=limits)
        running = box.run(Program(PRELUDE + attack.program, arguments=(world,)), limits=limits)
        if attack.beside:
            beside = Program(PRELUDE + attack.beside, arguments=(world, self.secret))
            neighbour, result = await asyncio.gather(box.run(beside, limits=limits), running)
            if neighbour.status != "ok":
                self.heard.append(f"its neighbour's run: {neighbour}")
            return result
        return await self.watched(running) if attack.watch else await running

    async def watched(self, running: Awaitable[T]) -> T:
        """What is awaited, with an eye on the marked processes meanwhile."""
        task = asyncio.ensure_future(running)
        while not task.done():
            self._look()
            await asyncio.wait([task], timeout=0.02)
        return task.result()

    def _look(self) -> None:
        tasks = memory = 0
        for pid in self.marked():
            of_process = 0
            for task in _listed(f"/proc/{pid}/task"):
                tasks += 1
                of_process = max(of_process, _anonymous_mb(task))
            memory += of_process
            self.peak.core |= _core_limit(pid)
        self.peak.tasks = max(self.peak.tasks, tasks)
        self.peak.memory_mb = max(self.peak.memory_mb, memory)
        self.peak.shared_mb = max(self.peak.shared_mb, _shared_mb() - self._shared)

    def marked(self) -> list[int]:
        """Return the live processes that have the mark as their name, wherever they went."""
        return [process.pid for process in processes() if process.name == self.mark]

    # ------------------------------------------------------------ what it came to

    def breaches(self, attack: Attack, result: Result, seconds: float = 20.0) -> list[str]:
        """Return everything that was reached, as seen from outside. Empty if all walls held.

        Processes of the attack have so many seconds to be gone.
        """
        lines = result.stdout.decode(errors="replace").splitlines()
        found = [line for line in lines if line.startswith("BREACH")]
        if self.secret.encode() in result.stdout + result.stderr:
            found.append("it told the secret")
        found += self.heard + self._sockets() + self._limits(attack.limits, result)
        if (after := self._state()) != self._before:
            found.append(f"files or the victim changed: {self._before} {after}")
        if more := attack.judge(self, result):
            found.append(more)
        if survivors := until_none(self.marked, 0.0 if found else seconds):
            found.append(f"processes live on: {survivors}")
        return found

    def _limits(self, limits: Limits, result: Result) -> list[str]:
        peak = self.peak
        seen = {
            "wall seconds": (result.wall_seconds, limits.wall_seconds + 30),
            "CPU seconds": (result.cpu_seconds, limits.cpu_seconds + 0.4),
            "output bytes": (max(len(result.stdout), len(result.stderr)), limits.output_bytes),
            "processes": (peak.tasks, limits.processes),
            "memory": (peak.memory_mb, 2 * limits.memory_mb),
            # It is the machine's: tests beside this one may hold as much.
            "shared memory": (peak.shared_mb, 2 * (limits.scratch_mb + limits.memory_mb)),
        }
        return [f"{what}: {got} > {most}" for what, (got, most) in seen.items() if got > most]

    def _state(self) -> tuple[object, ...]:
        """Of the files and the victim; reading changes none of it."""
        if not self.canary.exists():
            return ("the canary is gone",)
        listing = sorted(os.listdir(self.folder))
        about = self.canary.stat()
        if self.victim.poll() is not None:
            return ("the victim is gone",)
        status = Path(f"/proc/{self.victim.pid}/stat").read_text().rpartition(")")[2].split()
        content = self.canary.read_text(errors="replace")
        links = (stat.S_IMODE(about.st_mode), about.st_nlink, about.st_mtime_ns)
        affinity = tuple(os.sched_getaffinity(self.victim.pid))
        # stopped or not, its nice value, where it may run
        return listing, content, links, status[0] == "T", status[16], affinity

    def _sockets(self) -> list[str]:
        listeners: Mapping[socket.socket | int, str] = {
            self.tcp: "a TCP connection",
            self.udp: "a UDP message",
            self._terminal: "keys of a terminal",
            **dict.fromkeys(self.unix, "a unix socket"),
        }
        ready, _, _ = select.select(list(listeners), [], [], 0)
        return [f"{listeners[listener]} arrived" for listener in ready]


def until_none(look: Callable[[], list[int]], seconds: float = 20.0) -> list[int]:
    """Look until nothing is there, or time is up; return what is left."""
    end = time.monotonic() + seconds
    while (left := look()) and time.monotonic() < end:
        time.sleep(0.01)
    return left


def _listed(folder: str) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(folder).iterdir())
    return []


def _anonymous_mb(task: Path) -> int:
    with contextlib.suppress(OSError):
        lines = (task / "status").read_text(errors="replace").splitlines()
        kilobytes = [int(x.split()[1]) for x in lines if x.startswith(("RssAnon:", "RssShmem:"))]
        return sum(kilobytes) >> 10
    return 0


def _core_limit(pid: int) -> set[str]:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
            if line.startswith("Max core file size"):
                return {" ".join(line.split()[4:6])}
    return set()


def _shared_mb() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Shmem:")) >> 10


# ---------------------------------------------------------------- backends, strong and weak


@contextlib.asynccontextmanager
async def strong(mode: str = "namespaces") -> AsyncIterator[WarmBox]:
    """The backend as it is shipped."""
    assert mode in ("namespaces", "landlock", "unconfined")
    async with WarmBox.opened(mode, mode, Profile()) as box:  # type: ignore[arg-type]
        yield box


class WithoutLimits(WarmBox):
    """A plain child process: sees the machine, and no limit asked for is kept.

    The attacks are written so that even this does no harm to speak of.
    """

    async def run(self, program: Program, stdin: bytes = b"", limits: Limits = SMALL) -> Result:
        """Run with limits of its own, and say the text of the output instead of its bytes."""
        generous = Limits(
            wall_seconds=30,
            cpu_seconds=30,
            memory_mb=4096,
            processes=400,
            output_bytes=1 << 24,
            scratch_mb=512,
            files=1 << 20,
            open_files=1024,
        )
        result = await super().run(program, stdin, generous)
        as_text = {"stdout": result.stdout.decode(errors="replace").encode()}
        return evolve(result, **as_text)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def without(wall: str) -> AsyncIterator[WarmBox]:
    """`nothing` keeps the program from anything; else one wall of the default is taken down."""
    if wall == "nothing":
        async with WithoutLimits.opened("nothing", "unconfined", Profile()) as box:
            yield box
        return
    from orchestrion_sandbox import launching

    whole = launching._INSIDE
    with tempfile.TemporaryDirectory() as folder:
        broken = Path(folder) / whole.parent.name / whole.name
        shutil.copytree(whole, broken, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (Path(folder), broken.parent, broken, *broken.iterdir()):
            path.chmod(0o755)
        file, old, new = WALLS[wall]
        text = (broken / file).read_text()
        assert text.count(old) == 1, f"the wall {wall!r} is not where this test looks for it"
        (broken / file).write_text(text.replace(old, new))
        launching._INSIDE = broken
        opening = strong()
        try:
            box = await opening.__aenter__()
        finally:
            launching._INSIDE = whole
        try:
            yield box
        finally:
            await opening.__aexit__(None, None, None)


WALLS: Mapping[str, tuple[str, str, str]] = {
    "closed descriptors": ("zygote.py", "    linux.close_from(_PAYLOAD + 1)\n", ""),
    "closed status": ("zygote.py", "        status.close()\n    except", "    except"),
    "counted signals": ("zygote.py", "        resource.RLIMIT_SIGPENDING: 128,\n", ""),
    "no dumps": ("zygote.py", "        resource.RLIMIT_CORE: 1,", "        #"),
    "filter": ("zygote.py", "            linux.set_filter(filters)\n", "            pass\n"),
    "no zero device": (
        "root.py",
        'DEVICES = ("null", "full", "random", "urandom")',
        'DEVICES = ("null", "full", "random", "urandom", "zero")',
    ),
}
"""By name: in which file of the sandbox's inside, the text, and what is there without it."""
