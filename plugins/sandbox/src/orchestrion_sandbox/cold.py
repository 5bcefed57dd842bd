"""Sandboxes that other programs make for each run: bubblewrap and container engines.

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
import sys
import sysconfig
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from attrs import asdict, frozen

from orchestrion_sandbox.inside.program import ENVIRONMENT, FLAGS, NOBODY
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
_PYTHON = ("-c", BOOT)
_WATCH_SECONDS = 0.05
_STARTING_SECONDS = 30.0  # an engine may have to fetch an image first


# ---------------------------------------------------------------- commands


def bubblewrap_command(
    limits: Limits, program: str, files: Mapping[str, str], packages: Sequence[str] = ()
) -> list[str]:
    """Return the command for an interpreter that sees only shared libraries and its own files.

    Devices are bound one by one: bubblewrap's own /dev is a writable file system without a limit.

    Args:
        limits: of the run; the size of its folder is set here, the others from inside.
        program: the path of bubblewrap.
        files: of the interpreter, see `root.python_files`; `multiarch` names the folder of its
            shared libraries, or is "".
        packages: folders to show as /packages/0 and so on.
    """
    from orchestrion_sandbox.inside import root

    command = [program, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    # `inside/cold.py` drops this right before the program starts.
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
    """Return the command for an interpreter in a container, without network, rights, writable root.

    Raises:
        SandboxError: for packages: no folder of the host is mounted into a container.
    """
    if packages:
        raise SandboxError(
            f"a container of {engine} shows no folders of packages; remove `packages` from the "
            "profile, or use another sandbox"
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
class _Commands:
    """What starts a run (limits, name, packages) and, for an engine, what kills it (name)."""

    start: Callable[[Limits, str, Sequence[str]], list[str]]
    kill: Callable[[str], list[str]] | None = None
    user: int | None = None


class ColdBox(Box):
    """Runs programs in a sandbox that a command makes anew for each run."""

    def __init__(self, backend: str, level: int, commands: _Commands, profile: Profile) -> None:
        super().__init__(backend, level)
        self.commands, self.profile = commands, profile

    async def _begin(
        self, program: Program, limits: Limits, stdin: bytes, harness: Mapping[str, Any] | None
    ) -> ColdRun:
        job = {
            "payload": json.loads(encode_program(program, harness)),
            "limits": asdict(limits),
            "own_folder": self.backend == "bwrap",
            "conversation": harness is not None,
            "sources": _sources(),
            "modules": dict(self.profile.modules),
            "path": [f"/packages/{i}" for i in range(len(self.profile.packages))],
            "preload": list(self.profile.preload),
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
        backend, user = self._box.backend, self._cold.commands.user
        as_user: dict[str, Any]
        as_user = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._cold.commands.start(self._limits, self._name, self._cold.profile.packages),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env={"PATH": os.environ.get("PATH", ""), **_engine_variables()},
                cwd="/",
                start_new_session=True,
                limit=self._limits.output_bytes,
                **as_user,
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
        """Kill the process, and what an engine runs for it elsewhere."""
        self._kill()
        if self._cold.commands.kill is not None:
            null = asyncio.subprocess.DEVNULL
            command = self._cold.commands.kill(self._name)
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
    """The runtime of a backend that starts a new interpreter for each run."""

    name: Literal["bwrap", "docker", "podman"]
    level: int
    image: str = ""
    engine_runtime: str = ""

    @contextlib.asynccontextmanager
    async def open(self, profile: Profile = PLAIN) -> AsyncIterator[ColdBox]:
        """Open a box and run an empty program in it.

        Raises:
            SandboxError: if that fails, with the reason.
        """
        box = ColdBox(self.name, self.level, self._commands(), profile)
        await box.run(Program(""), limits=Limits())
        yield box

    def _commands(self) -> _Commands:
        if self.name == "bwrap" and sys.platform != "linux":
            raise SandboxError("the sandbox 'bwrap' needs Linux")
        program = shutil.which(self.name)
        if program is None:
            raise SandboxError(
                f"the sandbox {self.name!r} cannot start: {self.name} is not installed"
            )
        if self.name == "bwrap":
            from orchestrion_sandbox.inside import linux

            # The limit of processes never applies to root, whatever its name inside.
            user = NOBODY if os.geteuid() == 0 and linux.mapped(NOBODY) else None
            python = _readable_interpreter(user)
            return _Commands(
                lambda limits, name, packages: bubblewrap_command(
                    limits, program, python, packages
                ),
                None,
                user,
            )
        image, runtime = self.image, self.engine_runtime
        return _Commands(
            lambda limits, name, packages: engine_command(
                limits, program, image, name, runtime, packages
            ),
            lambda name: [program, "kill", name],
        )


def _readable_interpreter(user: int | None) -> dict[str, str]:
    """Return the files of this interpreter, or of the system's if `user` cannot read this one."""
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    current = {"python": python, "prefix": sys.base_prefix, "stdlib": sysconfig.get_path("stdlib")}
    python = os.path.realpath("/usr/bin/python3")
    system = {"python": python, "prefix": "/usr", "stdlib": f"/usr/lib/{Path(python).name}"}
    for files in (current, system):
        if user is None or all(_open_to_all(Path(path)) for path in files.values()):
            return files | {"multiarch": sysconfig.get_config_var("MULTIARCH") or ""}
    raise SandboxError(
        "the sandbox 'bwrap' cannot start: it gives up the rights of root first, and other users "
        f"cannot read the interpreter {current['python']}"
    )


def _open_to_all(path: Path) -> bool:
    real = path.resolve()
    return real.exists() and all(part.stat().st_mode & 0o005 for part in (real, *real.parents))


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
