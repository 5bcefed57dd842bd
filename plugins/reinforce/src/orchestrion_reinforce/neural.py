"""The policy `neural`: settings; `neural_policy` has the runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from attrs import Attribute, Factory, field, frozen
from orchestrion_encoders import Counts, Hints
from orchestrion_encoders.interfaces import Encoder

from orchestrion import Meta, OpenContext, Policy, UsageError


@frozen
class Neural:
    """Chooses the next agent, and its option, by a neural network.

    Its choices are every agent of the team with each of its options, and stopping if `stop` is
    set. What the task blocks has probability 0. The trainer `reinforce` teaches it.

    With an encoder that describes choices (`members`), all of them are scored by one function of
    their numbers; if no encoder goes by places either, the policy applies to other teams.

    Args:
        encoders: what the network is fed. Empty means `counts` and `hints` (`told: false`), which
            the next three settings switch off; they cannot be set beside encoders.
        observation: read the features and the progress that the task shows.
        history: read what was done so far: choices, turns, cost, failure.
        hints: weigh what the task says of single choices, all choices alike.
        outlook: fixed weight of a choice's first hint, beside what is learned: at the beginning a
            choice that is certain to help is e^8 times as likely as one that is certain not to. One
            of which the task says nothing counts as the mean of the others.
        hidden: widths of the hidden layers.
        activation: what stands between them.
        stop: whether ending the episode is a choice. Leave it out where an agent does that.
        greedy: in use, take the likeliest choice; in training it always samples.
        begin: a run whose policy this one is at the beginning: to go on from there, or to lead a
            nested team. It needs the same settings, and the same agents by name unless the policy
            applies to other teams.
    """

    encoders: list[Encoder] = field(factory=list)
    observation: bool = True
    history: bool = True
    hints: bool = field(default=True)
    outlook: Annotated[float, Meta(ge=0)] = 8.0
    hidden: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1)] = Factory(
        lambda: [64, 64]
    )
    activation: Literal["tanh", "relu"] = "tanh"
    stop: bool = False
    greedy: bool = False
    begin: str = ""

    @hints.validator
    def _check_encoders(self, attribute: Attribute[Any], value: bool) -> None:
        if self.encoders and not (self.observation and self.history and value):
            raise ValueError(
                "observation, history and hints have no effect beside encoders; remove them, and "
                "set what `counts` shows there: {use: counts, history: false}"
            )

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Build the policy for this team; its network is built with the first situation.

        Raises:
            UsageError: `begin` is no run, or one that has learned no policy.
            CheckpointError: what it has learned is damaged, or does not fit this team.
        """
        from orchestrion_reinforce.neural_policy import NeuralPolicy

        encoders: list[Encoder] = self.encoders or [Counts(self.observation, self.history)]
        if self.hints and not self.encoders:
            encoders = [*encoders, Hints(told=False)]
        policy = NeuralPolicy(self, encoders, ctx)
        if self.begin:
            from orchestrion.runs import newest_checkpoint  # `validate` needs no store

            try:
                directory, checkpoint = newest_checkpoint(self.begin)
            except UsageError as error:
                raise UsageError(f"{ctx.path}: begin: {error}") from None
            if checkpoint is None or "policy" not in checkpoint.components:
                raise UsageError(f"{ctx.path}: begin: {self.begin} has learned no policy yet")
            policy.load(checkpoint.components["policy"])
            ctx.note("began", f"as learned by {directory}, iteration {checkpoint.iteration + 1}")
        yield policy
