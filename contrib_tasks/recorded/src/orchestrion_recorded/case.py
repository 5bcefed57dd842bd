"""One question as the environment holds it, numbers in the order of the models; and the vote.

A model that gave an answer backs it with its vote. The answer with the most votes leads; of equal
ones, the one first in the order of their compared text. The task's setting says what votes are:

- `plurality`: one each; of equal numbers, the larger sum of weights decides.
- `weighted`: the model's weight in the question's group; of equal sums, the number of votes.

Both fit into one whole number a model, so the result does not depend on the order of asking. A
model that gave no answer has no vote; without any answer nothing leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any, Literal

from attrs import frozen

from orchestrion import JSON, UsageError
from orchestrion_recorded.table import RecordedAnswer, Row, Table, same

Vote = Literal["plurality", "weighted"]

_COUNT = 1 << 10  # more than there can be voters
_HEAD = 1 << 34  # more than all weights together: 1,000 voters of 5 * 2^20 each


def ballot(weight: int, vote: Vote) -> int:
    """Return what one model's vote counts for."""
    return _HEAD + weight if vote == "plurality" else weight * _COUNT + 1


def tally(
    codes: Sequence[int], votes: Sequence[int], models: Iterable[int], size: int
) -> list[int]:
    """Return the votes of some models by the code of the answer; negative codes are no answers.

    Args:
        codes: by model, of its answer.
        votes: by model, what its vote counts for.
        models: those that were asked, by index.
        size: number of codes.
    """
    totals = [0] * size
    for model in models:
        if codes[model] >= 0:
            totals[codes[model]] += votes[model]
    return totals


def leader(totals: Sequence[int]) -> int:
    """Return the code that leads; -1 if nothing does."""
    highest = max(totals, default=0)
    return totals.index(highest) if highest > 0 else -1


SILENT, ABSENT = -1, -2
"""In `Case.codes`: the model gave no answer, or there is no record and it cannot be asked."""

Unit = Literal["dearest", "mean", "none"]


@frozen(eq=False)
class Case:
    """A question with its recorded answers as codes.

    Args:
        row: as in the table.
        group: index among the estimates' groups.
        options: how many there are.
        codes: by model the code of its answer, SILENT or ABSENT.
        labels: by code the answer as first written; codes go by the compared text.
        right: the code of the right answer; -1 if no model gave it, or where there are scores.
        worth: by model how good its answer is: 1 or 0, or its score.
        absent: the models without a record, as a bit set.
        costs: by model what asking it costs.
        offers: by askable model what asking costs, as agents see it.
    """

    row: Row
    group: int
    options: int
    codes: tuple[int, ...]
    labels: tuple[str, ...]
    right: int
    worth: tuple[float, ...]
    absent: int
    costs: tuple[float, ...]
    offers: Mapping[str, Mapping[str, JSON]]


class Pricing:
    """Prices of answers in units of cost: the answer's own, else its model's, else 1 each.

    Args:
        table: the training questions; the unit is taken from their prices.
        unit: what costs 1: the mean price of the dearest model, the mean price of all, or 1.
    """

    def __init__(self, table: Table, unit: Unit) -> None:
        self._list = dict(table.prices) if table.prices else {}
        records = [record for row in table.rows for record in row.answers.values()]
        if not self._list and all(record.price is None for record in records):
            self._list = dict.fromkeys(table.models, 1.0)
        self._source = table.source
        self.divisor = self._divisor(table, unit)

    def _divisor(self, table: Table, unit: Unit) -> float:
        means = []
        for model in table.models:
            prices = [self.price(row, model) for row in table.rows if model in row.answers]
            if prices:
                means.append(fsum(prices) / len(prices))
        wanted = {"dearest": max(means, default=0.0), "mean": fsum(means) / max(len(means), 1)}
        return wanted.get(unit, 1.0) or 1.0

    def price(self, row: Row, model: str) -> float:
        """Return the price of an answer as the table has it."""
        own = row.answers[model].price
        price = self._list.get(model) if own is None else own
        if price is None:
            raise UsageError(
                f"{self._source}:{row.line}: {model!r} has no price here, and there is no table of "
                "prices; set `prices`, or complete the column"
            )
        return price


def cases(
    table: Table, groups: Sequence[str], pricing: Pricing, options: int, usd: bool
) -> tuple[Case, ...]:
    """Return all questions of a table; `options` is for those that do not say how many it has."""
    place = {name: i for i, name in enumerate(groups)}
    shared: dict[tuple[Any, ...], Mapping[str, Mapping[str, JSON]]] = {}
    results = []
    for row in table.rows:
        offers = {
            model: _offer(row, model, pricing, usd)
            for model in table.models
            if model in row.answers
        }
        # With one price a model all questions make the same offers: keep them once.
        name = tuple((model, *sorted(offer.items())) for model, offer in offers.items())
        offers = shared.setdefault(name, offers)  # type: ignore[assignment]
        group = place.get(row.group, len(groups))
        results.append(_case(row, table.models, group, options, offers))
    return tuple(results)


def _case(
    row: Row,
    models: Sequence[str],
    group: int,
    options: int,
    offers: Mapping[str, Mapping[str, JSON]],
) -> Case:
    forms: dict[str, str] = {}
    for record in row.answers.values():
        if record.answer is not None:
            forms.setdefault(same(record.answer), record.answer)
    order = sorted(forms)
    code = {form: i for i, form in enumerate(order)}
    codes = tuple(_code(row.answers.get(model), code) for model in models)
    right = code.get(same(row.right), -1)
    return Case(
        row,
        group,
        # Models also name options that are not there.
        max(row.options or options, len(order), 2),
        codes,
        tuple(forms[form] for form in order),
        right,
        tuple(_worth(row.answers.get(m), c, right) for m, c in zip(models, codes, strict=True)),
        sum(1 << i for i, model in enumerate(models) if model not in row.answers),
        tuple(float(offers[model]["cost"]) if model in offers else 0.0 for model in models),
        offers,
    )


def _code(record: RecordedAnswer | None, code: Mapping[str, int]) -> int:
    if record is None:
        return ABSENT
    return SILENT if record.answer is None else code[same(record.answer)]


def _worth(record: RecordedAnswer | None, code: int, right: int) -> float:
    if record is not None and record.score is not None:
        return record.score
    return float(code >= 0 and code == right)


def _offer(row: Row, model: str, pricing: Pricing, usd: bool) -> dict[str, JSON]:
    record, price = row.answers[model], pricing.price(row, model)
    offer: dict[str, JSON] = {"cost": price / pricing.divisor}
    if usd:
        offer["usd"] = price
    if record.input_tokens or record.output_tokens:
        offer["input_tokens"], offer["output_tokens"] = record.input_tokens, record.output_tokens
    if record.latency is not None:
        offer["latency"] = record.latency
    return offer
