"""`orchestrion doctor`: what is wrong with an installation, and which part causes it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from orchestrion import API_VERSION, __version__
from orchestrion._cli.common import emit, find_config, json_option, plugins_of, table
from orchestrion._errors import OrchestrionError
from orchestrion._plugins import Found, Plugins

FINDINGS = 3
"""The exit code if there is a problem."""
_LOW_DISK = 1 << 30
"""Bytes."""


class DoctorFinding(NamedTuple):
    """One line of the report. Only a `problem` changes the exit code."""

    topic: str
    state: Literal["ok", "note", "problem"]
    text: str


@click.command("doctor")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int:
    """Look for problems of the installation; exits with 3 if there are any.

    Loads every plugin. Shows which keys are set, never their values.
    """
    plugins = plugins_of(ctx)
    findings = [finding for check in _CHECKS for finding in check(plugins)]
    problems = [f for f in findings if f.state == "problem"]
    if as_json:
        emit({"ok": not problems, "findings": [f._asdict() for f in findings]})
    else:
        click.echo(table([[f.state, f.topic, f.text] for f in findings]))
        click.echo(f"{len(problems)} problems" if problems else "no problems")
    return FINDINGS if problems else 0


def _python(plugins: Plugins) -> Iterator[DoctorFinding]:
    version = platform.python_version()
    yield DoctorFinding("python", "ok", f"{version} at {sys.executable}")
    yield DoctorFinding("platform", "ok", f"{platform.platform()}, {os.cpu_count()} CPUs")
    where = Path(__file__).parent.parent
    yield DoctorFinding("orchestrion", "ok", f"{__version__}, plugin API {API_VERSION}, at {where}")
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        text = "PYTHONDONTWRITEBYTECODE is set: every start compiles every module again"
        yield DoctorFinding("byte code", "note", text)


def _plugins(plugins: Plugins) -> Iterator[DoctorFinding]:
    loaded = {item.plugin: item for item in plugins.load_all()}
    plugins.kinds()
    if not plugins.installed:
        yield DoctorFinding("plugins", "note", "none is installed, so no config can be run")
    for plugin in plugins.installed:
        failure = plugins.failure(plugin)
        topic = f"plugin {plugin.name}"
        if failure is not None:
            state: Literal["note", "problem"] = "note" if failure.state == "blocked" else "problem"
            yield DoctorFinding(
                topic, state, f"{plugin.origin} is {failure.state}: {failure.reason}"
            )
            continue
        broken = list(_broken_components(plugins, loaded[plugin]))
        yield from broken
        if not broken:
            count = sum(map(len, loaded[plugin].components.values()))
            milliseconds = loaded[plugin].seconds * 1e3
            slow = milliseconds > 500
            text = f"{plugin.origin}, {count} components, loaded in {milliseconds:.0f} ms"
            hint = ": that slows every command down, import heavy libraries in `open`"
            yield DoctorFinding(topic, "note" if slow else "ok", text + (hint if slow else ""))


def _broken_components(plugins: Plugins, loaded: Any) -> Iterator[DoctorFinding]:
    from orchestrion._config.components import shaper_of
    from orchestrion._config.shapes import UnsupportedError

    shaper = shaper_of(plugins)
    topic = f"plugin {loaded.plugin.name}"
    kinds = plugins.kinds()
    for kind, components in loaded.components.items():
        if kind not in kinds:
            text = (
                f"{loaded.plugin.origin} supplies components of kind {kind!r}, which no installed "
                "plugin defines"
            )
            yield DoctorFinding(topic, "problem", text)
            continue
        for component in components.values():
            candidate = Found(kinds[kind], component, loaded.plugin)
            try:
                shaper.settings(plugins.component_class(candidate), wired=True)
            except UnsupportedError as exc:
                yield DoctorFinding(topic, "problem", f"{candidate} cannot be configured: {exc}")
            except OrchestrionError as exc:
                yield DoctorFinding(topic, "problem", str(exc))


def _shared_names(plugins: Plugins) -> Iterator[DoctorFinding]:
    """Check for names that two distributions supply, so that a config must qualify them."""
    owners: dict[tuple[str, str], list[Found]] = {}
    for candidate in plugins.components():
        owners.setdefault((candidate.kind.name, candidate.component.name), []).append(candidate)
    for (kind, name), suppliers in owners.items():
        if len(suppliers) > 1:
            origins = " and ".join(candidate.plugin.origin for candidate in suppliers)
            choices = " or ".join(repr(candidate.qualified) for candidate in suppliers)
            text = f"{kind} {name!r} is supplied by {origins}; a config must say {choices}"
            yield DoctorFinding("components", "problem", text)


def _commands(plugins: Plugins) -> Iterator[DoctorFinding]:
    from orchestrion._cli import COMMANDS
    from orchestrion._discovery import COMMANDS as GROUP
    from orchestrion._discovery import installed

    owners: dict[str, list[str]] = {}
    for plugin in installed(GROUP):
        owners.setdefault(plugin.name, []).append(plugin.origin)
    for name, origins in owners.items():
        if name in COMMANDS:
            text = (
                f"{' and '.join(origins)} supplies a command {name!r}; core's command of that name "
                "is used"
            )
            yield DoctorFinding("commands", "problem", text)
        elif len(origins) > 1:
            text = f"command {name!r} is supplied by {' and '.join(origins)}"
            yield DoctorFinding("commands", "problem", text)


def _extras(plugins: Plugins) -> Iterator[DoctorFinding]:
    """Check for extras of plugins of which a package is missing."""
    import re

    for name in sorted({"orchestrion", *(p.distribution for p in plugins.installed)}):
        for requirement in _requirements(name):
            extra = re.search(r"""extra\s*==\s*["']([^"']+)["']""", requirement)
            package = re.match(r"[A-Za-z0-9._-]+", requirement)
            if extra is None or package is None:
                continue
            if _version(package[0]) is None:
                text = f"{package[0]} is missing: pip install '{name}[{extra[1]}]' if you need it"
                yield DoctorFinding(f"extra {extra[1]}", "note", text)


def _requirements(name: str) -> list[str]:
    """Return the requirements of a distribution; none if its metadata cannot be read."""
    from importlib.metadata import distribution

    try:
        return distribution(name).requires or []
    except Exception:  # damaged metadata may raise any error
        return []


def _version(name: str) -> str | None:
    """Return a distribution's version; "" if it cannot be read, None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name) or ""
    except PackageNotFoundError:
        return None
    except Exception:
        return ""


def _keys(plugins: Plugins) -> Iterator[DoctorFinding]:
    """Check that the variables in the current folder's config are set; list other keys."""
    needed = _config_variables()
    for name, present in needed.items():
        text = f"{name} is set" if present else f"{name} is not set, and the config here needs it"
        yield DoctorFinding("keys", "ok" if present else "problem", text)
    unused = [n for n in sorted(os.environ) if n.endswith("_API_KEY") and n not in needed]
    for name in unused:
        yield DoctorFinding("keys", "ok", f"{name} is set")


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


def _plugins_own(plugins: Plugins) -> Iterator[DoctorFinding]:
    """Run the plugins' own checks; one that raises is a problem of that plugin."""
    for loaded in plugins.load_all():
        topic = f"plugin {loaded.plugin.name}"
        check = getattr(loaded.namespace, "orchestrion_doctor", None)
        if check is None:
            continue
        try:
            for name, state, text in check():
                if state not in ("ok", "note", "problem"):
                    raise ValueError(f"a finding's state is {state!r}")
                yield DoctorFinding(name, state, text)
        except Exception as exc:
            text = f"{loaded.plugin.origin}: its checks failed: {type(exc).__name__}: {exc}"
            yield DoctorFinding(topic, "problem", text)


def _disk(plugins: Plugins) -> Iterator[DoctorFinding]:
    free = shutil.disk_usage(Path.cwd()).free
    low = free < _LOW_DISK
    text = f"{free / (1 << 30):.1f} GiB free here" + (": runs may not fit" if low else "")
    yield DoctorFinding("disk", "problem" if low else "ok", text)
    if not os.access(Path.cwd(), os.W_OK):
        yield DoctorFinding("disk", "note", f"{Path.cwd()} cannot be written: set run.directory")


_CHECKS: tuple[Callable[[Plugins], Iterator[DoctorFinding]], ...] = (
    _python,
    _plugins,
    _shared_names,
    _commands,
    _extras,
    _keys,
    _disk,
    _plugins_own,
)
