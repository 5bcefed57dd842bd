"""Check problems with their own solutions, before training on them.

    python -m orchestrion_code_review.check_suite problems.jsonl

It judges every solution and every wrong solution by all tests of its problem, within the limits of
the task. It prints what is not as it should be, and the exit code is then 1.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrion_sandbox import choose

from orchestrion import OrchestrionError
from orchestrion_code_review.challenge import Challenge
from orchestrion_code_review.judging import judge, reason
from orchestrion_code_review.loading import load
from orchestrion_code_review.task import CodeReview

LIMITS = CodeReview().limits


async def check(challenges: Sequence[Challenge]) -> tuple[str, list[str]]:
    """Judge all solutions and wrong solutions.

    Returns:
        A summary, and a line for each solution that fails and each wrong solution that passes.
    """
    solved = caught = 0
    faults: list[str] = []
    async with choose("auto").open() as box:
        for challenge in challenges:
            if challenge.solution:
                judgement = await judge(box, challenge.solution, challenge, LIMITS)
                solved += judgement.judged.passed
                if not judgement.judged.passed:
                    why = reason(challenge, judgement)
                    faults.append(f"{challenge.id}: its solution does not pass: {why}")
            for number, code in enumerate(challenge.wrong, start=1):
                passes = (await judge(box, code, challenge, LIMITS)).judged.passed
                caught += not passes
                if passes:
                    faults.append(f"{challenge.id}: wrong solution {number} passes every test")
    solutions = sum(bool(challenge.solution) for challenge in challenges)
    wrong = sum(len(challenge.wrong) for challenge in challenges)
    summary = (
        f"{len(challenges)} problems; {solved} of {solutions} solutions pass, "
        f"{caught} of {wrong} wrong solutions fail"
    )
    return summary, faults


def main(arguments: Sequence[str]) -> int:
    """Check the files and folders that are named, and return the exit code."""
    if not arguments:
        print(__doc__)
        return 2
    faulty = False
    for path in arguments:
        try:
            loaded = load(Path(path))
            summary, faults = asyncio.run(check(loaded.challenges))
        except OrchestrionError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        lines = [*(f"left out: {line}" for line in loaded.skipped), *faults]
        print("\n".join([*lines, f"{path}: {summary}"]))
        faulty |= bool(faults)
    return int(faulty)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
