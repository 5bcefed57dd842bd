"""The terminal page follows a run, obeys keys, and leaves the run as it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from orchestrion_studio.braille import braille, sparkline
from orchestrion_studio.command import watch
from orchestrion_studio.run import facts_of
from orchestrion_studio.watch_app import WatchApp
from rich.console import Console
from textual.pilot import Pilot
from textual.widgets import Static

from orchestrion.runs import RunStore, stored_config
from tests.plugins.studio.stored import HOSTILE, run_at

METRICS = [{"reward": n / 4, "success": 0.5, "cost": float(-n)} for n in range(3)]


def shown(app: WatchApp) -> str:
    """All that the page shows, as text."""
    console = Console(file=StringIO(), width=120, color_system=None)
    for part in app.query(Static):
        console.print(part.content)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def with_page(
    directory: Path, steps: Callable[[WatchApp, Pilot[None]], Awaitable[None]]
) -> WatchApp:
    """Open the page without a terminal, wait for its first look, and take some steps."""

    async def run() -> WatchApp:
        app = WatchApp(directory, seconds=0.1)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: "run" in shown(app))
            await steps(app, pilot)
        return app

    return asyncio.run(run())


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the page work until something holds."""
    while not condition():
        await pilot.pause(0.01)


def files(directory: Path) -> dict[str, str]:
    """Digests of all files of a run."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in paths}


def test_a_finished_run_is_shown_and_left_as_it_is(tmp_path: Path) -> None:
    metrics = [{**row, f"[red]{HOSTILE}": 1.0} for row in METRICS]
    run_at(tmp_path / "run", metrics=metrics, solved=[1, 0], text=f"[red]{HOSTILE}").close()
    before = files(tmp_path / "run")

    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        text = shown(app)
        for part in ("completed", "3 of 4 iterations", "solver", "learned", "chain", "noted: "):
            assert part in text
        assert "reward by iteration" in text
        await pilot.press("right", "right", "s")
        await pilot.pause()
        assert "cost by iteration, smoothed" in shown(app)
        await pilot.press("left", "left", "left")
        await pilot.pause()
        # What agents wrote is no markup, and moves no cursor.
        assert "[red]<script>" in shown(app)
        assert not any(c in shown(app) for c in "\x1b\u202e")
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    assert with_page(tmp_path / "run", steps).return_code == 0
    assert files(tmp_path / "run") == before


def test_a_run_is_followed_while_it_works(tmp_path: Path) -> None:
    run_at(tmp_path / "run", metrics=METRICS[:2], status="running").close()

    async def steps(app: WatchApp, pilot: Pilot[None]) -> None:
        with RunStore.open(tmp_path / "run") as store:
            await until(pilot, lambda: "about 4.0 s of training left" in shown(app))
            store.commit_iteration(0, 2, [], METRICS[2], seconds=2.0)
            store.record_event("stopped", "for lunch")
            await until(pilot, lambda: "for lunch" in shown(app))
            assert "3 of 4 iterations" in shown(app)
            store.set_status("failed", "no luck")
            await until(pilot, lambda: "no luck" in shown(app))
        (tmp_path / "run" / "run.db").unlink()
        await until(pilot, lambda: "holds no run" in shown(app))

    with_page(tmp_path / "run", steps)


def test_the_time_left_comes_from_the_last_iterations(tmp_path: Path) -> None:
    run_at(tmp_path / "run", metrics=METRICS, status="running").close()
    with RunStore.open(tmp_path / "run") as store:
        facts = facts_of(store, store.iterations(), stored_config(store))
    assert (facts["iterations"], facts["planned"], facts["seconds_left"]) == (3, 4, 2.0)
    with run_at(tmp_path / "done", metrics=METRICS) as store:
        facts = facts_of(store, store.iterations(), stored_config(store))
    assert facts["seconds_left"] is None


def test_without_the_library_or_a_terminal_the_command_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_at(tmp_path / "run").close()
    answer = CliRunner().invoke(watch, [str(tmp_path / "run")])
    assert "needs a terminal" in str(answer.exception)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "orchestrion_studio.watch_app")
    for name in [name for name in sys.modules if name.startswith("textual.")]:
        monkeypatch.delitem(sys.modules, name)
    answer = CliRunner().invoke(watch, [str(tmp_path / "run")])
    assert "pip install 'orchestrion-studio[watch]'" in str(answer.exception)


def test_curves_leave_gaps_and_never_fail() -> None:
    nan, inf = float("nan"), float("inf")
    assert braille([0.0, 1.0], 1, 1) == ["⡜"]
    assert braille([nan, inf], 2, 1) == ["⠀⠀"]
    assert braille([5.0], 1, 1) == ["⠄"]
    assert sparkline([0.0, nan, 1.0], 3) == "▁ █"
    assert sparkline([], 3) == ""
