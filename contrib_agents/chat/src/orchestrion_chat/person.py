"""The agent `person`: its turns are written by a person."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from attrs import Factory, frozen

from orchestrion import Agent, Calls, Key, OpenContext, Output, UsageError, View, no_calls
from orchestrion_chat.people import Question, ask, at_terminal, is_present
from orchestrion_chat.sees import Sees


@frozen
class PersonAgent:
    """Shows a person what the agent sees; the line that they write is the turn.

    `orchestrion run` asks at the terminal, other front ends by `answered_by`. The answer is on
    record like a call's: neither `resume` nor `replay` asks again. A turn without an answer fails.
    `run.timeout` also holds for people.

    Args:
        role: what the person does, in a few words, for routers.
        sees: what the person is shown of the episode so far; no images and files.
        answers: recorded answers, a list of texts by the problem's id, or "*" for others, one for
            each turn of this agent; nobody is asked then. Training needs them.
    """

    role: str = "a person, who is asked at the terminal"
    sees: Sees = Sees()
    answers: Mapping[str, Sequence[str]] = Factory(dict)

    def __attrs_post_init__(self) -> None:
        if self.sees.attach:
            raise ValueError("sees.attach: a person at a terminal is shown no images and files")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Yield the agent.

        Raises:
            UsageError: it is a training run, and neither answers nor a front end are there.
        """
        # A replay has the answers on record, and a router asks nobody.
        checked = (ctx.live or ctx.trial) and not ctx.described
        if checked and ctx.trains and not self.answers and not is_present():
            raise UsageError(
                f"{ctx.path}: a person cannot be asked in training; name recorded `answers`, or "
                "remove this agent from the team"
            )
        yield _Asking(self, at_terminal(ctx))


@frozen
class _Asking(Agent):
    settings: PersonAgent
    terminal: bool

    ceiling = no_calls

    @property
    def role(self) -> str:
        return self.settings.role

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        context = self.settings.sees.show(view)
        if recorded := self.settings.answers:
            done = sum(turn.agent == view.agent for turn in view.turns)
            texts = recorded.get(view.problem.id, recorded.get("*", ()))
            if done >= len(texts):
                raise RuntimeError(
                    f"no recorded answer {done + 1} to the problem {view.problem.id!r}"
                )
            return Output(texts[done], metadata=context.notes)
        text = f"{context.text}\n\n{view.agent}, it is your turn:"
        written = await ask(Question("turn", view.agent, text), calls, self.terminal)
        if written is None:
            raise RuntimeError("nobody is there to write this turn")
        return Output(written, metadata=context.notes)
