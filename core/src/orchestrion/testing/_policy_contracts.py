"""Check what policies promise; see `contracts`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from orchestrion._choices import choice_name, choices, is_blocked
from orchestrion._engine.checks import check_decision
from orchestrion._interfaces import Situation
from orchestrion._keys import Key
from orchestrion._records import (
    Activation,
    Decision,
    Observation,
    Output,
    Problem,
    Trajectory,
    Turn,
)
from orchestrion.testing._stage import Bench, on_bench
from orchestrion.testing._watch import check_draws, check_pace, offline, snapshot, unchanged

_SITUATIONS = 24


def situations_of(
    team: Sequence[Activation], blocked: frozenset[str] | None = None
) -> list[Situation]:
    """Return situations of episodes of several lengths."""
    situations = []
    for n in range(_SITUATIONS):
        acted = [team[(n + i) % len(team)] for i in range(n % 4)]
        turns = [
            Turn(i, choice.agent, choice.option, Output(f"{choice.agent} {i}", {"n": [i]}))
            for i, choice in enumerate(acted)
        ]
        usual = frozenset({"b:y"}) if n % 2 else frozenset[str]()
        observation = Observation(
            f"{len(acted)} turns",
            data={"turns": [len(acted)]},
            features=tuple(float((n + i) % 3) for i in range(2)),
            blocked=usual if blocked is None else blocked,
            progress=0.5,
        )
        problem = Problem(f"p{n % 5}", f"problem {n % 5}", {"words": ["p", n % 5]}, "kit")
        left, training = 6 - len(acted), n % 3 == 0
        situations.append(Situation(problem, Trajectory(turns), observation, (), left, training))
    return situations


def _keys(situations: Sequence[Situation], key: Key) -> list[Key]:
    return [key.child(i) for i in range(len(situations))]


def decide(
    policy: Any,
    situations: Sequence[Situation],
    key: Key = Key(9),  # noqa: B008  immutable
) -> list[Decision]:
    """Return one decision for each situation."""
    decisions = list(policy.decide(situations, _keys(situations, key)))
    assert len(decisions) == len(situations), "decide() must return one decision each"
    return decisions


def chosen(decisions: Any) -> list[Any]:
    """Return what can be compared of decisions."""
    return [snapshot((each.start, each.stop, each.wait, each.logp)) for each in decisions]


@on_bench
async def policy_decides(bench: Bench) -> int:
    policy, team = bench.tested, choices(bench.parts.roster())
    tried = 0
    for blocked in (None, *_masks(team)):
        situations = situations_of(team, blocked)
        message = "decide() changes the situations it is given"
        with unchanged(situations, message), offline("decide()"):
            decisions = decide(policy, situations)
        for situation, decision in zip(situations, decisions, strict=True):
            _check_decision(policy, decision, situation, team)
        tried += len(situations)
    return tried


def _masks(team: Sequence[Activation]) -> Iterator[frozenset[str]]:
    """Yield what tasks may refuse: nothing, each agent or choice, pairs, all but one, all."""
    names = [choice_name(choice) for choice in team]
    agents = [choice.agent for choice in team]
    yield frozenset()
    for name in dict.fromkeys([*agents, *names]):
        yield frozenset({name})
    for pair in combinations(names, 2):
        yield frozenset(pair)
    for name in names:
        yield frozenset(names) - {name}
    yield frozenset(names)
    yield frozenset(agents)


def _check_decision(
    policy: Any, decision: Decision, situation: Situation, team: Sequence[Activation]
) -> None:
    check_decision(decision, policy)
    assert decision.start or decision.stop, (
        "it neither starts a turn nor stops, and no turn is running"
    )
    pairs = {(choice.agent, choice.option) for choice in team}
    for choice in decision.start:
        pair = (choice.agent, choice.option)
        assert pair in pairs, f"{pair} is no choice of the team {sorted(pairs, key=str)}"
        observation = situation.observation
        assert not is_blocked(choice, observation), (
            f"it starts {choice_name(choice)!r}, which the task blocks "
            f"({', '.join(sorted(observation.blocked if observation else ()))}); leave out every "
            "choice for which `orchestrion.is_blocked` is true, and stop if none is left"
        )
    if decision.logp is not None:
        assert decision.logp <= 1e-9, f"a log-probability is {decision.logp}, not at most 0"


@on_bench
async def policy_is_pure(bench: Bench) -> int:
    policy = bench.tested
    situations = situations_of(choices(bench.parts.roster()))
    for seed in (9, 10, 11):
        keys = _keys(situations, Key(seed))
        together = chosen(policy.decide(situations, keys))
        alone = [
            chosen(policy.decide([situation], [key]))[0]
            for situation, key in zip(situations, keys, strict=True)
        ]
        backward = chosen(policy.decide(situations[::-1], keys[::-1]))[::-1]
        assert together == alone == backward, (
            "a decision depends on what else is in its batch, or on what was decided before"
        )
    return len(situations) * 3


@on_bench
async def policy_draws(bench: Bench) -> int:
    situations = situations_of(choices(bench.parts.roster()))
    decide(bench.tested, situations)  # imports and caches may draw once
    await check_draws("decide()", lambda key: partial(decide, bench.tested, situations, key))
    return len(situations)


@on_bench
async def policy_is_quick(bench: Bench) -> int:
    situations = situations_of(choices(bench.parts.roster()))
    for situation in (situations[0], situations[-1]):
        await check_pace(
            "decide()",
            partial(bench.tested.decide, [situation], [Key(9)]),
            "prepare in open() what takes long; a policy never calls a model or a service",
        )
    return 2
