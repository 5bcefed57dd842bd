"""Agents that training never saw: train on four teams of Relay, use on a fifth.

    python dev.py python tests/benchmarks/unseen.py             # one seed, some minutes
    python dev.py python tests/benchmarks/unseen.py 3 4 16      # 3 seeds, 4 rounds of 16 iterations

Every team has six workers with drawn skills and prices, and the row that stops; workers state what
they can do in their role. The fifth team has four workers of the others, under other names and in
another order, and two new ones. The policy with the encoder `members` scores an agent by its role;
the one that goes by places is trained and used with the names a0 to a5, so that it can be loaded.
Both are trained on the four teams in turn, each beginning as the one before ended (`begin`), and on
the fifth team alone with as many episodes. All values are exact.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before any library reads it

from orchestrion_orchestration_bench.command import regret_of  # noqa: E402
from orchestrion_orchestration_bench.regret import RegretReport  # noqa: E402
from orchestrion_orchestration_bench.relay import Worker, described  # noqa: E402

from orchestrion.config import from_data  # noqa: E402
from orchestrion.run import Run, manifest, open_run  # noqa: E402
from orchestrion.store import RunStore  # noqa: E402

SKILLS = ("plan", "search", "code", "test", "review")
EPISODES = 128
Team = dict[str, Worker]

MEMBERS = {
    "use": "neural",
    "hidden": [64],
    "encoders": [{"use": "counts", "history": False}, {"use": "members", "history": False}],
}
PLACES = {"use": "neural", "hidden": [64], "history": False}


def worker(rng: random.Random) -> Worker:
    """One or two skills it is good at, some it can do a little, a price by what it is worth."""
    good = rng.sample(SKILLS, rng.choice([1, 1, 2]))
    skills = {s: round(rng.uniform(0.6, 0.95), 2) for s in good}
    skills |= {
        s: round(rng.uniform(0.1, 0.4), 2) for s in SKILLS if s not in good and rng.random() < 0.3
    }
    worth = sum(skills.values()) / 2
    return Worker(
        skills,
        round(0.01 + 0.05 * worth * rng.uniform(0.5, 1.5), 3),
        round(rng.choice([0, 0, 0.05]), 2),
    )


def able(team: list[Worker]) -> bool:
    """Whether every skill is there, so that no problem is out of reach."""
    return all(max(w.skills.get(skill, 0.0) for w in team) >= 0.4 for skill in SKILLS)


def teams(seed: int) -> list[list[Worker]]:
    """Four teams to train on, and the fifth, of which two workers are new."""
    rng = random.Random(seed)
    pool = [worker(rng) for _ in range(12)]
    result: list[list[Worker]] = []
    while len(result) < 5:
        new = [worker(rng), worker(rng)] if len(result) == 4 else []
        team = [*rng.sample(pool, 6 - len(new)), *new]
        rng.shuffle(team)
        if able(team):
            result.append(team)
    return result


def config(
    team: Team, policy: dict[str, Any], seed: int, iterations: int, **trainer: Any
) -> dict[str, Any]:
    """A run on one team."""
    rows = {
        name: {"skills": dict(w.skills), "cost": w.cost, "breaks": w.breaks}
        for name, w in team.items()
    }
    agents = {name: {"use": "bench-agent", "role": described(w)} for name, w in team.items()}
    return {
        "seed": seed,
        "task": {"use": "relay", "partial": 0.3, "agents": rows},
        "agents": {**agents, "stop": {"use": "bench-agent", "role": "stops, price 0"}},
        "policy": policy,
        "reward": {"use": "outcome-minus-cost", "cost_weight": 1.0},
        "trainer": {"use": "reinforce", "iterations": iterations, "episodes": EPISODES, **trainer},
        "limits": {"turns": 20},
        "run": {"retention": "none", "checkpoint_every": iterations, "concurrency": EPISODES},
        "evaluation": {"episodes": 1},
    }


def train(folder: Path, data: dict[str, Any]) -> Path:
    """Train in a fresh run folder."""
    loaded = from_data(data)
    with RunStore.create(folder, loaded.to_yaml(), manifest(loaded), retention="none") as store:
        asyncio.run(Run(loaded, store).train())
        store.set_status("completed")
    return folder


def judge(folder: Path, data: dict[str, Any]) -> RegretReport:
    """The exact value of a policy, trained or begun, on its team."""
    path = folder.with_suffix(".yaml")
    path.write_text(from_data(data).to_yaml())

    async def look() -> RegretReport:
        async with open_run(path) as opened:
            return regret_of(opened)

    return asyncio.run(look())


def named(team: list[Worker], label: str) -> Team:
    return {f"{label}{i}": w for i, w in enumerate(team)}


def value(
    folder: Path, seed: int, rounds: int, iterations: int, policy: dict[str, Any]
) -> tuple[float, float, RegretReport]:
    """The value on the fifth team after training on four others, and after training there."""
    *known, fifth = teams(seed)
    by_place = policy is PLACES
    begin: dict[str, Any] = {}
    for i in range(rounds * 4):
        team = named(known[i % 4], "a" if by_place else f"team{i % 4}_")
        # What is there to explore gets less from round to round.
        data = config(
            team, {**policy, **begin}, seed + i, iterations, entropy=2.0 * 0.5 ** (i // 4)
        )
        begin = {"begin": str(train(folder / f"known{i}", data))}
    there = named(fifth, "a" if by_place else "stranger")
    used = config(there, {**policy, **begin}, seed, iterations)
    alone = train(folder / "there", config(there, policy, seed, 4 * rounds * iterations))
    best = judge(folder / "b", config(there, {**policy, "begin": str(alone)}, seed, iterations))
    report = judge(folder / "a", used)
    return report.sampled.worth.value, best.sampled.worth.value, report


def main(seeds: int = 1, rounds: int = 3, iterations: int = 12) -> None:
    """Both policies, seed by seed."""
    print(f"{4 * rounds * iterations * EPISODES} episodes in {rounds} rounds of four teams")
    print(f"{'seed':>4} {'policy':<8}{'unseen':>8}{'there':>8}{'share':>8}{'random':>8}{'best':>8}")
    for seed in range(1, seeds + 1):
        for name, policy in (("members", MEMBERS), ("places", PLACES)):
            with tempfile.TemporaryDirectory() as folder:
                unseen, there, report = value(Path(folder), seed, rounds, iterations, policy)
            print(
                f"{seed:4} {name:<8}{unseen:8.3f}{there:8.3f}{unseen / there:8.0%}"
                f"{report.random.value:8.3f}{report.optimum.value:8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
