"""The command `chat-presets`: list presets and copy them."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrion import UsageError
from orchestrion_chat.presets import ROLES, Role, preset_of, text_of


@click.command("chat-presets")
@click.option("--copy", "role", type=click.Choice(ROLES), help="Copy this preset into a file.")
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file; by default ROLE.yaml. An existing file is not overwritten.",
)
def chat_presets(role: Role | None, to: Path | None) -> None:
    """List the roles of `chat` agents, or copy one to change it (`preset_file: FILE`)."""
    if role is None:
        for name in ROLES:
            click.echo(f"{name:12}{preset_of(name, None).role}")
        return
    path = to if to is not None else Path(f"{role}.yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text_of(role))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    click.echo(path)
