"""The agent `router`: it decides who is next."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from orchestrion import (
    JSON,
    Activation,
    Agent,
    Calls,
    Key,
    Output,
    Usage,
    View,
    choice_name,
    choices,
    is_blocked,
)
from orchestrion_chat.agents import REPAIR_BYTES, ModelAgent, activation
from orchestrion_chat.forms import Form
from orchestrion_chat.presets import Preset, preset_of
from orchestrion_chat.talk import Talk, TurnError

STOP = "stop"
_MOST_TEAM = 16_000
"""The maximum of bytes for names and roles of a team."""


@frozen
class Router(ModelAgent):
    """Asks a model which agent is next, for the policy `follow`.

    It chooses among the agents of its team and their options, except itself and what the task
    blocks; the model sees the role of each. The turn's data is `{"next": ..., "reason": ...}`, with
    `option` if the agent has options. An answer that names no agent may be repaired once. If that
    fails, or the model refuses or is cut, the fallback is taken and the metadata says why. A failed
    call fails the turn.

    Args:
        preset: its role; `router` unless a file is given.
        agents: the agents that it may choose; null stands for all of its team.
        may_stop: whether it may end the episode.
        fallback: an agent ("name" or "name:option") or "stop"; without one the turn fails.
    """

    agents: list[str] | None = None
    may_stop: bool = True
    fallback: str = ""

    def ready(self) -> Agent:
        self.in_words()
        role = self.preset if self.preset_file is not None else self.preset or "router"
        return _Routing(self, preset_of(role, self.preset_file))


@frozen
class _Routing(Agent):
    settings: Router
    preset: Preset

    @property
    def role(self) -> str:
        return self.preset.role

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        settings = self.settings
        open_ = self._open(view)
        form = Form(_schema(open_, settings.may_stop))
        context = settings.sees.show(view)
        system = self._system(self._listed(view, open_), form)
        talk = Talk(
            settings.model,
            settings.messages(system, context, f"You are {view.agent}. Who is next?"),
            settings.fields(form),
            key,
            calls,
            notes=context.notes,
        )
        try:
            reply = await talk.until(form.read)
        except TurnError as error:
            fallback = settings.fallback
            if not fallback:
                raise
            if fallback != STOP and fallback not in open_:
                raise TurnError(f"{error}; the fallback {fallback!r} may not act now") from None
            notes = {**talk.notes, "fallback": str(error)}
            return _turn(open_.get(fallback), "by the fallback", notes)
        assert reply.data is not None
        name, reason = str(reply.data["next"]), str(reply.data["reason"])
        return _turn(open_.get(name), reason, talk.notes)

    def _open(self, view: View) -> dict[str, Activation]:
        """Return the choices that may be next."""
        team = {member.name: member for member in view.team if member.name != view.agent}
        allowed = team if self.settings.agents is None else self.settings.agents
        for name in allowed:
            if name not in team:
                raise RuntimeError(
                    f"the router's agents name {name!r}, who is not in the team ({', '.join(team)})"
                )
        members = [member for name, member in team.items() if name in allowed]
        free = [c for c in choices(members) if not is_blocked(c, view.observation)]
        if not free and not self.settings.may_stop:
            raise RuntimeError("no agent may act now, and the router must not stop (may_stop)")
        return {choice_name(choice): choice for choice in free}

    def _system(self, listed: str, form: Form) -> str:
        return self.settings.system(self.preset.instructions, listed, form)

    def _listed(self, view: View, open_: dict[str, Activation]) -> str:
        roles = {member.name: member.role for member in view.team}
        lines = []
        for name, choice in open_.items():
            role = roles.get(choice.agent, "")
            lines.append(f"- {name}: {role}" if role else f"- {name}")
        if self.settings.may_stop:
            lines.append(f"- {STOP}: hand the work in as it is")
        listed = "\n".join(lines)
        if len(listed.encode()) > _MOST_TEAM:
            raise RuntimeError("the roles of the team are too long to be listed")
        return f"These can act next:\n{listed}"

    def ceiling(self, tokens: int) -> Usage | None:
        settings = self.settings
        empty = Form(_schema({}, True))
        # Names are in the list, twice in the schema, and in a repair message.
        fixed = len(self._system("", empty).encode()) + len(empty.wish.encode()) + 3 * _MOST_TEAM
        seen = settings.sees.ceiling(tokens) + fixed
        between = REPAIR_BYTES + len(empty.wish.encode()) + _MOST_TEAM
        return activation(settings.model, seen, 2, settings.max_tokens, between)


def _schema(open_: dict[str, Activation], may_stop: bool) -> dict[str, JSON]:
    names = [*open_, *([STOP] if may_stop else [])]
    return {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "description": "in one sentence"},
            "next": {"enum": names},
        },
        "required": ["reason", "next"],
        "additionalProperties": False,
    }


def _turn(choice: Activation | None, reason: str, notes: Mapping[str, JSON]) -> Output:
    data: dict[str, JSON] = {"next": STOP if choice is None else choice.agent}
    if choice is not None and choice.option is not None:
        data["option"] = choice.option
    data["reason"] = reason
    name = STOP if choice is None else choice_name(choice)
    return Output(f"next: {name} ({reason})", data, metadata=notes)
