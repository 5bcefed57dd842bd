"""Files for people and other programs, made from a run folder at any time.

`episodes.json`
    A list, one episode a line: `source` ("train" or an evaluation's name), `stage`, `iteration`,
    `usage` (of the whole episode), and the fields of the record `Episode`, of `problem` the public
    part. `calls` of an output or an episode names lines of `calls.jsonl`.

`calls.jsonl`, only if asked for
    A call a line, with the fields of `StoredCall`.

`episodes.parquet`, `turns.parquet`, `metrics.parquet`, only if asked for
    The tables of `store.tables`, which says what their columns are.

`rewards.csv`
    The table `episodes`; `success` is 0 or 1, and a missing reward is empty.

`learned_behaviors.json`
    The settings that training changed: `stage` and `iteration` of the checkpoint they are from,
    and `settings`, by config path, e.g. {"agents.critic.instructions": "..."}. Empty if none was.
    `learned` has, by config path, what components learned beside that: what the data that they
    save (`Saved.data`) has under "learned".

`summary.json`
    `status`, `manifest`, `iterations`; `episodes` (of training: count, successes, unrewarded, by
    status, turns by agent, in nested teams as well; `never_tried`: agents without a turn, null
    if that is not known);
    `reward` (mean, best, worst, and over the last ten iterations); `stages` (first and last
    metrics of each); `evaluations` by name; `stopped_at_once` (kinds of held-out problems that
    the learned policy mostly ended at once); `diagnosis` (see `store.diagnosis`) and
    `warning_level`, the highest level in it, 0 if it is empty; `checkpoint` (file and SHA-256).
    All of that is a function of config and seed. What is not stands in `execution`: the run's
    name, times, and what was spent.

Numbers that are no numbers (NaN, infinity) are null. Files appear whole: see `files`.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from attrs import asdict

from orchestrion._records import JSON
from orchestrion._store import tables
from orchestrion._store.diagnosis import as_document, diagnose, stopped_at_once
from orchestrion._store.files import make_folder, write_atomic
from orchestrion._store.journal import USAGE
from orchestrion._store.reader import Iteration, RunReader
from orchestrion._store.serial import encode


def export_run(
    store: RunReader,
    folder: Path | None = None,
    conversations: bool = False,
    parquet: bool = False,
) -> list[Path]:
    """Write all exports of a run to a folder, by default the run's own; return the files.

    `conversations` adds `calls.jsonl`, and `parquet` tables as Parquet files.

    Raises:
        UsageError: pyarrow is not installed, which Parquet files need.
        StoreError: the folder cannot be written to, or the run's database is damaged.
    """
    store.verify()
    folder = make_folder(folder if folder is not None else store.exports)
    contents: dict[str, Iterator[bytes]] = {
        "episodes.json": _episodes(store),
        "rewards.csv": _rewards(store),
        "learned_behaviors.json": iter([_pretty(_learned_state(store))]),
        "summary.json": iter([_pretty(summarize(store))]),
    }
    if conversations:
        contents["calls.jsonl"] = _calls(store)
    if parquet:
        for table in (tables.episodes, tables.turns, tables.metrics):
            contents[f"{table.__name__}.parquet"] = tables.parquet(table(store))
    for name, chunks in contents.items():
        write_atomic(folder / name, chunks, "export")
    return [folder / name for name in contents]


def _calls(store: RunReader) -> Iterator[bytes]:
    for call in store.all_calls():
        yield encode(asdict(call)) + b"\n"


def _pretty(data: JSON) -> bytes:
    return msgspec.json.format(encode(data), indent=2) + b"\n"


def _episodes(store: RunReader) -> Iterator[bytes]:
    separator = b"[\n"
    for row in store.episode_rows():
        # The stored JSON goes through as it is, without being taken apart.
        head = {name: row[name] for name in ("source", "stage", "iteration")}
        head["usage"] = {name: row[name] for name in USAGE}
        start = encode(head)[:-1] + b',"problem":' + row["public"].encode()
        yield separator + start + b"," + row["record"].encode()[1:]
        separator = b",\n"
    yield b"[]\n" if separator == b"[\n" else b"\n]\n"


def _rewards(store: RunReader) -> Iterator[bytes]:
    table = tables.episodes(store)
    yield _line(*table.columns)
    for row in table.rows:
        yield _line(*(int(value) if isinstance(value, bool) else value for value in row))


def _line(*values: object) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    # Lone surrogates have no place in a file that others read.
    return line.getvalue().encode(errors="replace")


def _learned_state(store: RunReader) -> JSON:
    checkpoint = store.latest().checkpoint
    if checkpoint is None:
        return {"stage": None, "iteration": None, "settings": {}, "learned": {}}
    return {
        "stage": checkpoint.stage,
        "iteration": checkpoint.iteration,
        "settings": dict(sorted(checkpoint.overlay.items())),
        "learned": {
            path: saved.data["learned"]
            for path, saved in sorted(checkpoint.components.items())
            if isinstance(saved.data, dict) and "learned" in saved.data
        },
    }


# ---------------------------------------------------------------------------------- summary


def summarize(store: RunReader) -> dict[str, JSON]:
    """Return what `summary.json` holds."""
    iterations, evaluations = store.iterations(), store.load_evaluations()
    named = [iteration for iteration in iterations if iteration.checkpoint is not None]
    return {
        "status": store.status,
        "manifest": store.manifest,
        "iterations": len(iterations),
        "episodes": {
            "count": sum(iteration.episodes for iteration in iterations),
            "successes": sum(iteration.successes for iteration in iterations),
            "unrewarded": sum(iteration.unrewarded for iteration in iterations),
            "by_status": _sums(iteration.statuses for iteration in iterations),
            "turns_by_agent": _sums(iteration.agents for iteration in iterations),
            "never_tried": store.never_tried(),
        },
        "reward": _reward(iterations),
        "stages": [_stage(iterations, stage) for stage in sorted({i.stage for i in iterations})],
        "evaluations": evaluations,
        "stopped_at_once": stopped_at_once(evaluations),
        **as_document(diagnose(store)),
        "checkpoint": (
            {"file": named[-1].checkpoint, "sha256": named[-1].digest} if named else None
        ),
        "execution": {
            "run": store.directory.name,
            "detail": store.detail,
            "created": store.created,
            "finished": store.finished,
            "seconds": store.seconds,
            "seconds_by_iteration": [iteration.seconds for iteration in iterations],
            "spend": store.spend(),
        },
    }


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _reward(iterations: list[Iteration]) -> JSON:
    counted = [
        (iteration.reward, iteration.episodes - iteration.unrewarded)
        for iteration in iterations
        if iteration.reward is not None
    ]
    return {
        "mean": _mean(counted),
        "best_iteration": max((mean for mean, _ in counted), default=None),
        "worst_iteration": min((mean for mean, _ in counted), default=None),
        "last_ten_iterations": _mean(counted[-10:]),
    }


def _mean(weighted: list[tuple[float, int]]) -> float | None:
    count = sum(weight for _, weight in weighted)
    return math.fsum(mean * weight for mean, weight in weighted) / count if count else None


def _stage(iterations: list[Iteration], stage: int) -> JSON:
    part = [iteration for iteration in iterations if iteration.stage == stage]
    return {
        "stage": stage,
        "iterations": len(part),
        "first": dict(part[0].metrics),
        "last": dict(part[-1].metrics),
    }
