"""Sampling many prompts at once, each with randomness of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from attrs import frozen

from orchestrion_local.caching import roomy_cache

__all__ = ["Drawn", "Wanted", "common_prefix", "sample"]

PREFIX = 8
"""Prompts that begin with as many equal tokens have that beginning computed once."""
KEPT = 0.85
"""Rows that are done leave the batch once no more than this share of it goes on."""


@frozen
class Wanted:
    """One completion to sample.

    Args:
        prompt: token ids, at least one.
        uniforms: numbers in [0, 1), one for each token at most.
        temperature: 0 takes the likeliest token.
        top_p: the smallest set of likeliest tokens with this probability is drawn from.
        picks: likewise numbers in [0, 1), for networks with several members.
    """

    prompt: Sequence[int]
    uniforms: Sequence[float]
    temperature: float = 1.0
    top_p: float = 1.0
    picks: Sequence[float] = ()


@frozen
class Drawn:
    """Token ids with their log-probabilities, and whether an end token ended them."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool


def common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all prompts begin with; the last token of each is never counted."""
    shortest = min(len(one) for one in prompts) - 1
    first = prompts[0]
    for i in range(shortest):
        if any(one[i] != first[i] for one in prompts):
            return i
    return shortest


@torch.inference_mode()
def sample(module: Any, wanted: Sequence[Wanted], ends: Collection[int], pad: int) -> list[Drawn]:
    """Complete all prompts together; what is done leaves the batch.

    What a prompt gives depends on its own uniforms, not on its place in the batch (up to the
    rounding of a matrix product of another size).
    """
    return _Batch(module, wanted, frozenset(ends), pad).run()


class _Batch:
    def __init__(
        self, module: Any, wanted: Sequence[Wanted], ends: frozenset[int], pad: int
    ) -> None:
        self.module, self.wanted = module, wanted
        self.device = next(module.parameters()).device
        self.ends = torch.tensor(sorted(ends), device=self.device)
        count, longest = len(wanted), max(len(one.uniforms) for one in wanted)
        limits = [len(one.uniforms) for one in wanted]
        self.heated = any(one.temperature not in (0, 1) for one in wanted)
        self.cut = any(one.top_p < 1 for one in wanted)
        self.some_greedy = any(one.temperature == 0 for one in wanted)
        self.picking = any(one.picks for one in wanted)
        # What is known of the rows that are still in the batch.
        self.rows = torch.arange(count, device=self.device)
        """Which completion each row of the batch is."""
        self.limits = self._column(limits, torch.int64)
        self.heat = self._column([one.temperature or 1.0 for one in wanted], torch.float32)
        self.greedy = self._column([one.temperature == 0 for one in wanted], torch.bool)
        self.top_p = self._column([one.top_p for one in wanted], torch.float64)
        self.points = self._table([one.uniforms for one in wanted], longest)
        self.picks = self._table([one.picks for one in wanted], longest if self.picking else 0)
        self.live = torch.ones(count, dtype=torch.bool, device=self.device)
        # What came of every completion.
        self.ids = torch.zeros((count, longest), dtype=torch.int64, device=self.device)
        self.logprobs = torch.zeros((count, longest), dtype=torch.float64, device=self.device)
        self.lengths = torch.zeros(count, dtype=torch.int64, device=self.device)
        self.ended = torch.zeros(count, dtype=torch.bool, device=self.device)
        self.cache, self.mask, self.position, self.logits = self._prompts(pad)

    def _column(self, values: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def _table(self, rows: Sequence[Sequence[float]], longest: int) -> torch.Tensor:
        table = np.zeros((len(rows), longest))
        for i, row in enumerate(rows):
            table[i, : len(row)] = row
        return torch.from_numpy(table).to(self.device)

    def _prompts(self, pad: int) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
        prompts = [list(one.prompt) for one in self.wanted]
        cache = getattr(self.module, "make_cache", roomy_cache)()
        shared = common_prefix(prompts) if len(prompts) > 1 else 0
        if shared < PREFIX:
            shared = 0
        if shared:
            head = torch.tensor([prompts[0][:shared]], device=self.device)
            self.module(head, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache.batch_repeat_interleave(len(prompts))
        width = max(map(len, prompts)) - shared
        padded = np.full((len(prompts), width), pad)
        known = np.zeros((len(prompts), shared + width), np.int64)
        known[:, :shared] = 1
        for i, one in enumerate(prompts):
            begin = width - len(one) + shared
            padded[i, begin:] = one[shared:]
            known[i, shared + begin :] = 1
        ids = torch.from_numpy(padded).to(self.device)
        mask = torch.from_numpy(known).to(self.device)
        position = (mask.cumsum(1) - 1).clamp(min=0)
        out = self.module(
            ids,
            attention_mask=mask,
            position_ids=position[:, shared:],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return cache, mask, position[:, -1:] + 1, out.logits[:, -1]

    def run(self) -> list[Drawn]:
        for t in range(self.ids.shape[1]):
            chosen = self._draw(t)
            self.live &= self.limits > t + 1
            left = int(self.live.sum())
            if not left:
                break
            # Each time it happens all that is known of those who stay is copied.
            if left <= KEPT * len(self.rows):
                chosen = self._keep(chosen)
            self._advance(chosen)
        ids, logprobs = self.ids.tolist(), self.logprobs.tolist()
        return [
            Drawn(tuple(ids[i][:length]), tuple(logprobs[i][:length]), ended)
            for i, (length, ended) in enumerate(
                zip(self.lengths.tolist(), self.ended.tolist(), strict=True)
            )
        ]

    def _draw(self, t: int) -> torch.Tensor:
        """The next token of every row, noted with its log-probability."""
        logits = self.logits
        if logits.dim() == 3:
            logits = self.module.combine(logits, self.picks[:, t])
        logits = logits.float()
        if self.heated:
            logits = logits / self.heat[:, None]
        logprobs = torch.log_softmax(logits, dim=1)
        shares = logprobs.double().exp()
        if self.cut:
            shares = _nucleus(shares, self.top_p[:, None])
        upto = shares.cumsum(1)
        reach = self.points[:, t, None] * upto[:, -1:]
        chosen = torch.searchsorted(upto, reach, right=True).clamp_(max=upto.shape[1] - 1)
        if self.some_greedy:
            chosen = torch.where(self.greedy[:, None], logprobs.argmax(1, keepdim=True), chosen)
        # Rows that are done may still be in the batch: what they go on to say is behind their
        # length, and nobody's.
        self.ids[self.rows, t] = chosen[:, 0]
        self.logprobs[self.rows, t] = logprobs.gather(1, chosen)[:, 0].double()
        self.lengths[self.rows] += self.live
        over = torch.isin(chosen[:, 0], self.ends) & self.live
        self.ended[self.rows] |= over
        self.live = self.live & ~over
        return chosen

    def _keep(self, chosen: torch.Tensor) -> torch.Tensor:
        """Go on with the rows alone that are not done."""
        index = self.live.nonzero()[:, 0]
        self.cache.batch_select_indices(index)
        for name in _BY_ROW:
            setattr(self, name, getattr(self, name)[index])
        return chosen[index]

    def _advance(self, chosen: torch.Tensor) -> None:
        ones = torch.ones((len(self.rows), 1), dtype=self.mask.dtype, device=self.device)
        self.mask = torch.cat((self.mask, ones), dim=1)
        out = self.module(
            chosen,
            attention_mask=self.mask,
            position_ids=self.position,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.logits, self.position = out.logits[:, -1], self.position + 1


_BY_ROW = (
    *("rows", "limits", "heat", "greedy", "top_p", "points", "picks", "live"),
    *("mask", "position"),
)


def _nucleus(shares: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Probabilities with everything outside the nucleus set to 0 (Holtzman et al. 2020)."""
    ordered, order = shares.sort(dim=1, descending=True, stable=True)
    before = ordered.cumsum(1) - ordered
    ordered = torch.where(before < top_p, ordered, 0.0)
    return torch.zeros_like(shares).scatter(1, order, ordered)
