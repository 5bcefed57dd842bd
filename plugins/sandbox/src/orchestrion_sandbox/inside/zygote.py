"""A warm interpreter behind a wall, which forks one process a run.

Four stages, each with less to lose than the one before:

`launch`  on the host's side: makes namespaces, a root with nothing in it but the interpreter,
          gives up the host's user, and starts itself anew in there;
`serve`   waits for jobs. It never sees a program: payloads come by descriptors that only the
          forked process reads;
`_stage`  one a run: a user, process and mount namespace of its own. It stays outside them and
          tells the supervisor how the run ended;
`_begin`  the run's first process: sets its own limits, gives up everything, and runs the program.

The supervisor sends one datagram a run: JSON, with descriptors for the status channel, the
payload, standard input, output, error, and perhaps a channel for a conversation. On the status
channel it gets a pidfd, then "ready" when all limits stand, then how the process ended. A run
that ended without "ready" is the sandbox's failure.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import sys
import traceback
import types
from typing import Any, NoReturn

from . import linux, program, root, seccomp

__all__ = ["launch", "limit", "main", "sealed", "serve"]

NOBODY = 65534
CHANNEL = 3  # where a conversation's descriptor is for the program
_STATUS = 10  # where the status channel is until the program starts
_PAYLOAD = 11  # where the payload is until it has been read
_ENDING = (signal.SIGTERM, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU)


def main() -> NoReturn:
    """`python -c ... STAGE FD`: the settings are JSON in a sealed file, read once."""
    stage, settings = sys.argv[1], _read(int(sys.argv[2]))
    control = socket.socket(fileno=settings["control"])
    try:
        (launch if stage == "launch" else serve)(control, settings)
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        if not isinstance(error, OSError):
            reason = traceback.format_exc()
        with contextlib.suppress(OSError):
            control.send(json.dumps({"failed": reason}).encode()[:60_000])
        os._exit(1)


# ---------------------------------------------------------------- launch


def launch(control: socket.socket, settings: dict[str, Any]) -> NoReturn:
    """Build the wall and start the server behind it."""
    linux.on_parent_death(signal.SIGKILL)
    if settings["mode"] != "namespaces":
        serve(control, settings)
    as_root = os.geteuid() == 0
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    apart = linux.NEWNS | linux.NEWPID | linux.NEWIPC | linux.NEWUTS | linux.NEWNET
    linux.unshare(apart | linux.NEWCGROUP | (0 if as_root else linux.NEWUSER))
    if not as_root:
        linux.map_user(proc)
    pid = os.fork()
    if pid:
        control.close()
        os.close(proc)
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 127)
    linux.on_parent_death(signal.SIGKILL)
    socket.sethostname("sandbox")
    root.build(settings)
    if as_root:
        linux.drop_user(NOBODY)
    linux.no_new_privileges()
    # Anew, so that no path, variable or object of the host is left in memory.
    kept = {"control": control.fileno(), "mode": "namespaces", "proc": proc}
    kept |= {"preload": settings["preload"], "modules": settings["modules"]}
    file = sealed(json.dumps(kept).encode())
    for fd in (control.fileno(), proc, file):
        os.set_inheritable(fd, True)
    paths = ["/sandbox", *(f"/packages/{i}" for i in range(len(settings["packages"])))]
    start = program.START.format(paths)
    python = ["/python/bin/python", *program.FLAGS, "-c", start, "serve", str(file)]
    os.execve(python[0], python, program.ENVIRONMENT)


# ---------------------------------------------------------------- serve


def serve(control: socket.socket, settings: dict[str, Any]) -> NoReturn:
    """Fork a process for every job, until the supervisor is gone."""
    linux.on_parent_death(signal.SIGKILL)
    for name in settings["preload"]:
        __import__(name)
    for name, source in settings["modules"].items():
        _make_module(name, source)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # processes that ended leave nothing behind
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    filters = seccomp.build(linux.MACHINE) if settings["mode"] == "namespaces" else None
    if settings["mode"] == "landlock":
        settings["rules"] = linux.landlock_rules(settings["readable"])
    control.send(json.dumps({"up": True, "filtered": filters is not None}).encode())
    gc.collect()
    gc.freeze()
    while True:
        data, fds, _, _ = socket.recv_fds(control, 1 << 16, 8)
        if not data:
            os._exit(0)  # the first process of its namespace: everything in there ends with it
        if os.fork():
            for fd in fds:
                os.close(fd)
            continue
        control.close()
        job = json.loads(data)
        _stage(settings, job, fds, filters)


def _make_module(name: str, source: str) -> None:
    """A module from its source; packages it is in are there, and empty."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        module = types.ModuleType(".".join(parts[:i]))
        if i < len(parts):
            module.__path__ = []
        sys.modules.setdefault(module.__name__, module)
    exec(compile(source, f"<{name}>", "exec"), sys.modules[name].__dict__)


def _stage(
    settings: dict[str, Any], job: dict[str, Any], fds: list[int], filters: bytes | None
) -> NoReturn:
    """Start the run's first process and see it end, from outside its namespaces."""
    status = socket.socket(fileno=fds[0])
    try:
        linux.on_parent_death(signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if settings["mode"] == "namespaces":
            linux.unshare(linux.NEWUSER | linux.NEWPID | linux.NEWNS | linux.NEWIPC)
            linux.map_user(settings["proc"])
            os.close(settings["proc"])
        pid = os.fork()
        if pid == 0:
            _begin(settings, job, fds, status, filters)
        for fd in fds[1:]:
            os.close(fd)
        held = os.pidfd_open(pid)
        socket.send_fds(status, [json.dumps({"pid": pid}).encode()], [held])
        _, how, used = os.wait4(pid, 0)
        ended = {
            "exit": os.WEXITSTATUS(how) if os.WIFEXITED(how) else None,
            "signal": os.WTERMSIG(how) if os.WIFSIGNALED(how) else None,
            "cpu": used.ru_utime + used.ru_stime,
        }
        status.send(json.dumps({"ended": ended}).encode())
    except BaseException as error:
        with contextlib.suppress(OSError):
            status.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
    os._exit(0)


# ---------------------------------------------------------------- the run's first process


def _begin(
    settings: dict[str, Any],
    job: dict[str, Any],
    fds: list[int],
    status: socket.socket,
    filters: bytes | None,
) -> NoReturn:
    """Set limits, give up everything, run the program. Never returns."""
    mode = settings["mode"]
    try:
        linux.on_parent_death(signal.SIGKILL)
        os.setsid()  # no terminal
        limits = job["limits"]
        if mode == "namespaces":
            options = f"size={limits['scratch_mb']}m,nr_inodes={limits['files'] + 1},mode=700"
            linux.mount("scratch", root.SCRATCH, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
            linux.end_on(*_ENDING)
        os.chdir(job.get("folder") or root.SCRATCH if mode != "landlock" else "/")
        if mode == "landlock":
            linux.no_new_privileges()
            linux.landlock(settings["rules"])
        status.detach()
        status, channel = _arrange(fds)
        if mode != "unconfined":
            linux.drop_capabilities()
            linux.no_new_privileges()
        if mode == "landlock":
            filters = seccomp.build(linux.MACHINE, own_pid=os.getpid())
        limit(limits, mode)
        if filters is not None:
            linux.set_filter(filters)
        status.send(b'{"ready": true}')
        status.close()
    except BaseException as error:
        with contextlib.suppress(OSError):
            status.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    # From here on all that happens is the program's doing, its size and its files' names included.
    program.run(_PAYLOAD, channel)


def sealed(data: bytes) -> int:
    """A descriptor to read `data` from, which whoever holds it cannot change or grow."""
    fd = os.memfd_create("data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0xF)  # no more seals, no shrinking, growing, writing
    return fd


def _read(fd: int) -> dict[str, Any]:
    with open(fd, "rb", buffering=0) as file:
        data: dict[str, Any] = json.loads(file.readall())
    return data


def _arrange(fds: list[int]) -> tuple[socket.socket, int | None]:
    """Standard files at 0 to 2, a conversation's channel at 3, status and payload above; no others.

    `fds` is status, payload, input, output, error, and perhaps the channel.
    """
    # Out of the way first: any of them may have one of the numbers wanted.
    status, payload, *standard = (fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in fds)
    for wanted, fd in enumerate(standard):
        os.dup2(fd, wanted)
    os.dup2(status, _STATUS, inheritable=False)
    os.dup2(payload, _PAYLOAD, inheritable=False)
    os.closerange(len(standard), _STATUS)
    linux.close_from(_PAYLOAD + 1)
    return socket.socket(fileno=_STATUS), CHANNEL if len(standard) > CHANNEL else None


def limit(limits: dict[str, Any], mode: str) -> None:
    """Set this process's own limits, for good, and those of all it starts."""
    memory = limits["memory_mb"] << 20
    wanted = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_FSIZE: limits["scratch_mb"] << 20,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: 1,  # with 0, what the machine has to collect dumps would still run
        resource.RLIMIT_STACK: 8 << 20,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 128,
    }
    if mode in ("namespaces", "cold"):
        # Counted in the run's own user namespace, where the stage before this is the other one.
        wanted[resource.RLIMIT_NPROC] = limits["processes"] + 1
    for name, value in wanted.items():
        resource.setrlimit(name, (value, value))
