"""`orchestrion train`: from a config to a trained, evaluated run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orchestrion._cli import common


@click.command("train")
@common.config_argument
@common.override_option
@common.block_option
@common.verbose_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what would be done and what it costs at most; do none of it.",
)
@click.option("--smoke", is_flag=True, help="Try it out first: five problems, a few iterations.")
@common.json_option
@click.pass_context
def command(
    ctx: click.Context,
    config: Path | None,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    verbose: int,
    dry_run: bool,
    smoke: bool,
    as_json: bool,
) -> int:
    """Train what CONFIG (default: orchestrion.yaml) describes.

    Every run has a folder of its own under runs/. What was learned is evaluated on held-out
    problems beside the baselines of the config, all by the same evaluator.
    """
    path = common.find_config(config)
    loaded = common.load_config(ctx, path, overrides, block)
    if smoke:
        from orchestrion._cli.smoke import smaller

        changes = smaller(loaded)
        loaded = common.load_config(ctx, path, [*overrides, *changes.overrides], block)
        for line in changes.lines:
            common.note(line)
    if dry_run:
        from orchestrion._cli.dry_run import describe

        describe(loaded, as_json)
        return 0

    from orchestrion._cli.driving import carry_out
    from orchestrion._training import create_run

    observers = loaded.observers()  # before there is a folder: one of them may refuse
    facts: dict[str, Any] = {"smoke": True} if smoke else {}
    with create_run(loaded, suffix="-smoke" if smoke else "", **facts) as store:
        verbose = verbose or common.options(ctx).verbose
        return carry_out(loaded, store, observers, verbose, as_json)
