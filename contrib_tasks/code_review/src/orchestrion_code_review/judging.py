"""Verdicts on versions: hidden tests outside the program where they can be, apart from it else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from attrs import Factory, evolve, frozen
from orchestrion_sandbox import Box, CaseOutcome, Limits, Verdict, judge_calls, judge_statements

from orchestrion_code_review.challenge import Challenge, Test, constant_share
from orchestrion_code_review.loading import LoadedSuite
from orchestrion_code_review.scoring import VersionVerdict, corrected


@frozen
class Judgement:
    """How a program did.

    Args:
        outcomes: one a hidden test, in their order.
        examples: one an example.
        forgeries: what it did that only makes sense to sway the judge.
        constant: the share that a constant answer reaches.
        outside: the share of tests judged outside; the others were statements, judged apart.
        methods: how many tests were judged by each method.
        backend: the sandbox.
        level: what it holds.
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
        """What scores are made of. Whoever tries to forge has passed nothing."""
        if self.forgeries or not self.outcomes:
            return VersionVerdict()
        count = len(self.outcomes)
        right = sum(outcome.passed for outcome in self.outcomes)
        if right == count and not all(outcome.passed for outcome in self.examples):
            count += 1  # no better than with one more test, which it fails
        raw = right / count
        return VersionVerdict(raw == 1, corrected(raw, self.constant), raw)

    def parts(self) -> dict[str, float]:
        """Return how it was judged, as numbers that travel with the scores."""
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
        """Return what each test gave, by name, for people."""
        named = [(f"hidden test {i + 1}", outcome) for i, outcome in enumerate(self.outcomes)]
        named += [(f"example {i + 1}", outcome) for i, outcome in enumerate(self.examples)]
        verdicts = {name: "passed" if o.passed else o.error or "wrong value" for name, o in named}
        return verdicts | {f"forgery {i + 1}": text for i, text in enumerate(self.forgeries)}


async def judge(
    box: Box,
    code: str,
    entry_point: str,
    tests: Sequence[Test],
    *,
    examples: Sequence[Test] = (),
    prelude: str = "",
    names: Sequence[str] = (),
    limits: Limits,
) -> Judgement:
    """Run all hidden tests on a program, and the examples, each of which it has to pass as well.

    Raises:
        SandboxError: the sandbox failed, which says nothing about the program.
    """
    every = [*tests, *examples]
    cases = [(i, case) for i, t in enumerate(every) if (case := t.case(entry_point, names))]
    apart = sorted(set(range(len(every))) - {i for i, _ in cases})
    outcomes: dict[int, CaseOutcome] = {}
    verdicts: list[Verdict] = []
    if cases:
        judge_cases = [case for _, case in cases]
        verdicts.append(await judge_calls(box, code, entry_point, judge_cases, limits=limits))
        outcomes |= zip((i for i, _ in cases), verdicts[-1].outcomes, strict=True)
    if apart:
        statements = [every[i].statement for i in apart]
        verdicts.append(
            await judge_statements(
                box, code, entry_point, statements, prelude=prelude, limits=limits
            )
        )
        outcomes |= zip(apart, verdicts[-1].outcomes, strict=True)
    methods: dict[str, int] = {}
    for verdict in verdicts:
        methods[verdict.method] = methods.get(verdict.method, 0) + len(verdict.outcomes)
    return Judgement(
        outcomes=tuple(outcomes[i] for i in range(len(tests))),
        examples=tuple(outcomes[i] for i in range(len(tests), len(every))),
        forgeries=tuple(forgery for verdict in verdicts for forgery in verdict.forgeries),
        constant=constant_share(tests, entry_point, names),
        methods=methods,
        backend=verdicts[0].backend if verdicts else "",
        level=min((verdict.level for verdict in verdicts), default=0),
    )


# ---------------------------------------------------------------- solutions of the problems


_PATIENCE = 6


async def sound(challenges: Sequence[Challenge], box: Box, limits: Limits) -> LoadedSuite:
    """Return the problems whose solution passes the hidden tests under these limits, or is not
    known.

    An example that the solution does not give, as in some published docstrings, is no example.
    """
    # All of them run at once, so that wall time says more of the machine than of a solution.
    limits = evolve(limits, wall_seconds=_PATIENCE * limits.wall_seconds)
    known = [challenge for challenge in challenges if challenge.solution]
    judgements = await asyncio.gather(
        *(judged(box, challenge, challenge.solution, limits) for challenge in known)
    )
    verdicts = dict(zip((challenge.id for challenge in known), judgements, strict=True))
    kept, left_out = [], []
    for challenge in challenges:
        verdict = verdicts.get(challenge.id)
        if verdict is None:
            kept.append(challenge)
        elif verdict.forgeries or not all(outcome.passed for outcome in verdict.outcomes):
            left_out.append(
                f"{challenge.id}: its solution does not pass: {reason(challenge, verdict)}"
            )
        else:
            pairs = zip(_only_shown(challenge), verdict.examples, strict=True)
            wrong = {test: outcome for test, outcome in pairs if not outcome.passed}
            kept.append(
                evolve(challenge, examples=tuple(e for e in challenge.examples if e not in wrong))
            )
            left_out += [
                f"{challenge.id}: its solution does not give the example {_failed(test, outcome)}"
                for test, outcome in wrong.items()
            ]
    return LoadedSuite(tuple(kept), tuple(left_out))


async def judged(box: Box, challenge: Challenge, code: str, limits: Limits) -> Judgement:
    """Return a program's verdict by all tests and examples of a problem."""
    return await judge(
        box, code, challenge.entry_point, challenge.tests,
        examples=_only_shown(challenge),
        prelude=challenge.prelude, names=challenge.names, limits=limits,
    )  # fmt: skip


def reason(challenge: Challenge, judgement: Judgement) -> str:
    """Return what a program failed first."""
    if judgement.forgeries:
        return judgement.forgeries[0]
    outcomes = (*judgement.outcomes, *judgement.examples)
    pairs = zip((*challenge.tests, *_only_shown(challenge)), outcomes, strict=True)
    test, outcome = next((test, outcome) for test, outcome in pairs if not outcome.passed)
    return _failed(test, outcome)


def _only_shown(challenge: Challenge) -> list[Test]:
    """Examples that are no hidden test as well."""
    return [example for example in challenge.examples if example not in challenge.tests]


def _failed(test: Test, outcome: CaseOutcome) -> str:
    what = " ".join(filter(None, [outcome.error, outcome.text])) or f"gave {outcome.got}"
    return f"{test.text[:80]!r}: {what[:120]}"
