"""The whole way: the vendors' SDKs over HTTP to a simulated model, and a real MCP server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrion import Episode, Key, Problem
from orchestrion.run import open_run

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


@pytest.mark.parametrize("wire", ["openai", "responses", "anthropic"])
def test_tools_of_a_real_server_and_a_typed_answer_over_each_wire(
    wire: str, tmp_path: Path
) -> None:
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
        "models": {"main": {"use": "offline", "speaker": "script", "wire": wire}},
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
    lines = [{"tool": "note", "arguments": {"text": "x"}}, {"text": "noted"}]
    server = {"use": "mcp", "command": DEMO, "allow_writes": ["note"]}
    solver = {"use": "chat", "model": "main", "tools": ["sums", "server"]}
    config = {
        "task": {"use": "steps", "train": 2, "validation": 2, "test": 2},
        "speakers": {"script": {"use": "scripted", "lines": lines}},
        "models": {"main": {"use": "offline", "speaker": "script"}},
        "tools": {"server": server, "sums": {"use": "calculator"}},
        "agents": {"solver": solver},
        "policy": {"use": "sequence", "steps": ["solver"]},
        "reward": {"use": "exact-outcome"},
        "trainer": {"use": "best-sequence"},
        "limits": {"turns": 2},
    }
    (tmp_path / "team.yaml").write_text(json.dumps(config), encoding="utf-8")
    for arguments in (["train", "team.yaml"], ["replay", "team-1"]):
        done = subprocess.run(
            [sys.executable, "-m", "orchestrion", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
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
