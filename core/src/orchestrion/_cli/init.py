"""`orchestrion init`: a config to start from, with every setting of what it uses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion._cli.common import note, plugins_of
from orchestrion._errors import ConfigError, PluginError, UsageError

if TYPE_CHECKING:
    from orchestrion._config.shapes import Shaper
    from orchestrion._plugins import Plugins

_SCHEMA = "orchestrion.schema.json"
_SINGLE = ("task", "policy", "reward", "trainer")
_NEEDED = ("task", "agent", "policy")
_ENDS = "terminator"
"""The agent of orchestrion-basics that ends the episode."""


@click.command("init")
@click.argument("config", default="orchestrion.yaml", type=click.Path(path_type=Path))
@click.option("--task", help="The task to use.")
@click.option("--agent", "agents", multiple=True, help="An agent to use; any number of times.")
@click.option("--policy", help="The policy to use.")
@click.option("--reward", help="The reward function to use.")
@click.option("--trainer", help="The trainer to use.")
@click.option("--yes", is_flag=True, help="Do not ask; leave out what no option names.")
@click.option("--force", is_flag=True, help="Overwrite CONFIG.")
def command(config: Path, agents: tuple[str, ...], yes: bool, force: bool, **uses: Any) -> None:
    """Write CONFIG (default: orchestrion.yaml) from components that are installed.

    Settings with a default stand in comments. On a terminal it asks for what the options leave
    open, unless --yes is given. A JSON Schema for editors is written beside it.
    """
    import json

    from orchestrion._schema import json_schema

    if config.exists() and not force:
        raise UsageError(f"{config} exists; --force overwrites it")
    plugins = plugins_of()
    chosen: dict[str, list[str]] = {kind: [uses[kind]] if uses[kind] else [] for kind in _SINGLE}
    chosen["agent"] = list(agents)
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        _ask(plugins, chosen)
    for kind, names in chosen.items():
        for name in names:
            plugins.find(kind, name)
    text = "\n".join(_lines(plugins, chosen)) + "\n"
    _write(config, text)
    schema = json.dumps(json_schema(plugins), indent=2, ensure_ascii=False)
    _write(config.parent / _SCHEMA, schema + "\n")
    note(f"wrote {config} and {config.parent / _SCHEMA}")
    _note_problems(config, plugins)


def _ask(plugins: Plugins, chosen: dict[str, list[str]]) -> None:
    for kind in ("task", "agent", "policy", "reward", "trainer"):
        names = sorted({f.component.name for f in plugins.components(kind)})
        if chosen[kind] or not names:
            continue
        note(f"{kind}: {', '.join(names)}")
        several = " (several: with commas)" if kind == "agent" else ""
        optional = "" if kind in _NEEDED else " (empty: none)"
        question = f"{kind}{several}{optional}"
        answer = click.prompt(question, default="", show_default=False, err=True)
        chosen[kind] = [name.strip() for name in answer.split(",") if name.strip()]


def _lines(plugins: Plugins, chosen: dict[str, list[str]]) -> Iterator[str]:
    from orchestrion._config.components import shaper_of

    shaper = shaper_of(plugins)
    yield f"# yaml-language-server: $schema={_SCHEMA}"
    yield "# Every setting: orchestrion plugins NAME. Check: orchestrion validate."
    yield "seed: 0"
    yield ""
    yield from _section(plugins, shaper, "task", chosen["task"])
    yield "agents:"
    for name, use in _team(plugins, chosen):
        yield f"  {name}:"
        yield from _component(plugins, shaper, "agent", use, "    ")
    if not chosen["agent"]:
        yield f"  # NAME: {{use: ...}}{_choices(plugins, 'agent')}"
    yield ""
    for kind in ("policy", "reward", "trainer"):
        yield from _section(plugins, shaper, kind, chosen[kind])
    yield "limits:"
    yield "  turns: 100"
    yield "budget:"
    yield "  usd: 0"


def _team(plugins: Plugins, chosen: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Return a name and a component for each agent; names are unique.

    A trained policy learns when to end an episode by choosing an agent that ends it: one is added.
    """
    uses = list(chosen["agent"])
    installed = {candidate.component.name for candidate in plugins.components("agent")}
    if uses and chosen["trainer"] and _ENDS in installed - {use.rpartition(":")[2] for use in uses}:
        uses.append(_ENDS)
    team: dict[str, str] = {}
    for use in uses:
        name = use.rpartition(":")[2]
        count = 1 + sum(other.rpartition(":")[2] == name for other in team.values())
        team[name if count == 1 else f"{name}_{count}"] = use
    return list(team.items())


def _section(plugins: Plugins, shaper: Shaper, kind: str, uses: Sequence[str]) -> Iterator[str]:
    if uses:
        yield f"{kind}:"
        yield from _component(plugins, shaper, kind, uses[0], "  ")
    else:
        yield f"# {kind}: {{use: ...}}{_choices(plugins, kind)}"
    yield ""


def _choices(plugins: Plugins, kind: str) -> str:
    from orchestrion._suggest import listed

    names = {f.component.name for f in plugins.components(kind)}
    return f" # one of: {listed(names, 20)}" if names else f" # no {kind} is installed"


def _component(plugins: Plugins, shaper: Shaper, kind: str, use: str, pad: str) -> Iterator[str]:
    from orchestrion._config.nodes import OMIT
    from orchestrion._config.plain import Dumper
    from orchestrion._config.yaml import to_yaml

    component = plugins.find(kind, use)
    quoted = to_yaml({"use": use}).strip()
    yield f"{pad}{quoted} # {component.component.summary}"
    dumper = Dumper(shaper, {})
    for setting in shaper.settings(plugins.component_class(component), wired=True):
        about = f" # {setting.help}" if setting.help else ""
        if setting.required:
            yield f"{pad}{setting.name}: null # required: {setting.shape.expected}. {setting.help}"
        elif (default := dumper.default(setting)) is OMIT:
            about = f": {setting.help}" if setting.help else ""
            yield f"{pad}# {setting.name} ({setting.shape.expected}){about}"
        else:
            for line in to_yaml({setting.name: default}).splitlines():
                yield f"{pad}# {line}{about}"
                about = ""


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {exc.strerror}") from exc


def _note_problems(config: Path, plugins: Plugins) -> None:
    from orchestrion.config import load

    try:
        load(config, plugins=plugins)
    except (ConfigError, PluginError) as exc:
        note(f"still to be filled in:\n{exc}")
    else:
        note("it can be read; `orchestrion validate` also opens its parts")
