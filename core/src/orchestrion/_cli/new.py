"""`orchestrion new`: a plugin package to start from."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from orchestrion._cli.common import note, plugins_of
from orchestrion._errors import PluginError, UsageError


@click.command("new")
@click.argument("kind", type=click.Choice(["agent", "task", "policy", "reward", "trainer"]))
@click.argument("name")
@click.option(
    "--dir",
    "parent",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to make the folder orchestrion-NAME; by default here.",
)
def command(kind: str, name: str, parent: Path) -> None:
    """Write a distribution that supplies an agent, task, policy, reward or trainer called NAME.

    It works as it is: a tiny component with tests, and a config that uses it. Nothing is
    downloaded, and nothing that exists is overwritten.
    """
    from orchestrion._scaffold import Package, write

    package = Package.of(kind, name)
    plugins = plugins_of()
    try:
        other = plugins.get(name)
    except PluginError:
        folder = write(package, parent)
    else:
        raise UsageError(f"plugin name {name!r} is taken by {other.origin}; choose another")
    shown_path = str(folder) if parent.is_absolute() else os.path.relpath(folder)
    place = shown_path if os.path.isabs(shown_path) else f"./{shown_path}"
    quoted, everything = shlex.quote(place), shlex.quote(f"{place}[testing,example]")
    verb = "train" if kind == "trainer" else "eval"
    click.echo(f"wrote {shown_path}; next:")
    click.echo(f"  pip install -e {everything}")
    click.echo(f"  orchestrion check {name}")
    click.echo(f"  orchestrion {verb} {quoted}/example.yaml")
    for rival in plugins.components(kind):
        if rival.component.name == name:
            note(f"warning: there is {rival}, too; configs must write {package.qualified!r}")
