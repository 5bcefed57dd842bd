"""An agent of another framework: settings, loading, and one run of it as one call."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, Protocol

import msgspec
from attrs import frozen
from orchestrion_llm import Limits, Price

from orchestrion import (
    JSON,
    Agent,
    Answer,
    CallError,
    Calls,
    Key,
    Meta,
    OpenContext,
    Output,
    Request,
    Usage,
    UsageError,
    View,
    load_function,
    load_object,
)
from orchestrion_foreign.faults import failed
from orchestrion_foreign.shown import Message, everything, messages
from orchestrion_foreign.spending import ModelRequests, Reserve, reserved, used

VERSION = "1"
"""Incremented whenever equal requests are made or read differently than before."""

ObjectPath = Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]


class Framework(Protocol):
    """How agents of one framework are recognised, run and read."""

    wanted: str
    """What a path must name, with an article, e.g. "a compiled graph"."""
    call: str
    """What `run` calls, e.g. "Agent.run"."""
    kept: Sequence[str] = ()
    """The arguments of that call which `run` gives itself."""

    def fits(self, target: Any) -> bool:
        """Return whether it is an agent of this framework."""
        ...

    def refused(self, target: Any, settings: Any) -> str:
        """Return why an agent cannot work with these settings; empty if it can."""
        return ""

    def arguments(self, shown: Sequence[Message]) -> dict[str, Any]:
        """Return the keyword arguments of the call, for what is shown by default."""
        ...

    async def run(self, target: Any, arguments: dict[str, Any], log: list[ModelRequests]) -> Any:
        """Return the result of a run. Whatever it spends stands in `log`, also if it raises."""
        ...

    def read(self, result: Any) -> Any:
        """Return what a result says by default: a text, an `Output` or any other value.

        Raises:
            ValueError: it says nothing that can be used.
        """
        ...


@frozen(kw_only=True)
class Foreign:
    """Settings that agents of all frameworks have.

    A subclass names the agent in a field and returns its framework.

    Args:
        input: a function of the view, by path, that returns the keyword arguments of the
            framework's own call; by default the problem and the turns are its messages.
        output: a function of the framework's result, by path, that returns the turn: a text, an
            `Output`, or any other value for its data; by default the result's own text or value.
        role: what the agent does, in a few words, for routers.
        reserve: the most that one run takes; it is held back in the budget while the agent runs.
        price: US dollars per million tokens; null takes what the framework says a run cost, or
            the known price of its model.
        timeout: the maximum of seconds of one run.
        limits: how fast runs may be started.
    """

    input: ObjectPath | None = None
    output: ObjectPath | None = None
    role: str = ""
    reserve: Reserve = Reserve()
    price: Price | None = None
    timeout: Annotated[float, Meta(gt=0, le=86400)] = 600.0
    limits: Limits = Limits()

    def _named(self) -> tuple[str, str, str]:
        """Return the framework's name, the field that names the agent, and its value."""
        raise NotImplementedError

    def _framework(self) -> Framework:
        """Return the framework; imports it."""
        raise NotImplementedError

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Load the agent and yield what runs it.

        Where no calls are to be made, a factory is not called, since it may need keys; and a replay
        or a router loads nothing.

        Raises:
            UsageError: a path names nothing, or something else than it should.
        """
        async with AsyncExitStack() as stack:
            name, _, path = self._named()
            runner = None
            if ctx.live or (ctx.trial and not ctx.described):
                runner = await self._runner(ctx, stack)
            yield _Opened(self, f"{name}:{path}", runner)

    async def _runner(self, ctx: OpenContext, stack: AsyncExitStack) -> _Runner:
        _, field, path = self._named()
        where = f"{ctx.path}.{field}"
        target, framework = load_object(path, where), self._framework()
        if not framework.fits(target):
            if not callable(target) or inspect.isclass(target):
                raise UsageError(f"{where}: {path!r} is {_kind(target)}, not {framework.wanted}")
            target = await _loaded(target, framework, stack, where, path) if ctx.live else None
        if target is not None and (reason := framework.refused(target, self)):
            raise UsageError(f"{where}: {path!r} {reason}")
        return _Runner(
            framework,
            target,
            None if self.input is None else load_function(self.input, f"{ctx.path}.input", 1),
            None if self.output is None else load_function(self.output, f"{ctx.path}.output", 1),
        )


async def _loaded(
    factory: Callable[[], Any], framework: Framework, stack: AsyncExitStack, where: str, path: str
) -> Any:
    """Return what a factory makes: a plain or async function, or an async context manager."""
    try:
        target = factory()
        if inspect.isawaitable(target):
            target = await target
        if not framework.fits(target) and hasattr(target, "__aenter__"):
            target = await stack.enter_async_context(target)
    except Exception as error:
        raise UsageError(f"{where}: {path!r} raised {type(error).__name__}: {error}") from error
    if not framework.fits(target):
        raise UsageError(
            f"{where}: {path!r} returned {_kind(target)}, not {framework.wanted}; it must be that, "
            "or a function without arguments that returns it"
        )
    return target


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    name = f"the class {value.__name__}" if inspect.isclass(value) else type(value).__name__
    return name if inspect.isclass(value) else f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


@frozen
class _Runner:
    """A loaded agent, and how it is run."""

    framework: Framework
    target: Any
    input: Callable[[View], Any] | None
    output: Callable[[Any], Any] | None

    async def run(self, view: View, shown: Sequence[Message], log: list[ModelRequests]) -> JSON:
        """Return the output of one run, in the form that the journal keeps.

        Raises:
            Exception: whatever the framework or a function of the user raises.
        """
        arguments = self.framework.arguments(shown) if self.input is None else self._arguments(view)
        result = await self.framework.run(self.target, arguments, log)
        answer = self.framework.read(result) if self.output is None else self.output(result)
        return _written(answer)

    def _arguments(self, view: View) -> dict[str, Any]:
        assert self.input is not None
        call = self.framework.call
        given = self.input(view)
        if not isinstance(given, Mapping):
            raise TypeError(
                f"`input` returned {_kind(given)}, not the keyword arguments of {call} as a mapping"
            )
        for name in self.framework.kept:
            if name in given:
                raise ValueError(f"`input` gives {name!r}, which is given to {call} already")
        return dict(given)


def as_json(value: Any) -> JSON:
    """Return a value as JSON: models of Pydantic, dataclasses, dates and what they contain.

    Raises:
        ValueError: it holds something else.
    """
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def _written(answer: Any) -> JSON:
    """Return an output as JSON; its text has the name that readers of calls look for."""
    if not isinstance(answer, Output):
        data = None if isinstance(answer, str) else as_json(answer)
        text = answer if isinstance(answer, str) else json.dumps(data, ensure_ascii=False)
        answer = Output(text, data)
    if answer.inner is not None:
        raise ValueError("`output` returned an Output with an inner trajectory")
    if not isinstance(answer.content, str):
        raise TypeError(f"`output` returned an Output whose content is {_kind(answer.content)}")
    return {
        "text": str(answer.content),  # exactly that type, and none of a framework's
        "data": as_json(answer.data),
        "final": answer.final,
        "metadata": as_json(dict(answer.metadata)),
        "usage": msgspec.to_builtins(answer.usage),
    }


@frozen(eq=False)
class _Opened(Agent):
    settings: Foreign
    service: str
    runner: _Runner | None

    @property
    def role(self) -> str:
        return self.settings.role

    def ceiling(self, tokens: int) -> Usage:
        return reserved(self.settings.reserve, self.settings.price)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        settings, shown = self.settings, messages(view)
        reserve = reserved(settings.reserve, settings.price)

        async def attempt() -> Answer:
            if self.runner is None or self.runner.target is None:
                raise CallError(f"{self.service}: opened without its agent", "permanent")
            log: list[ModelRequests] = []
            try:
                data = await self.runner.run(view, shown, log)
            except Exception as error:
                spent = used(log, settings.price, reserve)[0] if log else None
                raise failed(error, self.service, spent) from error
            return Answer(data, *used(log, settings.price, reserve))

        content: dict[str, JSON] = {
            "messages": [{"role": m.role, "name": m.name, "content": m.text} for m in shown],
            "output": settings.output,
        }
        if settings.input is not None:
            content |= {"input": settings.input, "view": everything(view)}
        request = Request(
            self.service,
            content,
            VERSION,
            sample=key.hex(),
            limits=settings.limits,
            timeout=settings.timeout,
        )
        answer = (await calls.run(request, attempt, reserve)).data
        return Output(
            answer["text"],
            answer["data"],
            msgspec.convert(answer["usage"], Usage),
            answer["final"],
            answer["metadata"],
        )
