"""Texts as vectors: over a real server, through the call path, for a policy that reads them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from orchestrion_encoders.embedding import Embedding
from orchestrion_llm.prices import Price

from orchestrion import Answer, CallError, Key, OpenContext, Usage, UsageError
from orchestrion._engine.calls import ActivationCalls, CallPath
from orchestrion.cli import main
from orchestrion.testing import Fixed, ScriptedAgent, engine_for
from tests.plugins.llm.apis import KEY, QUICK, Api
from tests.service import ModelService, Seen, reply


def rows(*vectors: list[float]) -> list[dict[str, Any]]:
    return [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]


GOOD = {"data": rows([1.0, 0.0], [0.6, 0.8]), "usage": {"prompt_tokens": 7, "total_tokens": 7}}


def embed(model: Any, *texts: str) -> Answer:
    """The answer to one request, through an engine's call path."""

    async def run() -> Answer:
        engine = engine_for({"a": ScriptedAgent(["x"])}, Fixed(["a"]), calls=CallPath(retry=QUICK))  # type: ignore[list-item]
        context = OpenContext("models.m", Key(0), environment={"TEST_KEY": KEY})
        async with model.open(context) as runtime:
            answer: Answer = await runtime.embed(texts, ActivationCalls(engine, Key(1)))
            return answer

    return asyncio.run(run())


def test_texts_become_vectors_in_their_order_and_what_that_took_is_booked() -> None:
    shuffled = GOOD | {"data": rows([1.0, 0.0], [0.6, 0.8])[::-1]}
    with ModelService(reply(200, shuffled)) as server:
        answer = embed(Api("chat").settings(server.url, price=Price(2, 8)), "a", "b")
    assert answer.data == {"vectors": [[1.0, 0.0], [0.6, 0.8]]}
    assert answer.usage == Usage(1, 7, 0, 14e-6, 14e-6)
    (seen,) = server.seen
    assert seen.path == "/v1/embeddings"
    assert seen.data == {"model": "m-1", "input": ["a", "b"], "encoding_format": "float"}


def test_usage_that_is_not_stated_is_booked_as_its_bound() -> None:
    with ModelService(reply(200, {"data": GOOD["data"]})) as server:
        answer = embed(Api("chat").settings(server.url), "a", "b")
    assert answer.estimated
    assert answer.usage.input_tokens > 7


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"data": rows([1.0])}, "1 vectors for 2 texts"),
        ({"data": rows([1.0], [1.0, 2.0])}, "different lengths"),
        ({"data": rows([], [])}, "empty"),
        ({"data": [{"index": 0, "embedding": [1]}] * 2}, "2 vectors for 2 texts"),
        ("<html>", "HTML"),
        ({"error": {"message": "no such model", "type": "server_error"}}, "no such model"),
    ],
)
def test_an_answer_that_is_no_vectors_is_a_failed_call(body: Any, why: str) -> None:
    with ModelService(reply(200, body)) as server, pytest.raises(CallError, match=why):
        embed(Api("chat").settings(server.url), "a", "b")


def test_an_api_without_embeddings_is_refused_before_the_run() -> None:
    model = Api("anthropic").settings("http://127.0.0.1:9")
    with pytest.raises(CallError, match="cannot embed"):
        embed(model, "a")

    async def run() -> None:
        context = OpenContext("models.m", Key(0), environment={"TEST_KEY": KEY})
        async with model.open(context) as runtime:  # type: ignore[attr-defined]
            place = OpenContext("policy.encoders[0]", Key(0), names={"model": ("m",)})
            async with Embedding(runtime).open(place):  # type: ignore[abstract]
                pass

    with pytest.raises(UsageError, match="model m cannot embed"):
        asyncio.run(run())


CONFIG = """
seed: 1
task: {{use: relay, train: 4, validation: 4, test: 4}}
models:
  e: {{use: openai, model: m-1, base_url: "{url}/v1", key_env: TEST_KEY, preflight: false}}
agents:
  planner: {{use: bench-agent}}
  coder_l: {{use: bench-agent}}
policy: {{use: values, encoders: [{{use: embedding, model: e{what}}}]}}
reward: {{use: outcome-minus-cost, cost_weight: 1.0}}
trainer: {{use: fitted-q, episodes: 8}}
limits: {{turns: 3}}
"""


async def embedded(seen: Seen, writer: asyncio.StreamWriter) -> None:
    """Answer with a vector of the text's length."""
    body = {"data": rows([float(len(seen.data["input"][0])), 1.0])}
    await reply(200, {**body, "usage": {"prompt_tokens": 9}})(seen, writer)


@pytest.mark.parametrize(("what", "count"), [("", 4), (", problem: false, latest: true", 1)])
def test_a_policy_reads_embeddings_and_a_replay_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, count: int
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    with ModelService(embedded) as server:
        (tmp_path / "c.yaml").write_text(CONFIG.format(url=server.url, what=what))
        done = CliRunner().invoke(main, ["train", "c.yaml"])
        assert done.exit_code == 0, done.output
    # One request a text, however many decisions read it.
    texts = [seen.data["input"][0] for seen in server.seen]
    assert len(texts) == len(set(texts)) >= count
    assert ("(nothing)" in texts) == bool(what)
    [run] = (tmp_path / "runs").iterdir()
    again = CliRunner().invoke(main, ["replay", str(run)])
    assert again.exit_code == 0, again.output


def test_a_model_with_cache_false_embeds_a_text_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    with ModelService(embedded) as server:
        (tmp_path / "c.yaml").write_text(CONFIG.format(url=server.url, what=""))
        done = CliRunner().invoke(main, ["train", "c.yaml", "-o", "models.e.cache=false"])
        assert done.exit_code == 0, done.output
    texts = [seen.data["input"][0] for seen in server.seen]
    assert len(texts) > len(set(texts))
    [run] = (tmp_path / "runs").iterdir()
    again = CliRunner().invoke(main, ["replay", str(run)])
    assert again.exit_code == 0, again.output


def test_a_service_that_fails_for_good_fails_the_episode_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    with ModelService(reply(400, {"error": {"message": "too long"}})) as server:
        (tmp_path / "c.yaml").write_text(CONFIG.format(url=server.url, what=""))
        done = CliRunner().invoke(main, ["eval", "c.yaml", "--json"])
    assert "too long" in done.output
