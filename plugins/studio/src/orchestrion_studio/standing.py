"""How a run stands at the moment: what `orchestrion watch` shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from orchestrion import Usage
    from orchestrion.runs import Report, RunReader

__all__ = ["Progress", "Standing", "clock", "curves_of", "standing_of"]

FIRST_CURVES = ("reward", "success", "cost", "entropy", "turns")
"""Metrics that people look at first, in this order."""
RECENT = 10
"""Iterations from which the time left is estimated, and over which shares of agents are taken."""


@frozen
class Progress:
    """How far training is.

    Args:
        done: iterations, or training episodes, see `unit`.
        total: how many there will be; None if the config does not say.
        unit: "iterations" or "episodes".
        seconds_left: of training, from the last iterations; None if that cannot be told.
    """

    done: int
    total: int | None
    unit: str
    seconds_left: float | None

    @property
    def share(self) -> float | None:
        """Return the share that is done; None if the total is not known."""
        return None if not self.total else min(1.0, self.done / self.total)


@frozen
class Standing:
    """What there is to see of a run at one moment.

    Args:
        name: of its folder.
        status: see `RunReader.status`.
        detail: the sentence that came with the status.
        progress: of training.
        seconds: that it worked so far.
        episodes: of training.
        solved: of these.
        spend: what was paid.
        budget: what may be paid, by limit; only limits that are set.
        curves: metrics by iteration, NaN where an iteration has none; the usual ones first.
        agents: share of the turns of the last iterations, the largest first.
        evaluated: contenders that are evaluated already.
        report: on these; None before the first.
        events: time and text, the newest last.
    """

    name: str
    status: str
    detail: str
    progress: Progress
    seconds: float
    episodes: int
    solved: int
    spend: Usage
    budget: Mapping[str, float]
    curves: Mapping[str, Sequence[float]]
    agents: Mapping[str, float]
    evaluated: Sequence[str]
    report: Report | None
    events: Sequence[tuple[str, str]]

    @property
    def is_live(self) -> bool:
        """Return whether a process works on the run."""
        return self.status == "running"


def standing_of(store: RunReader) -> Standing:
    """Return how a run stands."""
    from orchestrion.runs import stored_config, stored_report

    config, iterations = stored_config(store), store.iterations()
    evaluations = store.load_evaluations()
    turns: Counter[str] = Counter()
    for iteration in iterations[-RECENT:]:
        turns.update(iteration.agents)
    budget = {name: limit for name, limit in config["budget"].items() if limit is not None}
    return Standing(
        store.directory.name,
        store.status,
        store.detail,
        _progress(config, iterations, store.status),
        max(store.seconds, sum(iteration.seconds for iteration in iterations)),
        sum(iteration.episodes for iteration in iterations),
        sum(iteration.successes for iteration in iterations),
        store.spend(),
        budget,
        curves_of([iteration.metrics for iteration in iterations]),
        {name: count / turns.total() for name, count in turns.most_common()},
        list(evaluations),
        stored_report(store, evaluations),
        [(_time(event.at), f"{event.kind}: {_short(event.data)}") for event in store.events()],
    )


def curves_of(metrics: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the values of each metric by iteration, NaN where one has none; usual ones first."""
    names = dict.fromkeys(name for row in metrics for name in row)
    order = [name for name in FIRST_CURVES if name in names]
    order += sorted(name for name in names if name not in FIRST_CURVES)
    return {name: [row.get(name, math.nan) for row in metrics] for name in order}


def clock(seconds: float | None) -> str:
    """Return a duration as people write it; empty if it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _progress(config: Mapping[str, Any], iterations: Sequence[Any], status: str) -> Progress:
    """Return the progress by iterations, or by episodes for trainers that cut these themselves."""
    limit = config["run"]["iterations"]
    trainers = _listed(config.get("trainer"))
    wanted = [trainer.get("iterations") for trainer in trainers]
    by_episodes = len(trainers) == 1 and wanted == [None] and limit is None
    total: int | None
    if by_episodes and isinstance(trainers[0].get("episodes"), int):
        unit, total = "episodes", trainers[0]["episodes"]
        done = sum(iteration.episodes for iteration in iterations)
    else:
        unit, done = "iterations", len(iterations)
        caps = [n if limit is None or n is None else min(n, limit) for n in wanted]
        total = None if None in caps else sum(n for n in caps if n is not None)
    recent = iterations[-RECENT:]
    left = None
    if total and recent and status == "running":
        made = sum(i.episodes for i in recent) if unit == "episodes" else len(recent)
        left = max(0, total - done) * sum(i.seconds for i in recent) / max(1, made)
    return Progress(done, total, unit, left)


def _listed(trainer: Any) -> list[Mapping[str, Any]]:
    return [] if trainer is None else trainer if isinstance(trainer, list) else [trainer]


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S")


def _short(data: Any) -> str:
    text = " ".join(str(data).split())
    return text if len(text) <= 200 else f"{text[:197]}..."
