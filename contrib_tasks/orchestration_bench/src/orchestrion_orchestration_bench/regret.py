"""How far a policy is from the best one there is: V* - V(policy).

    report = regret(task, policy, roster, cost_weight=1.0)
    print(report.as_text())

A policy that says its probabilities and goes by the observation alone is evaluated exactly; any
other one by playing many episodes, and then the report says so and gives a 95 % interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from attrs import asdict, evolve, frozen

from orchestrion import JSON, Activation, Decision, Key, Member, Situation, Task
from orchestrion_orchestration_bench.observed import Ask, NotExactError, asker, observe
from orchestrion_orchestration_bench.process import (
    Chain,
    Process,
    Worth,
    best_chain,
    evaluate,
    look_ahead,
    optimum,
    uniform,
)
from orchestrion_orchestration_bench.rollout import Decide, roll_out
from orchestrion_orchestration_bench.solved import Solved, Team, solve

NORMAL_95 = 1.959963984540054


@frozen
class PolicyRegret:
    """A policy's worth beside the best.

    Args:
        worth: expected value, quality, cost and calls; value by type of problem.
        regret: V* - V.
        normalized: regret as a share of random's; NaN if random is the best already.
        method: "exact", or "monte carlo" over `episodes`, where [low, high] is a 95 % interval
            of the regret.
    """

    worth: Worth
    regret: float
    normalized: float
    low: float
    high: float
    method: Literal["exact", "monte carlo"] = "exact"
    episodes: int = 0


@frozen
class RegretReport:
    """A policy, the best one, and simple ones, all in value = quality - cost weight x cost.

    Args:
        task: relay, stop or committee.
        cost_weight: of cost.
        optimum: the best policy of all, given the team.
        sampled: the policy as it samples.
        greedy: its likeliest choice each time; where it does not say its probabilities, what it
            does when it is used and not trained.
        random: every allowed choice of the team equally often.
        look_ahead: knows the tables, and looks one call ahead.
        chain: the best sequence fixed in advance that was found.
        chain_by_type: the same, with a sequence for each type of problem.
        single: the best policy that has one agent only, and knows when to stop.
        note: why something is missing or not exact.
    """

    task: str
    cost_weight: float
    optimum: Worth
    sampled: PolicyRegret
    greedy: PolicyRegret
    random: Worth
    look_ahead: Worth
    chain: Chain
    chain_by_type: Mapping[str, Chain]
    single: Mapping[str, float]
    note: str = ""

    @property
    def chain_by_type_value(self) -> float:
        """The mean over types, which are equally frequent."""
        return float(np.mean([chain.value for chain in self.chain_by_type.values()]))

    def as_json(self) -> JSON:
        """Return plain data, as `--json` prints it."""
        return asdict(self)

    def as_text(self) -> str:
        """Return a table for people."""
        return "\n".join(_lines(self))


def regret(
    task: Task,
    policy: Any,
    roster: Sequence[Member],
    cost_weight: float = 1.0,
    *,
    plays: Mapping[str, str] | None = None,
    turns: int | None = None,
    episodes: int = 10_000,
    key: Key | None = None,
) -> RegretReport:
    """Compare a policy with the best one.

    Args:
        task: relay, stop or committee.
        policy: a policy's runtime, or a function of an observation; see `observed.asker`.
        roster: the team.
        cost_weight: of cost, as in the reward.
        plays: the row an agent plays, where that is not its name.
        turns: the run's limit of turns.
        episodes: played where the policy cannot be evaluated exactly.
        key: randomness of these episodes.

    Raises:
        UsageError: the task has no optimum that can be computed, an agent plays no row, or the
            policy's answers are no distributions.
    """
    judge = _Judge.of(task, roster, cost_weight, plays)
    solved, team = judge.solved, judge.team
    process = solved.process.only(team.all_columns)
    sampled, greedy, note = judge.judge(policy, turns, episodes, key or Key(0))
    chain, chain_by_type = _chains(solved, team, cost_weight)
    return RegretReport(
        solved.name,
        cost_weight,
        judge.best,
        sampled,
        greedy,
        judge.random,
        evaluate(process, look_ahead(process, cost_weight), cost_weight),
        chain,
        chain_by_type,
        _singles(process, team, cost_weight),
        note,
    )


def judged(
    task: Task,
    policy: Any,
    roster: Sequence[Member],
    cost_weight: float = 1.0,
    *,
    turns: int | None = None,
    episodes: int = 10_000,
    key: Key | None = None,
) -> tuple[PolicyRegret, PolicyRegret]:
    """Return the policy sampled and greedy beside the best one: `regret` without the other rows.

    Arguments and errors are those of `regret`. Much quicker, as no fixed sequence is searched for.
    """
    judge = _Judge.of(task, roster, cost_weight, None)
    sampled, greedy, _ = judge.judge(policy, turns, episodes, key or Key(0))
    return sampled, greedy


@frozen(eq=False)
class _Judge:
    task: Task
    solved: Solved
    team: Team
    weight: float
    best: Worth
    random: Worth

    @classmethod
    def of(
        cls,
        task: Task,
        roster: Sequence[Member],
        weight: float,
        plays: Mapping[str, str] | None,
    ) -> _Judge:
        """Solve the benchmark for a team."""
        solved = solve(task)
        team = Team.of(solved.process, roster, plays)
        process = solved.process.only(team.all_columns)
        best, _ = optimum(process, weight)
        random = evaluate(process, uniform(process, team.counts(process)), weight)
        return cls(task, solved, team, weight, best, random)

    def judge(
        self, policy: Any, turns: int | None, episodes: int, key: Key
    ) -> tuple[PolicyRegret, PolicyRegret, str]:
        """Return the policy sampled and greedy, and why it is not exact."""
        ask = asker(policy, self.team)
        note = "the policy does not say its probabilities"
        if ask is not None:
            try:
                seen = observe(self.solved, self.team, ask, turns)
            except NotExactError as error:
                note = str(error)
            else:
                assert self.solved.shown is not None
                sampled, greedy = (
                    self._exact(evaluate(self.solved.shown, acts, self.weight)) for acts in seen
                )
                return sampled, greedy, ""
        sample, take_likeliest = _deciders(policy, ask, self.team)
        return (
            self._played(sample, turns, episodes, key.child("sampled"), training=True),
            self._played(take_likeliest, turns, episodes, key.child("greedy"), training=False),
            f"not exact: {note}",
        )

    def _exact(self, worth: Worth) -> PolicyRegret:
        gap, span = self.best.value - worth.value, self.best.value - self.random.value
        return PolicyRegret(worth, gap, gap / span if span > 0 else float("nan"), gap, gap)

    def _played(
        self, decide: Decide, turns: int | None, episodes: int, key: Key, *, training: bool
    ) -> PolicyRegret:
        """Play the same number of episodes on each type."""
        names = self.solved.process.groups
        each = max(2, -(-episodes // len(names)))
        parts = [
            roll_out(
                self.task,
                decide,
                self.team,
                problem,
                each,
                key.child(name),
                training=training,
                turns=turns,
            )
            for name, problem in zip(names, self.solved.problems, strict=True)
        ]
        values = [part[:, 0] - self.weight * part[:, 1] for part in parts]
        mean = np.mean([part.mean(axis=0) for part in parts], axis=0)
        error = np.sqrt(sum(value.var(ddof=1) / each for value in values)) / len(values)
        by_type = {n: float(value.mean()) for n, value in zip(names, values, strict=True)}
        value = float(np.mean(list(by_type.values())))
        worth = Worth(value, float(mean[0]), float(mean[1]), float(mean[2]), by_type)
        half = float(NORMAL_95 * error)
        judged = self._exact(worth)
        return evolve(
            judged,
            low=judged.regret - half,
            high=judged.regret + half,
            method="monte carlo",
            episodes=each * len(names),
        )


def _deciders(policy: Any, ask: Ask | None, team: Team) -> tuple[Decide, Decide]:
    """Return how the policy samples, and how it takes its likeliest choice."""
    if ask is None:
        return policy.decide, policy.decide

    def sample(situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        draws = np.array([key.uniform() for key in keys])
        below = ask(situations).cumsum(axis=1)
        return _decisions((draws[:, None] * below[:, -1:] >= below).sum(axis=1), team)

    def greedy(situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        return _decisions(ask(situations).argmax(axis=1), team)

    return sample, greedy


def _decisions(chosen: Any, team: Team) -> list[Decision]:
    known = [*(Decision((Activation(choice.agent, choice.option),)) for choice in team.choices)]
    known.append(Decision(stop=True))
    return [known[i] for i in chosen.tolist()]


def _chains(solved: Solved, team: Team, weight: float) -> tuple[Chain, dict[str, Chain]]:
    """Return the best fixed sequence, for all types together and for each."""
    if solved.blind is None:
        best = _straight(solved.process.only(team.all_columns), weight)
        return best, {solved.process.groups[0]: best}
    blind = solved.blind.only(team.all_columns)
    return _better_chain(blind, weight), {
        name: _better_chain(blind.of(i), weight) for i, name in enumerate(blind.groups)
    }


def _better_chain(process: Process, weight: float) -> Chain:
    """Return the better one of two beams, see `best_chain`."""
    return max(
        (best_chain(process, weight, rank="now"), best_chain(process, weight, rank="bound")),
        key=lambda chain: chain.value,
    )


def _straight(process: Process, weight: float) -> Chain:
    """Return the best policy of a process without chance, as the sequence it is."""
    worth, policy = optimum(process, weight)
    place, actions = 0, []
    for layer, acts in zip(process.layers, policy, strict=True):
        column = int(acts[place].argmax())
        actions.append(process.actions[column])
        if process.actions[column].final:
            break
        place = int(layer.to[place, column, 0])
    return Chain(tuple(actions), worth.value)


def _singles(process: Process, team: Team, weight: float) -> dict[str, float]:
    """Return the best value with one agent and whatever ends the episode, by agent."""
    finals = [i for i in team.all_columns if process.actions[i].final]
    values = {}
    for member in team.roster:
        mine = [
            column
            for choice, column in zip(team.choices, team.columns, strict=True)
            if choice.agent == member.name and not process.actions[column].final
        ]
        if mine:
            values[member.name] = optimum(process.only([*mine, *finals]), weight)[0].value
    return values


# ---------------------------------------------------------------------- for people


def _lines(report: RegretReport) -> list[str]:
    span = report.optimum.value - report.random.value
    head = f"{report.task}, cost weight {report.cost_weight:g}"
    lines = [head, f"{'':22}{'value':>9}{'regret':>9}{'share':>8}   quality    cost   calls"]

    def row(name: str, value: float, worth: Worth | None = None, tail: str = "") -> None:
        gap = report.optimum.value - value
        share = f"{gap / span:8.1%}" if span > 0 else f"{'-':>8}"
        rest = "" if worth is None else f"{worth.quality:10.4f}{worth.cost:8.4f}{worth.calls:8.3f}"
        lines.append(f"{name:22}{value:9.4f}{gap:9.4f}{share}{rest}{tail}".rstrip())

    row("optimum", report.optimum.value, report.optimum)
    row("policy, sampled", report.sampled.worth.value, report.sampled.worth)
    row("policy, greedy", report.greedy.worth.value, report.greedy.worth)
    row("look-ahead", report.look_ahead.value, report.look_ahead)
    row("chain for each type", report.chain_by_type_value)
    names = " > ".join(_action(a.row, a.option) for a in report.chain.actions)
    row("best chain", report.chain.value, tail=f"   {names}")
    if report.single:
        name, value = max(report.single.items(), key=lambda item: item[1])
        row(f"only {name}"[:21], value)
    row("random", report.random.value, report.random)
    lines.append("by type                optimum  sampled   greedy")
    for name, value in report.optimum.by_type.items():
        mine = report.sampled.worth.by_type[name], report.greedy.worth.by_type[name]
        lines.append(f"  {name:18}{value:9.4f}{mine[0]:9.4f}{mine[1]:9.4f}")
    for label, judged in (("sampled", report.sampled), ("greedy", report.greedy)):
        if judged.method != "exact":
            lines.append(
                f"{label}: Monte Carlo over {judged.episodes} episodes, 95 % interval of the "
                f"regret {judged.low:.4f} to {judged.high:.4f}"
            )
    return [*lines, *([report.note] if report.note else [])]


def _action(row: str, option: str | None) -> str:
    return row if option is None else f"{row}:{option}"
