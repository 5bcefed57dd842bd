"""What is learned from training questions: shrinkage, coincidence, difficulty, and the belief."""

from __future__ import annotations

from itertools import product
from math import exp, log

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from orchestrion_recorded.belief import believe
from orchestrion_recorded.case import Case
from orchestrion_recorded.estimate import VOTE_SCALE, Estimates, estimate
from orchestrion_recorded.generate import Generated, generate
from orchestrion_recorded.recording import Recording
from orchestrion_recorded.split import Shares
from orchestrion_recorded.table import Row, Table
from orchestrion_recorded.task import RecordedTask

from tests.contrib_tasks.recorded.support import ALL_TRAIN, opened, row, table, tables

MADE = generate(Generated(questions=1500, models=4, groups=3, seed=2))


def test_only_training_questions_are_looked_at() -> None:
    settings = RecordedTask(split=Shares(0.5, 0.0, 0.5))
    task = Recording(settings, MADE)
    held_out = {p.id for p in task.problems("test")}
    spoiled = evolve(
        MADE,
        rows=tuple(
            evolve(one, right="Z", answers={}) if one.id in held_out else one for one in MADE.rows
        ),
    )
    assert Recording(settings, spoiled).estimates == task.estimates


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
    rare, overall = found.votes[found.group("rare")][0], found.votes[-1][0]
    alone = estimate(table(*rows, lucky), 0.0, 1).votes[found.group("rare")][0]
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
        return believe(task.cases[name], asked, task.estimates).models[2]

    assert dear(two, "q1") > 0.9
    assert dear(two, "q0") < 0.2
    assert dear(one, "q0") == pytest.approx(0.5, abs=0.02), "independent models tell nothing"


def test_the_belief_is_calibrated_on_questions_not_seen() -> None:
    made = generate(Generated(questions=6000, models=4, groups=3, seed=2))
    task = Recording(RecordedTask(split=Shares(0.5, 0.0, 0.5)), made)
    for model in range(4):
        others = [m for m in range(4) if m != model]
        cases = [task.cases[problem.id] for problem in task.problems("test")]
        pairs = [
            (believe(case, others, task.estimates).models[model], case.said[model] == case.right)
            for case in cases
        ]
        pairs.sort()
        third = len(pairs) // 3
        for part in (pairs[:third], pairs[-third:]):
            said, was = (sum(column) / third for column in zip(*part, strict=True))
            assert said == pytest.approx(was, abs=0.07)


def reference(case: Case, asked: list[int], found: Estimates) -> tuple[list[float], list[float]]:
    """The belief by enumerating classes and true answers, one model after the other."""
    wrong_options = case.options - 1
    alpha = (1 - found.coincide) / max(found.coincide - 1 / wrong_options, 0.02)
    alpha = min(max(alpha, 0.5), 50.0)
    classes, g = len(found.prior[0]), case.group
    seen = {case.said[m] for m in asked if case.said[m] >= 0}
    unseen = list(range(100, 100 + case.options - len(seen)))  # names for options nobody gave
    joint = {}
    for z, truth in product(range(classes), [*sorted(seen), *unseen]):
        p = exp(found.prior[g][z])
        drawn: list[int] = []
        for m in asked:
            if case.said[m] == -1:
                p *= exp(found.log_none[g][m][z])
            elif case.said[m] == truth:
                p *= found.right[g][m][z]
            else:
                weight = alpha / wrong_options + drawn.count(case.said[m])
                p *= exp(found.log_wrong[g][m][z]) * weight / (alpha + len(drawn))
                drawn.append(case.said[m])
        joint[z, truth] = p
    total = sum(joint.values())
    answers = [
        sum(joint.get((z, code), 0.0) for z in range(classes)) / total
        for code in range(len(case.labels))
    ]
    shares = [sum(p for (c, _), p in joint.items() if c == z) / total for z in range(classes)]
    models = [sum(s * r for s, r in zip(shares, row, strict=True)) for row in found.right[g]]
    for m in asked:
        models[m] = answers[case.said[m]] if case.said[m] >= 0 else 0.0
    return answers, models


@given(tables())
def test_the_belief_is_exact_under_the_estimates(of: Table) -> None:
    task = opened(of, RecordedTask(split=ALL_TRAIN, classes=3))
    case = task.cases["q0"]
    asked = [m for m in range(3) if case.said[m] >= -1]
    for count in range(len(asked) + 1):
        found = believe(case, asked[:count], task.estimates)
        answers, models = reference(case, asked[:count], task.estimates)
        assert found.answers == pytest.approx(answers, abs=1e-9)
        assert found.models == pytest.approx(models, abs=1e-9)


def test_the_usual_number_of_classes_is_computed_like_any_other() -> None:
    task = Recording(RecordedTask(split=ALL_TRAIN, classes=4), MADE)
    for name in list(task.cases)[:20]:
        found = believe(task.cases[name], [0, 2], task.estimates)
        answers, models = reference(task.cases[name], [0, 2], task.estimates)
        assert found.answers == pytest.approx(answers, abs=1e-9)
        assert found.models == pytest.approx(models, abs=1e-9)
