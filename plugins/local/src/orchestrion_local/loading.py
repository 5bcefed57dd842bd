"""Weights from a path or from nothing, with adapters, on a device."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from orchestrion import OpenContext, RunError, UsageError
from orchestrion_local.offloading import size_of
from orchestrion_local.runtime import LocalModel
from orchestrion_local.settings import Architecture, ModelSettings
from orchestrion_local.tokenizers import Characters, Pretrained, Tokenizer
from orchestrion_local.weights import placed_on


def load(settings: ModelSettings, ctx: OpenContext) -> LocalModel:
    """Return the model with its weights.

    Raises:
        RunError: it cannot be loaded, or its device has no room.
        UsageError: `base` is not an opened `hf` model, or a `lora` does not fit it.
    """
    name = ctx.path.partition(".")[2] or ctx.path
    if settings.base is not None:
        return _on_base(settings, ctx, name)
    try:
        tokenizer = _tokenizer(settings, ctx.path)
        module = _module(settings, tokenizer, ctx)
    except (OSError, ValueError, RuntimeError) as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        what = settings.path or settings.tokenizer
        if what is not None and Path(what).is_absolute() and not Path(what).is_dir():
            reason = "there is no such folder"
        raise RunError(f"{ctx.path}: {what} cannot be loaded: {reason}") from error
    for weight in module.parameters():
        # Not the buffers: positions are turned by frequencies, which bfloat16 would round away.
        weight.data = weight.data.to(getattr(torch, settings.dtype))
    adapter = None
    if settings.lora is not None:
        adapter = "default"
        with _seeded(ctx):
            module = _with_adapter(module, settings, ctx.path, adapter)
    if settings.device is not None:
        settings.device.place(name, size_of(module.parameters()))
    return LocalModel(settings, name, module, tokenizer, adapter)


def _on_base(settings: ModelSettings, ctx: OpenContext, name: str) -> LocalModel:
    base = settings.base
    if not isinstance(base, LocalModel):
        raise UsageError(f"{ctx.path}.base: is not an `hf` model")
    if settings.is_alias:
        return base
    device = placed_on(settings)
    if settings.copy:
        module = base.plain().requires_grad_(True)
        if device is not None:
            device.place(name, size_of(module.parameters()))
        return LocalModel(settings, name, module, base.tokenizer)
    module = base.module
    # peft separates the parts of names by ".".
    adapter = name.replace(".", "_") + "_adapter"
    with _seeded(ctx):
        module = _with_adapter(module, settings, ctx.path, adapter)
    base.module = module
    base.frozen = base.adapter is None
    model = LocalModel(settings, name, module, base.tokenizer, adapter, base)
    if device is not None:
        device.place(name, size_of(weight for _, weight in model.parameters()))
    return model


def _with_adapter(module: Any, settings: ModelSettings, path: str, adapter: str) -> Any:
    from peft import LoraConfig, get_peft_model

    lora = settings.lora
    assert lora is not None
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=list(lora.targets) or "all-linear",
        # GPT-2 stores its matrices transposed.
        fan_in_fan_out=module.config.model_type == "gpt2",
    )
    try:
        with warnings.catch_warnings():
            # peft uses functions of torch that are deprecated.
            warnings.simplefilter("ignore", FutureWarning)
            if hasattr(module, "peft_config"):
                module.add_adapter(adapter, config)
                return module
            return get_peft_model(module, config, adapter_name=adapter)
    except ValueError as error:
        raise UsageError(f"{path}.lora: {str(error).splitlines()[0]}") from error


@contextmanager
def _seeded(ctx: OpenContext) -> Iterator[None]:
    """Take initial weights from the run's key; leave torch's own random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(ctx.key.integer())
        yield


def _tokenizer(settings: ModelSettings, path: str) -> Tokenizer:
    if settings.alphabet is not None:
        return Characters(settings.alphabet, path)
    source = settings.tokenizer or settings.path
    assert source is not None
    return Pretrained(source, settings.chat_template)


def _module(settings: ModelSettings, tokenizer: Tokenizer, ctx: OpenContext) -> Any:
    import transformers

    auto: Any = transformers.AutoModelForCausalLM  # parts of it have no types
    if settings.architecture is None:
        return auto.from_pretrained(settings.path, use_safetensors=True)
    with _seeded(ctx):
        return auto.from_config(_config(settings.architecture, tokenizer))


def _config(shape: Architecture, tokenizer: Tokenizer) -> Any:
    from transformers import GPT2Config, LlamaConfig

    common: dict[str, Any] = {
        "vocab_size": tokenizer.size,
        "pad_token_id": tokenizer.pad,
        "bos_token_id": None,
        "eos_token_id": min(tokenizer.ends),
        # GPT-2's 0.02 is for a width of 768; in narrower networks it would be too small.
        "initializer_range": 0.02 * math.sqrt(768 / shape.width),
    }
    if shape.type == "gpt2":
        return GPT2Config(
            n_positions=shape.context,
            n_embd=shape.width,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_inner=shape.inner or 4 * shape.width,
            # The same function as "gelu_new", computed in one kernel.
            activation_function="gelu_pytorch_tanh",
            # Sampling and training must see the same distribution: no dropout.
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            **common,
        )
    return LlamaConfig(
        hidden_size=shape.width,
        intermediate_size=shape.inner or (8 * shape.width + 2) // 3,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        **common,
    )
