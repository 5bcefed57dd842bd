"""What agents of all frameworks share: messages, usage and prices, kinds of faults."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_foreign import Message, ModelRequests, Reserve, Tokens, messages
from orchestrion_foreign.faults import failed
from orchestrion_foreign.spending import reserved, used
from orchestrion_llm import Price

from orchestrion import Observation, Output, Problem, Trajectory, Turn, Usage, View

PROBLEM = Problem("p", "Where is 2 + 2?")


PARTS = st.lists(st.sampled_from(["<turn", "</turn>", "</TURN >", "<", '"', "x"])).map("".join)


@given(PARTS, PARTS.filter(bool))
def test_no_text_closes_the_tag_it_stands_in(text: str, name: str) -> None:
    shown = Message("user", text, name).labelled.lower()
    assert shown.count("<turn") == 1 == shown.count("</turn")


@given(st.lists(st.sampled_from(["it", "other"]), max_size=4), st.booleans())
def test_the_last_message_is_always_the_users(who: list[str], observed: bool) -> None:
    turns = Trajectory([Turn(i, name, output=Output("x")) for i, name in enumerate(who)])
    seen = Observation("now") if observed else None
    shown = messages(View("it", None, PROBLEM, turns, seen))
    assert shown[-1].role == "user"
    assert shown[0] == Message("user", PROBLEM.text)


def test_a_price_that_is_given_comes_first() -> None:
    asked = [ModelRequests(Tokens(1_000_000, 0), usd=5.0)]
    assert used(asked, Price(input=1.0, output=1.0), Usage())[0].usd == 1.0
    assert used(asked, None, Usage())[0].usd == 5.0
    assert math.isnan(used([*asked, ModelRequests(Tokens(1, 1))], None, Usage())[0].usd)
    assert math.isnan(reserved(Reserve(), None).usd)
    assert reserved(Reserve(1, 10, 10), Price(input=1e5, output=2e5)).usd == 3.0


class Refused(Exception):
    """An error as the vendors' SDKs raise it."""

    def __init__(self, status: int, **more: Any) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        vars(self).update(more)


def wrapped(error: Exception) -> Exception:
    """Return an error that another one caused."""
    outer = RuntimeError("the node failed")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (Refused(429), "rate_limit"),
        (Refused(429, code="insufficient_quota"), "quota"),
        (Refused(401), "quota"),
        (Refused(529), "overload"),
        (Refused(500), "transient"),
        (Refused(404), "permanent"),
        (Refused(400, code=7), "permanent"),
        (ConnectionResetError("gone"), "transient"),
        (ExceptionGroup("both", [Refused(503)]), "overload"),
    ],
    ids=repr,
)
def test_the_fault_of_a_models_service_decides_about_retries(error: Exception, fault: str) -> None:
    assert failed(wrapped(error), "langgraph:x", None).fault == fault


def test_a_service_says_in_its_own_ways_how_long_to_wait_and_that_an_account_is_empty() -> None:
    waits = SimpleNamespace(headers={"retry-after-ms": "1500"})
    error = failed(Refused(429, response=waits), "langgraph:x", None)
    assert (error.fault, error.retry_after) == ("rate_limit", 1.5)
    empty = Refused(429)
    empty.args = ("You exceeded your current quota \ud800",)
    assert failed(empty, "langgraph:x", None).fault == "quota"
