"""The trainer `sft`: its settings. What it does stands in `imitation`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

from attrs import Factory, field, frozen

from orchestrion import (
    Meta,
    Metrics,
    Model,
    OpenContext,
    Plan,
    Session,
    Split,
    Trainer,
    UsageError,
    refuse_idle,
)
from orchestrion_local.naming import check_known, names_of
from orchestrion_local.settings import Optimizer

__all__ = ["Sft"]

Count = Annotated[int, Meta(ge=1)]


@frozen
class Sft(Trainer):
    """Supervised fine-tuning: models learn to say what was said, a warm start for what follows.

    What was said comes from `teachers`, other models that answer in the students' place while the
    team works on training problems, or from recorded examples.

    Args:
        models: the students.
        teachers: one for each student, or one for all.
        base: of a student with an adapter, train the weights under it, in common with all others
            that are on them, and not the adapter.
        data: a file of examples, one JSON object {"model", "messages", "text"} a line.
        keep: which of the team's episodes are learned from.
        iterations: how many.
        episodes: of the team in each iteration, with teachers.
        steps: optimizer steps of each student in each iteration.
        batch: examples in a step.
        micro_batch: examples computed at once.
        optimizer: of every student.
        optimizers: of single students, by name.
    """

    models: Annotated[Sequence[Model], Meta(min_length=1)]
    teachers: Sequence[Model] = ()
    base: bool = False
    data: str | None = None
    keep: Annotated[str, Meta(pattern="^(all|solved)$")] = "all"
    iterations: Count = 1
    episodes: Count = 256
    steps: Count = 50
    batch: Count = 64
    micro_batch: Count = 64
    optimizer: Optimizer = Factory(lambda: Optimizer(learning_rate=2e-3))
    optimizers: Mapping[str, Optimizer] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if bool(self.teachers) == (self.data is not None):
            raise ValueError("give `teachers` or `data`")
        if self.data is not None:
            refuse_idle(self, ("keep", "episodes"), "beside `data`, where no team works")
        if len(self.teachers) not in (0, 1, len(self.models)):
            raise ValueError(
                f"teachers: {len(self.teachers)} for {len(self.models)} models; give one for "
                "each, or one for all"
            )

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """See `Trainer.plan`."""
        if self.data is not None:
            return Plan(exact=True)
        if turns is None:
            return None
        return Plan(activations=self.episodes * turns, verdicts=self.episodes, forked=False)

    def check(self, session: Session) -> None:
        """See `Trainer.check`."""
        if self.data is None and not len(session.problems("train")):
            raise UsageError("the task has no training problems")

    async def iterate(self, i: int, session: Session) -> Metrics:
        """See `Trainer.iterate`; the open trainer does it."""
        raise NotImplementedError("a trainer of weights must be opened")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The trainer at work; for a trial, its settings alone."""
        names = names_of(self.models, ctx)
        check_known(self.optimizers, names, f"{ctx.path}.optimizers")
        if ctx.trial:
            yield self
            return
        from orchestrion_local.imitation import Imitation

        yield Imitation(self, ctx)
