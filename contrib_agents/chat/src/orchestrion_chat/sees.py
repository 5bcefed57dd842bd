"""What an agent sees of the episode, as text for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from attrs import frozen

from orchestrion import JSON, Meta, Turn, View
from orchestrion_chat.texts import capped, labelled

BYTES_PER_TOKEN = 3
"""Limits count one token for so many bytes, which overestimates the tokens."""
IMAGE_TOKENS = 16_000
"""The bound of an image's tokens in a dry run."""
MOST_IMAGES = 4
"""The maximum of images of one result that a model is shown, or of one answer that are kept."""
LABEL_TOKENS = 80
"""The bound of the tags around one turn."""


@frozen
class Context:
    """The user message for a model.

    Args:
        text: problem, turns and observation.
        notes: what was left out, for the turn's metadata: `left_out` has the indices of turns that
            did not fit, `observation_cut` is true if the observation was cut.
        parts: images and files, shown after the text.
    """

    text: str
    notes: dict[str, JSON]
    parts: Sequence[Mapping[str, JSON]]


@frozen
class Sees:
    """What an agent sees of the episode so far.

    Args:
        agents: the agents whose turns it sees; null stands for all.
        own: whether it sees its own turns too.
        last: the number of latest turns it sees; null stands for all.
        tokens: the maximum of tokens of problem, turns and observation together, counting one token
            for 3 bytes.
        overflow: what happens beyond that: `fail` fails the turn; `drop-oldest` leaves out the
            oldest turns until the rest fits, and tells the model and the metadata. The problem, the
            latest turn and the observation are never cut.
        data: show the problem's data too, as JSON.
        attach: fields of the problem's data that hold an image or file or a list of them, to be
            shown as such (`{type: image, media_type: image/png, data: BASE64}` or `{type: image,
            url: ...}`; files likewise). The model must support them. They do not count as `tokens`.
        images: how many images are shown that visible turns have made, the latest ones; the model
            must support them. They do not count as `tokens`. One that a turn gave by its address
            alone is not shown: the model's service would fetch what another model wrote.
        observation: the maximum of tokens of the environment's text; a longer one is cut at the
            end, with a remark there and in the metadata.
    """

    agents: list[str] | None = None
    own: bool = True
    last: Annotated[int, Meta(ge=0)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | None = None
    overflow: Literal["fail", "drop-oldest"] = "fail"
    data: bool = False
    attach: Sequence[str] = ()
    images: Annotated[int, Meta(ge=0, le=20)] = 0
    observation: Annotated[int, Meta(ge=0)] = 4000

    def show(self, view: View) -> Context:
        """Return the user message.

        Raises:
            RuntimeError: it does not fit, or `agents` names an agent that is not in the team.
        """
        turns = self._turns(view)
        problem = self._problem(view)
        observed = view.observation.text if view.observation and self.observation else ""
        most = self.observation * BYTES_PER_TOKEN
        now = [labelled("now", capped(observed, most))] if observed else []
        texts = [_turn(turn, view.agent) for turn in turns]
        dropped = self._too_many([problem, *now], texts)
        notes: dict[str, JSON] = {}
        remark = []
        if dropped:
            notes["left_out"] = [turn.index for turn in turns[:dropped]]
            remark = [f"({dropped} earlier turns are left out for lack of room.)"]
        if len(observed.encode(errors="replace")) > most:
            notes["observation_cut"] = True
        text = "\n\n".join([problem, *remark, *texts[dropped:], *now])
        made = [p for turn in turns[dropped:] for p in turn.output.images if "data" in p]
        latest = made[max(0, len(made) - self.images) :]
        return Context(text, notes, [*self._attached(view.problem.data), *latest])

    def ceiling(self, tokens: int) -> int:
        """Return a bound of the tokens shown, for problem, turns and observation of so many."""
        shown = tokens + 3 * LABEL_TOKENS
        if self.tokens is not None:
            shown = min(shown, self.tokens * BYTES_PER_TOKEN + LABEL_TOKENS)
        return shown + (len(self.attach) + self.images) * IMAGE_TOKENS

    def _turns(self, view: View) -> Sequence[Turn]:
        turns: Sequence[Turn] = view.turns
        if self.agents is not None:
            known = {member.name for member in view.team} | {turn.agent for turn in view.given}
            unknown = [name for name in self.agents if known and name not in known]
            if unknown:
                raise RuntimeError(
                    f"sees.agents names {unknown[0]!r}, who is not in the team "
                    f"({', '.join(sorted(known))})"
                )
            turns = [
                turn for turn in turns if turn.agent in self.agents or turn.agent == view.agent
            ]
        if not self.own:
            turns = [turn for turn in turns if turn.agent != view.agent]
        return turns if self.last is None else turns[max(0, len(turns) - self.last) :]

    def _attached(self, data: JSON) -> list[Mapping[str, JSON]]:
        """Return the images and files among the problem's data."""
        parts: list[Mapping[str, JSON]] = []
        for name in self.attach:
            if not isinstance(data, Mapping) or name not in data:
                raise RuntimeError(
                    f"sees.attach names {name!r}, which is not in the problem's data"
                )
            value = data[name]
            parts += [value] if isinstance(value, Mapping) else value
        return parts

    def _problem(self, view: View) -> str:
        text, data = view.problem.text, view.problem.data
        if self.attach and isinstance(data, Mapping):
            data = {name: value for name, value in data.items() if name not in self.attach}
        if self.data and data is not None:
            text = f"{text}\n\n{msgspec.json.encode(data).decode()}"
        return labelled("problem", text)

    def _too_many(self, fixed: Sequence[str], texts: Sequence[str]) -> int:
        """Return the number of oldest turns that are left out."""
        if self.tokens is None:
            return 0
        room = self.tokens - sum(map(tokens_of, fixed))
        sizes = [tokens_of(text) for text in texts]
        dropped = 0
        if self.overflow == "drop-oldest":
            while sum(sizes[dropped:]) > room and dropped < len(sizes) - 1:
                dropped += 1
        excess = sum(sizes[dropped:]) - room
        if excess > 0:
            raise RuntimeError(
                f"the visible text takes {excess} tokens more than sees.tokens ({self.tokens}); "
                "raise that, or see less (sees.last, sees.agents, sees.overflow: drop-oldest)"
            )
        return dropped


def tokens_of(text: str) -> int:
    """Return an overestimate of a text's tokens."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _turn(turn: Turn, reader: str) -> str:
    text = turn.output.content
    if not text and turn.output.data is not None:
        text = msgspec.json.encode(turn.output.data).decode()
    attributes = {"number": str(turn.index), "agent": turn.agent}
    if turn.option is not None:
        attributes["option"] = turn.option
    if turn.agent == reader:
        attributes["by"] = "you"
    return labelled("turn", text, **attributes)
