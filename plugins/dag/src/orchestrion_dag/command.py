"""`orchestrion graph`: draw the graph of a config or a run, or who acted after whom in a run."""

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
    from orchestrion_dag.drawing import Form
    from orchestrion_dag.graph import Graph


@click.command("graph")
@click.argument("target", required=False, metavar="[CONFIG|RUN]")
@override_option
@block_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot"]),
    default="mermaid",
    show_default=True,
)
@click.option("--policy", "path", help="Which graph to draw, by its path in the config.")
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
    help="For --turns: leave out arrows with a smaller share of their agent's.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file.")
@click.pass_context
def graph(
    ctx: click.Context,
    target: str | None,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    form: Form,
    path: str | None,
    front: bool,
    turns: bool,
    source: str | None,
    least: float,
    output: Path | None,
) -> None:
    """Draw the graph of CONFIG (default: orchestrion.yaml), or of RUN as it was learned.

    For policies with a graph: `dag`, and those with a fixed sequence of steps. Nested teams that
    run a graph are drawn inside their node. For a RUN whose policy has no graph, such as a neural
    one, it draws who acted after whom, as with --turns.
    """
    config, learned, directory = _config(target, overrides, [*options(ctx).block, *block])
    graphs = dict(graphs_in(config, learned))
    chosen = path or ("policy" if "policy" in graphs else next(iter(graphs), ""))
    if front:
        text, what = _front(config, learned, form), "the front"
    elif directory and (turns or source or (path is None and "policy" not in graphs)):
        text, what = _following(directory, source, form, least)
    elif turns or source:
        raise UsageError(
            f"{config.policy}: --turns draws the episodes of a run; name one, not a config"
        )
    elif chosen in graphs:
        text, what = _draw(graphs, chosen, form), chosen
    else:
        names = ", ".join(graphs) or "none"
        raise UsageError(
            f"{path or config.policy}: policy {_used(config, chosen)!r} has no fixed graph to draw "
            f"(graphs in this config: {names})"
        )
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        click.echo(f"{output}: {form} of {what}", err=True)


def _draw(graphs: Mapping[str, Graph], chosen: str, form: Form) -> str:
    """Return a graph with those of nested teams inside it, as text."""
    inner = {
        where.removeprefix("agents.").removesuffix(".policy"): graph
        for where, graph in graphs.items()
        if where.startswith("agents.")
    }
    from orchestrion_dag.drawing import drawn

    return drawn(graphs[chosen], inner, form)


def _front(config: Config, learned: Mapping[str, Saved], form: Form) -> str:
    """Return all graphs that a trainer ended with, each in a box, as text."""
    from orchestrion_dag.drawing import drawn
    from orchestrion_dag.graph import Graph, Node

    front: dict[str, Graph] = {}
    for path, entry in config.components.items():
        graphs = getattr(entry.component, "front", None)
        if entry.kind == "trainer" and callable(graphs) and path in learned:
            front |= graphs(learned[path])
    if not front:
        raise UsageError(
            "--front: no trainer here ended with several graphs; name a finished run of a search, "
            "such as evolution"
        )
    boxes = Graph(nodes={name: Node(body=graph) for name, graph in front.items()})
    return drawn(boxes, form=form)


def _following(directory: Path, source: str | None, form: Form, least: float) -> tuple[str, str]:
    """Return who acted after whom in a run as text, and which episodes these were."""
    from orchestrion import fold, waves
    from orchestrion.runs import RunReader
    from orchestrion_dag.drawing import following

    with RunReader(directory) as reader:
        # The run's own policy is evaluated before every baseline.
        name = source or next(iter(reader.load_evaluations()), "train")
        stored = [episode for episode in _episodes(reader, name) if episode.turn_count]
        acted = fold(waves(episode.episode.turns) for episode in stored)
        retention = reader.retention
    if not acted.episodes:
        lost = f"; the run kept no turns (run.retention: {retention})" if stored else ""
        raise UsageError(
            f"{directory}: no episodes of {name!r} to draw{lost}; --of takes train, learned (team, "
            "where nothing is trained), or the name of a baseline"
        )
    return following(acted, least, form), f"{acted.episodes} episodes of {name}"


def _episodes(reader: RunReader, source: str) -> Iterator[StoredEpisode]:
    """Yield the episodes of an evaluation, or of the last quarter of training."""
    if source != "train":
        yield from reader.episodes(source=source)
        return
    done = reader.iterations()
    for last in done[-max(1, len(done) // 4) :] if done else ():
        yield from reader.episodes(source="train", stage=last.stage, iteration=last.iteration)


def graphs_in(config: Config, learned: Mapping[str, Saved]) -> Iterator[tuple[str, Graph]]:
    """Yield the graphs of a config's policies by config path; `learned` is the policies' state."""
    from orchestrion_dag.graph import Graph

    for path, entry in config.components.items():
        if entry.kind != "policy":
            continue
        if isinstance(entry.component, Graph):
            yield path, entry.component
        elif steps := _steps(entry.component, learned.get(path)):
            yield path, Graph(chain=" -> ".join(steps))


def _steps(policy: Any, learned: Saved | None) -> list[str]:
    """Return the steps of a policy with a fixed sequence, learned ones if there are any."""
    steps = getattr(policy, "steps", None)
    if learned is not None and isinstance(learned.data, dict):
        steps = learned.data.get("steps", steps)
    texts = isinstance(steps, list) and all(isinstance(step, str) for step in steps)
    return steps if texts and steps is not None else []


def _config(
    target: str | None, overrides: tuple[str, ...], block: list[str]
) -> tuple[Config, Mapping[str, Saved], Path | None]:
    """Return a config, and for a run what it learned and its folder."""
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
