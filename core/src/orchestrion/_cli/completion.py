"""`orchestrion completion`: completion for shells."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: eval "$(orchestrion completion bash)"
    """
    from click.shell_completion import get_completion_class

    cls = get_completion_class(shell)
    assert cls is not None  # click has all three
    root = ctx.find_root()
    # Not through `source()`: for bash it runs the shell to look at its version.
    completion = cls(root.command, {}, "orchestrion", "_ORCHESTRION_COMPLETE")
    click.echo(completion.source_template % completion.source_vars())
