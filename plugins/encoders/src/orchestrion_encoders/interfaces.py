"""What an encoder is handed, and what it gives.

    encoded = encoder.encode(situations, choices)

The kind `encoder` belongs to this plugin; another distribution adds one like this:

    @hookimpl
    def orchestrion_components():
        yield "encoder", Component("weather", "my_package.weather:Weather", "rain or shine")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from attrs import frozen

from orchestrion import Activation, Calls, Episode, RunError, Situation, Usage, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "Choice",
    "Encoded",
    "Encoder",
    "Row",
    "join",
    "places_of",
    "refuse_turns",
]

Choice = Activation | None
"""What a policy can choose: to start an activation, or, as None, to stop."""


def places_of(choices: Sequence[Choice]) -> dict[tuple[str, str | None], int]:
    """Return the index of each choice by agent and option; stopping has none."""
    return {(c.agent, c.option): i for i, c in enumerate(choices) if c is not None}


class Row(NamedTuple):
    """The numbers of one situation, as `Encoded` has them of n."""

    context: Floats
    choices: Floats
    prior: Floats | None
    turns: Floats | None

    @property
    def content(self) -> tuple[bytes | None, ...]:
        """Return something hashable that is the same for equal situations."""
        return tuple(None if part is None else part.tobytes() for part in self)


@frozen(eq=False)
class Encoded:
    """n situations with k choices each, as numbers.

    Args:
        context: what is the same for all choices [n, w]; w may be 0.
        choices: what differs between them [n, k, v]; v may be 0.
        prior: how promising each choice looks before anything is learned [n, k], 0 to 1; None
            where nothing is known of that.
        turns: the turns so far, oldest first, for a network that reads sequences: n arrays
            [t, u], with t of each situation's own. None where an encoder gives none.
    """

    context: Floats
    choices: Floats
    prior: Floats | None = None
    turns: tuple[Floats, ...] | None = None

    @property
    def rows(self) -> list[Row]:
        """Return the situations one by one."""
        nothing = [None] * len(self.context)
        prior = nothing if self.prior is None else self.prior
        turns = nothing if self.turns is None else self.turns
        return [*map(Row, self.context, self.choices, prior, turns)]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Encoded:
        """Return the inverse of `rows`, of at least one situation."""
        import numpy as np

        context, choices, prior, turns = zip(*rows, strict=True)
        return cls(
            np.array(context),
            np.array(choices),
            None if prior[0] is None else np.array(prior),
            None if turns[0] is None else turns,
        )


class Encoder(Protocol):
    """Turns situations into numbers.

    A pure function: a situation's numbers do not depend on the others in the batch, and equal
    situations have equal numbers. Widths are the same for all situations of a task and team.

    An encoder may also say, by attributes that are False if it has none of that name:

        observes: its numbers depend on `Situation.observation` alone, so that a policy may
            remember what it made of an observation
        places: numbers in its context belong to certain choices, by their order; a policy that
            reads them fits one team
        describes: the numbers of a choice tell what it does, so that a policy can score choices by
            them alone, and apply to choices that it has never seen
        unique: its numbers hardly ever come again, as those of texts; they are left out where
            situations are counted
        sequences: it gives sequences of turns, which a policy can read from one encoder only
    """

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Return the situations as finite numbers.

        Raises:
            RunError: a situation shows more, less or other than the ones before.
        """
        ...

    @property
    def prepares(self) -> bool:
        """Return whether `prepare` is to be awaited before each decision."""
        return False

    async def prepare(self, situation: Situation, calls: Calls) -> None:
        """Get from the outside what `encode` needs in this situation; see `Policy.prepare`."""
        return

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that one `prepare` takes; see `Policy.ceiling`."""
        return Usage()

    def learn(self, episodes: Sequence[Episode]) -> None:
        """Take note of finished training episodes; by default nothing.

        An encoder that does has `save` and `load` too. Called between decisions, never while any
        are being taken.
        """
        return


def join(parts: Sequence[Encoded]) -> Encoded:
    """Return the numbers of several encoders side by side; priors are added.

    Raises:
        RunError: more than one of them gives sequences of turns.
    """
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    turns = [part.turns for part in parts if part.turns is not None]
    if len(turns) > 1:
        raise RunError("two encoders give sequences of turns; a policy can read one of them")
    priors = [part.prior for part in parts if part.prior is not None]
    return Encoded(
        np.concatenate([part.context for part in parts], axis=1),
        np.concatenate([part.choices for part in parts], axis=2),
        sum(priors[1:], priors[0]) if priors else None,
        turns[0] if turns else None,
    )


def refuse_turns(encoders: Iterable[Encoder], path: str) -> None:
    """For policies that have no network to read sequences of turns with.

    Raises:
        UsageError: an encoder gives sequences.
    """
    if any(getattr(encoder, "sequences", False) for encoder in encoders):
        raise UsageError(
            f"{path}: the encoder history gives sequences of turns, which only a policy with a "
            "network can read, such as neural; use counts, graph or text here"
        )
