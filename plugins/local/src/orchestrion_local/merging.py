"""`orchestrion merge`: merge several fine-tunes into one model, or export a trained one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion import UsageError

if TYPE_CHECKING:
    from orchestrion_local.runtime import LocalModel

METHODS = ("linear", "slerp", "task-arithmetic", "ties", "dare")
FROM_BASE = ("task-arithmetic", "ties", "dare")


@click.command("merge")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="A new folder.")
@click.option("--method", type=click.Choice(METHODS), default="linear", show_default=True)
@click.option("--base", metavar="MODEL", help="What the models were tuned from.")
@click.option("--weights", metavar="W,W,...", help="One for each model.")
@click.option("--t", type=click.FloatRange(0, 1), help="For slerp: 0 is the first model.")
@click.option("--density", type=click.FloatRange(0, 1, min_open=True), help="For ties and dare.")
@click.option("--seed", type=int, help="For dare.")
def merge(
    models: tuple[str, ...],
    output: Path,
    method: str,
    base: str | None,
    weights: str | None,
    t: float | None,
    density: float | None,
    seed: int | None,
) -> int:
    """Merge several fine-tunes of one base into one model, and write it to a folder.

    A MODEL is a folder in the format of the transformers library, or RUN:NAME, the model NAME as
    trained by a run; an adapter is folded into its base. A single MODEL is written unchanged.
    Agents that differed by their models must differ by their prompts after merging.
    """
    settings = {"t": t, "density": density, "seed": seed}
    _check(method, len(models), base, weights, settings)
    if output.exists():
        raise UsageError(f"--output: {output} exists already; name a new folder")
    named = (*models, *([base] if base is not None else []))
    folders = {name for name in named if (Path(name) / "config.json").is_file()}
    shares = _numbers(weights, len(models))
    asyncio.run(_merge(models, folders, output, method, base, shares, settings))
    click.echo(f"{output}: {method} of {', '.join(models)}")
    return 0


def _check(
    method: str, count: int, base: str | None, weights: str | None, settings: dict[str, Any]
) -> None:
    """Raise UsageError for options that have no effect or do not fit together."""
    takes = {"slerp": ("t",), "ties": ("density",), "dare": ("density", "seed")}.get(method, ())
    for name, value in settings.items():
        if value is not None and name not in takes:
            raise UsageError(f"--{name} has no effect with --method {method}; remove it")
    if (base is not None) != (method in FROM_BASE):
        raise UsageError(
            f"--method {method} needs --base"
            if base is None
            else f"--base has no effect with --method {method}; remove it"
        )
    if weights is not None and count == 1 and method == "linear":
        raise UsageError("--weights has no effect with one model; remove it")
    if method == "slerp" and (count != 2 or settings["t"] is None or weights is not None):
        raise UsageError("--method slerp takes two models, and --t in place of --weights")


def _numbers(weights: str | None, count: int) -> list[float] | None:
    if weights is None:
        return None
    try:
        shares = [float(weight) for weight in weights.split(",")]
    except ValueError:
        raise UsageError(f"--weights: expected numbers like 0.7,0.3, got {weights!r}") from None
    if len(shares) != count:
        raise UsageError(f"--weights: give one for each of {count} models, got {len(shares)}")
    return shares


async def _merge(
    names: Sequence[str],
    folders: Collection[str],
    output: Path,
    method: str,
    base: str | None,
    weights: list[float] | None,
    settings: dict[str, Any],
) -> None:
    from orchestrion_local import merge_methods

    async with AsyncExitStack() as stack:
        models = [await _open(name, name in folders, stack) for name in names]
        start = None
        if base is not None:
            start = _arrays(await _open(base, base in folders, stack))
        arrays = [_arrays(model) for model in models]
        chosen = {name: value for name, value in settings.items() if value is not None}
        try:
            if method == "linear":
                merged = merge_methods.linear(arrays, weights)
            elif method == "slerp":
                merged = merge_methods.slerp(arrays[0], arrays[1], chosen["t"])
            else:
                function = getattr(merge_methods, method.replace("-", "_"))
                merged = function(start, arrays, weights, **chosen)
        except ValueError as error:
            raise UsageError(f"these models cannot be merged: {error}") from None
        _write(models[0], merged, output)


async def _open(name: str, is_folder: bool, stack: AsyncExitStack) -> LocalModel:
    from orchestrion import Key, OpenContext
    from orchestrion.runs import open_run
    from orchestrion_local.hf import HF
    from orchestrion_local.loading import load
    from orchestrion_local.runtime import LocalModel

    if is_folder:
        return load(HF(path=name), OpenContext(f"models.{Path(name).name}", Key(0)))
    run, colon, model = name.rpartition(":")
    if not colon:
        raise UsageError(f"{name}: expected a folder with a model, or RUN:NAME")
    trained = await stack.enter_async_context(open_run(run))
    if trained.directory is None:
        raise UsageError(f"{run} is a config, without trained models; name a run of it")
    runtime = trained.opened.runtimes.get(f"models.{model}")
    if not isinstance(runtime, LocalModel):
        known = sorted(
            path.partition(".")[2]
            for path, other in trained.opened.runtimes.items()
            if isinstance(other, LocalModel)
        )
        raise UsageError(f"{run} has no local model {model!r}; it has {', '.join(known) or 'none'}")
    return runtime


def _arrays(model: LocalModel) -> dict[str, Any]:
    """Return all weights in full precision, by their names in the transformers library."""
    import torch

    plain = model.plain()
    return {
        name: value.detach().to("cpu", torch.promote_types(value.dtype, torch.float32)).numpy()
        for name, value in plain.named_parameters()
    }


def _write(model: LocalModel, merged: dict[str, Any], output: Path) -> None:
    import torch

    plain = model.plain()
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(torch.from_numpy(merged[name]))
    # Renamed at the end, so that an existing folder is complete.
    partial = output.with_name(output.name + ".partial")
    plain.save_pretrained(str(partial))
    model.tokenizer.save(str(partial))
    partial.rename(output)
