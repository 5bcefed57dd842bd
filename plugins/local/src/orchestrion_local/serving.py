"""Sampling by a server: vLLM, SGLang, or another with OpenAI's completions and token ids.

Prompts are sent as token ids; token ids come back with the log-probabilities of sampling. Every
response is checked before anything learns from it. Changed weights are written to a folder before
the next request; names of versions contain a digest of the weights, so a name never means two
versions. Imported only when a model with a `server` is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec
import torch
from attrs import asdict, evolve
from orchestrion_llm import EncodedError, Place, TooLongError, described, http_client, of_answer

from orchestrion import JSON, Answer, CallError, Calls, Key, OpenContext, Request, Usage, UsageError
from orchestrion.runs import mean
from orchestrion_local.completions import CompletionReader, CompletionReply
from orchestrion_local.exporting import Exports
from orchestrion_local.runtime import LocalModel
from orchestrion_local.sampling import Completion
from orchestrion_local.settings import SamplingLimits, Server

T = TypeVar("T")

VERSION = "1"
"""Raised when equal requests begin to be sent or read differently."""
_NEUTRAL: dict[str, JSON] = {
    # Servers read missing settings from a file beside the weights. Sampling and training must see
    # the same distribution: the model's at this temperature, with nothing cut off.
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_TRIED = 4
"""Number of tokens that are requested before a run begins."""


class _Updated(msgspec.Struct):
    success: bool = True
    message: str = ""


class _Named(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Named]


class _Weights(NamedTuple):
    """Weights for the server: their version, that of those under an adapter, the server's name for
    them, and the folder that they were written to; None for those that the server began with.
    """

    version: int
    under: int
    name: str
    folder: Path | None


class Served:
    """The server that samples for a model.

    Args:
        model: the model with the weights.
        settings: of the server.
        path: config path of the model.
        client: for HTTP.
        key: the server's; "" for none.
    """

    def __init__(
        self, model: LocalModel, settings: Server, path: str, client: httpx2.AsyncClient, key: str
    ) -> None:
        self._model, self._settings, self._client = model, settings, client
        self._base = settings.base_url.rstrip("/")
        service = f"server:{settings.model}@{urlsplit(settings.base_url).netloc}"
        self._place = Place(f"{path}.server", service, settings.model, settings.key_env or "")
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        # Servers also end at the tokens that the model's own settings name.
        own = getattr(getattr(model.module, "generation_config", None), "eos_token_id", None)
        self._ends = model.tokenizer.ends | {*([own] if isinstance(own, int) else own or ())}
        vocabulary = int(model.module.config.get_text_config().vocab_size)
        self._reader = CompletionReader(self._place, self._ends, vocabulary)
        self._exports = None if settings.folder is None else Exports(model, settings.folder)
        self._loaded: _Weights | None = None
        """What the server has."""
        self._held: _Weights | None = None
        """What it has to have while the model learns; None for the model's newest."""
        self._syncing: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ answering

    async def complete(
        self, messages: JSON, prompt: Sequence[int], limits: SamplingLimits, key: Key, calls: Calls
    ) -> Answer:
        """Return one completion; it is journaled, since nothing can compute it again.

        Args:
            messages: what the prompt was made of, for the record.
            prompt: token ids.
            limits: of the response.
            key: of the call.
            calls: of the activation.

        Raises:
            CallError: the request failed, or the response cannot be right.
        """
        seed = key.child("seed").integer() % 2**31

        async def do() -> Answer:
            version, name = await self._current()
            completion = await self._completion(name, prompt, limits, seed)
            return self._model.answer(prompt, completion, limits.temperature, version)

        settings = {
            "model": self._model.name,
            "version": self._versions[0],
            "served": self._settings.model,
            **asdict(limits),
            "seed": seed,
        }
        call = Request(
            self._place.service,
            {**settings, "prompt": prompt},
            VERSION,
            sample=key.hex(),
            timeout=self._settings.timeout,
            shown={**settings, "messages": messages},
        )
        return await calls.run(call, do, Usage(1, len(prompt), limits.max_tokens))

    async def _completion(
        self, name: str, prompt: Sequence[int], limits: SamplingLimits, seed: int
    ) -> Completion:
        body = {
            "model": name,
            "prompt": prompt,
            **asdict(limits),
            "seed": seed,
            "stop_token_ids": sorted(self._ends),
            "logprobs": 1,
            "return_token_ids": True,
            **_NEUTRAL,
        }
        response = await self._send("POST", f"{self._base}/completions", body)
        service, exports = self._place.service, self._exports
        if response.status_code == 404 and name != self._settings.model:
            self._loaded = None
            raise CallError(f"{service}: has lost {name}; it is sent again")
        reply = self._read(response, CompletionReply)
        # SGLang says which weights it sampled from.
        weights = (reply.metadata or {}).get("weight_version")
        is_checked = weights is not None and self._settings.sync == "disk" and self._loaded
        if is_checked and exports is not None and weights != exports.newest:
            self._loaded = None
            raise CallError(
                f"{service}: has other weights ({weights}) than it was sent ({exports.newest}); "
                "they are sent again"
            )
        return self._reader.read(reply, prompt, limits.max_tokens)

    # ------------------------------------------------------------------ reading

    def _read(self, response: httpx2.Response, kind: type[T]) -> T:
        """Return a body; raise CallError if it is an error, or malformed."""
        if response.status_code != 200:
            raise self._fault(response)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._reader.malformed(f"another form than was requested: {error}") from None

    def _fault(self, response: httpx2.Response) -> CallError:
        return of_answer(self._place, response.status_code, response.headers, response.content)

    # ------------------------------------------------------------------ weights

    @property
    def _versions(self) -> tuple[int, int]:
        """The versions that answers have to come from: of the weights, and under an adapter."""
        if self._exports is None:
            return 0, 0
        if self._held is not None:
            return self._held[:2]
        return self._model.version, self._model.root.version

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Answer from the weights of now until the end, though the model learns meanwhile."""
        if self._exports is not None:
            self._held = await self._exported(self._exports)
        try:
            yield
        finally:
            self._held = None

    async def _current(self) -> tuple[int, str]:
        """Return the version that the server has and its name, after sending it the newest.

        The first caller sends it; the others wait for the same task.
        """
        if self._exports is None:
            return 0, self._settings.model
        while self._loaded is None or self._loaded[:2] != self._versions:
            if self._syncing is None:
                self._syncing = asyncio.create_task(self._sync(self._exports))
                self._syncing.add_done_callback(self._synced)
            # A caller's timeout must not cancel it for the others.
            await asyncio.shield(self._syncing)
        return self._loaded.version, self._loaded.name

    def _synced(self, task: asyncio.Task[None]) -> None:
        self._syncing = None
        if not task.cancelled():
            task.exception()  # the callers that waited have it

    async def _exported(self, exports: Exports) -> _Weights:
        """Write the model's weights to a folder, unless the server has them from the start."""
        model, name = self._model, self._settings.model
        version, under = model.version, model.root.version
        folder = None
        if self._settings.sync == "disk":
            folder = await asyncio.to_thread(exports.whole, version)
        elif model.root is not model and under > 0:
            raise self._reader.unfit(
                f"{model.name} is an adapter on {model.root.name}, which was trained; the server "
                "has its old weights, and needs `sync: disk`"
            )
        elif version > 0:  # a fresh adapter changes nothing
            folder = await asyncio.to_thread(exports.adapter, version)
            name = folder.name
        return _Weights(version, under, name, folder)

    async def _sync(self, exports: Exports) -> None:
        weights = self._held or await self._exported(exports)
        if weights.folder is not None:
            if self._settings.sync == "disk":
                await self._update(str(weights.folder), weights.folder.name)
            else:
                await self._load(str(weights.folder), weights.name)
        self._loaded = weights
        for former in exports.former():
            if self._settings.sync == "disk" or await self._unloaded(former):
                exports.remove(former)

    async def _load(self, folder: str, name: str) -> None:
        """Let vLLM load an adapter."""
        body = {"lora_name": name, "lora_path": folder}
        response = await self._send("POST", f"{self._base}/load_lora_adapter", body)
        if response.status_code == 200:
            return
        if response.status_code in (404, 405):
            raise self._reader.unfit(
                "has no load_lora_adapter; start vLLM with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            )
        # An adapter with this name has the same weights.
        listed = await self._send("GET", f"{self._base}/models")
        if listed.status_code != 200 or name not in {
            model.id for model in self._read(listed, _Models).data
        }:
            raise self._fault(response)

    async def _unloaded(self, name: str) -> bool:
        """Return whether the server has unloaded an adapter; if not, the next sync retries."""
        try:
            url = f"{self._base}/unload_lora_adapter"
            response = await self._send("POST", url, {"lora_name": name})
        except (CallError, TimeoutError):
            return False
        return response.status_code in (200, 404)

    async def _update(self, folder: str, name: str) -> None:
        """Let SGLang load a whole model; it drops its caches of earlier ones by itself."""
        root = self._base.removesuffix("/v1")
        body = {"model_path": folder, "weight_version": name}
        response = await self._send("POST", f"{root}/update_weights_from_disk", body)
        if response.status_code in (404, 405):
            raise self._reader.unfit(
                "has no update_weights_from_disk, which SGLang has; for vLLM use a `lora` and "
                "`sync: lora`"
            )
        done = self._read(response, _Updated)
        if not done.success:
            raise self._reader.unfit(f"did not load {folder}: {done.message}")

    # ------------------------------------------------------------------ connection

    async def try_out(self, note: Callable[[str, str], None]) -> None:
        """Request a few tokens before a run begins, and note how log-probabilities differ.

        Raises:
            UsageError: the server does not respond, or lacks something that is needed.
        """
        model, place = self._model, self._place
        limits = evolve(model.limits, max_tokens=min(_TRIED, model.context - 1))
        prompt = (min(self._ends),)
        try:
            completion = await self._completion(self._settings.model, prompt, limits, 0)
        except CallError as error:
            raise UsageError(f"{place.path}: {error}") from None
        except TimeoutError:
            raise UsageError(
                f"{place.path}: {place.service} did not respond within {self._settings.timeout:g} s"
            ) from None
        if self._settings.sync != "disk":  # else it has the weights of an earlier run
            generation = model.generation(prompt, completion, limits.temperature, 0)
            with torch.no_grad():
                own: list[float] = model.score([generation]).logprobs[0].tolist()
            gap = mean([abs(a - b) for a, b in zip(own, completion.logprobs, strict=True)])
            note(
                "server",
                f"log-probabilities of {place.service} differ from those of {model.name} here by "
                f"{gap:.2g} on average of {len(completion.ids)} tokens",
            )

    async def close(self) -> None:
        """Cancel a transfer of weights that is under way."""
        if self._syncing is not None:
            self._syncing.cancel()
            await asyncio.gather(self._syncing, return_exceptions=True)

    async def _send(
        self, method: str, url: str, body: Mapping[str, Any] | None = None
    ) -> httpx2.Response:
        service = self._place.service
        content = None if body is None else msgspec.json.encode(body)
        try:
            return await self._client.request(method, url, content=content, headers=self._headers)
        except httpx2.RequestError as error:
            if isinstance(error, httpx2.TimeoutException) and not isinstance(
                error, httpx2.ConnectTimeout
            ):
                raise TimeoutError from None
            failure = CallError(f"{service} cannot be reached: {described(error)}")
        except (TooLongError, EncodedError) as error:
            failure = CallError(f"{service}: {described(error)}", "malformed")
        raise failure


@asynccontextmanager
async def served(model: LocalModel, settings: Server, ctx: OpenContext) -> AsyncIterator[None]:
    """Let the server sample for the model while the context lasts.

    Raises:
        UsageError: calls are live, and the server does not respond, or lacks what is needed.
    """
    key = ctx.secret(settings.key_env, header=True).reveal() if settings.key_env is not None else ""
    async with http_client(settings.base_url, settings.timeout) as client:
        server = Served(model, settings, ctx.path, client, key)
        if ctx.live:
            await server.try_out(ctx.note)
        model.served = server
        try:
            yield
        finally:
            model.served = None
            await server.close()
