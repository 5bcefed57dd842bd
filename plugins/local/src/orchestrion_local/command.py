"""`orchestrion devices`: where the models of a config would live, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion import UsageError
from orchestrion.cli import answer, emit, find_config, json_option, override_option, table

if TYPE_CHECKING:
    from orchestrion_local.planning import DevicePlan

HEADINGS = ("model", "device", "what", "memory", "when")


@click.command("devices")
@click.option(
    "--plan",
    "config",
    type=click.Path(path_type=Path),
    required=True,
    help="The config that is planned.",
)
@override_option
@click.option("--gpus", metavar="NxSIZE", help="GPUs that there will be, e.g. 2x80GiB.")
@click.option(
    "--tflops",
    type=click.FloatRange(min=0, min_open=True),
    help="What such a GPU sustains, in TFLOP/s: about 400 for bfloat16 on an H100.",
)
@json_option
def devices(
    config: Path, overrides: tuple[str, ...], gpus: str | None, tflops: float | None, as_json: bool
) -> None:
    """Print which model lives where, what it takes, and when.

    It is reckoned from the sizes in each model's config.json; no weights are loaded. A plan that
    does not fit is an error, which says what would help.
    """
    from orchestrion.config import load
    from orchestrion_local.planning import gpus_of, plan_of

    loaded = load(find_config(config), overrides)
    plans = plan_of(loaded, gpus_of(gpus) if gpus is not None else None)
    if not plans:
        raise UsageError(f"{config}: no model here has weights on this machine")
    if as_json:
        emit({"devices": [_data(plan) for plan in plans]})
    else:
        answer(_text(plans, tflops))
    for plan in plans:
        plan.check()


def _text(plans: list[DevicePlan], tflops: float | None) -> str:
    from orchestrion_local.sizes import size_text

    rows = [HEADINGS]
    for plan in plans:
        rows += [
            (need.model, plan.name, need.what, size_text(need.size), need.when)
            for need in plan.needs()
        ]
    lines = [table(rows), ""]
    for plan in plans:
        size, when = plan.most
        there = "an unknown size" if plan.memory is None else size_text(plan.memory)
        lines.append(f"{plan.name} ({plan.device}): at most {size_text(size)} of {there}, {when}")
        if plan.elsewhere:
            lines.append(f"each further GPU with a rank: at most {size_text(plan.elsewhere)}")
    for plan in plans:
        for model in plan.models:
            if model.learns:
                lines.append(_time(model.name, *model.footprint.flops, tflops))
    return "\n".join(lines)


def _time(name: str, sampled: float, learned: float, tflops: float | None) -> str:
    text = (
        f"{name}: a thousand tokens take {sampled / 1e9:.3g} TFLOP to read or sample and "
        f"{learned / 1e9:.3g} to learn from"
    )
    if tflops is None:
        return text
    seconds = learned / (tflops * 1e12)
    return f"{text}: {seconds * 1e6 / 60:.3g} minutes for a million tokens to learn from"


def _data(plan: DevicePlan) -> dict[str, object]:
    size, when = plan.most
    return {
        "name": plan.name,
        "device": plan.device,
        "memory": plan.memory,
        "offload": plan.offload,
        "needs": [
            {"model": need.model, "what": need.what, "bytes": need.size, "when": need.when}
            for need in plan.needs()
        ],
        "most": {"bytes": size, "when": when},
        "further_ranks": {"bytes": plan.elsewhere},
        "fits": plan.lacking is None,
    }
