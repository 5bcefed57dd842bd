"""What is learned from training questions: shrinkage, coincidence, difficulty, and the belief."""

from __future__ import annotations

from itertools import product
from math import log

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from orchestrion_recorded.belief import Belief, Believer
from orchestrion_recorded.case import Case
from orchestrion_recorded.estimate import VOTE_SCALE, Estimates, estimate
from orchestrion_recorded.generate import Generated, generate
from orchestrion_recorded.recording import Recording
from orchestrion_recorded.table import Row, Table
from orchestrion_recorded.task import RecordedTask

from orchestrion import SplitShares
from tests.contrib_tasks.recorded.support import ALL_TRAIN, opened, row, table, tables


def believe(case: Case, asked: list[int], found: Estimates) -> tuple[list[float], Belief]:
    """What is believed, and the probabilities of the answers by code."""
    belief, codes = Believer(found).believe(case, asked)
    answers = [0.0] * len(case.labels)
    for code, p in zip(codes, belief.answers, strict=True):
        answers[code] = p
    return answers, belief


MADE = generate(Generated(questions=1500, models=4, groups=3, seed=2))


def test_only_training_questions_are_looked_at() -> None:
    settings = RecordedTask(split=SplitShares(0.5, 0.0, 0.5))
    task = Recording(settings, MADE)
    held_out = {p.id for p in task.problems("test")}
    spoiled = evolve(
        MADE,
        rows=tuple(
            evolve(one, right="Z", answers={}) if one.id in held_out else one for one in MADE.rows
        ),
    )
    assert Recording(settings, spoiled).estimates == task.estimates


def test_estimates_are_the_same_on_every_machine() -> None:
    made = generate(Generated(questions=300, models=3, groups=2, none=0.1, missing=0.1))
    found = estimate(made, 20.0, 3)
    assert (found.groups, found.options) == (("g1", "g2"), 8)
    assert found.coincide == pytest.approx(0.2567049808429119)
    assert found.votes[1] == pytest.approx([610489, 1658009, 2600034], rel=1e-6)
    for rates, expected in (
        (found.prior[0], [0.36314780584322126, 0.1849423400964606, 0.4519098540603183]),
        (found.right[1][0], [0.14567502612442385, 0.30229814786669024, 0.5529815777019564]),
        (found.wrong[2][2], [0.4582258105642977, 0.2709601157540216, 0.06044650915828102]),
        (found.none[0][1], [0.12771306911183072, 0.10241092906994786, 0.09184940550377882]),
    ):
        assert rates == pytest.approx(expected, rel=1e-6)


def test_a_vote_is_the_log_odds_against_coincidence() -> None:
    found = estimate(MADE, 0.0, 4)
    right = np.mean([r.answers["m2"].answer == r.right for r in MADE.rows if _told(r, "m2")])
    want = log(right / (1 - right)) - log(found.coincide)
    assert found.votes[-1][1] / VOTE_SCALE == pytest.approx(want, abs=0.01)


def _told(one: Row, model: str) -> bool:
    return one.answers[model].answer is not None


def test_rare_groups_are_shrunk_to_the_overall_rate() -> None:
    rows = [row(f"q{i}", "A", ("A", "A", "A") if i % 2 else ("B", "B", "B")) for i in range(100)]
    lucky = row("rare", "A", ("A", "B", "A"), group="rare")
    found = estimate(table(*rows, lucky), 20.0, 1)
    place = found.groups.index("rare")
    rare, overall = found.votes[place][0], found.votes[-1][0]
    alone = estimate(table(*rows, lucky), 0.0, 1).votes[place][0]
    assert overall < rare < overall + (alone - overall) / 4


def test_votes_are_clipped() -> None:
    rows = [row(f"q{i}", "A", ("A", "B", "-")) for i in range(200)]
    [always, never, _] = estimate(table(*rows), 1.0, 2).votes[0]
    assert 0 < never / VOTE_SCALE <= 0.06
    assert always / VOTE_SCALE <= 5


def test_classes_are_found_where_there_are_some() -> None:
    """Half of the questions everybody knows, half nobody: the other models then say it all."""
    known, unknown = ("A", "A", "A"), ("B", "C", "D")
    rows = [row(f"q{i}", "A", known if i % 2 else unknown, options=24) for i in range(200)]
    of = table(*rows)
    two, one = (opened(of, RecordedTask(split=ALL_TRAIN, classes=classes)) for classes in (2, 1))

    def dear(task: Recording, name: str) -> float:
        asked = [0, 1]
        return believe(task.cases[name], asked, task.estimates)[1].models[2]

    assert dear(two, "q1") > 0.9
    assert dear(two, "q0") < 0.2
    assert dear(one, "q0") == pytest.approx(0.5, abs=0.02), "independent models tell nothing"


def test_the_belief_is_calibrated_on_questions_not_seen() -> None:
    made = generate(Generated(questions=6000, models=4, groups=3, seed=2))
    task = Recording(RecordedTask(split=SplitShares(0.5, 0.0, 0.5)), made)
    for model in range(4):
        others = [m for m in range(4) if m != model]
        cases = [task.cases[problem.id] for problem in task.problems("test")]
        believer = Believer(task.estimates)
        pairs = [
            (believer.believe(case, others)[0].models[model], case.codes[model] == case.right)
            for case in cases
        ]
        pairs.sort()
        third = len(pairs) // 3
        for part in (pairs[:third], pairs[-third:]):
            said, was = (sum(column) / third for column in zip(*part, strict=True))
            assert said == pytest.approx(was, abs=0.07)


def weights_of(case: Case, asked: list[int], found: Estimates) -> dict[tuple[int, int], float]:
    """P(class, this answer is right, all that was said) by enumeration, model after model.

    Answers are codes, or from 100 on options that nobody gave.
    """
    wrong_options = case.options - 1
    alpha = (1 - found.coincide) / max(found.coincide - 1 / wrong_options, 0.02)
    alpha = min(max(alpha, 0.5), 50.0)
    g = case.group
    seen = {case.codes[m] for m in asked if case.codes[m] >= 0}
    unseen = range(100, 100 + case.options - len(seen))
    joint = {}
    for z, truth in product(range(len(found.prior[0])), [*sorted(seen), *unseen]):
        p = found.prior[g][z]
        drawn: list[int] = []
        for m in asked:
            if case.codes[m] == -1:
                p *= found.none[g][z][m]
            elif case.codes[m] == truth:
                p *= found.right[g][z][m]
            else:
                weight = alpha / wrong_options + drawn.count(case.codes[m])
                p *= found.wrong[g][z][m] * weight / (alpha + len(drawn))
                drawn.append(case.codes[m])
        joint[z, truth] = p
    return joint


def by_answer(joint: dict[tuple[int, int], float]) -> dict[int, float]:
    """Summed over classes."""
    found: dict[int, float] = {}
    for (_, answer), p in joint.items():
        found[answer] = found.get(answer, 0.0) + p
    return found


def likeliest(joint: dict[tuple[int, int], float]) -> float:
    """P(the likeliest of the answers seen is right, all that was said)."""
    return max((p for answer, p in by_answer(joint).items() if answer < 100), default=0.0)


@settings(max_examples=20)
@given(tables())
def test_the_belief_is_exact_under_the_estimates(of: Table) -> None:
    task = opened(of, RecordedTask(split=ALL_TRAIN, classes=3))
    case, estimates = task.cases["q0"], task.estimates
    can = [m for m in range(3) if case.codes[m] >= -1]
    for asked in (can[:count] for count in range(len(can) + 1)):
        answers, belief = believe(case, asked, estimates)
        joint = weights_of(case, asked, estimates)
        total = sum(joint.values())
        wanted = by_answer(joint)
        assert answers == pytest.approx(
            [wanted.get(code, 0.0) / total for code in range(len(case.labels))], abs=1e-9
        )
        for m, p in enumerate(belief.models):
            right = estimates.right[case.group]
            usual = sum(w * right[z][m] for (z, _), w in joint.items()) / total
            known = answers[case.codes[m]] if case.codes[m] >= 0 else 0.0
            assert p == pytest.approx(known if m in asked else usual, abs=1e-9)


@settings(max_examples=20)
@given(tables())
def test_the_gain_of_asking_is_what_one_more_answer_is_expected_to_add(of: Table) -> None:
    """By letting the model say everything it may say: nothing, what was said, or another option."""
    task = opened(of, RecordedTask(split=ALL_TRAIN, classes=2))
    case, estimates = task.cases["q0"], task.estimates
    can = [m for m in range(3) if case.codes[m] >= -1]
    for asked in (can[:count] for count in range(len(can))):
        joint = weights_of(case, asked, estimates)
        seen = sorted({case.codes[m] for m in asked if case.codes[m] >= 0})
        new = [50 + i for i in range(case.options - len(seen))]
        for m in set(can) - set(asked):
            tellings = [
                weights_of(
                    evolve(case, codes=_saying(case, m, code)), sorted([*asked, m]), estimates
                )
                for code in [-1, *seen, *new]
            ]
            total = sum(joint.values())
            assert sum(sum(one.values()) for one in tellings) == pytest.approx(total)
            wanted = sum(map(likeliest, tellings)) - likeliest(joint)
            gain = believe(case, asked, estimates)[1].gains[m]
            assert gain == pytest.approx(wanted / total, abs=1e-9)
            assert gain >= 0


def _saying(case: Case, model: int, code: int) -> tuple[int, ...]:
    return tuple(code if m == model else said for m, said in enumerate(case.codes))
