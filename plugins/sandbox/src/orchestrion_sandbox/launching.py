"""Starts the warm interpreter, and encodes what it is to run."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from orchestrion_sandbox.inside.program import ENVIRONMENT, FLAGS, START
from orchestrion_sandbox.interface import Profile, Program, SandboxError

Mode = Literal["namespaces", "landlock", "unconfined"]

LEVELS: Mapping[Mode, int] = {"namespaces": 3, "landlock": 2, "unconfined": 1}
START_SECONDS = 20.0
_INSIDE = Path(__file__).parent / "inside"


def launch(mode: Mode, profile: Profile) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the interpreter; return its process and socket. Its first message is for `is_filtered`.

    It ends with the thread that calls this, or when the socket is closed.

    Raises:
        SandboxError: if this system has no such interpreter.
    """
    if not hasattr(socket, "SOCK_SEQPACKET") or not hasattr(os, "memfd_create"):
        raise SandboxError(f"the sandbox {mode!r} needs Linux")
    from orchestrion_sandbox.inside.zygote import sealed

    python = _interpreter()
    settings = {
        "mode": mode,
        "preload": list(profile.preload),
        "modules": dict(profile.modules),
        "packages": [os.path.realpath(folder) for folder in profile.packages],
        "inside": str(_INSIDE),
        "prefix": sys.base_prefix,
        "stdlib": sysconfig.get_path("stdlib"),
        "multiarch": sysconfig.get_config_var("MULTIARCH") or "",
        "python": python,
    }
    settings["readable"] = _readable(settings)
    path = [str(_INSIDE.parent.parent), *profile.packages]
    start = START.format(path)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        file = sealed(json.dumps(settings | {"control": theirs.fileno()}).encode())
        try:
            process = subprocess.Popen(
                [python, *FLAGS, "-c", start, "launch", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), file],
                env={"PYTHONHASHSEED": ENVIRONMENT["PYTHONHASHSEED"]},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"the interpreter {python} cannot be started: {error}") from error
        finally:
            os.close(file)
    return process, ours


def is_filtered(data: bytes, backend: str) -> bool:
    """Return, from its first message, whether the interpreter filters system calls.

    Raises:
        SandboxError: if it could not set up the sandbox, with the reason.
    """
    answer = json.loads(data or b'{"failed": "it ended while starting"}')
    if "failed" in answer:
        raise SandboxError(f"the sandbox {backend!r} cannot start: {answer['failed']}")
    return bool(answer["filtered"])


def encode_program(program: Program, more: Mapping[str, Any] | None = None) -> bytes:
    """Return a program as the payload of a run.

    Raises:
        ValueError: for a file outside the program's folder.
    """
    files = {}
    for name, content in program.files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
            raise ValueError(f"a file's path must be relative and below the folder: {name!r}")
        files[str(path)] = base64.b64encode(content).decode()
    data = {"source": program.source, "files": files, "arguments": list(program.arguments)}
    return json.dumps(data | dict(more or {})).encode()


def _interpreter() -> str:
    """Return the path of the interpreter itself, not of a virtual environment's link to it."""
    for link in (getattr(sys, "_base_executable", sys.executable), sys.executable):
        path = os.path.realpath(link)
        if os.access(path, os.X_OK):
            return path
    raise SandboxError(f"the interpreter at {sys.executable} cannot be run by this user")


def _readable(settings: Mapping[str, Any]) -> list[str]:
    """Return what a run may read where it sees the machine's own files."""
    # Entry by entry: below a readable folder nothing can be blocked, and the packages beside the
    # standard library are private.
    paths = ["/dev/null", "/dev/urandom", settings["inside"], *settings["packages"]]
    stdlib = settings["stdlib"]
    for folder in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", os.path.dirname(stdlib)):
        paths += _entries(folder, but=("python", "site-packages", "dist-packages"))
    paths += _entries(stdlib, but=("site-packages", "dist-packages"))
    return [path for path in dict.fromkeys(map(os.path.realpath, paths)) if os.path.exists(path)]


def _entries(folder: str, but: tuple[str, ...]) -> list[str]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if not name.startswith(but)]
