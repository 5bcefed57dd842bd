"""Prompt caching: a server that keeps what is marked, as the vendor does, and what that saves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from orchestrion_llm.caching import PromptCache

from tests.plugins.llm.apis import Api
from tests.plugins.llm.test_command_line import config, here, write
from tests.service import ModelService, Reply, Seen, reply

ANTHROPIC = Api("anthropic")
LONG = "Be careful. " * 600
PRICE = {"input": 10, "output": 50, "cached_input": 1, "cache_write": 12.5}


def request(*texts: str, system: str = LONG) -> dict[str, Any]:
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"model": "m", "system": system, "messages": said}


def marks(body: Any) -> list[int]:
    """The places of the marks: -1 for the system text, else of messages."""
    places = [-1] * ("cache_control" in str(body["system"]))
    return places + [i for i, one in enumerate(body["messages"]) if "cache_control" in str(one)]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def sent(cache: PromptCache, *texts: str, kept: bool = True, **more: str) -> list[int]:
    body, marked = cache.marked(request(*texts, **more))
    cache.ended(marked, kept)
    return marks(body)


def test_a_prefix_is_marked_from_its_second_request_on() -> None:
    cache = PromptCache()
    assert sent(cache, "a") == []
    assert sent(cache, "b") == [-1]
    assert sent(cache, "b", "x", "c") == [-1, 0]
    assert sent(cache, "b", "x", "c", "y", "d") == [-1, 2]
    assert sent(cache, "other", system="Another " * 600) == []


def test_a_short_prefix_is_not_marked_until_the_conversation_is_long() -> None:
    cache = PromptCache()
    assert [sent(cache, "a", system="Short.") for _ in range(2)] == [[], []]
    assert sent(cache, LONG, system="Short.") == []
    assert sent(cache, LONG, "b", "c", system="Short.") == [0]


def test_one_request_at_a_time_writes_and_a_prefix_that_expired_is_written_again() -> None:
    clock = Clock()
    cache = PromptCache(clock)
    sent(cache, "a")
    _, writing = cache.marked(request("b"))
    assert sent(cache, "c") == []
    cache.ended(writing, kept=True)
    bodies = [cache.marked(request(text)) for text in "de"]
    assert [marks(body) for body, _ in bodies] == [[-1], [-1]]
    clock.now = 400
    first, _ = cache.marked(request("f"))
    assert (marks(first), sent(cache, "g")) == ([-1], [])


def test_a_failed_write_is_tried_by_the_next_request() -> None:
    cache = PromptCache()
    sent(cache, "a")
    assert sent(cache, "b", kept=False) == [-1]
    assert sent(cache, "c") == [-1]


def test_marks_change_nothing_else() -> None:
    cache = PromptCache()
    body = {**request(LONG), "tools": [{"name": "t"}], "system": ""}
    sent_bodies = [cache.marked(body)[0] for _ in range(2)]
    assert sent_bodies[0] == body
    marked = json.loads(json.dumps(sent_bodies[1]))
    assert marked["tools"] == body["tools"]  # too short to be kept alone
    [block] = marked["messages"][0]["content"]
    assert block == {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}


# ---------------------------------------------------------------- against a server


def keeping() -> Reply:
    """A service that keeps marked prefixes, and counts a token for every byte."""
    kept: set[str] = set()

    async def send(seen: Seen, writer: Any) -> None:
        body = seen.data
        parts = [body.get("system", ""), *(one["content"] for one in body["messages"])]
        text, end, ends = "", 0, []
        for part in parts:
            blocks = part if isinstance(part, list) else [{"text": part}]
            text += "".join(block["text"] for block in blocks)
            if "cache_control" in blocks[-1]:
                end = len(text)
                ends.append(text)
        read = max((len(one) for one in ends if one in kept), default=0)
        kept.update(ends)
        answer = ANTHROPIC.good()
        answer["usage"] = {
            "input_tokens": len(text) - end,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": end - read,
            "output_tokens": 3,
        }
        await reply(200, answer)(seen, writer)

    return send


def team(url: str, **model: Any) -> str:
    settings = {"price": PRICE, "preflight": False, "limits": {"concurrency": 1}, **model}
    data = json.loads(config(ANTHROPIC, url, **settings))
    data["agents"]["say"]["instructions"] = LONG
    data["trainer"] = {"use": "best-sequence", "length": 1, "problems": 4}
    data["run"] = {"name": "kept"}
    return json.dumps(data)


def test_a_run_pays_less_and_the_bill_says_how_much(tmp_path: Path) -> None:
    with ModelService(keeping()) as server:
        file = write(tmp_path, team(server.url))
        here("train", file, cwd=tmp_path, TEST_KEY="sk-of-the-test")
    shown = here("cost", "kept", cwd=tmp_path).stdout
    assert "identical" in here("replay", "kept", cwd=tmp_path).stdout
    total = json.loads(here("cost", "kept", "--json", cwd=tmp_path).stdout)["total"]
    billed, calls = total["billed"], total["answered"]
    assert calls >= 3
    assert billed["cache_write_tokens"] < 2 * len(LONG)
    assert billed["cache_read_tokens"] >= (calls - 2) * len(LONG)
    plain = (total["input_tokens"] * 10 + total["output_tokens"] * 50) / 1e6
    assert plain - total["usd"] == pytest.approx(billed["cache_saved_usd"])
    assert billed["cache_saved_usd"] > 0
    read = f"{billed['cache_read_tokens']:,} of {total['input_tokens']:,} input tokens were read"
    assert read in shown
    assert f"saved {billed['cache_saved_usd']:,.4f} US dollars" in shown


@pytest.mark.parametrize("model", [{"prompt_cache": False}, {"price": {"input": 1, "output": 2}}])
def test_nothing_is_marked_where_it_is_off_or_does_not_pay(model: Any, tmp_path: Path) -> None:
    with ModelService(keeping()) as server:
        file = write(tmp_path, team(server.url, **model))
        here("train", file, cwd=tmp_path, TEST_KEY="sk-of-the-test")
        assert len(server.seen) >= 3
        assert not any(b"cache_control" in one.body for one in server.seen)
