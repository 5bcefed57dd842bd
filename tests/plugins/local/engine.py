"""A real HTTP server that samples from a real tiny model, as vLLM and SGLang do it."""

from __future__ import annotations

import asyncio
import copy
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from orchestrion_local.runtime import LocalModel
from orchestrion_local.sampling import Completion, Prompt, sample

from orchestrion import Key
from tests.service import ModelService, Reply, Seen, reply

__all__ = ["Engine", "completion", "engine_of"]


def completion(prompt: list[int], drawn: Completion, **more: Any) -> dict[str, Any]:
    """A completion as both servers write it."""
    choice = {
        "index": 0,
        "text": "not to be read",
        "finish_reason": "stop" if drawn.ended else "length",
        "logprobs": {
            "tokens": ["not to be read"] * len(drawn.ids),
            "token_logprobs": list(drawn.logprobs),
            "top_logprobs": [{"not to be read": logprob} for logprob in drawn.logprobs],
        },
        "token_ids": list(drawn.ids),
        "prompt_token_ids": prompt,
    }
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], **more}


class Engine:
    """Answers requests; give it to a `ModelService`, or let `serve` do so.

    Args:
        base: what it serves under the name "base", and what adapters are put on.
    """

    def __init__(self, base: Any) -> None:
        self._modules = {"base": base}
        self.weights = "default"
        """What SGLang calls the weights that it was given last."""
        self.loaded: list[str] = []
        """Names of adapters and folders that it was told to load."""
        self.asked: Counter[int] = Counter()
        """How often a completion was given, by its seed."""
        self.together = 1
        """No completion is given before so many were asked for."""
        self.hold: int | None = None
        """Once so many were answered, others are not."""
        self.held: set[int] = set()
        """The seeds of those."""
        self._arrived = 0
        self._free = asyncio.Event()

    async def __call__(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        """See `Reply`."""
        path = seen.path.removeprefix("/v1")
        data = seen.data if seen.body else {}
        if path == "/completions":
            await self._queue()
            if self.hold is not None and sum(self.asked.values()) >= self.hold:
                self.held.add(data["seed"])
                await asyncio.sleep(3600)  # a timer that the loop holds on to
        status, body = self._answer(path, data)
        await reply(status, body)(seen, writer)

    async def _queue(self) -> None:
        self._arrived += 1
        if self._arrived >= self.together:
            self._free.set()
        else:
            self._free.clear()
        await self._free.wait()

    def _answer(self, path: str, data: Mapping[str, Any]) -> tuple[int, Any]:
        if path == "/completions":
            return self._complete(data)
        if path == "/models":
            return 200, {"object": "list", "data": [{"id": name} for name in self._modules]}
        if path == "/load_lora_adapter":
            return self._load(data["lora_name"], data["lora_path"])
        if path == "/unload_lora_adapter":
            if data["lora_name"] not in self._modules:
                return 404, {"error": {"message": "cannot be found", "code": 404}}
            del self._modules[data["lora_name"]]
            return 200, "Success"
        if path == "/update_weights_from_disk":
            return self._update(data["model_path"], data["weight_version"])
        return 404, {"detail": "Not Found"}

    def _complete(self, data: Mapping[str, Any]) -> tuple[int, Any]:
        self.asked[data["seed"]] += 1
        module = self._modules.get(data["model"])
        if module is None:
            return 404, {"error": {"message": "The model does not exist.", "code": 404}}
        wanted = Prompt(
            data["prompt"],
            Key(data["seed"]).uniforms(data["max_tokens"]),
            data["temperature"],
            data["top_p"],
        )
        [drawn] = sample(module, [wanted], data["stop_token_ids"], 0)
        metadata = {"weight_version": self.weights}
        return 200, completion(data["prompt"], drawn, metadata=metadata)

    def _load(self, name: str, path: str) -> tuple[int, Any]:
        from peft import PeftModel

        if name in self._modules:
            return 400, {"error": {"message": f"{name} has already been loaded", "code": 400}}
        with warnings.catch_warnings():
            # What one library has to say to the other.
            warnings.simplefilter("ignore", FutureWarning)
            module: Any = PeftModel.from_pretrained(copy.deepcopy(self._modules["base"]), path)
        self._modules[name] = module.eval()
        self.loaded.append(name)
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def _update(self, path: str, version: str) -> tuple[int, Any]:
        from transformers import AutoModelForCausalLM

        auto: Any = AutoModelForCausalLM  # parts of it have no types
        self._modules = {"base": auto.from_pretrained(path).eval()}
        self.weights = version
        self.loaded.append(version)
        return 200, {"success": True, "message": "Succeeded to update model weights."}

    def restart(self) -> None:
        """Forget all that was loaded since the start, as a server does that crashed."""
        self._modules = {"base": self._modules["base"]}
        self.weights = "default"

    @property
    def serves(self) -> set[str]:
        """The names of the models that it has."""
        return set(self._modules)


def engine_of(model: LocalModel) -> Engine:
    """One that serves a model's weights as they are now."""
    with torch.no_grad():
        return Engine(copy.deepcopy(model.module))


def server(engine: Reply, *first: Reply) -> ModelService:
    """A server that gives some answers first, and the engine's from then on."""
    return ModelService(*first, engine)
