"""`orchestrion schema`: a JSON Schema of configs for editors and checkers."""

from __future__ import annotations

import json
from pathlib import Path

import click

from orchestrion._cli.common import block_option, note, plugins_of


@click.command("schema")
@block_option
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to a file instead."
)
def command(block: tuple[str, ...], output: Path | None) -> None:
    """Print a JSON Schema of configs, with a branch for every installed component.

    Editors complete and check by it: put `# yaml-language-server: $schema=FILE` at the top of a
    config.
    """
    from orchestrion._schema import Schema

    schema = Schema(plugins_of(block))
    text = json.dumps(schema.document(), indent=2, ensure_ascii=False)
    for problem in schema.problems:
        note(f"left out: {problem}")
    for plugin in schema.plugins.installed:
        if failure := schema.plugins.failure(plugin):
            note(f"left out: plugin {plugin} is {failure.state}: {failure.reason}")
    if output is None:
        click.echo(text)
    else:
        output.write_text(text + "\n", "utf-8")
        note(f"wrote {output}")
