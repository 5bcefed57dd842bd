"""The small agents, each by what it does."""

from __future__ import annotations

import asyncio
import io
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

import pytest
from orchestrion_basic_agents.agents import (
    Echo,
    Function,
    Human,
    Line,
    Scripted,
    Terminator,
    last_text,
)
from orchestrion_basic_agents.command import Command

from orchestrion import (
    Agent,
    Key,
    Observation,
    OpenContext,
    Output,
    Problem,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    View,
)
from orchestrion._engine.calls import ActivationCalls
from orchestrion._guards import describe
from orchestrion.testing import Fixed, engine_for


def act(agent: Any, text: str = "the problem", *before: str) -> Output:
    trajectory = Trajectory([Turn(i, "me", output=Output(said)) for i, said in enumerate(before)])
    view = View("me", None, Problem("p", text), trajectory)

    async def main() -> Output:
        engine = engine_for({"me": agent}, Fixed())
        seat = engine.seats["me"]
        return await seat.act(view, Key(1), ActivationCalls(engine, Key(1)))

    return asyncio.run(main())


def opened(agent: Any) -> Agent:
    async def main() -> Agent:
        async with agent.open(OpenContext("agents.f", Key(1))) as runtime:
            return runtime  # type: ignore[no-any-return]

    return asyncio.run(main())


def test_echo_repeats_the_problem_or_the_last_word() -> None:
    assert act(Echo(prefix="> ")).content == "> the problem"
    assert act(Echo(), "the problem", "one", "two").content == "two"
    assert act(Echo(cost=2.0)).usage.cost == 2.0


def test_echo_does_what_a_script_in_its_input_says() -> None:
    script = {"echo": {"content": "hi", "data": [1], "cost": 0.5, "final": True}}
    output = act(Echo(), json.dumps(script))
    assert (output.content, output.data, output.usage.cost, output.final) == ("hi", [1], 0.5, True)
    with pytest.raises(RuntimeError, match="as told"):
        act(Echo(), '{"echo": {"fail": "as told"}}')


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"contents": "hi"}, "unknown 'contents' in an echo script; known: content, cost, "),
        ("hi", '"echo" needs an object with any of content, cost, '),
    ],
)
def test_echo_names_what_it_cannot_follow(script: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act(Echo(), json.dumps({"echo": script}))


@pytest.mark.parametrize("text", ['{"a": 1}', "{not json", "[1]", '{"echo": {}, "b": 1}'])
def test_other_json_is_just_text(text: str) -> None:
    assert act(Echo(), text).content == text


def test_the_terminator_ends_the_episode() -> None:
    assert act(Terminator("bye")) == Output("bye", final=True)


@pytest.mark.parametrize(
    ("then", "said"), [("last", ["1", "2", "2", "2"]), ("repeat", ["1", "2", "1", "2"])]
)
def test_scripted_says_its_lines_in_order(then: Any, said: list[str]) -> None:
    agent = Scripted([Line("1"), Line("2")], then)
    assert [act(agent, "", *["x"] * n).content for n in range(4)] == said


def test_scripted_fails_when_told_to_at_the_end_of_its_lines() -> None:
    assert act(Scripted([Line("1", final=True)], "fail")) == Output("1", final=True)
    with pytest.raises(RuntimeError, match="has 1 lines"):
        act(Scripted([Line("1")], "fail"), "", "said")
    with pytest.raises(RuntimeError, match="the script is empty"):
        act(Scripted([]))


@pytest.mark.parametrize("shown", ["a board", ""])
def test_before_anybody_spoke_the_observation_is_the_latest_text(shown: str) -> None:
    view = View("me", None, Problem("p", "a problem"), Trajectory(), Observation(shown))
    assert last_text(view) == (shown or "a problem")


def shout(text: str) -> str:
    return text.upper()


async def measure(text: str) -> dict[str, int]:
    return {"length": len(text)}


def look(view: View) -> Output:
    return Output(view.problem.id, final=True)


@pytest.mark.parametrize(
    ("name", "give", "output"),
    [
        ("shout", "text", Output("THE PROBLEM")),
        ("measure", "text", Output(data={"length": 11})),
        ("look", "view", Output("p", final=True)),
    ],
)
def test_function_makes_a_result_a_turn(name: str, give: Any, output: Output) -> None:
    sys.modules["agents_under_test"] = sys.modules[__name__]
    agent = opened(Function(f"agents_under_test:{name}", give))
    assert act(agent) == output


def seven(text: str) -> float:
    return 7.5


def paid(text: str) -> Output:
    return Output("dear", usage=Usage(cost=9.0))


def test_a_function_has_its_price_unless_it_states_another_and_a_number_is_said() -> None:
    sys.modules["agents_under_test"] = sys.modules[__name__]

    def turn(name: str, give: Any = "text") -> Output:
        return act(opened(Function(f"agents_under_test:{name}", give, cost=2.0)))

    assert turn("shout").usage == turn("look", "view").usage == Usage(cost=2.0)
    assert turn("paid").usage == Usage(cost=9.0)
    assert turn("seven") == Output("7.5", 7.5, Usage(cost=2.0))


def forgets(text: str) -> None:
    text.upper()


def test_a_function_that_forgets_to_return_fails_the_turn() -> None:
    sys.modules["agents_under_test"] = sys.modules[__name__]
    with pytest.raises(TypeError, match=r"agents_under_test:forgets returned None; is a `return`"):
        act(opened(Function("agents_under_test:forgets", cost=2.0)))


def divide(text: str) -> str:
    return str(1 // (len(text) - len(text)))


def read(text: str) -> str:
    return str(json.loads(text))


def leave(text: str) -> None:
    sys.exit(3)


@pytest.mark.parametrize(
    ("name", "function"), [("divide", divide), ("read", read), ("leave", leave)]
)
def test_a_failed_function_says_in_which_line(name: str, function: Any) -> None:
    sys.modules["agents_under_test"] = sys.modules[__name__]
    with pytest.raises((ValueError, ZeroDivisionError, SystemExit)) as caught:
        act(opened(Function(f"agents_under_test:{name}")))
    line = function.__code__.co_firstlineno + 1
    assert describe(caught.value).endswith(f" (test_agents.py:{line})")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module_here:f", "No module named .* must be installed, or stand in the folder"),
        ("textwrap.py:dedent", "name the module without .py: textwrap:dedent"),
        ("textwrap:nothing", "no attribute 'nothing'; the module is .*textwrap.py"),
        ("textwrap:dedentt", "did you mean 'dedent'"),
        ("math:pi", "a float, not a function"),
    ],
)
def test_function_says_what_it_cannot_load(path: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        opened(Function(path))


def two(a: str, b: str) -> str:
    return a + b


def none() -> str:
    return ""


def test_a_function_that_cannot_be_called_with_the_text_is_refused_with_its_line() -> None:
    sys.modules["agents_under_test"] = sys.modules[__name__]
    line = two.__code__.co_firstlineno
    message = rf"with 1 argument: missing .* 'b' \(.*test_agents.py:{line}\)"
    with pytest.raises(UsageError, match=message):
        opened(Function("agents_under_test:two"))
    with pytest.raises(UsageError, match="too many positional arguments"):
        opened(Function("agents_under_test:none"))
    assert act(opened(Function("builtins:str"))).content == "the problem"


def test_command_pipes_the_text_through_a_program() -> None:
    assert act(Command(["tr", "a-z", "A-Z"])).content == "THE PROBLEM"


def test_command_hands_on_no_variable_it_was_not_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary")
    code = "import os; print(os.environ.get('SECRET_TOKEN'))"
    assert act(Command([sys.executable, "-c", code])).content == "None\n"
    known = Command([sys.executable, "-c", code], environment=["SECRET_TOKEN"])
    assert act(known).content == "canary\n"


@pytest.mark.parametrize(
    ("argv", "settings", "message"),
    [
        (["sh", "-c", "echo broken >&2; exit 3"], {}, "exit code 3: broken"),
        (["sleep", "60"], {"seconds": 0.05}, r"no end within 0\.05 s"),
        (["yes"], {"max_bytes": 1000}, "more than 1000 bytes"),
        (["no-such-program-here"], {}, "no-such-program-here"),
    ],
)
def test_command_fails_the_turn_and_says_why(argv: list[str], settings: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        act(Command(argv, **settings))


def test_command_leaves_no_process_behind(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(RuntimeError, match="no end within"):
        act(Command(["sh", "-c", f"sleep 600 > {pipe} & wait"], seconds=0.5))
    closed, _, _ = select.select([end], [], [], 60)
    assert closed, "the pipe closes when the last process that writes to it is gone"
    os.close(end)


def test_human_is_asked_and_may_end_the_episode(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("an answer\n/stop\n"))
    assert act(Human()).content == "an answer"
    assert act(Human()).final
    assert "the problem" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="no more input"):
        act(Human())
