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
        for challenge in challenges:
            if challenge.solution:
                judgement = await judged(box, challenge, challenge.solution, LIMITS)
                passed += judgement.judged.passed
                if not judgement.judged.passed:
                    why = reason(challenge, judgement)
                    faults.append(f"{challenge.id}: its solution does not pass: {why}")
            for number, code in enumerate(challenge.wrong, start=1):
                fails = not (await judged(box, challenge, code, LIMITS)).judged.passed
                caught += fails
                if not fails:
                    faults.append(f"{challenge.id}: wrong solution {number} passes every test")
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
        lines = [*(f"left out: {line}" for line in loaded.skipped), *held.faults]
        print("\n".join([*lines, _summary(path, loaded.challenges, held)]))
        faulty |= bool(held.faults)
    return int(faulty)


def _summary(path: str, challenges: Sequence[Challenge], held: Held) -> str:
    solutions = sum(bool(challenge.solution) for challenge in challenges)
    wrong = sum(len(challenge.wrong) for challenge in challenges)
    return (
        f"{path}: {len(challenges)} problems; {held.passed} of {solutions} solutions pass, "
        f"{held.caught} of {wrong} wrong solutions fail"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
