"""What a hundred episodes are worth on small jobs, beside the best fixed sequence at as many.

    python dev.py python -m tests.benchmarks.small_jobs                      # both jobs, 5 seeds
    python dev.py python -m tests.benchmarks.small_jobs tickets auto 5
    python dev.py python -m tests.benchmarks.small_jobs review fitted-q 5 6      # seeds 6 to 10

Arguments: the job, the trainer, the number of seeds, the first of them. A seed draws a ticket desk
anew: 20 tickets, four chat agents of other skills and prices on the offline service, a dollar. The
review is docs/examples/code-review.yaml with other luck. `best-sequence` is given twice, as wide as
100 episodes allow and as deep; the better of the two in the mean is what learning is compared with.
Intervals are 95 %, Student's t over seeds, of the reward on problems kept aside.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from orchestrion_offline.tickets import CATEGORIES
from ruamel.yaml import YAML

from orchestrion.config import from_data
from orchestrion.runs import train
from tests.benchmarks.support import EXAMPLES, interval

EPISODES = 100
BASELINES: dict[str, dict[str, dict[str, int]]] = {
    # Finished episodes: problems x (1 + candidates of all lengths).
    "tickets": {
        "wide": {"problems": 20, "length": 1},
        "deep": {"problems": 11, "length": 2, "beam": 1},
    },
    "review": {
        "wide": {"problems": 11, "length": 1},
        "deep": {"problems": 4, "length": 3, "beam": 1},
    },
}


def tickets(seed: int) -> dict[str, Any]:
    """Return a drawn desk."""
    luck = random.Random(seed)
    speakers: dict[str, Any] = {}
    models: dict[str, Any] = {}
    agents: dict[str, Any] = {}
    for i in range(4):
        skill = luck.uniform(0.35, 0.97)
        skills = {}
        if luck.random() < 0.4:
            for category in luck.sample(CATEGORIES, 2):
                skills[category] = min(0.99, skill + luck.uniform(0.1, 0.4))
        checks = luck.choice([0.0, 0.0, luck.uniform(0.3, 0.9)])
        price = luck.choice([0.2, 0.4, 1.0, 2.0])
        speakers[f"s{i}"] = {"use": "clerk", "skill": skill, "skills": skills, "checks": checks}
        models[f"m{i}"] = {
            "use": "offline",
            "speaker": f"s{i}",
            "max_tokens": 100,
            "price": {"input": price, "output": 4 * price},
        }
        agents[f"a{i}"] = {"use": "chat", "model": f"m{i}", "instructions": "You sort tickets."}
    return {
        "seed": seed,
        "task": {"use": "tickets", "seed": seed},
        "speakers": speakers,
        "models": models,
        "agents": agents,
        "reward": {"use": "outcome-minus-cost", "measure": "usd", "cost_weight": 500},
        "limits": {"turns": 3},
        "budget": {"usd": 1},
    }


def review(seed: int) -> dict[str, Any]:
    """Return the example, with other luck."""
    data = YAML(typ="safe").load(EXAMPLES / "code-review.yaml")
    return {**data, "seed": seed, "evaluation": {"baselines": {}}}


JOBS: dict[str, Callable[[int], dict[str, Any]]] = {"tickets": tickets, "review": review}


def rewards(
    data: Mapping[str, Any], policy: str, trainer: Mapping[str, Any]
) -> tuple[float, float]:
    """Return mean reward and share solved on problems kept aside, after training."""
    config = {
        **data,
        "policy": {"use": policy},
        "trainer": dict(trainer),
        "run": {"retention": "none"},
    }
    with tempfile.TemporaryDirectory() as folder:
        report = train(from_data(config), Path(folder) / "run").report
    learned = report.contenders[0]
    return learned.reward.mean, learned.solved.mean


def compare(job: str, trainer: str, seeds: int, first: int) -> None:
    """Print the table of a job."""
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        trainer: ("values", {"use": trainer, "episodes": EPISODES}),
        **{
            f"best-sequence, {name}": ("sequence", {"use": "best-sequence", **settings})
            for name, settings in BASELINES[job].items()
        },
    }
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for seed in range(first, first + seeds):
        for name, way in ways.items():
            rows[name].append(rewards(JOBS[job](seed), *way))
            print(f"  {job}, seed {seed}, {name}: {rows[name][-1][0]:.3f}", file=sys.stderr)
    print(f"{job}: {EPISODES} episodes, {seeds} seeds from {first}")
    found = {name: [reward for reward, _ in pairs] for name, pairs in rows.items()}
    for name, values in found.items():
        solved = mean(share for _, share in rows[name])
        each = " ".join(f"{value:.3f}" for value in values)
        print(f"  {name:22} reward {interval(values)}  solved {solved:.0%}  ({each})")
    best = max(list(found)[1:], key=lambda name: mean(found[name]))
    differences = [a - b for a, b in zip(found[trainer], found[best], strict=True)]
    print(f"  {trainer} minus {best}: {interval(differences)}")


if __name__ == "__main__":
    given = sys.argv[1:]
    chosen, learner, count, start = [*given, *["both", "auto", "5", "1"][len(given) :]][:4]
    for each_job in JOBS if chosen == "both" else (chosen,):
        compare(each_job, learner, int(count), int(start))
