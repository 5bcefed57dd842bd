"""Runs a payload: the last trusted lines before a program, and the program itself."""

from __future__ import annotations

import atexit
import base64
import builtins
import contextlib
import json
import os
import sys
import threading
import traceback
import types
from typing import Any, NoReturn

from . import harness  # noqa: F401 - loaded once, before the first run

FLAGS = ("-S", "-s", "-B", "-P", "-X", "utf8")
"""Options of the interpreter: no site-packages, no files written, no folder on the path."""

START = "import sys; sys.path += {}; from orchestrion_sandbox.inside.zygote import main; main()"
"""What the interpreter executes; the path is filled in."""

ENVIRONMENT = {"PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": "/python/lib", "PATH": "/python/bin"}
"""The whole environment, also of processes that a program starts: without the path, an interpreter
with a shared library might load another one's. With the seed, sets have the same order in every
run."""

NOBODY = 65534
"""The user that root becomes before a program runs."""

MAIN = "main.py"


def write_files(files: dict[str, str]) -> None:
    """Write files, given as base64 by path. The supervisor has checked the paths."""
    for path, content in files.items():
        if "/" in path:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(content))


def run(source: int, channel: int | None) -> NoReturn:
    """Run the payload as the main program, or as what answers in a conversation.

    `source` is the descriptor to read it from. A failure from here on is an error of the program,
    neither a failure of the sandbox nor an orderly end.
    """
    try:
        with open(source, "rb", buffering=0) as file:
            payload = json.loads(file.readall())
        write_files(payload["files"])
        if "answers" in payload:
            module, _, function = payload["answers"].partition(":")
            getattr(sys.modules[module], function)(payload, channel)
        _leave(_main(payload))
    except BaseException as error:
        with contextlib.suppress(BaseException):
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def _main(payload: dict[str, Any]) -> int:
    sys.argv = [MAIN, *payload["arguments"]]
    sys.path.insert(0, os.getcwd())
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=MAIN, __builtins__=builtins)
    sys.modules["__main__"] = module
    try:
        exec(compile(payload["source"], MAIN, "exec"), module.__dict__)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 255
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        own_frames = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, own_frames)
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """End like an interpreter, but without freeing its objects, which would take long."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for its threads
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            if stream is not None and not stream.closed:
                stream.flush()
    except BaseException:
        code = code or 1
    os._exit(code)
