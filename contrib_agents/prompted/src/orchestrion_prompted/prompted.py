"""The agent `prompted`, and prompts with places to fill in: `{problem}`, `{said:solver}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from attrs import Factory, frozen

from orchestrion import (
    JSON,
    Agent,
    CallError,
    Calls,
    Key,
    Meta,
    Model,
    Output,
    Turn,
    Usage,
    View,
    ceiling_of,
    did_you_mean,
    learnable,
)
from orchestrion_prompted.reading import Form, read_response

_PLACE = re.compile(r"\{([^{}]*)\}")


def _turns(view: View, of: str) -> list[Turn]:
    return [turn for turn in view.turns if not of or turn.agent == of]


def _last(view: View, of: str) -> str:
    turns = _turns(view, of)
    return turns[-1].output.content if turns else ""


def _said(view: View, of: str) -> str:
    lines = [f'The output of "{turn.agent}": {turn.output.content}' for turn in _turns(view, of)]
    return "\n".join(lines)


def _observation(view: View, _: str) -> str:
    return view.observation.text if view.observation is not None else view.problem.text


PLACES: Mapping[str, Callable[[View, str], str]] = {
    "problem": lambda view, _: view.problem.text,
    "observation": _observation,
    "agent": lambda view, _: view.agent,
    "option": lambda view, _: view.option or "",
    "count": lambda view, of: str(len(_turns(view, of or view.agent)) + 1),
    "turn": lambda view, _: str(len(view.turns) + 1),
    "last": _last,
    "said": _said,
}
"""What may stand in braces; `last`, `said` and `count` also with ":" and an agent's name."""

WITH_AGENT = ("count", "last", "said")


@frozen
class Template:
    """A prompt.

    Args:
        text: with places in braces; "{{" and "}}" are braces.

    Raises:
        ValueError: a place is not known.
    """

    text: str

    def __attrs_post_init__(self) -> None:
        for place in _PLACE.findall(self._escaped()):
            name, colon, _ = place.partition(":")
            if name not in PLACES or (colon and name not in WITH_AGENT):
                known = [*PLACES, *(f"{known_place}:AGENT" for known_place in WITH_AGENT)]
                raise ValueError(
                    f"{{{place}}} is no place of a prompt{did_you_mean(place, known)}; there are "
                    + ", ".join(f"{{{known_place}}}" for known_place in known)
                )

    def _escaped(self) -> str:
        return self.text.replace("{{", "\0").replace("}}", "\1")

    def __call__(self, view: View) -> str:
        """Return the prompt for what an activation may read."""

        def fill(match: re.Match[str]) -> str:
            name, _, of = match[1].partition(":")
            return PLACES[name](view, of)

        # In one pass: what agents wrote is text, also where it has braces.
        filled = [
            fill(piece) if isinstance(piece, re.Match) else piece
            for piece in _pieces(self._escaped())
        ]
        return "".join(filled)


def _pieces(text: str) -> list[str | re.Match[str]]:
    pieces: list[str | re.Match[str]] = []
    at = 0
    for match in _PLACE.finditer(text):
        pieces += [text[at : match.start()].replace("\0", "{").replace("\1", "}"), match]
        at = match.end()
    return [*pieces, text[at:].replace("\0", "{").replace("\1", "}")]


@lru_cache(256)
def template(text: str) -> Template:
    """Return the prompt of this text, read once."""
    return Template(text)


@frozen
class Prompted(Agent):
    r"""One prompt, one completion, one strict reading of it.

    Made for models that are trained: what is said is a turn whether or not it can be read. A
    response that cannot be read, or that was cut, counts as `fallback`; the turn's metadata says
    `valid: false`, and trainers can fine that. The turn's data is {"value", "valid"}, and "next"
    with `route`, for the policy `follow`.

    Args:
        model: who completes.
        prompt: the user's message, with places: {problem}, {observation}, {agent}, {option}, {turn}
            (number of this turn), {count} and {count:AGENT} (number of the next turn of one agent),
            {last} and {last:AGENT}, {said} and {said:AGENT} (all turns, with names).
        system: the system message; same places.
        role: in words, for people and policies.
        form: what is read: the whole text, the content of <TAG>..</TAG>, or of \boxed{..}.
        tag: its name, for `form: tag`.
        choices: what may be said, whatever the case; anything else cannot be read.
        route: who is next, by what was said.
        fallback: what a response that cannot be read is taken to say; null for nothing.
        whole: others read the whole response and not only what was read from it.
        final: the episode ends after this turn.
        max_tokens: of the response; by default the model's own.
        temperature: likewise.
    """

    model: Model
    prompt: str = learnable("{problem}")
    system: str = learnable("")
    role: str = ""
    form: Form = "text"
    tag: str = ""
    choices: Sequence[str] = ()
    route: Mapping[str, str] = Factory(dict)
    fallback: str | None = None
    whole: bool = False
    final: bool = False
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None

    def __attrs_post_init__(self) -> None:
        template(self.prompt)
        template(self.system)
        if (self.form == "tag") != bool(self.tag):
            raise ValueError("`tag` is the name of the tag for `form: tag`, and for nothing else")
        if len({choice.casefold() for choice in self.choices}) < len(self.choices):
            raise ValueError("choices: none twice, whatever the case")
        for choice in self.route:
            if self.choices and choice not in self.choices:
                raise ValueError(
                    f"route: {choice!r} is none of the choices{did_you_mean(choice, self.choices)}"
                )
        for choice in self.choices:
            if self.route and choice not in self.route:
                raise ValueError(f"route: {choice!r} is a choice and leads nowhere; say where to")
        if self.route and self.fallback is not None and self.fallback not in self.route:
            raise ValueError(f"fallback: {self.fallback!r} leads nowhere; route says where to")

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Ask once, read once.

        Raises:
            CallError: (permanent) `route` leads to nobody in the team.
        """
        if self.route:
            self._check_route(view)
        messages = [{"role": "user", "content": template(self.prompt)(view)}]
        if self.system:
            messages.insert(0, {"role": "system", "content": template(self.system)(view)})
        request: dict[str, JSON] = {"messages": messages}
        for name in ("max_tokens", "temperature"):
            if getattr(self, name) is not None:
                request[name] = getattr(self, name)
        answer = await self.model.complete(request, key.child("call", 0), calls)
        return self._output(answer.data)

    def _check_route(self, view: View) -> None:
        team = {member.name for member in view.team}
        for name in self.route.values():
            # An option may follow a name.
            if team and name != "stop" and name.partition(":")[0] not in team:
                raise CallError(
                    f"{view.agent}: route: {name!r} is no agent of the team"
                    + did_you_mean(name, [*team, "stop"]),
                    "permanent",
                )

    def _output(self, answer: Mapping[str, Any]) -> Output:
        text, cut = str(answer["text"]), answer.get("stop") == "length"
        value = self._read(text) if not cut and answer.get("stop") != "refused" else None
        valid = value is not None
        if value is None:
            value = self.fallback
        data: dict[str, JSON] = {"value": value, "valid": valid}
        if self.route:
            data["next"] = self.route.get(value or "", "")
        metadata: dict[str, JSON] = {"valid": valid, "truncated": cut}
        if "generation" in answer:
            metadata["generations"] = [answer["generation"]]
        content = text if self.whole else value or ""
        return Output(content, data, final=self.final, metadata=metadata)

    def _read(self, text: str) -> str | None:
        value = read_response(text, self.form, self.tag)
        if value is None or not self.choices:
            return value
        return next(
            (choice for choice in self.choices if choice.casefold() == value.casefold()), None
        )

    def ceiling(self, tokens: int) -> Usage | None:
        return ceiling_of(
            self.model, tokens + len(self.prompt.encode()) + len(self.system.encode())
        )
