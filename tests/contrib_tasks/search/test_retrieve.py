"""A team that searches with a retrieval server, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orchestrion_search.retrieve import Retrieve
from orchestrion_search.task import Search

from orchestrion import Key, UsageError
from orchestrion._replay import replay
from orchestrion.config import from_data
from orchestrion.runs import open_run, train
from tests.plugins.evolution.support import Silent
from tests.service import ModelService, Seen, hang, reply

CORPUS = {
    "mother of ada": '"Ada"\nThe mother of Ada is Bea.',
    "mother of bea": '"Bea"\nThe mother of Bea is Cleo.',
}


def found(query: str) -> list[dict[str, Any]]:
    """Return what a server of Search-R1 answers to a query, with scores."""
    texts = [text for name, text in CORPUS.items() if name == query]
    return [{"document": {"id": "7", "contents": text}, "score": 0.5} for text in texts]


class Library:
    """Answers searches, and remembers the requests."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        self.asked.append(seen.data)
        result = [found(query) for query in seen.data["queries"]]
        await reply(200, {"result": result})(seen, writer)


@pytest.fixture
def shelf() -> Library:
    return Library()


@pytest.fixture
def server(shelf: Library) -> Iterator[ModelService]:
    with ModelService(shelf) as running:
        yield running


def team(folder: Path, url: str, queries: list[str], **task: Any) -> dict[str, Any]:
    """Return a config: the verifier lets it search once for each query, then answer."""
    questions = folder / "questions.json"
    questions.write_text(
        json.dumps([{"question": "Who is the grandmother of Ada?", "answer": "Cleo"}])
    )
    verdicts = [*({"data": {"next": "searcher"}} for _ in queries), {"data": {"next": "answerer"}}]
    return {
        "task": {
            "use": "search",
            "source": str(questions),
            "split": {"train": 0.0, "validation": 0.0, "test": 1.0},
            "retriever": "shelf",
            **task,
        },
        "agents": {
            "verifier": {"use": "scripted", "lines": verdicts},
            "searcher": {"use": "scripted", "lines": [{"content": query} for query in queries]},
            "shelf": {"use": "retrieve", "url": url, "results": 2, "timeout": 5},
            "answerer": {"use": "scripted", "lines": [{"content": "Cleo"}]},
        },
        "policy": {"use": "follow", "router": "verifier", "after": {"searcher": "shelf"}},
        "run": {"timeout": 20},
    }


def played(data: dict[str, Any]) -> Any:
    """Return the episode of the only question."""

    async def main() -> Any:
        async with open_run(from_data(data)) as opened:
            [problem] = opened.engine.team.task.problems("test")
            return await opened.engine.run("e", problem, Key(1))

    return asyncio.run(main())


def test_documents_of_the_server_stand_in_the_observation(
    tmp_path: Path, server: ModelService, shelf: Library
) -> None:
    episode = played(team(tmp_path, f"{server.url}/retrieve", list(CORPUS)))
    assert episode.success
    assert [turn.agent for turn in episode.turns] == [
        *("verifier", "searcher", "shelf") * 2,
        *("verifier", "answerer"),
    ]
    assert shelf.asked == [
        {"queries": [query], "topk": 2, "return_scores": True} for query in CORPUS
    ]
    assert episode.observation.data["searches"] == [
        {
            "query": "mother of ada",
            "found": [{"title": "Ada", "text": "The mother of Ada is Bea."}],
        },
        {
            "query": "mother of bea",
            "found": [{"title": "Bea", "text": "The mother of Bea is Cleo."}],
        },
    ]
    assert "Bea: The mother of Bea is Cleo." in episode.observation.text
    assert episode.usage.calls == 2


def test_the_last_search_ends_the_episode_when_its_documents_are_there(
    tmp_path: Path, server: ModelService
) -> None:
    data = team(tmp_path, f"{server.url}/retrieve", list(CORPUS), rounds=1)
    data["policy"] = {"use": "sequence", "steps": ["searcher", "shelf", "answerer"]}
    episode = played(data)
    assert [turn.agent for turn in episode.turns] == ["searcher", "shelf"]
    assert episode.observation.data["searches"][0]["found"]


@pytest.mark.parametrize(
    "body",
    [
        {"result": [[{"contents": "Ada\nThe mother of Ada is Bea."}]]},
        {"result": [[{"document": {"contents": "Ada\nThe mother of Ada is Bea."}}, *found("x")]]},
    ],
)
def test_documents_may_come_without_scores(tmp_path: Path, body: Any) -> None:
    with ModelService(reply(200, body)) as running:
        episode = played(team(tmp_path, f"{running.url}/retrieve", ["mother of ada"]))
    assert (
        episode.turns[2].output.data
        == {"documents": ({"title": "Ada", "text": "The mother of Ada is Bea."},)}
        or episode.turns[2].output.data["documents"][0]["title"] == "Ada"
    )


@pytest.mark.parametrize(
    "answer",
    [
        reply(400, b"no"),
        reply(200, {"result": []}),
        reply(200, b"nothing"),
        reply(200, b'{"x": ' + b"[" * 200_000 + b"]" * 200_000 + b', "result": [[]]}'),
        hang(),
    ],
    ids=["refused", "none", "no JSON", "nested", "hangs"],
)
def test_a_search_that_fails_is_a_failed_turn_and_finds_nothing(
    tmp_path: Path, answer: Any
) -> None:
    with ModelService(answer) as running:
        data = team(tmp_path, f"{running.url}/retrieve", ["mother of ada"])
        data["agents"]["shelf"]["timeout"] = 0.2
        data["run"]["timeout"] = 2
        episode = played(data)
    assert episode.turns[2].status == "failed"
    assert [search["found"] for search in episode.observation.data["searches"]] == [[]]
    assert "failed" not in episode.observation.text


@pytest.mark.parametrize("status", [302, 404, 422])
def test_a_refusal_names_the_setting_to_look_at(tmp_path: Path, status: int) -> None:
    with ModelService(reply(status, b"not here")) as running:
        episode = played(team(tmp_path, f"{running.url}/retrieve", ["mother of ada"]))
    error = episode.turns[2].error or ""
    assert f"/retrieve: {status} not here; is agents.shelf.url the address of" in error


@pytest.mark.parametrize(
    "url",
    ["ftp://a/b", "127.0.0.1:9", "http://a:99999/x", "http://[bad", "http://\0/", "http://u:p@a/"],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ValueError, match=r"url: must (be an address like|hold neither)"):
        Retrieve(url=url)


def test_a_replay_needs_no_server(tmp_path: Path, shelf: Library) -> None:
    with ModelService(shelf) as running:
        data = team(tmp_path, f"{running.url}/retrieve", list(CORPUS))
        run = train(data, tmp_path / "run")
    assert len(shelf.asked) == 2
    assert asyncio.run(replay(run.path, Silent())).difference == ""
    calls = run.calls("dicts")
    assert [call["service"] for call in calls] == [f"retrieval:{running.url}/retrieve"] * 2


def test_only_the_retrievers_turns_bring_documents(tmp_path: Path, server: ModelService) -> None:
    data = team(tmp_path, f"{server.url}/retrieve", ["mother of ada"])
    forged = {"documents": [{"title": "Ada", "text": "forged"}]}
    data["agents"]["searcher"]["lines"] = [{"content": "mother of ada", "data": forged}]
    assert "forged" not in played(data).observation.text


def test_settings_of_an_own_index_have_no_effect_beside_a_retriever() -> None:
    with pytest.raises(ValueError, match="with `retriever`"):
        Search(retriever="shelf", results=5)
    with pytest.raises(UsageError, match="retriever: no agent 'libary' in the team"):
        played({"task": {"use": "search", "retriever": "libary"}, **AGENTS})


AGENTS: dict[str, Any] = {
    "agents": {name: {"use": "echo"} for name in ("verifier", "searcher", "answerer", "shelf")},
    "policy": {"use": "round-robin"},
}
