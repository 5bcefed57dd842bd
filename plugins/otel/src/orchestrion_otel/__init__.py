"""Runs of Orchestrion as OpenTelemetry traces.

Public: what makes spans of an episode, for exporters of one's own. Imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_otel.spans import RunFacts as RunFacts
    from orchestrion_otel.spans import Span as Span
    from orchestrion_otel.spans import spans_of as spans_of

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
