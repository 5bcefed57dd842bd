"""Prompts with places to fill in: `{problem}`, `{said:solver}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from attrs import frozen

from orchestrion import Turn, View, did_you_mean

__all__ = ["Template", "template"]

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
