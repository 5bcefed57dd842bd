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
    async def of(tools: Sequence[Tool], calls: Calls, approval: Approval | None = None) -> Toolbox:
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
        approval = approval or Approval({})
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

    async def answer(self, asked: Sequence[Mapping[str, Any]], calls: Calls) -> CallResults:
        """Make a model's calls: all at once; in order if one of them writes.

        Raises:
            CallError: a tool cannot be reached.
            RuntimeError: there are too many.
        """
        if len(asked) > MOST_CALLS:
            raise RuntimeError(f"the model made {len(asked)} calls at once, at most {MOST_CALLS}")
        # All of them first, in order: a question must not change the order of the calls.
        refusals = [await self._refusal(call, calls) for call in asked]
        if any(self._writes(str(call["name"])) for call in asked):
            results = [
                await self._call(call, refusal, calls)
                for call, refusal in zip(asked, refusals, strict=True)
            ]
        else:
            done = await asyncio.gather(
                *(
                    self._call(call, refusal, calls)
                    for call, refusal in zip(asked, refusals, strict=True)
                ),
                return_exceptions=True,
            )
            # All have ended: no call outlives its turn. The first error counts.
            results = []
            for result in done:
                if isinstance(result, BaseException):
                    raise result
                results.append(result)
        messages = [_message(call, r) for call, (r, _) in zip(asked, results, strict=True)]
        refused = [str(call["name"])[:64] for call, no in zip(asked, refusals, strict=True) if no]
        return CallResults(messages, [mistake for _, mistake in results if mistake], refused)

    def _writes(self, name: str) -> bool:
        return name in self.functions and self.functions[name][1].writes

    async def _refusal(self, asked: Mapping[str, Any], calls: Calls) -> str:
        """Why a call is not made; "" if it is. A wrong call is nobody's question."""
        name = str(asked["name"])
        if name not in self.functions or not self.approval.rules:
            return ""
        try:
            arguments = _arguments(str(asked.get("arguments") or "{}"))
        except ArgumentError:
            return ""
        return await self.approval.refusal(name, arguments, calls)

    async def _call(
        self, asked: Mapping[str, Any], refusal: str, calls: Calls
    ) -> tuple[Result, str]:
        """Return the result of a call, and what is wrong with the call, if anything is."""
        name = str(asked["name"])
        if refusal:
            return Result(refusal, error=True), ""
        try:
            if name not in self.functions:
                known = ", ".join(self.functions)
                raise ArgumentError(f"there is no such tool (there are: {known})")
            tool, function = self.functions[name]
            arguments = _arguments(str(asked.get("arguments") or "{}"))
            return await tool.call(function, arguments, calls), ""
        except ArgumentError as error:
            return Result(str(error), error=True), f"{name}: {error}"


def _arguments(text: str) -> dict[str, JSON]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ArgumentError(f"the arguments are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ArgumentError("the arguments must be a JSON object")
    return value


def _message(asked: Mapping[str, Any], result: Result) -> dict[str, JSON]:
    name = re.sub(r"[^\w.-]", "_", str(asked["name"]))[:64]
    outcome = "error" if result.error else "ok"
    text = labelled("result", result.text, of=name, outcome=outcome)
    content = with_parts(text, result.parts)
    return {"role": "tool", "tool_call_id": asked.get("id", ""), "content": content}
