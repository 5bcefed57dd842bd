"""Notes that episodes have in common."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_chat.chat import Chat
from orchestrion_chat.memory import Memory

from orchestrion import Key, OpenContext, OrchestrionError, UsageError
from orchestrion._engine.calls import CallPath
from orchestrion._engine.replaying import ReplayPath
from orchestrion.config import load
from orchestrion.runs import train
from tests.contrib_agents.chat.support import Lines, Notebook, turn_of, use


def opened(memory: Memory, trains: bool = False) -> Any:
    async def main() -> Any:
        context = OpenContext("tools.notes", Key(1), trains=trains)
        async with memory.open(context) as tool:
            return tool

    return asyncio.run(main())


def told(tool: Any, name: str, calls: CallPath | None = None, **arguments: str) -> str:
    """What one call of the tool says to the model."""
    model = Lines([use(name, json.dumps(arguments)), "done"])
    turn = turn_of(Chat(model=model, tools=[tool]).ready(), calls=calls)
    assert turn.error == ""
    return str(model.requests[1]["messages"][-1]["content"])


def test_a_note_is_there_in_the_next_run(tmp_path: Path) -> None:
    memory = Memory(file=tmp_path / "kept" / "notes.json", write=True)
    assert "noted" in told(opened(memory), "remember", topic="Tides", text="Noon.")
    told(opened(memory), "remember", topic="Wind", text="West.")
    again = opened(memory)
    assert '{"Tides":"Noon."}' in told(again, "recall", topic="tide")
    told(again, "remember", topic="Tides", text="")
    assert '{"Wind":"West."}' in told(opened(memory), "recall")


def test_only_who_may_write_is_offered_it_and_only_so_much(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    model = Lines()
    turn_of(Chat(model=model, tools=[opened(Memory(file=file))]).ready())
    assert [tool["name"] for tool in model.requests[0]["tools"]] == ["recall"]
    small = opened(Memory(file=file, write=True, max_bytes=100))
    assert "more than 100 bytes" in told(small, "remember", topic="a", text="b" * 100)
    assert not file.exists()
    file.write_text("[]")
    with pytest.raises(UsageError, match=r"tools\.notes: .* does not hold notes"):
        opened(Memory(file=file))


def test_an_iteration_reads_what_earlier_ones_wrote_and_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    file.write_text('{"Wind":"West."}')
    memory = Memory(file=file, write=True, training=True)
    book = Notebook()
    tool = opened(memory, trains=True)
    told(tool, "remember", CallPath(journal=book), topic="Tides", text="Noon.")
    assert '{"Wind":"West."}' in told(tool, "recall")
    # A resumed run takes the answers from the record, and saves the same.
    resumed = opened(memory, trains=True)
    told(resumed, "remember", ReplayPath(book), topic="Tides", text="Noon.")
    saved = tool.save()
    assert resumed.save() == saved
    assert '{"Tides":"Noon.","Wind":"West."}' in told(tool, "recall")
    other = opened(memory, trains=True)
    other.load(saved)
    assert "Noon." in told(other, "recall")
    assert file.read_text() == '{"Wind":"West."}'


texts = st.sampled_from(["a", "b", ""])


@given(st.lists(st.tuples(texts, texts), max_size=4))
def test_the_order_in_which_episodes_write_changes_nothing(written: list[tuple[str, str]]) -> None:
    memory = Memory(file=Path("nowhere.json"), write=True, training=True)
    saved = []
    for order in itertools.permutations(written):
        tool = opened(memory, trains=True)
        for pair in order:
            tool.written.add(pair)
        saved.append(tool.save())
    assert all(one == saved[0] for one in saved)


def test_training_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(
        """
        task: {use: steps, train: 2, validation: 2, test: 2}
        speakers: {say: {use: scripted, lines: [{text: It is 42.}]}}
        models: {main: {use: offline, speaker: say}}
        tools: {notes: {use: memory, file: notes.json}}
        agents: {solver: {use: chat, model: main, tools: [notes]}}
        policy: {use: sequence, steps: [solver]}
        """
    )
    with pytest.raises(OrchestrionError, match=r"tools\.notes: episodes of a training run must"):
        train(load(tmp_path / "team.yaml"), tmp_path / "run")
    allowed = load(tmp_path / "team.yaml", ["tools.notes.training=true"])
    train(allowed, tmp_path / "allowed")
