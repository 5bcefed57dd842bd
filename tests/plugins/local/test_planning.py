"""What runs of large models would take, reckoned from config.json; no weights are loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from orchestrion_local.command import devices
from orchestrion_local.memory import SPARE
from orchestrion_local.networks import KNOWN, Network
from orchestrion_local.planning import DevicePlan, gpus_of, plan_of

from orchestrion import RunError, UsageError
from orchestrion.config import from_data
from tests.end_to_end.support import EXAMPLES

GB = 2**30


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
    ],
)
def test_well_known_models_have_the_published_number_of_weights(name: str, published: int) -> None:
    network = Network.from_config(KNOWN[name])
    assert network is not None
    assert network.weights == published


def team(
    models: dict[str, Any], devices: dict[str, Any], of: tuple[str, str], **marl: Any
) -> dict[str, Any]:
    """Two agents that play `lookup`, and name their models."""
    names = dict(zip(("verifier", "answerer"), of, strict=True))
    return {
        "task": {"use": "lookup"},
        "devices": devices,
        "models": models,
        "agents": {
            name: {"use": "prompted", "model": model, "prompt": "{problem}"}
            for name, model in names.items()
        },
        "policy": {"use": "sequence", "steps": ["verifier", "answerer"]},
        "trainer": {"use": "marl", "models": sorted(set(of)), **marl},
    }


def planned(data: dict[str, Any], gpus: str | None = "1x80GiB") -> list[DevicePlan]:
    return plan_of(from_data(data), gpus_of(gpus) if gpus else None)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder with nothing but the config.json of a model of 3 billion weights."""
    place = tmp_path / "model"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(KNOWN["qwen2.5-3b"]))
    return str(place)


def large(folder: str, **settings: Any) -> dict[str, Any]:
    return {
        "use": "hf",
        "path": folder,
        "dtype": "bfloat16",
        "device": "gpu",
        "context": 4096,
        "gradient_checkpointing": True,
        **settings,
    }


def test_two_agents_share_one_model(folder: str) -> None:
    gpu = {"use": "torch", "name": "cuda"}
    (plan,) = planned(team({"m": large(folder)}, {"gpu": gpu}, ("m", "m")))
    (model,) = plan.models
    assert model.learns
    assert model.samples
    # A weight and its master, gradient and two moments: 18 bytes, by hand.
    assert model.footprint.weights + model.state == 3_085_938_688 * 18
    # A row of states of each layer, one layer's own, gradients on their way, and logits.
    layer = 2 * 2048 * 8 + 4 * 2048 * 2 + 4 * 11008 * 2 + 4096 * 2 + 16 * 4 + 8
    token = 36 * 2048 * 2 + layer + (2 * 2048 + 4 * 11008) * 2
    logits = 5 * 4 * (2**25 // 151_936) * 151_936
    assert model.footprint.training(16_384) == 16_384 * token + logits
    assert plan.micro_batch(model) == 16_384
    assert plan.lacking is None
    # Sampling has the rest: the batch is halved until it fits.
    completion = 4096 * (36 * 2 * 256 + 2 * 2048 + 3 * 11008) * 2 + 28 * 151_936
    assert plan.most == (3_085_938_688 * 18 + 32 * completion, "while m samples")
    assert 64 * completion > (1 - SPARE) * (80 * GB - 3_085_938_688 * 18)


def test_a_model_apart_for_each_agent(folder: str) -> None:
    pair = {f"gpu{i}": {"use": "torch", "name": f"cuda:{i}"} for i in (0, 1)}
    models = {f"m{i}": large(folder, device=f"gpu{i}") for i in (0, 1)}
    data = team(models, pair, ("m0", "m1"))
    plans = planned(data, "2x80GiB")
    assert [(plan.name, [model.name for model in plan.models]) for plan in plans] == [
        ("gpu0", ["m0"]),
        ("gpu1", ["m1"]),
    ]
    assert all(plan.lacking is None for plan in plans)
    with pytest.raises(UsageError, match=r"devices\.gpu1: cuda:1 is number 2 of 1 GPUs"):
        planned(data, "1x80GiB")


def test_models_together_fit_if_they_take_turns(folder: str) -> None:
    models = {"m0": large(folder), "m1": large(folder)}
    gpu = {"use": "torch", "name": "cuda"}
    (plan,) = planned(team(models, {"gpu": gpu}, ("m0", "m1")))
    with pytest.raises(RunError, match=r"at least 10\d\.\d GB .* has 80\.0 GB; it would fit with "):
        plan.check()
    assert plan.remedy() == "it would fit with `offload: cpu` on the device"
    (turns,) = planned(team(models, {"gpu": {**gpu, "offload": "cpu"}}, ("m0", "m1")))
    turns.check()
    assert turns.most[0] < 80 * GB
    # While it samples, a model's optimizer is away: there is room for its batch.
    sampling = turns.room(turns.models[0], False)
    learning = turns.room(turns.models[0], True)
    assert sampling is not None
    assert learning is not None
    assert sampling - learning == turns.models[0].state


def test_what_is_too_small_is_refused_with_what_would_help(folder: str) -> None:
    gpu = {"use": "torch", "name": "cuda"}

    def refusal(memory: str, **settings: Any) -> str:
        model = large(folder, **settings)
        (plan,) = planned(team({"m": model}, {"gpu": gpu}, ("m", "m")), f"1x{memory}")
        with pytest.raises(RunError) as refused:
            plan.check()
        return str(refused.value)

    assert "it would fit with `gradient_checkpointing: true` on the models" in refusal(
        "62GiB", gradient_checkpointing=False
    )
    assert "while m learns, and cuda has 24.0 GB; it would fit with a `lora: {rank: 16}`" in (
        refusal("24GiB")
    )
    assert "use a smaller model, or" in refusal("4GiB")
    data = team({"m": large(folder)}, {"gpu": gpu}, ("m", "m"), micro_batch=1_000_000)
    (plan,) = planned(data)
    with pytest.raises(RunError, match="no `micro_batch` and no `batch`"):
        plan.check()


def test_adapters_are_beside_one_base_and_a_server_takes_what_is_sampled(folder: str) -> None:
    server = {"base_url": "http://127.0.0.1:1/v1", "model": "x", "sync": "none"}
    models = {
        "base": large(folder),
        "m0": {"use": "hf", "base": "base", "lora": {"rank": 16}},
        "m1": {"use": "hf", "base": "base", "lora": {"rank": 16}, "server": server},
    }
    gpu = {"use": "torch", "name": "cuda"}
    (plan,) = planned(
        team(models, {"gpu": gpu}, ("m0", "m1"), iterations=1, max_staleness=0), "1x40GiB"
    )
    plan.check()
    assert [(model.name, model.learns, model.samples) for model in plan.models] == [
        ("base", False, False),
        ("m0", True, True),
        ("m1", True, False),
    ]
    assert plan.models[0].state == 0
    # rank x (inputs + outputs) of seven matrices in 36 layers, four bytes each.
    ends = (2048 + 2048) * 2 + (2048 + 256) * 2 + (2048 + 11008) * 3
    assert plan.models[1].footprint.weights == 36 * 16 * ends * 4


def test_the_command_refuses_what_does_not_fit_or_is_unclear(folder: str, tmp_path: Path) -> None:
    gpu = {"use": "torch", "name": "cuda"}
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps(team({"m": large(folder)}, {"gpu": gpu}, ("m", "m"))))
    words = ["--plan", str(path), "--gpus"]
    refused = CliRunner().invoke(devices, [*words, "1x40GiB", "--json"])
    assert isinstance(refused.exception, RunError)
    assert not json.loads(refused.output)["devices"][0]["fits"]
    for claim in ("80GiB", "2x80", "x"):
        unclear = CliRunner().invoke(devices, [*words, claim])
        assert isinstance(unclear.exception, UsageError)


RANKS = """\
model  device  what                                          memory   when
m      gpu     weights, 3.09 B bfloat16                      5.7 GB   always
m      gpu     layers in use, each of 4 ranks                3.5 GB   always
m      gpu     optimizer, weights in parts, each of 4 ranks  11.5 GB  always
m      gpu     micro-batch of 16384 tokens, each of 4 ranks  6.6 GB   while it learns
m      gpu     batch of 128 completions of 4096 tokens       54.8 GB  while it samples

gpu (cuda): at most 75.5 GB of 80.0 GB, while m samples
each further GPU with a rank: at most 21.5 GB
m: a thousand tokens take 6.17 TFLOP to read or sample and 24.7 to learn from: 1.03 minutes for \
a million tokens to learn from
"""
SHARED_RANKS = """\
model  device  what                                              memory    when
b      gpu     weights, 3.09 B bfloat16                          5.7 GB    always
b      gpu     weights in parts, layers in use, each of 2 ranks  3.7 GB    always
m      gpu     adapter of rank 8, 14.97 M                        57.1 MB   always
m      gpu     optimizer, weights in parts, each of 2 ranks      114.2 MB  always
m      gpu     micro-batch of 16384 tokens, each of 2 ranks      7.4 GB    while it learns
m      gpu     batch of 128 completions of 4096 tokens           54.8 GB   while it samples

gpu (cuda): at most 64.4 GB of 80.0 GB, while m samples
each further GPU with a rank: at most 11.3 GB
m: a thousand tokens take 6.17 TFLOP to read or sample and 18.5 to learn from: 0.771 minutes for \
a million tokens to learn from
"""
TURNS = """\
model  device  what                                     memory   when
b      gpu     weights, 3.09 B bfloat16                 5.7 GB   its turns
m      gpu     adapter of rank 8, 4.94 M                18.8 MB  its turns
m      gpu     optimizer                                56.5 MB  while it learns
m      gpu     micro-batch of 16384 tokens              6.8 GB   while it learns
m      gpu     batch of 128 completions of 4096 tokens  54.8 GB  while it samples
n      gpu     weights, 3.09 B float32                  11.5 GB  its turns
n      gpu     optimizer                                34.5 GB  while it learns
n      gpu     micro-batch of 2048 tokens               19.0 GB  while it learns
n      gpu     batch of 256 completions of 1024 tokens  55.3 GB  while it samples

gpu (cuda): at most 66.8 GB of 80.0 GB, while n samples
m: a thousand tokens take 6.17 TFLOP to read or sample and 18.5 to learn from: 0.771 minutes for \
a million tokens to learn from
n: a thousand tokens take 6.17 TFLOP to read or sample and 18.5 to learn from: 0.771 minutes for \
a million tokens to learn from
"""


@pytest.mark.parametrize(
    ("models", "of", "offload", "gpus", "text"),
    [
        ({"m": {"ranks": 4}}, "mm", None, "4x80GiB", RANKS),
        (
            {"b": {"ranks": 2}, "m": {"base": "b", "lora": {"rank": 8}}},
            "mm",
            None,
            "2x80GiB",
            SHARED_RANKS,
        ),
        (
            {
                "b": {},
                "m": {"base": "b", "lora": {"rank": 8, "targets": ["q_proj", "down_proj"]}},
                "n": {"gradient_checkpointing": False, "dtype": "float32", "context": 1024},
            },
            "mn",
            "cpu",
            "1x80GiB",
            TURNS,
        ),
    ],
    ids=["ranks", "adapters share ranks", "turns"],
)
def test_a_plan_says_what_lives_where_and_when(
    models: dict[str, Any],
    of: str,
    offload: str | None,
    gpus: str,
    text: str,
    folder: str,
    tmp_path: Path,
) -> None:
    made = {
        name: {"use": "hf", **own} if "base" in own else large(folder, **own)
        for name, own in models.items()
    }
    gpu = {"use": "torch", "name": "cuda", "offload": offload}
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps(team(made, {"gpu": gpu}, (of[0], of[1]))))
    words = ["--plan", str(path), "--gpus", gpus, "--tflops", "400"]
    assert CliRunner().invoke(devices, words).output == text


def test_a_processor_has_the_memory_that_is_set_or_what_is_free(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrion_local.planning.free_memory", lambda: 7 * GB)
    for memory, expected in (("9 GB", 9 * GB), (None, 7 * GB)):
        processor = {"use": "torch", "memory": memory}
        (plan,) = planned(team({"m": large(folder, device="p")}, {"p": processor}, ("m", "m")))
        assert plan.memory == expected


def test_what_cannot_be_reckoned_is_an_error(tmp_path: Path) -> None:
    gpu = {"use": "torch", "name": "cuda"}
    with pytest.raises(UsageError, match=r"models\.m\.path: there is no config\.json in"):
        planned(team({"m": large(str(tmp_path))}, {"gpu": gpu}, ("m", "m")))
    (tmp_path / "config.json").write_text('{"model_type": "mixtral"}')
    with pytest.raises(UsageError, match="no formulas for networks of type 'mixtral'"):
        planned(team({"m": large(str(tmp_path))}, {"gpu": gpu}, ("m", "m")))
    known = large("Qwen/Qwen2.5-3B-Instruct")
    with pytest.raises(UsageError, match=r"torch sees no GPU here; say what .* --gpus 1x80GiB"):
        planned(team({"m": known}, {"gpu": gpu}, ("m", "m")), None)


@pytest.mark.parametrize("name", ["marl", "math-tiny", "search-tiny"])
def test_small_examples_fit_a_processor(name: str) -> None:
    done = CliRunner().invoke(devices, ["--plan", str(EXAMPLES / f"{name}.yaml")])
    assert not done.exit_code, done.output


@pytest.mark.parametrize("name", ["drmas-math-7b", "drmas-search-3b"])
def test_large_examples_fit_the_gpus_they_ask_for(name: str) -> None:
    done = CliRunner().invoke(
        devices, ["--plan", str(EXAMPLES / f"{name}.yaml"), "--gpus", "2x80GiB"]
    )
    assert not done.exit_code, (done.output, done.exception)
