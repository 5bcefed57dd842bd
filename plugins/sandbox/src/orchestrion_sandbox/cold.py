"""Sandboxes made by other programs, one new interpreter a run: bubblewrap, and container engines.

Slower than a warm interpreter, and able to go where it is not: other machines, other images.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from attrs import asdict, frozen

from orchestrion_sandbox.errors import ConversationEnded, SandboxError
from orchestrion_sandbox.inside.program import ENVIRONMENT, FLAGS, NOBODY
from orchestrion_sandbox.inside.usage import exceeded, tree_usage
from orchestrion_sandbox.interface import (
    NO_LIMIT_GIVEN,
    PLAIN,
    Limits,
    Profile,
    Program,
    Result,
    Status,
)
from orchestrion_sandbox.launching import HARNESS, encode_program, processors

__all__ = ["ColdBox", "bubblewrap_command", "engine_command"]

_INSIDE = Path(__file__).parent / "inside"
# Given to `python -c`: imports the package from sources on standard input, so that nothing of the
# host has to be mounted for it.
BOOT = """
import importlib.abc, importlib.util, json, os, sys
def read(n):
    data = b""
    while len(data) < n:
        data += os.read(0, n - len(data)) or sys.exit(70)
    return data
job = json.loads(read(int.from_bytes(read(8), "big")))
sources = job["modules"]
class Given(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name in sources:
            return importlib.util.spec_from_loader(name, self, is_package=sources[name] is None)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        source = sources[module.__name__] or ""
        exec(compile(source, module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Given())
from orchestrion_sandbox.inside.cold import main
main(job)
"""
_PYTHON = ("-c", BOOT)
_WATCH_SECONDS = 0.05
_SIGKILL = 9  # in what an engine reports, whatever system this is
_STARTING_SECONDS = 30.0  # an engine may have to fetch an image first

Command = Callable[[Limits], list[str]]


# ---------------------------------------------------------------- commands


def bubblewrap_command(
    limits: Limits, program: str, files: Mapping[str, str], packages: Sequence[str] = ()
) -> list[str]:
    """What starts an interpreter that sees nothing but shared libraries and its own files.

    Devices are bound one by one: bubblewrap's own /dev is a writable file system without a limit.

    Args:
        limits: of the run; its folder's size is set here, the rest from inside.
        program: bubblewrap.
        files: the interpreter's, see `root.python_files`; `multiarch` names the folder of shared
            libraries, if they have one.
        packages: folders to show as /packages/0 and so on.
    """
    from orchestrion_sandbox.inside import root

    command = [program, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    # The one right is given up before the program's first line: see `inside/cold.py`.
    command += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--hostname", "sandbox"]
    for folder in root.SYSTEM:
        if Path(folder).is_symlink():
            command += ["--symlink", str(Path(folder).readlink()), folder]
    shown = [*root.system_folders(files["multiarch"]), *root.python_files(files)]
    shown += [(folder, f"/packages/{i}") for i, folder in enumerate(packages)]
    for source, target in shown:
        command += ["--ro-bind", source, target]
    for name in root.DEVICES:
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    command += ["--size", str(limits.scratch_mb << 20), "--tmpfs", root.SCRATCH]
    command += ["--remount-ro", "/", "--chdir", root.SCRATCH]
    return [*command, "--", "/python/bin/python", *FLAGS, *_PYTHON]


def engine_command(
    limits: Limits,
    engine: str,
    image: str,
    name: str,
    runtime: str = "",
    packages: Sequence[str] = (),
) -> list[str]:
    """What starts an interpreter in a container without network, rights or a writable root.

    Raises:
        SandboxError: if there are packages: nothing of the host is mounted into a container.
    """
    if packages:
        raise SandboxError(
            f"a container of {engine} shows no folders of packages; judge by calls or statements, "
            "or use another sandbox"
        )
    memory = f"{limits.memory_mb}m"
    command = [engine, "run", "--rm", "--interactive", "--name", name, "--network", "none"]
    command += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    command += ["--user", f"{NOBODY}:{NOBODY}", "--hostname", "sandbox", "--ipc", "private"]
    command += ["--pids-limit", str(limits.processes + 2), "--memory", memory]
    command += ["--memory-swap", memory, "--ulimit", "core=0", "--workdir", "/tmp"]
    mounted = f"/tmp:size={limits.scratch_mb}m,nr_inodes={limits.files},mode=1777,nosuid,nodev"
    command += ["--tmpfs", mounted, "--env", "PYTHONHASHSEED=0", "--pull", "missing"]
    if runtime:
        command += ["--runtime", runtime]
    return [*command, "--entrypoint", "python3", image, *FLAGS, *_PYTHON]


# ---------------------------------------------------------------- the box


@frozen
class _Way:
    """How runs of one backend are started and ended from outside."""

    command: Callable[[Limits, str, Sequence[str]], list[str]]
    kill: Callable[[str], list[str]] | None = None
    user: int | None = None


class ColdBox:
    """Runs programs in a sandbox that a command makes anew each time."""

    def __init__(self, backend: str, level: int, way: _Way, profile: Profile) -> None:
        self.backend, self.level = backend, level
        self.way, self.profile = way, profile
        self.slots = asyncio.Semaphore(processors())

    async def run(
        self, program: Program, stdin: bytes = b"", limits: Limits = NO_LIMIT_GIVEN
    ) -> Result:
        """Run a program to its end; a sandbox that failed is tried once more."""
        result = Result("sandbox_failed")
        for _ in range(2):
            async with self.slots:
                run = ColdRun(self, limits, self._job(program, limits))
                try:
                    result = await run.output(stdin)
                finally:
                    await run.end()
            if result.status != "sandbox_failed":
                return result
        raise SandboxError(f"the sandbox {self.backend!r} failed twice: {result.reason}")

    @contextlib.asynccontextmanager
    async def converse(
        self,
        program: Program,
        limits: Limits = NO_LIMIT_GIVEN,
        harness: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[ColdRun]:
        """A run that is asked and answers over its standard files."""
        more = {"answers": HARNESS, **(harness or {})}
        run = ColdRun(self, limits, self._job(program, limits, more))
        try:
            await run.begin()
            yield run
        finally:
            await run.end()

    def beside(self, profile: Profile) -> ColdBox:
        """A box of the same kind with another profile, and the same places."""
        box = ColdBox(self.backend, self.level, self.way, profile)
        box.slots = self.slots
        return box

    def _job(
        self, program: Program, limits: Limits, more: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return {
            "payload": json.loads(encode_program(program, more)),
            "limits": asdict(limits),
            "own_folder": self.backend == "bwrap",
            "conversation": more is not None,
            "modules": {**_sources(), **self.profile.modules},
            "path": [f"/packages/{i}" for i in range(len(self.profile.packages))],
            "preload": list(self.profile.preload),
        }


class ColdRun:
    """One run: a process of ours that stands for whatever it started."""

    def __init__(self, box: ColdBox, limits: Limits, job: dict[str, Any]) -> None:
        self._box, self._limits = box, limits
        self._token = secrets.token_hex(16)
        self._job = job | {"token": self._token}
        self._name = f"orchestrion-{self._token[:12]}"
        self._process: asyncio.subprocess.Process | None = None
        self._why: tuple[Status, str] | None = None
        self._began = time.monotonic()
        self._ready = False
        self._cpu_seconds = 0.0  # as last seen
        self._out, self._err = bytearray(), bytearray()
        self._over = threading.Event()
        self._errors: asyncio.Task[None] | None = None
        self._result: Result | None = None

    # ------------------------------------------------------------ its life

    async def begin(self) -> None:
        """Start it and wait until its limits stand.

        Raises:
            SandboxError: if they do not.
        """
        way = self._box.way
        user = way.user
        as_user: dict[str, Any]
        as_user = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *way.command(self._limits, self._name, self._box.profile.packages),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={"PATH": os.environ.get("PATH", ""), **_engine_variables()},
                cwd="/",
                start_new_session=True,
                limit=self._limits.output_bytes * 2,
                **as_user,
            )
        except OSError as error:
            raise SandboxError(
                f"the sandbox {self._box.backend!r} cannot start: {error}"
            ) from error
        job = json.dumps(self._job).encode()
        await self._write(len(job).to_bytes(8, "big") + job)
        assert self._process.stderr is not None
        said: list[bytes] = []
        with contextlib.suppress(TimeoutError, ValueError):
            async with asyncio.timeout(_STARTING_SECONDS):
                # An engine may have things of its own to say first.
                while line := await self._process.stderr.readline():
                    if line.strip() == self._token.encode():
                        self._ready = True
                        break
                    said.append(line)
        if not self._ready:
            await self._kill()
            text = b"".join(said)[-500:].decode(errors="replace").strip()
            reason = text or "it was not ready in time"
            raise SandboxError(f"the sandbox {self._box.backend!r} cannot start: {reason}")
        self._began = time.monotonic()
        self._errors = asyncio.create_task(self._collect(self._process.stderr, self._err))
        threading.Thread(target=self._watch, args=(self._process.pid,), daemon=True).start()

    async def output(self, stdin: bytes) -> Result:
        """All of it, from start to end."""
        try:
            await self.begin()
        except SandboxError as error:
            return self._failed(str(error))
        assert self._process is not None
        assert self._process.stdout is not None
        feeding = asyncio.create_task(self._feed(stdin))
        await self._collect(self._process.stdout, self._out)
        await feeding
        return await self.result()

    async def end(self) -> None:
        """Leave nothing of it."""
        await self._kill()
        self._over.set()
        if self._errors is not None:
            # What it had said is there to be read; then its output has ended.
            await asyncio.wait([self._errors], timeout=1.0)
        if self._result is None and self._ready and self._process is not None:
            self._result = self._judged(self._process.returncode)
        if self._errors is not None:
            self._errors.cancel()
            await asyncio.gather(self._errors, return_exceptions=True)

    async def result(self) -> Result:
        """How it ended; ends it if it has not."""
        if self._result is None:
            assert self._process is not None
            assert self._errors is not None
            await self._close_input()
            try:
                async with asyncio.timeout(max(0.0, self._left()) + 1.0):
                    await self._process.wait()
                    await self._errors
            except TimeoutError:
                self._end_for("timeout", f"it took more than {self._limits.wall_seconds:g} seconds")
                await self._kill()
            self._result = self._judged(self._process.returncode)
        return self._result

    # ------------------------------------------------------------ conversation

    async def ask(self, line: bytes, seconds: float | None = None) -> bytes:
        """Send a line and receive one, without their newlines.

        Raises:
            ConversationEnded: if the run ended, said too much, or did not answer in time.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(min(seconds or self._left(), self._left())):
                await self._write(line + b"\n")
                answer = await self._process.stdout.readline()
        except TimeoutError:
            self._end_for("timeout", "it did not answer in time")
            raise ConversationEnded("it did not answer in time") from None
        except ValueError:
            self._end_for("flood", "its answer is too long")
            raise ConversationEnded("its answer is too long") from None
        if not answer.endswith(b"\n"):
            raise ConversationEnded("it is gone")
        return answer[:-1]

    def said_more(self) -> bool:
        """Whether something came that nobody asked for."""
        assert self._process is not None
        assert self._process.stdout is not None
        return bool(self._process.stdout._buffer)  # type: ignore[attr-defined]

    # ------------------------------------------------------------ what is seen

    def _left(self) -> float:
        return self._limits.wall_seconds - (time.monotonic() - self._began)

    def _watch(self, pid: int) -> None:
        """On a thread of its own, so that a busy event loop gives a run no more than its limits."""
        limits = asdict(self._limits)
        while not self._over.wait(_WATCH_SECONDS):
            usage = tree_usage([pid], self._limits.open_files)
            self._cpu_seconds = max(self._cpu_seconds, usage.cpu_seconds)
            seconds = time.monotonic() - self._began
            if (why := exceeded(usage, seconds, limits)) is not None:
                self._end_for(*why)

    async def _collect(self, stream: asyncio.StreamReader, kept: bytearray) -> None:
        while data := await stream.read(1 << 16):
            kept += data[: self._limits.output_bytes - len(kept)]
            if len(kept) >= self._limits.output_bytes:
                reason = f"it wrote more than {self._limits.output_bytes} bytes"
                self._end_for("flood", reason)

    def _end_for(self, status: str, reason: str) -> None:
        if self._why is None:
            self._why = (cast(Status, status), reason)
            self._kill_tree()

    def _kill_tree(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    async def _kill(self) -> None:
        if self._process is None:
            return
        running = self._process.returncode is None
        self._kill_tree()
        if self._box.way.kill is not None and (running or self._why is not None):
            # The engine's own process is only a client: what it started is elsewhere.
            null = asyncio.subprocess.DEVNULL
            command = self._box.way.kill(self._name)
            killer = await asyncio.create_subprocess_exec(*command, stdout=null, stderr=null)
            await killer.wait()
        await self._process.wait()

    def _judged(self, code: int | None) -> Result:
        ended = self._why
        if ended is None and code is None:
            ended = ("sandbox_failed", "nobody saw the run end")
        if ended is None and code is not None and (code < 0 or code > 128):
            # The command passes on how the program ended, as numbers it could also give itself:
            # whichever it was, it has not ended well.
            by = code - 128 if code > 0 else -code
            ended = ("crashed", f"signal {by}")
            if by == _SIGKILL and self._cpu_seconds > 0.5 * self._limits.cpu_seconds:
                ended = ("cpu", f"it took more than {self._limits.cpu_seconds} CPU seconds")
        status, reason = ended or (("ok" if code == 0 else "error"), "")
        return Result(
            status=status,
            exit_code=code if self._why is None else None,
            stdout=bytes(self._out),
            stderr=bytes(self._err),
            cpu_seconds=self._cpu_seconds,
            truncated=status == "flood",
            wall_seconds=time.monotonic() - self._began,
            backend=self._box.backend,
            level=self._box.level,
            reason=reason,
        )

    def _failed(self, reason: str) -> Result:
        backend, level = self._box.backend, self._box.level
        return Result("sandbox_failed", backend=backend, level=level, reason=reason)

    # ------------------------------------------------------------ standard input

    async def _feed(self, data: bytes) -> None:
        await self._write(data)
        await self._close_input()

    async def _write(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it need not read what it is given
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def _close_input(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.close()
            await self._process.stdin.wait_closed()


# ---------------------------------------------------------------- opening


@frozen
class Cold:
    """The runtime of a backend that starts a new interpreter for every run."""

    name: Literal["bwrap", "docker", "podman"]
    level: int
    image: str = ""
    engine_runtime: str = ""

    @contextlib.asynccontextmanager
    async def open(self, profile: Profile = PLAIN) -> AsyncIterator[ColdBox]:
        """A box that has run a program, or `SandboxError` with the reason."""
        box = ColdBox(self.name, self.level, self._way(), profile)
        await box.run(Program(""), limits=Limits())
        yield box

    def _way(self) -> _Way:
        if self.name == "bwrap" and sys.platform != "linux":
            raise SandboxError("the sandbox 'bwrap' needs Linux")
        program = shutil.which(self.name)
        if program is None:
            raise SandboxError(
                f"the sandbox {self.name!r} cannot start: {self.name} is not installed"
            )
        if self.name == "bwrap":
            from orchestrion_sandbox.inside import linux

            # Limits of processes do not hold for root, whatever it calls itself inside.
            user = NOBODY if os.geteuid() == 0 and linux.mapped(NOBODY) else None
            python = _readable_interpreter(user)
            return _Way(
                lambda limits, name, packages: bubblewrap_command(
                    limits, program, python, packages
                ),
                None,
                user,
            )
        image, runtime = self.image, self.engine_runtime
        return _Way(
            lambda limits, name, packages: engine_command(
                limits, program, image, name, runtime, packages
            ),
            lambda name: [program, "kill", name],
        )


def _readable_interpreter(user: int | None) -> dict[str, str]:
    """The files of an interpreter that this user can read; of ours if that is one."""
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    ours = {"python": python, "prefix": sys.base_prefix, "stdlib": sysconfig.get_path("stdlib")}
    python = os.path.realpath("/usr/bin/python3")
    system = {"python": python, "prefix": "/usr", "stdlib": f"/usr/lib/{Path(python).name}"}
    for files in (ours, system):
        if user is None or all(_open_to_all(Path(path)) for path in files.values()):
            return files | {"multiarch": sysconfig.get_config_var("MULTIARCH") or ""}
    raise SandboxError(
        "the sandbox 'bwrap' cannot start: started by root it gives up root's rights first, and "
        f"other users cannot read the interpreter {ours['python']}"
    )


def _open_to_all(path: Path) -> bool:
    real = path.resolve()
    return real.exists() and all(part.stat().st_mode & 0o005 for part in (real, *real.parents))


@functools.cache
def _sources() -> dict[str, str | None]:
    """The package for inside, by module; None for a package."""
    name = "orchestrion_sandbox.inside"
    found: dict[str, str | None] = {"orchestrion_sandbox": None, name: None}
    for path in sorted(_INSIDE.glob("*.py")):
        if path.stem != "__init__":
            found[f"{name}.{path.stem}"] = path.read_text(encoding="utf-8")
    return found


def _engine_variables() -> dict[str, str]:
    """What an engine's client needs to find its engine."""
    names = ["HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "XDG_RUNTIME_DIR"]
    if os.name == "nt":
        names += ["SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA"]
    return {name: os.environ[name] for name in names if name in os.environ}
