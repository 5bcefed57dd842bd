"""`orchestrion graph`: draw the graph that a config or a run describes, or how a run went on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion import UsageError
from orchestrion.cli import block_option, find_config, options, override_option

if TYPE_CHECKING:
    from orchestrion import Saved
    from orchestrion.config import Config
    from orchestrion.runs import RunReader, StoredEpisode
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
@click.option("--front", is_flag=True, help="Draw all graphs that the run's search ended with.")
@click.option("--turns", is_flag=True, help="Draw who acted after whom in the run's episodes.")
@click.option(
    "--of",
    "source",
    metavar="NAME",
    help="For --turns: an evaluation by its name, or train (its last quarter).  "
    "[default: learned, or train if that was not evaluated]",
)
@click.option(
    "--least",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="For --turns: leave out arrows that are rarer among those of their agent.",
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
    front: bool,
    turns: bool,
    source: str | None,
    least: float,
    output: Path | None,
) -> None:
    """Draw the graph of CONFIG (default: orchestrion.yaml), or of RUN as it was learned.

    For policies with a graph: `dag`, and those with a fixed sequence of steps. Nested teams that
    run a graph are drawn inside their node. Of a RUN whose policy has no graph, like one that a
    network decides on, it is drawn who acted after whom, as with --turns.
    """
    config, learned, directory = _config(target, overrides, [*options(ctx).block, *block])
    graphs = dict(graphs_in(config, learned))
    chosen = path or ("policy" if "policy" in graphs else next(iter(graphs), ""))
    if front:
        text, what = _front(config, learned, form), "the front"
    elif directory and (turns or source or (path is None and "policy" not in graphs)):
        text, what = _followed(directory, source, form, least)
    elif turns or source:
        raise UsageError(f"{config.policy}: --turns draws the episodes of a run; name one")
    elif chosen in graphs:
        text, what = _drawn(graphs, chosen, form), chosen
    else:
        known = ", ".join(graphs) or "none"
        raise UsageError(
            f"{path or config.policy}: policy {_used(config, chosen)!r} has no fixed graph to draw "
            f"(graphs in this config: {known})"
        )
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        click.echo(f"{output}: {form} of {what}", err=True)


def _drawn(graphs: Mapping[str, Graph], chosen: str, form: str) -> str:
    """One graph, with those of nested teams inside it."""
    inner = {
        where.removeprefix("agents.").removesuffix(".policy"): one
        for where, one in graphs.items()
        if where.startswith("agents.")
    }
    return _in_form(graphs[chosen], form, inner)


def _in_form(graph: Graph, form: str, inner: Mapping[str, Graph]) -> str:
    from orchestrion_dag.drawing import to_dot, to_mermaid
    from orchestrion_dag.svg import to_svg

    return {"mermaid": to_mermaid, "dot": to_dot, "svg": to_svg}[form](graph, inner)


def _front(config: Config, learned: Mapping[str, Saved], form: str) -> str:
    """All graphs that a trainer ended with, each in a box."""
    from orchestrion_dag.graph import Graph, Node

    found: dict[str, Graph] = {}
    for path, entry in config.components.items():
        graphs = getattr(entry.component, "front", None)
        if entry.kind == "trainer" and callable(graphs) and path in learned:
            found |= graphs(learned[path])
    if not found:
        raise UsageError(
            "--front: nothing here ended with several graphs; name a finished run of a trainer "
            "that searches them, like evolution"
        )
    return _in_form(Graph(nodes={name: Node(body=one) for name, one in found.items()}), form, {})


def _followed(directory: Path, source: str | None, form: str, least: float) -> tuple[str, str]:
    """Who acted after whom in a run, and which episodes these were."""
    from orchestrion import fold, waves
    from orchestrion.runs import RunReader
    from orchestrion_dag.following import DRAWINGS

    with RunReader(directory) as reader:
        # The run's own policy is evaluated before every baseline.
        name = source or next(iter(reader.load_evaluations()), "train")
        kept = [one for one in _episodes(reader, name) if one.turn_count]
        found, retention = fold(waves(one.episode.turns) for one in kept), reader.retention
    if not found.episodes:
        lost = f"; the run kept no turns (run.retention: {retention})" if kept else ""
        raise UsageError(
            f"{directory}: no episodes of {name!r} to draw{lost}; --of takes train, learned (team, "
            "where nothing is trained), or the name of a baseline"
        )
    return DRAWINGS[form](found, least), f"{found.episodes} episodes of {name}"


def _episodes(reader: RunReader, source: str) -> Iterator[StoredEpisode]:
    """Of an evaluation, or of the last quarter of training."""
    if source != "train":
        yield from reader.episodes(source=source)
        return
    done = reader.iterations()
    for one in done[-max(1, len(done) // 4) :] if done else ():
        yield from reader.episodes(source="train", stage=one.stage, iteration=one.iteration)


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
) -> tuple[Config, Mapping[str, Saved], Path | None]:
    """A config, or that of a run with what it learned and its folder."""
    from orchestrion.config import load
    from orchestrion.runs import RunReader, run_directory

    path = Path(target) if target is not None else None
    folder = path is not None and path.is_dir() and not (path / "config.yaml").exists()
    if path is None or path.is_file() or folder:
        return load(find_config(path), overrides, block=block), {}, None
    directory = run_directory(path)
    assert directory is not None
    config = load(directory / "config.yaml", overrides, block=block)
    with RunReader(directory) as reader:
        checkpoint = reader.usable().checkpoint
    if checkpoint is None:
        return config, {}, directory
    if checkpoint.overlay:
        config = config.with_overlay(checkpoint.overlay)
    return config, checkpoint.components, directory


def _used(config: Config, path: str) -> str:
    entry = config.components.get(path or "policy")
    return entry.use if entry is not None else path
