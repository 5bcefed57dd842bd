"""The teams that are served, and how a new version of one takes the place of the old."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from orchestrion import OrchestrionError, UsageError
from orchestrion.cli import note
from orchestrion.runs import Trained, open_run


class Versions(Mapping[str, Trained]):
    """Opened runs and configs by name, each in its newest version."""

    def __init__(self, overrides: Sequence[str], block: Sequence[str]) -> None:
        self._overrides, self._block = overrides, block
        self._targets: dict[str, str] = {}
        self._current: dict[str, _Version] = {}
        self._all: list[_Version] = []
        self._reloading, self._closing = asyncio.Lock(), False
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the error of a version that ended on its own, e.g. when its minutes are used up."""

    def __getitem__(self, name: str) -> Trained:
        return self._current[name].team

    def __iter__(self) -> Iterator[str]:
        return iter(self._current)

    def __len__(self) -> int:
        return len(self._current)

    async def add(self, target: str) -> None:
        """Open a run or a config.

        Raises:
            UsageError: another one has its name, or as `open_run`.
        """
        version = await self._opened(target)
        name = _name(target, version.team)
        if name in self._current:
            raise UsageError(f"{target}: there are two runs named {name!r}; rename one's folder")
        self._targets[name], self._current[name] = target, version

    async def reload(self) -> list[str]:
        """Open everything anew: new requests go there, and old ones finish where they are.

        What was spent before counts against the budget. A version that cannot be opened, or is
        older than the one that serves, is not used.

        Returns:
            What a person should know of each name.
        """
        async with self._reloading:
            lines = []
            for name, target in self._targets.items():
                old = self._current[name]
                try:
                    version = await self._opened(target, old.team)
                except OrchestrionError as error:
                    lines.append(f"{name}: stays as it is: {error}")
                    continue
                lines += [f"{name}: {note}" for note in version.team.notes]
                try:
                    check_text(name, version.team)
                    _check_newer(old.team, version.team)
                except UsageError as error:
                    lines.append(f"{name}: stays as it is: {error}")
                    version.leave()
                    continue
                lines.append(f"{name}: opened anew")
                self._current[name] = version
                old.leave()
            return lines

    async def close(self) -> None:
        """Close all versions."""
        self._closing = True
        for version in self._all:
            version.leave()
        await asyncio.gather(*(version.task for version in self._all), return_exceptions=True)
        self.failed.cancel()

    async def _opened(self, target: str, before: Trained | None = None) -> _Version:
        version = _Version(self, open_traced(target, self._overrides, self._block, before))
        try:
            await version.ready
        except BaseException:
            version.task.cancel()
            raise
        self._all.append(version)
        return version

    def ended(self, version: _Version) -> None:
        """Forget a version that was closed."""
        if version in self._all:
            self._all.remove(version)
        error = None if version.task.cancelled() else version.task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # whoever waits for it may be gone
        # The collector skips what was there when the server started. That takes as long as a
        # request, so it is done for a version that was replaced, not when all end.
        if not self._closing and gc.get_freeze_count():
            gc.unfreeze()
            gc.collect()
            gc.freeze()


class _Version:
    """One version, open in a task of its own: its time limit must not cancel anything else."""

    def __init__(self, versions: Versions, opening: AbstractAsyncContextManager[Trained]) -> None:
        self.ready: asyncio.Future[Trained] = asyncio.get_running_loop().create_future()
        self._left = asyncio.Event()
        self.task = asyncio.create_task(self._hold(opening))
        self.task.add_done_callback(lambda _: versions.ended(self))

    @property
    def team(self) -> Trained:
        return self.ready.result()

    def leave(self) -> None:
        """Close it when it answers no request any more."""
        self._left.set()

    async def _hold(self, opening: AbstractAsyncContextManager[Trained]) -> None:
        try:
            async with opening as team:
                self.ready.set_result(team)
                await self._left.wait()
                await asyncio.sleep(0)  # a request that was just let in has not begun yet
                await team.engine.idle.wait()
        except Exception as error:
            if self.ready.done():
                raise
            self.ready.set_exception(error)


@asynccontextmanager
async def open_traced(
    target: str,
    overrides: Sequence[str] = (),
    block: Sequence[str] = (),
    before: Trained | None = None,
) -> AsyncIterator[Trained]:
    """Open a version as `open_run` does; what its config says listens to it (`traces`)."""
    async with open_run(target, overrides, block, before=before) as team:
        observers = team.config.observers(serving=True)
        observers.run_started(team.directory, team.config.resolved(), note)
        team.engine.observers = observers.of_episodes()
        try:
            yield team
        finally:
            await asyncio.to_thread(observers.run_finished, team.directory, "completed")


@asynccontextmanager
async def versions_of(
    targets: Sequence[str], overrides: Sequence[str] = (), block: Sequence[str] = ()
) -> AsyncIterator[Versions]:
    """Open runs or configs until the block ends, by the name of the run or of the config.

    Raises:
        UsageError: two have the same name, or as `open_run`.
    """
    versions = Versions(overrides, block)
    try:
        for target in targets:
            await versions.add(target)
        yield versions
    finally:
        await versions.close()


def _name(target: str, team: Trained) -> str:
    """Return what a run is called, by its folder, or a config, by its file."""
    if team.directory is None:
        return Path(target).stem
    older = None if Path(target).exists() else re.search(r"@\d+$", target)
    return team.directory.resolve().name + (older[0] if older else "")


def _check_newer(old: Trained, new: Trained) -> None:
    """Raise a UsageError if a run's newest checkpoints are gone: nobody asked for an older one."""
    if old.directory == new.directory and (new.iterations or 0) < (old.iterations or 0):
        raise UsageError(
            f"the newest checkpoint that can be used is the one after {new.iterations} iterations, "
            f"and the one that serves is after {old.iterations}"
        )


def check_text(name: str, team: Trained) -> None:
    """Raise a UsageError if a team cannot answer texts."""
    if not hasattr(team.engine.team.task, "problem_from"):
        raise UsageError(f"{name}: its task takes no free text, so it cannot be served")
