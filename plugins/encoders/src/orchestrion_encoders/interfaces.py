"""What an encoder is handed, and what it gives.

    encoded = encoder.encode(situations, choices)

The kind `encoder` belongs to this plugin; another distribution adds one like this:

    @hookimpl
    def orchestrion_components():
        yield "encoder", Component("weather", "my_package.weather:Weather", "rain or shine")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from orchestrion import Activation, Situation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Choice", "Encoded", "Encoder", "join"]

Choice = Activation | None
"""What a policy can choose: to start an activation, or, as None, to stop."""


@frozen(eq=False)
class Encoded:
    """n situations with k choices each, as numbers.

    Args:
        context: what is the same for all choices [n, w]; w may be 0.
        choices: what differs between them [n, k, v]; v may be 0.
    """

    context: Floats
    choices: Floats


class Encoder(Protocol):
    """Turns situations into numbers.

    A pure function: a situation's numbers do not depend on the others in the batch, and equal
    situations have equal numbers. Widths are the same for all situations of a task and team.
    """

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """The situations as finite numbers.

        Raises:
            RunError: a situation shows more, less or other than the ones before.
        """
        ...


def join(parts: Sequence[Encoded]) -> Encoded:
    """The numbers of several encoders of the same situations, side by side."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    return Encoded(
        np.concatenate([part.context for part in parts], axis=1),
        np.concatenate([part.choices for part in parts], axis=2),
    )
