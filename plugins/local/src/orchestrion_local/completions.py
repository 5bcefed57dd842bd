"""Completions of a server that samples: their form, and checks before any is learned from."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import msgspec
from attrs import frozen
from orchestrion_llm import Place

from orchestrion import CallError
from orchestrion_local.sampling import Completion

_IMPOSSIBLE = -9999.0
"""What some servers write for a probability of 0, which a sampled token cannot have."""
_ROUNDING = 1e-3
"""How far above 0 rounding may put a log-probability."""


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float | None] | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class CompletionReply(msgspec.Struct):
    """Completions; `metadata` is SGLang's."""

    choices: list[_Choice]
    metadata: dict[str, Any] | None = None


@frozen
class CompletionReader:
    """Reads completions, and says what is wrong with one.

    Args:
        place: the server, as messages name it.
        ends: token ids that end a response.
        vocabulary: number of token ids.
    """

    place: Place
    ends: Set[int]
    vocabulary: int

    def read(self, reply: CompletionReply, prompt: Sequence[int], longest: int) -> Completion:
        """Return a completion; raise CallError if it cannot be right, or lacks a needed field."""
        if len(reply.choices) != 1:
            raise self.malformed(f"{len(reply.choices)} completions instead of 1")
        choice = reply.choices[0]
        ids = choice.token_ids
        values = None if choice.logprobs is None else choice.logprobs.token_logprobs
        if ids is None:
            raise self.unfit(
                "the response has no token ids, though `return_token_ids` requests them; use vLLM "
                "from 0.10.2 on, an SGLang that knows that field (July 2026 or later), or no "
                "`server`"
            )
        if values is None:
            raise self.unfit(
                "the response has no log-probabilities, though `logprobs` requests them; vLLM "
                "gives them unless it was started with --max-logprobs 0"
            )
        if choice.prompt_token_ids is not None and choice.prompt_token_ids != list(prompt):
            raise self.unfit("the prompt that it read is not the one that it was sent")
        if choice.finish_reason not in ("stop", "length"):
            raise CallError(f"{self.place.service}: broke off ({choice.finish_reason})")
        logprobs = tuple(
            min(value, 0.0)
            for value in values
            if value is not None and _IMPOSSIBLE < value < _ROUNDING
        )
        bad = next((token for token in ids if not 0 <= token < self.vocabulary), None)
        if len(ids) != len(values):
            raise self.malformed(f"{len(ids)} token ids and {len(values)} log-probabilities")
        if not 0 < len(ids) <= longest:
            raise self.malformed(f"{len(ids)} tokens instead of 1 to {longest}")
        if bad is not None:
            raise self.malformed(f"the token id {bad}; ids are from 0 to {self.vocabulary - 1}")
        if len(logprobs) < len(values):
            raise self.malformed("a log-probability that is not one")
        if any(token in self.ends for token in ids[:-1]):
            raise self.malformed("tokens after an end token")
        if choice.finish_reason == "stop" and ids[-1] not in self.ends:
            ends = ", ".join(map(str, sorted(self.ends)))
            raise self.malformed(
                f"an end, but its last token is {ids[-1]} (the end tokens are {ends})"
            )
        return Completion(tuple(ids), logprobs, ids[-1] in self.ends)

    def unfit(self, problem: str) -> CallError:
        """Return the fault of a server that lacks something."""
        return CallError(f"{self.place.service} ({self.place.path}): {problem}", "permanent")

    def malformed(self, problem: str) -> CallError:
        """Return the fault of a response that cannot be right."""
        return CallError(f"{self.place.service}: the response has {problem}", "malformed")
