"""The known values of simple strategies are what simulated speakers reach."""

from __future__ import annotations

from math import sqrt

import pytest
from orchestrion_offline import values
from orchestrion_offline.speakers.steps import Solver
from orchestrion_offline.steps import Sheet, draw_sheet, leading, line, written

from orchestrion import Key
from tests.contrib_agents.offline.support import asked

SHEET = draw_sheet("mixed", 5, 418, Key(5))
SOLVER = Solver()
SKILLS = [SOLVER.chance(step, "", "mixed") for step in SHEET.steps]
RUNS = 600


def near(share: float, value: float, runs: int = RUNS) -> bool:
    """Within four standard errors."""
    return abs(share - value) < 4 * sqrt(value * (1 - value) / runs) + 1e-9


def attempt(sheet: Sheet, key: Key) -> list[int]:
    """A worksheet filled in by the solver, alone."""
    lines_text = ""
    for n in range(len(sheet.steps)):
        lines_text += "\n" + SOLVER.say(asked(sheet.text + lines_text), key.child(n)).text
    return list(written(lines_text, len(sheet.steps)).lines)


def test_a_chain_succeeds_at_the_product_of_its_skills() -> None:
    right = [leading(SHEET, attempt(SHEET, Key(n))) for n in range(RUNS)]
    assert near(sum(number == 5 for number in right) / RUNS, values.chain(SKILLS))


def test_best_of_n_succeeds_if_any_does() -> None:
    runs = 300
    solved = [
        any(leading(SHEET, attempt(SHEET, Key(n).child("try", i))) == 5 for i in range(3))
        for n in range(runs)
    ]
    assert near(sum(solved) / runs, values.best_of(SKILLS, 3), runs)


@pytest.mark.parametrize(
    ("width", "samples", "distinct"), [(2, 2, False), (3, 1, False), (4, 2, True)]
)
def test_a_beam_keeps_the_best_beginnings(width: int, samples: int, distinct: bool) -> None:
    def search(key: Key) -> bool:
        kept = [""]
        for n in range(len(SHEET.steps)):
            longer = [
                f"{text}\n{SOLVER.say(asked(SHEET.text + text), key.child(n, i, k)).text}"
                for i, text in enumerate(kept)
                for k in range(samples)
            ]
            if distinct:
                longer = list(dict.fromkeys(longer))
            longer.sort(key=lambda text: -leading(SHEET, written(text, 5).lines))
            kept = longer[:width]
        return leading(SHEET, written(kept[0], 5).lines) == 5

    runs = 200
    share = sum(search(Key(n)) for n in range(runs)) / runs
    assert near(share, values.beam(SKILLS, width, samples, distinct), runs)


def test_the_optimum_repeats_a_line_until_it_is_right() -> None:
    def best(key: Key, calls: int) -> bool:
        right = 0
        for n in range(calls):
            lines_text = "\n".join(line(i, v) for i, v in enumerate(SHEET.values[:right], 1))
            text = SOLVER.say(asked(f"{SHEET.text}\n{lines_text}"), key.child(n)).text
            right = max(right, leading(SHEET, written(f"{lines_text}\n{text}", 5).lines))
        return right == 5

    share = sum(best(Key(n), 7) for n in range(RUNS)) / RUNS
    assert near(share, values.optimum(SKILLS, 7))


def test_no_strategy_of_equal_calls_is_above_the_optimum() -> None:
    assert values.optimum(SKILLS, 5) == pytest.approx(values.chain(SKILLS))
    for n in (2, 3, 4):
        calls = 5 * n
        assert values.best_of(SKILLS, n) < values.optimum(SKILLS, calls)
        assert values.beam(SKILLS, 1, n) < values.optimum(SKILLS, calls)
        assert values.beam(SKILLS, 1, n) > values.best_of(SKILLS, n)
