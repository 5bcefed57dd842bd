"""The task `recorded`: ask some of the models, then the vote over what they said is the result.

The answers are in a table, so an episode calls no model. The table stays with the environment:
an agent says which model it asks and pays what that costs, and the environment shows the answer.
Neither agents nor policies get the right answer, or an answer that was not paid for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

from attrs import field, frozen

from orchestrion import Meta, OpenContext, Problem, Split, SplitShares, Task
from orchestrion_recorded.columns import Columns
from orchestrion_recorded.generate import Generated, generate
from orchestrion_recorded.reading import read_table
from orchestrion_recorded.table import Table


@frozen
class RecordedTask:
    """Ask models whose answers are recorded; the vote over what was seen is the result.

    A question that nobody was asked, or where nobody gave an answer, counts as wrong. Every model
    can be asked once; one without a record for the question not at all. After `limits.turns` turns
    the vote so far is the result. A table without right answers has scores from 0 to 1: one model
    is asked, its score is the result, and a question is solved from 0.5.

    Args:
        table: CSV or JSON lines (`.gz` is unpacked) with one question a line; or `generated`.
        prices: a table with the price of one call of each model; without it prices stand in the
            table, or every call costs 1.
        columns: what the table's columns are, where their names do not say so.
        unit: what costs 1: the mean price of the `dearest` model, the `mean` price of all
            models, or `none`: prices are taken as they are.
        usd: prices are US dollars, and are booked as such too.
        vote: `weighted` by what each model's answers were worth on training questions of the
            group, or `plurality`.
        shrinkage: how many answers in a group the overall rates count for.
        classes: kinds of difficulty that are told apart; 1 takes models for independent.
        folds: parts of the training questions; what is shown of one is estimated on the others, so
            that a policy meets new questions as it met those it learned from. 1: on all of them.
        split: how questions are divided.
        generated: what a generated table is like.
    """

    table: Literal["generated"] | Path = "generated"
    prices: Path | None = None
    columns: Columns = Columns()
    unit: Literal["dearest", "mean", "none"] = "dearest"
    usd: bool = False
    vote: Literal["weighted", "plurality"] = "weighted"
    shrinkage: Annotated[float, Meta(ge=0)] = 20.0
    classes: Annotated[int, Meta(ge=1, le=20)] = 4
    folds: Annotated[int, Meta(ge=1, le=20)] = 1
    split: SplitShares = field(default=SplitShares())
    generated: Generated = field(default=Generated())

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Read the table and learn from its training questions what models are worth."""
        from orchestrion_recorded.recording import Recording

        yield Recording(self, self.read(), ctx.roster, ctx.turns)

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the questions of a split, for those who only want to count them."""
        from orchestrion_recorded.recording import Recording

        return Recording(self, self.read()).problems(split)

    def read(self) -> Table:
        """Return the table.

        Raises:
            UsageError: a file is wrong, with its line.
        """
        if isinstance(self.table, Path):
            return read_table(self.table, self.columns, self.prices)
        return generate(self.generated)
