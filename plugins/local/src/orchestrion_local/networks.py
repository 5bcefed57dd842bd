"""Sizes of networks, from their config.json; nothing is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from orchestrion import UsageError
from orchestrion_local.settings import ModelSettings

_QWEN = {"model_type": "qwen2", "max_position_embeddings": 32768, "vocab_size": 151936}
_LLAMA = {"model_type": "llama", "max_position_embeddings": 131072, "vocab_size": 128256}


def _sizes(
    width: int, layers: int, heads: int, key_heads: int, inner: int, tied: bool, **more: Any
) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "intermediate_size": inner,
        "tie_word_embeddings": tied,
        **more,
    }


KNOWN: Mapping[str, Mapping[str, Any]] = {
    "qwen2.5-0.5b": _QWEN | _sizes(896, 24, 14, 2, 4864, True),
    "qwen2.5-1.5b": _QWEN | _sizes(1536, 28, 12, 2, 8960, True),
    "qwen2.5-3b": _QWEN | _sizes(2048, 36, 16, 2, 11008, True),
    "qwen2.5-7b": _QWEN | _sizes(3584, 28, 28, 4, 18944, False, vocab_size=152064),
    "qwen3-4b": _QWEN | _sizes(2560, 36, 32, 8, 9728, True, model_type="qwen3", head_dim=128),
    "qwen3-8b": _QWEN | _sizes(4096, 36, 32, 8, 12288, False, model_type="qwen3", head_dim=128),
    "llama-3.2-1b": _LLAMA | _sizes(2048, 16, 32, 8, 8192, True),
    "llama-3.2-3b": _LLAMA | _sizes(3072, 28, 24, 8, 8192, True),
}
"""The content of `config.json` of models on a hub, for plans without the file."""


@frozen
class Network:
    """Sizes of a network.

    Args:
        type: its type in transformers.
        layers: number of layers.
        width: size of the hidden state.
        inner: width of the feed-forward part.
        heads: number of attention heads.
        key_heads: number of heads of keys and values.
        head: width of a head.
        vocabulary: number of tokens.
        tied: whether the first and the last matrix are one.
        context: maximum number of tokens of a row.
    """

    type: str
    layers: int
    width: int
    inner: int
    heads: int
    key_heads: int
    head: int
    vocabulary: int
    tied: bool
    context: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Network | None:
        """Return the sizes in a `config.json`; None if there are no formulas for this type."""
        kind = config.get("model_type")
        if kind == "gpt2":
            width, heads = config["n_embd"], config["n_head"]
            inner, head = config.get("n_inner") or 4 * width, width // heads
            sizes = config["n_layer"], width, inner, heads, heads, head
            return cls(kind, *sizes, config["vocab_size"], True, config["n_positions"])
        if kind not in ("llama", "mistral", "qwen2", "qwen3"):
            return None
        width, heads = config["hidden_size"], config["num_attention_heads"]
        return cls(
            kind,
            config["num_hidden_layers"],
            width,
            config["intermediate_size"],
            heads,
            config.get("num_key_value_heads") or heads,
            config.get("head_dim") or width // heads,
            config["vocab_size"],
            bool(config.get("tie_word_embeddings", False)),
            config.get("max_position_embeddings", 32768),
        )

    @property
    def queries(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head

    @property
    def keys(self) -> int:
        """Width of all heads of keys together."""
        return self.key_heads * self.head

    @property
    def linear(self) -> dict[str, list[tuple[int, int]]]:
        """Inputs and outputs of a layer's matrices, by name."""
        h, i, a, k = self.width, self.inner, self.queries, self.keys
        if self.type == "gpt2":
            return {"c_attn": [(h, 3 * h)], "c_proj": [(h, h), (i, h)], "c_fc": [(h, i)]}
        return {
            "q_proj": [(h, a)],
            "k_proj": [(h, k)],
            "v_proj": [(h, k)],
            "o_proj": [(a, h)],
            "gate_proj": [(h, i)],
            "up_proj": [(h, i)],
            "down_proj": [(i, h)],
        }

    @property
    def weights(self) -> int:
        """Number of weights."""
        h, layer = self.width, sum(n * m for ends in self.linear.values() for n, m in ends)
        if self.type == "gpt2":
            biases = sum(m for ends in self.linear.values() for _, m in ends)
            return (self.vocabulary + self.context + 2) * h + self.layers * (layer + biases + 4 * h)
        biases = self.queries + 2 * self.keys if self.type == "qwen2" else 0
        norms = 2 * h + (2 * self.head if self.type == "qwen3" else 0)
        tables = (1 if self.tied else 2) * self.vocabulary * h
        return tables + h + self.layers * (layer + biases + norms)


def network_of(path: str, settings: ModelSettings) -> Network:
    """Return the sizes of a network from its settings, its folder, the hub's cache, or KNOWN."""
    if settings.architecture is not None:
        return _new_network(settings)
    assert settings.path is not None
    config = _config_json(settings.path)
    if config is None:
        raise UsageError(
            f"{path}.path: there is no config.json in {settings.path}, nor in the hub's cache; "
            f"download the model, or name one of {', '.join(KNOWN)}"
        )
    network = Network.from_config(config)
    if network is None:
        raise UsageError(
            f"{path}.path: there are no formulas for networks of type "
            f"{config.get('model_type')!r}; they exist for llama, mistral, qwen2, qwen3 and gpt2"
        )
    return network


def _config_json(source: str) -> Mapping[str, Any] | None:
    file: Any = Path(source) / "config.json"
    if not file.is_file():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            file = try_to_load_from_cache(source, "config.json")
        except HFValidationError:  # a path, not a name
            file = None
        if not isinstance(file, str):
            name = source.rpartition("/")[2].lower().removesuffix("-instruct")
            return KNOWN.get(name) if not Path(source).is_absolute() else None
    loaded: Mapping[str, Any] = json.loads(Path(file).read_text("utf-8"))
    return loaded


def _new_network(settings: ModelSettings) -> Network:
    shape = settings.architecture
    assert shape is not None
    inner = shape.inner or (4 * shape.width if shape.type == "gpt2" else (8 * shape.width + 2) // 3)
    heads = (shape.heads, shape.heads, shape.width // shape.heads)
    # A tokenizer of characters has two more tokens; that of another model is not loaded.
    vocabulary = len(settings.alphabet) + 2 if settings.alphabet is not None else 50_000
    sizes = (shape.type, shape.layers, shape.width, inner)
    return Network(*sizes, *heads, vocabulary, True, shape.context)
