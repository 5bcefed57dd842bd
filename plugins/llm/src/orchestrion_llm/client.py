"""One open connection to a service, through its vendor's SDK: one attempt of a call at a time.

The SDK supplies authentication, headers, addresses and errors; its retries are off. What it does
not do is done here: redirects are refused, bodies are capped, streams must end properly, and
whatever comes back is checked before use. Imported when a model is opened, never before.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx2
from attrs import frozen

from orchestrion import Answer, CallError, Usage, hidden
from orchestrion_llm import faults
from orchestrion_llm.embeddings import embedded
from orchestrion_llm.faults import Place
from orchestrion_llm.prices import Price, Tokens, usage_of
from orchestrion_llm.transport import EncodedError, TooLongError, http_client, timeouts
from orchestrion_llm.wire import Collector, MalformedError, Result, ServiceError, Wire

if TYPE_CHECKING:
    from orchestrion_llm.settings import ApiSettings

__all__ = ["Client", "Sdk", "anthropic_sdk", "openai_sdk"]

_LOOK = 15.0
_PARTIAL = 120
_LINE_END = re.compile(rb"\r\n|\n|\r")


@frozen
class Sdk:
    """A vendor's client, and the errors it raises."""

    client: Any
    status_error: type[Exception]
    timeout_error: type[Exception]
    connection_error: type[Exception]


def anthropic_sdk(key: str, base_url: str, headers: Mapping[str, str], timeout: float) -> Sdk:
    """Anthropic's SDK, told all it would otherwise look for in the environment."""
    import anthropic

    client = anthropic.AsyncAnthropic(
        api_key=key,
        base_url=base_url,
        max_retries=0,
        timeout=timeouts(timeout),
        default_headers=dict(headers),
        http_client=http_client(base_url, timeout),
        open_telemetry=False,
    )
    return Sdk(
        client, anthropic.APIStatusError, anthropic.APITimeoutError, anthropic.APIConnectionError
    )


def openai_sdk(key: str, base_url: str, headers: Mapping[str, str], timeout: float) -> Sdk:
    """OpenAI's SDK, told all it would otherwise look for in the environment."""
    import openai

    client = openai.AsyncOpenAI(
        api_key=key,
        base_url=base_url,
        max_retries=0,
        timeout=timeouts(timeout),
        default_headers=dict(headers),
        http_client=http_client(base_url, timeout),
    )
    return Sdk(client, openai.APIStatusError, openai.APITimeoutError, openai.APIConnectionError)


class Client:
    """Attempts calls of one model.

    Args:
        sdk: the vendor's client.
        wire: the API to speak.
        place: whom messages speak of.
        price: what tokens cost, if that is known.
        settings: for how long it waits.
    """

    def __init__(
        self, sdk: Sdk, wire: Wire, place: Place, price: Price | None, settings: ApiSettings
    ) -> None:
        self._sdk, self._wire, self._place, self._price = sdk, wire, place, price
        self._whole, self._pieces = timeouts(settings.timeout), timeouts(settings.idle_timeout)

    async def close(self) -> None:
        """Close the connections."""
        await self._sdk.client.close()

    async def attempt(
        self, content: bytes, name: str, reserve: Usage, show: Callable[[str], None] | None
    ) -> Answer:
        """One attempt of a call.

        Args:
            content: the body.
            name: equal in all attempts of one call, and in no other call.
            reserve: what the attempt may take; booked where it may have and does not say.
            show: given the text as it comes; without it nothing is streamed.

        Raises:
            CallError: with its class of fault. No other error is its cause: theirs hold headers
                and bodies.
            TimeoutError: nothing came, or no more.
        """
        failure: CallError | TimeoutError | None = None
        try:
            response = await self._send(content, name, stream=show is not None)
            result = (
                self._wire.read(response.content)
                if show is None
                else await self._collect(response, show, reserve)
            )
        except Exception as error:
            failure = self._fault(error, reserve)
        if failure is None:
            return self._answer(result, reserve)
        if isinstance(failure, CallError) and faults.is_refusal(failure):
            # Before anything was written it is free; in the middle of an answer it may not be.
            tokens = Tokens(0, 0) if failure.spent is None else None
            return self._answer(Result("", "refused", self._place.model, tokens=tokens), reserve)
        raise failure

    async def embed(self, content: bytes, name: str, reserve: Usage, count: int) -> Answer:
        """One attempt of embedding `count` texts; arguments and errors are those of `attempt`."""
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
        """The answer of a stream, which must say that it is whole, or why the answer ended.

        A body that is cut (by its length, or in chunks) is an error in any case.
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
            # What came before it may have been paid for, as in a stream that breaks off.
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
            return Answer(data, usage_of(tokens, self._price))
        # The service does not say, or says that an answer with something in it took nothing. What
        # it wrote is no bound either: models think in tokens that are paid for and not shown.
        return Answer(data, reserve, estimated=True)

    def _fault(self, error: Exception, reserve: Usage) -> CallError | TimeoutError:
        """What a failed attempt means; core books time-outs in full."""
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
        if _caused_by(error, (TooLongError, EncodedError)):
            return CallError(
                f"{place.service}: {faults.described(error)}", "malformed", spent=reserve
            )
        if not isinstance(error, (httpx2.RequestError, sdk.connection_error)):
            raise error
        return self._connection_fault(error, reserve)

    def _connection_fault(self, error: Exception, reserve: Usage) -> CallError | TimeoutError:
        service = self._place.service
        if faults.is_certificate(error):
            return CallError(f"{service}: {faults.described(error)}", "permanent")
        if _caused_by(error, (httpx2.ConnectError, httpx2.ConnectTimeout)):
            return CallError(f"{service} cannot be reached: {faults.described(error)}")
        if _caused_by(error, (httpx2.TimeoutException,)):
            return TimeoutError()
        # The request was on its way: the service may have answered it, and charged for it.
        return CallError(
            f"{service}: the connection broke: {faults.described(error)}", spent=reserve
        )

    async def look(self, path: str) -> httpx2.Response:
        """A free request; gives the answer whatever its status.

        Raises:
            CallError: there was none.
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


def _caused_by(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    for _ in range(12):
        if error is None:
            return False
        if isinstance(error, kinds):
            return True
        error = error.__cause__ or error.__context__
    return False


def _broken_off(collector: Collector, why: str) -> str:
    text = hidden(collector.text)
    shown = repr(text[-_PARTIAL:]) if text else "nothing"
    return f"a stream that broke off after {len(text)} characters ({why}); last came {shown}"


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, bytes]]:
    """Server-sent events: their names and data."""
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
            # An answer in one piece where a stream was asked for.
            raise MalformedError("no stream of events")
    if any(data):
        yield name, b"\n".join(data)


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Lines as events have them: other characters that end lines elsewhere stand in texts."""
    held = bytearray()
    begun = returned = False
    async for chunk in response.aiter_bytes():
        if not begun:
            chunk, begun = chunk.removeprefix(codecs.BOM_UTF8), True
        # A line feed that belongs to a carriage return may come with the next piece.
        chunk = b"\r" + chunk if returned else chunk
        returned = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(chunk[:-1] if returned else chunk)
        held += first
        for line in others:
            yield bytes(held)
            held = bytearray(line)
    if held or returned:
        yield bytes(held)
