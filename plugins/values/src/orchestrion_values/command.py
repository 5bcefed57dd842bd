"""The command `statistics`: export and merge what bandits have tried."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion import Saved, UsageError

if TYPE_CHECKING:
    from orchestrion_values.tries import Tries


@click.command("statistics")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--cap",
    type=click.FloatRange(min=0, min_open=True),
    help="Count each choice for at most so many tries.",
)
def statistics(sources: tuple[str, ...], cap: float | None) -> int:
    """Print what bandits have tried, as JSON, the sums of all sources.

    A source is a run of the trainer `bandit`, or of `auto` where it picked that, or a file of
    statistics. `trainer: {use: bandit, start: FILE}` begins with them.
    """
    import json

    from orchestrion_values.tries import Tries

    parts = [_tries(source) for source in sources]
    names = list(dict.fromkeys(name for part in parts for name in part.names))
    total = reduce(Tries.merged, parts, Tries.none(names, parts[0].columns))
    click.echo(json.dumps((total if cap is None else total.capped(cap)).exported()))
    return 0


def _tries(source: str) -> Tries:
    from orchestrion_values.tries import read_tries

    if Path(source).is_file():
        return read_tries(Path(source))
    from orchestrion.runs import newest_states

    _, states = newest_states(source)
    all_tries = [
        tries
        for path, saved in states.items()
        if path.partition(".")[0].partition("[")[0] == "trainer"
        and (tries := _of_state(saved)) is not None
    ]
    if not all_tries:
        raise UsageError(f"{source}: the run has no statistics of the trainer bandit")
    return all_tries[-1]


def _of_state(saved: Saved) -> Tries | None:
    """Return the statistics in a trainer's saved state, if any."""
    from orchestrion_values.arrays import unpack
    from orchestrion_values.tries import Tries

    data: Any = saved.data
    if isinstance(data, Mapping) and "picked" in data:
        data = data["data"]
    if not isinstance(data, Mapping) or not {"squares", "rewards", "spread"} <= set(saved.arrays):
        return None
    return Tries.of_state(unpack(saved.arrays), data)
