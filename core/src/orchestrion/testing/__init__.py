"""For people who write plugins and test them: fakes and the conformance kit.

    from orchestrion.testing import parametrize_with_checks   # pytest
    orchestrion check my-plugin                                # the same checks, without pytest

The first needs pytest, which the extra `orchestrion[testing]` installs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion._lazy import names_on_first_use

if TYPE_CHECKING:
    from orchestrion.testing._fakes import Fixed as Fixed
    from orchestrion.testing._fakes import ListTask as ListTask
    from orchestrion.testing._fakes import ScriptedAgent as ScriptedAgent
    from orchestrion.testing._fakes import ScriptedModel as ScriptedModel
    from orchestrion.testing._fakes import engine_for as engine_for
    from orchestrion.testing._fakes import opened_engine as opened_engine
    from orchestrion.testing._kit import parametrize_with_checks as parametrize_with_checks

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
