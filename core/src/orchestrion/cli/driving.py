"""What `train` and `resume` share: carry a run out, and say in the store how it ended."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from orchestrion.cli.common import emit
from orchestrion.cli.display import Display, report_lines
from orchestrion.errors import BudgetError, StoreError

if TYPE_CHECKING:
    from orchestrion.config import Config
    from orchestrion.report import Report
    from orchestrion.run import Run
    from orchestrion.store import RunStore

__all__ = ["carry_out"]

EVERY_ITERATION = {"episodes", "reward", "success", "cost", "turns", "missing", "limit"}


def carry_out(
    config: Config, store: RunStore, verbose: bool, as_json: bool, show_best: bool
) -> int:
    """Train to the end, print the report, and return the exit code."""
    from orchestrion.run import Run

    observers = config.observers()
    with Display(verbose, terminal=False if as_json else None) as display:
        display.say(f"run: {store.directory}")
        run = Run(config, store, display, observers)
        status = "failed"
        try:
            report = asyncio.run(_interruptible(run))
            status = "completed"
            _finish(store, run)
        except BudgetError as error:
            status = "budget"
            _note_end(store, run, status, str(error))
            display.say(f"go on with: orchestrion resume {store.directory}")
            raise
        except (KeyboardInterrupt, asyncio.CancelledError):
            status = "cancelled"
            _note_end(store, run, status, "interrupted")
            display.say(f"go on with: orchestrion resume {store.directory}")
            raise KeyboardInterrupt from None
        except Exception as error:
            _note_end(store, run, status, str(error))
            display.say(f"the run is kept, and can be resumed: {store.directory}")
            raise
        finally:
            observers.run_finished(store.directory, status)
        if run.calls.waits():
            for service, seconds in run.calls.waits().items():
                if seconds >= 1:
                    display.say(f"calls waited {seconds:.0f} s for the limits of {service}")
    if as_json:
        emit({"run": str(store.directory), "status": status, "report": report.as_json()})
    else:
        _print(store, report, show_best)
    return 0


async def _interruptible(run: Run) -> Report:
    """The run, which a SIGTERM ends as orderly as a SIGINT."""
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError):  # no signal handlers on Windows loops
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run.train()


def _finish(store: RunStore, run: Run) -> None:
    from orchestrion.store.exports import export_run

    store.set_status("completed", seconds=run.unbooked_seconds)
    export_run(store)


def _note_end(store: RunStore, run: Run, status: str, detail: str) -> None:
    # On a full disk even this may fail; what was committed stands either way.
    with suppress(StoreError):
        store.set_status(status, detail, seconds=run.unbooked_seconds)  # type: ignore[arg-type]


def _print(store: RunStore, report: Report, show_best: bool) -> None:
    for line in report_lines(report):
        click.echo(line)
    for line in training_lines(store):
        click.echo(line)
    if show_best:
        click.echo()
        for line in best_lines(store):
            click.echo(line)
    click.echo(f"\nrun: {store.directory}")


def training_lines(store: RunStore) -> list[str]:
    """What the trainers said of the team in their last iterations, by name."""
    lines = []
    for stage in sorted({one.stage for one in store.iterations()}):
        last = store.iterations(stage)[-1]
        own = {name: value for name, value in last.metrics.items() if name not in EVERY_ITERATION}
        if own:
            lines += ["", f"stage {stage + 1}, last of {last.iteration + 1} iterations:"]
            lines += [f"  {line}" for line in wrap("  ".join(_pair(*pair) for pair in own.items()))]
    return lines


def _pair(name: str, value: float) -> str:
    # A space that a line is never broken at.
    return f"{name}\N{NO-BREAK SPACE}{value:.4g}"


def wrap(text: str) -> list[str]:
    """Lines of at most 90 characters; names and values stay together."""
    import textwrap

    lines = textwrap.wrap(text, 90, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def best_lines(store: RunStore) -> list[str]:
    """The training episode with the highest reward, turn by turn."""
    best = max(
        (one for one in store.episodes(source="train") if one.episode.reward is not None),
        key=lambda one: one.episode.reward.total if one.episode.reward else 0.0,
        default=None,
    )
    if best is None or best.episode.reward is None:
        return ["no training episode is stored"]
    episode = best.episode
    lines = [
        f"best training episode: {episode.id}, problem {episode.problem.id}, "
        f"reward {best.episode.reward.total:.4f}, {episode.status}"
    ]
    for turn in episode.turns:
        option = f":{turn.option}" if turn.option is not None else ""
        text = turn.error or turn.output.content
        first = text.strip().splitlines()[0][:100] if text.strip() else ""
        lines.append(
            f"  {turn.index + 1:3} {turn.agent}{option}  cost {turn.usage.cost:g}  {first}"
        )
    return lines
