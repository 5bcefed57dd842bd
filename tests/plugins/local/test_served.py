"""Sampling by a server: a real one on loopback that serves real tiny models, and some that lie."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from orchestrion_local.exporting import Exports
from orchestrion_local.hf import HF, PlannedModel
from orchestrion_local.interfaces import Generation
from orchestrion_local.mixture import Mixture
from orchestrion_local.runtime import LocalModel
from orchestrion_local.sampling import Completion
from orchestrion_local.settings import Lora, Server

from orchestrion import CallError, Key, OpenContext, UsageError
from orchestrion._engine.calls import ActivationCalls, CallPath, RetrySettings
from orchestrion.testing import Fixed, ScriptedAgent, engine_for
from tests.plugins.local.engine import Engine, completion, engine_of, server
from tests.plugins.local.support import NoJournal, asked, opened, sync, tiny
from tests.plugins.local.test_models import learn
from tests.service import ModelService, Reply, Seen, cut, hang, reply


@asynccontextmanager
async def serving(
    *first: Reply, **settings: Any
) -> AsyncIterator[tuple[LocalModel, Engine, ModelService]]:
    """A model whose server begins with the same weights; it gives some other answers `first`."""
    async with opened() as same:
        engine = engine_of(same)
    own = settings.pop("server", {})
    # One good answer for the look that is had before anything is asked.
    script: list[Reply] = [engine, *first] if first else []
    with server(engine, *script) as there:
        given = Server(base_url=f"{there.url}/v1", model="base", **own)
        async with opened(server=given, **settings) as model:
            yield model, engine, there


async def said(model: LocalModel, text: str = "S2=", key: int = 0, **request: Any) -> Generation:
    answer = await model.complete(asked(text, **request), Key(key), NoJournal())
    return Generation.from_json(answer.data["generation"])


def here(model: LocalModel, generation: Generation) -> list[float]:
    """Log-probabilities by the weights of this process."""
    scored: list[float] = model.score([generation]).logprobs[0].tolist()
    return scored


def listed(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


# ---------------------------------------------------------------------- what is asked, what is read


@sync
async def test_token_ids_are_sent_and_come_back_with_log_probabilities() -> None:
    async with serving(temperature=1.3) as (model, _, there):
        calls = NoJournal()
        answer = await model.complete(asked("S2="), Key(5), calls)
        generation = Generation.from_json(answer.data["generation"])
        body = there.seen[-1].data
        assert (
            body["prompt"]
            == model.tokenizer.encode(asked("S2=")["messages"])
            == list(generation.prompt)
        )
        assert (body["temperature"], body["top_k"], body["return_token_ids"]) == (1.3, -1, True)
        assert body["stop_token_ids"] == sorted(model.tokenizer.ends)
        assert generation.logprobs == pytest.approx(here(model, generation), abs=1e-5)
        assert (generation.version, generation.temperature) == (0, 1.3)
        assert answer.data["text"] == model.tokenizer.decode(generation.response)
        assert answer.usage.output_tokens == len(generation.response)


@sync
async def test_each_sample_of_a_prompt_has_its_own_fixed_seed() -> None:
    async with serving() as (model, engine, _):
        first = [await said(model, key=key) for key in range(8)]
        assert [await said(model, key=key) for key in range(8)] == first
        assert len({generation.response for generation in first}) > 1
        assert sum(engine.asked.values()) == 1 + 16


@sync
async def test_as_many_requests_are_in_flight_as_there_are_calls() -> None:
    async with serving() as (model, engine, there):
        engine.together = 1 + 64  # none is answered before all are there
        generations = await asyncio.gather(*(said(model, key=key) for key in range(64)))
        assert there.most == 64
    assert all(generations)


@sync
async def test_a_run_begins_with_a_request_that_compares_log_probabilities() -> None:
    notes: dict[str, str] = {}
    async with opened() as same:
        engine = engine_of(same)
        with server(engine) as there:
            settings = Server(base_url=f"{there.url}/v1", model="base")
            context = OpenContext("models.tiny", Key(0), note=notes.__setitem__)
            async with tiny(server=settings).open(context):
                assert sum(engine.asked.values()) == 1
    [text] = notes.values()
    gap = float(text.partition("here by ")[2].partition(" ")[0])
    assert gap < 1e-5


@sync
async def test_without_live_calls_no_request_is_sent() -> None:
    with ModelService(hang()) as there:
        given = Server(base_url=f"{there.url}/v1", model="base", key_env="NO_SUCH_KEY")
        async with tiny(server=given).open(OpenContext("models.tiny", Key(0), live=False)):
            pass
        assert not there.seen


@sync
async def test_the_key_of_the_server_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "sk-engine-51f0a7")
    async with serving(server={"key_env": "ENGINE_KEY"}) as (_, _, there):
        assert there.seen[0].headers["authorization"] == "Bearer sk-engine-51f0a7"


# ---------------------------------------------------------------------- servers that will not do


def changed(change: Callable[[dict[str, Any]], Any], **more: Any) -> Reply:
    """An answer with three tokens, the last of them an end, and something done to it."""

    async def send(seen: Seen, writer: asyncio.StreamWriter) -> None:
        drawn = Completion((5, 6, 2), (-0.5, -1.0, -0.25), True)
        body = completion(seen.data["prompt"], drawn, **more)
        change(body["choices"][0])
        await reply(200, json.dumps(body))(seen, writer)

    return send


def without(name: str) -> Reply:
    return changed(lambda choice: choice.pop(name))


def with_(**fields: Any) -> Reply:
    return changed(lambda choice: choice.update(fields))


def logprobs(*values: float | None) -> Reply:
    return with_(logprobs={"token_logprobs": values})


LIES = {
    "outside the vocabulary": (with_(token_ids=[5, 32, 2]), "the token id 32; ids are from 0"),
    "negative id": (with_(token_ids=[5, -1, 2]), "the token id -1"),
    "lengths differ": (logprobs(-0.5, -1.0), "3 token ids and 2 log-probabilities"),
    "not a number": (logprobs(-0.5, float("nan"), -1.0), "another form than was requested"),
    "no number": (logprobs(-0.5, None, -1.0), "a log-probability that is not one"),
    "above 0": (logprobs(-0.5, 0.7, -1.0), "a log-probability that is not one"),
    "probability 0": (logprobs(-0.5, -9999.0, -1.0), "a log-probability that is not one"),
    "no end": (with_(token_ids=[5, 6, 7]), "an end, but its last token is 7"),
    "on after an end": (with_(token_ids=[5, 2, 2]), "tokens after an end token"),
    "nothing": (with_(token_ids=[], logprobs={"token_logprobs": []}), "0 tokens instead of 1 to 4"),
    "too much": (
        with_(token_ids=[5] * 5, logprobs={"token_logprobs": [-1.0] * 5}, finish_reason="length"),
        "5 tokens instead of 1 to 4",
    ),
    "two answers": (reply(200, {"choices": []}), "0 completions instead of 1"),
    "no JSON": (reply(200, "<html>"), "another form than was requested"),
}


@sync
async def test_a_response_that_cannot_be_right_is_an_error() -> None:
    async with serving(*(lie for lie, _ in LIES.values())) as (model, _, _):
        for name, (_, reason) in LIES.items():
            with pytest.raises(CallError, match=reason) as caught:
                await said(model)
            assert caught.value.fault == "malformed", name


UNFIT = {
    "no token ids": (without("token_ids"), "`return_token_ids`.*vLLM from 0.10.2.*SGLang"),
    "no log-probabilities": (without("logprobs"), "`logprobs`.*--max-logprobs"),
    "another prompt": (with_(prompt_token_ids=[1, 2]), "is not the one that it was sent"),
}


@sync
async def test_a_server_that_lacks_a_field_is_refused_for_good() -> None:
    async with serving(*(answer for answer, _ in UNFIT.values())) as (model, _, _):
        for _, reason in UNFIT.values():
            with pytest.raises(CallError, match=reason) as caught:
                await said(model)
            assert caught.value.fault == "permanent"
    with ModelService(*(answer for answer, _ in UNFIT.values())) as there:
        given = Server(base_url=f"{there.url}/v1", model="base")
        for _, reason in UNFIT.values():
            with pytest.raises(UsageError, match=rf"^models\.tiny\.server: .*{reason}"):
                async with opened(server=given):
                    pass


@sync
async def test_a_server_that_cannot_be_reached_is_an_error_before_the_run() -> None:
    with ModelService(hang()) as there:
        url = there.url
    given = Server(base_url=f"{url}/v1", model="base")
    with pytest.raises(UsageError, match=r"models\.tiny\.server: .* cannot be reached"):
        async with opened(server=given):
            pass
    with ModelService(hang()) as there:
        given = Server(base_url=f"{there.url}/v1", model="base", timeout=0.05)
        with pytest.raises(UsageError, match=r"did not respond within 0\.05 s"):
            async with opened(server=given):
                pass


@sync
async def test_transient_errors_are_retried() -> None:
    busy = reply(429, {"error": {"message": "slow down"}})
    down = reply(503, {"error": {"message": "loading"}})
    aborted = with_(finish_reason="abort")
    async with serving(busy, cut(b"{}", 0), down, aborted) as (model, _, there):
        retry = RetrySettings(base=0.0, overload_base=0.0, cap=0.0, attempts=5)
        engine = engine_for({"a": ScriptedAgent()}, Fixed(), calls=CallPath(retry=retry))
        answer = await model.complete(asked("S2="), Key(0), ActivationCalls(engine, Key(3)))
        assert len(there.seen) == 1 + 5
        generation = Generation.from_json(answer.data["generation"])
        assert generation.logprobs == pytest.approx(here(model, generation), abs=1e-5)


# ---------------------------------------------------------------------- weights


@sync
async def test_each_version_of_an_adapter_is_loaded_under_its_own_name(
    tmp_path: Path,
) -> None:
    settings = {"server": {"sync": "lora", "folder": str(tmp_path)}, "lora": Lora(rank=2)}
    async with serving(**settings) as (model, engine, _):
        generation = await said(model)
        assert not engine.loaded, "a fresh adapter changes nothing"
        assert generation.logprobs == pytest.approx(here(model, generation), abs=1e-5)
        for version in (1, 2):
            before = here(model, generation)
            learn(model, 4)
            generations = await asyncio.gather(*(said(model, key=key) for key in range(9)))
            for sample in generations:
                assert sample.version == version
                assert sample.logprobs == pytest.approx(here(model, sample), abs=1e-5)
            assert here(model, generation) != pytest.approx(before, abs=1e-3)
            [name] = engine.serves - {"base"}
            assert name.startswith(f"tiny-v{version}-")
            assert listed(tmp_path) == [name]
        assert len(engine.loaded) == 2, "once for all who ask"


@sync
async def test_an_adapter_on_a_trained_base_is_an_error(tmp_path: Path) -> None:
    own = {"sync": "lora", "folder": str(tmp_path)}
    async with opened("models.base") as base:
        settings = {"server": own, "base": base, "lora": Lora(rank=2), "at": "models.one.x"}
        async with serving(**settings) as (model, _, _):
            learn(model, 4)
            generation = await said(model)
            assert generation.logprobs == pytest.approx(here(model, generation), abs=1e-5)
            assert generation.version == 1
            base.updated()
            with pytest.raises(CallError, match=r"an adapter on base, which was trained"):
                await said(model)


@sync
async def test_an_adapter_is_loaded_again_only_if_the_server_has_lost_it(
    tmp_path: Path,
) -> None:
    settings = {"server": {"sync": "lora", "folder": str(tmp_path)}, "lora": Lora(rank=2)}
    async with serving(**settings) as (model, engine, _):
        learn(model)
        # As a run left it that was killed: the same weights have the same name.
        left = Exports(model, str(tmp_path)).adapter(1)
        engine._load(left.name, str(left))
        assert (await said(model)).version == 1
        assert engine.loaded == [left.name]
        engine.restart()
        with pytest.raises(CallError, match="has lost tiny-v1-") as caught:
            await said(model)
        assert caught.value.fault == "transient"
        assert (await said(model)).version == 1
        assert engine.loaded == [left.name] * 2


@sync
async def test_with_sync_disk_the_whole_model_is_sent_before_the_first_request(
    tmp_path: Path,
) -> None:
    own = {"sync": "disk", "folder": str(tmp_path)}
    # The server had weights of another seed before; adapters are merged into the model.
    async with serving(server=own, seed=7, lora=Lora(rank=2)) as (model, engine, _):
        for version in (0, 1):
            generation = await said(model)
            assert generation.version == version
            assert generation.logprobs == pytest.approx(here(model, generation), abs=1e-5)
            assert listed(tmp_path) == [engine.weights]
            learn(model, 4)
        await said(model)
        engine.weights = "somebody else's"
        with pytest.raises(CallError, match="has other weights") as caught:
            await said(model)
        assert caught.value.fault == "transient"
        assert (await said(model)).version == 2
        assert engine.weights.startswith("tiny-v2-")


@sync
async def test_without_sync_responses_have_version_0() -> None:
    async with serving() as (model, _, _):
        first = await said(model)
        learn(model)
        assert (model.version, await said(model)) == (1, first)


@sync
async def test_a_missing_endpoint_for_weights_is_an_error_with_the_remedy(
    tmp_path: Path,
) -> None:
    for way, needed in (("lora", "--enable-lora"), ("disk", "update_weights_from_disk")):
        own = {"sync": way, "folder": str(tmp_path)}
        missing = reply(404, {"detail": "Not Found"})
        async with serving(missing, server=own, lora=Lora(rank=2)) as (model, _, _):
            learn(model)
            with pytest.raises(CallError, match=needed) as caught:
                await said(model)
            assert caught.value.fault == "permanent"


@sync
async def test_written_weights_are_readable_by_others_and_named_by_their_content(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ordinary").touch()
    mode = (tmp_path / "ordinary").stat().st_mode
    async with opened(seed=1, lora=Lora(rank=2)) as first, opened(seed=2) as second:
        capfd.readouterr()
        exports = [
            Exports(model, str(tmp_path / name))
            for name, model in (("a", first), ("b", first), ("c", second))
        ]
        for folder in (exports[0].adapter(1), exports[0].whole(1)):
            assert {file.stat().st_mode for file in folder.iterdir()} == {mode}
        names = [each.whole(3).name for each in exports]
    assert names[0] == names[1] != names[2]
    assert capfd.readouterr().err == "", "no progress bar"


# ---------------------------------------------------------------------- settings


def test_server_settings_that_contradict_each_other_are_an_error() -> None:
    address = {"base_url": "http://127.0.0.1:8000/v1", "model": "m"}
    for settings, reason in (
        ({"sync": "lora"}, "needs a folder that the server sees"),
        ({"folder": "x"}, "has no effect with"),
        ({"base_url": "127.0.0.1:8000"}, "must be an address like"),
        ({"base_url": "http://me:secret@127.0.0.1/v1"}, "without password"),
    ):
        with pytest.raises(ValueError, match=reason):
            Server(**{**address, **settings})  # type: ignore[arg-type]
    lora = Server(**address, sync="lora", folder="x")  # type: ignore[arg-type]
    for more, reason in (
        ({"server": lora}, "needs a `lora`"),
        ({"server": Server(**address), "batch": 8}, "have no effect with it"),  # type: ignore[arg-type]
        ({"server": Server(**address), "overlap": True}, "have no effect"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=reason):
            asyncio.run(_open(more))


async def _open(settings: dict[str, Any]) -> None:
    async with opened(**settings):
        pass


@sync
async def test_a_model_with_a_server_cannot_be_mixed() -> None:
    given = Server("http://127.0.0.1:8000/v1", "m")
    async with opened() as model:
        there = PlannedModel(tiny(server=given), 4)
        for other in (there, PlannedModel(HF(base=there), 4)):
            mixture = Mixture([PlannedModel(model.settings, 4), other])
            with pytest.raises(UsageError, match=r"members\[1\]: has a `server`"):
                async with mixture.open(OpenContext("models.m", Key(0), trial=True)):
                    pass
