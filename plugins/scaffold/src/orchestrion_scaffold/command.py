"""`orchestrion new`: a plugin package to start from."""

from __future__ import annotations

import os
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import click

from orchestrion import UsageError
from orchestrion_scaffold.package import KINDS, Package, write


@click.command("new")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option(
    "--dir",
    "parent",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to make the folder orchestrion-NAME; by default here.",
)
def new(kind: str, name: str, parent: Path) -> None:
    """Write a distribution that supplies an agent, task, policy, reward or trainer called NAME.

    It works as it is: a tiny component with tests, and a config that uses it. Nothing is
    downloaded, and nothing that exists is overwritten.
    """
    package = Package.of(kind, name)
    for plugin in entry_points(group="orchestrion", name=name):
        owner = f"{plugin.dist.name} {plugin.dist.version}" if plugin.dist else plugin.value
        raise UsageError(f"plugin name {name!r} is taken by {owner}; choose another")
    folder = write(package, parent)
    shown_path = str(folder) if parent.is_absolute() else os.path.relpath(folder)
    place = shown_path if os.path.isabs(shown_path) else f"./{shown_path}"
    quoted, everything = shlex.quote(place), shlex.quote(f"{place}[testing,example]")
    verb = "train" if kind == "trainer" else "eval"
    click.echo(f"wrote {shown_path}; next:")
    click.echo(f"  pip install -e {everything}")
    click.echo(f"  orchestrion check {name}")
    click.echo(f"  orchestrion {verb} {quoted}/example.yaml")
