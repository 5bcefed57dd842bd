"""The likelihood of generations under a network, without holding a large vocabulary's logits.

A response of 4,096 tokens has 2.5 GB of float32 logits at a vocabulary of 152,000, and softmax and
its gradient need several times that. So logits are computed for some tokens at a time
(`memory.LOGITS`) and again in the backward pass: what is kept is the last layer's state of each
token. With `gradient_checkpointing` the same holds for layers (Chen et al. 2016, arXiv 1604.06174):
only the input of each is kept. Without it, prompts that are equal, as those of a group are, are
computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache, DynamicLayer

from orchestrion_local import memory
from orchestrion_local.interfaces import EntropyOf, Generation, Scored
from orchestrion_local.sampling import CACHE

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
        hidden: whether the states before the tokens of responses are returned, too.
        whole: compute the logits by the network itself, all at once; for networks that scale or cap
            them after the last matrix.
        recompute_layers: keep the inputs of layers only, and compute the rest again.
        within: what `network` must be called in, also when it is called again.
    """
    device = next(network.parameters()).device
    rows = _Rows.of(generations, pad, device)
    of_tokens = rows.mask.bool()
    targets = rows.responses[of_tokens]
    each = torch.tensor([item.temperature or 1.0 for item in generations])
    temperature = each[:, None].expand(of_tokens.shape)[of_tokens.cpu()].to(device)
    again = _again(within) if torch.is_grad_enabled() else None
    with _layers_again(network, again if recompute_layers else None):
        if whole:
            longest = rows.mask.shape[1]
            out = network(**rows.whole(), logits_to_keep=longest + 1, output_hidden_states=hidden)
            states, head = out.logits[:, :-1][of_tokens], _unchanged
            before = out.hidden_states[-1][:, -longest - 1 : -1] if hidden else None
            vocabulary = states.shape[1]
        else:
            shares = len(rows.prompts) < len(generations) and not recompute_layers
            by_column = (rows.shared if shares else rows.at_once)(network.base_model)
            states, head = by_column[of_tokens], network.get_output_embeddings()
            before = by_column if hidden else None
            vocabulary = head.weight.shape[0]
    size = max(1, memory.LOGITS // vocabulary)
    of_chunk = partial(_of_chunk, head, entropy)
    if again is not None and len(states) > size:
        of_chunk = partial(again, of_chunk)
    chunks = zip(
        *(torch.split(tensor, size) for tensor in (states, targets, temperature)), strict=True
    )
    logprobs, entropies = zip(*(of_chunk(*chunk) for chunk in chunks), strict=True)

    def by_row(values: Sequence[torch.Tensor]) -> torch.Tensor:
        zeros = torch.zeros(of_tokens.shape, device=device)
        return zeros.masked_scatter(of_tokens, torch.cat(list(values)))

    return Scored(
        by_row(logprobs),
        rows.mask.float(),
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


def has_plain_head(network: Any, pad: int) -> bool:
    """Return whether logits are what the last matrix gives, neither scaled nor capped.

    It is tried out, with one token and large values.
    """
    seen: list[torch.Tensor] = []

    def enlarge(module: Any, given: Any, result: torch.Tensor) -> torch.Tensor:
        seen.append(1000 + result)
        return seen[0]

    head = network.get_output_embeddings()
    hook = head.register_forward_hook(enlarge)
    try:
        with torch.inference_mode():
            ids = torch.tensor([[pad]], device=head.weight.device)
            mask = torch.ones_like(ids)
            logits = network(input_ids=ids, attention_mask=mask, use_cache=False).logits
    finally:
        hook.remove()
    return torch.equal(seen[0], logits)


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


@frozen
class _Rows:
    """Prompts that differ, padded in front, and all responses, padded behind.

    Args:
        prompts: token ids, shape [U, P].
        known: 1 for tokens of prompts, 0 for padding, shape [U, P].
        prompt: which prompt each response answers, shape [B].
        responses: token ids, shape [B, L].
        mask: 1 for tokens of responses, 0 for padding, shape [B, L].
    """

    prompts: torch.Tensor
    known: torch.Tensor
    prompt: torch.Tensor
    responses: torch.Tensor
    mask: torch.Tensor

    @classmethod
    def of(cls, generations: Sequence[Generation], pad: int, device: torch.device) -> _Rows:
        """Return the rows of generations."""
        places: dict[tuple[int, ...], int] = {}
        prompt = [places.setdefault(item.prompt, len(places)) for item in generations]
        before = _padded([item[::-1] for item in places], pad)
        after = _padded([item.response for item in generations], pad)
        tensors = [*(tensor.flip(1) for tensor in before), torch.tensor(prompt), *after]
        return cls(*(tensor.to(device) for tensor in tensors))

    def whole(self) -> dict[str, Any]:
        """Return the network's arguments for each prompt with its response, as one row."""
        ids = torch.cat((self.prompts[self.prompt], self.responses), dim=1)
        attention = torch.cat((self.known[self.prompt], self.mask), dim=1)
        position = (attention.cumsum(1) - 1).clamp(min=0)
        return {
            "input_ids": ids,
            "attention_mask": attention,
            "position_ids": position,
            "use_cache": False,
        }

    def at_once(self, body: Any) -> torch.Tensor:
        """Return the last layer's state before each token of the responses, [B, L, width]."""
        states: torch.Tensor = body(**self.whole()).last_hidden_state
        return states[:, -self.mask.shape[1] - 1 : -1]

    def shared(self, body: Any) -> torch.Tensor:
        """Return the same as `at_once`; every prompt is computed once."""
        cache = Cache(layer_class_to_replicate=DynamicLayer)
        position = (self.known.cumsum(1) - 1).clamp(min=0)
        first: torch.Tensor = body(
            input_ids=self.prompts,
            attention_mask=self.known,
            position_ids=position,
            **{CACHE: cache},
            use_cache=True,
        ).last_hidden_state
        # `index_select` adds up gradients in one order; indexing need not.
        first = first[:, -1:].index_select(0, self.prompt)
        if self.responses.shape[1] == 1:
            return first
        for layer in cache.layers:
            layer.keys = layer.keys.index_select(0, self.prompt)
            layer.values = layer.values.index_select(0, self.prompt)
        attention = torch.cat((self.known[self.prompt], self.mask[:, :-1]), dim=1)
        position = (attention.cumsum(1) - 1)[:, self.known.shape[1] :]
        rest = body(
            input_ids=self.responses[:, :-1],
            attention_mask=attention,
            position_ids=position,
            **{CACHE: cache},
            use_cache=True,
        ).last_hidden_state
        return torch.cat((first, rest), dim=1)


def _padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask of rows that all begin in the first column."""
    tensors = [torch.tensor(row, dtype=torch.int64) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_value=pad)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long()
