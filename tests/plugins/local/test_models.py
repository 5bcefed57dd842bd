"""What local models keep, share and refuse; mixtures; merging; devices."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from click.testing import CliRunner
from orchestrion_local.devices import Place, Torch
from orchestrion_local.hf import HF, PlannedModel
from orchestrion_local.interfaces import Generation
from orchestrion_local.merging import merge
from orchestrion_local.mixture import Mixture
from orchestrion_local.optimizing import WeightOptimizer
from orchestrion_local.runtime import LocalModel
from orchestrion_local.settings import Architecture, Lora, Optimizer
from orchestrion_local.sft import Sft
from orchestrion_local.sizes import parse_size

from orchestrion import (
    Answer,
    CallError,
    CheckpointError,
    Key,
    Model,
    OpenContext,
    RunError,
    Saved,
    Usage,
    UsageError,
)
from tests.end_to_end.support import EXAMPLES
from tests.plugins.local.support import ALPHABET, TINY, NoJournal, asked, opened, seven, sync


def learn(
    model: LocalModel, steps: int = 3, optimizer: WeightOptimizer | None = None, **settings: Any
) -> WeightOptimizer:
    """Some steps towards saying "7" to "S2="."""
    example = seven(model)
    if optimizer is None:
        chosen = Optimizer(**{"learning_rate": 0.01, **settings})
        optimizer = WeightOptimizer(model, chosen, steps)
    for _ in range(steps):
        optimizer.zero()
        optimizer.backward(-model.score([example]).logprobs.sum())
        optimizer.step()
    model.updated()
    return optimizer


def chance(model: LocalModel) -> float:
    """How likely the model is to say what `learn` teaches."""
    example = seven(model)
    with torch.no_grad():
        return float(model.score([example]).logprobs.sum().exp())


@sync
async def test_bfloat16_weights_learn_what_float32_weights_learn() -> None:
    # Steps of a ten-thousandth are below the last bit of most bfloat16 weights.
    learned = {}
    for dtype in ("float32", "bfloat16"):
        async with opened(dtype=dtype) as model:
            # Of positions: rounded, they would be wrong in a long context.
            assert {buffer.dtype for buffer in model.module.buffers()} == {torch.float32}
            before = chance(model)
            optimizer = learn(model, steps=40, learning_rate=1e-4)
            learned[dtype] = chance(model) / before
            assert {weight.dtype for _, weight in model.parameters()} == {getattr(torch, dtype)}
            # Half of the steps, then the other half from what was kept, is the same to the bit.
            async with opened(dtype=dtype) as halves, opened(dtype=dtype) as rest:
                first = learn(halves, steps=20, learning_rate=1e-4)
                rest.load(halves.save())
                assert (rest.save(), rest.version) == (halves.save(), 1)
                second = WeightOptimizer(rest, Optimizer(learning_rate=1e-4), 40)
                second.load(first.save())
                assert second.save() == first.save()
                learn(rest, steps=20, optimizer=second)
                assert second.save() == optimizer.save()
                assert rest.save().arrays == model.save().arrays
    assert learned["float32"] > 1.3
    assert learned["bfloat16"] == pytest.approx(learned["float32"], rel=0.1)


@sync
async def test_training_float16_weights_is_an_error() -> None:
    async with opened(dtype="float16") as model:
        with pytest.raises(RunError, match="dtype: bfloat16"):
            learn(model)


@sync
async def test_a_checkpoint_of_untrained_weights_is_a_digest(tmp_path: Path) -> None:
    await saved_to(tmp_path / "base", 1)
    async with opened("models.m", path=str(tmp_path / "base")) as model:
        model.anchor()
        untrained = model.save()
        assert not untrained.arrays
        learn(model)
        trained = model.save()
        reference = [name for name in trained.arrays if name.startswith("anchor/")]
        assert trained.arrays
        assert not reference
    async with opened("models.m", path=str(tmp_path / "base")) as other:
        other.load(untrained)
        assert other.save() == untrained
        other.load(trained)
        assert other.save() == trained
    await saved_to(tmp_path / "base", 2)
    async with opened("models.m", path=str(tmp_path / "base")) as changed:
        with pytest.raises(CheckpointError, match="are not those that the checkpoint was made"):
            changed.load(untrained)


@sync
async def test_a_checkpoint_of_another_shape_is_refused() -> None:
    wider = Architecture(layers=1, width=32, heads=2, context=32)
    async with opened() as model, opened(architecture=wider, alphabet=ALPHABET) as other:
        with pytest.raises(CheckpointError, match=r"has no .* of shape"):
            other.load(model.save())


@sync
async def test_the_reference_has_the_weights_of_the_anchor() -> None:
    async with opened() as model:
        response = Generation(
            "tiny", 0, tuple(model.tokenizer.encode(asked("ab")["messages"])), (5, 2), (0.0, 0.0)
        )
        learn(model)
        model.anchor()
        before = model.score([response]).logprobs
        learn(model)
        after = model.score([response]).logprobs
        with model.reference():
            assert torch.equal(model.score([response]).logprobs, before)
        kept = model.save()
        async with opened() as other:
            other.load(kept)
            assert torch.equal(other.score([response]).logprobs, after)
            with other.reference():
                assert torch.equal(other.score([response]).logprobs, before)
        assert torch.equal(model.score([response]).logprobs, after)
    assert not torch.equal(before, after)


@sync
async def test_adapters_on_one_base_do_not_change_each_other() -> None:
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(opened("models.base"))
        lora = Lora(rank=2)
        models = [
            await stack.enter_async_context(opened(f"models.{name}", base=base, lora=lora))
            for name in ("one", "two")
        ]
        began = [model.save() for model in (base, *models)]

        async def said(model: LocalModel) -> Any:
            answer = await model.complete(asked("S2=", temperature=0), Key(0), NoJournal())
            return answer.data["generation"]["logprobs"]

        before = await said(base)
        assert await said(models[0]) == before  # a fresh adapter changes nothing
        learn(models[0], 20)
        assert models[0].save() != began[1]
        assert [base.save(), models[1].save()] == [began[0], began[2]]
        assert await said(base) == before == await said(models[1])
        answer = await models[0].complete(asked("S2=", temperature=0), Key(0), NoJournal())
        assert answer.data["text"] == "7"


@sync
async def test_a_loaded_adapter_samples_the_same_bits_as_the_trained_one() -> None:
    """As after a run was resumed, where nothing was trained before."""
    shape = Architecture("gpt2", layers=1, width=16, heads=2, context=16)
    tiny: dict[str, Any] = {"architecture": shape, "alphabet": ALPHABET}

    async def said(model: LocalModel) -> list[Any]:
        wanted = [asked(f"S{i}+{i % 3}=", max_tokens=8) for i in range(10)]
        calls = [
            model.complete(request, Key(0).child(i), NoJournal())
            for i, request in enumerate(wanted)
        ]
        return [answer.data["generation"] for answer in await asyncio.gather(*calls)]

    answers = []
    saved: list[Saved] = []
    for trained in (True, False):
        async with (
            opened("models.base", **tiny) as base,
            opened("models.one", base=base, lora=Lora(rank=2)) as adapter,
        ):
            if trained:
                learn(base, 5)
                saved = [base.save(), adapter.save()]
            else:
                base.load(saved[0])
                adapter.load(saved[1])
            answers.append(await said(adapter))
    assert answers[0] == answers[1]


@sync
async def test_an_adapter_on_an_adapter_is_an_error() -> None:
    lora = Lora(rank=2)
    async with (
        opened("models.base") as base,
        opened("models.one", base=base, lora=lora) as adapter,
        opened("models.alias", base=adapter, max_tokens=None) as alias,
        opened("models.copy", base=adapter, copy=True) as copied,
        opened("models.two", base=copied, lora=lora) as two,
    ):
        assert alias is adapter
        assert two.root is copied
        for trial in (False, True):
            for given in (adapter, alias):
                context = OpenContext("models.three", Key(0), trial=trial)
                below = PlannedModel(given.settings, 4) if trial else given
                with pytest.raises(UsageError, match=r"models\.three\.base: is an adapter"):
                    async with HF(base=below, lora=lora).open(context):
                        pass


@sync
async def test_a_copy_of_a_copy_takes_memory_of_the_same_device() -> None:
    async with (
        Torch(memory="300 KB").open(OpenContext("devices.d", Key(0))) as place,
        opened("models.a", device=place) as a,
        opened("models.b", base=a, copy=True) as b,
        opened("models.c", base=b, copy=True),
    ):
        assert isinstance(place, Place)
        assert list(place.taken) == ["a", "b", "c"]
        assert len(set(place.taken.values())) == 1


@sync
async def test_max_tokens_is_half_of_a_small_context() -> None:
    shape = Architecture("gpt2", layers=1, width=16, heads=2, context=16)
    settings = HF(architecture=shape, alphabet=ALPHABET)
    assert settings.sampling().max_tokens == 8
    assert HF(base=PlannedModel(settings, 8), copy=True).sampling().max_tokens == 8
    assert evolve(settings, max_tokens=3).sampling().max_tokens == 3
    async with settings.open(OpenContext("models.m", Key(0))) as model:
        answer = await model.complete(asked("S2="), Key(0), NoJournal())
        assert len(answer.data["generation"]["response"]) <= 8


@sync
async def test_a_response_of_a_teacher_that_does_not_fit_the_context_is_an_error() -> None:
    class Talking(Model):
        async def complete(self, request: Any, key: Key, calls: Any) -> Answer:
            return Answer({"text": "1" * 40, "stop": "end"}, Usage())

    async with opened() as model:
        with model.answered_by(Talking()), pytest.raises(CallError, match="a context of 32"):
            await model.complete(asked("S2="), Key(0), NoJournal())


def test_settings_without_effect_beside_data_are_an_error() -> None:
    model = PlannedModel(HF(architecture=TINY, alphabet=ALPHABET), 4)
    for settings in ({"keep": "solved"}, {"episodes": 9}):
        (name,) = settings
        with pytest.raises(ValueError, match=f"{name}: does nothing beside `data`"):
            Sft([model], data=Path("x.jsonl"), **settings)


def test_settings_that_contradict_each_other_are_an_error() -> None:
    for settings, reason in (
        ({}, "give one of"),
        ({"path": "x", "architecture": TINY}, "give one of"),
        ({"architecture": TINY}, "needs an `alphabet` or a `tokenizer`"),
        ({"path": "x", "alphabet": "ab"}, "`alphabet` needs `architecture`"),
        ({"architecture": TINY, "alphabet": "aa"}, "a character is listed twice"),
    ):
        with pytest.raises(ValueError, match=reason):
            HF(**settings)
    with pytest.raises(ValueError, match="multiple of heads"):
        Architecture(width=10, heads=4)


def test_a_missing_model_is_an_error_with_its_path(tmp_path: Path) -> None:
    async def go() -> None:
        async with HF(path=str(tmp_path)).open(OpenContext("models.m", Key(0))):
            pass

    with pytest.raises(RunError, match=f"models.m: {tmp_path} cannot be loaded"):
        asyncio.run(go())


@sync
async def test_a_model_that_does_not_fit_its_device_is_an_error_that_names_the_others() -> None:
    tiny: dict[str, Any] = {"architecture": TINY, "alphabet": ALPHABET}
    settings = Optimizer()
    async with (
        Torch(memory="80 KB").open(OpenContext("devices.small", Key(0))) as place,
        opened(**tiny, device=place) as first,
        # Who is not trained needs no gradients and moments.
        opened("models.second", **tiny, device=place) as second,
    ):
        WeightOptimizer(first, settings, 1)
        with pytest.raises(
            RunError, match=r"small: second's optimizer needs .*\(taken: tiny .* KB,"
        ):
            WeightOptimizer(second, settings, 1)
        with pytest.raises(RunError, match=r"devices.small: third needs .*\(taken: tiny"):
            async with opened("models.third", **tiny, device=place):
                pass
    assert [parse_size(size) for size in ("1 KB", "1.5GB", "7B")] == [1024, 1610612736, 7]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@sync
async def test_a_missing_gpu_is_named() -> None:
    with pytest.raises(RunError, match="torch sees 0 GPUs and no cuda"):
        async with Torch("cuda").open(OpenContext("devices.gpu", Key(0))):
            pass


@sync
async def test_a_mixture_samples_from_the_mean_of_its_members() -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(opened("models.a", seed=1))
        second = await stack.enter_async_context(opened("models.b", seed=2))
        learn(first, 4)
        prompt = first.tokenizer.encode(asked("S2=")["messages"])
        with torch.no_grad():
            shares = [
                model.module(torch.tensor([prompt])).logits[0, -1].double().softmax(0)
                for model in (first, second)
            ]
        wanted = 0.75 * shares[0] + 0.25 * shares[1]
        for mode in ("average", "draw"):
            settings = Mixture([first, second], weights=[3, 1], mode=mode, max_tokens=1)
            mixed = await stack.enter_async_context(
                settings.open(OpenContext(f"models.{mode}", Key(0)))
            )
            count = 1500
            answers = await asyncio.gather(
                *(mixed.complete(asked("S2="), Key(i), NoJournal()) for i in range(count))
            )
            for i, character in enumerate(ALPHABET):
                share = sum(answer.data["text"] == character for answer in answers) / count
                error = (wanted[i + 3] * (1 - wanted[i + 3]) / count).sqrt()
                assert abs(share - wanted[i + 3]) < 4.5 * error + 1e-3


@sync
async def test_models_with_different_tokenizers_cannot_be_mixed() -> None:
    async with (
        opened("models.a") as first,
        opened("models.b", architecture=TINY, alphabet="ab") as second,
    ):
        with pytest.raises(UsageError, match="b has another tokenizer than a"):
            async with Mixture([first, second]).open(OpenContext("models.m", Key(0))):
                pass


async def saved_to(folder: Path, seed: int, steps: int = 0) -> None:
    async with opened(f"models.m{seed}", seed=seed) as model:
        if steps:
            learn(model, steps)
        model.module.save_pretrained(str(folder))
        model.tokenizer.save(str(folder))


saved = sync(saved_to)


def test_transformers_loads_a_merged_model(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for seed in (1, 2):
        saved(tmp_path / f"m{seed}", seed)
    sources = [str(tmp_path / "m1"), str(tmp_path / "m2")]
    out = tmp_path / "out"
    words = [*sources, "--output", str(out), "--weights", "3,1"]
    done = CliRunner().invoke(merge, words, standalone_mode=False)
    assert done.exception is None
    folders = (*sources, str(out))
    parts = [AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in folders]
    for name, merged in parts[2].items():
        assert torch.allclose(merged, 0.75 * parts[0][name] + 0.25 * parts[1][name], atol=1e-6)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer("aS2", add_special_tokens=False)["input_ids"] == [
        3 + ALPHABET.index(character) for character in "aS2"
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--method", "ties"], "needs --base"),
        (["--base", "x"], "--base has no effect with --method linear; remove it"),
        (["--t", "0.5"], "--t has no effect with --method linear; remove it"),
        (["--weights", "1"], "give one for each of 2 models, got 1"),
        (["--weights", "a,b"], "expected numbers like 0.7,0.3"),
        (["--method", "slerp"], "takes two models, and --t"),
    ],
)
def test_options_without_effect_are_refused(tmp_path: Path, words: list[str], reason: str) -> None:
    done = CliRunner().invoke(merge, ["a", "b", "--output", str(tmp_path / "o"), *words])
    assert isinstance(done.exception, UsageError)
    assert reason in str(done.exception)


def test_only_trained_models_are_exported(tmp_path: Path) -> None:
    config = tmp_path / "team.yaml"
    config.write_text((EXAMPLES / "marl.yaml").read_text())
    for words, reason in (
        ([f"{config}:v"], "is a config, without trained models"),
        (["a", "--weights", "2"], "--weights has no effect with one model; remove it"),
    ):
        done = CliRunner().invoke(merge, [*words, "--output", str(tmp_path / "o")])
        assert isinstance(done.exception, UsageError)
        assert reason in str(done.exception)


def test_an_unusable_example_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "said.jsonl"

    async def go() -> None:
        context = OpenContext("trainer", Key(0), names={"models": ("m",)})
        async with opened("models.m") as model, Sft([model], data=path).open(context):
            pass

    good = json.dumps({"model": "m", "messages": [{"role": "user", "content": "S2="}], "text": "7"})
    path.write_text(good)
    asyncio.run(go())
    for text, reason in (
        (good + "\n{", r"said.jsonl:2: expected"),
        ('{"model": "m"}', "said.jsonl:1: expected"),
        (good.replace('"m"', '"x"'), "said.jsonl:1: 'x' is none of m"),
        (good.replace('"m"', '["m"]'), "said.jsonl:1: expected"),
        (good.replace('"7"', "7"), "said.jsonl:1: expected"),
        (good.replace('"content"', '"contents"'), "said.jsonl:1: expected"),
        (good.replace('"7"', '"&"'), "said.jsonl:1: .*has no '&'"),
        (good.replace("S2=", "2" * 40), "said.jsonl:1: .*do not fit a context of 32"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=reason):
            asyncio.run(go())


# ------------------------------------------------------------------------------ embedding


@sync
async def test_the_vector_of_a_text_does_not_depend_on_other_texts() -> None:
    async with opened() as model:
        both = await model.embed(["S2=", "7"], NoJournal())
        alone = await model.embed(["7"], NoJournal())
        assert [len(vector) for vector in both.data["vectors"]] == [TINY.width, TINY.width]
        assert both.data["vectors"][1] == alone.data["vectors"][0]
        assert both.data["vectors"][0] != both.data["vectors"][1]
        with pytest.raises(CallError, match="context of 32"):
            await model.embed(["7" * 40], NoJournal())
        assert model.embedding_ceiling(5) == Usage(1, 5)
