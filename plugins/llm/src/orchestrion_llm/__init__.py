"""Language models behind APIs; see the README.

Public for other plugins: the models, prices of tokens, and parts for clients of other services.
Names are imported on first use, so that listing plugins imports no HTTP library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_llm.addresses import check_address as check_address
    from orchestrion_llm.faults import Place as Place
    from orchestrion_llm.faults import described as described
    from orchestrion_llm.faults import of_answer as of_answer
    from orchestrion_llm.models import AnthropicModel as AnthropicModel
    from orchestrion_llm.models import OpenAIModel as OpenAIModel
    from orchestrion_llm.prices import Price as Price
    from orchestrion_llm.prices import Tokens as Tokens
    from orchestrion_llm.prices import known_price as known_price
    from orchestrion_llm.settings import Limits as Limits
    from orchestrion_llm.transport import EncodedError as EncodedError
    from orchestrion_llm.transport import TooLongError as TooLongError
    from orchestrion_llm.transport import http_client as http_client
    from orchestrion_llm.wire import counted as counted

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
