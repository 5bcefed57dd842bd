"""Local models that a server of vLLM samples for: how far its values are from our own.

    python dev.py python -m tests.benchmarks.local --vllm VLLM     # the program `vllm`

A server on this machine samples for an adapter that is trained here, and gets its weights after
each update. Printed is how far its log-probabilities are from those computed here, and how many of
32 responses are repeated by requests with the same keys.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from typing import Any

import numpy as np
import torch
from orchestrion_local.hf import HF
from orchestrion_local.interfaces import Generation
from orchestrion_local.optimizing import WeightOptimizer
from orchestrion_local.runtime import LocalModel
from orchestrion_local.settings import Architecture, Lora, Optimizer, Server

from orchestrion import Answer, Key, OpenContext, Request, Usage
from tests.benchmarks.support import running

ALPHABET = "0123456789abcdefghVSAMyn="


class Straight:
    """Calls that are simply made."""

    watched = False

    async def run(self, request: Request, do: Any, reserve: Usage) -> Answer:
        """Make it."""
        answer: Answer = await do()
        return answer


def prompt(i: int) -> list[dict[str, str]]:
    """One of many."""
    return [{"role": "user", "content": f"V{i % 10}{'abcdefgh'[i % 8]}M{i // 8 % 10}="}]


async def sampled(model: LocalModel, count: int) -> list[Generation]:
    """Completions asked for at once."""
    answers = await asyncio.gather(
        *(
            model.complete({"messages": prompt(i)}, Key(0).child(0, i), Straight())  # type: ignore[arg-type]
            for i in range(count)
        )
    )
    return [Generation.from_json(one.data["generation"]) for one in answers]


async def served(program: str) -> None:
    """Sample by vLLM, with three updates of the weights; print how far its values are from ours."""
    shape = Architecture(type="llama", layers=2, width=64, heads=2, context=96)
    start = HF(architecture=shape, alphabet=ALPHABET, max_tokens=24)
    with tempfile.TemporaryDirectory() as folder:
        base = f"{folder}/tiny"
        async with start.open(OpenContext("models.tiny", Key(0))) as model:
            assert isinstance(model, LocalModel)
            model.module.save_pretrained(base)
            model.tokenizer.save(base)
        words = [
            *(program, "serve", base, "--served-model-name", "tiny"),
            *("--dtype", "float32", "--enforce-eager", "--enable-lora", "--max-lora-rank", "16"),
            *("--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"),
        ]
        own = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        with running(*words, environment=own) as address:
            server = Server(f"{address}/v1", "tiny", sync="lora", folder=f"{folder}/weights")
            tuned = HF(path=base, lora=Lora(rank=16), max_tokens=24, server=server)
            async with tuned.open(OpenContext("models.tiny", Key(0))) as model:
                assert isinstance(model, LocalModel)
                await compared(model)


async def compared(model: LocalModel) -> None:
    """Print the difference of log-probabilities after each update, and what is repeated."""
    optimizer = WeightOptimizer(model, Optimizer(3e-2), 3)
    targets = [model.as_generation(prompt(i), "77777") for i in range(8)]
    for _ in range(4):
        generations = await sampled(model, 32)
        with torch.no_grad():
            here = model.score(generations).logprobs.tolist()
        gaps = [
            abs(a - b)
            for generation, row in zip(generations, here, strict=True)
            for a, b in zip(generation.logprobs, row, strict=False)
        ]
        again = await sampled(model, 32)
        same = sum(a.response == b.response for a, b in zip(generations, again, strict=True))
        versions = {generation.version for generation in generations}
        print(
            f"vLLM, version {versions}: {len(gaps)} tokens, log-probabilities differ by "
            f"{np.mean(gaps):.1e} (at most {max(gaps):.1e}); {same} of 32 repeated"
        )
        with optimizer.pinned():
            scored = model.score(targets)
            optimizer.zero()
            optimizer.backward(-(scored.logprobs * scored.mask).sum() / scored.mask.sum())
            optimizer.step()
        model.updated()


async def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--vllm", required=True, help="the program of vLLM")
    given = parser.parse_args()
    torch.set_num_threads(1)
    await served(given.vllm)


if __name__ == "__main__":
    asyncio.run(main())
