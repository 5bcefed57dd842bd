"""Code in what models say: where it stands, and how a review keeps it from being a version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_chat.chat import Chat
from orchestrion_chat.code import code_in, quoted
from orchestrion_code_review.versions import code_of

from orchestrion import Output, Turn
from tests.contrib_agents.chat.support import Lines, turn_of

PROGRAM = "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{PROGRAM}```",
        f"Here:\n\n```py\n{PROGRAM}\n```\nDone.",
        f"~~~ python\n{PROGRAM}~~~",
        f"````python title=x\n{PROGRAM}````",
        f"```\n{PROGRAM}```",
        f"```python\n{PROGRAM}",  # never closed
        f"```python\nold = 1\n```\nBetter:\n```Python3\n{PROGRAM}```",
        f"```python\n{PROGRAM}```\nIt prints:\n```\n4\n```\n```json\n[]\n```",
        f"   ```python\n{PROGRAM}   ```  ",
        f"```python\n{PROGRAM}```\n```python\n\n```",
        PROGRAM,
    ],
)
def test_the_code_is_found(text: str) -> None:
    found = code_in(text)
    assert found is not None
    assert found.strip() == PROGRAM.strip()


@pytest.mark.parametrize(
    "text", ["", "I cannot.", "4", "x = 1", "```json\n{}\n```", "```python\n```"]
)
def test_where_there_is_none_none_is_found(text: str) -> None:
    assert code_in(text) is None


def test_a_fence_inside_a_longer_one_is_part_of_the_code() -> None:
    text = "````python\ndoc = '''\n```\nx\n```\n'''\n````"
    assert code_in(text) == "doc = '''\n```\nx\n```\n'''\n"


def test_required_code_is_the_data_and_asked_for_once_more() -> None:
    model = Lines(["I would write a function.", f"```python\n{PROGRAM}```"])
    turn = turn_of(Chat(model=model, code="require").ready())
    assert turn.output.data == {"code": PROGRAM}
    assert "no code" in model.requests[1]["messages"][-1]["content"]
    failed = turn_of(Chat(model=Lines(["I would."]), code="require").ready())
    assert failed.status == "failed"


def test_code_that_a_reviewer_quotes_is_nobodys_version() -> None:
    review = f"It breaks here:\n```python\n{PROGRAM}```\nand not\n~~~\nthere\n~~~\nFix it."
    shown = turn_of(Chat(model=Lines([review]), preset="reviewer").ready())
    assert code_of(shown) is None
    assert "    def f(x):\n        return x" in shown.output.content
    assert shown.output.content.startswith("It breaks here:\n")
    assert shown.output.content.endswith("    there\nFix it.")
    left = turn_of(Chat(model=Lines([review]), preset="reviewer", code="leave").ready())
    assert code_of(left) is not None, "without that it would be one"


_LINES = st.lists(
    st.sampled_from(["```", "```python", "~~~", "````py", "x = 1", "", "    y", "``` ```", "`z`"])
).map("\n".join)


@given(_LINES)
def test_nothing_quoted_is_a_version(text: str) -> None:
    assert code_of(Turn(0, "a", output=Output(quoted(text)))) is None


@given(st.text().filter(lambda text: "```" not in text and "~~~" not in text))
def test_text_without_a_fence_is_quoted_as_it_is(text: str) -> None:
    assert quoted(text) == text
