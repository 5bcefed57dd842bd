"""`orchestrion graph`: draw the graph that a config or a run describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion import UsageError
from orchestrion.cli.common import block_option, find_config, options, override_option

if TYPE_CHECKING:
    from orchestrion import Saved
    from orchestrion.config import Config
    from orchestrion_dag.graph import Graph

__all__ = ["graph", "graphs_in"]


@click.command("graph")
@click.argument("target", required=False, metavar="[CONFIG|RUN]")
@override_option
@block_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "svg"]),
    default="mermaid",
    show_default=True,
)
@click.option(
    "--policy", "path", help="Where the graph stands in the config, if there are several."
)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file.")
@click.pass_context
def graph(
    ctx: click.Context,
    target: str | None,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    form: str,
    path: str | None,
    output: Path | None,
) -> None:
    """Draw the graph of CONFIG (default: orchestrion.yaml), or of RUN as it was learned.

    For policies with a graph: `dag`, and those with a fixed sequence of steps. Nested teams that
    run a graph are drawn inside their node.
    """
    from orchestrion_dag.drawing import to_dot, to_mermaid
    from orchestrion_dag.svg import to_svg

    config, learned = _config(target, overrides, [*options(ctx).block, *block])
    graphs = dict(graphs_in(config, learned))
    chosen = path or ("policy" if "policy" in graphs else next(iter(graphs), ""))
    if chosen not in graphs:
        known = ", ".join(graphs) or "none"
        raise UsageError(
            f"{path or config.policy}: policy {_used(config, chosen)!r} has no fixed graph to draw "
            f"(graphs in this config: {known})"
        )
    inner = {
        where.removeprefix("agents.").removesuffix(".policy"): one
        for where, one in graphs.items()
        if where.startswith("agents.")
    }
    draw = {"mermaid": to_mermaid, "dot": to_dot, "svg": to_svg}[form]
    text = draw(graphs[chosen], inner)
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        click.echo(f"{output}: {form} of {chosen}", err=True)


def graphs_in(config: Config, learned: Mapping[str, Saved]) -> Iterator[tuple[str, Graph]]:
    """Every graph that a config's policies run, by config path; `learned` is their state."""
    from orchestrion_dag.graph import Graph

    for path, entry in config.components.items():
        if entry.kind != "policy":
            continue
        if isinstance(entry.component, Graph):
            yield path, entry.component
        elif steps := _steps(entry.component, learned.get(path)):
            yield path, Graph(chain=" -> ".join(steps))


def _steps(policy: Any, learned: Saved | None) -> list[str]:
    """The steps of a policy that is a fixed sequence, as they were learned if they were."""
    steps = getattr(policy, "steps", None)
    if learned is not None and isinstance(learned.data, dict):
        steps = learned.data.get("steps", steps)
    texts = isinstance(steps, list) and all(isinstance(step, str) for step in steps)
    return steps if texts and steps is not None else []


def _config(
    target: str | None, overrides: tuple[str, ...], block: list[str]
) -> tuple[Config, Mapping[str, Saved]]:
    """A config, or that of a run with what it learned."""
    from orchestrion.config import load
    from orchestrion.run import run_directory
    from orchestrion.store import RunReader

    path = Path(target) if target is not None else None
    folder = path is not None and path.is_dir() and not (path / "config.yaml").exists()
    if path is None or path.is_file() or folder:
        return load(find_config(path), overrides, block=block), {}
    directory = run_directory(path)
    assert directory is not None
    config = load(directory / "config.yaml", overrides, block=block)
    with RunReader(directory) as reader:
        checkpoint = reader.usable().checkpoint
    if checkpoint is None:
        return config, {}
    if checkpoint.overlay:
        config = config.with_overlay(checkpoint.overlay)
    return config, checkpoint.components


def _used(config: Config, path: str) -> str:
    entry = config.components.get(path or "policy")
    return entry.use if entry is not None else path
