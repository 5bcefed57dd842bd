"""What a run folder says of the run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrion_otel.spans import RunFacts

if TYPE_CHECKING:
    from orchestrion.runs import RunReader


def facts_of(reader: RunReader) -> RunFacts:
    """Return what spans say of a run: the same while it runs and later."""
    from orchestrion.runs import stored_config

    policy, name = stored_config(reader).get("policy") or {}, reader.directory.name
    return RunFacts(
        name=name,
        created=reader.created,
        # Runs are numbered: chat-1, chat-2.
        workflow=re.sub(r"-\d+$", "", name) or name,
        policy=str(policy.get("use", "policy") if isinstance(policy, dict) else policy),
    )


def iteration_ends(reader: RunReader) -> dict[tuple[int | None, int | None], float]:
    """Return about when iterations ended: for episodes that made no calls."""
    at = reader.created
    ends: dict[tuple[int | None, int | None], float] = {(None, None): at}
    for iteration in reader.iterations():
        at += iteration.seconds
        ends[iteration.stage, iteration.iteration] = at
    return ends
