"""The pages of episodes: filters, links that keep them, and contents that can do nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orchestrion_studio import create_app
from orchestrion_studio.calls import call_data
from orchestrion_studio.contents import contents, pretty, unified_diff, visible
from orchestrion_studio.episode_text import SENT
from orchestrion_studio.showing import _FENCE, _MARKED, ALL_COMPARED, Showing
from starlette.testclient import TestClient

from orchestrion import Decision, Episode, Output, Problem, Reward, Scores, Trajectory, Turn
from orchestrion.runs import RunStore
from tests.coroutines import sync
from tests.plugins.otel.support import call
from tests.plugins.studio.episodes_support import ATTACKS, BIG, Markup, hostile_run, nested


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("runs")
    hostile_run(folder / "hostile")
    _plain_run(folder / "plain")
    app = create_app(folder, token=None)
    with TestClient(app, "http://127.0.0.1") as opened:
        yield opened


def _plain_run(folder: Path) -> None:
    def episode(number: int) -> Episode:
        first = Output("```python\nx = 1\n```", {"code": "x = 1"})
        second = Output("better", {"code": "x = 2"}, metadata={"attempts": 2})
        turns = [Turn(0, "writer", output=first), Turn(1, "mender", output=second, decision=1)]
        return Episode(
            f"0/0/{number}",
            Problem(f"p{number}", "Write x.", category="sums" if number % 2 else "odds"),
            Trajectory(turns[: 1 + number % 2]),
            (Decision(logp=-0.25, chances={"writer": 0.75, "(stop)": 0.25}),),
            scores=Scores(1.0, number % 2 == 0),
            reward=Reward(number / 10),
        )

    with RunStore.create(folder, "seed: 7\n", {}) as store:
        store.commit_iteration(0, 0, [episode(number) for number in range(120)], {}, None)


def _all_hostile(client: TestClient) -> list[str]:
    return [row["id"] for row in client.get("/api/episodes/hostile").json()["rows"]]


def test_nothing_that_an_agent_wrote_becomes_markup(client: TestClient) -> None:
    pages = [client.get("/episodes/hostile")]
    episodes = _all_hostile(client)
    assert len(episodes) == len(ATTACKS) + 3
    pages += [client.get("/episode/hostile", params={"id": name}) for name in episodes]
    names = ("source", "status", "agent", "problem", "text", "at")
    for attack in ATTACKS:
        given = attack.encode(errors="ignore").decode()  # an address has no halves of characters
        every = dict.fromkeys(names, given)
        pages.append(client.get("/episodes/hostile", params={**every, "order": given}))
        pages.append(client.get("/episodes/hostile", params={"from": given}))
    for page in pages:
        assert page.status_code == (400 if "from" in page.url.params else 200)
        assert "script-src 'self';" in page.headers["content-security-policy"]
        markup = Markup(page.text)
        assert markup.risks == []
        assert "script" in {tag for tag, _ in markup.elements}
        assert not set("\x00\x07\x1b\u202e\u202c\u200b\u2028\ufeff") & set(markup.text)


def test_what_is_hidden_in_text_is_shown_by_its_code(client: TestClient) -> None:
    name = next(name for name in _all_hostile(client) if "gnp" in name)
    text = Markup(client.get("/episode/hostile", params={"id": name}).text).text
    assert r"\u202egnp.exe\u202c\x1b[31m\x00\x07\u200b\u2028\ufeff" in text
    assert visible("a\tb\r\nc") == "a\tb\nc"


def test_a_turn_of_ten_megabytes_is_shown_in_part_and_given_whole(client: TestClient) -> None:
    page = client.get("/episode/hostile", params={"id": "big"})
    assert len(page.text) < 150_000
    links = [values["href"] for tag, values in Markup(page.text).elements if "download" in values]
    whole = client.get(next(link for link in links if "content-1" in link))
    assert len(whole.text) > BIG
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["content-disposition"].startswith("attachment")
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert "No such" not in client.get("/text/hostile", params={"id": "big"}).text


def test_pages_stay_small_whatever_an_episode_holds(client: TestClient) -> None:
    for name in ("deep", "long"):
        assert len(client.get("/episode/hostile", params={"id": name}).text) < 200_000
    assert json.loads(client.get("/text/hostile", params={"id": "deep"}).text)["episode"]
    showing = Showing()
    shown = [showing.text("- word\n" * 5000, "content-0") for _ in range(40)]
    assert sum(len(text["text"]) for text in shown) < 450_000
    assert sum(len(text["text"]) for text in shown if text["form"] == "markdown") < 120_000


def test_filters_stay_in_the_links_and_lead_from_episode_to_episode(client: TestClient) -> None:
    page = client.get("/episodes/plain?solved=yes&agent=writer&from=0.5&order=reward&direction=up")
    data = client.get(str(page.url).replace("/episodes/", "/api/episodes/")).json()
    assert [row["reward"] for row in data["rows"]] == [n / 10 for n in range(6, 106, 2)]
    links = [values.get("href", "") for tag, values in Markup(page.text).elements if tag == "a"]
    first = next(link for link in links if link.startswith("/episode/"))
    assert "solved=yes" in first
    opened = client.get(first.replace("/episode/", "/api/episode/")).json()
    assert (opened["id"], opened["previous"], opened["next"]["id"]) == ("0/0/6", None, "0/0/8")
    second = client.get(next(link for link in links if "after=" in link))
    assert second.status_code == 200
    assert "0/0/106" in second.text
    assert client.get("/episodes/plain?after=x").status_code == 400
    assert client.get("/episodes/plain?after=inf,99999999999999999999999").status_code == 400
    missing = client.get(f"/run/{'x' * 5000}")
    assert missing.status_code == 404
    assert len(missing.text) < 5000
    assert client.get("/episode/plain?id=none").status_code == 404
    for name in ("content-9", "content-1.1", "call-none", "nothing-1"):
        assert client.get(f"/text/plain?id=0/0/1&name={name}").status_code == 404
    assert client.get("/text/hostile?id=big&name=program-1").status_code == 404


def test_a_program_that_changes_is_shown_as_a_diff(client: TestClient) -> None:
    turns = [
        turn
        for step in client.get("/api/episode/plain?id=0/0/1").json()["steps"]
        for turn in step["turns"]
    ]
    assert turns[0]["content"]["text"] == ""  # it is the program alone, which is shown in its place
    assert turns[0]["program"]["code"]["text"] == "x = 1"
    assert turns[1]["program"]["diff"]["text"] == "@@ -1 +1 @@\n-x = 1\n+x = 2"
    assert turns[1]["program"]["since"] == "1"
    html = client.get("/episode/plain?id=0/0/1").text
    assert '<span class="t-gd">-x = 1</span>' in html
    assert "attempts" in html, "what an agent notes beside its answer"
    assert 'id="turn-1"' in html
    assert "75.0%" in html  # for the writer, at the first decision
    chances = client.get("/api/episode/plain?id=0/0/1").json()["steps"][0]["decision"]["chances"]
    assert [(each["name"], each["chance"]) for each in chances] == [
        ("writer", 0.75),
        ("(stop)", 0.25),
    ]
    assert unified_diff("a", "a") == ""


def test_contents_are_shown_in_the_form_they_have() -> None:
    showing = Showing()
    forms = {
        "# A title": "markdown",
        "with `code`": "markdown",
        "plain text": "text",
        "for x in y:\n    # a comment\n    **x": "mono",
        '{"a": [1]}': "json",
        "[1": "text",
    }
    for text, form in forms.items():
        shown = showing.text(text, "x")
        assert shown["form"] == form
        assert contents(shown)
    assert '<span class="t-k">def</span>' in contents(
        showing.text("```python\ndef f(): 1\n```", "")
    )


def test_a_call_is_shown_in_the_words_of_its_api_and_earlier_messages_once() -> None:
    asked: list[Any] = [
        {"role": "system", "content": "Be short."},
        {"type": "function_call_output", "output": "4"},
        "bare",
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "image"}, ""]},
    ]
    answer: Any = {"text": "yes", "stop": "length", "tool_calls": [], "error": None}
    before: list[Any] = []

    def shown(*more: Any, **fields: Any) -> dict[str, Any]:
        request = {"model": "m", "messages": [*asked, *more]}
        return call_data(call("c", "openai:m", request, answer, **fields), before, Showing())

    def texts(parts: list[dict[str, Any]]) -> list[tuple[str, str]]:
        return [(part["label"], part["shown"]["text"]) for part in parts]

    first, second = shown(), shown({"role": "user", "content": "again"})
    assert [(message["role"], texts(message["parts"])) for message in first["messages"]] == [
        ("system", [("", "Be short.")]),
        ("function_call_output", [("output", "4")]),
        ("message", [("", "bare")]),
        ("user", [("", "hi"), ("image", '{\n  "type": "image"\n}')]),
    ]
    assert first["settings"]["text"] == '{\n  "model": "m"\n}'
    assert texts(first["answer"]) == [("", "yes"), ("stop", "length")]
    assert (first["same"], second["same"], second["settings"]["text"]) == (0, 4, "")
    assert [texts(message["parts"]) for message in second["messages"]] == [[("", "again")]]
    assert texts(shown(kind="timeout")["answer"]) == [("no answer", "timeout")]
    tool = call_data(call("t", "tool:add", ["add", {"a": 2}], None), [], Showing())
    assert (tool["tool"], tool["arguments"]["text"]) == ("add", '{\n  "a": 2\n}')
    assert (tool["settings"]["text"], tool["answer"]) == ("", [])


def test_data_that_is_nested_too_deeply_is_not_shown() -> None:
    assert pretty(nested(20)).count("\n") > 20
    assert pretty(nested(100_000)) == "(nested too deeply to be shown)"
    assert len(pretty(["word"] * 1000, 100)) < 150


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("problem", "Write x."),
        ("problem-data", "null"),
        ("content-2", "better"),
        ("program-2", "x = 2"),
        ("metadata-2", '{\n  "attempts": 2'),
        ("data-2", '{\n  "code": "x = 2"'),
        ("record", '{\n  "source": "train"'),
    ],
)
def test_each_text_of_an_episode_is_given_by_its_name(
    client: TestClient, name: str, beginning: str
) -> None:
    params = {"id": "0/0/1", "name": name}
    assert client.get("/text/plain", params=params).text.startswith(beginning)


def test_patterns_look_at_each_line_once() -> None:
    for text in ("\n" * 50 + "- a", "\n" * 50 + "1. a", "|a|\n\n\n"):
        found = _MARKED.search(text)
        assert found is not None
        assert "\n" not in found[0]
    assert (
        len(_FENCE.findall("```x\n" * 50)) == 1
    )  # a fence that nothing closes has all that follows


def test_long_programs_are_not_compared() -> None:
    lines = [f"x{n % 150}" for n in range(10_000)]
    shown = Showing().difference("\n".join(lines), "\n".join(reversed(lines)), "program-1")
    assert "too long to be compared" in shown["text"]
    showing, half = Showing(), "x\n" * 1000
    texts = [showing.difference(half, f"{half}y", "program-1")["text"] for _ in range(100)]
    assert sum("+y" in text for text in texts) == ALL_COMPARED // 2001


@sync
async def test_large_texts_are_sent_to_few_readers_at_once(tmp_path: Path) -> None:
    hostile_run(tmp_path / "hostile")
    app = create_app(tmp_path, token=None)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/text/hostile",
        "query_string": b"id=big",
        "headers": [(b"host", b"127.0.0.1")],
    }
    begun, read_on = asyncio.Semaphore(0), asyncio.Event()
    sizes: list[int] = []
    statuses: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            begun.release()
        else:
            sizes.append(len(message["body"]))
        if statuses[-1] == 200:
            await read_on.wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    readers = [asyncio.create_task(app(scope, receive, send)) for _ in range(SENT)]
    for _ in readers:
        await begun.acquire()
    await app(scope, receive, send)
    assert statuses == [200] * SENT + [503]
    read_on.set()
    await asyncio.gather(*readers)
    assert sum(sizes) > SENT * BIG
    assert max(sizes) < 1_000_000
    await app(scope, receive, send)
    assert statuses[-1] == 200
