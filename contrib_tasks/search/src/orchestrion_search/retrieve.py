"""The agent `retrieve`: asks a retrieval server for documents of the latest query.

The requests are those that the servers of Search-R1 (Jin et al. 2025, arXiv 2503.09516) and Dr.MAS
take: POST {"queries": [text], "topk": 3, "return_scores": true}, answered by {"result":
[[{"document": {"contents": "\\"title\\"\\ntext"}, "score": 0.9}, ...]]}. Imported when a config
names the agent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx2
import msgspec
from attrs import Factory, asdict, field, frozen
from orchestrion_llm import (
    EncodedError,
    Limits,
    Place,
    TooLongError,
    check_address,
    described,
    http_client,
    of_answer,
)

from orchestrion import (
    Agent,
    Answer,
    CallError,
    CallLimits,
    Calls,
    Key,
    Meta,
    OpenContext,
    Output,
    Request,
    Usage,
    View,
    hidden_bytes,
)
from orchestrion_search.answers import value_of

VERSION = "1"
"""Raised when equal requests begin to be sent or read differently."""

_SHOWN = 300
"""Bytes of a refusal that its error shows."""


class _Contents(msgspec.Struct):
    contents: str


class _Hit(msgspec.Struct):
    """A document, alone or with its score."""

    document: _Contents | None = None
    contents: str | None = None


class _Reply(msgspec.Struct):
    result: list[list[_Hit]]


@frozen
class Retrieve:
    """Searches with a retrieval server for the text of the turn before.

    The data of its turn has the documents, for the task `search` with `retriever`.

    Args:
        url: address of the server's search, e.g. http://127.0.0.1:8000/retrieve.
        results: maximum number of documents.
        timeout: seconds for one attempt.
        limits: rate limits of the server.
        role: what routers read about the agent.
    """

    url: str = field(validator=check_address)
    results: Annotated[int, Meta(ge=1)] = 3
    timeout: Annotated[float, Meta(gt=0)] = 60.0
    limits: Limits = Factory(Limits)
    role: str = "finds documents"

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Yield the agent with its connections."""
        async with http_client(self.url, self.timeout) as client:
            yield _Retriever(self, Place(ctx.path, f"retrieval:{self.url}", "", ""), client)


@frozen
class _Retriever(Agent):
    settings: Retrieve
    place: Place
    client: httpx2.AsyncClient

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return the documents as text, and as data under `documents`."""
        query = value_of(view.turns[-1]) if view.turns else ""
        body = {"queries": [query], "topk": self.settings.results, "return_scores": True}
        request = Request(
            self.place.service,
            body,
            VERSION,
            cache=True,
            limits=CallLimits(**asdict(self.settings.limits)),
            timeout=self.settings.timeout,
        )

        async def ask() -> Answer:
            return Answer(await self._documents(body), Usage(1))

        documents: Any = []
        if query:
            documents = (await calls.run(request, ask, Usage(1))).data
        text = "\n".join(f"{document['title']}: {document['text']}" for document in documents)
        return Output(text, {"documents": documents})

    async def _documents(self, body: dict[str, Any]) -> list[dict[str, str]]:
        service = self.place.service
        try:
            response = await self.client.post(self.settings.url, content=msgspec.json.encode(body))
        except (TooLongError, EncodedError) as error:
            raise CallError(f"{service}: {described(error)}", "malformed") from None
        except httpx2.TimeoutException:
            raise TimeoutError from None
        except httpx2.RequestError as error:
            raise CallError(f"{service} cannot be reached: {described(error)}") from None
        if response.status_code != 200:
            raise self._refused(response)
        try:
            [hits] = msgspec.json.decode(response.content, type=_Reply).result
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise CallError(
                f"{service}: the response is not a list of documents for one query: {error}",
                "malformed",
            ) from None
        texts = [hit.document.contents if hit.document else hit.contents or "" for hit in hits]
        return [_document(text) for text in texts[: self.settings.results] if text.strip()]

    def _refused(self, response: httpx2.Response) -> CallError:
        status, content = response.status_code, response.content
        fault = of_answer(self.place, status, response.headers, content)
        text = hidden_bytes(content)[:_SHOWN].decode("utf-8", "replace")
        message = " ".join(f"{self.place.service}: {status} {text}".split())
        if fault.fault == "permanent":
            message += f"; is {self.place.path}.url the address of the search?"
        return CallError(message, fault.fault, fault.retry_after)


def _document(contents: str) -> dict[str, str]:
    """Return title and text; the title is the first line, in quotes or not."""
    title, _, text = contents.strip().partition("\n")
    return {"title": title.strip().strip('"'), "text": text.strip()}
