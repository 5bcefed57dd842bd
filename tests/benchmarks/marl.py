"""Estimators of advantages compared: models trained as one team, from the same warm starts.

    python dev.py python -m tests.benchmarks.marl                  # 8 seeds, an hour of one core
    python dev.py python -m tests.benchmarks.marl --seeds 2 --iterations 20
    python dev.py python -m tests.benchmarks.marl --example math-tiny --kinds "after sft" drmas
    python dev.py python -m tests.benchmarks.marl --memory        # a minute
    python dev.py python -m tests.benchmarks.marl --ranks 1 2     # a minute

Every run is an example with another seed and estimator. A seed's runs have the same warm start,
problems and draws. What is compared is the share of held-out problems that are solved, by the run's
own evaluation. `--jobs` runs as many processes at once; `--set` changes all runs, as `-o` does.
`--memory` instead compares the memory of a forward and backward pass, counted tensor by tensor,
with what `orchestrion devices --plan` reckons. `--ranks` trains one network on so many processes,
and compares the seconds of an update, and the weights with those of the first number.

Published for marl.yaml's task with networks of this size, 4 seeds, 80 iterations: .404 after the
warm start, .792 with global statistics, .887 by agent; paired difference .095, not significant.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from attrs import frozen
from ruamel.yaml import YAML

from orchestrion import Key, OpenContext
from orchestrion.runs import RunReader, estimate
from tests.benchmarks.support import EXAMPLES
from tests.plugins.local.peak import peak

ESTIMATORS = ("drmas", "grpo", "global_step")
WARM = "after sft"


@frozen
class Plan:
    """What is the same in all runs.

    Args:
        folder: that runs are kept in.
        example: the config.
        iterations: of reinforcement learning; None for the example's own.
        changes: overrides of the example.
    """

    folder: Path
    example: Path
    iterations: int | None
    changes: Sequence[str]

    def options(self, kind: str) -> list[str]:
        """Overrides of the example for one kind of run."""
        if kind == WARM:
            stages = YAML(typ="safe").load(self.example)["trainer"]
            return [f"trainer={json.dumps(stages[:1])}"]
        found = [f"trainer[1].advantage.estimator={kind}"]
        if self.iterations is not None:
            found.append(f"trainer[1].iterations={self.iterations}")
        return found


def train(plan: Plan, seed: int, kind: str) -> dict[str, Any]:
    """One run in a process of its own; what came of it, now or when it was last asked for."""
    folder = plan.folder
    kept = folder / f"{kind}-{seed}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text("utf-8")))
    name = f"{kind.replace(' ', '-')}-{seed}"
    # What is left of a run that was cut off.
    shutil.rmtree(folder / "runs" / name, ignore_errors=True)
    words = [sys.executable, "-m", "orchestrion", "train", str(plan.example), "--json"]
    for one in [
        f"seed={seed}",
        f"run.name={name}",
        *plan.options(kind),
        *plan.changes,
    ]:
        words += ["-o", one]
    began = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    data = json.loads(done.stdout)
    with RunReader(Path(data["run"])) as run:
        history = [one.metrics for one in run.iterations()]
    found = {
        "kind": kind,
        "seed": seed,
        "solved": data["report"]["contenders"][0]["solved"]["mean"],
        "outcomes": data["report"]["outcomes"],
        "history": history[1:],
        "seconds": time.monotonic() - began,
    }
    kept.write_text(json.dumps(found), "utf-8")
    return found


def show(runs: Sequence[dict[str, Any]]) -> None:
    """Tables of what came of all runs."""
    by = {(one["kind"], one["seed"]): one for one in runs}
    seeds = sorted({one["seed"] for one in runs})
    kinds = list(dict.fromkeys(one["kind"] for one in runs))
    print("share of held-out problems solved, sampled")
    print(f"{'':12}" + "".join(f"{'seed ' + str(one):>9}" for one in seeds) + "     mean     sd")
    for kind in kinds:
        found = [by[kind, seed]["solved"] for seed in seeds]
        deviation = stdev(found) if len(found) > 1 else 0.0
        cells = "".join(f"{one:9.3f}" for one in found)
        print(f"{kind:12}{cells}{mean(found):9.3f}{deviation:7.3f}")
    print("\npaired differences over seeds, with a 95 % bootstrap interval")
    last = "drmas" if "drmas" in kinds else kinds[-1]
    for other in [kind for kind in kinds if kind != last]:
        pairs = [by[last, seed]["solved"] - by[other, seed]["solved"] for seed in seeds]
        gain = estimate(pairs, Key(0).child(other))
        print(f"{last} - {other:12} {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")
    print(
        "\nin training, over seeds: calls an episode, mean of the first and last 10 iterations and "
        "the least"
    )
    for kind in kinds:
        histories = [by[kind, seed]["history"] for seed in seeds]
        if histories[0]:
            print(kind)
            show_training(histories)
    print(f"\nseconds a run: mean {mean(one['seconds'] for one in runs):.0f}")


def show_training(histories: Sequence[Sequence[dict[str, float]]]) -> None:
    """How often every agent is called, by the metrics of all iterations."""
    every = [metrics for history in histories for metrics in history]
    names = sorted({name for metrics in every for name in metrics})
    for agent in [name.removesuffix("/calls") for name in names if name.endswith("/calls")]:
        calls = f"{agent}/calls"
        first = mean(m[calls] for h in histories for m in h[:10])
        last = mean(m[calls] for h in histories for m in h[-10:])
        least = min(metrics[calls] for metrics in every)
        print(f"  {agent:10} calls {first:.2f} -> {last:.2f}, least {least:.2f}")


def show_memory() -> None:
    """Table of passes of one network: bytes counted, bytes reckoned, seconds."""
    import torch
    from orchestrion_local.interfaces import Generation
    from orchestrion_local.memory import Footprint
    from orchestrion_local.networks import Network
    from orchestrion_local.scoring import score
    from transformers import AutoModelForCausalLM, LlamaConfig

    shape = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 8_000}
    config = LlamaConfig(**shape, **heads, bos_token_id=0, eos_token_id=1)
    sizes = Network.from_config(config.to_dict())
    assert sizes is not None
    auto: Any = AutoModelForCausalLM
    prompt, response = (2,) * 128, (3,) * 128
    rows = [Generation("m", 0, prompt, response, (0.0,) * 128)] * 8
    print(
        f"{sizes.weights / 1e6:.0f} M weights, 8 rows of 512 tokens, MB beside weights, gradients"
    )
    print(f"{'':26}{'counted':>9}{'reckoned':>9}{'seconds':>9}")
    for dtype in (torch.float32, torch.bfloat16):
        for again in (False, True):
            network = auto.from_config(config).to(dtype).eval()
            began = time.monotonic()
            with peak() as counted:
                logprobs = score(network, rows, 0, recompute_layers=again).logprobs
                logprobs.sum().backward()  # type: ignore[no-untyped-call]
            seconds = time.monotonic() - began
            gradients = sizes.weights * dtype.itemsize
            reckoned = Footprint(sizes, dtype.itemsize, None, again, 256).training(8 * 256)
            name = f"{str(dtype)[6:]}{', checkpointing' if again else ''}"
            measured = (counted.most - gradients) / 2**20
            print(f"{name:26}{measured:9.0f}{reckoned / 2**20:9.0f}{seconds:9.1f}")


async def show_ranks(counts: Sequence[int], device: str) -> None:
    """Table of one network's training: processes, seconds of an update, difference of weights."""
    import numpy as np
    import torch
    from orchestrion_local import WeightOptimizer
    from orchestrion_local.devices import Torch
    from orchestrion_local.hf import HF
    from orchestrion_local.interfaces import Generation
    from orchestrion_local.runtime import LocalModel
    from orchestrion_local.settings import Architecture, Optimizer

    shape = Architecture(layers=4, width=256, heads=8, context=256)
    rows = [Generation("m", 0, (2,) * 128, (3 + i,) * 128, (0.0,) * 128) for i in range(8)]
    sizes, updates, first = np.full(8, 256), 5, None
    print(f"{'ranks':>5}{'seconds':>9}{'first':>8}{'difference':>12}")
    for count in counts:
        async with Torch(device).open(OpenContext("devices.d", Key(0))) as place:
            settings = HF(architecture=shape, alphabet="abcdefgh", device=place, ranks=count)
            async with settings.open(OpenContext("models.m", Key(0))) as model:
                assert isinstance(model, LocalModel)
                rate = Optimizer(learning_rate=1e-4)
                optimizer = WeightOptimizer(model, rate, updates, 1024)
                seconds = []

                def loss_of(at: Any, model: LocalModel = model) -> tuple[torch.Tensor, None]:
                    return -model.score([rows[i] for i in at]).logprobs.sum() / 1024, None

                for _ in range(updates + 1):
                    began = time.monotonic()
                    optimizer.accumulate(sizes, loss_of)
                    optimizer.step()
                    seconds.append(time.monotonic() - began)
                model.updated()
                flat = torch.cat([value.detach().flatten() for _, value in model.parameters()])
                first = flat.clone() if first is None else first
                apart = float((flat - first).abs().max())
        print(f"{count:5}{mean(seconds[1:]):9.2f}{seconds[0]:8.1f}{apart:12.1e}")


def main() -> None:
    """Read the options, run, show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--example", default="marl", help="its name; by default marl")
    parser.add_argument("--seeds", type=int, default=8, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--iterations", type=int, help="by default the example's own")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", nargs="*", default=[WARM, *ESTIMATORS])
    parser.add_argument("--folder", type=Path, help="keep the runs there, and go on with them")
    parser.add_argument("--memory", action="store_true", help="compare memory with its reckoning")
    parser.add_argument("--ranks", nargs="+", type=int, help="compare training on N processes")
    parser.add_argument("--device", default="cpu", help="of `--ranks`: cpu or cuda")
    given = parser.parse_args()
    if given.memory:
        show_memory()
        return
    if given.ranks:
        asyncio.run(show_ranks(given.ranks, given.device))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        example = EXAMPLES / f"{given.example}.yaml"
        plan = Plan(folder, example, given.iterations, given.set)
        with ThreadPoolExecutor(given.jobs) as pool:
            waiting = [
                pool.submit(train, plan, seed, kind)
                for seed in range(given.first, given.first + given.seeds)
                for kind in given.kinds
            ]
            runs = []
            for one in waiting:
                runs.append(one.result())
                last = runs[-1]
                print(
                    f"# {last['kind']} seed {last['seed']}: {last['solved']:.3f}, "
                    f"{last['seconds']:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    show(runs)


if __name__ == "__main__":
    main()
