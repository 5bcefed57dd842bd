"""Tools of real MCP server processes, over standard input and output and over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from orchestrion_chat.chat import Chat
from orchestrion_chat.mcp import MCP
from orchestrion_chat.mcp_session import McpSession
from orchestrion_chat.sees import BYTES_PER_TOKEN

from orchestrion import CallError, Episode, Key, OpenContext, Turn, UsageError, hidden
from orchestrion._engine.calls import CallPath, RetrySettings
from orchestrion._engine.replaying import ReplayPath
from orchestrion.testing import Fixed, ListTask, engine_for
from tests.contrib_agents.chat.support import PROBLEM, Lines, Notebook, use
from tests.service import ModelService, Seen, reply

SERVER = str(Path(__file__).with_name("mcp_server.py"))
COMMAND = [sys.executable, SERVER, "stdio"]


def episode(
    settings: MCP,
    *models: Lines,
    calls: CallPath | None = None,
    live: bool = True,
    steps: int = 1,
) -> Episode:
    """Agents with this server, one turn each; it is started before and stopped after."""

    async def main() -> Episode:
        context = OpenContext("tools.files", Key(1), live=live)
        async with settings.open(context) as tool:
            agents = {
                f"solver{n}": Chat(model=model, tools=[tool]).ready()
                for n, model in enumerate(models)
            }
            engine = engine_for(agents, Fixed(list(agents) * steps), ListTask(), calls=calls)
            return await engine.run("e", PROBLEM, Key(1))

    return asyncio.run(main())


def turn(settings: MCP, model: Lines, **more: Any) -> Turn:
    return episode(settings, model, **more).turns[0]


def result(model: Lines, number: int = 1) -> str:
    text: str = model.requests[number]["messages"][-1]["content"]
    return text


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a server that runs for all tests here: starting one takes seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, SERVER, "http", str(number)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", number)) == 0:
                    break
            assert process.poll() is None
            time.sleep(0.05)
        yield f"http://127.0.0.1:{number}/mcp"
    finally:
        process.kill()
        process.wait()


class Sessions(ModelService):
    """A server over HTTP that wants a session, as all did before the protocol of 2026."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.known: set[str] = set()
        self.begun = 0

    async def _answer(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.method != "POST":
            await reply(405)(seen, writer)
            return
        status, body, begun = self._result(seen.data, seen.headers.get("mcp-session-id"))
        session = {} if begun is None else {"mcp_session_id": begun}
        answer = b"" if body is None else body
        await reply(status, answer, content_type="application/json", **session)(seen, writer)

    def _result(self, call: dict[str, Any], session: str | None) -> tuple[int, Any, str | None]:
        """Status, body and the session that begins, if one does."""
        head = {"jsonrpc": "2.0", "id": call.get("id")}
        method = call["method"]
        if method == "initialize":
            self.begun += 1
            self.known.add(str(self.begun))
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "sessions", "version": "1"},
            }
            return 200, head | {"result": result}, str(self.begun)
        if session is None:
            return 200, head | {"error": {"code": -32601, "message": "no such method"}}, None
        if session not in self.known:
            return 404, head | {"error": {"code": -32001, "message": "Session not found"}}, None
        if "id" not in call:
            return 202, None, None
        if method == "tools/list":
            tools = [{"name": "note", "inputSchema": {"type": "object"}}]
            return 200, head | {"result": {"tools": tools}}, None
        content = [{"type": "text", "text": f"in session {session}"}]
        return 200, head | {"result": {"content": content}}, None


# ---------------------------------------------------------------- what works


def test_a_model_calls_a_tool_of_a_server_process_which_ends_with_the_run() -> None:
    model = Lines([use("add", '{"a": 2, "b": 2}'), use("pid"), "It is 4."])
    done = turn(MCP(command=COMMAND, allow=["add", "pid"]), model)
    assert done.output.content == "It is 4."
    assert result(model, 1) == '<result of="add" outcome="ok">\n4\n</result>'
    assert done.output.metadata["tools"] == ["add", "pid"]
    assert done.usage.calls == 3 + 2
    [offered, _] = model.requests[0]["tools"]
    assert offered["name"] == "add"
    assert offered["description"] == "Add two whole numbers."
    assert offered["schema"]["required"] == ["a", "b"]
    assert not alive(int(result(model, 2).splitlines()[1]))


def test_only_what_is_allowed_is_offered_and_can_be_called(url: str) -> None:
    model = Lines([use("crash"), "Well."])
    done = turn(MCP(url=url, allow=["add"]), model)
    assert done.status == "completed"
    assert [tool["name"] for tool in model.requests[0]["tools"]] == ["add"]
    assert "there is no such tool (there are: add)" in result(model)


def test_errors_of_tools_and_wrong_arguments_are_told_to_the_model(url: str) -> None:
    model = Lines([use("fail", '{"why": "no luck"}'), use("add", '{"a": "x"}'), "Well."])
    done = turn(MCP(url=url, allow=["add", "fail"]), model)
    assert done.status == "completed"
    assert 'outcome="error"' in result(model, 1)
    assert "no luck" in result(model, 1)
    assert "$: 'b' is a required property" in result(model, 2)


def test_results_are_data_and_capped(url: str) -> None:
    model = Lines([use("attack", '{"n": 1000}'), "Well."])
    turn(MCP(url=url, allow=["attack"], max_result=200), model)
    text = result(model)
    assert text.count("</result>") == 1
    assert text.endswith("[cut: the first 200 of 36000 bytes]\n</result>")


def test_a_call_that_takes_too_long_is_told_and_the_server_lives_on(url: str) -> None:
    model = Lines([use("sleep", '{"seconds": 60}'), use("add", '{"a": 1, "b": 2}'), "Well."])
    done = turn(MCP(url=url, allow=["sleep", "add"], timeout=3), model)
    assert done.status == "completed"
    assert "no result within 3 s" in result(model)
    assert "\n3\n" in result(model, 2)


def test_the_server_gets_no_variable_that_is_not_handed_on(monkeypatch: Any) -> None:
    monkeypatch.setenv("CANARY_KEY", "x")
    monkeypatch.setenv("HANDED_ON", "y")
    model = Lines([use("list_env"), "Well."])
    settings = MCP(command=COMMAND, allow=["list.env"], environment=["HANDED_ON", "UNSET"])
    turn(settings, model)
    names = result(model).split()
    assert "HANDED_ON" in names
    assert "CANARY_KEY" not in names
    assert not {name for name in names if name.endswith("_API_KEY")}


def test_secrets_that_are_handed_on_come_back_from_nowhere(monkeypatch: Any) -> None:
    """Neither in results, also where they are cut, nor in the last words of a server."""
    canary = "mcp-canary-7f3a9c52d1e8"
    monkeypatch.setenv("SOME_API_KEY", canary)
    settings = MCP(command=COMMAND, allow=["tell"], environment=["SOME_API_KEY"], max_result=1000)
    asked = '{"name": "SOME_API_KEY"%s}'
    model = Lines(
        [
            use("tell", asked % ""),
            use("tell", asked % ', "pad": 990'),
            use("tell", asked % ', "die": true'),
            "Well.",
        ]
    )
    turn(settings, model)
    assert result(model, 1) == '<result of="tell" outcome="ok">\n[SOME_API_KEY]\n</result>'
    assert "mcp-can" not in result(model, 2)
    assert "it said:" in result(model, 3)
    assert "52d1e8" not in result(model, 3)


def test_a_token_for_a_server_is_a_secret_and_may_stand_beside_the_config(url: str) -> None:
    token = "bearer-canary-41d7e0b2"
    settings = MCP(url=url, allow=["add"], token="MCP_TOKEN")

    async def main() -> None:
        context = OpenContext("tools.t", Key(1), environment={"MCP_TOKEN": token})
        async with settings.open(context):
            pass

    asyncio.run(main())
    assert hidden(f"it is {token}") == "it is [MCP_TOKEN]"


def test_a_server_on_this_machine_is_asked_past_every_proxy(url: str, monkeypatch: Any) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    model = Lines([use("add", '{"a": 2, "b": 2}'), "It is 4."])
    assert turn(MCP(url=url, allow=["add"]), model).output.content == "It is 4."


def test_a_prefix_tells_servers_apart(url: str) -> None:
    model = Lines([use("here_add", '{"a": 1, "b": 1}'), "Well."])
    turn(MCP(url=url, allow=["add"], prefix="here_"), model)
    assert "\n2\n" in result(model)


# ---------------------------------------------------------------- what writes


def test_a_tool_that_may_write_needs_consent(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not declare 'write' as read-only.*allow_writes"):
        turn(MCP(url=url, allow=["write"]), Lines())
    file = tmp_path / "out"
    calls = [
        {"id": str(n), "name": "write", "arguments": f'{{"file": "{file}", "text": "{n}"}}'}
        for n in range(4)
    ]
    turn(MCP(url=url, allow_writes=["write"]), Lines([{"tool_calls": calls}, "Done."]))
    assert file.read_text() == "0123"


def test_a_replay_repeats_a_run_without_the_server(tmp_path: Path) -> None:
    notebook, file = Notebook(), tmp_path / "out"
    settings = MCP(command=COMMAND, allow=["add"], allow_writes=["write"])
    answers = [
        use("add", '{"a": 2, "b": 2}'),
        use("write", f'{{"file": "{file}", "text": "4"}}'),
        "It is 4.",
    ]
    first = episode(settings, Lines(answers), calls=CallPath(journal=notebook), steps=2)
    assert file.read_text() == "4"
    absent = MCP(command=["/no/such/program"], allow=["add"], allow_writes=["write"])
    calls = ReplayPath(notebook)
    again = episode(absent, Lines(answers), calls=calls, live=False, steps=2)
    assert again == first
    assert file.read_text() == "4", "nothing was done again"


# ---------------------------------------------------------------- what fails


def with_session(settings: MCP, use: Callable[[McpSession], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with McpSession.opened(settings, "tools.files", os.environ) as session:
            return await use(session)

    return asyncio.run(main())


def test_a_killed_server_is_restarted_once_for_all_callers() -> None:
    async def use(session: McpSession) -> tuple[int, set[int]]:
        first = int((await session.call("pid", {})).text)
        os.kill(first, signal.SIGKILL)
        results = await asyncio.gather(*(session.call("pid", {}) for _ in range(20)))
        return first, {int(result.text) for result in results}

    first, later = with_session(MCP(command=COMMAND, allow=["pid"]), use)
    [second] = later
    assert second != first
    assert not alive(first)
    assert not alive(second)


def test_a_tool_that_ends_its_server_is_an_error_and_the_server_is_restarted() -> None:
    model = Lines([use("crash"), "It is gone.", use("add", '{"a": 1, "b": 1}'), "It is 2."])
    first, second = episode(MCP(command=COMMAND, allow=["crash", "add"]), model, steps=2).turns
    assert (first.status, second.status) == ("completed", "completed")
    assert 'outcome="error"' in result(model)
    assert "ended in the middle of the call, twice; it said: I am going down" in result(model)
    assert "\n2\n" in result(model, 3)


def test_a_call_that_may_have_written_is_not_made_again(tmp_path: Path) -> None:
    file = tmp_path / "out"
    settings = MCP(command=COMMAND, allow_writes=["write_and_die"])
    call = partial(McpSession.call, name="write_and_die", arguments={"file": str(file)})
    done = with_session(settings, call)
    assert done.error
    assert "whether it was done is not known" in done.text
    assert file.read_text() == "1"


def test_a_server_that_does_not_come_back_fails_the_turn_in_the_end(tmp_path: Path) -> None:
    command = [sys.executable, SERVER, "once", str(tmp_path / "begun")]
    settings = MCP(command=command, allow=["crash"], restarts=1)

    async def use(session: McpSession) -> list[CallError]:
        errors = []
        for _ in range(2):
            with pytest.raises(CallError) as caught:
                await session.call("crash", {})
            errors.append(caught.value)
        return errors

    first, second = with_session(settings, use)
    assert (first.fault, second.fault) == ("transient", "permanent")
    assert "I do not start twice" in str(first)
    assert "cannot be reached any more" in str(second)
    assert "started 1 times again, and no call was answered" in str(second)


def test_a_server_over_http_that_forgot_the_session_is_asked_for_another() -> None:
    """It answers 404 then, and has done nothing: calls that write are made again as well."""
    with Sessions() as server:

        async def use(session: McpSession) -> list[str]:
            texts = [(await session.call("note", {})).text]
            server.known.clear()
            return [*texts, (await session.call("note", {})).text]

        settings = MCP(url=server.url, allow_writes=["note"])
        assert with_session(settings, use) == ["in session 1", "in session 2"]


def test_images_are_shown_where_the_model_takes_them(url: str) -> None:
    calls = [
        {"id": str(size), "name": "look", "arguments": f'{{"size": {size}}}'} for size in (8, 4000)
    ]
    model = Lines([{"tool_calls": calls}, "Well."])
    turn(MCP(url=url, allow=["look"], max_image=1000), model)
    small, large = (one["content"] for one in model.requests[1]["messages"][-2:])
    image = {"type": "image", "media_type": "image/png", "data": "iVBOR4lQTkc="}
    assert small[1] == image
    assert "[image, not shown]" in large
    plain = Lines([use("look"), "Well."])
    turn(MCP(url=url, allow=["look"]), plain)
    assert "[image, not shown]" in result(plain)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"command": ["/no/such/program"]}, "does not start: FileNotFoundError"),
        ({"command": [sys.executable, "-c", "raise SystemExit('no config')"]}, "no config"),
        ({"command": [sys.executable, "-c", "print('hello')"]}, "does not start"),
        (
            {"command": [sys.executable, "-c", "import time; time.sleep(60)"], "start_timeout": 1},
            "no answer within 1 s",
        ),
        ({"url": "http://127.0.0.1:1/mcp"}, "does not start"),
        ({"url": "http://127.0.0.1:1/mcp", "token": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE is not"),
    ],
)
def test_a_server_that_does_not_start_is_an_error_before_the_run(settings, wrong: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="tools.files") as caught:  # noqa: RUF043
        turn(MCP(**{"allow": ["add"], **settings}), Lines())
    assert wrong in str(caught.value)


def test_a_token_that_no_header_could_carry_is_an_error_before_the_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for token in ("two\nlines", "k\u00e9y\u2026"):
        monkeypatch.setenv("ODD_TOKEN", token)
        with pytest.raises(UsageError, match=r"tools\.files\.token: ODD_TOKEN is not a key"):
            turn(MCP(url=url, allow=["add"], token="ODD_TOKEN"), Lines())


def test_a_server_that_offers_something_else_is_an_error_before_the_run(url: str) -> None:
    with pytest.raises(UsageError, match="has no tool 'sub'; it has add, attack"):
        turn(MCP(url=url, allow=["sub"]), Lines())
    with pytest.raises(UsageError, match="raise max_definition"):
        turn(MCP(url=url, allow=["add"], max_definition=50), Lines())


@pytest.mark.parametrize(
    "settings",
    [
        {"allow": ["a"]},
        {"command": ["x"], "url": "http://localhost/mcp", "allow": ["a"]},
        {"command": ["x"]},
        {"command": ["x"], "allow": ["a"], "allow_writes": ["a"]},
        {"command": ["x"], "allow": ["a"], "token": "TOKEN"},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError):
        MCP(**settings)


def test_a_ceiling_needs_no_server() -> None:
    from orchestrion import Usage

    settings = MCP(command=["/no/such/program"], allow=["add"], max_result=900)

    async def ceiling() -> Usage | None:
        async with settings.open(OpenContext("tools.files", Key(1), live=False)) as tool:
            model = Lines(most=Usage(1, 0, 100))
            return Chat(model=model, tools=[tool], tool_rounds=2).ready().ceiling(10)

    most = asyncio.run(ceiling())
    assert most is not None
    assert most.calls == 3 + 2 * 8, "three of the model, eight of tools in each round"
    assert most.input_tokens > (900 * 8) // BYTES_PER_TOKEN


def test_a_server_over_http_that_stays_away_fails_the_turn(url: str) -> None:
    """The last test here: it ends the server that they share."""
    model = Lines([use("add", '{"a": 2, "b": 2}'), use("crash"), "never said"])
    calls = CallPath(retry=RetrySettings(base=0.0, cap=0.0, attempts=2))
    done = turn(MCP(url=url, allow=["add", "crash"]), model, calls=calls)
    assert "\n4\n" in result(model, 1)
    assert done.status == "failed"
    assert "does not start" in done.error
