"""One prompt, one completion, one strict reading."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_prompted import read_response
from orchestrion_prompted.prompted import Prompted, check_prompt, filled

from orchestrion import (
    Answer,
    CallError,
    Key,
    Member,
    Model,
    Observation,
    Output,
    Problem,
    Trajectory,
    Turn,
    View,
    replace,
)


class Saying(Model):
    """Says one text, and keeps what it was asked."""

    def __init__(self, text: str, stop: str = "end", **more: Any) -> None:
        self.data = {"text": text, "stop": stop, "tool_calls": [], "model": "m", **more}
        self.asked: list[Any] = []

    async def complete(self, request: Any, key: Key, calls: Any) -> Answer:
        self.asked.append(request)
        return Answer(self.data)


def turn(index: int, agent: str, content: str) -> Turn:
    return Turn(index, agent, output=Output(content))


VIEW = View(
    "solver",
    None,
    Problem("p", "What is 1 + 1?"),
    Trajectory([turn(0, "solver", "It is {3}."), turn(1, "critic", "No."), turn(2, "solver", "2")]),
    Observation("round 2"),
)


def act(agent: Prompted, view: View = VIEW) -> Output:
    return asyncio.run(agent.act(view, Key(0), None))  # type: ignore[arg-type]


def test_places_are_filled_with_what_the_activation_may_read() -> None:
    text = "{agent}|{problem}|{observation}|{turn}|{count}|{count:critic}|{last}|{last:critic}"
    assert filled(text, VIEW) == "solver|What is 1 + 1?|round 2|4|3|2|2|No."
    assert filled("{said:critic}", VIEW) == 'The output of "critic": No.'
    assert filled("{said}", VIEW).count("\n") == 2


def test_braces_in_what_agents_said_are_text() -> None:
    assert filled("{{x}} {said:solver}", VIEW).startswith('{x} The output of "solver": It is {3}.')


def test_a_place_that_does_not_exist_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"\{problm\} is no place.*problem"):
        Prompted(Saying("x"), prompt="{problm}")
    with pytest.raises(ValueError, match=r"\{problem:solver\} is no place"):
        check_prompt("{problem:solver}")
    with pytest.raises(ValueError, match=r"\{\} is no place"):
        check_prompt("{{problem}} {}")


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("  2 ", "text", "  2 "),
        ("so <a>1</a> or rather <a> 2 </a>", "tag", "2"),
        ("<a>1", "tag", None),
        (r"first \boxed{1}, then \boxed{\frac{1}{2}}.", "boxed", r"\frac{1}{2}"),
        (r"\boxed {x = \{1\}}", "boxed", r"x = \{1\}"),
        (r"\boxed{1", "boxed", None),
        ("PASS", "boxed", None),
    ],
)
def test_what_is_read_is_the_last_that_is_complete(text: str, form: Any, value: str | None) -> None:
    assert read_response(text, form, "a") == value


@given(st.text())
def test_reading_never_fails(text: str) -> None:
    for form in ("text", "tag", "boxed"):
        found = read_response(text, form, "a")
        assert found is None or isinstance(found, str)


def test_a_choice_is_read_whatever_its_case() -> None:
    agent = Prompted(Saying("<v>APPROVE</v>"), form="tag", tag="v", choices=["approve", "reject"])
    output = act(agent)
    assert output.content == "approve"
    assert output.data == {"value": "approve", "valid": True}
    assert output.metadata["valid"] is True


@pytest.mark.parametrize(("text", "stop"), [("maybe", "end"), ("no", "length"), ("no", "refused")])
def test_what_cannot_be_read_is_a_turn_that_counts_as_the_fallback(text: str, stop: str) -> None:
    generation = {"response": [1]}
    model = Saying(text, stop, generation=generation)
    agent = Prompted(
        model, choices=["yes", "no"], route={"yes": "answerer", "no": "searcher"}, fallback="yes"
    )
    output = act(agent)
    assert output.data == {"value": "yes", "valid": False, "next": "answerer"}
    assert output.metadata == {
        "valid": False,
        "truncated": stop == "length",
        "generations": [generation],
    }


def test_others_read_the_whole_response_if_it_is_feedback() -> None:
    text = "The sum is wrong. <verify>reject</verify>"
    output = act(Prompted(Saying(text), form="tag", tag="verify", whole=True))
    assert output.content == text
    assert output.data["value"] == "reject"


def test_a_system_message_and_settings_go_with_the_request() -> None:
    model = Saying("x")
    act(Prompted(model, "{problem}", system="You are {agent}.", max_tokens=5, temperature=0.5))
    request = model.asked[0]
    assert [one["role"] for one in request["messages"]] == ["system", "user"]
    assert request["messages"][0]["content"] == "You are solver."
    assert (request["max_tokens"], request["temperature"]) == (5, 0.5)


def test_a_way_to_nobody_in_the_team_is_an_error_with_the_nearest_name() -> None:
    team = tuple(Member(name, (), "") for name in ("verifier", "searcher", "answerer"))
    agent = Prompted(Saying("y"), choices=["y", "n"], route={"y": "answrer", "n": "searcher"})
    with pytest.raises(CallError, match=r"'answrer' is no agent of the team.*answerer"):
        act(agent, replace(VIEW, team=team))
    known = Prompted(Saying("y"), choices=["y", "n"], route={"y": "stop", "n": "searcher:deep"})
    assert act(known, replace(VIEW, team=team)).data["next"] == "stop"


def test_settings_that_do_not_fit_are_refused() -> None:
    for settings, reason in (
        ({"form": "tag"}, "`tag` is the name"),
        ({"tag": "a"}, "`tag` is the name"),
        ({"choices": ["y"], "route": {"n": "b"}}, "none of the choices"),
        ({"route": {"n": "b"}, "fallback": "y"}, "leads nowhere"),
        ({"choices": ["y"], "route": {"Y": "b"}}, "'Y' is none of the choices; did you mean 'y'"),
        ({"choices": ["y", "n"], "route": {"y": "b"}}, "'n' is a choice and leads nowhere"),
        ({"choices": ["y", "Y"]}, "none twice"),
    ):
        with pytest.raises(ValueError, match=reason):
            Prompted(Saying("x"), **settings)
