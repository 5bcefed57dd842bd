"""What a run will probably take: estimated from episodes that were run for real.

They are those of the newest completed run of the same config, or a few that are run for this.
An estimate, with an interval, beside the bound of `forecast`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from math import isnan, sqrt
from pathlib import Path
from statistics import stdev

from attrs import frozen

from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import problems_of
from orchestrion._engine.opening import open_components
from orchestrion._errors import BudgetError, OrchestrionError, UsageError
from orchestrion._forecast import Forecast
from orchestrion._interfaces import Job
from orchestrion._keys import Key
from orchestrion._records import Split, Usage
from orchestrion._session import EngineSession, summarize
from orchestrion._store import RunReader, RunStore
from orchestrion._store.names import run_directories
from orchestrion.config import Config

_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Quantiles .975 of Student's t for 1, 2, ... degrees of freedom."""


@frozen
class Seen:
    """What episodes that were run took.

    Args:
        origin: the folder of their run.
        paid: what all of that run took, with verdicts, trainers and what was tried again.
        episodes: how many there were.
        turns: of agents, in all of them.
        usages: what the turns of each stored episode took.
        whole: whether they are all that the config says, and no sample.
    """

    origin: Path
    paid: Usage
    episodes: int
    turns: int
    usages: tuple[Usage, ...]
    whole: bool


@frozen
class Guess:
    """A sum for the whole run, and a 95 % interval for it."""

    total: float
    low: float
    high: float

    def within(self, bound: float) -> Guess:
        """Return the guess with nothing above a bound; NaN bounds nothing."""
        if isnan(bound):
            return self
        return Guess(min(self.total, bound), min(self.low, bound), min(self.high, bound))


def seen_before(config: Config, root: Path) -> Seen | None:
    """Return the newest completed run of the same config under `root`, a sample included."""
    for directory in sorted(run_directories(root), key=_age, reverse=True):
        with suppress(OrchestrionError), RunReader(directory) as run:
            if run.status == "completed" and (run.manifest or {}).get("digest") == config.digest:
                episodes = [row.episode for row in run.episodes()]
                others = sum(
                    results.get("trained_on", 0)
                    for name, results in run.load_evaluations().items()
                    if name in config.evaluation.baselines
                )
                if len(episodes) > 1:
                    turns = sum(len(episode.turns) for episode in episodes)
                    count = len(episodes) + others
                    return Seen(
                        directory,
                        run.spend(),
                        count,
                        round(turns * count / len(episodes)),
                        tuple(episode.usage for episode in episodes),
                        not sample_size(run),
                    )
    return None


def sample_size(run: RunReader) -> int:
    """Return how many episodes a run was a sample of, for a dry run; 0 for a run as any other."""
    return int((run.manifest or {}).get("sample", 0))


def refuse_sample(run: RunReader, what: str) -> None:
    """Refuse a folder that holds a sample."""
    if sample_size(run):
        raise UsageError(
            f"{run.directory} holds a sample for a dry run, which cannot be {what}; "
            "train the config itself"
        )


def _age(directory: Path) -> float:
    with suppress(OSError):
        return (directory / "config.yaml").stat().st_mtime
    return 0.0


def guesses(seen: Seen, forecast: Forecast) -> dict[str, Guess]:
    """Calls, tokens and US dollars of the whole run, if it goes on as those episodes did.

    No number is above the bound of `forecast`, where that is known.
    """
    if seen.whole:
        return _sums(seen, seen.episodes)
    sums = _sums(seen, sum(part.count for part in forecast.parts if part.who == "judge"))
    if forecast.unknown:
        return sums
    return {name: guess.within(getattr(forecast.total, name)) for name, guess in sums.items()}


def _sums(seen: Seen, count: float) -> dict[str, Guess]:
    paid = {"calls": seen.paid.calls, "tokens": seen.paid.tokens, "usd": seen.paid.usd}
    return {
        name: _guess(value / seen.episodes, [float(getattr(u, name)) for u in seen.usages], count)
        for name, value in paid.items()
    }


def _guess(each: float, values: list[float], count: float) -> Guess:
    """Estimate `count` episodes that take `each`, with the spread of `values`."""
    known = [value for value in values if not isnan(value)]
    spread = stdev(known) if len(known) > 1 else 0.0
    t = _T[len(known) - 2] if len(known) - 2 < len(_T) else 1.96 + 2.5 / len(known)
    # The mean is uncertain, and so is what the episodes to come add to it.
    half = t * spread * sqrt(count**2 / max(len(known), 1) + count)
    return Guess(each * count, max(each * count - half, 0.0), each * count + half)


async def run_sample(config: Config, store: RunStore, count: int) -> None:
    """Run some training episodes under the budget, with the policy as it is before training.

    Without a trainer they are on the problems of the evaluation. All of it is on record.
    """
    key = Key(config.seed)
    calls = CallPath(Budget(config.budget), store.journal, store.cache, booked=store.booked)
    split: Split = "train" if config.stages else config.evaluation.split
    try:
        async with AsyncExitStack() as stack:
            opened = await open_components(config, stack, key, store.directory, None, store.note)
            problems = problems_of(opened.runtimes[config.task], split, config.task)
            engine = opened.engine(calls)
            engine.stage = "sample"
            key = key.child("sample")
            session = EngineSession(engine, "sample", key, key, config.run.concurrency)
            jobs = [Job(problems[i % len(problems)], key.child(i)) for i in range(count)]
            try:
                async with calls.budget.deadline():
                    episodes = await session.rollout(jobs)
                await calls.settle()
            finally:
                await calls.drain()
    except BaseException as error:
        status = "budget" if isinstance(error, BudgetError) else "failed"
        with suppress(OrchestrionError):
            store.set_status(status, str(error), stated=calls.budget.take_stated())  # type: ignore[arg-type]
        raise
    store.commit_iteration(
        0,
        0,
        episodes,
        summarize(episodes),
        seconds=calls.budget.elapsed,
        stated=calls.budget.take_stated(),
    )
    store.set_status("completed", f"a sample of {count} episodes for a dry run")
