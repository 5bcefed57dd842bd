"""The agent `chat`: it asks a language model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

from attrs import Factory, evolve, field, frozen

from orchestrion import (
    JSON,
    Agent,
    Calls,
    Key,
    Meta,
    OpenContext,
    Output,
    Usage,
    UsageError,
    View,
    supports,
)
from orchestrion_chat.agents import REPAIR_BYTES, ModelAgent, Temperature, Tokens, activation
from orchestrion_chat.approval import Approval, check_rules
from orchestrion_chat.code import quoted
from orchestrion_chat.forms import Form, form_of, read_code
from orchestrion_chat.interfaces import Tool
from orchestrion_chat.people import at_terminal
from orchestrion_chat.presets import CodeRule, preset_of
from orchestrion_chat.schemas import check_schema
from orchestrion_chat.sees import LABEL_TOKENS
from orchestrion_chat.talk import Ending, ModelReply, Talk
from orchestrion_chat.toolbox import MOST_CALLS, Toolbox


@frozen
class Variant:
    """An option of an agent: what it changes.

    Args:
        instructions: added to the agent's.
        temperature: replaces the agent's.
        max_tokens: replaces the agent's.
    """

    instructions: str = ""
    temperature: Temperature | None = None
    max_tokens: Tokens | None = None


@frozen
class Chat(ModelAgent):
    """Asks a model, in a role; the answer is its turn.

    The system message has the instructions of the preset, the agent and the option, and the habits,
    in this order. The user message has the problem, the visible turns and the observation, as data
    with labels that name the source. The settings say how a refusal, a truncated answer or one
    that does not fit is treated; a failed call fails the turn.

    Args:
        role: what the agent does, in a few words, for routers; by default the preset's.
        variants: options by name; a policy chooses one for each turn.
        tools: functions that the model may call; by default none.
        tool_rounds: the maximum of answers with tool calls in a turn.
        tool_choice: `auto` lets the model decide, `none` forbids calls, `required` or the name of
            a tool demands a call in the first answer of a turn.
        vendor_tools: tools that the model's service runs itself (`web_search`, `code_execution`),
            with the maximum of uses in one answer; by default none.
        approve: which tool calls are made, by pattern of the tool's name (`send_*`): `allow`,
            `deny`, `ask` a person, or the path of a function that says so, given the names of
            agent and tool and the arguments. The first pattern that fits counts; other calls are
            made. The model is told of a refusal. A person is asked at the terminal by
            `orchestrion run`; where nobody is, as in training, `ask` refuses.
        output: JSON Schema of the object that the model must answer with; it becomes the turn's
            data. An answer that does not fit may be repaired once.
        content: the text field of the output that others read; by default all of it, as JSON.
        final: the boolean field of the output that ends the episode; by default none.
        code: `leave` keeps fenced blocks; `require` demands one, whose code becomes the turn's data
            (`code`) and whose lack may be repaired once; `quote` indents them, so that code in a
            review is not taken for a version. By default the preset's, else `leave`.
        on_refusal: `fail` fails the turn on a refusal or an empty answer, `accept` accepts it.
        on_truncated: the same for an answer that was cut at `max_tokens`.
    """

    role: str = ""
    variants: Mapping[str, Variant] = Factory(dict)
    tools: Sequence[Tool] = ()
    tool_rounds: Annotated[int, Meta(ge=1)] = 5
    tool_choice: Annotated[str, Meta(min_length=1)] = "auto"
    vendor_tools: Mapping[str, Annotated[int, Meta(ge=1)]] = Factory(dict)
    approve: Mapping[str, str] = field(factory=dict, validator=check_rules)
    output: Mapping[str, JSON] | None = field(default=None, validator=check_schema)
    content: str = ""
    final: str = ""
    code: CodeRule | None = None
    on_refusal: Ending = "fail"
    on_truncated: Ending = "fail"
    # For Python: a class whose instances the answers have to be, instead of `output`.
    _output_class: type | None = None

    def ready(self) -> Agent:
        return self._chatting()

    def _chatting(self) -> _Chatting:
        preset = preset_of(self.preset, self.preset_file)
        if self.output is not None and self._output_class is not None:
            raise UsageError("output and output_class are both set; remove one of them")
        schema = self.output if self.output is not None else preset.output
        chatting = _Chatting(
            self,
            preset.instructions,
            form_of(schema, self._output_class),
            role=self.role or preset.role,
            code=self.code or preset.code,
            content=self.content or preset.content,
            final=self.final or preset.final,
        )
        chatting.check()
        return chatting

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Yield the agent.

        Raises:
            UsageError: a function that approves tool calls cannot be loaded.
        """
        Approval(self.approve).load()
        yield evolve(self._chatting(), terminal=at_terminal(ctx))


@frozen
class _Chatting(Agent):
    settings: Chat
    preset_instructions: str
    form: Form | None
    role: str
    code: CodeRule
    content: str
    final: str
    terminal: bool = False

    @property
    def options(self) -> Sequence[str]:
        return tuple(self.settings.variants)

    def check(self) -> None:
        """Check the settings; raise `UsageError` if they contradict each other."""
        settings, form, model = self.settings, self.form, self.settings.model
        settings.in_words()
        if settings.tools and not supports(model, "tools"):
            raise UsageError("tools: this model cannot call tools; remove them")
        available: Sequence[str] = getattr(model, "vendor_tools", ())
        for name in settings.vendor_tools:
            if name not in available:
                known = ", ".join(available) or "none"
                raise UsageError(
                    f"vendor_tools: this model's service has no {name!r}; it has {known}"
                )
        if settings.tool_choice != "auto" and not settings.tools:
            raise UsageError("tool_choice has no effect without tools; remove it or add tools")
        if settings.approve and not settings.tools:
            raise UsageError("approve has no effect without tools; remove it or add tools")
        if form is None:
            if self.content or self.final:
                raise UsageError("content and final name fields of an output; set output")
            return
        if self.content and not form.requires(self.content, "string"):
            raise UsageError(f"content: the output has no required text field {self.content!r}")
        if self.final and not form.requires(self.final, "boolean"):
            raise UsageError(f"final: the output has no required boolean field {self.final!r}")
        if self.code == "require":
            raise UsageError(
                "code: require has no effect with an output; add a field `code` to that"
            )

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        settings = self.settings
        variant = settings.variants.get(view.option or "", Variant())
        context = settings.sees.show(view)
        talk = Talk(
            settings.model,
            settings.messages(
                self._system(variant), context, f"You are {view.agent}. It is your turn."
            ),
            self._fields(variant),
            key,
            calls,
            await Toolbox.of(
                settings.tools, calls, Approval(settings.approve, view.agent, self.terminal)
            ),
            settings.tool_rounds,
            settings.on_refusal,
            settings.on_truncated,
            context.notes,
            settings.tool_choice,
        )
        return self._output(await talk.until(self._read), talk.notes)

    def _system(self, variant: Variant) -> str:
        return self.settings.system(self.preset_instructions, variant.instructions, self.form)

    def _fields(self, variant: Variant) -> dict[str, JSON]:
        settings = self.settings
        fields = settings.fields(self.form, variant.temperature, variant.max_tokens)
        if settings.vendor_tools:
            fields["vendor_tools"] = dict(settings.vendor_tools)
        return fields

    def _read(self, text: str) -> dict[str, JSON] | None:
        """Return the data of a turn with this text; raises `Unfit`."""
        if self.form is not None:
            return self.form.read(text)
        return read_code(text) if self.code == "require" else None

    def _output(self, reply: ModelReply, notes: Mapping[str, JSON]) -> Output:
        text, data, final = reply.text, reply.data, False
        if self.form is not None and data is not None:
            field = self.content
            text = str(data[field]) if field else json.dumps(data, ensure_ascii=False)
            final = bool(self.final) and data[self.final] is True
        if self.code == "quote":
            text = quoted(text)
        if reply.images:
            text = text or f"(images: {len(reply.images)})"
            data = {"images": list(reply.images), **(data or {})}
        return Output(text, data, final=final, metadata=notes)

    def ceiling(self, tokens: int) -> Usage | None:
        settings = self.settings
        if settings.vendor_tools:
            return None  # nobody knows how much a search adds to the prompt
        variants = [Variant(), *settings.variants.values()]
        bounds = [tool.bounds() for tool in settings.tools]
        schema = len(self.form.wish.encode()) if self.form is not None else 0
        fixed = max(len(self._system(variant).encode()) for variant in variants)
        fixed += schema + sum(bound.definitions for bound in bounds)
        may_mend = self.form is not None or self.code == "require"
        rounds = settings.tool_rounds if settings.tools else 0
        result = max((bound.result for bound in bounds), default=0) + 2 * LABEL_TOKENS
        limits = [variant.max_tokens for variant in variants] + [settings.max_tokens]
        return activation(
            settings.model,
            settings.sees.ceiling(tokens) + fixed,
            1 + rounds + may_mend,
            max((limit for limit in limits if limit is not None), default=None),
            max(MOST_CALLS * result if rounds else 0, REPAIR_BYTES + schema if may_mend else 0),
            rounds * MOST_CALLS,
        )
