"""The hooks a plugin may implement. A plugin is one light module named by one entry point.

    # pyproject.toml
    [project.entry-points.orchestrion]
    my-critic = "orchestrion_my_critic.plugin"

    # orchestrion_my_critic/plugin.py
    from orchestrion import Component, hookimpl

    @hookimpl
    def orchestrion_agents():
        yield Component("critic", "orchestrion_my_critic.critic:Critic", "says what is wrong")

Specs only grow: an implementation may take fewer arguments than the spec has.

For names that it no longer has, the module may say what to write in their place:

    ORCHESTRION_REMOVED = {"agent critic.strict": "write `level: 3`"}  # "KIND NAME" likewise, and
    # "KIND NAME.SETTING=VALUE"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pluggy

from orchestrion._components import Component, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrion._interfaces import Metrics
    from orchestrion._records import Episode, Turn


hookspec = pluggy.HookspecMarker("orchestrion")
hookimpl = pluggy.HookimplMarker("orchestrion")

# ---------------------------------------------------------------- what a plugin supplies
# Called when a name is looked up, at most once a process. Must return quickly and import
# nothing heavy.


@hookspec
def orchestrion_agents() -> Iterable[Component]:
    """Agents this plugin supplies. Since 0.1."""
    return ()


@hookspec
def orchestrion_models() -> Iterable[Component]:
    """Models this plugin supplies. Since 0.1."""
    return ()


@hookspec
def orchestrion_tasks() -> Iterable[Component]:
    """Tasks this plugin supplies. Since 0.1."""
    return ()


@hookspec
def orchestrion_rewards() -> Iterable[Component]:
    """Reward functions this plugin supplies. Since 0.1."""
    return ()


@hookspec
def orchestrion_policies() -> Iterable[Component]:
    """Policies this plugin supplies. Since 0.1."""
    return ()


@hookspec
def orchestrion_trainers() -> Iterable[Component]:
    """Trainers this plugin supplies. Since 0.1."""
    return ()


@hookspec
def orchestrion_executors() -> Iterable[Component]:
    """Executors this plugin supplies: where the episodes of a run are executed. Since 0.3."""
    return ()


@hookspec
def orchestrion_kinds() -> Iterable[Kind]:
    """Kinds of components that this plugin adds to those of core. Since 0.1."""
    return ()


@hookspec
def orchestrion_components() -> Iterable[tuple[str, Component]]:
    """Components of kinds that plugins added, as (kind name, component) pairs. Since 0.1."""
    return ()


@hookspec
def orchestrion_sections() -> Iterable[str]:
    """Sections that commands of this plugin take out of a config, see `Draft.take`. Since 0.2.

    Each is "package.module:Class", an attrs class whose fields are the sections.
    """
    return ()


@hookspec
def orchestrion_doctor() -> Iterable[tuple[str, str, str]]:
    """Return lines for `orchestrion doctor` about this plugin: (topic, state, text). Since 0.1.

    The state is "ok", "note" (worth knowing) or "problem" (the exit code is not 0).
    """
    return ()


# ---------------------------------------------------------------- the life of a run
# Called for the plugins that the config uses and those in `run.observers`, not for others that are
# installed. Must return quickly; raising fails the run, and the error names the plugin. Listeners
# that need settings are components of a kind with `observes`, see `Kind`.


@hookspec
def orchestrion_run_started(
    directory: Path | None, config: dict[str, Any], note: Callable[[str], None]
) -> None:
    """A run begins or is resumed. `config` is the resolved one, without secrets.

    `note` shows a sentence and keeps it among the run's events. It may be called in any hook until
    the run has finished, from the thread that called the hook. Since 0.1; `note` since 0.2.
    """


@hookspec
def orchestrion_turn_finished(episode: str, turn: Turn) -> None:
    """A turn was appended to the episode with this id. Since 0.1."""


@hookspec
def orchestrion_episode_finished(episode: Episode) -> None:
    """An episode was verified and rewarded; its iteration is not committed yet. Since 0.1."""


@hookspec
def orchestrion_iteration_finished(stage: int, iteration: int, metrics: Metrics) -> None:
    """An iteration was committed to the store. Since 0.1."""


@hookspec
def orchestrion_checkpoint_written(path: Path, iteration: int) -> None:
    """A checkpoint is on disk and valid. Since 0.1."""


@hookspec
def orchestrion_run_finished(directory: Path | None, status: str) -> Callable[[], None] | None:
    """A run ends: "completed", "failed", "budget" or "cancelled". Since 0.1.

    An implementation that has to wait, e.g. for a server, may return a function that does: it is
    called when all plugins know that the run ended, so that waits do not add up.
    """
