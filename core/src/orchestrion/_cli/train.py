"""`orchestrion train`: from a config to a trained, evaluated run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orchestrion._cli.common import (
    block_option,
    config_argument,
    json_option,
    load_config,
    note,
    override_option,
    verbose_option,
)


@click.command("train")
@config_argument
@override_option
@block_option
@verbose_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what would be done and what it costs at most; do none of it.",
)
@click.option("--smoke", is_flag=True, help="Try it out first: five problems, a few iterations.")
@json_option
def command(
    config: Path,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    verbose: int,
    dry_run: bool,
    smoke: bool,
    as_json: bool,
) -> None:
    """Train what CONFIG (default: orchestrion.yaml) describes.

    Every run has a folder of its own under runs/. What was learned is evaluated on held-out
    problems beside the baselines of the config, all by the same evaluator.
    """
    loaded = load_config(config, overrides, block)
    if smoke:
        from orchestrion._cli.smoke import smaller

        changes, lines = smaller(loaded)
        loaded = load_config(config, [*overrides, *changes], block)
        note(*lines)
    if dry_run:
        from orchestrion._cli.dry_run import describe
        from orchestrion._store.names import run_folder

        describe(loaded, as_json, run_folder(loaded.run.directory))
        return

    from orchestrion._cli.driving import carry_out
    from orchestrion._training import create_run

    observers = loaded.observers()  # before there is a folder: one of them may refuse
    facts: dict[str, Any] = {"smoke": True} if smoke else {}
    with create_run(loaded, suffix="-smoke" if smoke else "", **facts) as store:
        carry_out(loaded, store, observers, verbose, as_json)
