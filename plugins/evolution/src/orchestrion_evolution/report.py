"""The report of a search: its numbers, a table, exported configs, and `orchestrion front`.

A graph has up to three scores. The `search` score chose it, so it is too high. The `fresh` score
was measured on other draws, and the final choice goes by it. The `held_out` score was measured on
validation problems that chose nothing: quote this one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion import JSON, Metrics, UsageError

if TYPE_CHECKING:
    from orchestrion_dag import Graph

    from orchestrion.config import Config


# ------------------------------------------------------------------------------------ numbers


def metrics_of(report: Mapping[str, JSON]) -> Metrics:
    """Return the metrics of the last iteration."""
    [chosen] = [member for member in report["front"] if member["chosen"]]
    metrics = {
        "evaluations": float(report["evaluations"]),
        "front": float(len(report["front"])),
        "nodes": float(chosen["nodes"]),
    }
    if chosen["fresh"] is not None:
        metrics["fresh_reward"] = chosen["fresh"]["quality"]
    if chosen["held_out"] is not None and chosen["held_out"]["reward"]["mean"] is not None:
        metrics["held_out_reward"] = chosen["held_out"]["reward"]["mean"]
        for name, behind in _behind(report).items():
            metrics[f"ahead_of_{name}"] = behind["mean"]
    return metrics


def _behind(report: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return by how much the chosen graph is ahead of each baseline, where that is known."""
    return {
        baseline["name"]: baseline["behind"]
        for baseline in report["baselines"]
        if baseline["behind"] is not None and baseline["behind"]["mean"] is not None
    }


def front_table(report: Mapping[str, JSON]) -> str:
    """Return the front, cheapest first, and the baselines; `*` marks the graph that the run uses.

    Below the table stands by how much that graph is ahead of each baseline.
    """
    from orchestrion.cli import table

    held_out = f"held out ({report['held_out']['problems']})"
    rows = [("", "", "cost", "search", "fresh", held_out, "graph")]
    rows += [_row(member) for member in (*report["front"], *report["baselines"])]
    lines = [table(rows)]
    for name, behind in _behind(report).items():
        lines.append(f"ahead of {name} by {_interval(behind)}")
    return "\n".join(lines) + "\n"


def _row(member: Mapping[str, JSON]) -> tuple[str, str, str, str, str, str, str]:
    fresh, search, held_out = member["fresh"], member["search"], member["held_out"]
    cost = held_out["cost"]["mean"] if held_out else (fresh or search or {}).get("cost")
    has_reward = held_out and held_out["reward"]["mean"] is not None
    return (
        "*" if member.get("chosen") else "",
        member["name"],
        "-" if cost is None else f"{cost:.3g}",
        f"{search['quality']:.3f}" if search else "-",
        f"{fresh['quality']:.3f}" if fresh else "-",
        _interval(held_out["reward"]) if has_reward else "-",
        member["graph"],
    )


def _interval(value: Mapping[str, float]) -> str:
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


# --------------------------------------------------------------------------- graphs and exports


def front_graphs(report: Mapping[str, JSON]) -> dict[str, Graph]:
    """Return the graphs of the front by title, cheapest first; `*` marks the chosen graph."""
    from orchestrion_dag import Graph, Node

    graphs = {}
    for member in report["front"]:
        value, config = member["fresh"] or member["search"], member["config"]
        title = member["name"] + (" *" if member["chosen"] else "")
        if value:
            title += f": reward {value['quality']:.3g} at {report['measure']} {value['cost']:.3g}"
        nodes = {
            name: node if isinstance(node, str) else Node(**node)
            for name, node in config["nodes"].items()
        }
        graphs[title] = Graph(nodes=nodes, edges=config["edges"], outputs=config["outputs"])
    return graphs


def write_exports(report: Mapping[str, JSON], directory: Path | None) -> None:
    """Write `front.json`, `front.txt` and a config for each graph of the front.

    They go to `exports/evolution/` in the run's folder. Nothing is written if the run has none.
    """
    from orchestrion.config import load
    from orchestrion.runs import make_folder, write_atomic

    if directory is None or not (directory / "config.yaml").exists():
        return
    config = load(directory / "config.yaml")
    files = {"front.json": json.dumps(report, indent=1) + "\n", "front.txt": front_table(report)}
    files |= {f"{member['name']}.yaml": _runnable(config, member) for member in report["front"]}
    make_folder(directory / "exports")
    folder = make_folder(directory / "exports" / "evolution")
    for name, text in files.items():
        write_atomic(folder / name, [text.encode()], "export")


def _runnable(config: Config, member: Mapping[str, JSON]) -> str:
    """Return the run's config with this graph as its policy and without a trainer."""
    from orchestrion.config import to_yaml

    overlay = {f"policy.{name}": value for name, value in member["config"].items()}
    data = config.with_overlay({"policy.chain": "", **overlay, **member["settings"]}).resolved()
    data.pop("trainer", None)
    head = f"# {member['name']}: {member['graph']}\n"
    value = member["fresh"] or member["search"]
    if value:
        head += f"# reward {value['quality']:.4g} at cost {value['cost']:.4g}, measured again\n"
    return head + to_yaml(data)


# ------------------------------------------------------------------------------------ command


@click.command("front")
@click.argument("run", metavar="RUN")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file.")
def front(run: str, output_format: str, output: Path | None) -> None:
    """Show the graphs that RUN ended with: their cost, and their reward in the search, measured
    again, and held out.

    `orchestrion graph RUN` draws the graph that the run uses, and with --front all of them.
    `exports/evolution/` in the run's folder has a config for each.
    """
    report = report_of(run)
    is_json = output_format == "json"
    text = json.dumps(report, indent=1) + "\n" if is_json else front_table(report)
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def report_of(run: str | Path) -> JSON:
    """Return the report in the newest checkpoint of a run.

    Raises:
        UsageError: there is no such run, it has no trainer `evolution`, or it still searches.
    """
    from orchestrion.runs import newest_states

    directory, states = newest_states(run)
    for state in states.values():
        if isinstance(state.data, dict) and {"batches", "report"} <= set(state.data):
            if state.data["report"] is None:
                raise UsageError(
                    f"{directory}: is still searching; the last iteration measures the front"
                )
            return state.data["report"]
    raise UsageError(
        f"{directory}: has no state of a trainer `evolution` in its newest checkpoint; name a run "
        "that trains with it"
    )
