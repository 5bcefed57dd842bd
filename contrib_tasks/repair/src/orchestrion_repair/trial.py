"""What is run: a program with cases, under limits; and what comes of each case.

The number of outcomes of a trial is its cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve, field, frozen
from orchestrion_sandbox import Limits as SandboxLimits

from orchestrion import JSON
from orchestrion_repair import harness
from orchestrion_repair.bug import Case


@frozen
class RepairLimits:
    """How far one program may go.

    Args:
        steps: loop rounds and function calls in one case.
        cpu_seconds: of one case in a search (of all its cases, if the program has a process to
            itself), of one process in a verdict.
        memory_mb: address space of one process.
        reply_bytes: length of one encoded result.
        wall_seconds: for a program that blocks; nothing honest does.
    """

    steps: int = 200_000
    cpu_seconds: int = 2
    memory_mb: int = 512
    reply_bytes: int = 1_000_000
    wall_seconds: int = 20

    def sandboxed(self, **changes: Any) -> SandboxLimits:
        """Return the limits of one process, as the sandbox takes them."""
        limits = SandboxLimits(
            wall_seconds=self.wall_seconds,
            cpu_seconds=self.cpu_seconds,
            memory_mb=self.memory_mb,
            processes=1,
            output_bytes=self.reply_bytes,
            scratch_mb=1,
        )
        return evolve(limits, **changes)


def _as_json(cases: Iterable[Case | Mapping[str, JSON]]) -> tuple[Mapping[str, JSON], ...]:
    """Return cases as JSON with lists and dicts, also where a record keeps immutable ones."""
    as_given = (case.to_json() if isinstance(case, Case) else case for case in cases)
    return tuple(harness.plain(case) for case in as_given)


@frozen
class ProgramTrial:
    """A program to run.

    Args:
        code: the whole module.
        entry_point: the function that cases call.
        cases: in the order they are run; kept as `Case.to_json` gives them.
        prelude: source that statements need, run after `code`.
        stop: end at the first case that fails.
        lines: report which lines each case runs.
        sites: what probes in `code` look at, see `alternatives.py`; reported with the lines.
    """

    code: str
    entry_point: str
    cases: tuple[Mapping[str, JSON], ...] = field(converter=_as_json)
    prelude: str = ""
    stop: bool = False
    lines: bool = False
    sites: tuple[Any, ...] = ()


@frozen
class Outcome:
    """What one case gave.

    Args:
        passed: whether it gave the wanted value, or its statement raised nothing.
        error: the name of the exception or limit that ended it; "" if it gave a value.
        text: the exception's message, cut.
        line: the program's innermost line when the exception was raised.
        got: the value as encoded JSON; "..." if long.
        want: what a statement that compares two values wanted, encoded in a list of one.
        lines: the lines that ran, if asked for.
        same: the alternatives that never differed, as `Probes.same` gives them.
        apart: whether the judgement was made outside the program's process.
    """

    passed: bool
    error: str = ""
    text: str = ""
    line: int | None = None
    got: JSON = None
    want: tuple[JSON, ...] = ()
    lines: tuple[int, ...] = ()
    same: str = ""
    apart: bool = True
