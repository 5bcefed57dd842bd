"""Sandboxes that a container engine makes for each run.

Slower than a warm interpreter, but they also work where that does not: on other systems, with
other images.
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
import threading
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from attrs import asdict, frozen

from orchestrion_sandbox.inside.program import FLAGS, NOBODY
from orchestrion_sandbox.inside.usage import exceeded, tree_usage
from orchestrion_sandbox.interface import PLAIN, Limits, Profile, Program, SandboxError, Status
from orchestrion_sandbox.launching import encode_program
from orchestrion_sandbox.supervising import Box, SupervisedRun

_INSIDE = Path(__file__).parent / "inside"
# Given to `python -c`: imports the package from sources on standard input, so that no folder of
# the host has to be mounted.
BOOT = """
import importlib.abc, importlib.util, json, os, sys
def read(n):
    data = b""
    while len(data) < n:
        data += os.read(0, n - len(data)) or sys.exit(70)
    return data
job = json.loads(read(int.from_bytes(read(8), "big")))
sources = job["sources"]
class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name in sources:
            return importlib.util.spec_from_loader(name, self, is_package=sources[name] is None)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        source = sources[module.__name__] or ""
        exec(compile(source, module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Sources())
from orchestrion_sandbox.inside.cold import main
main(job)
"""
_WATCH_SECONDS = 0.05
_STARTING_SECONDS = 30.0  # an engine may have to fetch an image first


def engine_command(
    limits: Limits, engine: str, image: str, name: str, runtime: str = ""
) -> list[str]:
    """Return the command for an interpreter in a container without network and rights."""
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
    return [*command, "--entrypoint", "python3", image, *FLAGS, "-c", BOOT]


# ---------------------------------------------------------------- the box


class ColdBox(Box):
    """Runs programs in a container that an engine makes anew for each run."""

    def __init__(self, settings: Cold, engine: str, profile: Profile) -> None:
        super().__init__(settings.name, settings.level)
        self._settings, self._engine, self._profile = settings, engine, profile

    def command(self, limits: Limits, name: str) -> list[str]:
        """Return the command that starts a run in a container of this name."""
        image, runtime = self._settings.image, self._settings.engine_runtime
        return engine_command(limits, self._engine, image, name, runtime)

    def kill_command(self, name: str) -> list[str]:
        """Return the command that ends the container of this name."""
        return [self._engine, "kill", name]

    async def _begin(
        self, program: Program, limits: Limits, stdin: bytes, harness: Mapping[str, Any] | None
    ) -> ColdRun:
        job = {
            "payload": json.loads(encode_program(program, harness)),
            "limits": asdict(limits),
            "conversation": harness is not None,
            "sources": _sources(),
            "modules": dict(self._profile.modules),
            "preload": list(self._profile.preload),
        }
        run = ColdRun(self, limits)
        try:
            await run.start(job)
        except SandboxError:  # once more: an engine may have been busy
            run = ColdRun(self, limits)
            await run.start(job)
        run.feed(None if harness is not None else stdin)
        return run


class ColdRun(SupervisedRun):
    """One process of ours, which stands for whatever it started."""

    _process: asyncio.subprocess.Process

    def __init__(self, box: ColdBox, limits: Limits) -> None:
        super().__init__(box, limits)
        self._cold = box
        self._token = secrets.token_hex(16)
        self._name = f"orchestrion-{self._token[:12]}"
        self._cpu_seconds = 0.0  # as last seen
        self._over = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, job: dict[str, Any]) -> None:
        """Start the process and wait until it says that its limits are set.

        Raises:
            SandboxError: if they are not.
        """
        backend = self._box.backend
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._cold.command(self._limits, self._name),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env={"PATH": os.environ.get("PATH", ""), **_engine_variables()},
                cwd="/",
                start_new_session=True,
                limit=self._limits.output_bytes,
            )
        except OSError as error:
            raise SandboxError(f"the sandbox {backend!r} cannot start: {error}") from error
        text = b""
        try:
            data = json.dumps(job | {"token": self._token}).encode()
            with contextlib.suppress(TimeoutError, ValueError, ConnectionError):
                async with asyncio.timeout(_STARTING_SECONDS):
                    await self._write(len(data).to_bytes(8, "big") + data)
                    # An engine may have things of its own to say first.
                    while line := await self._errors.readline():
                        if line.strip() == self._token.encode():
                            self._watch()
                            return
                        text += line
            reason = text[-500:].decode(errors="replace").strip() or "it was not ready in time"
            raise SandboxError(f"the sandbox {backend!r} cannot start: {reason}")
        except BaseException:
            await self._killed()
            raise

    def _watch(self) -> None:
        self._began = time.monotonic()
        # On a thread of its own, so that a busy event loop gives a run no more than its limits.
        threading.Thread(target=self._keep_limits, args=(self._process.pid,), daemon=True).start()
        self._tasks = [asyncio.create_task(self._collect(self._errors, self._stderr))]
        self._supervising = asyncio.create_task(self._supervise())

    def feed(self, stdin: bytes | None) -> None:
        """Give a program its input, or, for None, open the conversation over standard files."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if stdin is None:
            self._reader, self._writer = self._process.stdout, self._process.stdin
            return
        self._tasks.append(asyncio.create_task(self._collect(self._process.stdout, self._stdout)))
        self._feeding = asyncio.create_task(self._feed(stdin))

    async def _feed(self, stdin: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # the program need not read it
            await self._write(stdin)
            self._process.stdin.close()
            await self._process.stdin.wait_closed()

    async def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    @property
    def _errors(self) -> asyncio.StreamReader:
        assert self._process.stderr is not None
        return self._process.stderr

    async def _collect(self, stream: asyncio.StreamReader, output: bytearray) -> None:
        while data := await stream.read(1 << 16):
            self._keep(output, data)

    def _keep_limits(self, pid: int) -> None:
        limits = asdict(self._limits)
        while not self._over.wait(_WATCH_SECONDS):
            usage = tree_usage([pid], self._limits.open_files)
            self._cpu_seconds = max(self._cpu_seconds, usage.cpu_seconds)
            passed = exceeded(usage, time.monotonic() - self._began, limits)
            if passed is not None:
                self.kill(cast(Status, passed[0]), passed[1])

    def _kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()

    async def _killed(self) -> None:
        """Kill the process, and what the engine runs for it elsewhere."""
        self._kill()
        null = asyncio.subprocess.DEVNULL
        command = self._cold.kill_command(self._name)
        killer = await asyncio.create_subprocess_exec(*command, stdout=null, stderr=null)
        await killer.wait()
        await self._process.wait()

    async def _supervise(self) -> None:
        """Wait until the run is gone, and set its result."""
        code = await self._process.wait()
        self._over.set()
        if self._why is not None:
            await self._killed()
        # What it wrote is there to be read; what it left behind may hold its output open.
        await asyncio.wait(self._tasks, timeout=1.0)
        for task in self._tasks:
            task.cancel()
        # The command passes on how the program ended, as numbers it could also give itself:
        # whichever it was, it has not ended well.
        by_signal = -code if code < 0 else code - 128 if code > 128 else None
        self._set_result(code, by_signal, self._cpu_seconds)


# ---------------------------------------------------------------- opening


@frozen
class Cold:
    """The runtime of a backend that starts a container with a new interpreter for each run."""

    name: Literal["docker", "podman"]
    level: int
    image: str
    engine_runtime: str = ""

    @contextlib.asynccontextmanager
    async def open(self, profile: Profile = PLAIN) -> AsyncIterator[ColdBox]:
        """Open a box and run an empty program in it.

        Raises:
            SandboxError: if that fails, with the reason.
        """
        engine = shutil.which(self.name)
        if engine is None:
            raise SandboxError(
                f"the sandbox {self.name!r} cannot start: {self.name} is not installed"
            )
        box = ColdBox(self, engine, profile)
        await box.run(Program(""), limits=Limits())
        yield box


@functools.cache
def _sources() -> dict[str, str | None]:
    """Return the source of each module of the package `inside`; None for a package."""
    name = "orchestrion_sandbox.inside"
    sources: dict[str, str | None] = {"orchestrion_sandbox": None, name: None}
    for path in sorted(_INSIDE.glob("*.py")):
        if path.stem != "__init__":
            sources[f"{name}.{path.stem}"] = path.read_text(encoding="utf-8")
    return sources


def _engine_variables() -> dict[str, str]:
    """Return the environment variables with which an engine's client finds its engine."""
    names = ["HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "XDG_RUNTIME_DIR"]
    if os.name == "nt":
        names += ["SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA"]
    return {name: os.environ[name] for name in names if name in os.environ}
