"""`orchestrion bench`: how far a trained policy is from the best one there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrion import UsageError
from orchestrion.cli import block_option, emit, in_loop, json_option, override_option

if TYPE_CHECKING:
    from orchestrion.runs import Trained
    from orchestrion_orchestration_bench.regret import RegretReport


@click.command("bench")
@click.argument("target", metavar="RUN|CONFIG")
@override_option
@block_option
@click.option(
    "--cost-weight",
    type=click.FloatRange(min=0),
    help="Of cost in the value; by default the reward's `cost_weight`.",
)
@click.option(
    "--episodes",
    type=click.IntRange(min=2),
    default=10_000,
    show_default=True,
    help="Played where a policy cannot be evaluated exactly.",
)
@json_option
def bench(
    target: str,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    cost_weight: float | None,
    episodes: int,
    as_json: bool,
) -> int:
    """Compute the regret of the policy of RUN (a folder or its name), or of CONFIG as it is.

    For the tasks relay, stop and committee: the value of the best policy, of this one sampled and
    greedy, of the best fixed sequence and of random choices; exact for a policy that goes by the
    observation alone.
    """
    report = in_loop(_judge(target, overrides, block, cost_weight, episodes))
    if as_json:
        emit({"target": target, "regret": report.as_json()})
    else:
        click.echo(report.as_text())
    return 0


@click.command("draw")
@click.argument("config", type=click.Path(exists=True, dir_okay=False))
@click.argument("seed", type=int)
def draw(config: str, seed: int) -> int:
    """Print CONFIG, of the task relay or stop, with tables drawn by SEED and a team for them.

    All other sections stay as they are: `orchestrion draw relay.yaml 3 > drawn.yaml`. Sizes given
    in the config's `task.tables`, e.g. `workers: 7`, are not drawn.
    """
    from pathlib import Path

    from orchestrion.config import read_data, to_yaml
    from orchestrion_orchestration_bench.drawn import with_tables

    click.echo(to_yaml(with_tables(read_data(Path(config)), seed)), nl=False)
    return 0


async def _judge(
    target: str,
    overrides: Sequence[str],
    block: Sequence[str],
    cost_weight: float | None,
    episodes: int,
) -> RegretReport:
    from orchestrion.runs import open_run

    async with open_run(target, overrides, block) as trained:
        return regret_of(trained, cost_weight, episodes)


def regret_of(
    trained: Trained, cost_weight: float | None = None, episodes: int = 10_000
) -> RegretReport:
    """Return the regret of an opened run's or config's policy; see `regret`.

    The weight of cost is by default the reward's.

    Raises:
        UsageError: the config is not one of a benchmark.
    """
    from orchestrion_orchestration_bench.regret import regret

    runtimes = trained.opened.runtimes
    if cost_weight is None:
        cost_weight = weight_of(runtimes.get("reward"))
    return regret(
        runtimes["task"],
        runtimes["policy"],
        trained.opened.roster(),
        cost_weight,
        plays=_plays(trained),
        turns=trained.config.limits.turns,
        episodes=episodes,
    )


def weight_of(reward: Any) -> float:
    """Return the weight of cost in a reward that is quality minus weighted cost.

    Raises:
        UsageError: the reward is another one.
    """
    plain = (
        getattr(reward, "measure", "cost") == "cost"
        and getattr(reward, "step_weight", "constant") == "constant"
        and not getattr(reward, "success_bonus", 0.0)
        and not getattr(reward, "failure_penalty", 0.0)
    )
    weight = getattr(reward, "cost_weight", None)
    if weight is None or not plain:
        raise UsageError(
            "the reward is not `outcome-minus-cost` with its plain settings, so there is no cost "
            "weight to go by; give one with --cost-weight"
        )
    return float(weight)


def _plays(trained: Trained) -> dict[str, str]:
    """Return the row each agent plays, where its settings say it."""
    rows = {}
    for path in trained.config.roster:
        name, entry = path.partition(".")[2], trained.config.components[path]
        row = getattr(entry.component, "plays", "")
        if row or entry.use.rpartition(":")[2] == "terminator":
            rows[name] = row or "terminator"
    return rows
