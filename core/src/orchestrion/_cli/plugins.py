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
@click.pass_context
def command(
    ctx: click.Context, name: str | None, components: bool, block: tuple[str, ...], as_json: bool
) -> None:
    """Show what is installed, or one plugin (by its name or its distribution's) in detail.

    Without options nothing is imported: only metadata is read.
    """
    plugins = plugins_of(ctx, block)
    if name is not None:
        plugin = plugins.get(name)
        plugins.load(plugin)
        detail = _detail(plugins, plugin)
        if as_json:
            emit({"plugin": detail})
        else:
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
        rows_of = [["   ", c["kind"], c["name"], c["summary"]] for c in fact.get("components", ())]
        if rows_of:
            click.echo(table(rows_of))


def _detail(plugins: Plugins, plugin: Plugin) -> dict[str, Any]:
    """Return everything about one plugin, with the settings of its components."""
    from orchestrion._config.components import kind_of
    from orchestrion._config.shapes import Shaper
    from orchestrion._hooks import LIFECYCLE

    shaper = Shaper(kind_of(plugins))
    facts = _facts(plugins, plugin, components=True)
    facts["editable"] = _editable(plugin)
    facts["commands"] = _commands(plugin)
    loaded = plugins.load(plugin)
    facts["hooks"] = [hook for hook in LIFECYCLE if hasattr(loaded.namespace, hook)]
    for component in facts["components"]:
        component |= _settings(plugins, plugin, shaper, component["kind"], component["name"])
    return facts


def _settings(
    plugins: Plugins, plugin: Plugin, shaper: Any, kind: str, name: str
) -> dict[str, Any]:
    from orchestrion._config.plain import OMIT, Dumper
    from orchestrion._config.shapes import UnsupportedError
    from orchestrion._config.wording import expected
    from orchestrion._errors import PluginError

    dumper = Dumper(shaper, {})
    try:
        cls = plugins.component_class(plugins.find(kind, f"{plugin.distribution}:{name}"))
        settings = shaper.settings(cls, wired=True)
    except (PluginError, UnsupportedError) as exc:
        return {"problem": str(exc)}
    rows = []
    for setting in settings:
        default = None if setting.required else dumper.default(setting)
        rows.append(
            {
                "name": setting.key,
                "type": expected(setting.shape),
                "required": setting.required,
                "default": None if default is OMIT else default,
                "learnable": setting.learnable,
                "help": setting.help,
            }
        )
    return {"settings": rows}


def _print_detail(detail: dict[str, Any]) -> None:
    import json

    click.echo(f"{detail['name']}  {detail['distribution']} {detail['version']}")
    facts = [
        ("summary", detail["summary"]),
        ("module", detail["module"]),
        ("location", detail["location"] + (" (editable)" if detail["editable"] else "")),
        ("hooks", ", ".join(detail["hooks"])),
        ("commands", ", ".join(detail["commands"])),
    ]
    click.echo(table([["  " + name, text] for name, text in facts if text]))
    for component in detail["components"]:
        click.echo(f"\n{component['kind']} {component['name']}: {component['summary']}")
        if "problem" in component:
            click.echo(f"  broken: {component['problem']}")
        rows = [
            [
                f"  {row['name']}",
                row["type"] + (" (learnable)" if row["learnable"] else ""),
                "required" if row["required"] else json.dumps(row["default"]),
                row["help"],
            ]
            for row in component.get("settings", ())
        ]
        if rows:
            click.echo(table(rows))


def _editable(plugin: Plugin) -> bool:
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(plugin.distribution).read_text("direct_url.json") or "{}"
        return bool(json.loads(text).get("dir_info", {}).get("editable"))
    except (PackageNotFoundError, ValueError, AttributeError):
        return False


def _commands(plugin: Plugin) -> list[str]:
    from orchestrion._discovery import COMMANDS, installed

    return [c.name for c in installed(COMMANDS) if c.distribution == plugin.distribution]
