"""Checks of the models that a trainer names, before any of their weights are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from orchestrion import Model, OpenContext, UsageError, did_you_mean
from orchestrion_local.hf import HF, itself
from orchestrion_local.interfaces import Trainable
from orchestrion_local.server import Server

__all__ = ["check_known", "names_of", "server_of", "settings_by_model", "unsynced"]

T = TypeVar("T")


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


def settings_by_model(
    given: Mapping[str, T], names: Sequence[str], models: Sequence[Trainable], place: str
) -> dict[str, T]:
    """Settings that are given by config name, by the name of the model whose weights they are for.

    Args:
        given: by config name, not for all.
        names: config names; several may stand for the same weights.
        models: whose weights each name stands for.
        place: of the settings, for errors.

    Raises:
        UsageError: the same weights are given different settings.
    """
    found: dict[str, T] = {}
    for name, model in zip(names, models, strict=True):
        if name in given and found.setdefault(model.name, given[name]) != given[name]:
            raise UsageError(
                f"{place}.{name}: these are the weights of {model.name}, which has other settings; "
                "give them once"
            )
    return found


def unsynced(names: Sequence[str], models: Sequence[Model]) -> list[str]:
    """Names of the models that are sampled by a server which never learns of new weights."""
    found = []
    for name, model in zip(names, models, strict=True):
        server = server_of(model)
        if server is not None and server.sync == "none":
            found.append(name)
    return found


def server_of(model: Model) -> Server | None:
    """The server that samples for a model, before it is opened or after."""
    settings = itself(model)
    return settings.server if isinstance(settings, HF) else None


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
