"""The whole way: the vendors' SDKs over HTTP to a simulated model, and a real MCP server."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner
from orchestrion_chat.chat import Chat
from orchestrion_chat.functions import Functions
from orchestrion_chat.sees import Sees
from orchestrion_llm.models import AnthropicModel, OpenAIModel
from orchestrion_llm.prices import Price
from orchestrion_offline.server import serving
from orchestrion_offline.speakers.plain import Echo, Line, Scripted

from orchestrion import Episode, Key, OpenContext, Problem, Turn
from orchestrion._engine.calls import CallPath
from orchestrion._engine.replaying import ReplayPath
from orchestrion.cli import main
from orchestrion.runs import open_run
from orchestrion.testing import Fixed, ListTask, engine_for
from tests.contrib_agents.chat.support import Notebook
from tests.plugins.llm.apis import Api
from tests.service import ModelService, reply


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def told(settings: Any, speaker: Any, problem: Problem, shown: Any = None, **agent: Any) -> Turn:
    """The turn of a chat agent whose model is simulated behind a real server."""

    async def main() -> Turn:
        async with serving({"m": speaker}) as stub:
            model = evolve(settings, base_url=f"{stub.url}/v1")
            async with model.open(OpenContext("models.m", Key(1))) as opened:
                solver = Chat(model=opened, **agent).ready()
                engine = engine_for({"solver": solver}, Fixed(["solver"]), ListTask())
                engine.viewer = shown
                return (await engine.run("e", problem, Key(1))).turns[0]

    return asyncio.run(main())


THINKING = {
    "anthropic": AnthropicModel(
        model="m", extra={"thinking": {"type": "enabled", "budget_tokens": 1024}}
    ),
    "responses": OpenAIModel(model="m", api="responses", extra={"reasoning": {"effort": "low"}}),
}


@pytest.mark.parametrize(("wire", "streamed"), [("anthropic", True), ("responses", False)])
def test_a_model_that_thinks_can_use_tools(wire: str, streamed: bool) -> None:
    """The server refuses, as the vendors do, a call that comes back without its thinking."""
    script = Scripted(
        (
            Line("I add.", "add", {"a": 20, "b": 20}),
            Line("", "add", {"a": 40, "b": 2}),
            Line("It is 42."),
        )
    )
    pieces: list[str] = []
    shown = (lambda who, text: pieces.append(text)) if streamed else None
    tools = [Functions(given=[add])]
    turn = told(THINKING[wire], script, Problem("p", "?"), shown, tools=tools)
    assert turn.error == ""
    assert turn.output.content == "It is 42."
    assert bool(pieces) == streamed
    assert "think it over" not in "".join(pieces)


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
def test_a_model_is_shown_the_images_among_a_problems_data(wire: str) -> None:
    kinds: dict[str, Any] = {
        "chat": OpenAIModel(model="m"),
        "responses": OpenAIModel(model="m", api="responses"),
        "anthropic": AnthropicModel(model="m"),
    }
    image = {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="}
    problem = Problem("p", "What is it?", {"pictures": [image, image], "hint": "an animal"})
    sees = Sees(attach=["pictures"], data=True)

    turn = told(kinds[wire], Echo(), problem, sees=sees)
    assert turn.error == ""
    text = turn.output.content
    assert text.endswith("[image]\n[image]")
    assert '{"hint":"an animal"}' in text
    assert "iVBOR" not in text


ROOT = Path(__file__).parents[3]
DEMO = [sys.executable, "-m", "orchestrion_chat.demo_server"]


def asked(config: Any, problem: Problem | None = None, key: int = 1, *overrides: str) -> Episode:
    """One episode of a config."""

    async def main() -> Episode:
        async with open_run(config, overrides) as trained:
            task = trained.engine.team.task
            one = problem or task.problems("test")[0]
            return await trained.engine.run("e", one, Key(key))

    episode = asyncio.run(main())
    assert [turn.error for turn in episode.turns if turn.error] == []
    return episode


def test_tools_of_a_real_server_and_a_typed_answer_in_one_turn(tmp_path: Path) -> None:
    lines = [
        {"tool": "add", "arguments": {"a": 20, "b": 22}},
        {"tool": "calculate", "arguments": {"expression": "2 * 21"}},
        {"text": '{"answer": 42}'},
        {"text": '{"answer": "42", "done": true}'},
    ]
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string"}, "done": {"type": "boolean"}},
        "required": ["answer", "done"],
        "additionalProperties": False,
    }
    config = {
        "task": {"use": "steps", "train": 2, "validation": 2, "test": 2},
        "speakers": {"script": {"use": "scripted", "lines": lines}},
        "models": {"main": {"use": "offline", "speaker": "script"}},
        "tools": {
            "sums": {"use": "calculator"},
            "server": {"use": "mcp", "command": DEMO, "allow": ["add"]},
        },
        "agents": {
            "solver": {
                "use": "chat",
                "model": "main",
                "preset": "solver",
                "tools": ["sums", "server"],
                "output": schema,
                "structured": "prompt",
                "content": "answer",
                "final": "done",
            }
        },
        "policy": {"use": "round-robin"},
        "limits": {"turns": 3},
    }
    file = tmp_path / "team.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    [turn] = asked(file).turns
    assert turn.error == ""
    assert (turn.output.content, turn.output.final) == ("42", True)
    assert turn.output.metadata["tools"] == ["add", "calculate"]
    assert "$.answer: 42 is not of type 'string'" in turn.output.metadata["repaired"]
    assert turn.usage.calls == 4 + 2
    assert turn.usage.input_tokens > 0


def test_a_run_with_tools_is_replayed_without_model_and_server(tmp_path: Path) -> None:
    note = {"file": str(tmp_path / "notes"), "text": "x"}
    lines = [{"tool": "write", "arguments": note}, {"text": "noted"}]
    command = [sys.executable, str(Path(__file__).with_name("mcp_server.py")), "stdio"]
    server = {"use": "mcp", "command": command, "allow_writes": ["write"]}
    config = {
        "task": {"use": "steps", "train": 2, "validation": 2, "test": 2},
        "speakers": {"script": {"use": "scripted", "lines": lines}},
        "models": {"main": {"use": "offline", "speaker": "script"}},
        "tools": {"server": server},
        "agents": {"solver": {"use": "chat", "model": "main", "tools": ["server"]}},
        "policy": {"use": "sequence", "steps": ["solver"]},
        "reward": {"use": "exact-outcome"},
        "trainer": {"use": "best-sequence"},
        "limits": {"turns": 2},
    }
    (tmp_path / "team.yaml").write_text(json.dumps(config), encoding="utf-8")
    with chdir(tmp_path):
        for arguments in (["train", "team.yaml"], ["replay", "team-1"]):
            done = CliRunner().invoke(main, arguments)
            assert done.exit_code == 0, done.output
    assert "identical" in done.stdout


def test_a_team_with_a_router_writes_and_reviews_code_that_is_verified() -> None:
    config = ROOT / "docs" / "examples" / "chat.yaml"
    episode = asked(config)
    agents = [turn.agent for turn in episode.turns]
    assert agents == ["router", "writer", "router", "reviewer", "router", "refactorer", "router"]
    writer = episode.turns[1].output
    assert writer.data is not None
    assert f"```python\n{writer.data['code']}```" in writer.content
    assert episode.turns[3].output.data is None
    assert episode.success
    assert episode == asked(config), "equal keys, equal episodes: also over HTTP"


def test_the_writers_skill_decides_where_nobody_mends() -> None:
    """The verifier judges the code that was extracted, whatever is said of it."""
    config = ROOT / "docs" / "examples" / "chat.yaml"
    bad = ["speakers.room.roles.writer.writer={basic: 0}", "speakers.room.roles.router.first=stop"]
    alone = "policy={use: sequence, steps: [writer]}"
    episode = asked(config, None, 1, *bad, alone)
    assert [turn.status for turn in episode.turns] == ["completed"]
    assert not episode.success


# ---------------------------------------------------------------- tools that the service runs

PRICE = Price(1.0, 2.0, tools={"web_search": 0.01, "code_execution": 0.03})
SEARCHED: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tides"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": [{"type": "web_search_result", "url": "http://a", "encrypted_content": "x"}],
        },
        {"type": "server_tool_use", "id": "s2", "name": "bash_code_execution", "input": {}},
    ],
    "responses": [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c"},
    ],
}
DEFINED: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
        {"type": "code_execution_20250825", "name": "code_execution"},
    ],
    "responses": [
        {"type": "web_search"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
    ],
}


def answered(
    api: Api, server: ModelService, journal: Notebook | None = None, **agent: Any
) -> tuple[Turn, Any]:
    """The turn of an agent with such tools, and its replay if there is a journal."""

    async def main(calls: CallPath) -> Turn:
        settings = api.settings(server.url, price=PRICE, key_env=None)
        async with settings.open(OpenContext("models.m", Key(1))) as model:  # type: ignore[attr-defined]
            own = {"web_search": 2, "code_execution": 1}
            solver = Chat(model=model, vendor_tools=own, **agent).ready()
            engine = engine_for({"solver": solver}, Fixed(["solver"]), ListTask(), calls=calls)
            return (await engine.run("e", Problem("p", "When is high tide?"), Key(1))).turns[0]

    turn = asyncio.run(main(CallPath(journal=journal)))
    return turn, asyncio.run(main(ReplayPath(journal))) if journal is not None else None


@pytest.mark.parametrize("api", [Api("anthropic"), Api("responses")], ids=lambda api: api.name)
def test_tools_of_the_service_are_declared_kept_in_the_conversation_and_paid(api: Api) -> None:
    first = api.good("I look.", tools=[("c1", "add", '{"a":1,"b":2}')])
    parts = "content" if api.name == "anthropic" else "output"
    first[parts] = [*SEARCHED[api.name], *first[parts]]
    last = api.good("At noon.")
    for body in (first, last):
        body["usage"] = {"input_tokens": 100, "output_tokens": 10}
    book = Notebook()
    with ModelService(reply(200, first), reply(200, last)) as server:
        turn, again = answered(api, server, book, tools=[Functions(given=[add])])
        bodies = [one.data for one in server.seen]
    assert turn.output.content == "At noon."
    assert turn.output == again.output
    assert len(bodies) == 2  # a replay asks nobody
    for body in bodies:
        assert body["tools"][0]["name"] == "add"
        assert body["tools"][1:] == DEFINED[api.name]
    assert bodies[0].get("max_tool_calls") == (3 if api.name == "responses" else None)
    sent = bodies[1]["messages"][1]["content"] if parts == "content" else bodies[1]["input"]
    assert all(block in sent for block in SEARCHED[api.name])
    assert turn.output.metadata["vendor_tools"] == {"web_search": 1, "code_execution": 1}
    assert turn.usage.usd == pytest.approx(2 * (100 * 1 + 10 * 2) / 1e6 + 0.01 + 0.03)


def test_a_paused_answer_goes_on_and_does_so_only_so_often() -> None:
    api = Api("anthropic")
    paused = api.good(None, "pause_turn")
    paused["content"] = SEARCHED["anthropic"]
    with ModelService(reply(200, paused), reply(200, paused), reply(200, api.good("Noon."))) as on:
        turn, _ = answered(api, on)
        assert turn.output.content == "Noon."
        sent = on.seen[2].data["messages"]
        assert [one["content"] for one in sent[1:]] == [SEARCHED["anthropic"]] * 2
    with ModelService(reply(200, paused)) as on:
        turn, _ = answered(api, on, tool_rounds=2)
        assert "the service paused" in turn.error
        assert len(on.seen) == 4


def test_a_service_without_the_tool_is_refused_when_the_config_is_read() -> None:
    chat, answers, claude = (
        OpenAIModel(model="m"),
        OpenAIModel(model="m", api="responses"),
        AnthropicModel(model="m"),
    )
    cases: list[tuple[Any, str, str]] = [
        (chat, "web_search", "service has no 'web_search'; it has none"),
        (claude, "telephone", "it has web_search, code_execution"),
        (answers, "web_search", ""),
    ]
    for model, name, error in cases:
        with pytest.raises(ValueError, match=error) if error else nullcontext():
            Chat(model=model, vendor_tools={name: 1})
