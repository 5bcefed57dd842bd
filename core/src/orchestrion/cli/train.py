"""`orchestrion train`: from a config to a trained, evaluated run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion.cli.common import (
    aside,
    block_option,
    config_argument,
    emit,
    find_config,
    json_option,
    load_config,
    override_option,
)
from orchestrion.errors import UsageError

if TYPE_CHECKING:
    from orchestrion.config import Config
    from orchestrion.records import Split

__all__ = ["command"]


@click.command("train")
@config_argument
@override_option
@block_option
@click.option("--verbose", is_flag=True, help="A line and all metrics for every iteration.")
@click.option("--show-best", is_flag=True, help="Print the best training episode at the end.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; do none of it.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    config: Path | None,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    verbose: bool,
    show_best: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Train what CONFIG (default: orchestrion.yaml) describes.

    Every run has a folder of its own under runs/. What was learned is evaluated on held-out
    problems beside the baselines of the config, all by the same evaluator.
    """
    path = find_config(config)
    loaded = load_config(ctx, path, overrides, block)
    if dry_run:
        _describe(loaded, as_json)
        return 0

    from orchestrion.cli.driving import carry_out
    from orchestrion.run import manifest
    from orchestrion.store import RunStore

    settings = loaded.run
    keep = {"retention": settings.retention, "keep": settings.keep}
    text, facts = loaded.to_yaml(), manifest(loaded)
    root = _folder(settings.directory)
    if settings.name is not None:
        store = RunStore.create(root / settings.name, text, facts, **keep)  # type: ignore[arg-type]
    else:
        store = RunStore.create_next(root, path.stem, text, facts, **keep)  # type: ignore[arg-type]
    with store:
        return carry_out(loaded, store, verbose, as_json, show_best)


def _folder(name: str) -> Path:
    """The folder for run folders, which need not exist yet."""
    try:
        folder = Path(name).expanduser()
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"run.directory: {name:.80} cannot be used: {reason}") from None
    above = next((one for one in (folder, *folder.parents) if os.path.lexists(one)), Path())
    if not above.is_dir():
        raise UsageError(f"run.directory: {above} is not a folder")
    return folder


def _describe(config: Config, as_json: bool) -> None:
    """What a run would do, from the config alone: nothing is opened and nothing is called."""
    from orchestrion.guards import iterations_of, place_of, problems_of

    names: tuple[Split, ...] = ("train", "validation", "test")
    task, place = config.components[config.task].component, place_of(config, config.task)
    with aside():
        splits = {split: len(problems_of(task, split, place)) for split in names}
        stages = [
            {"trainer": one.use, "iterations": iterations_of(one.component, place_of(config, path))}
            for path, one in ((path, config.components[path]) for path in config.stages)
        ]
    facts = {
        "task": config.components[config.task].use,
        "problems": splits,
        "team": [path.partition(".")[2] for path in config.roster],
        "policy": config.components[config.policy].use,
        "stages": stages,
        "baselines": list(config.evaluation.baselines),
        "evaluated_on": config.evaluation.split,
        "plugins": [plugin.origin for plugin in config.plugins_used],
    }
    if as_json:
        emit({"dry_run": True, **facts})
        return
    click.echo(f"{config.source}: ok, nothing was run")
    for name, value in facts.items():
        click.echo(f"  {name.replace('_', ' ')}: {_said(value)}")


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(_said(one) for one in value) or "none"
    return str(value)
