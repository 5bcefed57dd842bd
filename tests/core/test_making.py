"""Records made without their constructor are the same as those made with it."""

from __future__ import annotations

import attrs
import pytest

from orchestrion import Member, Output, Problem, Situation, Trajectory, Turn, View
from orchestrion._engine.making import make_situation, make_turn, make_view, maker

TURN = (3, "a", None, Output("said"), "completed", "", 2, (1,))


@pytest.mark.parametrize(
    ("make", "kind", "values"),
    [
        (make_turn, Turn, TURN),
        (
            make_view,
            View,
            ("a", None, Problem("p"), Trajectory(), None, (1,), (Turn(0, "b"),), (Member("a"),)),
        ),
        (make_situation, Situation, (Problem("p"), Trajectory(), None, (), 4, True)),
    ],
)
def test_what_is_made_equals_what_is_constructed(make, kind, values) -> None:  # type: ignore[no-untyped-def]
    made = make(*values)
    assert type(made) is kind
    assert made == kind(*values)
    assert repr(made) == repr(kind(*values))


def test_what_is_made_is_frozen() -> None:
    made = maker(Turn)(*TURN)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.index = 4  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        del made.index
    assert attrs.evolve(made, index=4).index == 4
