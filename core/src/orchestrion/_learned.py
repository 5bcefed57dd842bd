"""A config's components with what they learned, and the teams that a report compares."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from orchestrion._engine.checks import check_decided, check_judged, check_turns
from orchestrion._engine.episode import Engine
from orchestrion._engine.opening import Opened, load_states, open_components, save_states
from orchestrion._keys import Key
from orchestrion._records import JSON, Array, Saved, Split
from orchestrion._session import EngineSession
from orchestrion._store import Checkpoint
from orchestrion._store.serial import dumps
from orchestrion.config import Baseline, Config

OWN_TEAM = Baseline("policy")
"""The config's own team, written as a baseline: the contender that was trained."""


class LearnedComponents:
    """Keep a config's components open, with the settings and states that were learned."""

    def __init__(
        self,
        initial: Config,
        stack: AsyncExitStack,
        directory: Path | None = None,
        live: bool = True,
        note: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self.initial = self.config = initial
        self.overlay: dict[str, JSON] = {}  # the learned settings; `config` is `initial` with these
        self.opened: Opened
        self.stack = stack
        self._directory, self._live, self._note = directory, live, note

    async def restore(self, checkpoint: Checkpoint | None) -> None:
        """Open the components with what a checkpoint holds."""
        if checkpoint is not None and checkpoint.overlay:
            self.overlay = dict(checkpoint.overlay)
            self.config = self.initial.with_overlay(self.overlay)
        self.opened = await self._open(self.config, self.stack, note=self._note)
        if checkpoint is not None:
            load_states(self.opened, checkpoint.components)

    async def reload(self, checkpoint: Checkpoint) -> list[str]:
        """Close the components, and open new ones with what a checkpoint holds.

        Return the paths of components that now save something else than the checkpoint holds.
        """
        # Close first: model weights may not fit into memory twice.
        await self.stack.aclose()
        self.opened = await self._open(self.config, self.stack)
        load_states(self.opened, checkpoint.components)
        return [
            path
            for path, saved in save_states(self.opened).items()
            if path in checkpoint.components and not _equal(saved, checkpoint.components[path])
        ]

    async def adopt(self, overlay: Mapping[str, JSON]) -> None:
        """Use other values of learnable settings from now on."""
        self.overlay.update(overlay)
        self.config = self.initial.with_overlay(self.overlay)
        # Replaced components stay open until the run ends: others may still refer to them.
        self.opened = await self._open(self.config, self.stack, self.opened)

    @asynccontextmanager
    async def with_overlay(self, overlay: Mapping[str, JSON]) -> AsyncIterator[Opened]:
        """Open the components that change with other values of learnable settings."""
        config = self.initial.with_overlay({**self.overlay, **overlay})
        async with AsyncExitStack() as stack:
            yield await self._open(config, stack, self.opened)

    async def of_contender(
        self,
        contender: Baseline,
        stack: AsyncExitStack,
        overlay: Mapping[str, JSON] | None = None,
        previous: Opened | None = None,
    ) -> Opened:
        """Return the components that a contender of a report is evaluated with.

        What is opened for it (all of an untrained team, without any learned state; of a baseline
        `as_configured` what depends on a learned setting) is closed by `stack`. `overlay` has
        settings that its own trainer learned, and `previous` the components that it had before.
        """
        if contender.untrained:
            return await self._open(self.initial, stack)
        learned = {} if contender.as_configured else self.overlay
        if not overlay and learned == self.overlay:
            return self.opened
        config = self.initial.with_overlay({**learned, **(overlay or {})})
        return await self._open(config, stack, previous or self.opened)

    async def _open(
        self,
        config: Config,
        stack: AsyncExitStack,
        previous: Opened | None = None,
        note: Callable[[str, str, str], None] | None = None,
    ) -> Opened:
        return await open_components(
            config, stack, Key(config.seed), self._directory, previous, note, live=self._live
        )


async def evaluate_contender(
    engine: Engine, name: str, config: Config, split: Split, seeds: int, limit: int | None
) -> EngineSession:
    """Evaluate a contender on the problems and keys that all get; return the ended session."""
    label = f"evaluate/{name}"
    key = Key(config.seed).child("evaluate")
    session = EngineSession(engine, label, key, key, config.run.concurrency, test=True)
    episodes = await session.evaluate_as(label, split, None, limit, seeds)
    where = f"the evaluation of {name}"
    check_judged(episodes, where)
    if name not in config.evaluation.baselines:
        check_decided(episodes, where)
        check_turns(episodes, where, 1)
    return session


def saved_to_json(saved: Saved) -> JSON:
    """Return learned state as JSON; arrays as base64."""
    arrays = {
        name: [array.dtype, list(array.shape), b64encode(array.data).decode()]
        for name, array in saved.arrays.items()
    }
    return {"arrays": arrays, "data": saved.data}


def saved_from_json(data: JSON) -> Saved:
    """Return learned state from what `saved_to_json` returned."""
    arrays = {
        name: Array(dtype, tuple(shape), b64decode(text))
        for name, (dtype, shape, text) in data["arrays"].items()
    }
    return Saved(arrays, data["data"])


def _equal(first: Saved, second: Saved) -> bool:
    """Return whether two saved states are the same once they are written."""
    same_data = dumps(first.data, sort=True) == dumps(second.data, sort=True)
    return same_data and dict(first.arrays) == dict(second.arrays)
