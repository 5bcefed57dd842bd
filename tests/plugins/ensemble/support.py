"""Ballots by hand, and ensembles that run on the engine without a config."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field
from hypothesis import strategies as st
from orchestrion_ensemble.ensemble import Ensemble, OpenEnsemble
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Result

from orchestrion import Agent, Calls, Episode, Key, Output, Problem, Turn, View
from orchestrion.testing._fakes import Fixed, engine_for

PROBLEM = Problem("p", "what is it?")


def ballots(*answers: str | None, **each: Sequence[Any]) -> list[Ballot]:
    """Ballots of voters "v0", "v1", ...; None abstains. `each` has a value for each ballot."""
    return [
        Ballot(
            f"v{i}",
            "abstained" if answer is None else "cast",
            answer,
            answer or "",
            **{name: values[i] for name, values in each.items()},
        )
        for i, answer in enumerate(answers)
    ]


def combine(aggregator: Aggregator, given: Sequence[Ballot], seed: int = 1) -> Result:
    """The aggregator's result on a problem without properties."""
    return aggregator.combine(given, PROBLEM, Key(seed))


def silent(voter: str, status: Any = "failed") -> Ballot:
    """A ballot that says nothing."""
    return Ballot(voter, status)


answers = st.sampled_from(["a", "b", "c", None])
votes = st.lists(answers, min_size=1, max_size=7)


@define
class Says(Agent):
    """Gives one output after `delay` turns of the event loop, or raises, or hangs."""

    output: Output | Exception | None
    delay: int = 0
    started: int = field(default=0)
    cancelled: int = field(default=0)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """What it was given to say."""
        self.started += 1
        try:
            for _ in range(self.delay):
                await asyncio.sleep(0)
            if self.output is None:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.output, Exception):
            raise self.output
        assert self.output is not None
        return self.output


def ask(
    members: Mapping[str, Agent],
    aggregator: Aggregator | None = None,
    calls: Any = None,
    **settings: Any,
) -> Turn:
    """The turn of an ensemble of these members, run by the engine."""
    return episode(members, aggregator, calls, **settings).turns[0]


def episode(
    members: Mapping[str, Agent],
    aggregator: Aggregator | None = None,
    calls: Any = None,
    **settings: Any,
) -> Episode:
    """An episode in which an ensemble acts once."""
    asked = settings.pop("asked", list(members))
    team = Ensemble(members=[members[name] for name in asked], aggregator=aggregator, **settings)
    agent = OpenEnsemble(team, asked)
    engine = engine_for({"vote": agent}, Fixed(["vote"]), calls=calls)
    return asyncio.run(engine.run("e", PROBLEM, Key(1)))
