"""Runs graphs. Importing this imports LangGraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import merge_configs
from langgraph.pregel.protocol import PregelProtocol
from orchestrion_foreign import Framework, Message, ModelRequests, Tokens, as_json

from orchestrion import Output


class Graphs(Framework):
    """See `Framework`."""

    wanted = "a compiled graph (call `compile()` on its StateGraph)"
    call = "graph.ainvoke"

    def fits(self, target: Any) -> bool:
        return isinstance(target, PregelProtocol)

    def refused(self, target: Any, settings: Any) -> str:
        channels = getattr(target, "channels", None)
        if settings.input is None and channels is not None and "messages" not in channels:
            return (
                "has no `messages` in its state; set `input` to a function of the view that "
                'returns {"input": STATE}'
            )
        return ""

    def arguments(self, shown: Sequence[Message]) -> dict[str, Any]:
        return {"input": {"messages": [_message(message) for message in shown]}}

    async def run(self, target: Any, arguments: dict[str, Any], log: list[ModelRequests]) -> Any:
        config: dict[str, Any] = {"callbacks": [_Watch(log)]}
        if getattr(target, "checkpointer", None):
            # Turns come with each run, so that none goes on with the thread of another one.
            config["configurable"] = {"thread_id": uuid4().hex}
        config = merge_configs(config, arguments.pop("config", None))
        state = await target.ainvoke(**arguments, config=config)
        if isinstance(state, Mapping) and state.get("__interrupt__"):
            raise RuntimeError(f"the graph waits for a person: {state['__interrupt__'][0].value}")
        if not log:  # a model that is none of LangChain's, or runs elsewhere
            log += [_requests_of(message) for message in _messages_of(state) if _usage_of(message)]
        return state

    def read(self, result: Any) -> Any:
        messages = _messages_of(result)
        last = messages[-1] if messages else None
        if not isinstance(last, AIMessage):
            what = "no message" if last is None else f"a {type(last).__name__}"
            raise ValueError(
                f"the graph's state ends with {what}, not with an AIMessage; set `output` to a "
                "function of the state that returns the turn"
            )
        data = as_json(result.get("structured_response"))
        return str(last.text) if data is None else Output(str(last.text), data)


def _message(message: Message) -> BaseMessage:
    if message.role == "assistant":
        return AIMessage(message.text, name=message.name)
    return HumanMessage(message.text, name=message.name or None)


class _Watch(BaseCallbackHandler):  # type: ignore[misc]  # its types are not read
    """Notes what each request to a model took."""

    run_inline = True

    def __init__(self, log: list[ModelRequests]) -> None:
        super().__init__()
        self._log = log

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        """Note one request, whose answers are in `response`."""
        self._log.append(_requests_of(getattr(response.generations[0][0], "message", None)))


def _messages_of(state: Any) -> Sequence[Any]:
    return (state.get("messages") or ()) if isinstance(state, Mapping) else ()


def _usage_of(message: Any) -> Mapping[str, Any] | None:
    return getattr(message, "usage_metadata", None) or None


def _requests_of(message: Any) -> ModelRequests:
    """Return the request whose answer a message is."""
    usage = _usage_of(message)
    about: Mapping[str, Any] = getattr(message, "response_metadata", {})
    return ModelRequests(
        None if usage is None else _tokens(usage),
        vendor=str(about.get("model_provider") or ""),
        model=str(about.get("model_name") or ""),
    )


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    details = usage.get("input_token_details") or {}
    return Tokens(
        usage["input_tokens"],
        usage["output_tokens"],
        cached=details.get("cache_read") or 0,
        written=details.get("cache_creation") or 0,
    )
