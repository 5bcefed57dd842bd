"""`orchestrion validate`: check a config without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion.cli.common import (
    block_option,
    config_argument,
    emit,
    find_config,
    json_option,
    load_config,
    override_option,
)
from orchestrion.errors import ConfigError

if TYPE_CHECKING:
    from orchestrion.config import Config

__all__ = ["command"]


@click.command("validate")
@config_argument
@override_option
@block_option
@click.option("--resolved", is_flag=True, help="Print it with every default, without secrets.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    config: Path | None,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    resolved: bool,
    as_json: bool,
) -> int:
    """Check CONFIG (default: orchestrion.yaml) without running it.

    Reports everything that is wrong at once. Imports only the plugins it names, and no heavy
    library.
    """
    path = find_config(config)
    try:
        loaded = load_config(ctx, path, overrides, block)
    except ConfigError as exc:
        if not as_json:
            raise
        emit({"config": str(path), "ok": False, "problems": [_problem(p) for p in exc.problems]})
        return exc.exit_code
    if as_json:
        emit({"config": str(path), "ok": True, "problems": [], **_facts(loaded, resolved)})
    elif resolved:
        click.echo(loaded.to_yaml(), nl=False)
    else:
        click.echo(f"{path}: ok")
        for line in _summary(loaded):
            click.echo(f"  {line}")
    return 0


def _problem(problem: str) -> dict[str, object]:
    return {
        "file": getattr(problem, "file", ""),
        "line": getattr(problem, "line", None),
        "path": getattr(problem, "path", ""),
        "message": getattr(problem, "message", str(problem)),
    }


def _facts(config: Config, resolved: bool) -> dict[str, object]:
    facts: dict[str, object] = {
        "digest": config.digest,
        "roster": list(config.roster),
        "components": {path: entry.use for path, entry in config.components.items()},
        "plugins": {p.distribution: p.version for p in config.plugins_used},
    }
    return {**facts, "resolved": config.resolved()} if resolved else facts


def _summary(config: Config) -> list[str]:
    use = {path: entry.use for path, entry in config.components.items()}
    names = ", ".join(path.partition(".")[2] for path in config.roster)
    lines = [
        f"task {use[config.task]}, policy {use[config.policy]}"
        + (f", reward {use[config.reward]}" if config.reward else ""),
        f"team of {len(config.roster)}: {names}",
    ]
    if config.stages:
        lines.append("trained by " + ", then ".join(use[path] for path in config.stages))
    if config.evaluation.baselines:
        lines.append("compared with " + ", ".join(config.evaluation.baselines))
    lines.append("plugins: " + ", ".join(p.origin for p in config.plugins_used))
    return lines
