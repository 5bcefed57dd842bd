"""Samples from several networks as from one; see `Mixture` for the distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from orchestrion import JSON, Answer, Calls, Key, Model, Usage, UsageError
from orchestrion_local.batching import Batcher
from orchestrion_local.offloading import fits
from orchestrion_local.runtime import LocalModel, answer_of, limits_of, sampled
from orchestrion_local.sampling import CACHE, Completion, Prompt, roomy_cache, sample
from orchestrion_local.settings import SamplingLimits


class _Caches:
    """The caches of all members, changed together."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def batch_repeat_interleave(self, repeats: int) -> None:
        for part in self.parts:
            part.batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        for part in self.parts:
            part.batch_select_indices(indices)


class _Network:
    """The members as the network that `sample` expects; its logits have a dimension for members."""

    def __init__(self, members: Sequence[LocalModel], weights: Sequence[float], mode: str) -> None:
        self.members, self.mode = members, mode
        total = sum(weights)
        self.shares = torch.tensor([weight / total for weight in weights], dtype=torch.float64)

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        return iter(self.members[0].module.parameters())

    def make_cache(self) -> _Caches:
        return _Caches([roomy_cache() for _ in self.members])

    def __call__(self, ids: torch.Tensor, **rest: Any) -> SimpleNamespace:
        caches: _Caches = rest.pop(CACHE)
        logits = []
        for member, cache in zip(self.members, caches.parts, strict=True):
            with member.active():
                out = member.module(ids, **{CACHE: cache}, **rest)
            logits.append(out.logits)
        return SimpleNamespace(logits=torch.stack(logits, dim=2))

    def combine(self, logits: torch.Tensor, picks: torch.Tensor) -> torch.Tensor:
        """Return one distribution for each row, as logits [B, V], from logits [B, members, V]."""
        logprobs = torch.log_softmax(logits.double(), dim=-1)
        shares = self.shares.to(logits.device)
        if self.mode == "average":
            return torch.logsumexp(logprobs + shares.log()[None, :, None], dim=1)
        chosen = torch.searchsorted(shares.cumsum(0), picks, right=True)
        rows = torch.arange(len(picks), device=logits.device)
        return logprobs[rows, chosen.clamp(max=len(shares) - 1)]


class MixedModel(Model):
    """Answers requests by all members together.

    Args:
        path: config path of the mixture.
        models: the members, all of them `hf` models with one tokenizer on one device.
        weights: of the members; empty for equal ones.
        mode: see `Mixture.mode`.
        limits: sampling where the request has no settings of its own.

    Raises:
        UsageError: a member is not an `hf` model, or differs in tokenizer or device.
    """

    def __init__(
        self,
        path: str,
        models: Sequence[Model],
        weights: Sequence[float],
        mode: str,
        limits: SamplingLimits,
    ) -> None:
        self.name, self.limits = path.partition(".")[2] or path, limits
        members: list[LocalModel] = []
        for i, member in enumerate(models):
            if not isinstance(member, LocalModel):
                raise UsageError(f"{path}.members[{i}]: is not an `hf` model")
            members.append(member)
        first = members[0]
        for i, member in enumerate(members):
            if not first.tokenizer.same_as(member.tokenizer):
                raise UsageError(
                    f"{path}.members[{i}]: {member.name} has another tokenizer than "
                    f"{first.name}; only models with the same tokenizer can be mixed"
                )
            if member.device != first.device:
                raise UsageError(
                    f"{path}.members[{i}]: {member.name} is on {member.device}, "
                    f"{first.name} on {first.device}; place all members on one device"
                )
        self.members = members
        fits(*(member.resident for member in members))
        self._network = _Network(members, weights or [1.0] * len(members), mode)
        self._tokenizer = first.tokenizer
        self.batcher = Batcher(self._sample, first.batch)

    def _sample(self, wanted: Sequence[Prompt]) -> list[Completion]:
        first, *others = (member.resident for member in self.members)
        with first.pinned(*others):
            return sample(self._network, wanted, self._tokenizer.ends, self._tokenizer.pad)

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """See `Model.complete`.

        Raises:
            CallError: (permanent) in the cases in which an `hf` model raises one.
        """
        context = min(member.context for member in self.members)
        prompt = self._tokenizer.encode(request["messages"])
        limits = limits_of(self.name, request, self.limits, len(prompt), context)
        wanted = Prompt(
            prompt,
            key.uniforms(limits.max_tokens),
            limits.temperature,
            limits.top_p,
            key.child("member").uniforms(limits.max_tokens),
        )

        async def do() -> Answer:
            return answer_of(self.name, self._tokenizer, prompt, await self.batcher(wanted))

        settings = {
            "model": self.name,
            "versions": [member.version for member in self.members],
            "max_tokens": limits.max_tokens,
        }
        sent = sampled(self.name, settings, prompt, request, key)
        return await calls.run(sent, do, Usage(1, len(prompt), limits.max_tokens))

    def ceiling(self, tokens: int) -> Usage:
        """Return the maximal usage of a completion whose prompt has at most `tokens` tokens."""
        return Usage(1, tokens, self.limits.max_tokens)
