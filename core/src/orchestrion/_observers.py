"""Call the lifecycle hooks of the plugins that take part in a run, and log what they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrion._errors import RunError
from orchestrion._events import DEBUG, INFO, event, listened
from orchestrion._hooks import LIFECYCLE
from orchestrion._interrupts import from_outside
from orchestrion._suggest import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    import pluggy

    from orchestrion._discovery import Plugin
    from orchestrion._interfaces import Metrics
    from orchestrion._records import Episode, Turn


class _Call(NamedTuple):
    """One plugin's implementation of one hook; it may take fewer arguments than the spec has."""

    plugin: Plugin
    hook: str
    function: Callable[..., object]
    names: tuple[str, ...]

    def __call__(self, arguments: dict[str, Any]) -> object:
        try:
            return self.function(*[arguments[name] for name in self.names])
        # BaseException: a plugin does not end the process either.
        except BaseException as exc:
            if from_outside(exc):
                raise
            raise RunError(
                f"plugin {self.plugin} failed in {self.hook}: {type(exc).__name__}: {exc}"
            ) from exc


def _listener_calls(plugin: Plugin, place: str, listener: object) -> Iterator[_Call]:
    """Yield the hooks that a listener has as methods; refuse a method of a misspelt name."""
    for name in dir(listener):
        if name.startswith("orchestrion_"):
            if name not in LIFECYCLE:
                raise RunError(
                    f"{place}: there is no lifecycle hook {name!r}{did_you_mean(name, LIFECYCLE)}"
                )
            method = getattr(listener, name)
            yield _Call(plugin, name, method, tuple(signature(method).parameters))


class EpisodeObservers(NamedTuple):
    """The lifecycle hooks that an engine calls while an episode runs."""

    turn_finished: Callable[[str, Turn], None] | None
    episode_finished: Callable[[Episode], None] | None


class Observers:
    """Calls lifecycle hooks; costs next to nothing where no plugin implements one.

    Every method raises `RunError`, naming the plugin, if an implementation raises.
    """

    def __init__(
        self,
        manager: pluggy.PluginManager | None,
        loaded: Iterable[tuple[object, Plugin]],
        listeners: Iterable[tuple[Plugin, str, object]] = (),
    ) -> None:
        owners = {id(namespace): plugin for namespace, plugin in loaded}
        self._calls: dict[str, list[_Call]] = {hook: [] for hook in LIFECYCLE}
        for hook, calls in self._calls.items():
            implementations = [] if manager is None else getattr(manager.hook, hook).get_hookimpls()
            for impl in reversed(implementations):
                if plugin := owners.get(id(impl.plugin)):
                    calls.append(_Call(plugin, hook, impl.function, tuple(impl.argnames)))
        for plugin, place, listener in listeners:
            for call in _listener_calls(plugin, place, listener):
                self._calls[call.hook].append(call)

    def of_episodes(self) -> EpisodeObservers:
        """Return the hooks that an engine calls; None for one that nobody listens to."""
        has_listener = self._calls["orchestrion_episode_finished"] or listened(DEBUG)
        return EpisodeObservers(
            self.turn_finished if self._calls["orchestrion_turn_finished"] else None,
            self.episode_finished if has_listener else None,
        )

    def run_started(
        self, directory: Path | None, config: dict[str, Any], note: Callable[[str], None]
    ) -> None:
        event(INFO, "run started", directory=str(directory))
        for call in self._calls["orchestrion_run_started"]:
            call({"directory": directory, "config": deepcopy(config), "note": note})

    def turn_finished(self, episode: str, turn: Turn) -> None:
        for call in self._calls["orchestrion_turn_finished"]:
            call({"episode": episode, "turn": turn})

    def episode_finished(self, episode: Episode) -> None:
        if listened(DEBUG):
            _log_episode(episode)
        for call in self._calls["orchestrion_episode_finished"]:
            call({"episode": episode})

    def iteration_finished(self, stage: int, iteration: int, metrics: Metrics) -> None:
        event(INFO, "iteration", stage=stage, iteration=iteration, metrics=dict(metrics))
        for call in self._calls["orchestrion_iteration_finished"]:
            # A copy for each: what one plugin does to it is nobody else's business.
            call({"stage": stage, "iteration": iteration, "metrics": dict(metrics)})

    def checkpoint_written(self, path: Path, iteration: int) -> None:
        event(INFO, "checkpoint", file=path.name, iteration=iteration)
        for call in self._calls["orchestrion_checkpoint_written"]:
            call({"path": path, "iteration": iteration})

    def run_finished(self, directory: Path | None, status: str) -> None:
        """Call the hook of all plugins, and then raise the first error."""
        event(INFO, "run finished", status=status)
        errors, calls = [], [*self._calls["orchestrion_run_finished"]]
        for call in calls:
            try:
                wait = call({"directory": directory, "status": status})
            except RunError as error:
                errors.append(error)
                continue
            if callable(wait):  # when all others were told: so they wait at the same time
                calls.append(call._replace(function=wait, names=()))
        if errors:
            raise errors[0]


def _log_episode(episode: Episode) -> None:
    event(
        DEBUG,
        "episode",
        episode=episode.id,
        problem=episode.problem.id,
        status=str(episode.status),
        success=episode.success,
        reward=None if episode.reward is None else episode.reward.total,
        turns=len(episode.trajectory),
        agents=[turn.agent for turn in episode.turns],
        cost=episode.usage.cost,
        usd=episode.usage.usd,
        **({"error": episode.error} if episode.error else {}),
    )
