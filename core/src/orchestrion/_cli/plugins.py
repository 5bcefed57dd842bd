"""`orchestrion plugins`: what is installed, from metadata; what it supplies, by loading it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orchestrion._cli.common import block_option, emit, json_option, plugins_of, table

if TYPE_CHECKING:
    from orchestrion._discovery import Plugin
    from orchestrion._plugins import Plugins


@click.command("plugins")
@click.argument("name", required=False)
@click.option("--components", is_flag=True, help="Load every plugin and show what it supplies.")
@block_option
@json_option
def command(name: str | None, components: bool, block: tuple[str, ...], as_json: bool) -> None:
    """Show what is installed, or in detail NAME: a plugin, its distribution, or a component.

    Without options nothing is imported: only metadata is read.
    """
    plugins = plugins_of(block)
    if name is not None:
        details = [_detail(plugins, *owner) for owner in _named(plugins, name)]
        if as_json:
            emit({"plugin": details[0]} if len(details) == 1 else {"plugins": details})
        else:
            for detail in details:
                _print_detail(detail)
        return
    if components:
        plugins.load_all()
    facts = [_facts(plugins, plugin, components) for plugin in plugins.installed]
    if as_json:
        emit({"plugins": facts})
    elif facts:
        _print_list(facts, components)
    else:
        click.echo("no plugins are installed")


def _named(plugins: Plugins, name: str) -> list[tuple[Plugin, str]]:
    """Return the plugin of this name, or those that supply a component of it, with that name."""
    from orchestrion._errors import PluginError
    from orchestrion._suggest import did_you_mean

    try:
        plugin = plugins.get(name)
    except PluginError:
        supplied = plugins.components()
        owners = [item.plugin for item in supplied if item.component.name == name]
        if owners:
            return [(owner, name) for owner in dict.fromkeys(owners)]
        close = did_you_mean(name, {item.component.name for item in supplied})
        if not close or any(name in (p.name, p.distribution) for p in plugins.installed):
            raise
        raise PluginError(f"no plugin or component is called {name!r}{close}") from None
    plugins.load(plugin)
    return [(plugin, "")]


def _facts(plugins: Plugins, plugin: Plugin, components: bool) -> dict[str, Any]:
    failure = plugins.failure(plugin)
    facts: dict[str, Any] = {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "state": failure.state if failure else "installed",
        "reason": failure.reason if failure else "",
        "summary": plugin.summary,
        "module": plugin.value,
        "location": plugin.location,
    }
    if components and failure is None:
        loaded = plugins.load(plugin)
        facts["milliseconds"] = round(loaded.seconds * 1e3, 1)
        facts["components"] = [
            {"kind": kind, "name": c.name, "summary": c.summary, "version": c.version}
            for kind, named in loaded.components.items()
            for c in named.values()
        ]
    return facts


def _print_list(facts: list[dict[str, Any]], components: bool) -> None:
    rows = [
        [f["name"], f"{f['distribution']} {f['version']}", f["state"], f["reason"] or f["summary"]]
        for f in facts
    ]
    if not components:
        click.echo(table(rows))
        return
    for row, fact in zip(rows, facts, strict=True):
        time = f"  ({fact['milliseconds']} ms)" if "milliseconds" in fact else ""
        click.echo("  ".join(row) + time)
        if supplied := fact.get("components"):
            click.echo(table([["   ", c["kind"], c["name"], c["summary"]] for c in supplied]))


def _detail(plugins: Plugins, plugin: Plugin, only: str = "") -> dict[str, Any]:
    """Return facts about a plugin, with the settings of its components, or of those of a name."""
    from orchestrion._discovery import COMMANDS, installed
    from orchestrion._hooks import LIFECYCLE

    facts = _facts(plugins, plugin, components=True)
    facts["commands"] = [
        command.name
        for command in installed(COMMANDS)
        if command.distribution == plugin.distribution
    ]
    namespace = plugins.load(plugin).namespace
    facts["hooks"] = [hook for hook in LIFECYCLE if hasattr(namespace, hook)]
    facts["components"] = [c for c in facts["components"] if only in ("", c["name"])]
    for component in facts["components"]:
        use = f"{plugin.distribution}:{component['name']}"
        component |= _settings(plugins, component["kind"], use)
    return facts


def _settings(plugins: Plugins, kind: str, use: str) -> dict[str, Any]:
    """Return a component's settings, or the problem that keeps them from being read."""
    from orchestrion._config.components import shaper_of
    from orchestrion._config.nodes import OMIT
    from orchestrion._config.plain import Dumper
    from orchestrion._config.shapes import UnsupportedError
    from orchestrion._errors import PluginError

    shaper = shaper_of(plugins)
    dumper = Dumper(shaper, {})
    try:
        cls = plugins.component_class(plugins.find(kind, use))
        settings = shaper.settings(cls, wired=True)
    except (PluginError, UnsupportedError) as exc:
        return {"problem": str(exc)}
    rows = []
    for setting in settings:
        default = None if setting.required else dumper.default(setting)
        rows.append(
            {
                "name": setting.name,
                "type": setting.shape.expected,
                "required": setting.required,
                "default": None if default is OMIT else default,
                "learnable": setting.learnable,
                "help": setting.help,
            }
        )
    return {"settings": rows}


def _print_detail(detail: dict[str, Any]) -> None:
    import shutil

    click.echo(f"{detail['name']}  {detail['distribution']} {detail['version']}")
    facts = [
        ("summary", detail["summary"]),
        ("module", detail["module"]),
        ("location", detail["location"]),
        ("hooks", ", ".join(detail["hooks"])),
        ("commands", ", ".join(detail["commands"])),
    ]
    formatter = click.HelpFormatter(width=min(shutil.get_terminal_size().columns, 100))
    with formatter.indentation():
        formatter.write_dl([(name, text) for name, text in facts if text])
    for component in detail["components"]:
        formatter.write_paragraph()
        formatter.write_text(f"{component['kind']} {component['name']}: {component['summary']}")
        with formatter.indentation():
            if "problem" in component:
                formatter.write_text(f"broken: {component['problem']}")
            if rows := [(row["name"], _described(row)) for row in component.get("settings", ())]:
                formatter.write_dl(rows)
    click.echo(formatter.getvalue(), nl=False)


def _described(setting: dict[str, Any]) -> str:
    import json

    default = "required" if setting["required"] else f"default {json.dumps(setting['default'])}"
    facts = [setting["type"], default, *(["learnable"] if setting["learnable"] else [])]
    return f"{setting['help']} [{'; '.join(facts)}]".strip()
