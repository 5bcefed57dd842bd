"""Estimators of advantages compared: three models trained as one team, from the same warm starts.

    python dev.py python -m tests.benchmarks.marl                  # 8 seeds, an hour of one core
    python dev.py python -m tests.benchmarks.marl --seeds 2 --iterations 20

Every run is `docs/examples/marl.yaml` with another seed and estimator. A seed's runs have the same
warm start, questions and draws. What is compared is the share of 512 held-out questions that are
solved, by the run's own evaluation. `--jobs` runs as many processes at once.

Published for this task with networks of this size, 4 seeds, 80 iterations: .404 after the warm
start, .792 with global statistics, .887 by agent; paired difference .095, not significant.
"""

from __future__ import annotations

import argparse
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

from orchestrion import Key
from orchestrion.statistics import estimate
from orchestrion.store import RunReader

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "marl.yaml"
ESTIMATORS = ("drmas", "grpo", "global_step")
WARM = "after sft"
AGENTS = ("verifier", "searcher", "answerer")


def options(kind: str, iterations: int) -> list[str]:
    """Overrides of the example for one run."""
    if kind == WARM:
        return [
            "trainer=[{use: sft, models: [v, s, a], teachers: [teacher], episodes: 1024, "
            "steps: 250, batch: 128}]"
        ]
    return [f"trainer[1].advantage.estimator={kind}", f"trainer[1].iterations={iterations}"]


def train(folder: Path, seed: int, kind: str, iterations: int) -> dict[str, Any]:
    """One run in a process of its own; what came of it, now or when it was last asked for."""
    kept = folder / f"{kind}-{seed}-{iterations}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text("utf-8")))
    name = f"{kind.replace(' ', '-')}-{seed}"
    # What is left of a run that was cut off.
    shutil.rmtree(folder / "runs" / name, ignore_errors=True)
    words = [sys.executable, "-m", "orchestrion", "train", str(EXAMPLE), "--json"]
    for one in [
        f"seed={seed}",
        f"run.name={name}",
        *options(kind, iterations),
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
        "history": history[1:],
        "seconds": time.monotonic() - began,
    }
    kept.write_text(json.dumps(found), "utf-8")
    return found


def show(runs: Sequence[dict[str, Any]]) -> None:
    """Tables of what came of all runs."""
    by = {(one["kind"], one["seed"]): one for one in runs}
    seeds = sorted({one["seed"] for one in runs})
    kinds = [kind for kind in (WARM, *ESTIMATORS) if (kind, seeds[0]) in by]
    print("solved of 512 held-out questions, sampled at temperature 1")
    print(
        f"{'':12}"
        + "".join(f"{'seed ' + str(seed):>9}" for seed in seeds)
        + f"{'mean':>9}{'sd':>7}"
    )
    for kind in kinds:
        found = [by[kind, seed]["solved"] for seed in seeds]
        deviation = stdev(found) if len(found) > 1 else 0.0
        cells = "".join(f"{one:9.3f}" for one in found)
        print(f"{kind:12}{cells}{mean(found):9.3f}{deviation:7.3f}")
    print("\npaired differences over seeds, with a 95 % bootstrap interval")
    for other in [kind for kind in kinds if kind != "drmas"]:
        pairs = [by["drmas", seed]["solved"] - by[other, seed]["solved"] for seed in seeds]
        gain = estimate(pairs, Key(0).child(other))
        print(f"drmas - {other:12} {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")
    print("\nin training, means over seeds: search calls an episode, first and last 10 iterations;")
    print("share of dead (group, agent) cells; mean advantage; gradient norms of all steps")
    for kind in kinds:
        histories = [by[kind, seed]["history"] for seed in seeds]
        if not histories[0]:
            continue
        first = mean(m["searcher/calls"] for h in histories for m in h[:10])
        last = mean(m["searcher/calls"] for h in histories for m in h[-10:])
        least = min(m["searcher/calls"] for h in histories for m in h)
        line = f"{kind:12} search calls {first:.2f} -> {last:.2f}, least {least:.2f}"
        for agent in AGENTS:
            mine = [m for h in histories for m in h if f"{agent}/dead" in m]
            dead = mean(m[f"{agent}/dead"] for m in mine)
            drift = mean(m[f"{agent}/advantage"] for m in mine)
            norms = [m.get(f"{agent[0]}/norm_max", 0.0) for m in mine]
            line += f"\n{'':12} {agent}: dead {dead:.2f}, advantage {drift:+.3f}, "
            line += f"largest norm {max(norms):.1f}"
        print(line)
    print(f"\nseconds a run: mean {mean(one['seconds'] for one in runs):.0f}")


def main() -> None:
    """Read the options, run, show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", nargs="*", default=[WARM, *ESTIMATORS])
    parser.add_argument("--folder", type=Path, help="keep the runs there, and go on with them")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(given.jobs) as pool:
            waiting = [
                pool.submit(train, folder, seed, kind, given.iterations)
                for seed in range(given.seeds)
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
