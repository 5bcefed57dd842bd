"""Verdicts on versions: hidden tests outside the program where they can be, apart from it else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import Factory, frozen
from orchestrion_sandbox import Box, CaseOutcome, Limits, Verdict, judge_calls, judge_statements

from orchestrion_code_review.challenge import Test, constant_share
from orchestrion_code_review.scoring import Judged, corrected

__all__ = ["Judgement", "judge"]


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
    def judged(self) -> Judged:
        """What scores are made of. Whoever tries to forge has passed nothing."""
        if self.forgeries or not self.outcomes:
            return Judged()
        count = len(self.outcomes)
        right = sum(one.passed for one in self.outcomes)
        if right == count and not all(one.passed for one in self.examples):
            count += 1  # no better than with one more test, which it fails
        raw = right / count
        return Judged(raw == 1, corrected(raw, self.constant), raw)

    def parts(self) -> dict[str, float]:
        """How it was judged, as numbers that travel with the scores."""
        count = len(self.outcomes) + len(self.examples) or 1
        shares = {f"judged_{name}": number / count for name, number in self.methods.items()}
        backend = {f"backend_{self.backend}": 1.0} if self.backend else {}
        return {
            **shares,
            **backend,
            "sandbox_level": float(self.level),
            "forgeries": float(len(self.forgeries)),
        }


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
    found: dict[int, CaseOutcome] = {}
    verdicts: list[Verdict] = []
    if cases:
        asked = [case for _, case in cases]
        verdicts.append(await judge_calls(box, code, entry_point, asked, limits=limits))
        found |= zip((i for i, _ in cases), verdicts[-1].outcomes, strict=True)
    if apart:
        statements = [every[i].statement for i in apart]
        verdicts.append(
            await judge_statements(
                box, code, entry_point, statements, prelude=prelude, limits=limits
            )
        )
        found |= zip(apart, verdicts[-1].outcomes, strict=True)
    methods: dict[str, int] = {}
    for verdict in verdicts:
        methods[verdict.method] = methods.get(verdict.method, 0) + len(verdict.outcomes)
    return Judgement(
        outcomes=tuple(found[i] for i in range(len(tests))),
        examples=tuple(found[i] for i in range(len(tests), len(every))),
        forgeries=tuple(forgery for verdict in verdicts for forgery in verdict.forgeries),
        constant=constant_share(tests, entry_point, names),
        methods=methods,
        backend=verdicts[0].backend if verdicts else "",
        level=min((verdict.level for verdict in verdicts), default=0),
    )
