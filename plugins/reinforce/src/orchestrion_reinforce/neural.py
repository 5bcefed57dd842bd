"""The policy `neural`: its settings. What they build stands in `network_policy`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from attrs import Factory, frozen

from orchestrion import Meta, OpenContext, Policy, Saved, StoreError, UsageError

__all__ = ["Neural"]


@frozen
class Neural:
    """Chooses the next agent, and its option, by a neural network.

    Its choices are every agent of the team with each of its options, and stopping if `stop` is
    set. What the task blocks has probability 0. The trainer `reinforce` teaches it.

    Args:
        hidden: widths of the hidden layers.
        activation: what stands between them.
        observation: read the features and the progress that the task shows.
        hints: let the network weigh what the task says of single choices, all choices alike, and
            add that to the choices' own scores.
        outlook: fixed weight of a choice's first hint, beside what is learned. What looks
            promising to the task is then tried more often from the beginning: e^8 times as often
            if it is certain to help as if it is certain not to. A choice of which the task says
            nothing counts as the mean of those it speaks of. 0 begins with all choices alike.
        history: read how often each choice was made, the number of turns, their cost, the last
            choice, and whether it failed.
        cost_unit: what the cost is divided by before the network sees it.
        text: width of hashed word features, once for the problem and once for the turns; 0
            leaves texts out.
        roles: width of hashed words of the agents' names and roles, on which a learned embedding
            of the choices is built; 0 gives each choice weights of its own.
        stop: whether ending the episode is a choice. Leave it out where an agent does that.
        greedy: in use, take the likeliest choice instead of a sampled one; in training it
            always samples.
        begin: a run, by its folder or name, whose policy this one is at the beginning: to go on
            from there on other problems, or to lead a nested team as learned. Its team needs the
            same agents by name, and the policy the same settings.
    """

    hidden: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1)] = Factory(
        lambda: [64, 64]
    )
    activation: Literal["tanh", "relu"] = "tanh"
    observation: bool = True
    hints: bool = True
    outlook: Annotated[float, Meta(ge=0)] = 8.0
    history: bool = True
    cost_unit: Annotated[float, Meta(gt=0)] = 1.0
    text: Annotated[int, Meta(ge=0)] = 0
    roles: Annotated[int, Meta(ge=0)] = 0
    stop: bool = False
    greedy: bool = False
    begin: str = ""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Build the network for this team.

        Raises:
            UsageError: `begin` is no run, or one that has learned no policy.
            CheckpointError: what it has learned is damaged, or does not fit this team.
        """
        from orchestrion_reinforce.network_policy import NetworkPolicy

        policy = NetworkPolicy(self, ctx)
        if self.begin:
            policy.load(_learned(self.begin, ctx))
        yield policy


def _learned(run: str, ctx: OpenContext) -> Saved:
    """The policy in the newest valid checkpoint of a run."""
    from orchestrion.store import RunReader, find_run

    try:
        directory = find_run(run)
    except (StoreError, UsageError) as error:
        raise UsageError(f"{ctx.path}: begin: {error}") from None
    with RunReader(directory) as reader:
        checkpoint = reader.usable().checkpoint
    saved = checkpoint.components.get("policy") if checkpoint is not None else None
    if checkpoint is None or saved is None:
        raise UsageError(f"{ctx.path}: begin: the run {run} has learned no policy yet")
    ctx.note("began", f"as learned by {directory}, iteration {checkpoint.iteration + 1}")
    return saved
