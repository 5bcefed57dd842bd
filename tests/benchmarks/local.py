"""Throughput of local models: batched sampling, and rollout with update beside TRL's trainer.

    python dev.py python -m tests.benchmarks.local
    python dev.py python -m tests.benchmarks.local --trl PYTHON    # of an environment that has trl
    python dev.py python -m tests.benchmarks.local --vllm VLLM     # the program `vllm`

First: completions of 64 episodes asked for at once, and one at a time. Then, with `--trl`: tokens a
second of sampling and learning, ours and TRL's GRPOTrainer, on one network from nothing, one prompt
shape, one optimizer step on as many completions. `pip install trl "torch==2.13.0"` makes such an
environment. One thread each; seconds are of the processor, so that other work on the machine does
not count.

With `--vllm`, instead: a server on this machine samples for an adapter that is trained here, and
gets its weights after each update. Printed is how far its log-probabilities are from those computed
here, and how many of 32 responses are repeated by requests with the same keys.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import torch
from orchestrion_local.hf import HF
from orchestrion_local.interfaces import Generation
from orchestrion_local.optimizing import WeightOptimizer
from orchestrion_local.runtime import LocalModel
from orchestrion_local.settings import Architecture, Lora, Optimizer, Server
from orchestrion_marl.advantages import grpo
from orchestrion_marl.calls import Call
from orchestrion_marl.marl import Marl
from orchestrion_marl.rows import Rows
from orchestrion_marl.settings import Advantage
from orchestrion_marl.updating import Batch, update

from orchestrion import Answer, Key, OpenContext, Request, Usage

ALPHABET = "0123456789abcdefghVSAMyn="
SHAPE = Architecture(type="gpt2", layers=2, width=64, heads=2, context=96)
LENGTH, GROUP = 64, 8


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


async def sampled(model: LocalModel, count: int, first: int = 0) -> list[Generation]:
    """Completions asked for at once."""
    answers = await asyncio.gather(
        *(
            model.complete({"messages": prompt(i)}, Key(0).child(first, i), Straight())  # type: ignore[arg-type]
            for i in range(count)
        )
    )
    return [Generation.from_json(one.data["generation"]) for one in answers]


async def batching(model: LocalModel) -> None:
    """64 at once against one at a time."""
    await sampled(model, 64)
    began = time.process_time()
    together = await sampled(model, 64, 1)
    at_once = time.process_time() - began
    began = time.process_time()
    for i in range(16):
        await model.complete({"messages": prompt(i)}, Key(0).child(2, i), Straight())  # type: ignore[arg-type]
    alone = (time.process_time() - began) * 4
    tokens = sum(len(one.response) for one in together)
    print(f"64 completions: {at_once * 1000:.0f} ms at once, {tokens / at_once:.0f} tokens/s;")
    print(f"{alone * 1000:.0f} ms one at a time: {alone / at_once:.1f} x as long (aim: 8)")


async def ours(model: LocalModel, prompts: int, steps: int) -> float:
    """Tokens a second of sampling and one optimizer step each time."""
    settings = Marl([model], advantage=Advantage("grpo"), optimizer=Optimizer(1e-3))
    optimizer = WeightOptimizer(model, settings.optimizer, steps)
    agents = {"agent": settings.of("agent")}
    tokens, began = 0, 0.0
    for step in range(1 + steps):
        said = await sampled(model, prompts * GROUP, 10 + step)
        outcome = [float(ALPHABET[7] in model.tokenizer.decode(one.response)) for one in said]
        number = np.arange(len(said))
        rows = Rows(outcome, number // GROUP, number, np.zeros(len(said)))
        calls = [
            Call("agent", i, i // GROUP, 0, outcome[i], one, True) for i, one in enumerate(said)
        ]
        advantages = [
            np.full(len(one.response), value) for one, value in zip(said, grpo(rows), strict=True)
        ]
        update(model, optimizer, Batch(calls, advantages), settings, agents, Key(step))
        # The first step, in which kernels are set up, is left out, as it is of TRL's.
        if step:
            tokens += sum(len(one.response) for one in said)
        else:
            began = time.process_time()
    return tokens / (time.process_time() - began)


THEIRS = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import torch
torch.set_num_threads(1)
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

folder, prompts, group, length, steps = sys.argv[1], *map(int, sys.argv[2:6])
tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(folder)
count = prompts * (steps + 2)
texts = ["V%d%sM%d=" % (i % 10, "abcdefgh"[i % 8], i // 8 % 10) for i in range(count)]
seen = []

def reward(completions, completion_ids, **rest):
    seen.append((time.process_time(), sum(len(one) for one in completion_ids)))
    return [float("7" in one) for one in completions]

config = GRPOConfig(
    output_dir=folder + "/out", per_device_train_batch_size=prompts * group, num_generations=group,
    max_completion_length=length, learning_rate=1e-3, max_steps=steps + 2, beta=0.0, use_cpu=True,
    report_to="none", save_strategy="no", logging_steps=10**6, disable_tqdm=True, temperature=1.0,
    gradient_checkpointing=False, bf16=False,
)
data = Dataset.from_dict({"prompt": texts})
trainer = GRPOTrainer(model, reward, args=config, train_dataset=data, processing_class=tokenizer)
trainer.train()
# From the second reward to the last: whole steps, without the first update.
_, (start, _), *rest = seen
print(json.dumps(sum(count for _, count in rest) / (rest[-1][0] - start)))
"""


def theirs(python: str, model: LocalModel, prompts: int, steps: int) -> float:
    """Tokens a second of TRL on the same network."""
    with tempfile.TemporaryDirectory() as folder:
        model.module.save_pretrained(folder)
        model.tokenizer.save(folder)
        words = [python, "-c", THEIRS, folder, *map(str, (prompts, GROUP, LENGTH, steps))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        return float(json.loads(done.stdout.strip().splitlines()[-1]))


@contextmanager
def vllm(program: str, model: str) -> Iterator[str]:
    """Yield the address of a server of vLLM for adapters on a model; end it afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        *(program, "serve", model, "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"),
        *("--enable-lora", "--max-lora-rank", "16", "--generation-config", "vllm"),
        *("--logprobs-mode", "processed_logprobs"),
    ]
    own = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    server = subprocess.Popen(words, env={**os.environ, **own}, stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (URLError, OSError):
                if server.poll() is not None:
                    raise SystemExit(f"{program} ended with {server.returncode}") from None
                time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)


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
        with vllm(program, base) as address:
            server = Server(address, "tiny", sync="lora", folder=f"{folder}/weights")
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
    parser.add_argument("--trl", type=Path, help="a Python that has TRL")
    parser.add_argument("--vllm", type=Path, help="the program of vLLM")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.vllm is not None:
        await served(str(given.vllm))
        return
    settings = HF(architecture=SHAPE, alphabet=ALPHABET, max_tokens=LENGTH)
    async with settings.open(OpenContext("models.tiny", Key(0))) as model:
        assert isinstance(model, LocalModel)
        await batching(model)
        if given.trl is not None:
            peer = theirs(str(given.trl), model, given.prompts, given.steps)
            own = await ours(model, given.prompts, given.steps)
            print(
                f"{given.prompts} prompts x {GROUP} completions a step, sampling and learning: "
                f"{own:.0f} tokens a CPU second, TRL {peer:.0f}: {own / peer:.1f} x (aim: 2)"
            )


if __name__ == "__main__":
    asyncio.run(main())
