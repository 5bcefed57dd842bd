"""Open a config's components: each once, wired into each other, closed in reverse order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from orchestrion._config.components import reached
from orchestrion._engine.calls import CallPath, Observers
from orchestrion._engine.episode import Engine
from orchestrion._engine.team import Team, member_of
from orchestrion._errors import OrchestrionError, RunError
from orchestrion._guards import calling, in_one_line, place_of
from orchestrion._interfaces import Member, OpenContext, Stateful
from orchestrion._interrupts import from_outside
from orchestrion._keys import Key
from orchestrion._records import Saved

if TYPE_CHECKING:
    from orchestrion.config import Config, Entry


class Opened:
    """Hold the runtimes of a config's components, by config path."""

    def __init__(self, config: Config, runtimes: Mapping[str, Any]) -> None:
        self.config = config
        self.runtimes = dict(runtimes)

    def roster(self, agents: Sequence[str] | None = None) -> tuple[Member, ...]:
        """Return the members at these paths; by default the config's team."""
        return tuple(self.member(path) for path in agents or self.config.roster)

    def member(self, path: str) -> Member:
        """Return an agent as policies see it."""
        agent, place = self.runtimes[path], place_of(self.config, path)
        with calling(place, "options or role"):
            member = member_of(_name(self.config, path), agent)
        options = member.options
        texts = all(type(option) is str and option for option in options)
        if not texts or len({*options}) < len(options):
            raise RunError(f"{place}: options must be different texts, not {options!r:.200}")
        return member

    def engine(
        self,
        calls: CallPath,
        policy: str = "policy",
        agents: Sequence[str] | None = None,
        observers: Observers | None = None,
        cls: type[Engine] = Engine,
    ) -> Engine:
        """Return an engine for a team (by default the config's) with this policy."""
        config = self.config
        paths = list(agents or config.roster)
        team = Team(
            {_name(config, path): self.runtimes[path] for path in paths},
            self.roster(paths),
            self.runtimes[policy],
            self.runtimes["task"],
            self.runtimes.get("reward"),
        )
        engine = cls(team, calls, config.limits, config.run.timeout, observers)
        engine.places = {
            id(runtime): place_of(config, path) for path, runtime in self.runtimes.items()
        }
        engine.learnable = config.learnable
        engine.problems = config.run.problems
        engine.identities = {
            id(self.runtimes[path]): _identity(config, path)
            for path, entry in config.components.items()
            if entry.kind == "agent" and path in self.runtimes
        }
        return engine


async def open_components(
    config: Config,
    stack: AsyncExitStack,
    key: Key,
    directory: Path | None = None,
    previous: Opened | None = None,
    note: Callable[[str, str, str], None] | None = None,
    live: bool = True,
    trial: bool = False,
) -> Opened:
    """Open every component of a config once, dependencies first; `stack` closes them, in reverse.

    Args:
        key: of the randomness; each component gets a key below it.
        previous: the same config, opened with other learnable settings: runtimes of unchanged
            components are kept; changed components get the learned state of their predecessors.
        note: called with a component's path, a name and a text, see `OpenContext.note`.
        live, trial: see `OpenContext`.

    Raises:
        RunError: `open` raised an error that is not ours; the message names the component.
    """
    opener = _Opener(config, stack, key, directory, previous, note, live, trial)
    # Agents first: policies choose from them.
    for path in config.roster:
        await opener.ensure(path, ())
    roster = opener.opened.roster()
    for baseline in config.evaluation.baselines.values():
        # A baseline's policy may name a team of its own.
        for path in baseline.agents or ():
            await opener.ensure(path, ())
        team = opener.opened.roster(baseline.agents)
        await opener.ensure(baseline.policy, team)
        if baseline.trainer is not None:
            await opener.ensure(baseline.trainer, team)
    # A component that another one refers to was opened with it.
    wired = {path for entry in config.components.values() for path in entry.wires}
    for path in config.components:
        if path not in wired:
            await opener.ensure(path, roster)
    return opener.opened


async def open_team(
    config: Config,
    stack: AsyncExitStack,
    policy: str,
    agents: Sequence[str] | None,
    directory: Path | None,
    previous: Opened | None = None,
) -> Opened:
    """Open what episodes of one team need, see `team_paths`; as `open_components` does."""
    opener = _Opener(config, stack, Key(config.seed), directory, previous)
    return await opener.team(policy, agents, ("task", "reward"))


def team_paths(config: Config, policy: str, agents: Sequence[str] | None) -> set[str]:
    """Return the paths of what episodes of a team depend on: no trainer, no other policy."""
    paths = [policy, "task", "reward", *config.roster, *(agents or ())]
    return reached(config.components, paths)


async def open_routing(config: Config, stack: AsyncExitStack) -> Opened:
    """Open what decisions alone need: the policy and the task; as `open_components` does.

    Agents and models only say what they are: no call, no key, no module of theirs.
    """
    opener = _Opener(config, stack, Key(config.seed), live=False, idle=("agent", "model"))
    return await opener.team("policy", None, ("task",))


@define(eq=False)
class _Opener:
    config: Config
    stack: AsyncExitStack
    key: Key
    directory: Path | None = None
    previous: Opened | None = None
    note: Callable[[str, str, str], None] | None = None
    live: bool = True
    trial: bool = False
    idle: tuple[str, ...] = ()  # kinds that are opened as in a trial
    runtimes: dict[str, Any] = field(factory=dict, init=False)
    changed: set[str] = field(factory=set, init=False)

    @property
    def opened(self) -> Opened:
        return Opened(self.config, self.runtimes)

    async def team(
        self, policy: str, agents: Sequence[str] | None, others: Sequence[str]
    ) -> Opened:
        """Open a team's agents, its policy, and what there is at the other paths."""
        for path in (*self.config.roster, *(agents or ())):
            await self.ensure(path, ())
        await self.ensure(policy, self.opened.roster(agents))
        for path in others:
            if path in self.config.components:
                await self.ensure(path, self.opened.roster())
        return self.opened

    async def ensure(self, path: str, roster: tuple[Member, ...]) -> Any:
        """Return the runtime at a path; open it, and first what it refers to, if it is not open."""
        if path in self.runtimes:
            return self.runtimes[path]
        entry = self.config.components[path]
        await self._ensure_refs(entry, roster)
        before = self.previous.config.components.get(path) if self.previous is not None else None
        same = before is not None and before.component == entry.component
        if self.previous is not None and same and not self.changed.intersection(entry.wires):
            self.runtimes[path] = self.previous.runtimes[path]
            return self.runtimes[path]
        self.changed.add(path)
        runtime = self.runtimes[path] = await self._open(path, entry, roster)
        if self.previous is not None and isinstance(runtime, Stateful):
            old = self.previous.runtimes.get(path)
            if isinstance(old, Stateful):
                runtime.load(old.save())
        return runtime

    async def _ensure_refs(self, entry: Entry, roster: tuple[Member, ...]) -> None:
        paths = entry.wires
        kinds = {path: self.config.components[path].kind for path in paths}
        for path in paths:
            if kinds[path] != "policy":
                await self.ensure(path, roster)
        # A policy inside a component chooses from the agents beside it there.
        agents = [path for path in paths if kinds[path] == "agent"]
        members = tuple(self.opened.member(path) for path in agents)
        for path in paths:
            if kinds[path] == "policy":
                await self.ensure(path, members or roster)

    async def _open(self, path: str, entry: Entry, roster: tuple[Member, ...]) -> Any:
        component = entry.wired(self.runtimes)
        opener = getattr(component, "open", None)
        if opener is None:
            return component
        context = OpenContext(
            path=path,
            key=self.key.child("open", path),
            roster=roster,
            names={
                field: tuple(_name(self.config, ref) for ref in refs)
                for field, refs in entry.refs.items()
            },
            turns=self.config.limits.turns,
            timeout=self.config.run.timeout,
            directory=self.directory,
            note=partial(self.note or (lambda *note: None), path),
            live=self.live,
            trial=self.trial or entry.kind in self.idle,
            described=entry.kind in self.idle,
            environment=self.config.environment,
            trains=bool(self.config.stages) if self.trial else self.directory is not None,
        )
        place = place_of(self.config, path)
        try:
            manager = opener(context)
            runtime = await manager.__aenter__()
        except OrchestrionError:
            raise
        except BaseException as error:
            if from_outside(error):
                raise
            raise RunError(f"{place} cannot be opened: {in_one_line(error)}") from error
        self.stack.push_async_exit(partial(_close, manager, place))
        return runtime


async def _close(
    manager: AbstractAsyncContextManager[Any],
    place: str,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: Any,
) -> None:
    """Close a component so that an error in closing is logged, and does not replace the run's."""
    try:
        await manager.__aexit__(kind, error, trace)
    except BaseException as raised:
        if from_outside(raised):
            raise
        if raised is not error:
            logging.getLogger("orchestrion").warning(
                "%s: raised %s when it was closed", place, in_one_line(raised)
            )


# ------------------------------------------------------------------------------- learned state


def save_states(opened: Opened, paths: Container[str] | None = None) -> dict[str, Saved]:
    """Return the learned state of every component that has one, by config path.

    `paths` leaves out others; None for all. A runtime that several paths share is saved once, by
    the first path.
    """
    states: dict[str, Saved] = {}
    saved: set[int] = set()
    for path, runtime in opened.runtimes.items():
        if paths is not None and path not in paths:
            continue
        if isinstance(runtime, Stateful) and id(runtime) not in saved:
            saved.add(id(runtime))
            place = place_of(opened.config, path)
            with calling(place, "save"):
                state: Any = runtime.save()
            if not isinstance(state, Saved):
                raise RunError(f"{place}: save returned a {type(state).__name__}, not a Saved")
            states[path] = state
    return states


def load_states(opened: Opened, states: Mapping[str, Saved]) -> None:
    """Give saved states back to the components they came from."""
    for path, state in states.items():
        runtime = opened.runtimes.get(path)
        if isinstance(runtime, Stateful):
            with calling(place_of(opened.config, path), "load"):
                runtime.load(state)


# ------------------------------------------------------------------------------- names


def _name(config: Config, path: str) -> str:
    """Return the name of an agent or model defined in its own section; else the path."""
    section, _, name = path.partition(".")
    if section not in ("agents", "models") or not name:
        return path
    inline = "." in name and any(path.startswith(f"{owner}.") for owner in config.definitions)
    return path if inline else name


def _identity(config: Config, path: str) -> str:
    """Return a text for a component, its version and settings, and those of what it refers to."""
    entry = config.components[path]
    parts = [entry.found.qualified, entry.found.component.version, repr(entry.component)]
    parts += [_identity(config, ref) for ref in entry.wires]
    return " ".join(parts)
