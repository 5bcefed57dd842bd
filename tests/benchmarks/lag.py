"""What `lag: 1` of the trainer `marl` gains, where a server samples in a process of its own.

    python dev.py python -m tests.benchmarks.lag
    python dev.py python -m tests.benchmarks.lag --iterations 12

Both runs train one small network with one thread, on the same problems. Printed are the seconds of
an iteration, its sampling and its learning alone, and the ideal: the longer of the two. It needs
two cores, and nothing else that uses them.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

from orchestrion_local.settings import Architecture
from orchestrion_marl.trainer import MarlTrainer

from tests.plugins.local.engine import engine_of, server
from tests.plugins.local.support import opened
from tests.plugins.marl.support import MODEL, PROMPTS, SIZES, config, train

SHAPE = {**SIZES, "width": 512, "layers": 4, "heads": 8}
Times = dict[str, list[float]]


def serve(pipe: Connection) -> None:
    """Serve a network like the one that is trained, until the pipe closes."""

    async def begin() -> Any:
        shape = Architecture(**SHAPE)  # type: ignore[arg-type]
        async with opened(architecture=shape, alphabet=MODEL["alphabet"]) as model:
            return engine_of(model)

    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with server(asyncio.run(begin())) as running:
        pipe.send(running.url)
        pipe.recv()


def timed(times: list[float], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that notes how long it takes."""

    def learn(*arguments: Any) -> Any:
        began = time.monotonic()
        try:
            return function(*arguments)
        finally:
            times.append(time.monotonic() - began)

    return learn


def timed_async(times: list[float], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that notes how long it takes."""

    async def sample(*arguments: Any) -> Any:
        began = time.monotonic()
        try:
            return await function(*arguments)
        finally:
            times.append(time.monotonic() - began)

    return sample


def run(url: str, folder: Path, lag: int, iterations: int) -> Times:
    """Train; return the seconds of every iteration, of its sampling and of its learning."""
    settings = {"base_url": f"{url}/v1", "model": "base", "sync": "disk", "folder": str(folder)}
    data = config(
        models={"m": {**MODEL, "architecture": SHAPE, "server": settings}},
        of=dict.fromkeys(PROMPTS, "m"),
        lag=lag,
        iterations=iterations,
        problems=8,
        group=8,
        updates=2,
        epochs=2,
        importance_cap=2,
    )
    times: Times = {"sampling": [], "learning": []}
    sample = timed_async(times["sampling"], MarlTrainer._sample)
    learn = timed(times["learning"], MarlTrainer._learn)
    iterate = timed_async(times.setdefault("iteration", []), MarlTrainer.iterate)
    with mock.patch.multiple(MarlTrainer, _sample=sample, _learn=learn, iterate=iterate):
        train(folder / f"lag-{lag}", data)
    return times


def main() -> None:
    """Read the options, run, show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=8)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    process = context.Process(target=serve, args=(other,), daemon=True)
    process.start()
    url = mine.recv()
    print(f"{'':8}{'iteration':>11}{'sampling':>10}{'learning':>10}   seconds")
    with tempfile.TemporaryDirectory() as scratch:
        for lag in (0, 1):
            times = run(url, Path(scratch), lag, given.iterations)
            # The first iteration of a lag learns nothing, and the last one learns twice.
            part = slice(1, -1)
            row = {name: mean(values[part]) for name, values in times.items()}
            cells = f"{row['iteration']:11.3f}{row['sampling']:10.3f}{row['learning']:10.3f}"
            print(f"lag {lag}   {cells}")
            if not lag:
                ideal = max(row["sampling"], row["learning"])
                plain = row["iteration"]
        print(f"ideal   {ideal:11.3f}")
        print(f"lag 1 takes {row['iteration'] / plain:.2f} of lag 0; the ideal {ideal / plain:.2f}")
    mine.send(None)
    process.join(10)


if __name__ == "__main__":
    main()
