"""Judges as they are often written, to show what gets past them.

They run inside a sandbox too: what they lack is not protection of the machine, but of the verdict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from orchestrion_sandbox.interface import Limits, Program, Result
from orchestrion_sandbox.warm import WarmBox

from tests.plugins.sandbox.candidates import INPUTS, STATEMENTS

LIMITS = Limits(wall_seconds=300, cpu_seconds=20)

_SHARED = """
import json
source, tests = json.loads(%r)
namespace = {}
exec(compile(source, "<string>", "exec"), namespace)
exec(compile(tests, "<judge>", "exec"), namespace)
print("\\nDONE")
"""

_LOOP = """
import json
source, pairs = json.loads(%r)
namespace = {}
exec(compile(source, "<string>", "exec"), namespace)
for values, expected in pairs:
    got = namespace["total"](values)
    assert got == expected
print("\\nDONE")
"""


async def by_exit_code(box: WarmBox, source: str) -> bool:
    """The program, then asserts, in one process; it ends with 0."""
    return (await _with_asserts(box, source)).status == "ok"


async def by_shared_asserts(box: WarmBox, source: str) -> bool:
    """The same, and it also reaches the end."""
    return _is_done(await _with_asserts(box, source))


async def by_shared_loop(box: WarmBox, source: str) -> bool:
    """Inputs and wanted values in one process with the program, compared by `==`."""
    return _is_done(await box.run(Program(_LOOP % json.dumps([source, INPUTS])), limits=LIMITS))


NAIVE: dict[str, Callable[[WarmBox, str], Coroutine[Any, Any, bool]]] = {
    "exit": by_exit_code,
    "shared": by_shared_asserts,
    "loop": by_shared_loop,
}


async def _with_asserts(box: WarmBox, source: str) -> Result:
    program = Program(_SHARED % json.dumps([source, "\n".join(STATEMENTS)]))
    return await box.run(program, limits=LIMITS)


def _is_done(result: Result) -> bool:
    return result.status == "ok" and result.stdout.endswith(b"\nDONE\n")
