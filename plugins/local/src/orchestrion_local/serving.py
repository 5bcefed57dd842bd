"""Sampling by a server. The weights are here; what they say is drawn there.

Prompts go out as token ids, and token ids come back with the log-probabilities that they were drawn
with. What an answer claims is checked before anybody learns from it. Imported when a model with a
`server` is opened, never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import torch
from attrs import evolve
from orchestrion_llm import EncodedError, Place, TooLongError, described, http_client

from orchestrion import JSON, Answer, CallError, Calls, Key, OpenContext, Request, Usage, UsageError
from orchestrion.runs import mean
from orchestrion_local.exporting import Exports
from orchestrion_local.replies import Models, Replies, Reply, Update
from orchestrion_local.sampling import Drawn

if TYPE_CHECKING:
    from orchestrion_local.interfaces import Generation
    from orchestrion_local.runtime import LocalModel
    from orchestrion_local.server import Server
    from orchestrion_local.settings import Limits

__all__ = ["Served", "served"]

VERSION = "1"
"""Raised when equal requests begin to be sent or read differently."""

_NEUTRAL: dict[str, JSON] = {
    # Servers take what is not said from a file beside the weights. What is sampled from must be
    # what is trained: the model's distribution at this temperature, with nothing cut off it.
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_TRIED = 4
"""Tokens that are asked for before a run begins."""

_encode = msgspec.json.encode


class Served:
    """The server that samples for a model.

    Args:
        model: whose weights are sampled.
        settings: of the server.
        path: of the model in the config.
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
        self._ends = model.tokenizer.ends | _ends_of(model.module)
        size = int(model.module.config.get_text_config().vocab_size)
        self._replies = Replies(self._place, self._ends, size)
        self._exports = None if settings.folder is None else Exports(model, settings.folder)
        self._now: tuple[int, str] | None = None
        """The version that the server has, and what it is called there, if that is known."""
        self._under = 0
        """Which version of the weights under an adapter that goes with."""
        self._syncing: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ answering

    async def complete(
        self, messages: JSON, prompt: Sequence[int], limits: Limits, key: Key, calls: Calls
    ) -> Answer:
        """One completion; it is journaled, since nobody can compute it again.

        Args:
            messages: what the prompt was made of, for the record.
            prompt: its tokens.
            limits: of the response.
            key: of the call.
            calls: of the activation.

        Raises:
            CallError: with its class of fault.
        """
        seed = key.child("seed").integer() % 2**31

        async def do() -> Answer:
            version, name = await self._current()
            drawn = await self._drawn(name, prompt, limits, seed)
            return self._model.answer(prompt, drawn, limits.temperature, version)

        settings = {
            "model": self._model.name,
            "version": self._wanted,
            "served": self._settings.model,
            "max_tokens": limits.max_tokens,
            "temperature": limits.temperature,
            "top_p": limits.top_p,
            "seed": seed,
        }
        asked = Request(
            self._place.service,
            {**settings, "prompt": prompt},
            VERSION,
            sample=key.hex(),
            timeout=self._settings.timeout,
            shown={**settings, "messages": messages},
        )
        return await calls.run(asked, do, Usage(1, len(prompt), limits.max_tokens))

    async def _drawn(self, name: str, prompt: Sequence[int], limits: Limits, seed: int) -> Drawn:
        body = {
            "model": name,
            "prompt": prompt,
            "max_tokens": limits.max_tokens,
            "temperature": limits.temperature,
            "top_p": limits.top_p,
            "seed": seed,
            "stop_token_ids": sorted(self._ends),
            "logprobs": 1,
            "return_token_ids": True,
            **_NEUTRAL,
        }
        response = await self._post(f"{self._base}/completions", body)
        if response.status_code == 404 and name != self._settings.model:
            self._now = None
            raise CallError(f"{self._place.service}: has lost {name}; it is given it again")
        reply = self._replies.read(response, Reply)
        self._check_weights(reply)
        return self._replies.drawn(reply, prompt, limits.max_tokens)

    def _check_weights(self, reply: Reply) -> None:
        """SGLang says which weights it sampled from."""
        found = (reply.metadata or {}).get("weight_version")
        if found is None or self._exports is None or self._settings.sync != "disk":
            return
        if self._now is not None and found != self._exports.newest:
            self._now = None
            raise CallError(
                f"{self._place.service}: has other weights ({found}) than it was given "
                f"({self._exports.newest}); it is given them again"
            )

    # ------------------------------------------------------------------ weights

    @property
    def _wanted(self) -> int:
        """The version that is sampled from."""
        return 0 if self._exports is None else self._model.version

    async def _current(self) -> tuple[int, str]:
        """The version that the server samples from, and its name, once it has the newest.

        Who asks first lets the server know; the others wait for the same.
        """
        if self._exports is None:
            return 0, self._settings.model
        model = self._model
        while self._now is None or (self._now[0], self._under) != (
            model.version,
            model.root.version,
        ):
            if self._syncing is None:
                self._syncing = asyncio.create_task(self._sync(self._exports))
                self._syncing.add_done_callback(self._synced)
            # One that runs out of time must not take it from the others.
            await asyncio.shield(self._syncing)
        return self._now

    def _synced(self, task: asyncio.Task[None]) -> None:
        self._syncing = None
        if not task.cancelled():
            task.exception()  # has been told to those who waited, if anybody still did

    async def _sync(self, exports: Exports) -> None:
        model, name = self._model, self._settings.model
        version, under = model.version, model.root.version
        if self._settings.sync == "disk":
            folder = await asyncio.to_thread(exports.whole, version)
            await self._update(str(folder), folder.name)
        elif model.root is not model and under > 0:
            raise self._replies.unfit(
                f"{model.name} is an adapter on {model.root.name}, which has learned; the server "
                "has that as it was, and needs `sync: disk`"
            )
        elif version > 0:  # a fresh adapter changes nothing
            folder = await asyncio.to_thread(exports.adapter, version)
            name = folder.name
            await self._load(str(folder), name)
        self._now, self._under = (version, name), under
        for former in exports.former():
            if self._settings.sync == "disk" or await self._unloaded(former):
                exports.remove(former)

    async def _load(self, folder: str, name: str) -> None:
        """Let vLLM load an adapter."""
        body = {"lora_name": name, "lora_path": folder}
        response = await self._post(f"{self._base}/load_lora_adapter", body)
        if response.status_code == 200:
            return
        if response.status_code in (404, 405):
            raise self._replies.unfit(
                "has no load_lora_adapter; start vLLM with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            )
        # A name is made of what it names: who has it already has the same weights.
        listed = await self._send("GET", f"{self._base}/models")
        if listed.status_code != 200 or name not in {
            one.id for one in self._replies.read(listed, Models).data
        }:
            raise self._replies.fault(response)

    async def _unloaded(self, name: str) -> bool:
        """Whether the server has let go of an adapter; if not, it is asked again next time."""
        try:
            url = f"{self._base}/unload_lora_adapter"
            return (await self._post(url, {"lora_name": name})).status_code in (200, 404)
        except (CallError, TimeoutError):
            return False

    async def _update(self, folder: str, name: str) -> None:
        """Let SGLang take over a whole model; what it kept of earlier ones it drops by itself."""
        root = self._base.removesuffix("/v1")
        body = {"model_path": folder, "weight_version": name}
        response = await self._post(f"{root}/update_weights_from_disk", body)
        if response.status_code in (404, 405):
            raise self._replies.unfit(
                "has no update_weights_from_disk, which SGLang has; for vLLM use a `lora` and "
                "`sync: lora`"
            )
        done = self._replies.read(response, Update)
        if not done.success:
            raise self._replies.unfit(f"did not take over {folder}: {done.message}")

    async def try_out(self, note: Callable[[str, str], None]) -> None:
        """Ask for a few tokens before a run begins.

        Raises:
            UsageError: the server does not answer, or not with what is needed.
        """
        model = self._model
        tried = min(_TRIED, model.context - 1)
        limits = evolve(model.settings.sampling(), max_tokens=tried)
        prompt = (min(self._ends),)
        try:
            drawn = await self._drawn(self._settings.model, prompt, limits, 0)
        except CallError as error:
            raise UsageError(f"{self._place.path}: {error}") from None
        except TimeoutError:
            raise UsageError(
                f"{self._place.path}: {self._place.service} did not answer within "
                f"{self._settings.timeout:g} s"
            ) from None
        if self._settings.sync != "disk":  # else it has whatever it was given last
            gap = self._gap(model.generation(prompt, drawn, limits.temperature, 0))
            note(
                "server",
                f"log-probabilities of {self._place.service} differ from those of "
                f"{model.name} here by {gap:.2g} on average of {len(drawn.ids)} tokens",
            )

    def _gap(self, generation: Generation) -> float:
        with torch.no_grad():
            here: list[float] = self._model.score([generation]).logprobs[0].tolist()
        pairs = zip(here, generation.logprobs, strict=True)
        return mean([abs(one - other) for one, other in pairs])

    async def close(self) -> None:
        """Stop what is under way."""
        if self._syncing is not None:
            self._syncing.cancel()
            await asyncio.gather(self._syncing, return_exceptions=True)

    # ------------------------------------------------------------------ HTTP

    async def _post(self, url: str, body: Mapping[str, Any]) -> httpx2.Response:
        return await self._send("POST", url, _encode(body))

    async def _send(self, method: str, url: str, content: bytes | None = None) -> httpx2.Response:
        service = self._place.service
        try:
            return await self._client.request(method, url, content=content, headers=self._headers)
        except httpx2.ConnectTimeout as error:
            failure = CallError(f"{service} cannot be reached: {described(error)}")
        except httpx2.TimeoutException:
            raise TimeoutError from None
        except httpx2.RequestError as error:
            failure = CallError(f"{service} cannot be reached: {described(error)}")
        except (TooLongError, EncodedError) as error:
            failure = CallError(f"{service}: {described(error)}", "malformed")
        raise failure


def _ends_of(module: Any) -> frozenset[int]:
    """Tokens that servers take for an end because the model's own settings name them."""
    found = getattr(getattr(module, "generation_config", None), "eos_token_id", None)
    if isinstance(found, int):
        return frozenset({found})
    return frozenset(found or ())


@asynccontextmanager
async def served(model: LocalModel, settings: Server, ctx: OpenContext) -> AsyncIterator[None]:
    """While it lasts, the server samples for the model.

    Raises:
        UsageError: live, and it does not answer, or not with what is needed.
    """
    key = ctx.secret(settings.key_env).reveal() if settings.key_env is not None else ""
    async with http_client(settings.base_url, settings.timeout) as client:
        made = Served(model, settings, ctx.path, client, key)
        if ctx.live:
            await made.try_out(ctx.note)
        model.served = made
        try:
            yield
        finally:
            model.served = None
            await made.close()
