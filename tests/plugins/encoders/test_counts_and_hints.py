"""What `counts` and `hints` show, and what they refuse."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from attrs import evolve
from orchestrion_encoders.counts import Counts
from orchestrion_encoders.hints import Hints
from orchestrion_encoders.interfaces import join

from orchestrion import Activation, RunError
from tests.plugins.values.support import situation

CHOICES = (Activation("a"), Activation("b", "x"), None)


def test_counts_shows_features_progress_and_what_was_done() -> None:
    shown = situation("a", "a", features=[0.5, -2], progress=0.25)
    encoded = Counts().encode([shown], CHOICES)
    row = [0.5, -2, 0.25, log(3), 0, 0, log(3), 0, 1, 0, 0, 0]
    assert encoded.context.tolist() == [pytest.approx(row)]
    assert encoded.choices.shape == (1, 3, 0)


def test_hints_are_numbers_of_choices_and_whether_there_are_any() -> None:
    shown = situation(hints={"b:x": (0.5, 0.25), "stop": (1.0, 0.0)})
    encoded = Hints().encode([shown], CHOICES)
    assert encoded.choices[0].tolist() == [[0, 0, 0], [0.5, 0.25, 1], [1, 0, 1]]
    assert Hints().encode([situation()], CHOICES).choices.shape == (1, 3, 0)


def test_a_task_that_shows_now_more_and_now_less_is_refused() -> None:
    with pytest.raises(RunError, match="1 and 2 features"):
        Counts().encode([situation(features=[1]), situation(features=[1, 2])], CHOICES)
    with pytest.raises(RunError, match="1 and 2 hints"):
        Hints().encode([situation(hints={"a": (1.0,), "stop": (1.0, 0.5)})], CHOICES)
    with pytest.raises(RunError, match="not finite"):
        Counts().encode([situation(features=[np.inf])], CHOICES)


def test_join_puts_numbers_side_by_side() -> None:
    shown = [situation(features=[1], hints={"a": (0.5,)})] * 2
    joined = join([encoder.encode(shown, CHOICES) for encoder in (Counts(), Hints())])
    given = [evolve(joined, prior=np.full((2, 3), value)) for value in (1.0, 2.0, 4.0)]
    added = join(given).prior
    assert added is not None
    assert (added == 7.0).all()
    assert joined.context.shape == (2, 11)
    assert joined.choices.shape == (2, 3, 2)
