"""Judges as they are often written, to show what gets past them. They run inside a sandbox too:
what they lack is not protection of the machine, but of the verdict."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Coroutine
from typing import Any

from orchestrion_sandbox.box import ZygoteBox
from orchestrion_sandbox.interface import Limits, Program
from orchestrion_sandbox.suite_profile import pytest_profile

from tests.plugins.sandbox.candidates import IDS, INPUTS, STATEMENTS, TESTS

LIMITS = Limits(wall_seconds=300, cpu_seconds=20)

_PYTEST = """
import json, os, sys
child = os.fork()
if child == 0:
    import pytest
    sys.path.insert(0, os.getcwd())
    sys.exit(pytest.main(["-q", "-pno:cacheprovider", "--junitxml=report.xml", "test_total.py"]))
_, status = os.waitpid(child, 0)
report = open("report.xml").read() if os.path.exists("report.xml") else ""
print("\\n" + json.dumps({"code": os.waitstatus_to_exitcode(status), "report": report}), flush=True)
os._exit(0)
"""

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


async def by_exit_code(box: ZygoteBox, source: str) -> bool:
    """pytest ended with 0."""
    code, _ = await _pytest(box, source)
    return code == 0


async def by_junit(box: ZygoteBox, source: str) -> bool:
    """pytest's report has exactly the wanted tests, and nothing but passes."""
    _, report = await _pytest(box, source)
    try:
        cases = list(ElementTree.fromstring(report).iter("testcase"))
    except ElementTree.ParseError:
        return False
    ids = [f"{case.get('classname')}.py::{case.get('name')}" for case in cases]
    return sorted(ids) == sorted(IDS) and not any(len(case) for case in cases)


async def by_shared_asserts(box: ZygoteBox, source: str) -> bool:
    """The program, then asserts, in one process; it reaches the end."""
    return await _ends(box, _SHARED % json.dumps([source, "\n".join(STATEMENTS)]))


async def by_shared_loop(box: ZygoteBox, source: str) -> bool:
    """Inputs and wanted values in one process with the program, compared by `==`."""
    return await _ends(box, _LOOP % json.dumps([source, INPUTS]))


NAIVE: dict[str, Callable[[ZygoteBox, str], Coroutine[Any, Any, bool]]] = {
    "exit": by_exit_code,
    "junit": by_junit,
    "shared": by_shared_asserts,
    "loop": by_shared_loop,
}


_SEEN: dict[str, tuple[int | None, str]] = {}


async def _pytest(box: ZygoteBox, source: str) -> tuple[int | None, str]:
    if source not in _SEEN:  # two judges look at the same run
        _SEEN[source] = await _run_pytest(box, source)
    return _SEEN[source]


async def _run_pytest(box: ZygoteBox, source: str) -> tuple[int | None, str]:
    files = {"test_total.py": TESTS.encode(), "solution.py": source.encode()}
    tests = box.beside(pytest_profile())
    result = await tests.run(Program(_PYTEST, files), limits=LIMITS)
    lines = result.stdout.splitlines()
    try:
        found = json.loads(lines[-1])
        return found["code"], found["report"]
    except (IndexError, ValueError):
        return None, ""


async def _ends(box: ZygoteBox, source: str) -> bool:
    result = await box.run(Program(source), limits=LIMITS)
    return result.status == "ok" and result.stdout.endswith(b"\nDONE\n")
