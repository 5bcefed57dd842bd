"""The model that Inspect's scorers see: the grader of the task, or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from attrs import define
from inspect_ai.model import (
    ChatMessage,
    ChatMessageUser,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    get_model,
    modelapi,
)
from inspect_ai.model import Model as InspectModel
from inspect_ai.model._model import init_active_model, init_model_roles  # no public name

from orchestrion import JSON, Calls, Key, Model, RunError


class AskedError(RunError):
    """Raised when an evaluation asks a model that it must not ask."""


@define
class _Verdict:
    """The model and the calls of one verdict."""

    model: Model
    calls: Calls
    key: Key
    requests: int = 0


_VERDICT: ContextVar[_Verdict | None] = ContextVar("orchestrion_inspect_verdict", default=None)


@modelapi("orchestrion")
class _Nowhere(ModelAPI):
    """A model service for Inspect's registry, which is never called."""

    async def generate(self, *args: Any, **kwargs: Any) -> ModelOutput:
        """Raise AskedError."""
        raise AskedError("the service `orchestrion` of Inspect answers nobody")


class _Grader(InspectModel):
    """The model of the current verdict, as Inspect's scorers ask it.

    It replaces Inspect's own models, which would retry failed calls outside the call path.
    """

    async def generate(
        self,
        input: str | list[ChatMessage],
        tools: Any = (),
        tool_choice: Any = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  never changed
        **options: Any,
    ) -> ModelOutput:
        """Ask the model through the verdict's calls.

        Raises:
            AskedError: there is no model, or the scorer gives tools to it.
            CallError: a call failed.
        """
        verdict = _VERDICT.get()
        if verdict is None:
            raise AskedError(
                "the evaluation asks a model: set `model` of the task `inspect` if its scorer "
                "grades by one"
            )
        if tools:
            raise AskedError("the evaluation's scorer gives tools to a model; that cannot be done")
        settings = {
            "max_tokens": config.max_tokens,
            "temperature": config.temperature,
            "top_p": config.top_p,
            "stop": config.stop_seqs,
        }
        given = [ChatMessageUser(content=input)] if isinstance(input, str) else input
        request: dict[str, JSON] = {
            "messages": [{"role": message.role, "content": message.text} for message in given],
            **{name: value for name, value in settings.items() if value is not None},
        }
        verdict.requests += 1
        answer = await verdict.model.complete(
            request, verdict.key.child(verdict.requests), verdict.calls
        )
        return ModelOutput.from_content("orchestrion", answer.data["text"])


def nobody() -> None:
    """Let every request for a model fail in this context, except for those of `grading`."""
    active = _Grader(get_model("orchestrion/grader").api, GenerateConfig())
    init_active_model(active, GenerateConfig())
    init_model_roles({"grader": active})


@contextmanager
def grading(model: Model | None, calls: Calls, key: Key) -> Iterator[None]:
    """Let scorers ask the model, if there is one, through these calls."""
    before = _VERDICT.set(None if model is None else _Verdict(model, calls, key))
    try:
        yield
    finally:
        _VERDICT.reset(before)
