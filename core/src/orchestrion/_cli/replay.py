"""`orchestrion replay`: a recorded run again, from its journal alone."""

from __future__ import annotations

import click

from orchestrion._cli.common import answer, block_option, emit, json_option, note
from orchestrion._cli.looping import in_loop


@click.command("replay")
@click.argument("run")
@block_option
@json_option
def command(run: str, block: tuple[str, ...], as_json: bool) -> int:
    """Run RUN (a folder or its name) again without any call, and compare the results.

    Every call is answered from the run's journal, and the network is blocked; nothing in RUN is
    changed. Trajectories, rewards, metrics, what was learned and the exports are compared byte
    for byte. Prints 'identical', or the first difference. Exit code 1 if there is one.
    """
    from orchestrion._cli.display import Display
    from orchestrion._replay import replay
    from orchestrion._store import find_run

    directory = find_run(run)
    with Display(terminal=False if as_json else None) as display:
        result = in_loop(replay(directory, display, block))
    note(*result.notes)
    exports = f", {len(result.exports)} exports" if result.exports else ""
    if as_json:
        emit(
            {
                "run": run,
                "identical": not result.difference,
                "difference": result.difference or None,
                "iterations": result.iterations,
                "evaluations": result.evaluations,
                "episodes": result.episodes,
                "exports": list(result.exports),
            }
        )
    elif result.difference:
        answer(f"not identical: {result.difference}")
    else:
        answer(
            f"identical: {result.iterations} iterations, {result.evaluations} evaluations, "
            f"{result.episodes} episodes{exports}"
        )
    return 1 if result.difference else 0
