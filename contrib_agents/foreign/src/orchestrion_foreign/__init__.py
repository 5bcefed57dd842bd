"""What agents of other frameworks share; see the README.

Names are imported on first use, so that listing plugins stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_foreign.agent import Foreign as Foreign
    from orchestrion_foreign.agent import Framework as Framework
    from orchestrion_foreign.agent import ObjectPath as ObjectPath
    from orchestrion_foreign.agent import as_json as as_json
    from orchestrion_foreign.shown import Message as Message
    from orchestrion_foreign.shown import messages as messages
    from orchestrion_foreign.spending import ModelRequests as ModelRequests
    from orchestrion_foreign.spending import Reserve as Reserve
    from orchestrion_foreign.spending import Tokens as Tokens

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
