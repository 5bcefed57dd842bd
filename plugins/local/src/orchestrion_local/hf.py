"""The model `hf`: settings, and checks of the models that trainers name, without torch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from typing import TypeVar

from attrs import frozen

from orchestrion import (
    JSON,
    Answer,
    CallError,
    Calls,
    Key,
    Model,
    OpenContext,
    Usage,
    UsageError,
    did_you_mean,
)
from orchestrion_local.interfaces import Trainable
from orchestrion_local.settings import UNSUPPORTED, ModelSettings, Server, settings_of

T = TypeVar("T")


@frozen
class HF(ModelSettings):
    """A causal language model of the transformers library, sampled in batches on this machine.

    Give it `path`, `architecture` or `base`. Agents that name the same model share its weights.
    A model with a `base` has an adapter on the base's weights with `lora`, a copy of the weights
    with `copy`, and is another name of the base with neither.
    """

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Model]:
        """Load or make the weights; in a dry run only check the settings.

        Raises:
            UsageError: `base` is not an `hf` model, or `lora` would put an adapter on an adapter.
            RunError: it cannot be loaded, or its device has no room.
        """
        base = settings_of(self.base)
        if self.base is not None and base is None:
            raise UsageError(f"{ctx.path}.base: is not an `hf` model")
        if self.lora is not None and base is not None and base.lora is not None:
            raise UsageError(
                f"{ctx.path}.base: is an adapter, and a `lora` needs weights; name those, or a "
                "`copy: true` of the adapter, into which it is merged"
            )
        if ctx.trial:
            yield PlannedModel(self, self.sampling().max_tokens)
            return
        from orchestrion_local.loading import load

        model = load(self, ctx)
        with closing(model):
            if self.server is None:
                yield model
                return
            try:
                from orchestrion_local.serving import served
            except ImportError as error:
                raise UsageError(
                    f"{ctx.path}.server: needs {error.name}; "
                    "pip install 'orchestrion-local[server]'"
                ) from error
            async with served(model, self.server, ctx):
                yield model


@frozen
class PlannedModel(Model):
    """A model in a dry run: without weights."""

    unsupported = UNSUPPORTED

    settings: object
    max_tokens: int

    def ceiling(self, tokens: int) -> Usage:
        """Return the maximum usage of a completion whose prompt has at most `tokens` tokens."""
        return Usage(1, tokens, self.max_tokens)

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """Raise CallError (permanent): there are no weights."""
        raise CallError("a dry run loads no weights", "permanent")


def server_of(model: Model) -> Server | None:
    """Return the server that samples for a model, if there is one."""
    settings = settings_of(model)
    return settings.server if settings is not None else None


def names_of(models: Sequence[Model], ctx: OpenContext) -> tuple[str, ...]:
    """Return the config names of the models in a trainer's field `models`.

    Raises:
        UsageError: a model has no weights that can be trained, or is named twice.
    """
    names = ctx.names["models"]
    for i, (name, model) in enumerate(zip(names, models, strict=True)):
        if not (settings_of(model) if ctx.trial else isinstance(model, Trainable)):
            raise UsageError(
                f"{ctx.path}.models[{i}]: this model has no weights to train; use `hf`"
            )
        if name in names[:i]:
            raise UsageError(f"{ctx.path}.models[{i}]: {name} is named twice")
    return names


def settings_by_model(
    given: Mapping[str, T], names: Sequence[str], models: Sequence[Trainable], place: str
) -> dict[str, T]:
    """Return settings that are given by config name, by the name of the model with the weights.

    Args:
        given: settings by config name, not for all.
        names: config names; several may stand for the same weights.
        models: the model of each name.
        place: config path of the settings, for errors.

    Raises:
        UsageError: the same weights are given different settings.
    """
    by_model: dict[str, T] = {}
    for name, model in zip(names, models, strict=True):
        if name in given and by_model.setdefault(model.name, given[name]) != given[name]:
            raise UsageError(
                f"{place}.{name}: these are the weights of {model.name}, which has other settings; "
                "give them once"
            )
    return by_model


def unsynced(names: Sequence[str], models: Sequence[Model]) -> list[str]:
    """Return the names of models that are sampled by a server which never gets new weights."""
    servers = {name: server_of(model) for name, model in zip(names, models, strict=True)}
    return [name for name, server in servers.items() if server and server.sync == "none"]


def check_known(given: Iterable[str], known: Sequence[str], place: str) -> None:
    """Check names of settings.

    Raises:
        UsageError: a name is not known.
    """
    for name in given:
        if name not in known:
            raise UsageError(
                f"{place}: {name!r} is none of {', '.join(sorted(known))}"
                + did_you_mean(name, known)
            )
