"""`orchestrion validate`: check a config, and whether its parts work together; run nothing."""

from __future__ import annotations

import atexit
import gc
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion._cli.common import (
    block_option,
    config_argument,
    emit,
    json_option,
    load_config,
    note,
    override_option,
)
from orchestrion._errors import ConfigError, OrchestrionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrion.config import Config


@click.command("validate")
@config_argument
@override_option
@block_option
@click.option("--resolved", is_flag=True, help="Print it with every default, without secrets.")
@click.option("--no-open", is_flag=True, help="Read the file only; load no table, model or tool.")
@json_option
def command(
    config: Path,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    resolved: bool,
    no_open: bool,
    as_json: bool,
) -> int:
    """Check CONFIG (default: orchestrion.yaml) without running it.

    Reports at once everything that is wrong in the file. Then opens the components, as a run
    would, and asks them whether they can work together. Imports the plugins it names; for a name
    like `neural` that does not say whose it is (`reinforce:neural` does), all that are not blocked.
    With --no-open it imports no heavy library.
    """
    # As Python ends, it searches its heap for cycles, which takes a seventh of the CPU time of this
    # command. Other commands do not skip that: it also closes files that plugins left open.
    atexit.register(gc.freeze)
    try:
        loaded = load_config(config, overrides, block)
        counts, warnings = dict[str, int](), list[str]()
        if not no_open:
            from orchestrion._cli.looping import in_loop  # imports asyncio

            counts, warnings = in_loop(_open(loaded))
    except OrchestrionError as exc:
        if not as_json:
            raise
        problems = exc.problems if isinstance(exc, ConfigError) else [str(exc)]
        emit({"config": str(config), "ok": False, "problems": [_problem(p) for p in problems]})
        return exc.exit_code
    if as_json:
        emit(
            {
                "config": str(config),
                "ok": True,
                "problems": [],
                "warnings": warnings,
                "splits": counts,
                "digest": loaded.digest,
                "roster": list(loaded.roster),
                "components": {name: entry.use for name, entry in loaded.components.items()},
                "plugins": {p.distribution: p.version for p in loaded.plugins_used},
                **({"resolved": loaded.resolved()} if resolved else {}),
            }
        )
    elif resolved:
        click.echo(loaded.to_yaml(), nl=False)
    else:
        click.echo(f"{config}: ok")
        for line in _summary(loaded, counts):
            click.echo(f"  {line}")
        note(*(f"warning: {text}" for text in warnings))
    return 0


async def _open(config: Config) -> tuple[dict[str, int], list[str]]:
    """Open the components, ask whether they fit; return the sizes of the splits, and doubts."""
    from orchestrion._readiness import doubts, ready

    async with ready(config) as (opened, sizes):
        return {str(split): count for split, count in sizes.items()}, doubts(opened)


def _problem(problem: str) -> dict[str, object]:
    from orchestrion.config import Problem

    if isinstance(problem, Problem):
        return vars(problem)
    return {"file": "", "line": None, "path": "", "message": problem}


def _summary(config: Config, counts: Mapping[str, int]) -> list[str]:
    use = {path: entry.use for path, entry in config.components.items()}
    names = ", ".join(path.partition(".")[2] for path in config.roster)
    lines = [
        f"task {use[config.task]}, policy {use[config.policy]}"
        + (f", reward {use[config.reward]}" if config.reward else ""),
        f"team of {len(config.roster)}: {names}",
    ]
    if config.stages:
        lines.append("trained by " + ", then ".join(use[path] for path in config.stages))
    if config.run.executor is not None:
        lines.append(
            f"episodes in {config.run.executor.workers} workers; each keeps results of pure agents "
            "and of `calls.reuse` for itself"
        )
    if config.evaluation.baselines:
        lines.append("compared with " + ", ".join(config.evaluation.baselines))
    if counts:
        sizes = ", ".join(f"{split} {count:,}" for split, count in counts.items())
        lines.append(f"problems: {sizes}")
    lines.append("plugins: " + ", ".join(p.origin for p in config.plugins_used))
    return lines
