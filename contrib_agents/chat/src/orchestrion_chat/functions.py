"""Python functions as tools: their schemas come from annotations and docstrings."""

from __future__ import annotations

import asyncio
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Annotated, Any, TypeVar

import msgspec
from attrs import evolve, field, frozen

from orchestrion import JSON, Answer, Calls, Meta, Request, Usage, in_thread
from orchestrion_chat.interfaces import ArgumentError, Bounds, Function, Result, Tool
from orchestrion_chat.schemas import schema_of
from orchestrion_chat.sees import IMAGE_TOKENS, MOST_IMAGES
from orchestrion_chat.texts import capped

F = TypeVar("F", bound=Callable[..., Any])
Seconds = Annotated[float, Meta(gt=0)]


def writes(function: F) -> F:
    """Mark a function as one that changes something; a config must allow it by name."""
    function.writes = True  # type: ignore[attr-defined]
    return function


@frozen
class FunctionTool(Tool):
    """Base of tools that are Python functions; subclasses list them in `offers`.

    A function needs an annotation for every parameter, and a docstring for the model; its `Args:`
    section describes the parameters. It may be a coroutine function; others run in a worker thread.
    The model is told of exceptions. A returned text is the result; other values become JSON. A
    function whose annotation says that it returns a `Result` may show images with its text.

    Args:
        allow_writes: functions marked `@writes` that may be called.
        timeout: the maximum of seconds of one call; the model is told of a longer one.
        max_result: the maximum of bytes of a result; a longer one is cut, with a remark.
    """

    allow_writes: Sequence[str] = field(default=(), kw_only=True)
    timeout: Seconds = field(default=60.0, kw_only=True)
    max_result: Annotated[int, Meta(ge=1)] = field(default=8_000, kw_only=True)

    def offers(self) -> Sequence[Callable[..., Any]]:
        """Return the functions, including those that write."""
        raise NotImplementedError

    def __attrs_post_init__(self) -> None:
        known = [tool.function.name for tool in self._all if tool.function.writes]
        for name in self.allow_writes:
            if name not in known:
                raise ValueError(f"allow_writes: there is no function {name!r} that writes")

    @cached_property
    def _all(self) -> list[_Described]:
        return [_describe(function) for function in self.offers()]

    def _offered(self) -> list[_Described]:
        return [
            tool
            for tool in self._all
            if not tool.function.writes or tool.function.name in self.allow_writes
        ]

    async def functions(self, calls: Calls) -> Sequence[Function]:
        return [tool.function for tool in self._offered()]

    def bounds(self) -> Bounds:
        offered = self._offered()
        definitions = sum(definition_bytes(tool.function) for tool in offered)
        images = MOST_IMAGES * IMAGE_TOKENS if any(tool.shows for tool in offered) else 0
        return Bounds(definitions, self.max_result + images)

    async def call(self, function: Function, arguments: Mapping[str, JSON], calls: Calls) -> Result:
        name = function.name
        offered = next(tool for tool in self._offered() if tool.function.name == name)
        try:
            converted = msgspec.convert(arguments, offered.arguments)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ArgumentError(str(error)) from None
        # By attribute: `asdict` would turn nested records into mappings.
        values = {key: getattr(converted, key) for key in offered.arguments.__struct_fields__}

        async def do() -> Answer:
            result = await self._result(offered.call, values)
            data: dict[str, JSON] = {"text": result.text, "error": result.error}
            if offered.shows and result.parts:
                data["parts"] = [dict(part) for part in result.parts[:MOST_IMAGES]]
            return Answer(data, Usage(calls=1))

        request = Request(f"tool:{name}", [name, dict(arguments)], timeout=self.timeout + 60)
        answer = await calls.run(request, do, Usage(calls=1))
        return Result(**answer.data)

    async def _result(self, function: Callable[..., Any], values: dict[str, Any]) -> Result:
        try:
            async with asyncio.timeout(self.timeout):
                if inspect.iscoroutinefunction(function):
                    value = await function(**values)
                else:
                    value = await in_thread(partial(function, **values))
            if isinstance(value, Result):
                return evolve(value, text=capped(value.text, self.max_result))
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        except TimeoutError:
            return Result(f"no result within {self.timeout:g} s", error=True)
        except Exception as error:  # for the model to correct
            return Result(capped(f"{type(error).__name__}: {error}", self.max_result), error=True)
        return Result(capped(text, self.max_result))


@frozen
class Functions(FunctionTool):
    """Functions `given` from Python."""

    given: Sequence[Callable[..., Any]] = ()

    def offers(self) -> Sequence[Callable[..., Any]]:
        return self.given


# ---------------------------------------------------------------- functions as models see them


@frozen
class _Described:
    function: Function
    arguments: type[msgspec.Struct]
    call: Callable[..., Any]
    shows: bool


def _describe(function: Callable[..., Any]) -> _Described:
    name = function.__name__
    text = inspect.cleandoc(function.__doc__ or "")
    if not text:
        raise TypeError(f"the function {name} needs a docstring: it tells the model what it does")
    hints = typing.get_type_hints(function, include_extras=True)
    helps = _argument_helps(text)
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"the function {name} cannot take *{parameter.name} as a tool")
        if parameter.name not in hints:
            raise TypeError(f"the parameter {parameter.name!r} of {name} has no annotation")
        hint = hints[parameter.name]
        if parameter.name in helps:
            hint = Annotated[hint, msgspec.Meta(description=helps[parameter.name])]
        default = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hint, *default))
    arguments = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
    schema = {key: value for key, value in schema_of(arguments).items() if key != "title"}
    description = re.split(r"^(?:Args|Raises|Returns):$", text, maxsplit=1, flags=re.M)[0].strip()
    changes = bool(getattr(function, "writes", False))
    shows = hints.get("return") is Result
    return _Described(Function(name, description, schema, changes), arguments, function, shows)


def _argument_helps(text: str) -> dict[str, str]:
    """Return the descriptions of parameters in the `Args:` section of a docstring."""
    helps: dict[str, str] = {}
    name = ""
    _, _, section = text.partition("\nArgs:\n")
    for line in section.splitlines():
        if line.strip() and not line.startswith(" "):
            break
        started = re.fullmatch(r" {1,4}(\w+)(?: \([^)]*\))?: (.*)", line)
        if started:
            name = started[1]
            helps[name] = started[2]
        elif name and line.strip():
            helps[name] += f" {line.strip()}"
    return helps


def definition_bytes(function: Function) -> int:
    """Return the bytes of a function's definition in a request."""
    return len(msgspec.json.encode([function.name, function.description, function.schema]))
