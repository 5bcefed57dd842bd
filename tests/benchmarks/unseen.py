"""Agents that training never saw: train on four teams of Relay, use on a fifth.

    python dev.py python -m tests.benchmarks.unseen             # one seed
    python dev.py python -m tests.benchmarks.unseen 3 100       # 3 seeds, 100 iterations

Every team has six workers with drawn skills and prices, and the row that stops; workers state what
they can do in their role. The fifth team has four workers of the others, under other names and in
another order, and two new ones. The policy with the encoder `members` scores an agent by its role,
and trains on all four teams at once: each problem blocks the agents of the other teams. The one
that goes by places trains on the first team, with the names a0 to a5, so that it can be loaded.
Both are compared with as many episodes of training on the fifth team alone. Values are exact.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import asdict, frozen
from orchestrion_orchestration_bench.command import regret_of
from orchestrion_orchestration_bench.regret import RegretReport
from orchestrion_orchestration_bench.relay import Relay, Worker, described

from orchestrion import (
    Key,
    Problem,
    Scores,
    Split,
    Step,
    Task,
    Turn,
    no_calls,
    replace,
)
from orchestrion.config import from_data
from orchestrion.runs import open_run
from tests.benchmarks.support import train

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
    """Return whether every skill is there, so that no problem is out of reach."""
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


def config(team: Team, policy: dict[str, Any], seed: int, iterations: int) -> dict[str, Any]:
    """Return a run on one team."""
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
        "trainer": {"use": "reinforce", "iterations": iterations, "episodes": EPISODES},
        "limits": {"turns": 20},
        "run": {"retention": "none", "checkpoint_every": iterations, "concurrency": EPISODES},
        "evaluation": {"episodes": 1},
    }


def judge(folder: Path, data: dict[str, Any]) -> RegretReport:
    """Return the exact value of a policy, trained or begun, on its team."""
    path = folder.with_suffix(".yaml")
    path.write_text(from_data(data).to_yaml())

    async def look() -> RegretReport:
        async with open_run(path) as opened:
            return regret_of(opened)

    return asyncio.run(look())


def named(team: list[Worker], label: str) -> Team:
    return {f"{label}{i}": w for i, w in enumerate(team)}


@frozen
class Teams(Task):
    """Relay with several teams: each problem has one of them, and blocks the others' agents.

    Args:
        teams: rows by team.
        partial: as Relay's.
    """

    teams: Mapping[str, Mapping[str, Worker]]
    partial: float = 0.3

    @cached_property
    def relay(self) -> Relay:
        """All workers at one table."""
        rows = {name: w for team in self.teams.values() for name, w in team.items()}
        return Relay(agents=rows, partial=self.partial)

    @cached_property
    def shown(self) -> dict[tuple[int, str], Step]:
        """Steps as a team sees them; kept, so that equal observations are one object."""
        return {}

    def problems(self, split: Split) -> Sequence[Problem]:
        """Relay's problems, each once a team."""
        return [
            replace(problem, id=f"{problem.id}-{team}", data={**problem.data, "team": team})
            for problem in self.relay.problems(split)[:16]
            for team in self.teams
        ]

    def start(self, problem: Problem, key: Key) -> Step:
        """Nothing is done yet."""
        return self._for(problem.data["team"], self.relay.start(problem, key))

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        """Return the state after a call."""
        team, inner = state
        return self._for(team, self.relay.step(inner, turn, key))

    def _for(self, team: str, step: Step) -> Step:
        known = self.shown.get((id(step), team))
        if known is None:
            others = (name for t, rows in self.teams.items() for name in rows if t != team)
            assert step.observation is not None
            seen = replace(step.observation, blocked=frozenset(others))
            known = replace(step, state=(team, step.state), observation=seen)
            self.shown[id(step), team] = known
        return known

    ceiling = no_calls

    async def verify(self, problem: Problem, trajectory: Any, state: Any, **how: Any) -> Scores:
        """Return what the finished skills are worth."""
        return await self.relay.verify(problem, trajectory, state[1], **how)


def several(
    teams: list[Team], policy: dict[str, Any], seed: int, iterations: int
) -> dict[str, Any]:
    """Return a run on several teams at once."""
    everybody = {name: w for team in teams for name, w in team.items()}
    data = config(everybody, policy, seed, iterations)
    rows = {f"team{i}": {n: asdict(w) for n, w in team.items()} for i, team in enumerate(teams)}
    return {**data, "task": {"use": Teams, "teams": rows}}


def value(
    folder: Path, seed: int, iterations: int, policy: dict[str, Any]
) -> tuple[float, float, RegretReport]:
    """Return the value on the fifth team after training on the others, and on itself."""
    *known, fifth = teams(seed)
    if policy is PLACES:
        # By places it fits one team only: the names are those of places, the team is the first.
        first = config(named(known[0], "a"), policy, seed, iterations)
        there = named(fifth, "a")
    else:
        labelled = [named(team, f"team{i}_") for i, team in enumerate(known)]
        first = several(labelled, policy, seed, iterations)
        there = named(fifth, "stranger")
    train(from_data(first), folder / "known")
    train(from_data(config(there, policy, seed, iterations)), folder / "there")
    found = [
        judge(folder / f"judge{i}", config(there, {**policy, "begin": str(run)}, seed, 1))
        for i, run in enumerate((folder / "known", folder / "there"))
    ]
    return found[0].sampled.worth.value, found[1].sampled.worth.value, found[0]


def main(seeds: int = 1, iterations: int = 60) -> None:
    """Both policies, seed by seed."""
    print(f"{iterations * EPISODES} episodes")
    print(f"{'seed':>4} {'policy':<8}{'unseen':>8}{'there':>8}{'share':>8}{'random':>8}{'best':>8}")
    for seed in range(1, seeds + 1):
        for name, policy in (("members", MEMBERS), ("places", PLACES)):
            with tempfile.TemporaryDirectory() as folder:
                unseen, there, report = value(Path(folder), seed, iterations, policy)
            print(
                f"{seed:4} {name:<8}{unseen:8.3f}{there:8.3f}{unseen / there:8.0%}"
                f"{report.random.value:8.3f}{report.optimum.value:8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
