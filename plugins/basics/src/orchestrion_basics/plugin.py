"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_basics"


@hookimpl
def orchestrion_rewards() -> Iterator[Component]:
    for name, path, summary in (
        (
            "outcome-minus-cost",
            "rewards:OutcomeMinusCost",
            "the verified outcome minus a weighted sum of what the turns cost",
        ),
        ("exact-outcome", "rewards:ExactOutcome", "1 if the verifier says solved, else 0"),
    ):
        yield Component(name, f"{HERE}.{path}", summary)


@hookimpl
def orchestrion_policies() -> Iterator[Component]:
    for name, path, summary in (
        ("random", "policies:Random", "any agent and option, uniformly"),
        ("hinted", "policies:Hinted", "the choice the task's hints say most for"),
        ("round-robin", "policies:RoundRobin", "every agent in turn"),
        ("sequence", "policies:Sequence", "a fixed list of steps, then stop"),
        ("follow", "follow:Follow", "goes where a router agent's output says"),
        ("order", "order:Order", "the best order learned without looking at the problem"),
        (
            "by-category",
            "by_category:ByCategory",
            "a fixed list of steps for each category of problems",
        ),
        ("nearest", "nearest:Nearest", "what paid best where things looked most alike"),
    ):
        example = {"router": "a"} if name == "follow" else {}
        yield Component(name, f"{HERE}.{path}", summary, example=example)


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    for name, path, policy, summary in (
        (
            "best-sequence",
            "search:BestSequence",
            "sequence",
            "finds the best fixed sequence by search",
        ),
        ("learned-order", "order:LearnedOrder", "order", "fills the table of the policy order"),
        (
            "by-category",
            "by_category:BestByCategory",
            "by-category",
            "finds the best choice, or two, for each category of problems",
        ),
        (
            "chain-by-category",
            "by_category:ChainByCategory",
            "by-category",
            "finds the best fixed sequence for each category of problems",
        ),
        (
            "halving",
            "halving:Halving",
            "sequence",
            "finds a good fixed sequence by successive halving, with few episodes",
        ),
        ("nearest", "nearest:NearestTrainer", "nearest", "fills the table of the policy nearest"),
    ):
        yield Component(name, f"{HERE}.{path}", summary, around={"policy": {"use": policy}})


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "team",
        f"{HERE}.team:NestedTeam",
        "a nested team with a policy of its own",
        example={"members": ["a"], "policy": {"use": "round-robin"}},
    )
