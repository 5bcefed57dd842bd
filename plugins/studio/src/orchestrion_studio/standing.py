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
        done: iterations.
        total: how many there will be; None if that is not known before a stage begins.
        seconds_left: of training, from the last iterations; None if that cannot be told.
    """

    done: int
    total: int | None
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
        _progress(config, store.planned, iterations, store.status),
        max(store.seconds, sum(iteration.seconds for iteration in iterations)),
        sum(iteration.episodes for iteration in iterations),
        sum(iteration.successes for iteration in iterations),
        store.spend(),
        budget,
        curves_of([iteration.metrics for iteration in iterations]),
        {name: count / turns.total() for name, count in turns.most_common()},
        list(evaluations),
        stored_report(store, evaluations),
        [*((_time(e.at), f"{e.kind}: {_short(e.data)}") for e in store.events()), *_end(store)],
    )


def _end(store: RunReader) -> list[tuple[str, str]]:
    """Return how a run ended as its last event; nothing while it goes on."""
    if store.finished is None or store.status == "running":
        return []
    return [(_time(store.finished), f"{store.status}: {_short(store.detail)}".rstrip(": "))]


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


def _progress(
    config: Mapping[str, Any], planned: Mapping[int, int], iterations: Sequence[Any], status: str
) -> Progress:
    """Return the progress: stages that were begun said how many iterations they have."""
    limit = config["run"]["iterations"]
    totals = []
    for stage, trainer in enumerate(_listed(config.get("trainer"))):
        wanted = trainer.get("iterations")
        capped = wanted if limit is None or wanted is None else min(wanted, limit)
        totals.append(planned.get(stage, capped))
    total = None if None in totals else sum(n for n in totals if n is not None)
    recent = iterations[-RECENT:]
    left = None
    if total and recent and status == "running":
        left = max(0, total - len(iterations)) * sum(i.seconds for i in recent) / len(recent)
    return Progress(len(iterations), total, left)


def _listed(trainer: Any) -> list[Mapping[str, Any]]:
    return [] if trainer is None else trainer if isinstance(trainer, list) else [trainer]


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S")


def _short(data: Any) -> str:
    text = " ".join(str(data).split())
    return text if len(text) <= 200 else f"{text[:197]}..."
