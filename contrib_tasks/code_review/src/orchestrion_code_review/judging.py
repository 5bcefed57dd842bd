"""Verdicts on versions: tests are judged outside the sandbox wherever that is possible."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import Factory, evolve, frozen
from orchestrion_sandbox import (
    Box,
    Case,
    CaseOutcome,
    Limits,
    Verdict,
    judge_calls,
    judge_statements,
)

from orchestrion_code_review.challenge import Challenge, Test, constant_share
from orchestrion_code_review.loading import LoadedSuite
from orchestrion_code_review.scoring import VersionVerdict, corrected


@frozen
class Judgement:
    """The verdict on a program.

    Args:
        outcomes: of the hidden tests, in their order.
        examples: outcomes of the examples.
        forgeries: what the program did only to influence the judge.
        constant: the share of the tests that a constant answer passes.
        methods: the number of tests judged by each method.
        backend: of the sandbox.
        level: of the sandbox.
    """

    outcomes: tuple[CaseOutcome, ...] = ()
    examples: tuple[CaseOutcome, ...] = ()
    forgeries: tuple[str, ...] = ()
    constant: float = 0.0
    methods: Mapping[str, int] = Factory(dict)
    backend: str = ""
    level: int = 0

    @property
    def judged(self) -> VersionVerdict:
        """The part that counts for scores. A program with a forgery has passed nothing."""
        if self.forgeries or not self.outcomes:
            return VersionVerdict()
        count = len(self.outcomes)
        right = sum(outcome.passed for outcome in self.outcomes)
        if right == count and not all(outcome.passed for outcome in self.examples):
            count += 1  # counts like one more test, which fails
        raw = right / count
        return VersionVerdict(raw == 1, corrected(raw, self.constant), raw)

    def parts(self) -> dict[str, float]:
        """Return how the program was judged, as numbers beside the scores."""
        count = len(self.outcomes) + len(self.examples) or 1
        shares = {f"judged_{name}": number / count for name, number in self.methods.items()}
        backend = {f"backend_{self.backend}": 1.0} if self.backend else {}
        return {
            **shares,
            **backend,
            "sandbox_level": float(self.level),
            "forgeries": float(len(self.forgeries)),
        }

    def checks(self) -> dict[str, str]:
        """Return the result of each test, by name, for people."""
        named = [(f"hidden test {i + 1}", outcome) for i, outcome in enumerate(self.outcomes)]
        named += [(f"example {i + 1}", outcome) for i, outcome in enumerate(self.examples)]
        verdicts = {name: "passed" if o.passed else o.error or "wrong value" for name, o in named}
        return verdicts | {f"forgery {i + 1}": text for i, text in enumerate(self.forgeries)}


async def judge(box: Box, code: str, challenge: Challenge, limits: Limits) -> Judgement:
    """Run all tests of a problem on a program: the hidden ones, and the examples.

    Raises:
        SandboxError: the sandbox failed, which says nothing about the program.
    """
    entry_point, count = challenge.entry_point, len(challenge.tests)
    tests = (*challenge.tests, *only_shown(challenge))
    cases: dict[int, Case] = {}
    statements: dict[int, str] = {}
    for i, test in enumerate(tests):
        case = test.case(entry_point, challenge.names)
        if case is None:
            statements[i] = test.statement
        else:
            cases[i] = case
    outcomes: dict[int, CaseOutcome] = {}
    verdicts: list[Verdict] = []
    if cases:
        calls = list(cases.values())
        verdicts.append(await judge_calls(box, code, entry_point, calls, limits=limits))
        outcomes |= zip(cases, verdicts[-1].outcomes, strict=True)
    if statements:
        verdicts.append(
            await judge_statements(
                box, code, entry_point, list(statements.values()),
                prelude=challenge.prelude, limits=limits,
            )
        )  # fmt: skip
        outcomes |= zip(statements, verdicts[-1].outcomes, strict=True)
    methods: Counter[str] = Counter()
    for verdict in verdicts:
        methods[verdict.method] += len(verdict.outcomes)
    return Judgement(
        outcomes=tuple(outcomes[i] for i in range(count)),
        examples=tuple(outcomes[i] for i in range(count, len(tests))),
        forgeries=tuple(forgery for verdict in verdicts for forgery in verdict.forgeries),
        constant=constant_share(challenge.tests, entry_point, challenge.names),
        methods=methods,
        backend=verdicts[0].backend if verdicts else "",
        level=min((verdict.level for verdict in verdicts), default=0),
    )


# ---------------------------------------------------------------- solutions of the problems


_PATIENCE = 6


async def sound(challenges: Sequence[Challenge], box: Box, limits: Limits) -> LoadedSuite:
    """Return the problems without a solution, or whose solution passes the hidden tests.

    Examples that the solution contradicts, as in some published docstrings, are left out.
    """
    # All of them run at once, so that wall time depends more on the machine than on a solution.
    limits = evolve(limits, wall_seconds=_PATIENCE * limits.wall_seconds)

    async def own(challenge: Challenge) -> Judgement | None:
        solution = challenge.solution
        return await judge(box, solution, challenge, limits) if solution else None

    judgements = await asyncio.gather(*map(own, challenges))
    kept, left_out = [], []
    for challenge, verdict in zip(challenges, judgements, strict=True):
        if verdict is None:
            kept.append(challenge)
        elif verdict.forgeries or not all(outcome.passed for outcome in verdict.outcomes):
            left_out.append(
                f"{challenge.id}: its solution does not pass: {reason(challenge, verdict)}"
            )
        else:
            pairs = zip(only_shown(challenge), verdict.examples, strict=True)
            wrong = {test: outcome for test, outcome in pairs if not outcome.passed}
            right = tuple(test for test in challenge.examples if test not in wrong)
            kept.append(evolve(challenge, examples=right))
            left_out += [
                f"{challenge.id}: its solution does not give the example {_failed(test, outcome)}"
                for test, outcome in wrong.items()
            ]
    return LoadedSuite(tuple(kept), tuple(left_out))


def reason(challenge: Challenge, judgement: Judgement) -> str:
    """Return the first reason why a program does not pass."""
    if judgement.forgeries:
        return judgement.forgeries[0]
    outcomes = (*judgement.outcomes, *judgement.examples)
    pairs = zip((*challenge.tests, *only_shown(challenge)), outcomes, strict=True)
    test, outcome = next((test, outcome) for test, outcome in pairs if not outcome.passed)
    return _failed(test, outcome)


def only_shown(challenge: Challenge) -> list[Test]:
    """Return the examples that are not hidden tests as well."""
    return [example for example in challenge.examples if example not in challenge.tests]


def _failed(test: Test, outcome: CaseOutcome) -> str:
    what = " ".join(filter(None, [outcome.error, outcome.text])) or f"gave {outcome.got}"
    return f"{test.text[:80]!r}: {what[:120]}"
