"""Hold problems against their own solutions, before anybody trains on them.

    python -m orchestrion_code_review.check_suite problems.jsonl

It judges every solution and every wrong solution by all tests of its problem, under the task's own
limits, prints what does not hold, and ends with 1 if something does not.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen
from orchestrion_sandbox import choose

from orchestrion import OrchestrionError
from orchestrion_code_review.challenge import Challenge
from orchestrion_code_review.judging import judged, reason
from orchestrion_code_review.loading import load
from orchestrion_code_review.task import CodeReview

__all__ = ["Held", "check", "main"]

LIMITS = CodeReview().limits


@frozen
class Held:
    """What a set of problems holds.

    Args:
        passed: how many solutions pass all tests.
        caught: how many wrong solutions fail one.
        faults: what does not hold, one line each.
    """

    passed: int
    caught: int
    faults: tuple[str, ...]


async def check(challenges: Sequence[Challenge]) -> Held:
    """Judge all solutions and wrong solutions."""
    passed = caught = 0
    faults: list[str] = []
    async with choose("auto").open() as box:
        for one in challenges:
            if one.solution:
                found = await judged(box, one, one.solution, LIMITS)
                passed += found.judged.passed
                if not found.judged.passed:
                    faults.append(f"{one.id}: its solution does not pass: {reason(one, found)}")
            for number, code in enumerate(one.wrong, start=1):
                fails = not (await judged(box, one, code, LIMITS)).judged.passed
                caught += fails
                if not fails:
                    faults.append(f"{one.id}: wrong solution {number} passes every test")
    return Held(passed, caught, tuple(faults))


def main(arguments: Sequence[str]) -> int:
    """Check the files and folders that are named; the exit code."""
    if not arguments:
        print(__doc__)
        return 2
    faulty = False
    for path in arguments:
        try:
            loaded = load(Path(path))
            held = asyncio.run(check(loaded.challenges))
        except OrchestrionError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        lines = [*(f"left out: {one}" for one in loaded.skipped), *held.faults]
        print("\n".join([*lines, _told(path, loaded.challenges, held)]))
        faulty |= bool(held.faults)
    return int(faulty)


def _told(path: str, challenges: Sequence[Challenge], held: Held) -> str:
    solutions = sum(bool(one.solution) for one in challenges)
    wrong = sum(len(one.wrong) for one in challenges)
    return (
        f"{path}: {len(challenges)} problems; {held.passed} of {solutions} solutions pass, "
        f"{held.caught} of {wrong} wrong solutions fail"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
