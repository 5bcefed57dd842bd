"""What a run keeps of its conversations, and what later runs need not ask again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.loopback import Server, asking, install
from tests.end_to_end.test_asking import call


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as one:
        yield one


def shown(*words: str, cwd: Path, env: dict[str, str]) -> Any:
    return json.loads(call("runs", "show", "asking", *words, "--json", cwd=cwd, env=env).stdout)


def test_a_run_shows_what_its_model_was_asked_and_said(tmp_path: Path, server: Server) -> None:
    server.says = lambda digit: f"I have thought about it for {'very ' * 40}long: {digit}"
    env = install(tmp_path, asking())
    call("train", *server.at_model, cwd=tmp_path, env=env)

    # In what every call was asked nothing is missing: it is what the server saw, byte for byte.
    calls = shown("--calls-of", "reader", cwd=tmp_path, env=env)["calls"]
    seen = {name.partition("/")[2] for name in server.calls}
    told = {sha256(json.dumps(one["asked"]).encode()).hexdigest()[:8] for one in calls}
    assert told <= seen
    assert len(calls) == 2 * (2 * 6 + 6), "twice an episode, in two iterations and an evaluation"

    # One episode: whole turns; or what was asked and answered in one of them.
    name = "0/0/1"
    text = call("runs", "show", "asking", "--episode", name, cwd=tmp_path, env=env).stdout
    assert " ".join(text.split()).count("very " * 40 + "long:") == 2
    assert max(map(len, text.splitlines())) <= 80
    turn = ("--episode", name, "--turn", "2")
    [place] = shown(*turn, cwd=tmp_path, env=env)["conversation"]
    assert place["place"] == "2 reader"
    first, second = place["calls"]
    assert first["asked"]["request"]["messages"][0]["content"] in json.dumps(second["asked"])
    assert first["answer"]["text"] in second["asked"]["request"]["messages"][0]["content"]
    text = call("runs", "show", "asking", *turn, cwd=tmp_path, env=env).stdout
    assert text.count("[answer]") == 2
    assert "=== 2 reader" in text

    # Exports name the calls, and hold them by choice.
    call("runs", "export", "asking", "--conversations", cwd=tmp_path, env=env)
    exports = tmp_path / "runs" / "asking" / "exports"
    lines = [json.loads(line) for line in (exports / "calls.jsonl").read_text().splitlines()]
    episodes = json.loads((exports / "episodes.json").read_text())
    names = [n for one in episodes for turn in one["trajectory"] for n in turn["output"]["calls"]]
    assert sorted(names) == sorted(line["name"] for line in lines)


def test_a_later_run_asks_only_what_no_run_has_asked(tmp_path: Path, server: Server) -> None:
    env = install(tmp_path, asking())
    cached = (*server.at_model, "-o", "run.cache=answers", "-o", "models.loop.cache=null")

    def train(name: str, *words: str) -> tuple[int, dict[str, Any]]:
        """How many calls the server got, and what the run says it took."""
        before = sum(server.calls.values())
        call("train", *cached, "-o", f"run.name={name}", *words, cwd=tmp_path, env=env)
        told = json.loads(call("cost", name, "--json", cwd=tmp_path, env=env).stdout)
        return sum(server.calls.values()) - before, told

    made, told = train("first")
    assert made == told["total"]["calls"] == told["total"]["answered"] > 0
    # One prompt is changed: what others are asked is as before.
    changed, told = train("third", "-o", "agents.reader.instructions=Think.")
    assert changed == told["by_who"]["reader"]["calls"] == told["by_who"]["reader"]["answered"]
    assert told["by_who"]["writer"]["calls"] == 0
    assert told["by_who"]["writer"]["cached"] == made - changed

    # What was evaluated is evaluated again without a call.
    before = sum(server.calls.values())
    call("eval", "third", cwd=tmp_path, env=env)
    assert sum(server.calls.values()) == before

    # A replay needs neither server nor cache.
    for path in (tmp_path / "answers").iterdir():
        path.unlink()
    done = call("replay", "third", cwd=tmp_path, env={"PYTHONPATH": env["PYTHONPATH"]})
    assert done.stdout.startswith("identical: ")
