"""The tools of one activation: the functions offered to the model, and its calls of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from attrs import Factory, frozen

from orchestrion import JSON, Calls
from orchestrion_chat.approval import Approval
from orchestrion_chat.interfaces import ArgumentError, Function, Result, Tool
from orchestrion_chat.texts import labelled, with_parts

MOST_CALLS = 8
"""The maximum of calls in one answer; with more, the turn fails."""


@frozen
class CallResults:
    """The messages that answer a model's calls, the errors in them, and those not approved."""

    messages: list[dict[str, JSON]]
    mistakes: list[str]
    refused: list[str]


@frozen
class Toolbox:
    """Functions by the name that the model sees, and which calls of them are made."""

    functions: Mapping[str, tuple[Tool, Function]] = Factory(dict)
    approval: Approval = Approval({})

    @staticmethod
    async def of(tools: Sequence[Tool], calls: Calls, approval: Approval) -> Toolbox:
        """Return the functions that these tools offer now.

        Raises:
            RuntimeError: two functions have the same name, or a rule fits none.
        """
        functions: dict[str, tuple[Tool, Function]] = {}
        for tool in tools:
            for function in await tool.functions(calls):
                if function.name in functions:
                    raise RuntimeError(
                        f"two of its tools have a function {function.name!r}; give one of them a "
                        "`prefix`, or leave it out"
                    )
                functions[function.name] = (tool, function)
        for pattern in approval.rules:
            # It may be misspelt: then the tool that it should hold back would be called.
            if pattern != "*" and not any(fnmatchcase(name, pattern) for name in functions):
                raise RuntimeError(
                    f"approve.{pattern}: fits none of its tools, which are "
                    f"{', '.join(sorted(functions)) or 'none'}"
                )
        return Toolbox(functions, approval)

    @property
    def definitions(self) -> list[dict[str, JSON]]:
        """The field `tools` of a request."""
        return [
            {"name": name, "description": function.description, "schema": dict(function.schema)}
            for name, (_, function) in self.functions.items()
        ]

    async def answer(self, tool_calls: Sequence[Mapping[str, Any]], calls: Calls) -> CallResults:
        """Make a model's calls: all at once; in order if one of them writes.

        Raises:
            CallError: a tool cannot be reached.
            RuntimeError: there are too many.
        """
        if len(tool_calls) > MOST_CALLS:
            number = len(tool_calls)
            raise RuntimeError(f"the model made {number} calls at once, at most {MOST_CALLS}")
        # All of them first, in order: a question must not change the order of the calls.
        refusals = [await self._refusal(call, calls) for call in tool_calls]
        pairs = list(zip(tool_calls, refusals, strict=True))
        names = [str(call["name"]) for call in tool_calls]
        if any(name in self.functions and self.functions[name][1].writes for name in names):
            results = [await self._call(*pair, calls) for pair in pairs]
        else:
            tasks = [asyncio.create_task(self._call(*pair, calls)) for pair in pairs]
            # No call outlives its turn: the first error is raised when all have ended.
            await asyncio.gather(*tasks, return_exceptions=True)
            results = [task.result() for task in tasks]
        messages = [_message(call, r) for call, (r, _) in zip(tool_calls, results, strict=True)]
        refused = [name[:64] for name, refusal in zip(names, refusals, strict=True) if refusal]
        return CallResults(messages, [mistake for _, mistake in results if mistake], refused)

    async def _refusal(self, tool_call: Mapping[str, Any], calls: Calls) -> str:
        """Return why a call is not made; "" if it is. A wrong call is nobody's question."""
        name = str(tool_call["name"])
        if name not in self.functions or not self.approval.rules:
            return ""
        try:
            return await self.approval.refusal(name, _arguments(tool_call), calls)
        except ArgumentError:
            return ""

    async def _call(
        self, tool_call: Mapping[str, Any], refusal: str, calls: Calls
    ) -> tuple[Result, str]:
        """Return the result of a call, and what is wrong with the call, if anything is."""
        name = str(tool_call["name"])
        if refusal:
            return Result(refusal, error=True), ""
        try:
            if name not in self.functions:
                known = ", ".join(self.functions)
                raise ArgumentError(f"there is no such tool (there are: {known})")
            tool, function = self.functions[name]
            return await tool.call(function, _arguments(tool_call), calls), ""
        except ArgumentError as error:
            return Result(str(error), error=True), f"{name}: {error}"


def _arguments(tool_call: Mapping[str, Any]) -> dict[str, JSON]:
    try:
        value = msgspec.json.decode(str(tool_call.get("arguments") or "{}"))
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ArgumentError(f"the arguments are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ArgumentError("the arguments must be a JSON object")
    return value


def _message(tool_call: Mapping[str, Any], result: Result) -> dict[str, JSON]:
    name = re.sub(r"[^\w.-]", "_", str(tool_call["name"]))[:64]
    outcome = "error" if result.error else "ok"
    text = labelled("result", result.text, of=name, outcome=outcome)
    content = with_parts(text, result.parts)
    return {"role": "tool", "tool_call_id": tool_call.get("id", ""), "content": content}
