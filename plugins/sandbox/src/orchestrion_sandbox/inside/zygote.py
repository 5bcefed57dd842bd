"""A warm interpreter in a sandbox, which forks one process for each run.

Four stages, each with fewer rights than the one before:

`launch`  on the host: makes namespaces and a root with nothing in it but the interpreter, gives up
          the host's user, and executes itself again inside;
`serve`   waits for jobs. It never reads a program: payloads come as descriptors that only the
          forked process reads;
`_stage`  one per run: makes a user, process and mount namespace for it and stays outside of them.
          It feeds standard input, kills the run at a limit, however busy the supervisor is, and
          reports how it ended;
`_begin`  the run's first process: sets its own limits, gives up its rights, and runs the program.

For each run the supervisor sends one datagram: JSON, with descriptors for the status channel, the
payload, standard input, output, error, and for a conversation its channel. The status channel
returns a pidfd, then "ready" when all limits are set, then how the process ended. A run that ended
without "ready" is a failure of the sandbox.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
import types
from typing import Any, NoReturn

from . import linux, program, root, seccomp, usage

CHANNEL = 3  # the program's descriptor of a conversation
_STATUS = 10  # the descriptor of the status channel until the program starts
_PAYLOAD = 11  # the descriptor of the payload until it has been read
WATCH_SECONDS = 0.02
_ALONE_SECONDS = 0.5  # between looks at a run of one process, which has limits of its own
_ENDING = (signal.SIGTERM, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU)


def main() -> NoReturn:
    """Run a stage: `python -c ... STAGE FD`, with its settings as JSON in a sealed file."""
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
    """Make the namespaces and the root, and start the server in them."""
    linux.on_parent_death(signal.SIGKILL)
    if settings["mode"] != "namespaces":
        serve(control, settings)
    # Root of a container may have no right to make namespaces, or no other user to become; then it
    # makes a namespace of users, as an ordinary user does.
    as_root = linux.has_capability(linux.CAP_SYS_ADMIN) and linux.mapped(program.NOBODY)
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    apart = linux.NEWNS | linux.NEWPID | linux.NEWIPC | linux.NEWUTS | linux.NEWNET
    apart |= linux.NEWCGROUP
    if as_root:
        linux.unshare(apart)
    else:
        if linux.is_host_root():  # the limit of processes never applies to root
            linux.drop_user(program.NOBODY)
            linux.on_parent_death(signal.SIGKILL)
        linux.unshare_users(apart, proc)
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
        linux.drop_user(program.NOBODY)
    linux.no_new_privileges()
    # Execute again, so that no path, variable or object of the host is left in memory.
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
    """Fork a process for each job, until the supervisor is gone."""
    linux.on_parent_death(signal.SIGKILL)
    for name in settings["preload"]:
        __import__(name)
    for name, source in settings["modules"].items():
        make_module(name, source)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # processes that ended leave nothing behind
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    filters = seccomp.build(linux.MACHINE) if settings["mode"] == "namespaces" else None
    if "proc" not in settings:
        settings["proc"] = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    if settings["mode"] == "landlock":
        settings["rules"] = linux.landlock_rules(settings["readable"])
    control.send(json.dumps({"up": True, "filtered": filters is not None}).encode())
    gc.collect()
    gc.freeze()
    while True:
        data, fds, _, _ = socket.recv_fds(control, 1 << 16, 8)
        if not data:
            os._exit(0)  # as the first process of its namespace: all others end with it
        if os.fork():
            for fd in fds:
                os.close(fd)
            continue
        control.close()
        job = json.loads(data)
        _stage(settings, job, fds, filters)


def make_module(name: str, source: str) -> None:
    """Make a module from its source, and empty packages around it."""
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
    """Start the run's first process and watch it, from outside its namespaces."""
    status, began = socket.socket(fileno=fds[0]), time.monotonic()
    try:
        linux.on_parent_death(signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if settings["mode"] == "namespaces":
            linux.unshare_users(linux.NEWPID | linux.NEWNS | linux.NEWIPC, settings["proc"])
        # A pipe, not the supervisor's file: attributes of that would be memory outside any limit.
        stdin, (fds[2], feeding) = fds[2], os.pipe()
        pid = os.fork()
        if pid == 0:
            _begin(settings, job, fds, status, filters)
        for fd in fds[1:]:
            os.close(fd)
        pidfd = os.pidfd_open(pid)
        socket.send_fds(status, [json.dumps({"pid": pid}).encode()], [pidfd])
        why = _watched(pidfd, began, job["limits"], settings["proc"], _Feed(stdin, feeding))
        _, how, used = os.wait4(pid, 0)
        ended = {
            "exit": os.WEXITSTATUS(how) if os.WIFEXITED(how) else None,
            "signal": os.WTERMSIG(how) if os.WIFSIGNALED(how) else None,
            "cpu": used.ru_utime + used.ru_stime,
        }
        status.send(json.dumps({"ended": ended, "why": why}).encode())
    except BaseException as error:
        with contextlib.suppress(OSError):
            status.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
    os._exit(0)


class _Feed:
    """Copies standard input to a program that may never read it."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink, self._data = source, sink, b""
        os.set_blocking(sink, False)

    def more(self) -> bool:
        """Write what fits; return whether something is left."""
        try:
            while self._data or (data := os.read(self.source, 1 << 16)):
                self._data = self._data or data
                self._data = self._data[os.write(self.sink, self._data) :]
        except BlockingIOError:
            return True
        except OSError:
            pass  # nobody reads it any more
        os.close(self.source)
        os.close(self.sink)
        return False


def _watched(
    pidfd: int, began: float, limits: dict[str, Any], proc: int, feed: _Feed
) -> tuple[str, str] | None:
    """Wait until the run has ended; return the status and reason if it was killed at a limit."""
    poll, why = select.poll(), None
    poll.register(pidfd, select.POLLIN)
    feeding = feed.more()
    if feeding:
        poll.register(feed.sink, select.POLLOUT)
    every = WATCH_SECONDS if limits["processes"] > 1 else _ALONE_SECONDS
    end = began + limits["wall_seconds"]
    look = min(began + every, end)  # of the next look; most runs are over by then
    while True:
        ready = {fd for fd, _ in poll.poll(max(0.0, look - time.monotonic()) * 1000 + 1)}
        if pidfd in ready:
            return why
        if feeding and feed.sink in ready and not feed.more():
            poll.unregister(feed.sink)
            feeding = False
        now = time.monotonic()
        if now < look or why is not None:
            continue
        look = now + every if now > end else min(now + every, end)
        taken = usage.tree_usage(usage.children("self", proc), limits["open_files"], proc)
        why = usage.exceeded(taken, now - began, limits)
        if why is not None:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            look += 3600.0


# ---------------------------------------------------------------- the run's first process


def _begin(
    settings: dict[str, Any],
    job: dict[str, Any],
    fds: list[int],
    status: socket.socket,
    filters: bytes | None,
) -> NoReturn:
    """Set limits, give up all rights, run the program."""
    mode = settings["mode"]
    try:
        linux.on_parent_death(signal.SIGKILL)
        os.setsid()  # no terminal
        limits = job["limits"]
        if mode == "namespaces":
            flags, options = linux.MS_NOSUID | linux.MS_NODEV, root.scratch_options(limits)
            linux.mount("scratch", root.SCRATCH, "tmpfs", flags, options)
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
    # From here on every failure is the program's, also one of its size or its files' names.
    program.run(_PAYLOAD, channel)


def sealed(data: bytes) -> int:
    """Return a descriptor to read `data` from; nobody who has it can change or grow the data."""
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
    """Put standard files at 0 to 2, the channel at 3, status and payload above; close all others.

    `fds` are status, payload, input, output, error and, for a conversation, the channel.
    """
    # Out of the way first: any of them may have one of the target numbers.
    status, payload, *standard = (fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in fds)
    for target, fd in enumerate(standard):
        os.dup2(fd, target)
    os.dup2(status, _STATUS, inheritable=False)
    os.dup2(payload, _PAYLOAD, inheritable=False)
    os.closerange(len(standard), _STATUS)
    linux.close_from(_PAYLOAD + 1)
    return socket.socket(fileno=_STATUS), CHANNEL if len(standard) > CHANNEL else None


def limit(limits: dict[str, Any], mode: str) -> None:
    """Set the limits of this process and of all that it starts; they cannot be raised again."""
    memory = limits["memory_mb"] << 20
    values = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_FSIZE: limits["scratch_mb"] << 20,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: 1,  # with 0, a program that collects dumps would still be started
        resource.RLIMIT_STACK: 8 << 20,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 128,
    }
    if mode in ("namespaces", "cold"):
        # Counted in the run's own user namespace, which also has the stage before this.
        values[resource.RLIMIT_NPROC] = limits["processes"] + 1
    for name, value in values.items():
        resource.setrlimit(name, (value, value))
