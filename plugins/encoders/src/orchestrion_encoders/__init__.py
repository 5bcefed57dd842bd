"""Encoders: what a policy decides on, as numbers.

Three audiences, three public places. Encoders implement `orchestrion_encoders.interfaces`.
Policies use this package: some encoders, and what joins them. Policies with a network of torch
use `orchestrion_encoders.tensors` too, the only module here that imports torch. Names of this
package are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_encoders.counts import Counts as Counts
    from orchestrion_encoders.hints import Hints as Hints
    from orchestrion_encoders.joined import Allowing as Allowing
    from orchestrion_encoders.joined import Joined as Joined
    from orchestrion_encoders.joined import Reading as Reading
    from orchestrion_encoders.joined import encoder_settings as encoder_settings
    from orchestrion_encoders.joined import refuse_other_team as refuse_other_team

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
