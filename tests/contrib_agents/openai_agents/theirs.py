"""Agents of the three frameworks, as their users write them; the tests name them by path.

Each is there three times over: `langgraph_X`, `pydantic_ai_X` and `openai_agents_X` do the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import openai
from agents import (
    Agent,
    Model,
    ModelProvider,
    ModelResponse,
    OpenAIChatCompletionsModel,
    RunContextWrapper,
    Usage,
    function_tool,
)
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import DeferredToolRequests, RunContext
from pydantic_ai.messages import ModelMessage, TextPart
from pydantic_ai.messages import ModelResponse as Response
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from orchestrion import Output, View
from orchestrion import Usage as Usage_

SEEN: list[Any] = []
"""What the models were shown, in the types of their frameworks."""
CANCELLED: list[str] = []
"""The models that were cancelled while they answered."""
STARTED = asyncio.Event()
"""Set by a model that then never answers."""


class Answer(BaseModel):
    """A structured output."""

    city: str
    people: int


Do = Callable[[str], Any]
"""What stands for a model: takes the last text it is shown; may be a coroutine function."""


async def _done(do: Do, text: str) -> str:
    value = do(text)
    return str(await value if asyncio.iscoroutine(value) else value)


class _Chat(BaseChatModel):  # type: ignore[misc]  # its types are not read
    do: Any
    told: bool = True

    @property
    def _llm_type(self) -> str:
        return "theirs"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        SEEN.append(messages)
        text = await _done(self.do, messages[-1].text)
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        about = {"model_name": "gpt-5-mini", "model_provider": "openai"}
        message = AIMessage(
            text, usage_metadata=usage if self.told else None, response_metadata=about
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def langgraph(do: Do, *then: Any, told: bool = True, **compile: Any) -> Any:
    """Return a graph whose first node asks a model."""
    model = _Chat(do=do, told=told)

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return _graph(ask, *then, **compile)


def _graph(*nodes: Any, state: Any = MessagesState, **compile: Any) -> Any:
    builder = StateGraph(state)
    builder.add_sequence(nodes)
    builder.add_edge(START, nodes[0].__name__)
    return builder.compile(**compile)


def pydantic_ai(do: Do, **settings: Any) -> Any:
    """Return an agent whose model is a function."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> Response:
        SEEN.append(messages)
        text = await _done(do, messages[-1].parts[-1].content)
        usage = RequestUsage(input_tokens=100, output_tokens=10)
        return Response(parts=[TextPart(text)], usage=usage)

    return PydanticAgent(FunctionModel(answer), **settings)


class _Model(Model):  # type: ignore[misc]  # its types are not read
    def __init__(self, do: Do) -> None:
        self.do = do

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        SEEN.append((system_instructions, input))
        text = await _done(self.do, input[-1]["content"])
        usage = Usage(1, input_tokens=100, output_tokens=10, total_tokens=110)
        return ModelResponse([assistant_message(text)], usage, None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def openai_agents(do: Do, **settings: Any) -> Any:
    """Return an agent whose model is a function."""
    return Agent(name="theirs", model=_Model(do), **settings)


# ------------------------------------------------------------------------- the same in all three


def _last(text: str) -> str:
    return f"heard: {text}"


langgraph_talks = langgraph(_last)
pydantic_ai_talks = pydantic_ai(_last, system_prompt="Be kind.")
openai_agents_talks = openai_agents(_last, instructions="Be kind.")


def _breaks(text: str) -> str:
    raise LookupError("there is no such city")


langgraph_breaks = langgraph(_breaks)
pydantic_ai_breaks = pydantic_ai(_breaks)
openai_agents_breaks = openai_agents(_breaks)


async def _waits(text: str) -> str:
    STARTED.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        CANCELLED.append("yes")
        raise
    return text


langgraph_waits = langgraph(_waits)
pydantic_ai_waits = pydantic_ai(_waits)
openai_agents_waits = openai_agents(_waits)


class _Structured(MessagesState):  # type: ignore[misc]  # its types are not read
    structured_response: Answer


def _structured(state: _Structured) -> dict[str, Any]:
    return {
        "messages": [AIMessage("It is Lima.")],
        "structured_response": Answer(city="Lima", people=10),
    }


LIMA = '{"city": "Lima", "people": 10}'
langgraph_structured = _graph(_structured, state=_Structured)
pydantic_ai_structured = PydanticAgent(
    TestModel(custom_output_args={"city": "Lima", "people": 10}),
    output_type=Answer,
)
openai_agents_structured = openai_agents(lambda text: LIMA, output_type=Answer)

# --------------------------------------------------------------------------- one specialist each


def langgraph_adds() -> Any:
    """Return a graph that adds numbers, and keeps threads."""
    return langgraph(
        lambda text: sum(int(word) for word in text.split() if word.isdigit()),
        checkpointer=InMemorySaver(),
    )


async def pydantic_ai_shouts() -> Any:
    """Return an agent that shouts."""
    return pydantic_ai(lambda text: text.upper())


def ends(result: Any) -> Output:
    """Return a turn that ends the episode."""
    if isinstance(result, dict):
        return Output(result["messages"][-1].text, final=True)
    text = result.output if hasattr(result, "output") else result.final_output
    return Output(text, final=True)


OPEN: list[str] = []


@asynccontextmanager
async def openai_agents_reverses() -> AsyncIterator[Any]:
    """Yield an agent that turns texts round, with something open meanwhile."""
    OPEN.append("open")
    try:
        yield openai_agents(lambda text: text[::-1])
    finally:
        OPEN.append("closed")


# -------------------------------------------------------------------- by the frameworks' clients


def _client() -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=os.environ["THEIR_URL"], api_key="any", max_retries=0)


@asynccontextmanager
async def langgraph_asks() -> AsyncIterator[Any]:
    """Yield a graph that asks by OpenAI's client, without LangChain's models."""
    async with _client() as client:

        async def ask(state: MessagesState) -> dict[str, Any]:
            said = await client.chat.completions.create(
                model="parrot", messages=[{"role": "user", "content": state["messages"][-1].text}]
            )
            assert said.usage is not None
            usage = {
                "input_tokens": said.usage.prompt_tokens,
                "output_tokens": said.usage.completion_tokens,
                "total_tokens": said.usage.total_tokens,
            }
            text = said.choices[0].message.content
            return {"messages": [AIMessage(text, usage_metadata=usage)]}

        yield _graph(ask)


@asynccontextmanager
async def pydantic_ai_asks() -> AsyncIterator[Any]:
    """Yield an agent that asks by OpenAI's client."""
    async with _client() as client:
        provider = OpenAIProvider(openai_client=client)
        yield PydanticAgent(OpenAIChatModel("parrot", provider=provider))


@asynccontextmanager
async def openai_agents_asks() -> AsyncIterator[Any]:
    """Yield an agent that asks by OpenAI's client."""
    async with _client() as client:
        yield Agent(name="asks", model=OpenAIChatCompletionsModel("parrot", openai_client=client))


# ------------------------------------------------------------------- states, tools, dependencies


class Ticket(TypedDict):
    """A state without messages."""

    question: str
    label: str


async def _label(state: Ticket) -> dict[str, str]:
    return {"label": state["question"].split()[0]}


langgraph_ticket = _graph(_label, state=Ticket)


def ticket_of(view: View) -> Mapping[str, Any]:
    """Return what the graph begins with."""
    return {"input": {"question": view.problem.text}}


def label_of(state: Ticket) -> Output:
    """Return the turn that a final state means."""
    return Output(state["label"], {"label": state["label"]}, Usage_(cost=0.5), final=True)


pydantic_ai_deps = PydanticAgent(TestModel(), deps_type=str)


@pydantic_ai_deps.tool  # type: ignore[untyped-decorator]  # its types are not read
def _who(context: RunContext[str]) -> str:
    """Return who asks."""
    return str(context.deps)


def deps_of(view: View) -> Mapping[str, Any]:
    """Return the arguments of a run with dependencies."""
    return {"user_prompt": view.problem.text, "deps": view.agent}


@function_tool  # type: ignore[untyped-decorator]  # its types are not read
def who(context: RunContextWrapper[str]) -> str:
    """Return who asks."""
    return str(context.context)


def _usage(tokens: int) -> Usage:
    return Usage(1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)


def openai_agents_tool() -> Any:
    """Return an agent that calls a tool, which reads the run's context."""
    inner = Agent(
        name="inner", model=ScriptedModel([ModelStep([assistant_message("x")], usage=_usage(7))])
    )
    steps = [
        ModelStep(
            [
                function_call("who", {}, call_id="1"),
                function_call("ask", {"input": "?"}, call_id="2"),
            ],
            usage=_usage(10),
        ),
        ModelStep.respond(_after),
    ]
    return Agent(
        name="tool",
        model=ScriptedModel(steps),
        tools=[who, inner.as_tool("ask", "asks another agent")],
    )


def _after(call: ModelCall) -> ModelStep:
    outputs = [item["output"] for item in call.input if item.get("type") == "function_call_output"]
    return ModelStep([assistant_message(" and ".join(outputs))], usage=_usage(20))


def context_of(view: View) -> Mapping[str, Any]:
    """Return the arguments of a run with a context."""
    return {"input": view.problem.text, "context": view.agent}


# --------------------------------------------------------------------------------- what is wrong


async def _pauses(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(interrupt("May I?"))]}


langgraph_pauses = _graph(_pauses, checkpointer=InMemorySaver())
pydantic_ai_pauses = PydanticAgent(TestModel(), output_type=[str, DeferredToolRequests])


@pydantic_ai_pauses.tool_plain(requires_approval=True)  # type: ignore[untyped-decorator]
def _delete() -> str:
    """Delete something."""
    return "deleted"


@function_tool(needs_approval=True)  # type: ignore[untyped-decorator]
def _delete_it() -> str:
    """Delete something."""
    return "deleted"


def openai_agents_pauses() -> Any:
    """Return an agent that calls a tool which a person must approve."""
    step = ModelStep([function_call("_delete_it", {}, call_id="1")], usage=_usage(10))
    return Agent(name="pauses", model=ScriptedModel([step]), tools=[_delete_it])


async def _then_breaks(state: MessagesState) -> None:
    _breaks("")


langgraph_breaks_later = langgraph(_last, _then_breaks)
pydantic_ai_breaks_later = PydanticAgent(TestModel())


@pydantic_ai_breaks_later.tool_plain  # type: ignore[untyped-decorator]
def _fails() -> str:
    """Fail."""
    return _breaks("")


def openai_agents_breaks_later() -> Any:
    """Return an agent whose second request to its model fails."""
    steps = [
        ModelStep([function_call("who", {}, call_id="1")], usage=_usage(10)),
        ModelStep.raise_error(LookupError("there is no such city")),
    ]
    return Agent(name="breaks", model=ScriptedModel(steps), tools=[who])


class _Provider(ModelProvider):  # type: ignore[misc]  # its types are not read
    def get_model(self, model_name: str | None) -> Model:
        return _Model(_last)


openai_agents_named = Agent(name="named", model="gpt-5-mini")


def provided(view: View) -> Mapping[str, Any]:
    """Return the arguments of a run with another provider of models."""
    return {"input": [{"content": "x"}], "run_config": {"model_provider": _Provider()}}


uncompiled = StateGraph(MessagesState)


def broken() -> Any:
    """Raise."""
    raise OSError("no such key")


def nothing() -> None:
    """Return no agent."""


def a_list(view: View) -> list[str]:
    """Return what is no mapping."""
    return [view.problem.text]


langgraph_untold = langgraph(_last, told=False)
