"""Sampling many prompts at once, each with randomness of its own.

Each round of the batch takes one token of every row: logits / temperature, the nucleus of top_p,
then the token at which the cumulative probability passes the row's next uniform number. Rows that
are done leave the batch; equal prompts, and a beginning that all share, are computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_outputs import BaseModelOutputWithPast

PREFIX = 8
"""A shared beginning of at least so many tokens is computed once."""
KEPT = 0.85
"""Rows that are done leave the batch when at most this share of it goes on."""
ROOM = 32
"""Number of tokens that a cache has room for before it is copied to a larger place."""


@frozen
class Prompt:
    """A prompt, and how it is completed.

    Args:
        prompt: token ids, at least one.
        uniforms: numbers in [0, 1), one for each token of the longest completion.
        temperature: 0 takes the likeliest token.
        top_p: probability of the smallest set of likeliest tokens to sample from.
        picks: numbers in [0, 1) like `uniforms`, for networks with several members.
    """

    prompt: Sequence[int]
    uniforms: Sequence[float]
    temperature: float = 1.0
    top_p: float = 1.0
    picks: Sequence[float] = ()


@frozen
class Completion:
    """Token ids, their log-probabilities, and whether the last one is an end token."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool

    @property
    def stop(self) -> str:
        """Return why it stopped, see `Generation`."""
        return "end" if self.ended else "length"


def common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many tokens all prompts begin with, without the last token of any."""
    shortest = min(map(len, prompts)) - 1
    for i in range(shortest):
        if any(prompt[i] != prompts[0][i] for prompt in prompts):
            return i
    return shortest


@torch.inference_mode()
def sample(
    module: Any, wanted: Sequence[Prompt], ends: Collection[int], pad: int
) -> list[Completion]:
    """Return a completion of every prompt.

    It depends on the prompt's own uniforms, not on its place in the batch (up to the rounding of a
    matrix product of another size).
    """
    return _Batch(module, wanted, frozenset(ends), pad).run()


class _Batch:
    def __init__(
        self, module: Any, wanted: Sequence[Prompt], ends: frozenset[int], pad: int
    ) -> None:
        self.module, self.wanted = module, wanted
        self.device = next(module.parameters()).device
        self.ends = torch.tensor(sorted(ends), device=self.device)
        limits = [len(item.uniforms) for item in wanted]
        count, longest = len(wanted), max(limits)
        self.has_temperature = any(item.temperature not in (0, 1) for item in wanted)
        self.cut = any(item.top_p < 1 for item in wanted)
        self.some_greedy = any(item.temperature == 0 for item in wanted)
        # By row that is still in the batch.
        self.rows = torch.arange(count, device=self.device)
        """The completion of each row."""
        self.limits = self._column(limits, torch.int64)
        self.temperature = self._column([item.temperature or 1.0 for item in wanted], torch.float32)
        self.greedy = self._column([item.temperature == 0 for item in wanted], torch.bool)
        self.top_p = self._column([item.top_p for item in wanted], torch.float64)
        self.points = self._table([item.uniforms for item in wanted])
        self.picks = self._table([item.picks for item in wanted])
        self.live = torch.ones(count, dtype=torch.bool, device=self.device)
        # By completion.
        self.ids = torch.zeros((count, longest), dtype=torch.int64, device=self.device)
        self.logprobs = torch.zeros((count, longest), dtype=torch.float64, device=self.device)
        self.lengths = torch.zeros(count, dtype=torch.int64, device=self.device)
        self.ended = torch.zeros(count, dtype=torch.bool, device=self.device)
        self.cache, self.mask, self.position, self.logits = self._prompts(pad)

    def _column(self, values: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def _table(self, rows: Sequence[Sequence[float]]) -> torch.Tensor:
        tensors = [torch.tensor(row, dtype=torch.float64) for row in rows]
        return pad_sequence(tensors, batch_first=True).to(self.device)

    def _prompts(self, pad: int) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
        # Prompts that are equal, as those of a group are, are computed once.
        places: dict[tuple[int, ...], int] = {}
        row = [places.setdefault(tuple(item.prompt), len(places)) for item in self.wanted]
        prompts = list(places)
        cache = getattr(self.module, "make_cache", roomy_cache)()
        self.seen = max(map(len, prompts))
        shared = common_prefix(prompts) if len(prompts) > 1 else 0
        if shared < PREFIX:
            shared = 0
        if shared:
            head = torch.tensor([prompts[0][:shared]], device=self.device)
            self.module(head, **{CACHE: cache}, use_cache=True, logits_to_keep=1)
            cache.batch_repeat_interleave(len(prompts))
        width = self.seen - shared
        padded = np.full((len(prompts), width), pad)
        # All that follows the prompts is known, too: a step's mask is the beginning of it.
        known = np.ones((len(prompts), self.seen + self.ids.shape[1]), np.int64)
        for i, prompt in enumerate(prompts):
            begin = width - len(prompt) + shared
            padded[i, begin:] = prompt[shared:]
            known[i, shared : shared + begin] = 0
        ids = torch.from_numpy(padded).to(self.device)
        mask = torch.from_numpy(known).to(self.device)
        position = (mask[:, : self.seen].cumsum(1) - 1).clamp(min=0)
        out = self.module(
            ids,
            attention_mask=mask[:, : self.seen],
            position_ids=position[:, shared:],
            **{CACHE: cache},
            use_cache=True,
            logits_to_keep=1,
        )
        position, logits = position[:, -1:] + 1, out.logits[:, -1]
        if len(prompts) == len(row):
            return cache, mask, position, logits
        index = torch.tensor(row, device=self.device)
        cache.batch_select_indices(index)
        return cache, mask[index], position[index], logits[index]

    def run(self) -> list[Completion]:
        for t in range(self.ids.shape[1]):
            chosen = self._draw(t)
            self.live &= self.limits > t + 1
            left = int(self.live.sum())
            if not left:
                break
            # Removing rows copies the state of all others: not for a few.
            if left <= KEPT * len(self.rows):
                chosen = self._keep(chosen)
            self._advance(chosen)
        ids, logprobs = self.ids.tolist(), self.logprobs.tolist()
        return [
            Completion(tuple(ids[i][:length]), tuple(logprobs[i][:length]), ended)
            for i, (length, ended) in enumerate(
                zip(self.lengths.tolist(), self.ended.tolist(), strict=True)
            )
        ]

    def _draw(self, t: int) -> torch.Tensor:
        """Return the next token of every row, and note it with its log-probability."""
        logits = self.logits
        if logits.dim() == 3:
            logits = self.module.combine(logits, self.picks[:, t])
        logits = logits.float()
        if self.has_temperature:
            logits = logits / self.temperature[:, None]
        logprobs = torch.log_softmax(logits, dim=1)
        shares = logprobs.double().exp()
        if self.cut:
            shares = _nucleus(shares, self.top_p[:, None])
        upto = shares.cumsum(1)
        reach = self.points[:, t, None] * upto[:, -1:]
        chosen = torch.searchsorted(upto, reach, right=True).clamp_(max=upto.shape[1] - 1)
        if self.some_greedy:
            chosen = torch.where(self.greedy[:, None], logprobs.argmax(1, keepdim=True), chosen)
        # Rows that are done may still be in the batch: their tokens are beyond their length.
        self.ids[self.rows, t] = chosen[:, 0]
        self.logprobs[self.rows, t] = logprobs.gather(1, chosen)[:, 0].double()
        self.lengths[self.rows] += self.live
        over = torch.isin(chosen[:, 0], self.ends) & self.live
        self.ended[self.rows] |= over
        self.live = self.live & ~over
        return chosen

    def _keep(self, chosen: torch.Tensor) -> torch.Tensor:
        """Remove the rows that are done; return the tokens of the others."""
        index = self.live.nonzero()[:, 0]
        self.cache.batch_select_indices(index)
        for name in _BY_ROW:
            setattr(self, name, getattr(self, name)[index])
        return chosen[index]

    def _advance(self, chosen: torch.Tensor) -> None:
        self.seen += 1
        out = self.module(
            chosen,
            attention_mask=self.mask[:, : self.seen],
            position_ids=self.position,
            **{CACHE: self.cache},
            use_cache=True,
            logits_to_keep=1,
        )
        self.logits, self.position = out.logits[:, -1], self.position + 1


_BY_ROW = "rows limits temperature greedy top_p points picks live mask position".split()


def _nucleus(shares: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return probabilities, 0 outside the nucleus (Holtzman et al. 2020, arXiv 1904.09751)."""
    ordered, order = shares.sort(dim=1, descending=True, stable=True)
    before = ordered.cumsum(1) - ordered
    ordered = torch.where(before < top_p, ordered, 0.0)
    return torch.zeros_like(shares).scatter(1, order, ordered)


# ------------------------------------------------------------------------------------ cache


CACHE = "cache" if "cache" in BaseModelOutputWithPast.__annotations__ else "past_key_values"
"""The argument that gives a network its cache: transformers 5.24 renamed it."""


def roomy_cache() -> Cache:
    """Return a cache for one batch; the library's own is copied for every token."""
    return Cache(layer_class_to_replicate=_Roomy)


class _Roomy(DynamicLayer):  # type: ignore[misc]  # it has no types
    """Keys and values [B, heads, tokens, width], views of larger tensors."""

    keys: torch.Tensor
    values: torch.Tensor
    _places: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values of new tokens; return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.get_seq_length()
        after = before + key_states.shape[-2]
        if self._places is None or self._places[0].shape[-2] < after:
            self._places = (
                _larger(self.keys, key_states, before, after + ROOM),
                _larger(self.values, value_states, before, after + ROOM),
            )
        for place, fresh in zip(self._places, (key_states, value_states), strict=True):
            place[:, :, before:after] = fresh
        self.keys, self.values = (place[:, :, :after] for place in self._places)
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """See `DynamicLayer`."""
        super().batch_repeat_interleave(repeats)
        self._places = None

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """See `DynamicLayer`."""
        super().batch_select_indices(indices)
        self._places = None


def _larger(old: torch.Tensor, fresh: torch.Tensor, before: int, room: int) -> torch.Tensor:
    batch, heads, _, width = fresh.shape
    place = fresh.new_empty((batch, heads, room, width))
    if before:
        place[:, :, :before] = old
    return place
