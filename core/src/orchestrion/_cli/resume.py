"""`orchestrion resume`: go on with a run."""

from __future__ import annotations

import click

from orchestrion._cli.common import (
    block_option,
    json_option,
    load_config,
    note,
    override_option,
    verbose_option,
)
from orchestrion._errors import UsageError


@click.command("resume")
@click.argument("run")
@override_option
@block_option
@verbose_option
@json_option
def command(
    run: str, overrides: tuple[str, ...], block: tuple[str, ...], verbose: int, as_json: bool
) -> None:
    """Go on with RUN, a folder or its name, from its newest valid checkpoint.

    The result is the same as that of a run that was never interrupted. A finished run prints its
    report again. -o may change what does not decide the result: budget.*, most of run.*, and the
    `ranks` of a model.
    """
    from orchestrion._cli.driving import carry_out
    from orchestrion._store import find_run
    from orchestrion._training import resumed_store

    directory = find_run(run)
    path = directory / "config.yaml"
    config = load_config(path, overrides, block)
    if overrides and not config.is_unchanged(load_config(path, (), block).digest):
        raise UsageError(
            f"{directory}: `-o {' -o '.join(overrides)}` changes what decides the result, which "
            "is fixed since the run began; leave it out, or start a new run with it"
        )
    with resumed_store(config, directory) as store:
        note(*store.usable().notes())
        if store.status == "completed":
            note(f"{directory}: the run is complete, and nothing is left to do; its report again:")
        carry_out(config, store, config.observers(), verbose, as_json)
