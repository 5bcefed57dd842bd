"""What was learned, comparisons on common problems, and reports, from what runs store."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_studio import create_app, markdown
from orchestrion_studio.command import report
from orchestrion_studio.compare import compared, differing_settings
from orchestrion_studio.lessons import PAGES, changed_lines, lessons_of
from orchestrion_studio.markdown import markdown_of
from orchestrion_studio.page import Query, render
from orchestrion_studio.pictures import graph_places, tree_places
from orchestrion_studio.searches import links_of
from orchestrion_studio.self_contained import html_of, sample_of
from starlette.testclient import TestClient

from orchestrion.runs import RunReader
from tests.plugins.studio.stored import HOSTILE, run_at

HABIT = {
    "text": "Show your work.",
    "version": 2,
    "status": "active",
    "reason": "",
    "effect": 0.25,
    "interval": [0.125, 0.375],
    "tested_on": {"split": "validation", "problems": 8, "pairs": 16},
    "round": 0,
}
POOL: list[dict[str, Any]] = [
    {"texts": {"solver": "one\ntwo"}, "scores": [0.0, None], "parents": [], "changed": ""},
    {"texts": {"solver": "one\nthree"}, "scores": [1.0, 0.5], "parents": [0], "changed": "solver"},
]
TRIAL = {"effect": 0.5, "interval": [0.25, 0.75], "pairs": 9, "better_than": 0, "adopted": True}
JUDGED = [[1, TRIAL]]
GRAPH = {"nodes": {"a": {}, "b": {}}, "edges": ["a -> b"], "outputs": ["b"]}
MEMBER = {"name": "front-01", "chosen": True, "graph": "b(a)", "config": GRAPH, "settings": {}}
FRONT = {
    "batches": [[[[[0]], [0.5, 3.0, 8]], [[[1]], [0.25, 1.0, 8]]]],
    "report": {
        "strategy": "nsga2",
        "measure": "cost",
        "evaluations": 2,
        "held_out": {"split": "validation", "problems": 4},
        "front": [
            {
                **MEMBER,
                "search": {"quality": 0.5, "cost": 3.0},
                "fresh": None,
                "held_out": {
                    "reward": {"mean": 0.375, "low": 0.25, "high": 0.5},
                    "cost": {"mean": 2.5},
                },
            }
        ],
        "baselines": [],
    },
}


def sections(path: Path, **made: Any) -> dict[str, dict[str, Any]]:
    """The sections of a run by kind; the whole of it is JSON."""
    with run_at(path / "run", **made) as store:
        lessons = lessons_of(store)
    json.dumps(lessons, allow_nan=False)
    return {section["kind"]: section for section in lessons["sections"]}


def test_a_learned_setting_is_shown_beside_the_configured_one(tmp_path: Path) -> None:
    overlay = {"agents.solver.habits": ["Be brief.", "Show your work."], "votes": {"a": 2.0}}
    lists, votes = sections(tmp_path, overlay=overlay)["settings"]["rows"]
    assert lists["diff"] == " Be brief.\n+Show your work."
    assert (votes["bars"], votes["is_set"]) == ([{"name": "a", "value": 2.0}], False)


def test_habits_and_texts_come_with_the_trial_that_decided(tmp_path: Path) -> None:
    habits = {"learned": {"habits": {"solver": {"any": [HABIT]}}}}
    made = sections(
        tmp_path,
        components={"improver": habits, "gepa": {"pool": POOL, "judged": JUDGED, "adopted": 1}},
    )
    [habit] = made["habits"]["rows"]
    assert (habit["mean"], habit["low"], habit["trial"]["pairs"]) == (0.25, 0.125, 16)
    first, second = made["texts"]["rows"]
    assert (first["adopted"], second["adopted"], second["parents"]) == (False, True, [0])
    assert (first["trial"], second["trial"]["effect"], second["mean"]) == (None, 0.5, 0.75)
    assert second["diffs"][0]["diff"] == " one\n-two\n+three"


def test_words_that_a_plan_reacts_to_are_shown(tmp_path: Path) -> None:
    policy = {"model": "fitted-q", "choices": ["a", "b"], "data": {}}
    learned = {"words": {"a": ["pass", "+fine"]}}
    made = sections(tmp_path / "some", components={"policy": {**policy, "learned": learned}})
    assert made["steps"]["rows"] == [{"category": "a", "steps": ["pass, +fine"]}]
    assert "+ speaks for a good outcome" in made["steps"]["about"]
    with RunReader(tmp_path / "some" / "run") as store:
        assert "- Words that decide for a: pass, +fine\n" in markdown_of(store)
    none = sections(tmp_path / "none", components={"policy": policy})
    assert "steps" not in none
    assert none["model"]["about"].startswith("The policy takes the choice")


def test_what_the_learned_team_did_is_shown_as_reports_show_it(tmp_path: Path) -> None:
    conduct = sections(tmp_path, solved=[1.0])["conduct"]
    assert conduct["rows"] == [{"category": "", "orders": [{"order": "solver", "share": 1.0}]}]
    with RunReader(tmp_path / "run") as store:
        assert "- the learned team: 100.0% solver" in markdown_of(store)
        html = render(
            PAGES[0],
            PAGES[0].data(Query(tmp_path, "run", {}), store),
            query=Query(tmp_path, "run", {}),
            static=False,
        )
    assert "100.0% solver" in html


def test_a_front_has_every_point_with_its_graph(tmp_path: Path) -> None:
    front = sections(tmp_path, components={"trainer": FRONT})["front"]
    assert front["others"] == [[1.0, 0.25], [3.0, 0.5]]
    [member] = front["members"]
    assert (member["cost"], member["mean"], member["search"]) == (2.5, 0.375, 0.5)
    assert (member["nodes"], member["links"]) == (["a", "b"], [["a", "b"]])


def test_a_search_that_goes_on_has_no_front_yet(tmp_path: Path) -> None:
    front = sections(tmp_path, components={"trainer": {**FRONT, "report": None}})["front"]
    assert front["members"] == []
    assert "goes on" in front["about"]


@pytest.mark.parametrize(
    ("edge", "links"),
    [
        ("a, b -> c when data.ok", [["a", "c"], ["b", "c"]]),
        ("a -> b -> c", [["a", "b"], ["b", "c"]]),
        ("a.score -> b.limit otherwise", [["a", "b"]]),
        ({"source": "a", "target": "b"}, [["a", "b"]]),
    ],
)
def test_edges_are_read_as_they_are_written(edge: Any, links: list[list[str]]) -> None:
    assert links_of([edge]) == links


def test_a_tree_is_of_one_problem_and_its_half_written_line_is_left_out(tmp_path: Path) -> None:
    node = {"path": "0", "agents": ["a"], "options": [None], "value": 0.5, "fate": "grown"}
    with run_at(tmp_path / "run") as store:
        folder = store.exports / "beam"
        folder.mkdir(parents=True)
        rows = [{**node, "problem": "p"}, {**node, "problem": "q", "path": "1"}]
        lines = [json.dumps(row) for row in rows]
        (folder / "tree-0003.jsonl").write_text("\n".join([*lines, lines[0][:30]]))
        lessons = lessons_of(store, problem="q")
        query = Query(tmp_path, "run", {"problem": ["q"]})
        html = render(PAGES[0], PAGES[0].data(query, store), query=query, static=False)
    assert "1: a, grown, value 0.5" in html
    [tree] = [part for part in lessons["sections"] if part["kind"] == "beam"]
    assert (tree["iteration"], tree["problems"], tree["problem"]) == (4, ["p", "q"], "q")
    assert [row["path"] for row in tree["nodes"]] == ["1"]


def test_a_tree_is_drawn_from_left_to_right_with_each_node_beside_its_own() -> None:
    nodes = [
        {"path": path, "turns": ["a", "b"], "value": 0.5, "fate": "grown"}
        for path in ("1", "0", "0.1", "0.0")
    ]
    drawn = tree_places(nodes)
    places = {node["title"].partition(":")[0]: (node["x"], node["y"]) for node in drawn["nodes"]}
    assert places == {"0": (162, 36), "0.0": (312, 24), "0.1": (312, 48), "1": (162, 72)}
    grown = [node["title"][0] for node in drawn["nodes"] if node["is_grown"]]
    assert grown == ["0"]
    assert (drawn["width"], drawn["height"]) == (474, 96)
    assert {node["name"] for node in drawn["nodes"]} == {"b 0.5"}


def test_a_graph_is_drawn_in_columns_also_with_a_loop() -> None:
    drawn = graph_places(["a", "b", "c", "d"], [("a", "b"), ("a", "c"), ("c", "d"), ("d", "d")])
    columns = {name: x for name, (x, _) in drawn["places"].items()}
    assert columns == {"a": 8, "b": 184, "c": 184, "d": 360}
    assert drawn["places"]["a"][1] == drawn["places"]["d"][1] == 30
    assert (len(drawn["arrows"]), drawn["width"], drawn["height"]) == (4, 500, 104)
    assert drawn["text"] == "a to b; a to c; c to d; d to d"
    assert graph_places(["x", "y"], [("x", "y"), ("y", "x")])["places"].keys() == {"x", "y"}


@pytest.mark.parametrize(
    ("saved", "kind", "rows", "about"),
    [
        (
            {"helped": {"a": [0.5, 0.25]}, "cost": {"a": [1.0]}, "patience": 3},
            "order",
            [{"name": "a", "helped": [0.5, 0.25], "cost": [1.0]}],
            "it stops after 3 turns.",
        ),
        ({"model": "forest", "choices": ["a", "b"]}, "model", ["a", "b"], "`forest` predicts"),
        ({"picked": "values"}, "model", [], "`values`"),
        ({"steps": {"sums": ["a"]}}, "steps", [{"category": "sums", "steps": ["a"]}], "Who acts"),
    ],
)
def test_what_a_policy_saved_is_recognised_by_its_form(
    tmp_path: Path, saved: Any, kind: str, rows: list[Any], about: str
) -> None:
    section = sections(tmp_path, components={"policy": saved})[kind]
    assert (section["rows"], about in section["about"]) == (rows, True)


def test_states_of_other_forms_are_not_guessed_at(tmp_path: Path) -> None:
    others = [{"helped": {}, "cost": {}}, {"helped": 1}, {"model": "x"}, {"steps": 5}, [1]]
    components = {f"part-{i}": saved for i, saved in enumerate(others)}
    assert set(sections(tmp_path, components=components)) == {"weights"}


def test_long_texts_are_compared_in_part() -> None:
    many = changed_lines([], [f"line {i}" for i in range(500)])
    assert many.endswith("(101 more lines)")
    assert "(20,000 characters)" in changed_lines("a", "A" * 20_000), "no prose"
    assert "(5,000 more characters)" in changed_lines("", "word " * 5000)
    assert changed_lines({"a": 1}, {"a": 2}) == ' {\n-"a": 1\n+"a": 2\n }'.replace('"a"', ' "a"')


def test_only_sequences_that_were_learned_are_shown(tmp_path: Path) -> None:
    """The policy's steps are those of the config; the baseline's were found by its trainer."""
    made = sections(tmp_path, components={"policy": {"steps": ["solver"]}}, solved=[1.0])
    assert made["steps"]["rows"] == [{"category": "", "steps": ["critic"]}]
    assert made["steps"]["title"] == "A learned sequence of the baseline chain"


def test_metrics_by_agent_are_a_table_and_numbers_are_counted(tmp_path: Path) -> None:
    metrics = [{"solver/entropy": 1.0, "gpt/norm": 2.0}, {"solver/entropy": 0.5, "share/a": 0.5}]
    with run_at(tmp_path / "run", metrics=metrics) as store:
        parts = lessons_of(store)["sections"]
    agents, models = (part for part in parts if part["kind"] == "agents")
    assert agents["rows"][0]["cells"] == [{"last": 0.5, "curve": [1.0, 0.5]}]
    assert models["rows"][0]["cells"] == [{"last": None, "curve": [2.0, None]}]
    assert parts[-1]["rows"] == [{"path": "weights", "arrays": 1, "numbers": 6, "bytes": 24}]


@settings(max_examples=30)
@given(st.lists(st.text("ab\n"), max_size=6), st.lists(st.text("ab\n"), max_size=6))
def test_a_difference_holds_what_changed(before: list[str], after: list[str]) -> None:
    lines = changed_lines(before, after).splitlines()
    old, new = ("\n".join(text).splitlines() for text in (before, after))
    assert bool(lines) == (old != new)
    for sign, text, other in (("-", old, new), ("+", new, old)):
        changed = Counter(line[1:] for line in lines if line.startswith(sign))
        assert Counter(text) - Counter(other) <= changed <= Counter(text)


def test_runs_are_compared_on_common_problems(tmp_path: Path) -> None:
    with (
        run_at(tmp_path / "a", solved=[1, 1, 0, 1], rate="0.1") as a,
        run_at(tmp_path / "b", solved=[1, 0, 1], rate="0.2", metrics=[{"entropy": 1.0}]) as b,
        run_at(tmp_path / "c") as c,
    ):
        result = compared({"a": a, "b": b, "c": c})
    pair, missing = result["pairs"]
    assert (pair["problems"], pair["alone"]) == (3, [1, 0])
    assert (pair["only_first"]["names"], pair["only_second"]["names"]) == (["p1"], ["p2"])
    [solved] = [row for row in pair["rows"] if row["name"] == "solved"]
    assert solved["mean"] == 0.0
    assert solved["low"] < 0 < solved["high"]
    assert missing["why_not"] == "c was not evaluated yet"
    assert [row["problem"] for row in result["problems"]["rows"]] == ["p1", "p2"]
    assert result["problems"]["left_out"] == ["c"]
    assert [(row["path"], row["cells"]) for row in result["settings"]] == [
        ("trainer.rate", ["0.1", "0.2", "0.1"])
    ]
    [entropy] = [plot for plot in result["plots"] if plot["title"] == "Entropy"]
    [reward] = [plot for plot in result["plots"] if plot["title"] == "Reward"]
    assert [(line["name"], line["colour"]) for line in entropy["series"]] == [("b", 1)]
    assert [(line["name"], line["colour"]) for line in reward["series"]] == [("a", 0), ("c", 2)]


def test_costs_in_different_units_have_a_plot_each(tmp_path: Path) -> None:
    metrics = [{"cost": 2.0}]
    with (
        run_at(tmp_path / "a", solved=[1], metrics=metrics) as own,
        run_at(tmp_path / "b", solved=[1], metrics=metrics, spent={"cost": 2, "usd": 2}) as paid,
        run_at(tmp_path / "c", metrics=metrics) as unknown,
    ):
        plots = compared({"a": own, "b": paid, "c": unknown})["plots"]
    assert [(plot["title"], [line["name"] for line in plot["series"]]) for plot in plots] == [
        ("Cost, agents' unit", ["a"]),
        ("Cost, US dollars", ["b"]),
        ("Cost, unit not known yet", ["c"]),
    ]
    assert len({plot["id"] for plot in plots}) == 3


def test_a_setting_that_a_config_lacks_is_none() -> None:
    rows = differing_settings({"a": {"x": {"y": 1}}, "b": {"x": {"y": 1}, "z": "no"}})
    assert rows == [{"path": "z", "cells": [None, "no"]}]
    assert differing_settings({"a": {"role": "", "x": []}, "b": {"role": None}}) == []


def test_the_pages_escape_what_agents_wrote(tmp_path: Path) -> None:
    from orchestrion_studio import compare

    habits = {"learned": {"habits": {HOSTILE: {HOSTILE: [{**HABIT, "text": HOSTILE}]}}}}
    made: dict[str, Any] = {
        "components": {
            "improver": habits,
            "gepa": {"pool": POOL, "judged": JUDGED},
            "trainer": FRONT,
        },
        "overlay": {"agents.solver.habits": [HOSTILE]},
        "metrics": [{f"{HOSTILE.replace('/', '')}/x": 1.0}],
        "solved": [1.0],
        "text": HOSTILE,
    }
    with run_at(tmp_path / "run", **made) as store, run_at(tmp_path / "other", **made):
        for page, values in (
            (PAGES[0], {}),
            (compare.PAGES[0], {"run": ["run", "other"]}),
        ):
            query = Query(tmp_path, "run", values)
            html = render(page, page.data(query, store), query=query, static=False)
            assert "alert(1)" not in html.replace("&lt;script&gt;alert(1)", "")
            assert html.count("<script") == html.count('<script src="/static/')


def test_pages_stay_short_whatever_was_learned_and_set(tmp_path: Path) -> None:
    long = f"{HOSTILE}\ud800" + "word " * 200_000
    pool = [{**POOL[0], "texts": {"solver": "one"}}, {**POOL[1], "texts": {"solver": long}}]
    made: dict[str, Any] = {
        "components": {
            "improver": {"learned": {"habits": {"solver": {"any": [{**HABIT, "text": long}]}}}},
            "gepa": {"pool": pool, "judged": JUDGED},
        },
        "overlay": {"agents.solver.habits": [long]},
        "solved": [1.0],
    }
    run_at(tmp_path / "one", **made).close()
    run_at(tmp_path / "two", solved=[1.0], rate=f"'{'x' * 1_000_000}'").close()
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    for page in ("/learned/one", "/compare?run=one&run=two", "/run/one?diff=two", "/run/two"):
        for address in (page, f"/api{page}"):
            answer = client.get(address)
            assert (answer.status_code, len(answer.content) < 500_000) == (200, True), address
    assert "\\ud800word" in client.get("/learned/one").text
    [rate] = client.get("/api/compare?run=one&run=two").json()["result"]["settings"]
    assert rate["cells"] == ["0.1", f"{'x' * 500}… (1,000,000 characters)"]
    with RunReader(tmp_path / "one") as one, RunReader(tmp_path / "two") as two:
        assert max(len(html_of(one)), len(html_of(two))) < 500_000


# ------------------------------------------------------------------ reports

METRICS = [{"reward": n / 4, "success": 0.5} for n in range(3)]


def test_a_report_is_one_file_that_loads_and_runs_nothing(tmp_path: Path) -> None:
    run_at(tmp_path / "run", metrics=METRICS, solved=[1, 0] * 8, text=HOSTILE).close()
    file = tmp_path / "run.html"
    answer = CliRunner().invoke(report, [str(tmp_path / "run"), "-o", str(file)])
    assert answer.exit_code == 0, answer.output
    html = file.read_text()
    assert "alert(1)" in html
    assert not set("\u202e\x1b") & set(html)
    assert "<script" not in html
    assert not re.search(r"<(form|input|select|button|link|iframe|img)\b", html)
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    links = re.findall(r' href="([^"]*)"', html)
    assert links
    assert all(link.removeprefix("#") in ids for link in links)
    assert "default-src 'none'" in html
    for part in ("What was learned", "Held-out evaluation", "A sample: 3 of 5 stored episodes"):
        assert part in html


def test_a_report_has_all_other_metrics_unless_they_are_too_many(tmp_path: Path) -> None:
    few = [{"reward": 0.5, "margin": n / 4} for n in range(3)]
    many = [{f"metric_{i}": n / 4 for i in range(900)} for n in range(9)]
    with (
        run_at(tmp_path / "few", metrics=few) as first,
        run_at(tmp_path / "many", metrics=many) as other,
    ):
        html, shorter = html_of(first), html_of(other)
    assert "<figcaption>margin</figcaption>" in html
    assert "<figcaption>metric" not in shorter
    assert len(shorter) < 200_000


def test_the_sample_says_why_each_episode_is_in_it(tmp_path: Path) -> None:
    with run_at(tmp_path / "run", metrics=METRICS, solved=[1]) as store:
        sample = sample_of(store)
    assert sample == {
        "evaluate/learned/0": "evaluation of learned: solved, highest reward",
        "2/0": "training: solved, highest reward",
        "1/0": "training: solved, highest reward",
    }


def test_a_run_without_evaluation_or_checkpoint_has_a_report(tmp_path: Path) -> None:
    with run_at(tmp_path / "run", metrics=[]) as store:
        assert "There is no checkpoint yet" in html_of(store)
        assert "is not known: the run was not evaluated" in markdown_of(store).splitlines()[0]


def test_markdown_says_first_whether_learning_beat_the_rules(tmp_path: Path) -> None:
    overlay = {"agents.solver.habits": ["Be brief.", "Show `it`."], "votes": {"a": 2.0}}
    with (
        run_at(tmp_path / "ahead", metrics=METRICS, solved=[1] * 9, overlay=overlay) as ahead,
        run_at(tmp_path / "level", metrics=METRICS, solved=[0] * 9) as level,
    ):
        text, other = markdown_of(ahead), markdown_of(level)
    assert text.startswith("**Learning beat the baseline: by reward, learned is ahead of chain.**")
    assert other.startswith("**Learning did not beat the baseline: learned solves nothing; by ")
    assert "| learned | 100.0% [66.4, 100.0] | 0.500 | 0 |  | 1 episodes |" in text
    assert "```diff\n+Show `it`.\n```" in text
    assert "- votes: a 2" in text
    assert "- A learned sequence of the baseline chain: critic" in text


@pytest.mark.parametrize(
    ("rivals", "ahead", "behind", "sentence"),
    [
        (0, 0, 0, "is not known: the config names no baseline."),
        (1, 1, 0, "Learning beat the baseline: by *it*."),
        (2, 2, 0, "Learning beat both baselines: by *it*."),
        (3, 3, 0, "Learning beat all 3 baselines: by *it*."),
        (3, 1, 0, "Learning beat 1 of 3 baselines: by *it*."),
        (3, 0, 0, "Learning did not beat any of the 3 baselines: by *it*."),
        (3, 2, 1, "Learning lost to 1 of 3 baselines: by *it*."),
        (1, 0, 1, "Learning lost to the baseline: by *it*."),
    ],
)
def test_the_verdict_counts_the_baselines(
    rivals: int, ahead: int, behind: int, sentence: str
) -> None:
    verdict = SimpleNamespace(
        ahead_of=range(ahead),
        behind=range(rivals - behind, rivals),
        as_text=lambda report: "by *it*",
    )
    report: Any = SimpleNamespace(
        ahead=range(rivals), verdict=verdict, solves_nothing=False, repeated={}
    )
    assert markdown._verdict(report).replace("\\", "").endswith(sentence)
    if rivals and ahead == rivals:
        only = markdown._verdict(report, has_rules=False)
        assert only.startswith("Learning beat the same team before its first episode, and was")
        assert "`evaluation.baselines`" in only
    report.solves_nothing = True
    assert not markdown._verdict(report).startswith("Learning beat")


def test_markdown_takes_nothing_from_names_but_letters(tmp_path: Path) -> None:
    name = "|x|`y`<b>@z"
    with run_at(tmp_path / name, overlay={name: {name: 1.0}}) as store:
        lines = [line for line in markdown_of(store).splitlines() if "x" in line and "y" in line]
    assert lines
    assert not any(re.search(r"(?<!\\)[|`<@]", line) for line in lines)
