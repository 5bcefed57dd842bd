"""The vendors' batch APIs as a transport: requests wait together, for hours, at half the price.

Which request is in which batch is on disk before anybody waits for it, so that a run that was
killed takes up the batches it has sent. Nothing is held while a batch is under way, neither a
connection nor a thread. Imported when a model is opened, never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Protocol

import httpx2
import msgspec

from orchestrion import CallError
from orchestrion.runs import make_folder, write_atomic
from orchestrion_llm import faults
from orchestrion_llm.faults import Place
from orchestrion_llm.settings import Batch
from orchestrion_llm.wire import decoded

Results = dict[str, bytes | CallError]
"""The body of each answer, or why there is none, by the name of the request."""


class BatchApi(Protocol):
    """A vendor's batch API."""

    async def submit(self, requests: Mapping[str, bytes]) -> str:
        """Send the bodies of requests by name; return the batch's id."""
        ...

    async def results(self, batch: str) -> Results | None:
        """Return the results of a batch; None while it is under way."""
        ...


class Batches:
    """Gathers requests into batches and waits for their answers.

    The file `ledger` says which request is in which batch; `fault` turns errors of the SDK into
    `CallError`.
    """

    def __init__(
        self,
        api: BatchApi,
        place: Place,
        settings: Batch,
        ledger: Path,
        fault: Callable[[Exception], Exception],
    ) -> None:
        self._api, self._place, self._settings, self._fault = api, place, settings, fault
        self._file = ledger
        known = ledger.read_bytes() if ledger.exists() else b"{}"
        self._batch_of: dict[str, str] = msgspec.json.decode(known, type=dict[str, str])
        self._queue: dict[str, bytes] = {}
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._gathering: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._watching: dict[str, asyncio.Task[None]] = {}

    async def answer(self, name: str, body: bytes) -> bytes:
        """Return the body of the answer to a request, which may be in a batch already.

        Raises:
            CallError: there is none; the next try is in another batch.
        """
        future = self._waiting.get(name)
        if future is None:
            future = self._waiting[name] = asyncio.get_running_loop().create_future()
            batch = self._batch_of.get(name)
            if batch is None:
                self._queue[name] = body
                self._gathering = self._gathering or asyncio.create_task(self._gather())
            elif batch not in self._watching:
                self._watching[batch] = asyncio.create_task(self._watch(batch))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if self._queue.pop(name, None) is not None:
                # Not sent yet. Others who wait for the same answer try again.
                self._settle({name: CallError(f"{self._place.service}: not sent in a batch")})
            raise

    async def close(self) -> None:
        """Stop waiting; batches under way go on at the service."""
        if self._sending is not None:
            await asyncio.wait([self._sending])
        tasks = [task for task in (self._gathering, *self._watching.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for future in self._waiting.values():
            future.cancel()

    async def _gather(self) -> None:
        """Send what is waiting, once no more comes."""
        settings = self._settings
        while self._queue:
            count = 0
            while count < len(self._queue) < settings.size:
                count = len(self._queue)
                await asyncio.sleep(settings.gather)
            names = sorted(self._queue)[: settings.size]
            requests = {name: self._queue.pop(name) for name in names}
            if not requests:
                continue
            # Not cut off in the middle: what was sent must be on disk.
            self._sending = asyncio.create_task(self._send(requests))
            await asyncio.shield(self._sending)
        self._gathering = None

    async def _send(self, requests: Mapping[str, bytes]) -> None:
        try:
            batch = await self._api.submit(requests)
        except Exception as error:
            self._settle(dict.fromkeys(requests, self._failure(error)))
            return
        self._batch_of |= dict.fromkeys(requests, batch)
        self._write()
        self._watching[batch] = asyncio.create_task(self._watch(batch))

    async def _watch(self, batch: str) -> None:
        """Wait for a batch, and give its results to those who wait."""
        while True:
            names = [name for name, batch_id in self._batch_of.items() if batch_id == batch]
            results: Results | None = None
            try:
                results = await self._api.results(batch)
            except Exception as error:
                failure = self._failure(error)
                # What passes is waited for: the batch goes on, and is paid.
                if failure.fault not in ("transient", "overload", "rate_limit"):
                    results = dict.fromkeys(names, failure)
            if results is not None:
                missing = CallError(f"{self._place.service}: batch {batch} has no such answer")
                self._settle({name: results.get(name, missing) for name in names})
                del self._watching[batch]
                return
            await asyncio.sleep(self._settings.poll)

    def _settle(self, results: Results) -> None:
        for name, result in results.items():
            future = self._waiting.pop(name, None)
            if isinstance(result, CallError):
                self.forget(name)
                if future is not None and not future.done():
                    future.set_exception(copy(result))
                    future.exception()  # nobody may wait for it any more: no warning
            elif future is not None and not future.done():
                future.set_result(result)

    def forget(self, name: str) -> None:
        """Have the next try of a request sent in another batch."""
        if self._batch_of.pop(name, None) is not None:
            self._write()

    def _write(self) -> None:
        data = msgspec.json.encode(self._batch_of)
        write_atomic(make_folder(self._file.parent) / self._file.name, [data])

    def _failure(self, error: Exception) -> CallError:
        try:
            fault = self._fault(error)
        except Exception:  # an answer in another form: whoever waits must not wait for ever
            what = f"{type(error).__name__}: {error}"
            return CallError(f"{self._place.service}: about a batch: {what}", "permanent")
        if isinstance(fault, CallError):
            fault.spent = None  # an attempt to send or look costs nothing
            return fault
        return CallError(f"{self._place.service}: no answer about a batch")


class AnthropicBatches:
    """Message Batches of Anthropic."""

    def __init__(self, client: Any, place: Place) -> None:
        self._client, self._place = client, place

    async def submit(self, requests: Mapping[str, bytes]) -> str:
        listed = [
            {"custom_id": name, "params": msgspec.json.decode(body)}
            for name, body in requests.items()
        ]
        batch = await self._client.messages.batches.create(requests=listed)
        return str(batch.id)

    async def results(self, batch: str) -> Results | None:
        """See `BatchApi.results`. The address of the results is ours, not one from an answer."""
        state = await self._client.messages.batches.retrieve(batch)
        if state.processing_status != "ended":
            return None
        path = f"/v1/messages/batches/{batch}/results"
        response: httpx2.Response = await self._client.get(path, cast_to=httpx2.Response)
        return dict([self._result(line) async for line in _lines(response.content)])

    def _result(self, line: Mapping[str, Any]) -> tuple[str, bytes | CallError]:
        result, name = line["result"], str(line["custom_id"])
        if result["type"] in ("succeeded", "errored"):
            # An error has the form of an error that is answered to a call.
            body = result["message"] if result["type"] == "succeeded" else result["error"]
            return name, msgspec.json.encode(body)
        return name, CallError(f"{self._place.service}: {result['type']} in its batch")


class OpenAIBatches:
    """Batches of OpenAI, whose requests and results are files."""

    def __init__(self, client: Any, place: Place, endpoint: str) -> None:
        self._client, self._place, self._endpoint = client, place, endpoint

    async def submit(self, requests: Mapping[str, bytes]) -> str:
        head = {"method": "POST", "url": self._endpoint}
        lines = [
            msgspec.json.encode({"custom_id": name, **head, "body": msgspec.Raw(body)})
            for name, body in requests.items()
        ]
        file = ("requests.jsonl", b"\n".join(lines))
        uploaded = await self._client.files.create(file=file, purpose="batch")
        batch = await self._client.batches.create(
            input_file_id=uploaded.id, endpoint=self._endpoint, completion_window="24h"
        )
        return str(batch.id)

    async def results(self, batch: str) -> Results | None:
        state = await self._client.batches.retrieve(batch)
        if state.status not in ("completed", "failed", "expired", "cancelled"):
            return None
        results: Results = {}
        for file in filter(None, (state.output_file_id, state.error_file_id)):
            content = (await self._client.files.content(file)).content
            async for line in _lines(content):
                results[str(line["custom_id"])] = self._result(line)
        return results

    def _result(self, line: Mapping[str, Any]) -> bytes | CallError:
        response = line.get("response")
        if response is None:
            why = (line.get("error") or {}).get("message") or "failed"
            return CallError(f"{self._place.service}: {why} (in its batch)")
        body = msgspec.json.encode(response["body"])
        if response["status_code"] == 200:
            return body
        return faults.of_answer(self._place, response["status_code"], {}, body)


async def _lines(content: bytes) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the objects of JSON lines; the loop gets its turn between them."""
    for line in content.splitlines():
        if line.strip():
            yield decoded(line, dict)
            await asyncio.sleep(0)
