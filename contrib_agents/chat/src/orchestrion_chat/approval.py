"""Approval of tool calls: by rules of the config, by a function, or by a person."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec
from attrs import frozen

from orchestrion import JSON, Answer, Calls, Request, in_thread, load_function
from orchestrion_chat.people import Question, ask

_WORDS = ("allow", "deny", "ask")


def check_rules(instance: object, attribute: object, rules: Mapping[str, str]) -> None:
    """Validate a setting: raise `ValueError` for a rule that is neither a word nor a path."""
    for pattern, rule in rules.items():
        if rule not in _WORDS and ":" not in rule:
            raise ValueError(
                f"approve.{pattern}: must be allow, deny, ask or the path of a function "
                f"(package.module:name), not {rule!r}"
            )


@frozen
class Approval:
    """Which tool calls are made.

    Args:
        rules: `allow`, `deny`, `ask` or the path of a function, by pattern of the tool's name.
        agent: that makes the calls.
        terminal: whether a person is asked at the terminal.
    """

    rules: Mapping[str, str]
    agent: str = ""
    terminal: bool = False

    def load(self) -> None:
        """Load the functions; raise `UsageError` for one that cannot be loaded."""
        for pattern, rule in self.rules.items():
            if ":" in rule:
                load_function(rule, f"approve.{pattern}", given=3)

    async def refusal(self, tool: str, arguments: JSON, calls: Calls) -> str:
        """Return why a call is not made, for the model; "" if it is made.

        The first pattern that fits decides; without one the call is made.
        """
        fitting = (rule for pattern, rule in self.rules.items() if fnmatchcase(tool, pattern))
        rule = next(fitting, "allow")
        if ":" in rule:
            rule = await self._ruled(rule, tool, arguments, calls)
        if rule == "ask":
            return await self._ask_person(tool, arguments, calls)
        return "" if rule == "allow" else "this call is not allowed"

    async def _ruled(self, path: str, tool: str, arguments: JSON, calls: Calls) -> str:
        function = load_function(path, "approve")

        async def do() -> Answer:
            value = await in_thread(function, self.agent, tool, arguments)
            if inspect.isawaitable(value):
                value = await value
            if value not in _WORDS:
                raise RuntimeError(f"approve: {path} returned {value!r}, not allow, deny or ask")
            return Answer(value)

        # On record: the function may look at things that are different in a replay.
        answer = await calls.run(Request("approval", [path, self.agent, tool, arguments]), do)
        return str(answer.data)

    async def _ask_person(self, tool: str, arguments: JSON, calls: Calls) -> str:
        shown = msgspec.json.encode(arguments).decode()
        text = f"{self.agent} wants to call {tool} with {shown}. Allow it? (yes/no, or why not)"
        question = Question("approval", self.agent, text, tool, arguments)
        reply = await ask(question, calls, self.terminal)
        if reply is None:
            return "this call needs a person's approval, and nobody answered"
        if reply.lower() in ("y", "yes"):
            return ""
        reason = "" if reply.lower() in ("", "n", "no") else f": {reply}"
        return f"a person did not approve this call{reason}"
