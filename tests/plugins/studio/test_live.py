"""News of a run that is being written, and plots of whatever figures it has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_studio import catalogue, create_app, live
from orchestrion_studio.drawing import Scale, chart, forest_rows, plot_of, series_of, spark
from orchestrion_studio.page import environment
from orchestrion_studio.readers import Readers
from orchestrion_studio.run import smoothed
from starlette.testclient import TestClient

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


def test_a_run_without_news_is_still_there_and_one_that_is_missing_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SECONDS", 0.001)
    monkeypatch.setattr(live, "SILENCE", 0.002)
    store = RunStore.create(tmp_path / "live-1", CONFIG.format(note="x"))

    async def watch() -> list[str]:
        news = live._news(RunReader(store.directory))
        heard = [await anext(news) for _ in range(2)]
        await news.aclose()  # type: ignore[attr-defined]
        return heard

    assert asyncio.run(watch())[1] == ": still here\n\n"
    store.set_status("completed")
    store.close()
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    answer = client.get("/live/live-1")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("event: ended\ndata: completed\n\n")


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


def test_few_runs_stay_open_and_one_that_took_anothers_name_is_opened(tmp_path: Path) -> None:
    lent, runs = Readers(), [make_run(tmp_path / f"run-{i}", iterations=1) for i in range(6)]
    for run in runs:
        with lent.lend(run) as reader:
            assert len(reader.iterations()) == 1
    assert list(lent._open) == runs[2:]
    make_run(tmp_path / "other", iterations=2)
    with lent.lend(runs[5]) as before:
        for file in runs[5].glob("run.db*"):
            file.unlink()
        (tmp_path / "other" / "run.db").rename(runs[5] / "run.db")
        with lent.lend(runs[5]) as now:
            assert (len(now.iterations()), now is before) == (2, False)
        assert before.status == "completed", "it is open as long as somebody reads it"
    lent.close()
    assert lent._open == {}


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


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.0, 0.9], [0.0, 0.2, 0.4, 0.6, 0.8]),
        ([0, 5], [0, 1, 2, 3, 4, 5]),
        ([3.0, 3.0], [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]),
        ([0.0, 0.0], [-0.4, -0.2, 0.0, 0.2, 0.4]),
    ],
)
def test_ticks_are_round_numbers(values: list[float], ticks: list[float]) -> None:
    assert Scale(values, 0, 100).ticks(4) == pytest.approx(ticks)


def test_long_curves_are_means_of_neighbours_and_their_tables_have_every_nth_row() -> None:
    plot = plot_of(
        "T", "x", "y", [series_of("s", list(range(480)), [float(i) for i in range(480)])]
    )
    drawn = chart(plot)
    assert drawn["series"][0]["y"][:2] == [0.5, 2.5]
    assert len(drawn["series"][0]["x"]) == 240
    assert (len(drawn["table"]["rows"]), drawn["table"]["note"]) == (80, "every 6th row of 480")


def test_a_forest_says_which_differences_are_sure() -> None:
    rows = [
        {"name": name, "mean": mean, "low": low, "high": high}
        for name, mean, low, high in (
            ("a", 0.5, 0.25, 0.75),
            ("b", -0.5, -0.75, -0.25),
            ("c", 0.0, -0.5, 0.5),
            ("d", 0.25, None, None),
            ("e", None, None, None),
        )
    ]
    drawn = forest_rows(rows)["rows"]
    assert [(row["name"], row["kind"], row["text"]) for row in drawn] == [
        ("a", "better", "+0.500 [+0.250, +0.750]"),
        ("b", "worse", "-0.500 [-0.750, -0.250]"),
        ("c", "level", "0 [-0.500, +0.500]"),
        ("d", "better", "+0.250"),
    ]
    assert forest_rows([])["rows"] == []
    assert spark([1.0, None]) is None
    assert spark([1.0, None, 3.0]) == {"path": "1.0 21.0L99.0 3.0", "first": 1.0, "last": 3.0}
