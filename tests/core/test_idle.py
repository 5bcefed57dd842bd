"""What was given and cannot act is refused by name; a default is nothing that was given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import Factory, frozen

from orchestrion import refuse_idle


@frozen
class Some:
    """Settings of a kind."""

    form: str = "plain"
    width: int = 3
    names: Sequence[str] = Factory(list)


def test_defaults_and_settings_that_act_are_let_be() -> None:
    refuse_idle(Some(), {"width", "names"}, "with `form: plain`")
    refuse_idle(Some(width=4), {"names"}, "with `form: plain`")


@pytest.mark.parametrize("given", [Some(width=4), Some(names=["a"])])
def test_what_was_given_and_cannot_act_is_named_with_the_reason(given: Some) -> None:
    with pytest.raises(ValueError, match=r"(width|names): does nothing with `form: plain`"):
        refuse_idle(given, {"width", "names"}, "with `form: plain`")
