"""Python functions as tools: their schema, and how calls and their errors are dealt with."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Literal

import pytest
from attrs import frozen
from orchestrion_chat.calculator import Calculator, calculate
from orchestrion_chat.chat import Chat
from orchestrion_chat.functions import Functions, writes
from orchestrion_chat.interfaces import Bounds, Function, Result
from orchestrion_chat.sees import IMAGE_TOKENS, MOST_IMAGES
from orchestrion_chat.toolbox import MOST_CALLS

from orchestrion import CallError, Calls, Meta
from orchestrion._engine.calls import CallPath
from orchestrion._engine.replaying import ReplayPath
from tests.contrib_agents.chat.support import Lines, Notebook, turn_of, use


def weather(
    city: str, days: Annotated[int, Meta(ge=1, le=7)] = 1, unit: Literal["C", "F"] = "C"
) -> dict[str, Any]:
    """The forecast for a city.

    It knows the weather everywhere.

    Args:
        city: its name, in English,
            without the country.
        days: how many.

    Returns:
        what nobody sees
    """
    if city == "Atlantis":
        raise LookupError("it sank")
    return {"city": city, "days": days, "unit": unit}


async def slow() -> str:
    """Takes its time."""
    await asyncio.sleep(60)
    return "never"


def long() -> str:
    """Says much."""
    return "ä" * 1000


LOG: list[str] = []


@writes
def send(text: str) -> str:
    """Send a message."""
    LOG.append(text)
    return "sent"


def chat(model: Lines, *given: Any, rounds: int = 5, **settings: Any) -> Any:
    return Chat(model=model, tools=[Functions(given=given, **settings)], tool_rounds=rounds).ready()


def results(model: Lines, number: int = 1) -> list[str]:
    """The results that request `number` shows."""
    return [
        message["content"]
        for message in model.requests[number]["messages"]
        if message["role"] == "tool"
    ]


# ---------------------------------------------------------------- what a model is offered


def test_a_function_is_described_by_its_annotations_and_docstring() -> None:
    model = Lines()
    turn_of(chat(model, weather))
    [tool] = model.requests[0]["tools"]
    assert tool["name"] == "weather"
    assert tool["description"] == "The forecast for a city.\n\nIt knows the weather everywhere."
    schema = tool["schema"]
    assert schema["type"] == "object"
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["city"] == {
        "type": "string",
        "description": "its name, in English, without the country.",
    }
    assert schema["properties"]["days"]["maximum"] == 7
    assert schema["properties"]["unit"]["enum"] == ["C", "F"]


def test_nested_records_are_described_in_place_and_arrive_as_what_they_are() -> None:
    @frozen
    class Point:
        x: float
        y: float = 0.0

    def norm(point: Point) -> float:
        """Length of a vector."""
        assert isinstance(point, Point)
        return float((point.x**2 + point.y**2) ** 0.5)

    norm.__annotations__["point"] = Point
    model = Lines([use("norm", '{"point": {"x": 3, "y": 4}}'), "5"])
    turn_of(chat(model, norm))
    schema = model.requests[0]["tools"][0]["schema"]
    assert schema["properties"]["point"] == {"$ref": "#/$defs/Point"}
    assert schema["$defs"]["Point"]["required"] == ["x"]
    assert "5.0" in results(model)[0]


def test_a_function_that_cannot_be_described_is_refused() -> None:
    def silent(x: int) -> int:
        return x

    def untyped(x):  # type: ignore[no-untyped-def]
        """Does something."""

    def open_ended(*x: int) -> None:
        """Does something."""

    for function, wrong in (
        (silent, "docstring"),
        (untyped, "no annotation"),
        (open_ended, "take"),
    ):
        with pytest.raises(TypeError, match=wrong):
            Functions(given=[function])


def test_two_functions_of_one_name_fail_the_turn() -> None:
    tools = [Functions(given=[weather]), Functions(given=[weather])]
    turn = turn_of(Chat(model=Lines(), tools=tools).ready())
    assert "two of its tools have a function 'weather'" in turn.error


# ---------------------------------------------------------------- calls


def test_a_call_is_made_labelled_as_data_and_counted() -> None:
    model = Lines([use("weather", '{"city": "Rome"}'), "Sunny."])
    turn = turn_of(chat(model, weather))
    assert turn.output.content == "Sunny."
    assert turn.output.metadata["tools"] == ["weather"]
    assert turn.usage.calls == 3, "two of the model, one of the tool"
    asked, result = model.requests[1]["messages"][-2:]
    assert asked["tool_calls"][0]["id"] == result["tool_call_id"] == "c1"
    assert result["content"] == (
        '<result of="weather" outcome="ok">\n{"city":"Rome","days":1,"unit":"C"}\n</result>'
    )


def test_an_error_of_a_tool_is_told_to_the_model() -> None:
    model = Lines([use("weather", '{"city": "Atlantis"}'), "It sank."])
    assert turn_of(chat(model, weather)).output.content == "It sank."
    assert 'outcome="error">\nLookupError: it sank' in results(model)[0]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("weather", '{"city": 4}', "Expected `str`, got `int` - at `$.city`"),
        ("weather", '{"city": "Rome", "days": 9}', "`int` <= 7"),
        ("weather", '{"city": "Rome", "country": "Italy"}', "unknown field `country`"),
        ("weather", '{"city": ', "not JSON"),
        ("weather", "[1]", "must be a JSON object"),
        ("remove_all", "{}", "there is no such tool (there are: weather)"),
    ],
)
def test_a_wrong_call_is_told_once_and_then_fails_the_turn(
    name: str, arguments: str, told: str
) -> None:
    model = Lines([use(name, arguments), "Well."])
    assert turn_of(chat(model, weather)).output.content == "Well."
    assert told in results(model)[0]
    turn = turn_of(chat(Lines([use(name, arguments)]), weather))
    assert turn.status == "failed"
    assert "called a tool wrongly again" in turn.error


def test_rounds_of_tools_have_an_end_that_the_model_is_told_of() -> None:
    model = Lines([use("weather", '{"city": "Rome"}')])
    turn = turn_of(chat(model, weather, rounds=2))
    assert "no answer after 2 rounds of tools" in turn.error
    assert len(model.requests) == 3
    assert "give your answer now" not in results(model, 1)[-1]
    assert "give your answer now" in results(model, 2)[-1]


@pytest.mark.parametrize(
    ("choice", "asked"),
    [
        ("auto", [None, None]),
        ("none", ["none", "none"]),
        ("required", ["required", None]),
        ("weather", ["weather", None]),
    ],
)
def test_a_tool_choice_holds_for_the_first_request_only(
    choice: str, asked: list[str | None]
) -> None:
    model = Lines([use("weather", '{"city": "Rome"}'), "Fair."])
    tools = [Functions(given=[weather])]
    turn = turn_of(Chat(model=model, tools=tools, tool_choice=choice).ready())
    assert turn.output.content == "Fair."
    assert [request.get("tool_choice") for request in model.requests] == asked


def test_a_tool_choice_without_such_a_tool_is_an_error() -> None:
    with pytest.raises(ValueError, match="tool_choice has no effect without tools"):
        Chat(model=Lines(), tool_choice="required")
    tools = [Functions(given=[weather])]
    turn = turn_of(Chat(model=Lines(), tools=tools, tool_choice="wether").ready())
    assert "tool_choice is 'wether'; there are auto, none, required, weather" in turn.error


def test_raw_messages_stay_in_the_conversation() -> None:
    raw = {"service": "s", "api": "/messages", "content": [{"type": "thinking", "signature": "x"}]}
    model = Lines([use("weather", '{"city": "Rome"}', raw=raw), {"text": "1", "raw": raw}, "Fair."])
    schema = {"type": "object", "properties": {}}
    turn_of(Chat(model=model, tools=[Functions(given=[weather])], output=schema).ready())
    roles = [one["role"] for one in model.requests[2]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert [one.get("raw") for one in model.requests[2]["messages"]][2::2] == [raw, raw]


def test_too_many_calls_at_once_fail_the_turn() -> None:
    [call] = use("weather", '{"city": "Rome"}')["tool_calls"]
    turn = turn_of(chat(Lines([{"tool_calls": [call] * (MOST_CALLS + 1)}]), weather))
    assert f"at most {MOST_CALLS}" in turn.error


def test_a_call_that_takes_too_long_and_a_result_that_is_too_long_are_told() -> None:
    model = Lines([use("slow"), "Never mind."])
    began = time.monotonic()
    turn_of(chat(model, slow, timeout=0.05))
    assert time.monotonic() - began < 30
    assert "no result within 0.05 s" in results(model)[0]
    model = Lines([use("long"), "Much."])
    turn_of(chat(model, long, max_result=100))
    assert "ä" * 50 + "\n[cut: the first 100 of 2000 bytes]" in results(model)[0]


def test_calls_that_only_read_are_made_at_once() -> None:
    inside = 0
    most = 0

    async def look(at: str) -> str:
        """Look at something."""
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        inside -= 1
        return at

    calls = [{"id": str(n), "name": "look", "arguments": f'{{"at": "{n}"}}'} for n in range(4)]
    model = Lines([{"tool_calls": calls}, "Seen."])
    turn_of(chat(model, look))
    assert most == 4
    assert [text.splitlines()[1] for text in results(model)] == ["0", "1", "2", "3"]


# ---------------------------------------------------------------- what writes


def test_what_writes_is_offered_only_by_name() -> None:
    model = Lines([use("send", '{"text": "hi"}'), "Well."])
    turn_of(chat(model, weather, send))
    assert [tool["name"] for tool in model.requests[0]["tools"]] == ["weather"]
    assert LOG == []
    calls = [{"id": str(n), "name": "send", "arguments": f'{{"text": "{n}"}}'} for n in range(3)]
    model = Lines([{"tool_calls": calls}, "Sent."])
    turn_of(chat(model, weather, send, allow_writes=["send"]))
    assert LOG == ["0", "1", "2"], "in the order in which the model asked"
    with pytest.raises(ValueError, match="no function 'weather' that writes"):
        Functions(given=[weather], allow_writes=["weather"])


def test_a_replay_answers_from_the_journal_and_calls_nothing() -> None:
    LOG.clear()
    notebook = Notebook()
    answers = [use("send", '{"text": "once"}'), "Done."]
    agent = chat(Lines(answers), send, allow_writes=["send"])
    first = turn_of(agent, calls=CallPath(journal=notebook))
    assert LOG == ["once"]
    agent = chat(Lines(answers), send, allow_writes=["send"])
    again = turn_of(agent, calls=ReplayPath(notebook))
    assert again == first
    assert LOG == ["once"]


def test_a_tool_that_cannot_be_reached_fails_the_turn() -> None:
    class Gone:
        async def functions(self, calls: Calls) -> list[Function]:
            return [Function("look", "Looks.", {"type": "object"})]

        async def call(self, function: Function, arguments: Any, calls: Calls) -> Any:
            raise CallError("the server is gone", "permanent")

        def bounds(self) -> Bounds:
            return Bounds(10, 10)

    turn = turn_of(Chat(model=Lines([use("look")]), tools=[Gone()]).ready())
    assert turn.status == "failed"
    assert "the server is gone" in turn.error


IMAGE = {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="}


def chart(of: str) -> Result:
    """Draw a chart."""
    return Result(f"a chart of {of}", parts=[IMAGE])


def test_a_function_shows_images_which_are_on_record_and_in_the_bound() -> None:
    book = Notebook()
    model = Lines([use("chart", '{"of": "tides"}'), "noon"])
    first = turn_of(chat(model, chart), calls=CallPath(journal=book))
    assert first.output.content == "noon"
    shown = model.requests[1]["messages"][-1]["content"]
    assert "a chart of tides" in shown[0]["text"]
    assert shown[1:] == [IMAGE]
    model.requests.clear()
    assert turn_of(chat(model, chart), calls=ReplayPath(book)).output == first.output
    plain, more = (Functions(given=[one]).bounds().result for one in (weather, chart))
    assert more - plain == MOST_IMAGES * IMAGE_TOKENS


# ---------------------------------------------------------------- the calculator


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2*3", "7"),
        ("2**10 // 3", "341"),
        ("-(4 % 3) / 2", "-0.5"),
        ("sqrt(16) + max(1, 2)", "6.0"),
        ("gcd(12, 18)", "6"),
        ("2**100", str(2**100)),
        (" round(pi, 2) ", "3.14"),
    ],
)
def test_the_calculator_works_out_arithmetic(text: str, value: str) -> None:
    assert calculate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "().__class__", "x", "'a' * 9", "[1]", "1 if 1 else 2",
        "9**9**9**9", "(2**4000) ** 3", "2**4000 * 2**4000", "True", "abs(x=1)", "1 +", "1/0",
        "9" * 2000, "lambda: 1", "10**5000", "(-3)**99999",
    ],
)  # fmt: skip
def test_the_calculator_does_nothing_else(text: str) -> None:
    began = time.process_time()
    with pytest.raises((ValueError, SyntaxError, ZeroDivisionError)):
        calculate(text)
    assert time.process_time() - began < 1


def test_bounds_cover_what_is_offered() -> None:
    bounds = Calculator(max_result=77).bounds()
    assert bounds.result == 77
    assert 200 < bounds.definitions < 2000


def test_a_call_that_was_cut_is_not_made() -> None:
    """What is left of its arguments may be valid, and mean something else."""
    LOG.clear()
    cut = use("send", '{"text": "delete"}', stop="length")
    done = turn_of(chat(Lines([cut]), send))
    assert done.status == "failed"
    assert "cut at max_tokens" in done.error
    assert LOG == []
