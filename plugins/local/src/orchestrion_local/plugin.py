"""What this distribution supplies. Importing it loads neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_local"
TINY = {
    "use": "hf",
    "architecture": {"layers": 1, "width": 8, "heads": 1},
    "alphabet": "".join(map(chr, range(32, 127))) + "\n",
    "max_tokens": 4,
}
_OTHERS = {
    "b": {"use": "kit-agent", "choose": ["x", "y"]},
    "c": {"use": "kit-agent", "final": True},
}


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("device", "devices", f"{HERE}.devices:Device")


@hookimpl
def orchestrion_models() -> Iterator[Component]:
    yield Component(
        "hf",
        f"{HERE}.hf:HF",
        "a causal language model on this machine, sampled in batches, trainable",
        example={name: value for name, value in TINY.items() if name != "use"},
    )
    yield Component(
        "mixture",
        f"{HERE}.mixture:Mixture",
        "several local models answer together, token by token",
        example={"members": [TINY, TINY], "max_tokens": 4},
    )


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "sft",
        f"{HERE}.sft:Sft",
        "models learn to say what teachers say: a warm start",
        example={
            "models": ["student"],
            "teachers": [{"use": "kit-model"}],
            "episodes": 2,
            "steps": 2,
        },
        around={
            "models": {"student": TINY},
            "agents": {"a": {"use": "kit-agent", "model": "student"}, **_OTHERS},
        },
    )


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    yield (
        "device",
        Component(
            "torch",
            f"{HERE}.devices:Torch",
            "processors or a GPU of this machine",
            around={
                "models": {"on": {**TINY, "device": "tested"}},
                "agents": {"a": {"use": "kit-agent", "model": "on"}, **_OTHERS},
            },
        ),
    )
