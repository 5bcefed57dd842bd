"""`orchestrion doctor`: what is wrong with an installation, and which part causes it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import click

from orchestrion import API_VERSION, __version__
from orchestrion._cli.common import emit, find_config, json_option, plugins_of, table
from orchestrion._errors import OrchestrionError
from orchestrion._plugins import Found, Loaded, Plugins

FINDINGS = 3
"""The exit code if there is a problem."""
_LOW_DISK = 1 << 30
"""Bytes."""

State = Literal["ok", "note", "problem"]
Checked = Iterator[tuple[str, State, str]]
"""Lines of the report: topic, state and text. Only a `problem` changes the exit code."""


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Look for problems of the installation; exits with 3 if there are any.

    Loads every plugin. Shows which keys are set, never their values.
    """
    plugins = plugins_of()
    findings = [finding for check in _CHECKS for finding in check(plugins)]
    problems = sum(state == "problem" for _, state, _ in findings)
    if as_json:
        listed = [{"topic": topic, "state": state, "text": text} for topic, state, text in findings]
        emit({"ok": not problems, "findings": listed})
    else:
        click.echo(table([[state, topic, text] for topic, state, text in findings]))
        click.echo(f"{problems} problems" if problems else "no problems")
    return FINDINGS if problems else 0


def _python(plugins: Plugins) -> Checked:
    yield "python", "ok", f"{platform.python_version()} at {sys.executable}"
    yield "platform", "ok", f"{platform.platform()}, {os.cpu_count()} CPUs"
    where = Path(__file__).parent.parent
    yield "orchestrion", "ok", f"{__version__}, plugin API {API_VERSION}, at {where}"
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        text = "PYTHONDONTWRITEBYTECODE is set: every start compiles every module again"
        yield "byte code", "note", text


def _plugins(plugins: Plugins) -> Checked:
    loaded = {item.plugin: item for item in plugins.load_all()}
    plugins.kinds()
    if not plugins.installed:
        yield "plugins", "note", "none is installed, so no config can be run"
    for plugin in plugins.installed:
        topic = f"plugin {plugin.name}"
        if failure := plugins.failure(plugin):
            state: State = "note" if failure.state == "blocked" else "problem"
            yield topic, state, f"{plugin.origin} is {failure.state}: {failure.reason}"
        elif broken := list(_broken_components(plugins, loaded[plugin])):
            for text in broken:
                yield topic, "problem", text
        else:
            count = sum(map(len, loaded[plugin].components.values()))
            seconds = loaded[plugin].seconds
            text = f"{plugin.origin}, {count} components, loaded in {seconds * 1e3:.0f} ms"
            hint = ": that slows every command down, import heavy libraries in `open`"
            yield (topic, "note", text + hint) if seconds > 0.5 else (topic, "ok", text)


def _broken_components(plugins: Plugins, loaded: Loaded) -> Iterator[str]:
    """Yield what is wrong with components of a plugin."""
    from orchestrion._config.components import shaper_of
    from orchestrion._config.shapes import UnsupportedError

    shaper = shaper_of(plugins)
    kinds = plugins.kinds()
    for kind, components in loaded.components.items():
        if kind not in kinds:
            yield (
                f"{loaded.plugin.origin} supplies components of kind {kind!r}, which no installed "
                "plugin defines"
            )
            continue
        for component in components.values():
            candidate = Found(kinds[kind], component, loaded.plugin)
            try:
                shaper.settings(plugins.component_class(candidate), wired=True)
            except UnsupportedError as exc:
                yield f"{candidate} cannot be configured: {exc}"
            except OrchestrionError as exc:
                yield str(exc)


def _shared_names(plugins: Plugins) -> Checked:
    """Check for names that two distributions supply, so that a config must qualify them."""
    owners: dict[tuple[str, str], list[Found]] = {}
    for candidate in plugins.components():
        owners.setdefault((candidate.kind.name, candidate.component.name), []).append(candidate)
    for (kind, name), suppliers in owners.items():
        if len(suppliers) > 1:
            origins = " and ".join(candidate.plugin.origin for candidate in suppliers)
            choices = " or ".join(repr(candidate.qualified) for candidate in suppliers)
            text = f"{kind} {name!r} is supplied by {origins}; a config must say {choices}"
            yield "components", "problem", text


def _commands(plugins: Plugins) -> Checked:
    from orchestrion._cli import COMMANDS
    from orchestrion._discovery import COMMANDS as GROUP
    from orchestrion._discovery import installed

    owners: dict[str, list[str]] = {}
    for plugin in installed(GROUP):
        owners.setdefault(plugin.name, []).append(plugin.origin)
    for name, origins in owners.items():
        suppliers = " and ".join(origins)
        if name in COMMANDS:
            text = f"{suppliers} supplies a command {name!r}; core's command of that name is used"
            yield "commands", "problem", text
        elif len(origins) > 1:
            yield "commands", "problem", f"command {name!r} is supplied by {suppliers}"


def _keys(plugins: Plugins) -> Checked:
    """Check that the variables in the current folder's config are set; list other keys."""
    needed = _config_variables()
    for name, present in needed.items():
        text = f"{name} is set" if present else f"{name} is not set, and the config here needs it"
        yield "keys", "ok" if present else "problem", text
    for name in sorted(os.environ):
        if name.endswith("_API_KEY") and name not in needed:
            yield "keys", "ok", f"{name} is set"


def _config_variables() -> Mapping[str, bool]:
    from orchestrion._config.environment import read_dotenv, variables
    from orchestrion._config.nodes import Problems
    from orchestrion._config.sources import read_tree

    try:
        path = find_config(None)
    except OrchestrionError:
        return {}
    environment = {**read_dotenv(path.parent / ".env", Problems()), **os.environ}
    root = read_tree(path, environment, Problems())
    names = variables(root) if root is not None else []
    return {name: name in environment for name in names}


def _plugins_own(plugins: Plugins) -> Checked:
    """Run the plugins' own checks; one that raises is a problem of that plugin."""
    for loaded in plugins.load_all():
        check = getattr(loaded.namespace, "orchestrion_doctor", tuple)
        try:
            for name, state, text in check():
                if state not in ("ok", "note", "problem"):
                    raise ValueError(f"a finding's state is {state!r}")
                yield name, state, text
        except Exception as exc:
            text = f"{loaded.plugin.origin}: its checks failed: {type(exc).__name__}: {exc}"
            yield f"plugin {loaded.plugin.name}", "problem", text


def _disk(plugins: Plugins) -> Checked:
    free = shutil.disk_usage(Path.cwd()).free
    low = free < _LOW_DISK
    text = f"{free / (1 << 30):.1f} GiB free here" + (": runs may not fit" if low else "")
    yield "disk", "problem" if low else "ok", text
    if not os.access(Path.cwd(), os.W_OK):
        yield "disk", "note", f"{Path.cwd()} cannot be written: set run.directory"


_CHECKS = (_python, _plugins, _shared_names, _commands, _keys, _disk, _plugins_own)
