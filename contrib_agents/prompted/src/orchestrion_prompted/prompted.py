"""The agent `prompted`, and prompts with places to fill in: `{problem}`, `{said:solver}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

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

Form = Literal["text", "tag", "boxed"]
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_BOX = re.compile(r"\\boxed\s*\{")


def _turns(view: View, of: str) -> list[Turn]:
    return [turn for turn in view.turns if not of or turn.agent == of]


def _last(view: View, of: str) -> str:
    turns = _turns(view, of)
    return turns[-1].output.content if turns else ""


def _all_texts(view: View, of: str) -> str:
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
    "said": _all_texts,
}
"""What may stand in braces; `last`, `said` and `count` also with ":" and an agent's name."""

WITH_AGENT = ("count", "last", "said")


def check_prompt(text: str) -> None:
    """Raise ValueError if a prompt has a place that is not known; "{{" and "}}" are braces."""
    places = [match[1] for match in _PLACE.finditer(text) if match[1] is not None]
    for place in places:
        name, colon, _ = place.partition(":")
        if name not in PLACES or (colon and name not in WITH_AGENT):
            known = [*PLACES, *(f"{known_place}:AGENT" for known_place in WITH_AGENT)]
            raise ValueError(
                f"{{{place}}} is no place of a prompt{did_you_mean(place, known)}; there are "
                + ", ".join(f"{{{known_place}}}" for known_place in known)
            )


def filled(text: str, view: View) -> str:
    """Return a prompt with its places filled in for what an activation may read."""

    def fill(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name, _, of = match[1].partition(":")
        return PLACES[name](view, of)

    # In one pass: what agents wrote is text, also where it has braces.
    return _PLACE.sub(fill, text)


@frozen
class Prompted(Agent):
    r"""Asks a model once, with a prompt, and reads a value from the response.

    Made for models that are trained: a response is a turn whether or not it can be read. One that
    cannot be read, or that was cut, counts as `fallback`; the turn's metadata says `valid: false`,
    and trainers can penalise that. The turn's data is {"value", "valid"}, and "next" with `route`,
    for the policy `follow`.

    Args:
        model: the model that is asked.
        prompt: the user's message, with places: {problem}, {observation}, {agent}, {option}, {turn}
            (number of this turn), {count} and {count:AGENT} (number of the next turn of one agent),
            {last} and {last:AGENT}, {said} and {said:AGENT} (all turns, with names).
        system: the system message; same places.
        role: what the agent does, in words, for people and policies.
        form: what is read: the whole text, the content of <TAG>..</TAG>, or of \boxed{..}.
        tag: the tag's name, for `form: tag`.
        choices: the allowed values, in upper or lower case; other values cannot be read.
        route: the next agent, by value.
        fallback: the value of a response that cannot be read; null for none.
        whole: whether others read the whole response instead of the value.
        final: whether the episode ends after this turn.
        max_tokens: of the response; by default the model's own.
        temperature: of sampling; by default the model's own.
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
        check_prompt(self.prompt)
        check_prompt(self.system)
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
        """Return the turn.

        Raises:
            CallError: (permanent) `route` leads to nobody in the team.
        """
        if self.route:
            self._check_route(view)
        messages = [{"role": "user", "content": filled(self.prompt, view)}]
        if self.system:
            messages.insert(0, {"role": "system", "content": filled(self.system, view)})
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


def read_response(text: str, form: Form, tag: str = "") -> str | None:
    r"""Return the value in a response, or None if it does not have the form.

    The last tag or box counts, because models correct themselves.

    Args:
        text: the response.
        form: `text` for all of it, `tag` for the content of <TAG>..</TAG>, `boxed` for that of
            \boxed{..}.
        tag: the tag's name, for the form `tag`.
    """
    if form == "text":
        return text
    if form == "tag":
        contents = re.findall(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", text, re.DOTALL)
        return contents[-1].strip() if contents else None
    boxes = list(_BOX.finditer(text))
    return _braced(text, boxes[-1].end()) if boxes else None


def _braced(text: str, start: int) -> str | None:
    """Return the text from `start` to the brace that closes the one before `start`."""
    depth = 1
    for i in range(start, len(text)):
        if text[i] == "{" and text[i - 1] != "\\":
            depth += 1
        elif text[i] == "}" and text[i - 1] != "\\":
            depth -= 1
            if not depth:
                return text[start:i].strip()
    return None
