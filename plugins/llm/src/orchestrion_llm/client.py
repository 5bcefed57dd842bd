"""An open connection to a service through its vendor's SDK, which makes one attempt at a call.

The SDK supplies authentication, headers, addresses and errors; its retries are off. The rest is
done here: redirects are refused, bodies are capped, streams must end properly, and answers are
checked before use. `check` tries key and model by free requests before a run. This module is
imported when a model is opened, never before.
"""

from __future__ import annotations

import codecs
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import msgspec
from attrs import frozen

from orchestrion import Answer, CallError, Usage, UsageError, did_you_mean, hidden
from orchestrion_llm import faults
from orchestrion_llm.embeddings import embedded
from orchestrion_llm.faults import Place
from orchestrion_llm.prices import Price, Tokens, billed, usage_of
from orchestrion_llm.transport import EncodedError, TooLongError, http_client, timeouts
from orchestrion_llm.wire import Collector, MalformedError, Result, ServiceError, Wire

if TYPE_CHECKING:
    from orchestrion_llm.batches import Batches
    from orchestrion_llm.settings import ApiSettings, Batch

_LOOK = 15.0
_PARTIAL = 120
_LINE_END = re.compile(rb"\r\n|\n|\r")


@frozen
class Sdk:
    """A vendor's client, and the errors that it raises."""

    client: Any
    status_error: type[Exception]
    connection_error: type[Exception]


def open_sdk(
    vendor: str, key: str, base_url: str, headers: Mapping[str, str], timeout: float
) -> Sdk:
    """Return the SDK of "anthropic" or "openai"; nothing is read from the environment."""
    settings: dict[str, Any] = {
        "api_key": key,
        "base_url": base_url,
        "max_retries": 0,
        "timeout": timeouts(timeout),
        "default_headers": dict(headers),
        "http_client": http_client(base_url, timeout),
    }
    if vendor == "anthropic":
        import anthropic

        client = anthropic.AsyncAnthropic(**settings, open_telemetry=False)
        return Sdk(client, anthropic.APIStatusError, anthropic.APIConnectionError)
    import openai

    return Sdk(openai.AsyncOpenAI(**settings), openai.APIStatusError, openai.APIConnectionError)


class Client:
    """Makes attempts at calls of one model."""

    def __init__(
        self, sdk: Sdk, wire: Wire, place: Place, price: Price | None, settings: ApiSettings
    ) -> None:
        self._sdk, self._wire, self._place, self._price = sdk, wire, place, price
        self._batches: Batches | None = None
        self._whole, self._pieces = timeouts(settings.timeout), timeouts(settings.idle_timeout)

    def wait_in_batches(self, vendor: str, settings: Batch, folder: Path) -> None:
        """Have all later attempts wait in batches; `folder` keeps which batches were sent."""
        from orchestrion_llm.batches import AnthropicBatches, Batches, OpenAIBatches

        sdk, place = self._sdk.client, self._place
        api = (
            AnthropicBatches(sdk, place)
            if vendor == "anthropic"
            else OpenAIBatches(sdk, place, f"/v1{self._wire.path}")
        )
        ledger = folder / f"{blake2b(place.service.encode(), digest_size=8).hexdigest()}.json"
        fault = partial(self._fault, reserve=Usage())
        self._batches = Batches(api, place, settings, ledger, fault)

    async def close(self) -> None:
        """Close the connections."""
        if self._batches is not None:
            await self._batches.close()
        await self._sdk.client.close()

    async def attempt(
        self, content: bytes, name: str, reserve: Usage, show: Callable[[str], None] | None
    ) -> Answer:
        """Make one attempt at a call.

        Args:
            content: the body.
            name: the same for all attempts at one call, and different for other calls.
            reserve: the bound of the attempt; booked if the attempt may have cost something and
                the service does not say what.
            show: receives the text as it comes; without it nothing is streamed.

        Raises:
            CallError: with its kind of fault. It has no cause: errors of the SDK hold headers and
                bodies.
            TimeoutError: nothing came, or no more.
        """
        failure: CallError | TimeoutError | None = None
        try:
            if self._batches is not None:
                name = name.replace(".", "-")[:64]  # as both vendors take it
                result = self._wire.read(await self._batches.answer(name, content))
            else:
                response = await self._send(content, name, stream=show is not None)
                result = (
                    self._wire.read(response.content)
                    if show is None
                    else await self._collect(response, show, reserve)
                )
        except Exception as error:
            failure = self._fault(error, reserve)
            if self._batches is not None:
                self._batches.forget(name)
        if failure is None:
            return self._answer(result, reserve)
        if isinstance(failure, faults.DeclinedError):
            # It is free before anything was written, but perhaps not in the middle of an answer.
            tokens = Tokens(0, 0) if failure.spent is None else None
            return self._answer(Result("", "refused", self._place.model, tokens=tokens), reserve)
        raise failure

    async def embed(self, content: bytes, name: str, reserve: Usage, count: int) -> Answer:
        """Make one attempt at embedding `count` texts; see `attempt` for arguments and errors."""
        failure: CallError | TimeoutError | None = None
        try:
            response = await self._send(content, name, stream=False, path=self._wire.embeddings)
            vectors, tokens = embedded(response.content, count)
        except Exception as error:
            failure = self._fault(error, reserve)
        if failure is not None:
            raise failure
        usage = reserve if tokens is None else usage_of(tokens, self._price)
        return Answer({"vectors": vectors}, usage, estimated=tokens is None)

    async def _send(
        self, content: bytes, name: str, stream: bool, path: str | None = None
    ) -> httpx2.Response:
        options = {
            "headers": {"Content-Type": "application/json", "Idempotency-Key": name},
            "timeout": self._pieces if stream else self._whole,
        }
        response: httpx2.Response = await self._sdk.client.post(
            path or self._wire.path,
            cast_to=httpx2.Response,
            content=content,
            options=options,
            stream=stream,
            stream_cls=None,
        )
        return response

    async def _collect(
        self, response: httpx2.Response, show: Callable[[str], None], reserve: Usage
    ) -> Result:
        """Return the answer in a stream, which must state that it is complete or why the answer
        ended.

        A truncated body (by its length, or in chunks) is an error in any case.
        """
        collector = self._wire.collector()
        begun = False
        try:
            async for name, data in _events(response):
                text = collector.event(name, data)
                begun = True
                if text:
                    show(text)
                if collector.whole:
                    break
        except httpx2.RequestError as error:
            if isinstance(error, httpx2.TimeoutException):
                raise
            raise MalformedError(_broken_off(collector, faults.described(error))) from None
        except ServiceError as error:
            fault = faults.of_error(self._place, error)
            # What came before it may cost something, as in a stream that breaks off.
            fault.spent = reserve if begun else None
            raise fault from None
        finally:
            await response.aclose()
        if not collector.whole and not collector.ended:
            raise MalformedError(_broken_off(collector, "its end is missing"))
        return collector.result()

    def _answer(self, result: Result, reserve: Usage) -> Answer:
        data, tokens = result.data(), result.tokens
        if tokens is not None and (tokens.output or not (result.text or result.tool_calls)):
            if counts := {**billed(tokens, self._price), **result.uses}:
                data["billed"] = counts
            return Answer(data, usage_of(tokens, self._price, result.uses))
        # The service states no usage, or none for an answer with content. The answer's length is no
        # bound either: models think in tokens that are paid for and not shown.
        return Answer(data, reserve, estimated=True)

    def _fault(self, error: Exception, reserve: Usage) -> CallError | TimeoutError:
        """Return the fault of a failed attempt; core books timeouts in full."""
        sdk, place = self._sdk, self._place
        if isinstance(error, CallError):
            return error
        if isinstance(error, sdk.status_error):
            response: httpx2.Response = error.response  # type: ignore[attr-defined]
            return faults.of_answer(place, response.status_code, response.headers, response.content)
        if isinstance(error, ServiceError):
            return faults.of_error(place, error)
        if isinstance(error, MalformedError):
            return CallError(f"{place.service}: {error}", "malformed", spent=reserve)
        if faults.caused_by(error, TooLongError, EncodedError):
            return CallError(
                f"{place.service}: {faults.described(error)}", "malformed", spent=reserve
            )
        if not isinstance(error, (httpx2.RequestError, sdk.connection_error)):
            raise error
        return self._connection_fault(error, reserve)

    def _connection_fault(self, error: Exception, reserve: Usage) -> CallError | TimeoutError:
        service = self._place.service
        if faults.caused_by(error, ssl.SSLCertVerificationError):
            return CallError(f"{service}: {faults.described(error)}", "permanent")
        if faults.caused_by(error, httpx2.ConnectError, httpx2.ConnectTimeout):
            return CallError(f"{service} cannot be reached: {faults.described(error)}")
        if faults.caused_by(error, httpx2.TimeoutException):
            return TimeoutError()
        # The request was sent: the service may have answered and charged it.
        return CallError(
            f"{service}: the connection broke: {faults.described(error)}", spent=reserve
        )

    async def look(self, path: str) -> httpx2.Response:
        """Make a free request; return the response with any status.

        Raises:
            CallError: there was no response.
        """
        try:
            response: httpx2.Response = await self._sdk.client.get(
                path, cast_to=httpx2.Response, options={"timeout": timeouts(_LOOK)}
            )
            return response
        except self._sdk.status_error as error:
            return error.response  # type: ignore[attr-defined,no-any-return]
        except (httpx2.RequestError, self._sdk.connection_error) as error:
            failure = self._connection_fault(error, Usage())
        if isinstance(failure, TimeoutError):
            raise CallError(f"{self._place.service}: no answer within {_LOOK:g} s")
        raise failure


def _broken_off(collector: Collector, why: str) -> str:
    text = hidden("".join(collector.pieces))
    shown = repr(text[-_PARTIAL:]) if text else "nothing"
    return f"a stream that broke off after {len(text)} characters ({why}); last came {shown}"


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the names and data of server-sent events."""
    name = ""
    data: list[bytes] = []
    async for line in _lines(response):
        if not line:
            if any(data):
                yield name, b"\n".join(data)
            name, data = "", []
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            name = line[6:].strip().decode(errors="replace")
        elif line.startswith((b"{", b"<")):
            # An answer in one piece instead of a stream.
            raise MalformedError("no stream of events")
    if any(data):
        yield name, b"\n".join(data)


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield lines as events define them: other line ends of Unicode are part of texts."""
    held = bytearray()
    begun = returned = False
    async for chunk in response.aiter_bytes():
        if not begun:
            chunk, begun = chunk.removeprefix(codecs.BOM_UTF8), True
        # The line feed of a carriage return may come with the next chunk.
        chunk = b"\r" + chunk if returned else chunk
        returned = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(chunk[:-1] if returned else chunk)
        held += first
        for line in others:
            yield bytes(held)
            held = bytearray(line)
    if held or returned:
        yield bytes(held)


class _Entry(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Entry]


async def check(
    client: Client,
    models: str,
    place: Place,
    base_url: str,
    note: Callable[[str, str], None],
) -> None:
    """Check key and model by free requests.

    `models` is the path of the list of models; `note` receives what could not be checked.

    Raises:
        UsageError: the key is refused, the model is unknown, or there is no response.
    """
    failure = ""
    try:
        response = await client.look(f"{models}/{quote(place.model, safe='')}")
        if response.status_code == 404:
            listed = await client.look(models)
            if listed.status_code != 404:
                response = listed
            names = _names(listed.content) if listed.status_code == 200 else None
            if names is not None and place.model not in names:
                close = did_you_mean(place.model, names)
                failure = f"{place.service}: there is no model {place.model!r} there{close}"
    except CallError as error:
        failure = str(error)
    if failure:
        raise UsageError(f"{place.path}: {failure}")
    status = response.status_code
    if status == 200:
        return
    fault = faults.of_answer(place, status, response.headers, response.content)
    if status in (401, 403) or 300 <= status < 400 or fault.fault == "quota":
        raise UsageError(f"{place.path}: {fault}{_advice(place, base_url, status)}")
    note("preflight", f"key and model could not be checked: {fault}")


def _names(body: bytes) -> list[str] | None:
    try:
        return [entry.id for entry in msgspec.json.decode(body, type=_List).data]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _advice(place: Place, base_url: str, status: int) -> str:
    if status not in (401, 403):
        return ""
    if place.key_env:
        return f"; put a valid key for {base_url} into {place.key_env}"
    return f"; name the environment variable with a key for {base_url} as {place.path}.key_env"
