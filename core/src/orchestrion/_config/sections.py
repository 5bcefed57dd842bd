"""Declares the plain sections of a config: settings of core, not of components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from attrs import Factory, field, frozen
from msgspec import Meta

from orchestrion._executors import Executor
from orchestrion._records import TRAINING, Split

Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[int, Meta(ge=0)]


@frozen
class Limits:
    """The limits of an episode; reaching a limit ends it, and is never a success.

    With `turns: N`, an episode that is to be solved has N-1 turns at most, as the policy decides
    once more to end it. It has N if the last agent or the task's environment ends it.

    Args:
        turns: how many activations.
        calls: how many calls to services; the turn that goes beyond this number is the last.
        tokens: how many input and output tokens together, likewise.
    """

    turns: Count | None = 100
    calls: Amount | None = None
    tokens: Amount | None = None


@frozen
class Budget:
    """What a run may spend; when it is used up, the run ends and can be resumed.

    Args:
        calls: how many calls to services. A call through `calls.run` that would go beyond this
            number is refused. Calls that a turn states in `Output.usage` are known afterwards
            only: the turn that goes beyond this number is the last. An attempt that a service
            refuses with an error status, such as 429 or 503, is not counted.
        tokens: how many input and output tokens together, likewise.
        usd: US dollars, likewise.
        cost: in the agents' own unit, likewise. What turns state is known afterwards only: those
            under way then can go beyond it.
        minutes: minutes of wall-clock time; what is running then is cut off.
    """

    calls: Amount | None = None
    tokens: Amount | None = None
    usd: Annotated[float, Meta(ge=0)] | None = None
    cost: Annotated[float, Meta(ge=0)] | None = None
    minutes: Annotated[float, Meta(gt=0)] | None = None


@frozen
class RunSettings:
    """How a run is carried out; `timeout`, `problems` and `iterations` change what is learned.

    Args:
        name: the name of the run's folder; by default the config's name and a number.
        directory: the folder that holds run folders, relative to the current folder.
        concurrency: how many episodes run at once.
        timeout: seconds after which an activation fails; null means never.
        problems: how many problems of each split are used, the first ones; null means all.
        iterations: the most iterations of each stage; null means as many as its trainer wants.
        retention: which parts of each episode are stored.
        checkpoint_every: iterations between two checkpoints.
        keep: how many checkpoints are kept.
        block: plugins that are never imported.
        observers: plugins whose lifecycle hooks are called, besides those that are used.
        cache: a folder of answers that runs share: a request that an earlier run with the same
            seed has made, word for word, is answered from there. "shared" is the platform's folder
            for caches; other folders are relative to the current one; null means none.
        executor: runs episodes in other processes: {use: processes, workers: 2}; null means none.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)] | None = (
        None
    )
    directory: Annotated[str, Meta(min_length=1)] = "runs"
    concurrency: Count = 64
    timeout: Annotated[float, Meta(gt=0)] | None = 600.0
    problems: Count | None = None
    iterations: Count | None = None
    retention: Literal["all", "turns", "episodes", "none"] = "all"
    checkpoint_every: Count = 1
    keep: Count = 3
    block: tuple[str, ...] = ()
    observers: tuple[str, ...] = ()
    cache: Annotated[str, Meta(min_length=1)] | None = None
    executor: Executor | None = None


RESERVED = {
    "learned": "the trained policy",
    "team": "the team as it is configured",
    TRAINING: "the episodes of training",
}
"""Names of `orchestrion._report` that no baseline can have, and what they stand for."""

AS_UNTRAINED = "untrained"
"""The word for the baseline that is the run's own team before its first episode."""


BASELINE_KEYS = ("policy", "trainer", "as_configured")
"""What a config may say of a baseline; its other fields follow from that."""


@frozen
class Baseline:
    """A policy to compare with.

    Args:
        policy: the path of its policy.
        trainer: the path of its trainer; None if it is not trained.
        agents: the paths of its agents, if it has a team of its own.
        as_configured: whether it has the learnable settings of the config, and not those that the
            run's trainers have learned.
        word: the word that names it in the config; empty if it is written out.
    """

    policy: str
    trainer: str | None = None
    agents: tuple[str, ...] | None = None
    as_configured: bool = False
    word: str = field(default="", eq=False)

    @property
    def untrained(self) -> bool:
        """Return whether it is the run's own team, as it was before its first episode."""
        return self.word == AS_UNTRAINED


@frozen
class Evaluation:
    """How the result of a run is judged.

    Args:
        split: the split whose problems it is judged on.
        episodes: how many of these problems are used; null means all.
        seeds: how often each problem is tried, with different randomness.
        baselines: policies to compare with: {name: {policy: ..., trainer: ...}}, or {name: word},
            or a list of words. A word is a trainer's name, for it and the policy it trains; a
            policy's name; or `untrained`, for the run's own team before its first episode.
    """

    split: Split = "test"
    episodes: Count | None = None
    seeds: Count = 1
    baselines: Mapping[str, Baseline] = field(default=Factory(dict))


PLAIN: dict[str, type] = {
    "limits": Limits,
    "budget": Budget,
    "run": RunSettings,
    "evaluation": Evaluation,
}
"""The plain sections with settings; `seed` is a number."""

NEEDED = ("task", "agents", "policy")
"""The sections that every config has."""

EXECUTOR = "run.executor"
"""The path of the component that runs a run's episodes in other processes."""

DECISIVE = ("timeout", "problems", "iterations")
"""Settings of `run` that are part of a config's digest."""
