"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_basics"


@hookimpl
def orchestrion_rewards() -> Iterator[Component]:
    yield Component(
        "outcome-minus-cost",
        f"{HERE}.rewards:OutcomeMinusCost",
        "the verified outcome minus a weighted sum of what the turns cost",
    )
    yield Component(
        "exact-outcome", f"{HERE}.rewards:ExactOutcome", "1 if the verifier says solved, else 0"
    )


@hookimpl
def orchestrion_policies() -> Iterator[Component]:
    yield Component("random", f"{HERE}.policies:Random", "any agent and option, uniformly")
    yield Component("hinted", f"{HERE}.policies:Hinted", "the choice the task's hints say most for")
    yield Component("round-robin", f"{HERE}.policies:RoundRobin", "every agent in turn")
    yield Component("sequence", f"{HERE}.policies:Sequence", "a fixed list of steps, then stop")
    yield Component(
        "follow",
        f"{HERE}.follow:Follow",
        "goes where a router agent's output says",
        example={"router": "a"},
    )
    yield Component(
        "order", f"{HERE}.order:Order", "the best order learned without looking at the problem"
    )
    yield Component(
        "by-category",
        f"{HERE}.by_category:ByCategory",
        "a fixed list of steps for each category of problems",
    )
    yield Component(
        "nearest",
        f"{HERE}.nearest:Nearest",
        "what paid best where things looked most alike",
    )


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "best-sequence",
        f"{HERE}.search:BestSequence",
        "finds the best fixed sequence by search",
        around={"policy": {"use": "sequence"}},
    )
    yield Component(
        "learned-order",
        f"{HERE}.order:LearnedOrder",
        "fills the table of the policy order",
        around={"policy": {"use": "order"}},
    )
    yield Component(
        "by-category",
        f"{HERE}.by_category:BestByCategory",
        "finds the best choice, or two, for each category of problems",
        around={"policy": {"use": "by-category"}},
    )
    yield Component(
        "chain-by-category",
        f"{HERE}.by_category:ChainByCategory",
        "finds the best fixed sequence for each category of problems",
        around={"policy": {"use": "by-category"}},
    )
    yield Component(
        "halving",
        f"{HERE}.halving:Halving",
        "finds a good fixed sequence by successive halving, with few episodes",
        around={"policy": {"use": "sequence"}},
    )
    yield Component(
        "nearest",
        f"{HERE}.nearest:NearestTrainer",
        "fills the table of the policy nearest",
        around={"policy": {"use": "nearest"}},
    )


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "team",
        f"{HERE}.team:NestedTeam",
        "a nested team with a policy of its own",
        example={"members": ["a"], "policy": {"use": "round-robin"}},
    )
