"""The agent `recorded`: asks a model whose answers are recorded, and pays for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from attrs import Attribute, Factory, field, frozen

from orchestrion import Agent, Calls, Key, Observation, Output, Usage, UsageError, View
from orchestrion_recorded.reading import models_of


@frozen(slots=False)
class RecordedAgent(Agent):
    """Asks one model of the task `recorded`; what it says is shown by the environment.

    The models it can ask are its options. It sees prices, and answers already paid for.

    Args:
        model: the one model to ask.
        models: several, of which each activation asks one.
        table: ask any model of this table (it is read when the team is put together).
            Without `model`, `models` and `table` it asks the model of its own name.
    """

    model: str = ""
    models: list[str] = Factory(list)
    table: Path | None = field(default=None)

    @table.validator
    def _check_one(self, attribute: Attribute[Path | None], value: Path | None) -> None:
        if sum((bool(self.model), bool(self.models), value is not None)) > 1:
            raise ValueError("set one of model, models and table")
        if len(set(self.models)) < len(self.models) or "" in self.models:
            raise ValueError("models: a name is empty, or named more than once")

    @cached_property
    def options(self) -> Sequence[str]:
        """The models it can ask."""
        if self.table is not None:
            return models_of(self.table)
        return (self.model,) if self.model else tuple(self.models)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Pay for the answer; the environment then shows it."""
        model = view.option or view.agent
        offer = _offers(view.observation).get(model)
        if offer is None:
            raise UsageError(_refusal(model, view.observation))
        usage = Usage(
            1,
            int(offer.get("input_tokens", 0)),
            int(offer.get("output_tokens", 0)),
            offer.get("usd", 0.0),
            offer["cost"],
        )
        metadata = {"latency": offer["latency"]} if "latency" in offer else {}
        return Output(f"asks {model}", {"asks": model}, usage, metadata=metadata)


def _offers(observation: Observation | None) -> dict[str, dict[str, float]]:
    data = observation.data if observation is not None else None
    offers = data.get("offers") if isinstance(data, dict) else None
    return offers if isinstance(offers, dict) else {}


def _refusal(model: str, observation: Observation | None) -> str:
    offers = _offers(observation)
    if not offers:
        return f"{model!r} can only be asked in the task `recorded`"
    known = ", ".join(offers)
    return f"no answer of {model!r} is recorded for this question; there are those of {known}"
