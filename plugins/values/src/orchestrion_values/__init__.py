"""Learn the values of choices from few episodes.

Public: the policy, the replay of a stored episode's situations, arrays in checkpoints, and linear
algebra on one thread. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_values.arrays import pack as pack
    from orchestrion_values.arrays import unpack as unpack
    from orchestrion_values.earlier import NotReplayable as NotReplayable
    from orchestrion_values.earlier import problems_of as problems_of
    from orchestrion_values.earlier import situations_of as situations_of
    from orchestrion_values.policy import ValuePolicy as ValuePolicy
    from orchestrion_values.threads import serial as serial

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
