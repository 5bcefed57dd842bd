"""News of a run that is being written, and plots of whatever figures it has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_studio import catalogue, live
from orchestrion_studio.drawing import plot_of, series_of
from orchestrion_studio.page import environment
from orchestrion_studio.readers import Readers
from orchestrion_studio.run import smoothed

from orchestrion._store import Checkpoint
from orchestrion.runs import RunReader, RunStore
from tests.plugins.studio.made import CONFIG, episode, make_run


def test_a_run_has_news_when_it_was_written_to_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SECONDS", 0.001)
    store = RunStore.create(tmp_path / "live-1", CONFIG.format(note="x"))

    async def watch() -> list[str]:
        news = live._news(RunReader(store.directory))
        heard = [await anext(news)]
        store.commit_iteration(0, 0, [episode("0/0/0", ["a"], 1.0)], {})
        heard.append(await anext(news))
        store.set_status("completed")
        store.close()
        return [*heard, *[text async for text in news]]

    heard = asyncio.run(watch())
    kinds = [text.partition("event: ")[2].partition("\n")[0] for text in heard]
    assert kinds[:2] == ["status", "changed"]
    assert kinds[-1] == "ended"
    assert "data: completed" in heard[-1]


def test_runs_are_read_again_only_after_they_were_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_run(tmp_path / "a-1")
    make_run(tmp_path / "b-1")
    monkeypatch.setattr(catalogue, "FRESH", 0.0)
    runs = catalogue.Catalogue(tmp_path)
    hurried = runs.look(seconds=-1)
    assert [run is None for run in hurried.values()] == [False, True]
    before = runs.look()
    store = RunStore.open(first)
    store.commit_iteration(0, 4, [episode("0/4/0", ["a"], 1.0)], {})
    store.close()
    after = runs.look()
    assert after["b-1"] is before["b-1"]
    assert after["a-1"] is not None
    assert after["a-1"].iterations == 5


def test_iterations_are_read_once_and_anew_where_a_resume_dropped_some(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", CONFIG.format(note="x")) as store:
        for number in range(3):
            checkpoint = Checkpoint(0, 0, {}, {}) if number == 0 else None
            store.commit_iteration(0, number, [], {"cost": 1.0}, checkpoint, seconds=number + 1.0)
        lent = Readers()
        with lent.lend(store.directory) as reader:
            first = reader.iterations()
            assert all(a is b for a, b in zip(first[:-1], reader.iterations(), strict=False))
            store.restore()
            assert [row.iteration for row in reader.iterations()] == [0]
            for number in (1, 2):
                store.commit_iteration(0, number, [], {"cost": 2.0}, seconds=number + 1.5)
            assert [row.metrics["cost"] for row in reader.iterations()] == [1.0, 2.0, 2.0]
            assert [row.iteration for row in reader.iterations(first=1)] == [1, 2]
        lent.close()


DRAWN: Any = environment().globals
numbers = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(numbers, max_size=30), st.sampled_from(["line", "faint", "points", "rule"]))
def test_any_figures_can_be_drawn(values: list[float | None], style: str) -> None:
    xs = list(range(len(values)))
    series = series_of("<name>", xs, values, low=values, high=values, style=style)
    for drawn in (
        DRAWN["curves"](plot_of("Title", "iteration", "unit", [series])),
        DRAWN["sparkline"](series["y"], "name"),
    ):
        text = str(drawn)
        assert "nan" not in text.lower()
        assert "inf" not in text.replace("infinity", "")
        if text:
            ElementTree.fromstring(text)


def test_smoothing_has_no_pull_of_the_first_value_and_keeps_gaps() -> None:
    assert smoothed([1.0, None, 1.0, float("nan")], 0.9) == pytest.approx([1.0, None, 1.0, None])
    assert smoothed([0.0, 1.0], 0.5) == pytest.approx([0.0, 2 / 3])


def test_shares_are_written_as_per_cent() -> None:
    plot = plot_of(
        "Solved", "iteration", "share", [series_of("s", [1, 2], [0.25, 0.5])], shares=True
    )
    text = DRAWN["curves"](plot)
    assert ">30%</text>" in text
    assert "<td>25.0%</td>" in text
