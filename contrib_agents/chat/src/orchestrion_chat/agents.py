"""What the agents `chat` and `router` share: settings, requests and bounds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

from attrs import frozen

from orchestrion import (
    JSON,
    Agent,
    Meta,
    Model,
    OpenContext,
    Usage,
    UsageError,
    ceiling_of,
    learnable,
    replace,
    supports,
)
from orchestrion_chat.forms import Form
from orchestrion_chat.presets import Role
from orchestrion_chat.sees import BYTES_PER_TOKEN, LABEL_TOKENS, Context, Sees
from orchestrion_chat.texts import system_text, with_parts

Temperature = Annotated[float, Meta(ge=0, le=2)]
Tokens = Annotated[int, Meta(ge=1)]
REPAIR_BYTES = 4000
"""The maximum length of a repair message, beside the schema."""


@frozen
class ModelAgent:
    """Settings of an agent that asks a model; a config that `ready` refuses is not read.

    Args:
        model: the model that is asked.
        preset: a role of this distribution; its settings apply where none are given here.
        preset_file: a file with a preset instead.
        instructions: what the agent has to do; they follow the preset's.
        habits: short rules, listed after the instructions.
        temperature: of sampling; by default the model's.
        max_tokens: of one answer; by default the model's.
        structured: pass the form of the answer to the model as a constraint (`model`) or in words
            (`prompt`); `auto` passes it as a constraint if the model supports that. The answer is
            checked in any case.
        sees: what the agent sees of the episode so far.
    """

    model: Model
    preset: Role | None = None
    preset_file: Path | None = None
    instructions: str = learnable("")
    habits: Sequence[str] = learnable(())
    temperature: Temperature | None = None
    max_tokens: Tokens | None = None
    structured: Literal["auto", "model", "prompt"] = "auto"
    sees: Sees = Sees()

    def ready(self) -> Agent:
        """Return the agent, for teams that are built in Python.

        Raises:
            UsageError: settings contradict each other.
        """
        raise NotImplementedError

    def __attrs_post_init__(self) -> None:
        try:
            self.ready()
        except UsageError as error:
            raise ValueError(str(error)) from None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Yield the agent."""
        yield self.ready()

    @property
    def observes(self) -> int:
        """Return the most tokens that it reads of what the task's environment shows."""
        return self.sees.observation * BYTES_PER_TOKEN

    def in_words(self) -> bool:
        """Return whether the model gets the form of its answer in words.

        Raises:
            UsageError: `structured: model` is set for a model that cannot be held to a schema.
        """
        if supports(self.model, "schema"):
            return self.structured == "prompt"
        if self.structured == "model":
            raise UsageError(
                "structured: this model cannot be held to a schema; leave `structured` out, and "
                "it is told the form of its answer in words"
            )
        return True

    def system(self, preset: str, more: str, form: Form | None) -> str:
        """Return the system message.

        Args:
            preset: the preset's instructions, which come first.
            more: what follows the agent's own instructions.
            form: of the answer, if it has one.
        """
        wish = form.wish if form is not None and self.in_words() else ""
        return system_text([preset, self.instructions, more], self.habits, wish)

    def messages(self, system: str, context: Context, request: str) -> list[dict[str, JSON]]:
        """Return the messages of the first request, which ends with `request`."""
        user = with_parts(f"{context.text}\n\n{request}", context.parts)
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def fields(
        self, form: Form | None, temperature: float | None = None, max_tokens: int | None = None
    ) -> dict[str, JSON]:
        """Return the fields of requests that are set; the others are left to the model.

        Args:
            form: of the answer, if it has one.
            temperature: in place of the agent's.
            max_tokens: in place of the agent's.
        """
        fields = {
            "temperature": self.temperature if temperature is None else temperature,
            "max_tokens": self.max_tokens if max_tokens is None else max_tokens,
            "schema": None if form is None or self.in_words() else dict(form.schema),
        }
        return {name: value for name, value in fields.items() if value is not None}


def activation(
    model: Model,
    tokens: int,
    completions: int,
    max_tokens: int | None,
    between: int = 0,
    tool_calls: int = 0,
) -> Usage | None:
    """Return a bound of one activation; None if the model gives none.

    Args:
        model: the model that is asked.
        tokens: of the first request.
        completions: number of requests.
        max_tokens: of each answer; None for the model's own limit.
        between: tokens that each request adds to the request before and its answer.
        tool_calls: number of tool calls.
    """
    total = Usage(calls=tool_calls)
    longest = 0
    for _ in range(completions):
        bound = _completion(model, tokens, max_tokens)
        if bound is None:
            return None
        longest = bound.output_tokens
        total = total + bound
        tokens += longest + between
    # Others read only the last answer, with its label.
    return replace(total, output_tokens=max(total.output_tokens, longest + LABEL_TOKENS))


def _completion(model: Model, tokens: int, max_tokens: int | None) -> Usage | None:
    ceiling = ceiling_of(model, tokens)
    if ceiling is None or max_tokens is None or not ceiling.calls:
        return ceiling
    # The answer's part of the price is unknown: a longer answer costs at most in proportion, and a
    # shorter one at most as much as before.
    more = max(1.0, max_tokens / ceiling.output_tokens) if ceiling.output_tokens else math.inf
    usd = ceiling.usd * more if ceiling.usd else 0.0
    cost = ceiling.cost * more if ceiling.cost else 0.0
    return replace(ceiling, output_tokens=max_tokens, usd=usd, cost=cost)
