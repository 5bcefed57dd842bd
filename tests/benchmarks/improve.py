"""How often the improvers decide rightly, on pupils whose habits and lessons have a known worth.

    python dev.py python -m tests.benchmarks.improve                # 20 seeds, three minutes
    python dev.py python -m tests.benchmarks.improve --seeds 40

First, habits: a coach proposes one that is worth +.15 (solved .5 -> .65), one that is worth -.15,
and one that is worth nothing. A seed is right if the first alone is adopted. With "own luck" the
pupil draws anew for everything it is told, as models do; with "same luck" pairs are aligned, and
fewer of them do. Then, lessons: each of two helps with half of the problems and harms with the
other half, and only both together help everywhere. `gepa` with its front is set beside a climber
that always goes on from the best by mean and takes in only what is better by mean.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from orchestrion.config import Config, from_data
from orchestrion.runs import RunReader
from tests.benchmarks.support import train

HELPFUL, HARMFUL, USELESS = "count twice", "answer at once", "be polite"
PLUS, MINUS = "carry the one", "mind the sign"
LESSONS = {
    PLUS: {"sums": 0.4, "differences": -0.45},
    MINUS: {"differences": 0.4, "sums": -0.45},
    f"{PLUS} + {MINUS}": {"any": 0.45},
}


def config(
    seed: int, pupil: Mapping[str, Any], coach: Mapping[str, Any], **improver: Any
) -> Config:
    """Return the config of a run with one pupil and one coach."""
    return from_data(
        {
            "seed": seed,
            "task": {"use": "practice", "train": 64, "validation": 200, "test": 4},
            "models": {"coach": {"use": "practice-coach", **coach}},
            "agents": {"anna": {"use": "pupil", **pupil}},
            "policy": {"use": "sequence", "steps": ["anna"]},
            "reward": {"use": "exact-outcome"},
            "trainer": {
                "use": "improve",
                "improver": {"model": "coach", **improver},
                "iterations": 1,
                "problems": 8,
                "samples": 4,
                "held_out": 0.2,
            },
        }
    )


def trained(given: Config) -> tuple[Any, Mapping[str, float]]:
    """Return what the improver saved, and the metrics of the last iteration."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        train(given, directory)
        with RunReader(directory) as run:
            checkpoint = run.usable().checkpoint
            assert checkpoint is not None
            return checkpoint.components["trainer.improver"].data, run.iterations()[-1].metrics


def habits(seeds: int, pairs: int, aligned: bool) -> None:
    """How often just the helpful habit is adopted."""
    effects = {HELPFUL: {"any": 0.15}, HARMFUL: {"any": -0.15}}
    coach = {"habits": [{"habit": one} for one in (USELESS, HELPFUL, HARMFUL)]}
    right = {HELPFUL: 0, HARMFUL: 0, USELESS: 0}
    all_right, episodes, gains = 0, [], []
    for seed in range(seeds):
        given = config(
            seed,
            {"effects": effects, "aligned": aligned},
            coach,
            use="behaviours",
            pairs=pairs,
        )
        saved, metrics = trained(given)
        found = {one["text"]: one["status"] for one in saved["learned"]["habits"]["anna"]["any"]}
        ok = {text: (found[text] == "active") == (text == HELPFUL) for text in right}
        for text in right:
            right[text] += ok[text]
        all_right += all(ok.values())
        episodes.append(metrics["habits_trial_episodes"])
        gains.append(metrics["held_out_gain"])
    luck = "same luck" if aligned else "own luck"
    print(
        f"| {pairs} | {luck} | {right[HELPFUL]} | {right[HARMFUL]} | {right[USELESS]} "
        f"| {all_right} of {seeds} | {mean(episodes):.0f} | {mean(gains):+.3f} |"
    )


def lessons(seeds: int, choose: str) -> None:
    """How good the instructions are that evolve, by their true rate of right answers."""
    from orchestrion_improve.practice import Pupil

    found, both, episodes = [], 0, []
    for seed in range(seeds):
        given = config(
            seed,
            {"effects": LESSONS, "aligned": False},
            {"lessons": {"sums": PLUS, "differences": MINUS}},
            use="gepa",
            evaluations=400,
            choose=choose,
        )
        saved, metrics = trained(given)
        text = saved["learned"]["texts"]["anna"]
        pupil = Pupil(effects=LESSONS, instructions=text)
        found.append(mean(min(1.0, pupil.rate(one)) for one in ("sums", "differences")))
        both += PLUS in text and MINUS in text
        episodes.append(metrics["texts_evaluations"] + metrics["texts_trial_episodes"])
    print(f"| {choose} | {mean(found):.3f} | {both} of {seeds} | {mean(episodes):.0f} |")


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    start = time.process_time()
    print("| pairs | luck | helpful in | harmful out | useless out | all | ", end="")
    print("episodes | held-out gain |")
    print("|" + " --- |" * 8)
    for pairs, aligned in ((160, True), (160, False), (320, False), (480, False)):
        habits(seeds, pairs, aligned)
    print("\n| parents | solved | both lessons | episodes |\n| --- | --- | --- | --- |")
    for choose in ("front", "best"):
        lessons(seeds, choose)
    print(f"\n{time.process_time() - start:.0f} CPU seconds")


if __name__ == "__main__":
    main()
