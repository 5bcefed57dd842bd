"""The trainer `grpo-beam`: its settings. What it does stands in `search` and `learner`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar, Literal

from attrs import Attribute, field, frozen

from orchestrion import JSON, Meta, OpenContext, Plan, Split, Trainer
from orchestrion_beam.advantages import Scale
from orchestrion_beam.interfaces import Improver, ValueEstimator

__all__ = ["Baseline", "GrpoBeam"]

Baseline = Literal["single", "best-of-n", "self-consistency", "greedy", "sequential", "discussion"]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]


@frozen
class GrpoBeam:
    """Searches many trajectories of the team side by side, and learns from how they compare.

    Each of `rounds` iterations searches `problems` training problems, verifies and rewards what
    each search ends with, and compares rewards within the problem: A = R - mean(R). Every
    `improve_every` iterations an improver may change what the agents are told. A last iteration
    sets the search beside baselines with the same number of calls, on validation problems on which
    no improver chose anything.

    Args:
        rounds: iterations that search.
        problems: training problems of an iteration; all searches run side by side.
        beam_width: trajectories that are kept. One is enough for a value that never errs; a value
            that errs wants more.
        samples: k, how many next turns are drawn for each of them. A turn makes `beam_width` x
            `samples` calls.
        turns: a trajectory ends after so many, if it does not before.
        order: who acts next: the team's policy, asked for each sample, or a rotation.
        rotation: its choices, "agent" or "agent:option"; the whole team by default.
        at_once: so many agents at most does the policy start at once on a trajectory; a policy
            that starts more ends the run. It makes `train --dry-run` a bound.
        value: what unfinished trajectories are ranked by; the task's partial score by default.
        lookahead: roll a trajectory on by so many starts, and value what becomes of it.
        min_parents: the beam holds children of so many different trajectories at least.
        min_roots: and so many that go back to different first turns.
        early_stop: drop what can end no better than what has ended. What can still be reached is
            known where the estimator gives a bound; 1 is the most there is. It compares verified
            scores, so use it where the reward is the score.
        select: how one of those that a search ends with is chosen: by its reward, which needs the
            verifier, or by its value.
        advantage: `mean` centres rewards within the problem; `std` also divides by the deviation.
        least_std: a smaller deviation counts as this one.
        credit: of turns: equal shares of the advantage; or what the verified score loses when the
            turn is left out and the rest is run again with the same keys.
        credited: for how many trajectories of a problem, best first, turns are left out; the
            others get equal shares.
        improver: changes learnable settings of the team.
        improve_every: iterations between its proposals.
        held_out: validation problems for the last iteration; 0 leaves it out. An improver decides
            on the others, and has at least half of them.
        baselines: what the search is compared with.
        single: the agent of the baseline `single`; the first of the team by default.
        longest: turns of the baselines that go on with one trajectory; 4 x `turns` by default.
        probes: trajectories of each held-out problem on which the value is set beside the score.
    """

    smoke: ClassVar[Mapping[str, JSON]] = {
        "rounds": 1,
        "problems": 2,
        "beam_width": 2,
        "samples": 2,
        "min_parents": 2,
        "min_roots": 2,
        "improve_every": 1,
        "held_out": 2,
    }

    rounds: Count = 10
    problems: Count = 8
    beam_width: Count = 6
    samples: Count = 4
    turns: Count = 15
    order: Literal["policy", "rotation"] = "policy"
    rotation: Sequence[str] = ()
    at_once: Count = 1
    value: ValueEstimator | None = None
    lookahead: Whole = 0
    min_parents: Count = field(default=2)
    min_roots: Count = field(default=2)
    early_stop: bool = False
    select: Literal["reward", "value"] = "reward"
    advantage: Scale = "mean"
    least_std: Annotated[float, Meta(ge=0)] = 0.05
    credit: Literal["equal", "counterfactual"] = "equal"
    credited: Count = 1
    improver: Improver | None = None
    improve_every: Count = 5
    held_out: Whole = 20
    baselines: Sequence[Baseline] = (
        "single",
        "best-of-n",
        "self-consistency",
        "greedy",
        "sequential",
        "discussion",
    )
    single: str = ""
    longest: Count | None = None
    probes: Annotated[int, Meta(ge=2)] = 8

    @min_parents.validator
    @min_roots.validator
    def _check_diversity(self, attribute: Attribute[Any], value: int) -> None:
        if attribute.default != value and value > self.beam_width:
            raise ValueError(f"{attribute.name}: got {value}, and the beam holds {self.beam_width}")

    @property
    def iterations(self) -> int:
        """Those that search, and one that compares."""
        return self.rounds + (self.held_out > 0)

    @property
    def longest_turns(self) -> int:
        """How long a baseline goes on with one trajectory."""
        return 4 * self.turns if self.longest is None else self.longest

    @property
    def samples_per_search(self) -> int:
        """The most samples that one search draws: sum over t of k min(width, k ^ (t - 1))."""
        total, beam = 0, 1
        for _ in range(self.turns):
            total += self.samples * beam
            beam = min(self.beam_width, self.samples * beam)
        return total

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """The most that iteration `i` takes."""
        from orchestrion_beam.planning import plan

        return plan(self, i, sizes, turns)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The trainer at work."""
        from orchestrion_beam.learner import Learner

        yield Learner(self, ctx)
