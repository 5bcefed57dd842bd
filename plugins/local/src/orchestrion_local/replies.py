"""What a server says, and whether it can be true: nobody learns from what was not checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import httpx2
import msgspec
from orchestrion_llm import Place, of_answer

from orchestrion import CallError
from orchestrion_local.sampling import Drawn

__all__ = ["Models", "Replies", "Reply", "Update"]

T = TypeVar("T")

_IMPOSSIBLE = -9999.0
"""What some servers write for a probability of 0, which nothing that was drawn can have."""
_ROUNDING = 1e-3
"""How far above 0 a log-probability may come out by rounding."""


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float | None] | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class Reply(msgspec.Struct):
    """Completions; `metadata` is SGLang's."""

    choices: list[_Choice]
    metadata: dict[str, Any] | None = None


class Update(msgspec.Struct):
    """Whether SGLang took over a model."""

    success: bool = True
    message: str = ""


class _Named(msgspec.Struct):
    id: str


class Models(msgspec.Struct):
    """What a server serves."""

    data: list[_Named]


class Replies:
    """Reads the answers of one server.

    Args:
        place: whom messages speak of.
        ends: tokens that end a completion.
        size: of the vocabulary.
    """

    def __init__(self, place: Place, ends: frozenset[int], size: int) -> None:
        self._place, self._ends, self._size = place, ends, size

    def fault(self, response: httpx2.Response) -> CallError:
        """What an answer means that is an error by its status."""
        return of_answer(self._place, response.status_code, response.headers, response.content)

    def unfit(self, what: str) -> CallError:
        """A server that cannot do what is needed."""
        return CallError(f"{self._place.service} ({self._place.path}): {what}", "permanent")

    def read(self, response: httpx2.Response, kind: type[T]) -> T:
        """A body of some form.

        Raises:
            CallError: it is an error, or of another form.
        """
        if response.status_code != 200:
            raise self.fault(response)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._lie(f"another form than was asked for: {error}") from None

    def drawn(self, reply: Reply, prompt: Sequence[int], longest: int) -> Drawn:
        """What was drawn, if it can be true.

        Raises:
            CallError: it cannot, or it is not what was asked for.
        """
        if len(reply.choices) != 1:
            raise self._lie(f"{len(reply.choices)} completions where 1 was asked for")
        choice = reply.choices[0]
        ids = choice.token_ids
        said = None if choice.logprobs is None else choice.logprobs.token_logprobs
        if ids is None:
            raise self.unfit(
                "no token ids came back, though `return_token_ids` asks for them; take vLLM from "
                "0.10.2 on, an SGLang that knows that field (July 2026 or later), or no `server`"
            )
        if said is None:
            raise self.unfit(
                "no log-probabilities came back, though `logprobs` asks for them; vLLM gives them "
                "unless it was started with --max-logprobs 0"
            )
        if choice.prompt_token_ids is not None and choice.prompt_token_ids != list(prompt):
            raise self.unfit("the prompt that it read is not the one that it was sent")
        if choice.finish_reason not in ("stop", "length"):
            raise CallError(f"{self._place.service}: broke off ({choice.finish_reason})")
        logprobs = tuple(_logprob(one) for one in said)
        wrong = self._wrong(ids, logprobs, longest, choice.finish_reason == "stop")
        if wrong:
            raise self._lie(wrong)
        return Drawn(tuple(ids), logprobs, ids[-1] in self._ends)

    def _wrong(
        self, ids: Sequence[int], logprobs: Sequence[float], longest: int, ended: bool
    ) -> str:
        """What cannot be true of a completion; "" if all can."""
        if len(ids) != len(logprobs):
            return f"{len(ids)} token ids and {len(logprobs)} log-probabilities"
        if not 0 < len(ids) <= longest:
            return f"{len(ids)} tokens where 1 to {longest} were asked for"
        for token in ids:
            if not 0 <= token < self._size:
                return f"the token id {token}, and ids go from 0 to {self._size - 1}"
        if any(math.isnan(one) for one in logprobs):
            return "a log-probability that is none"
        if any(token in self._ends for token in ids[:-1]):
            return "tokens after one that ends"
        if ended and ids[-1] not in self._ends:
            ends = ", ".join(map(str, sorted(self._ends)))
            return f"an end, but its last token is {ids[-1]} (what ends is {ends})"
        return ""

    def _lie(self, what: str) -> CallError:
        return CallError(f"{self._place.service}: the answer has {what}", "malformed")


def _logprob(said: float | None) -> float:
    """As it was said; not a number where it cannot be."""
    if said is None or not _IMPOSSIBLE < said < _ROUNDING:
        return math.nan
    return min(said, 0.0)
