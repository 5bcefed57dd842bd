"""Checks of the models that a trainer names, before any of their weights are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrion import Model, OpenContext, UsageError
from orchestrion.suggest import did_you_mean
from orchestrion_local.hf import HF
from orchestrion_local.interfaces import Trainable

__all__ = ["check_known", "names_of"]


def names_of(models: Sequence[Model], ctx: OpenContext) -> tuple[str, ...]:
    """The config names of the models that a trainer trains, its field `models`.

    Raises:
        UsageError: one has no weights that can be trained, or is named twice.
    """
    names = ctx.names["models"]
    for i, (name, model) in enumerate(zip(names, models, strict=True)):
        if not isinstance(model, HF if ctx.trial else Trainable):
            raise UsageError(
                f"{ctx.path}.models[{i}]: this model has no weights to train; use `hf`"
            )
        if name in names[:i]:
            raise UsageError(f"{ctx.path}.models[{i}]: {name} is named twice")
    return names


def check_known(given: Iterable[str], known: Sequence[str], place: str) -> None:
    """Refuse settings by name for something that is not there.

    Raises:
        UsageError: a name is not known.
    """
    for name in given:
        if name not in known:
            raise UsageError(
                f"{place}: {name!r} is none of {', '.join(sorted(known))}"
                + did_you_mean(name, known)
            )
