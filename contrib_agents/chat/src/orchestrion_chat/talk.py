"""The conversation with a model in one activation: tool calls, one repair, and an end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from attrs import define, field, frozen

from orchestrion import JSON, Calls, Key, Model
from orchestrion_chat.sees import MOST_IMAGES
from orchestrion_chat.toolbox import Toolbox

Ending = Literal["fail", "accept"]
Data = dict[str, JSON] | None


class TurnError(RuntimeError):
    """Raised if the model's answer fails the turn; its usage is charged all the same."""


class Unfit(Exception):
    """Raised for an answer that cannot be used; the model may repair it once.

    Args:
        what: what is wrong with it.
        wish: instructions for the repair.
    """

    def __init__(self, what: str, wish: str) -> None:
        super().__init__(what)
        self.wish = wish


@frozen
class ModelReply:
    """The end of a conversation.

    Args:
        text: the model's last answer.
        data: what was read from it; None if a refusal was accepted.
        images: that the model made, the latest ones.
    """

    text: str
    data: Data
    images: Sequence[JSON] = ()


@define
class Talk:
    """A conversation.

    Args:
        model: the model that is asked.
        messages: so far; this list grows.
        settings: the other fields of every request, e.g. temperature.
        key: of the activation; each request has a child of it.
        calls: of the activation.
        tools: functions that the model may call.
        rounds: the maximum of answers with tool calls.
        on_refusal: whether a refusal fails the turn.
        on_truncated: whether a truncated answer fails it.
        notes: for the turn's metadata; they grow.
        tool_choice: which call the first request demands. Later requests leave the choice to the
            model, which otherwise would never answer; "none" holds for all.
    """

    model: Model
    messages: list[dict[str, JSON]]
    settings: Mapping[str, JSON]
    key: Key
    calls: Calls
    tools: Toolbox = field(factory=Toolbox)
    rounds: int = 0
    on_refusal: Ending = "fail"
    on_truncated: Ending = "fail"
    notes: dict[str, JSON] = field(factory=dict)
    tool_choice: str = "auto"
    _images: list[JSON] = field(factory=list)
    _requests: int = 0
    _rounds_used: int = 0
    _mistaken: bool = False

    async def until(self, read: Callable[[str], Data]) -> ModelReply:
        """Continue until an answer can be read; return it. An answer may be repaired once.

        Raises:
            TurnError: the repair cannot be read either, or the model refused, was cut, or made too
                many or wrong tool calls.
            CallError: the model or a tool cannot be reached.
        """
        while True:
            answer = await self._ask()
            text = str(answer.get("text") or "")
            # A truncated answer may end in the middle of a call.
            if answer.get("stop") == "paused" and self._requests <= self.rounds + 1:
                self.messages.append(_as_message(answer))
                continue
            calls = answer.get("tool_calls")
            if calls and answer.get("stop") != "length":
                await self._use(answer, calls)
                continue
            if self._ended(answer, text):
                return ModelReply(text, None)
            try:
                return ModelReply(text, read(text), self._images[-MOST_IMAGES:])
            except Unfit as error:
                self._mend(answer, error)

    async def _ask(self) -> Mapping[str, Any]:
        request: dict[str, JSON] = {"messages": list(self.messages), **self.settings}
        if self.tools.functions:
            request["tools"] = self.tools.definitions
            choices = ("auto", "none", "required", *self.tools.functions)
            if self.tool_choice not in choices:
                known = ", ".join(choices)
                raise RuntimeError(f"tool_choice is {self.tool_choice!r}; there are {known}")
            if self.tool_choice == "none" or (self.tool_choice != "auto" and not self._rounds_used):
                request["tool_choice"] = self.tool_choice
        key = self.key.child("call", self._requests)
        self._requests += 1
        answer = await self.model.complete(request, key, self.calls)
        data: Mapping[str, Any] = answer.data
        if data.get("model"):
            self.notes["model"] = data["model"]
        self._images += data.get("images", ())
        if "images_left_out" in data:
            self.notes["images_left_out"] = data["images_left_out"]
        for name, uses in data.get("billed", {}).items():
            if name in self.settings.get("vendor_tools", {}):
                counts = self.notes.setdefault("vendor_tools", {})
                counts[name] = counts.get(name, 0) + uses
        if "generation" in data:
            self.notes.setdefault("generations", []).append(data["generation"])
        return data

    async def _use(self, answer: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> None:
        """Make the tool calls of an answer, and append their results."""
        if not self.tools.functions:
            raise TurnError("the model called a tool, but it has none")
        if self._rounds_used == self.rounds:
            raise TurnError(f"no answer after {self.rounds} rounds of tools (tool_rounds)")
        self._rounds_used += 1
        results = await self.tools.answer(calls, self.calls)
        names = [str(call["name"])[:64] for call in calls]
        self.notes.setdefault("tools", []).extend(names)
        if results.refused:
            self.notes.setdefault("not_approved", []).extend(results.refused)
        if results.mistakes:
            if self._mistaken:
                raise TurnError(f"the model called a tool wrongly again: {results.mistakes[0]}")
            self._mistaken = True
        self.messages.append(_as_message(answer, tool_calls=list(calls)))
        self.messages += results.messages
        if self._rounds_used == self.rounds:
            last = self.messages[-1]
            note = "(You cannot call tools any more: give your answer now.)"
            if isinstance(last["content"], str):
                last["content"] += f"\n\n{note}"
            else:
                last["content"] = [*last["content"], {"type": "text", "text": note}]

    def _ended(self, answer: Mapping[str, Any], text: str) -> bool:
        """Return whether the answer is a refusal that is accepted.

        Raises:
            TurnError: it is a refusal or truncated, and that is not accepted.
        """
        stop = str(answer.get("stop", "end"))
        if answer.get("reason"):
            self.notes["reason"] = answer["reason"]
        if stop == "paused":
            raise TurnError(f"the service paused {self._requests} times (tool_rounds)")
        if stop == "length":
            if self.on_truncated == "fail":
                raise TurnError(
                    f"the service cut the answer ({answer['reason']}); see on_truncated"
                    if answer.get("reason")
                    else "the answer was cut at max_tokens; raise that, or set on_truncated: accept"
                )
            self.notes["truncated"] = True
        elif stop == "refused" or not (text.strip() or self._images):
            what = "refused to answer" if stop == "refused" else "answered with nothing"
            if self.on_refusal == "fail":
                raise TurnError(f"the model {what}: {text[:300]}".rstrip(": "))
            self.notes["refused"] = True
            return True
        return False

    def _mend(self, answer: Mapping[str, Any], error: Unfit) -> None:
        """Ask for a repair of an answer, once."""
        if "repaired" in self.notes:
            raise TurnError(f"the answer cannot be used, nor can its repair: {error}")
        self.notes["repaired"] = str(error)
        self.messages.append(_as_message(answer))
        note = f"Your answer cannot be used: {error}\n\n{error.wish}"
        self.messages.append({"role": "user", "content": note})


def _as_message(answer: Mapping[str, Any], **more: JSON) -> dict[str, JSON]:
    """Return an answer as a message, with `raw`, the parts that its service wants back."""
    message = {"role": "assistant", "content": str(answer.get("text") or ""), **more}
    if answer.get("raw") is not None:
        message["raw"] = answer["raw"]
    return message
