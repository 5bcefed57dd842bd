"""Problems held against their own solutions: what those do not pass cannot be asked of a team."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from attrs import evolve
from orchestrion_sandbox import Box, CaseOutcome, Limits

from orchestrion_code_review.challenge import Challenge, Test
from orchestrion_code_review.judging import Judgement, judge
from orchestrion_code_review.loading import Loaded

__all__ = ["judged", "reason", "sound"]

_PATIENCE = 6


async def sound(challenges: Sequence[Challenge], box: Box, limits: Limits) -> Loaded:
    """The problems whose solution passes the hidden tests under these limits, or is not known.

    An example that the solution does not give, as in some published docstrings, is no example.
    """
    # All of them run at once, so that wall time says more of the machine than of a solution.
    limits = evolve(limits, wall_seconds=_PATIENCE * limits.wall_seconds)
    known = [one for one in challenges if one.solution]
    found = await asyncio.gather(*(judged(box, one, one.solution, limits) for one in known))
    verdicts = dict(zip((one.id for one in known), found, strict=True))
    kept, left_out = [], []
    for one in challenges:
        verdict = verdicts.get(one.id)
        if verdict is None:
            kept.append(one)
        elif verdict.forgeries or not all(outcome.passed for outcome in verdict.outcomes):
            left_out.append(f"{one.id}: its solution does not pass: {reason(one, verdict)}")
        else:
            pairs = zip(_only_shown(one), verdict.examples, strict=True)
            wrong = {test: outcome for test, outcome in pairs if not outcome.passed}
            kept.append(evolve(one, examples=tuple(e for e in one.examples if e not in wrong)))
            left_out += [
                f"{one.id}: its solution does not give the example {_failed(test, outcome)}"
                for test, outcome in wrong.items()
            ]
    return Loaded(tuple(kept), tuple(left_out))


async def judged(box: Box, one: Challenge, code: str, limits: Limits) -> Judgement:
    """A program's verdict by all tests and examples of a problem."""
    return await judge(
        box, code, one.entry_point, one.tests,
        examples=_only_shown(one),
        prelude=one.prelude, names=one.names, limits=limits,
    )  # fmt: skip


def reason(one: Challenge, found: Judgement) -> str:
    """What a program failed first."""
    if found.forgeries:
        return found.forgeries[0]
    outcomes = (*found.outcomes, *found.examples)
    pairs = zip((*one.tests, *_only_shown(one)), outcomes, strict=True)
    test, outcome = next((test, outcome) for test, outcome in pairs if not outcome.passed)
    return _failed(test, outcome)


def _only_shown(one: Challenge) -> list[Test]:
    """Examples that are no hidden test as well."""
    return [example for example in one.examples if example not in one.tests]


def _failed(test: Test, outcome: CaseOutcome) -> str:
    what = " ".join(filter(None, [outcome.error, outcome.text])) or f"gave {outcome.got}"
    return f"{test.text[:80]!r}: {what[:120]}"
