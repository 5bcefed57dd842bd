"""Runs from Python: blocking and awaited, in every form of config, read as tables and as HTML."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import signal
import sys
import threading
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import frozen

import orchestrion as o
from orchestrion import (
    Agent,
    Episode,
    Key,
    Output,
    Problem,
    Scores,
    StoreError,
    Trajectory,
    Turn,
    UsageError,
)
from orchestrion._notebook import notebook_progress
from orchestrion._progress import Progress
from orchestrion._report import compare
from orchestrion._store import tables
from orchestrion._store.exports import export_run
from orchestrion.config import from_data, to_yaml
from orchestrion.runs import RunReader, RunStore
from orchestrion.testing._stage import KitAgent, KitReward, KitTask
from tests.core import planted
from tests.core.store_support import episode

DATA: dict[str, Any] = {
    "seed": 2,
    "task": {"use": KitTask, "solver": "c"},
    "agents": {name: {"use": KitAgent} for name in "abc"},
    "policy": {"use": planted.Bandit},
    "reward": {"use": KitReward},
    "trainer": {"use": planted.Practice},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_form_of_a_config_gives_the_same_run_where_a_loop_runs_or_not() -> None:
    config = from_data(DATA)
    text = to_yaml(config.resolved())
    Path("team.yaml").write_text(text)

    async def in_a_loop() -> list[o.Run]:
        return [o.train(text), o.train("team.yaml"), await o.atrain(config)]

    runs = [o.train(DATA), *asyncio.run(in_a_loop())]
    assert [run.path.name for run in runs] == ["config-1", "config-2", "team-1", "config-3"]
    assert all(run.status == "completed" for run in runs)
    assert all(run.report == runs[0].report for run in runs)
    assert [run.config == config for run in runs] == [True] * 4
    # Whatever takes a run's folder takes the run.
    assert o.evaluate(runs[0]) == o.evaluate("config-1") == o.evaluate(runs[3].path)
    assert o.resume(runs[0]) == o.Run("config-1") == runs[0]
    assert o.evaluate(DATA, limit=1).contenders[0].trained_on == 0


@pytest.mark.parametrize(
    ("config", "overrides", "words"),
    [
        (7, [], r"expected a config \(a file, .*\), got 7 \(an int\)"),
        (from_data(DATA), ["seed=3"], "this one was read"),
        ("seed: 1\nsed: 2", [], "config:2: sed: unknown section"),
        ("- a\n- b", [], "must be a mapping"),
    ],
)
def test_what_is_no_config_is_refused(config: Any, overrides: list[str], words: str) -> None:
    with pytest.raises(o.OrchestrionError, match=words):
        o.train(config, overrides=overrides)
    assert not Path("runs").exists()


class Gate:
    """What `Waits` waits for."""

    open = True
    reached = threading.Event()


@frozen
class Waits(Agent):
    """Works once the gate is open."""

    async def act(self, view: o.View, key: Key, calls: o.Calls) -> Output:
        if not Gate.open:
            Gate.reached.set()
            await asyncio.Event().wait()
        return Output("c")


def test_an_interrupt_in_a_running_loop_leaves_a_run_that_resumes() -> None:
    data = DATA | {"agents": {name: {"use": Waits} for name in "abc"}}
    whole = o.train(data, "runs/whole")
    Gate.open = False

    def interrupt() -> None:
        Gate.reached.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    async def cell() -> None:
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            o.train(data, "runs/cut")
        finally:
            Gate.reached.set()
            thread.join()

    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            asyncio.run(cell())
    finally:
        Gate.open = True
    cut = o.Run("cut")
    assert caught.value.__notes__ == [f"go on with: orchestrion.resume({str(cut.path)!r})"]
    assert cut.status == "cancelled"
    with pytest.raises(UsageError, match="has no report yet"):
        _ = cut.report
    assert "cancelled" in cut._repr_html_()
    assert o.resume("cut").report == whole.report


def test_a_notebook_shows_how_far_training_is_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    clock = [0.0]

    def display(line: str, display_id: bool) -> SimpleNamespace:
        lines.append(line)
        return SimpleNamespace(update=lines.append)

    shell = SimpleNamespace(kernel=True)
    python = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display, HTML=str))
    monkeypatch.setattr("orchestrion._notebook.time", SimpleNamespace(monotonic=lambda: clock[0]))
    bar = notebook_progress(tmp_path / "<run>")
    bar.stage("trainer", 6, 2)
    for clock[0], iteration in ((2.0, 2), (2.2, 3), (2.3, 5)):
        bar.iteration(iteration, {"reward": 0.5, "success": 0.25, "loss": 1.0}, 1.0)
    bar.evaluating("learned", False)
    bar.ended("completed")
    texts = [shown(line).removesuffix(f" {tmp_path}/<run>").strip() for line in lines]
    assert texts == [
        "begins",
        "trainer 2/6",
        "trainer 3/6 reward 0.500, success 0.250, 6 s left",
        "trainer 6/6 reward 0.500, success 0.250, 0 s left",
        "trainer 6/6 evaluating learned",
        "trainer 6/6 completed",
    ]
    assert "<progress value='3' max='6'>" in lines[2]
    del shell.kernel
    assert type(notebook_progress(tmp_path)) is Progress


# ---------------------------------------------------------------------------- tables


def stored(directory: Path) -> o.Run:
    """A run with two episodes: one plain, one of a nested team that said odd things."""
    inner = Trajectory([Turn(0, "deep", output=Output("within"))])
    odd = Output("\ud800 é", data={"a": [1]}, inner=inner, usage=o.Usage(2, 3, 4, 0.5, 1.5))
    turn = Turn(0, "critic", "short", odd, reads=())
    reward = o.Reward(0.25, turns=(0.25,))
    second = Episode("0/1", Problem("p"), Trajectory([turn]), scores=Scores(0.5), reward=reward)
    with RunStore.create(directory, "", {}) as store:
        store.commit_iteration(0, 0, [episode("0/0"), second], {"loss": 1.0, "reward": 9.0}, None)
        store.commit_iteration(0, 1, [], {"extra": 2.0}, None)
        store.set_status("completed")
        export_run(store)
    return o.Run(directory)


def test_tables_have_one_row_each_and_nested_data_as_text(tmp_path: Path) -> None:
    run = stored(tmp_path / "run")
    first, second = run.metrics("dicts")
    assert (first["iteration"], first["loss"], first["reward"]) == (0, 1.0, 0.625)
    assert (second["loss"], second["extra"], second["reward"]) == (None, 2.0, None)
    turns = run.turns("dicts")
    assert [(row["episode"], row["turn"]) for row in turns] == [("0/0", 0), ("0/0", 1), ("0/1", 0)]
    last = turns[-1]
    assert (last["agent"], last["option"], last["content"]) == ("critic", "short", "? é")
    assert (json.loads(last["data"]), json.loads(last["reads"])) == ({"a": [1]}, [])
    assert json.loads(last["inner"])[0]["output"]["content"] == "within"
    assert [last[n] for n in ("reward", "calls", "input_tokens", "usd")] == [0.25, 2, 3, 0.5]
    assert turns[0]["inner"] is turns[0]["data"] is turns[0]["reward"] is None
    assert run.turns("dicts", id="0/1") == [last]
    assert run.calls("dicts") == run.evaluations("dicts") == []
    with pytest.raises(TypeError, match="cannot be selected by 'sauce'"):
        run.episodes("dicts", sauce="train")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"as_='arrow': a table comes as 'pandas'"):
        run.metrics("arrow")  # type: ignore[arg-type]
    assert run.episode("0/1").turns[0].agent == "critic"
    assert run.activations().turns == {"worker": 2, "critic": 1}
    assert run.activations(id="0/1").turns == {"critic": 1}


def test_episodes_are_the_rows_of_rewards_csv(tmp_path: Path) -> None:
    run = stored(tmp_path / "run")
    with (run.path / "exports" / "rewards.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    def text(value: Any) -> str:
        return "" if value is None else str(int(value) if isinstance(value, bool) else value)

    table = run.episodes("dicts")
    assert [{name: text(value) for name, value in row.items()} for row in table] == rows


def test_arguments_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    run = o.train(DATA, tmp_path / "run")
    files = sorted(tmp_path.iterdir())
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("limit: must be at least 1, got -1", lambda: o.evaluate(run, limit=-1)),
        ("limit: must be at least 1, got 0", lambda: o.evaluate(run, limit=0)),
        ("split: 'zz' is none of train", lambda: o.evaluate(run, split="zz")),  # type: ignore[arg-type]
        ("an override is PATH=VALUE", lambda: o.train(DATA, overrides=[3])),  # type: ignore[list-item]
        ("progress: expected", lambda: o.train(DATA, progress=object())),  # type: ignore[arg-type]
        ("no episode has the source 'zz'", lambda: run.episodes(source="zz")),
        ("stage: expected a whole number", lambda: run.turns(stage="x")),  # type: ignore[arg-type]
    ]
    for words, call in wrong:
        with pytest.raises(UsageError, match=re.escape(words)):
            call()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as caught:
        o.train(DATA, tmp_path / "file/run")
    assert "can be resumed" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == sorted([*files, tmp_path / "file"])


def test_row_groups_of_parquet_files_hold_so_many_rows_or_characters() -> None:
    many = tables._groups((i, "x") for i in range(12_000))
    assert [len(group) for group in many] == [5_000, 5_000, 2_000]
    long = tables._groups((i, "x" * 6_000_000) for i in range(6))
    assert [len(group) for group in long] == [3, 3]


def test_a_data_frame_is_made_by_the_library_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frame(rows: object, **how: object) -> object:
        return rows, how

    frames = SimpleNamespace(from_records=frame)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=frames))
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(DataFrame=frame))
    run = stored(tmp_path / "run")
    columns = {"stage": int, "iteration": int, "seconds": float, "reward": float}
    columns |= {"loss": float, "extra": float}
    rows = [(0, 0, 0.0, 0.625, 1.0, None), (0, 1, 0.0, None, None, 2.0)]
    assert run.metrics("pandas") == (rows, {"columns": list(columns)})
    assert run.metrics("polars") == (rows, {"schema": columns, "orient": "row"})


def test_a_library_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = stored(tmp_path / "run")
    for name in ("pandas", "polars", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match="polars is not installed"):
        run.metrics("polars")
    with (
        RunReader(run.path) as reader,
        pytest.raises(UsageError, match=r"pip install 'orchestrion\[parquet\]'"),
    ):
        export_run(reader, tmp_path / "elsewhere", parquet=True)
    assert not list((tmp_path / "elsewhere").glob("*"))


# ---------------------------------------------------------------------------- HTML

HOSTILE = "'\"><script>x</script><img src=x onerror=x></pre></svg>&lt;b>\u202e\x1b[31m\0\ud800"
TAGS = set("b bdi details div pre progress small summary table td th tr p".split())
ATTRIBUTES = set(
    "anchor dir fill font-size height max-width open points role stroke "
    "stroke-width style text-anchor value max viewbox x xmlns y".split()
)


def shown(html: str) -> str:
    """The text of a page that has no element or attribute but ours, each of them closed."""
    parts: list[str] = []
    depth: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag in TAGS
            assert {name for name, _ in attrs} <= ATTRIBUTES
            depth.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.handle_starttag(tag, attrs)
            depth.pop()

        def handle_endtag(self, tag: str) -> None:
            assert depth.pop() == tag

        def handle_data(self, data: str) -> None:
            parts.append(data)

    reader = Reader()
    reader.feed(html)
    reader.close()
    assert depth == []
    return "".join(parts)


def test_html_shows_hostile_texts_as_texts(tmp_path: Path) -> None:
    inner = Trajectory([Turn(0, HOSTILE, output=Output(HOSTILE))])
    turns = [
        Turn(0, HOSTILE, HOSTILE, Output(HOSTILE, inner=inner)),
        Turn(1, HOSTILE + "2", status="failed", error=HOSTILE, decision=1),
        Turn(2, HOSTILE + "2", output=Output("long " * 1_000_000), decision=2),
    ]
    problem = Problem(HOSTILE, HOSTILE, category=HOSTILE)
    whole = Episode(HOSTILE, problem, Trajectory(turns), error=HOSTILE, reward=o.Reward(1.0))
    text = shown(whole._repr_html_())
    assert "'\"><script>x</script>" in text
    assert "more characters" in text
    assert len(text) < 100_000
    assert not {"\0", "\x1b", "\ud800", "\u202e"} & set(text)
    graph = o.fold([o.waves(whole.turns)])
    assert "<script>" in shown(graph._repr_html_())
    fields = "solved cost turns reward missing limit failed usd tokens calls".split()
    row = dict.fromkeys(fields, 1.0)
    results = {HOSTILE: {HOSTILE: row}, HOSTILE + "2": {HOSTILE: row}}
    assert "<script>" in shown(compare("test", 1, results, {}, Key(1))._repr_html_())
    run = stored(tmp_path / "<b>run")
    assert "<b>run" in shown(run._repr_html_())
