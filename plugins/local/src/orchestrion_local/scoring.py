"""The likelihood of generations under a network, without holding a large vocabulary's logits.

A response of 4,096 tokens has 2.5 GB of float32 logits at a vocabulary of 152,000, and softmax and
its gradient need several times that. So logits are computed for some tokens at a time
(`memory.LOGITS`) and again in the backward pass: what is kept is the last layer's state of each
token. With `gradient_checkpointing` the same holds for layers (Chen et al. 2016, arXiv 1604.06174):
only the input of each is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from orchestrion_local import memory
from orchestrion_local.interfaces import EntropyOf, Generation, Scored

__all__ = ["layers_of", "score"]

Within = Callable[[], AbstractContextManager[None]]


def score(
    network: Any,
    generations: Sequence[Generation],
    pad: int,
    *,
    entropy: EntropyOf = "none",
    hidden: bool = False,
    whole: bool = False,
    recompute_layers: bool = False,
    within: Within = nullcontext,
) -> Scored:
    """Return log-probabilities of generations; see `Trainable.score`.

    Args:
        network: a causal language model of transformers.
        generations: one row each.
        pad: token id of padding.
        entropy: whether entropies are computed, and whether with gradient.
        hidden: whether the states before the responses are returned, too.
        whole: compute the logits by the network itself, all at once; for networks that scale or cap
            them after the last matrix.
        recompute_layers: keep the inputs of layers only, and compute the rest again.
        within: what `network` must be called in, also when it is called again.
    """
    device = next(network.parameters()).device
    ids, attention, longest = _padded(generations, pad)
    position = (attention.cumsum(1) - 1).clamp(min=0)
    of_tokens = attention[:, -longest:].bool()
    targets = ids[:, -longest:][of_tokens].to(device)
    each = torch.tensor([item.temperature or 1.0 for item in generations])
    temperature = each[:, None].expand(of_tokens.shape)[of_tokens].to(device)
    given = {
        "input_ids": ids.to(device),
        "attention_mask": attention.to(device),
        "position_ids": position.to(device),
        "use_cache": False,
    }
    of_tokens = of_tokens.to(device)
    again = _again(within) if torch.is_grad_enabled() else None
    with _layers_again(network, again if recompute_layers else None):
        if whole:
            out = network(**given, logits_to_keep=longest + 1, output_hidden_states=hidden)
            rows, head = out.logits[:, :-1][of_tokens], _unchanged
            before = out.hidden_states[-1][:, -longest - 1] if hidden else None
            vocabulary = rows.shape[1]
        else:
            states = network.base_model(**given).last_hidden_state[:, -longest - 1 :]
            rows, head = states[:, :-1][of_tokens], network.get_output_embeddings()
            before = states[:, 0] if hidden else None
            vocabulary = head.weight.shape[0]
    size = max(1, memory.LOGITS // vocabulary)
    of_chunk = partial(_of_chunk, head, entropy)
    if again is not None and len(rows) > size:
        of_chunk = partial(again, of_chunk)
    chunks = zip(*(torch.split(one, size) for one in (rows, targets, temperature)), strict=True)
    logprobs, entropies = zip(*(of_chunk(*chunk) for chunk in chunks), strict=True)

    def by_row(values: Sequence[torch.Tensor]) -> torch.Tensor:
        zeros = torch.zeros(of_tokens.shape, device=device)
        return zeros.masked_scatter(of_tokens, torch.cat(list(values)))

    return Scored(
        by_row(logprobs),
        of_tokens.float(),
        by_row(entropies) if entropy != "none" else None,
        before,
    )


def _of_chunk(
    head: Callable[[torch.Tensor], torch.Tensor],
    entropy: EntropyOf,
    states: torch.Tensor,
    targets: torch.Tensor,
    temperature: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the log-probability of each target, and the entropy of what it was drawn from."""
    logits = head(states).float() / temperature[:, None]
    logprobs = torch.log_softmax(logits, dim=1)
    of_targets = logprobs.gather(1, targets[:, None])[:, 0]
    if entropy == "none":
        return of_targets, None
    with nullcontext() if entropy == "gradient" else torch.no_grad():
        return of_targets, -(logprobs.exp() * logprobs).sum(1)


def _unchanged(states: torch.Tensor) -> torch.Tensor:
    return states


def _again(within: Within) -> Callable[..., Any]:
    """Return a function that calls another, keeps its inputs, and calls it again for gradients."""
    return partial(
        checkpoint,
        use_reentrant=False,
        # There is no dropout: nothing random to repeat.
        preserve_rng_state=False,
        context_fn=lambda: (nullcontext(), within()),
    )


def layers_of(network: Any) -> list[Any]:
    """Return the layers of a network whose results can be computed again."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [part for part in network.modules() if isinstance(part, GradientCheckpointingLayer)]


@contextmanager
def _layers_again(network: Any, again: Callable[..., Any] | None) -> Iterator[None]:
    """Compute layers by `again` while the context lasts.

    transformers' own switch works in training mode only, which also switches dropout on.
    """
    layers = layers_of(network) if again is not None else []
    for layer in layers:
        assert again is not None
        layer.forward = partial(again, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _padded(generations: Sequence[Generation], pad: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return ids and mask; all responses begin in the same column."""
    before = max(len(item.prompt) for item in generations)
    longest = max(len(item.response) for item in generations)
    ids = np.full((len(generations), before + longest), pad)
    attention = np.zeros_like(ids)
    for i, item in enumerate(generations):
        begin, end = before - len(item.prompt), before + len(item.response)
        ids[i, begin:end] = (*item.prompt, *item.response)
        attention[i, begin:end] = 1
    return torch.from_numpy(ids), torch.from_numpy(attention), longest
