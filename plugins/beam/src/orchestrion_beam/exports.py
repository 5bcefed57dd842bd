"""What a run leaves in `exports/beam/`.

`advantages-0003.csv`: one line a trajectory that a search of iteration 3 ended with.
`credits-0003.csv`: one line a turn of these.
`tree-0003.jsonl`: one line a trajectory that was there at any time, and what became of it.
`report.txt`, `report.json`: what the last iteration found.

An iteration that is repeated writes the same bytes again.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from orchestrion import JSON
from orchestrion.runs import make_folder, write_atomic
from orchestrion_beam.groups import Judged, reward_of
from orchestrion_beam.report import as_text

__all__ = ["write_iteration", "write_report"]


def write_iteration(folder: Path | None, i: int, judged: Sequence[Judged]) -> None:
    """The trajectories of one iteration; nothing if the run has no folder."""
    if folder is None:
        return
    _write(folder, f"advantages-{i:04}.csv", _csv(_advantages(judged)))
    _write(folder, f"credits-{i:04}.csv", _csv(_credits(judged)))
    _write(folder, f"tree-{i:04}.jsonl", _tree(judged))


def write_report(folder: Path | None, report: JSON) -> None:
    """What the comparison found; nothing if the run has no folder."""
    if folder is None:
        return
    _write(folder, "report.json", [(json.dumps(report, indent=1) + "\n").encode()])
    _write(folder, "report.txt", [as_text(report).encode()])


def _write(folder: Path, name: str, chunks: Iterable[bytes]) -> None:
    write_atomic(make_folder(folder) / name, [b"".join(chunks)], "export")


def _csv(rows: Iterator[Sequence[object]]) -> Iterator[bytes]:
    for row in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(row)
        yield line.getvalue().encode(errors="replace")


def _advantages(judged: Sequence[Judged]) -> Iterator[Sequence[object]]:
    yield ("problem", "episode", "path", "chosen", "value", "score", "reward", "advantage", "turns")
    for one in judged:
        group = one.group
        for n, (node, episode) in enumerate(zip(one.nodes, group.episodes, strict=True)):
            score = None if episode.scores is None else episode.scores.value
            yield (
                *(group.problem.id, episode.id, node.name, int(n == one.chosen), node.value),
                *(score, reward_of(episode), group.advantages[n], len(episode.trajectory)),
            )


def _credits(judged: Sequence[Judged]) -> Iterator[Sequence[object]]:
    yield ("problem", "episode", "turn", "agent", "option", "credit")
    for one in judged:
        for episode, credits in zip(one.group.episodes, one.group.credits, strict=True):
            for turn, credit in zip(episode.turns, credits, strict=True):
                yield (
                    *(one.group.problem.id, episode.id, turn.index, turn.agent),
                    *(turn.option, credit),
                )


def _tree(judged: Sequence[Judged]) -> Iterator[bytes]:
    for one in judged:
        for node in one.found.nodes:
            line = {
                "problem": one.group.problem.id,
                "path": node.name,
                "agents": [turn.agent for turn in node.turns],
                "options": [turn.option for turn in node.turns],
                "calls": node.calls,
                "value": node.value,
                "fate": node.fate or "grown",
                "finished": node.finished,
                "content": node.digest.hex(),
            }
            yield json.dumps(line).encode() + b"\n"
