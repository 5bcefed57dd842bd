"""Sampling many prompts at once, each with randomness of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from attrs import frozen

__all__ = ["Drawn", "Wanted", "common_prefix", "sample"]

PREFIX = 8
"""Prompts that begin with as many equal tokens have that beginning computed once."""


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


@torch.no_grad()
def sample(
    module: Any, wanted: Sequence[Wanted], ends: Collection[int], pad: int
) -> list[Drawn]:
    """Complete all prompts together; what is done leaves the batch.

    What a prompt gives depends on its own uniforms, not on its place in the batch (up to the
    rounding of a matrix product of another size).
    """
    return _Batch(module, wanted, frozenset(ends), pad).run()


class _Batch:
    def __init__(
        self, module: Any, wanted: Sequence[Wanted], ends: frozenset[int], pad: int
    ) -> None:
        self.module, self.wanted, self.ends = module, wanted, ends
        self.device = next(module.parameters()).device
        self.rows = list(range(len(wanted)))
        """Which completion each row of the batch is."""
        self.ids: list[list[int]] = [[] for _ in wanted]
        self.logprobs: list[list[float]] = [[] for _ in wanted]
        self.ended = [False] * len(wanted)
        self.cache, self.mask, self.position, logits = self._prompts(pad)
        self.logits = logits

    def _prompts(self, pad: int) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
        from transformers import DynamicCache

        prompts = [list(one.prompt) for one in self.wanted]
        cache = getattr(self.module, "make_cache", DynamicCache)()
        shared = common_prefix(prompts) if len(prompts) > 1 else 0
        if shared < PREFIX:
            shared = 0
        if shared:
            head = torch.tensor([prompts[0][:shared]], device=self.device)
            self.module(head, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache.batch_repeat_interleave(len(prompts))
        rest = [one[shared:] for one in prompts]
        width = max(map(len, rest))
        ids = torch.full((len(rest), width), pad)
        mask = torch.zeros((len(rest), shared + width), dtype=torch.long)
        mask[:, :shared] = 1
        for i, one in enumerate(rest):
            ids[i, width - len(one) :] = torch.tensor(one)
            mask[i, shared + width - len(one) :] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
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
        limit = max(len(one.uniforms) for one in self.wanted)
        for t in range(limit):
            chosen = self._draw(t)
            going = [
                i
                for i, row in enumerate(self.rows)
                if not self.ended[row] and t + 1 < len(self.wanted[row].uniforms)
            ]
            if not going:
                break
            if len(going) < len(self.rows):
                chosen = self._keep(going, chosen)
            self._advance(chosen)
        return [
            Drawn(tuple(ids), tuple(logprobs), ended)
            for ids, logprobs, ended in zip(self.ids, self.logprobs, self.ended, strict=True)
        ]

    def _draw(self, t: int) -> torch.Tensor:
        """The next token of every row, noted with its log-probability."""
        wanted = [self.wanted[row] for row in self.rows]
        logits = self.logits
        if logits.dim() == 3:
            logits = self.module.combine(logits, [one.picks[t] for one in wanted])
        heat = torch.tensor([one.temperature or 1.0 for one in wanted], device=self.device)
        logprobs = torch.log_softmax(logits.float() / heat[:, None], dim=1)
        shares = logprobs.double().exp()
        if any(one.top_p < 1 for one in wanted):
            shares = _nucleus(shares, [one.top_p for one in wanted])
        upto = shares.cumsum(1)
        points = torch.tensor([one.uniforms[t] for one in wanted], dtype=torch.float64)
        reach = points.to(self.device)[:, None] * upto[:, -1:]
        chosen = torch.searchsorted(upto, reach, right=True).clamp(max=upto.shape[1] - 1)
        greedy = torch.tensor([one.temperature == 0 for one in wanted], device=self.device)
        chosen = torch.where(greedy[:, None], logprobs.argmax(1, keepdim=True), chosen)
        of_chosen = logprobs.gather(1, chosen)[:, 0].tolist()
        for row, token, logprob in zip(self.rows, chosen[:, 0].tolist(), of_chosen, strict=True):
            self.ids[row].append(token)
            self.logprobs[row].append(logprob)
            self.ended[row] = token in self.ends
        return chosen

    def _keep(self, going: list[int], chosen: torch.Tensor) -> torch.Tensor:
        """Go on with these rows alone."""
        index = torch.tensor(going, device=self.device)
        self.rows = [self.rows[i] for i in going]
        self.cache.batch_select_indices(index)
        self.mask, self.position = self.mask[index], self.position[index]
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


def _nucleus(shares: torch.Tensor, top_p: Sequence[float]) -> torch.Tensor:
    """Probabilities with everything outside the nucleus set to 0 (Holtzman et al. 2020)."""
    ordered, order = shares.sort(dim=1, descending=True, stable=True)
    before = ordered.cumsum(1) - ordered
    bound = torch.tensor(top_p, dtype=shares.dtype, device=shares.device)[:, None]
    ordered = torch.where(before < bound, ordered, 0.0)
    return torch.zeros_like(shares).scatter(1, order, ordered)
