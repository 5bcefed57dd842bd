"""The encoder `members`: each choice by what its agent is said to do, and has done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from math import log1p, sqrt
from typing import Annotated, Any, ClassVar

from attrs import astuple, define, field, frozen

from orchestrion import (
    CheckpointError,
    Episode,
    Member,
    Meta,
    OpenContext,
    Saved,
    Situation,
    UsageError,
)
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder

DOUBT = 10.0
"""Episodes after which half of what was measured of an agent is believed."""


@frozen
class Members:
    """Describes each choice by its agent's role text and record, never by name or place.

    A policy that reads it scores all choices by one function of these numbers. So it applies to
    agents it has never seen, under other names, in other numbers and another order, as far as
    their roles are described in the same words. The numbers of a choice are: whether it is
    stopping, whether its agent ends the episode; the numbers that the role states of words ("code
    0.9, price 0.02"), by word; hashed words of the rest of the role, and of the option; with
    `history`, how often it was made, whether it was the last choice, and whether that failed; with
    `record`, what training has measured of the agent: how well it is known, the reward of episodes
    it acted in beside that of all, its failures and its cost.

    Args:
        words: how many numbers the words of a role become.
        stated: how many numbers those that a role states become; 0 leaves them out.
        options: how many numbers the words of an option become; 0 leaves them out.
        history: show what was done with each choice in this episode.
        record: show the agents' record in training. It goes by name, so that an agent that was not
            in training has none.
    """

    words: Annotated[int, Meta(ge=1)] = 64
    stated: Annotated[int, Meta(ge=0)] = 64
    options: Annotated[int, Meta(ge=0)] = 8
    history: bool = True
    record: bool = False

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Encoder]:
        """Yield the encoder for this team; the run's notes name agents without a role."""
        silent = [member.name for member in ctx.roster if not member.role]
        if silent and not ctx.trial:
            ctx.note("no role", f"the encoder members cannot tell apart: {', '.join(silent)}")
        yield Described(self, {member.name: member for member in ctx.roster}, ctx.path)


@define
class _Record:
    """What training has measured of an agent: sums over `episodes` and `turns`."""

    episodes: int = 0
    reward: float = 0.0
    turns: int = 0
    failed: int = 0
    cost: float = 0.0


@define(eq=False)
class Described(Encoder):
    """The encoder for one team, with its record so far."""

    settings: Members
    team: dict[str, Member]
    path: str
    records: dict[str, _Record] = field(factory=dict)
    total: _Record = field(factory=_Record)
    squares: float = 0.0
    _fixed: dict[Choice, Any] = field(factory=dict)
    """The numbers of a choice that are the same in all situations."""

    describes: ClassVar[bool] = True

    @property
    def observes(self) -> bool:
        return not self.settings.history

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Return numbers of choices alone [n, k, v]."""
        import numpy as np

        fixed = np.array([self._describe(choice) for choice in choices])
        n = len(situations)
        parts = [np.broadcast_to(fixed, (n, *fixed.shape))]
        if self.settings.history:
            parts.append(_done(situations, choices))
        return Encoded(np.zeros((n, 0)), np.concatenate(parts, axis=2))

    def _describe(self, choice: Choice) -> Any:
        import numpy as np

        from orchestrion_encoders.hashing import hashed_numbers, hashed_words, unstated

        known = self._fixed.get(choice)
        if known is not None:
            return known
        s = self.settings
        if choice is not None and choice.agent not in self.team:
            raise UsageError(
                f"{self.path}: the encoder members was opened for another team, without "
                f"{choice.agent!r}; give this policy an encoder of its own"
            )
        member = Member("") if choice is None else self.team[choice.agent]
        option = "" if choice is None else choice.option or ""
        parts: list[Any] = [
            [float(choice is None), float(member.ends)],
            hashed_words(unstated(member.role) if s.stated else member.role, s.words),
            hashed_numbers(member.role, s.stated) if s.stated else [],
            hashed_words(option, s.options) if s.options else [],
            self._measured(member.name) if s.record else [],
        ]
        self._fixed[choice] = np.concatenate(parts)
        return self._fixed[choice]

    def _measured(self, name: str) -> list[float]:
        mine, total = self.records.get(name, _Record()), self.total
        if not mine.episodes:
            return [0.0] * 4
        mean = total.reward / total.episodes
        spread = sqrt(max(0.0, self.squares / total.episodes - mean * mean)) or 1.0
        known = mine.episodes / (mine.episodes + DOUBT)
        turns = max(1, mine.turns)
        return [
            known,
            known * (mine.reward / mine.episodes - mean) / spread,
            known * mine.failed / turns,
            known * log1p(max(0.0, mine.cost) / turns),
        ]

    def learn(self, episodes: Sequence[Episode]) -> None:
        """Add finished episodes to the record; one without a reward counts for nothing."""
        if not self.settings.record:
            return
        for episode in episodes:
            if episode.reward is None:
                continue
            reward = episode.reward.total
            self.squares += reward * reward
            acted = {
                turn.agent: self.records.setdefault(turn.agent, _Record()) for turn in episode.turns
            }
            for record in (self.total, *acted.values()):
                record.episodes += 1
                record.reward += reward
            for turn in episode.turns:
                record = acted[turn.agent]
                record.turns += 1
                record.failed += turn.status != "completed"
                record.cost += turn.output.usage.cost
        self._fixed.clear()

    def save(self) -> Saved:
        sums = {name: list(astuple(record)) for name, record in sorted(self.records.items())}
        total = list(astuple(self.total))
        return Saved(data={"agents": sums, "all": total, "squares": self.squares})

    def load(self, saved: Saved) -> None:
        """Take over a saved record; raise `CheckpointError` if it is damaged."""
        try:
            data: Any = saved.data
            self.records = {name: _Record(*sums) for name, sums in data["agents"].items()}
            self.total, self.squares = _Record(*data["all"]), float(data["squares"])
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{self.path}: the saved record is damaged: {error!r}") from error
        self._fixed.clear()


def _done(situations: Iterable[Situation], choices: Sequence[Choice]) -> Any:
    """Return log(1 + how often), whether last, whether that failed, of each choice [n, k, 3]."""
    import numpy as np

    rows = []
    for situation in situations:
        times: dict[tuple[str, str | None], int] = {}
        last = situation.trajectory.last
        for turn in situation.trajectory.backward():
            times[turn.agent, turn.option] = times.get((turn.agent, turn.option), 0) + 1
        row = []
        for choice in choices:
            mine = (choice.agent, choice.option) if choice is not None else ("", None)
            latest = last is not None and (last.agent, last.option) == mine
            failed = latest and last is not None and last.status != "completed"
            row.append((log1p(times.get(mine, 0)), float(latest), float(failed)))
        rows.append(row)
    return np.array(rows, np.float64).reshape(len(rows), len(choices), 3)
