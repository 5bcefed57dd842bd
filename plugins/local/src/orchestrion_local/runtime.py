"""A model with local weights: answers in batches, and learns by what a teacher says.

Of bits: on a processor, an answer depends on the weights, the prompt, the call's key and, in the
last bits of log-probabilities, on the requests that are computed in one batch with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from typing import Any

import torch
from attrs import asdict

from orchestrion import JSON, Answer, CallError, Calls, Key, Model, Request, Usage
from orchestrion_local.batching import Batcher
from orchestrion_local.interfaces import Generation
from orchestrion_local.memory import BATCH
from orchestrion_local.sampling import Completion, Prompt, sample
from orchestrion_local.settings import UNSUPPORTED, SamplingLimits
from orchestrion_local.tokenizers import Tokenizer
from orchestrion_local.weights import Weights

VERSION = "1"


class LocalModel(Weights):
    """See `HF` for the settings; `Weights` for the arguments."""

    unsupported = UNSUPPORTED
    together = True

    _teacher: Model | None = None
    served: Any = None
    """A `serving.Served`, which samples in place of this process; None without a server."""

    @cached_property
    def limits(self) -> SamplingLimits:
        """How it samples if a request has no settings of its own."""
        return self.settings.sampling()

    @cached_property
    def batcher(self) -> Batcher:
        """What collects requests that are computed together."""
        return Batcher(self._sample, self.batch, self.settings.overlap)

    @property
    def max_tokens(self) -> int:
        return self.limits.max_tokens

    # ------------------------------------------------------------------ answering

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """See `Model.complete`; the answer's data has a `generation` beside the text.

        Raises:
            CallError: (permanent) see `limits_of`.
        """
        if self._teacher is not None:
            return await self._ask_teacher(self._teacher, request, key, calls)
        prompt = self.tokenizer.encode(request["messages"])
        limits = limits_of(self.name, request, self.limits, len(prompt), self.context)
        if self.served is not None:
            answer: Answer = await self.served.complete(
                request["messages"], prompt, limits, key, calls
            )
            return answer
        wanted = Prompt(prompt, key.uniforms(limits.max_tokens), limits.temperature, limits.top_p)

        async def do() -> Answer:
            completion = await self.batcher(wanted)
            return self.answer(prompt, completion, limits.temperature, self.version)

        settings = {
            "model": self.name,
            "version": self.version,
            **asdict(limits),
        }
        call = sampled(self.name, settings, prompt, request, key)
        return await calls.run(call, do, Usage(1, len(prompt), limits.max_tokens))

    async def embed(self, texts: Sequence[str], calls: Calls) -> Answer:
        """See `Model.embed`: the mean of the last layer's hidden states over a text's tokens.

        Raises:
            CallError: (permanent) a text is longer than the model's context.
        """
        prompts = [self.tokenizer.encode_response(text) for text in texts]
        longest = max(map(len, prompts), default=0)
        if longest > self.context:
            raise CallError(
                f"{self.name}: a text of {longest} tokens does not fit the context of "
                f"{self.context}",
                "permanent",
            )
        usage = Usage(1, sum(map(len, prompts)))

        async def do() -> Answer:
            return Answer({"vectors": [self._embedded(prompt) for prompt in prompts]}, usage)

        content = {"model": self.name, "version": self.version, "texts": list(texts)}
        call = Request(f"local:{self.name}", content, VERSION, cache=True, computed=True)
        return await calls.run(call, do, usage)

    def embedding_ceiling(self, tokens: int) -> Usage:
        """Return the maximum usage of embedding texts of `tokens` tokens."""
        return Usage(1, tokens)

    def _embedded(self, prompt: Sequence[int]) -> list[float]:
        """Return the vector of one text, alone: other texts must not change its last bits."""
        if not prompt:
            return [0.0] * int(self.module.config.hidden_size)
        with torch.inference_mode(), self.resident.pinned(), self.active():
            ids = torch.tensor([list(prompt)], device=self.device)
            states = self.module(input_ids=ids, output_hidden_states=True).hidden_states
            vector: list[float] = states[-1][0].double().mean(dim=0).tolist()
            return vector

    def batch(self) -> int:
        """Return how many completions are computed together."""
        given: int | None = self.settings.inherited("batch")
        if given is not None:
            return given
        footprint = self.footprint
        return BATCH if footprint is None else footprint.batch(self._left(0))

    def _sample(self, wanted: Sequence[Prompt]) -> list[Completion]:
        each = self.footprint.completion if self.footprint is not None else 0
        with self.working(len(wanted) * each), self.active():
            return sample(self.module, wanted, self.tokenizer.ends, self.tokenizer.pad)

    def generation(
        self, prompt: Sequence[int], completion: Completion, temperature: float, version: int
    ) -> Generation:
        """Return a completion as a generation to learn from."""
        response = completion.ids, completion.logprobs, temperature, completion.stop
        return Generation(self.name, version, tuple(prompt), *response)

    def answer(
        self, prompt: Sequence[int], completion: Completion, temperature: float, version: int
    ) -> Answer:
        """Return a completion by some version of the weights as an answer."""
        generation = self.generation(prompt, completion, temperature, version)
        answer = answer_of(self.name, self.tokenizer, prompt, completion)
        return Answer({**answer.data, "generation": generation.to_json()}, answer.usage)

    def ceiling(self, tokens: int) -> Usage:
        """Return the maximum usage of a completion whose prompt has at most `tokens` tokens."""
        return Usage(1, min(tokens, self.context), self.limits.max_tokens)

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[bool]:
        if self.served is None:
            yield False
            return
        async with self.served.holding():
            yield True

    # ------------------------------------------------------------------ teachers

    @contextmanager
    def answered_by(self, teacher: Model) -> Iterator[None]:
        before, self._teacher = self._teacher, teacher
        try:
            yield
        finally:
            self._teacher = before

    async def _ask_teacher(
        self, teacher: Model, request: Mapping[str, JSON], key: Key, calls: Calls
    ) -> Answer:
        answer = await teacher.complete(request, key, calls)
        generation = self.as_generation(request["messages"], answer.data["text"])
        return Answer({**answer.data, "generation": generation.to_json()}, answer.usage)

    def as_generation(self, messages: Sequence[Mapping[str, JSON]], text: str) -> Generation:
        prompt, response = self.tokenizer.encode(messages), self.tokenizer.encode_response(text)
        tokens = len(prompt) + len(response)
        if tokens > self.context:
            raise CallError(
                f"{self.name}: {tokens} tokens to learn from do not fit a context of "
                f"{self.context}; the text begins {text[:80]!r}",
                "permanent",
            )
        # It was not sampled here: its log-probabilities at sampling are unknown.
        unknown = (0.0,) * len(response)
        return Generation(self.name, self.version, tuple(prompt), tuple(response), unknown)


def answer_of(
    name: str, tokenizer: Tokenizer, prompt: Sequence[int], completion: Completion
) -> Answer:
    """Return a completion as an answer of the model with this name."""
    data = {
        "text": tokenizer.decode(completion.ids),
        "stop": completion.stop,
        "tool_calls": [],
        "model": name,
    }
    return Answer(data, Usage(1, len(prompt), len(completion.ids)))


def sampled(
    name: str,
    settings: Mapping[str, JSON],
    prompt: Sequence[int],
    request: Mapping[str, JSON],
    key: Key,
) -> Request:
    """Return the call of sampling from weights: identified by its tokens, shown as messages."""
    return Request(
        f"local:{name}",
        {**settings, "prompt": prompt},
        VERSION,
        sample=key.hex(),
        timeout=86400,
        shown={**settings, "messages": request["messages"]},
        computed=True,
    )


def limits_of(
    name: str, request: Mapping[str, JSON], default: SamplingLimits, prompt: int, context: int
) -> SamplingLimits:
    """Return how a request is sampled, with `default` for what it leaves out.

    Raises:
        CallError: (permanent) it does not fit the context, or weights do not support a setting.
    """
    for unsupported in sorted(UNSUPPORTED):
        if request.get(unsupported):
            raise CallError(f"{name}: local weights do not support `{unsupported}`", "permanent")
    longest = int(request.get("max_tokens") or default.max_tokens)
    if prompt + longest > context:
        raise CallError(
            f"{name}: a prompt of {prompt} tokens and a response of {longest} do not fit a "
            f"context of {context}",
            "permanent",
        )
    temperature, top_p = request.get("temperature"), request.get("top_p")
    return SamplingLimits(
        longest,
        default.temperature if temperature is None else float(temperature),
        default.top_p if top_p is None else float(top_p),
    )
