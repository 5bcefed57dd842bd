"""Models as Inspect sees them while a team is judged: the grader that was given, or none."""

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
    """Raised when an evaluation asks a model where none is to be asked."""


@define
class _Verdict:
    """One verdict that is being reached, and the model that may be asked for it."""

    model: Model
    calls: Calls
    key: Key
    asked: int = 0


_VERDICT: ContextVar[_Verdict | None] = ContextVar("orchestrion_inspect_verdict", default=None)


@modelapi("orchestrion")
class _Nowhere(ModelAPI):
    """A service of that name; it is never asked."""

    async def generate(self, *args: Any, **kwargs: Any) -> ModelOutput:
        """Raise AskedError."""
        raise AskedError("the service `orchestrion` of Inspect answers nobody")


class _Grader(InspectModel):
    """The model of the verdict that is being reached, as Inspect's scorers ask it.

    It takes the place of Inspect's own way to a model, which would try again what failed, past
    the call path.
    """

    async def generate(
        self,
        input: str | list[ChatMessage],
        tools: Any = (),
        tool_choice: Any = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  never changed
        **ways: Any,
    ) -> ModelOutput:
        """Ask the model through the verdict's calls.

        Raises:
            AskedError: there is no model to be asked, or it would be given tools.
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
        verdict.asked += 1
        answer = await verdict.model.complete(
            request, verdict.key.child(verdict.asked), verdict.calls
        )
        return ModelOutput.from_content("orchestrion", answer.data["text"])


def nobody() -> None:
    """Refuse whoever asks a model from now on, in this context."""
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
