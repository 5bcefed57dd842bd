"""What a run leaves in `exports/evolution/`: a config for each graph of the front, and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrion_evolution.drawing import front_svg, front_table

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrion_dag import Graph

    from orchestrion import JSON
    from orchestrion.config import Config
    from orchestrion_evolution.evolver import Evolver

__all__ = ["front_graphs", "write_exports"]


def write_exports(evolver: Evolver) -> None:
    """`front.json`, `front.svg`, `front.txt`, and for each graph `front-NN.yaml` and `.mmd`.

    Nothing, if the run has no folder.
    """
    from orchestrion.config import load
    from orchestrion.runs import make_folder, write_atomic

    if evolver.directory is None:
        return
    source = evolver.directory / "config.yaml"
    if not source.exists():
        return
    folder = make_folder(evolver.directory / "exports")
    folder = make_folder(folder / "evolution")
    for name, text in _files(evolver.report, load(source), source):
        write_atomic(folder / name, [text.encode()], "export")


def front_graphs(report: JSON) -> dict[str, Graph]:
    """The graphs of the front, cheapest first, by what a title says of each; `*` marks the chosen.

    The values are those measured again, as in `front.txt`.
    """
    found = {}
    for one in report["front"]:
        value = one["fresh"] or one["search"]
        title = one["name"] + (" *" if one["chosen"] else "")
        if value:
            title += f": reward {value['quality']:.3g} at {report['measure']} {value['cost']:.3g}"
        found[title] = _graph(one["config"])
    return found


def _graph(shape: JSON) -> Graph:
    from orchestrion_dag import Edge, Graph, Node

    return Graph(
        nodes={
            name: node if isinstance(node, str) else Node(**node)
            for name, node in shape["nodes"].items()
        },
        edges=[edge if isinstance(edge, str) else Edge(**edge) for edge in shape["edges"]],
        outputs=shape["outputs"],
    )


def _files(report: JSON, config: Config, source: Path) -> Iterator[tuple[str, str]]:
    from orchestrion_dag import to_mermaid

    yield "front.json", json.dumps(report, indent=1) + "\n"
    yield "front.svg", front_svg(report)
    yield "front.txt", front_table(report)
    for one in report["front"]:
        yield f"{one['name']}.yaml", _runnable(config, one)
        yield f"{one['name']}.mmd", to_mermaid(_graph(one["config"]))


def _runnable(config: Config, one: JSON) -> str:
    """The run's config with this graph, and nothing left to train."""
    from orchestrion.config import to_yaml

    overlay = {f"policy.{name}": value for name, value in one["config"].items()}
    changed = config.with_overlay({"policy.chain": "", **overlay, **one["settings"]})
    data = changed.resolved()
    data.pop("trainer", None)
    fresh = one["fresh"] or one["search"]
    head = f"# {one['name']}: {one['graph']}\n"
    if fresh:
        head += f"# reward {fresh['quality']:.4g} at cost {fresh['cost']:.4g}, measured again\n"
    return head + to_yaml(data)
