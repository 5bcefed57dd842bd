"""Pages and their JSON, over real runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from orchestrion_studio import create_app, panels, run
from orchestrion_studio.app import PAGES
from orchestrion_studio.command import studio
from orchestrion_studio.security import COOKIE
from orchestrion_studio.topology import _nodes
from starlette.testclient import TestClient

from orchestrion import Usage
from orchestrion._engine.recording import Recorded
from orchestrion._store.evaluations import keep_evaluation
from orchestrion.runs import RunReader, RunStore, stored_report
from tests.plugins.studio.episodes_support import Markup
from tests.plugins.studio.made import CONFIG, HOSTILE, episode, make_run, outcomes

TOKEN = "a token that is long enough"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "plain-1")
    make_run(folder / "sweep" / "trial-2", iterations=2, status="budget")
    make_run(folder / "hostile", agents=(HOSTILE, "b"), text=HOSTILE)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with TestClient(create_app(folder, token=None), base_url="http://localhost") as client:
        yield client


def test_figures_of_training_and_of_held_out_problems_are_told_apart(client: TestClient) -> None:
    text = client.get("/run/plain-1?wait=1").text
    head = text.partition('id="live-key"')[2].partition("</dl>")[0]
    held_out, _, training = head.partition("On held-out problems")[2].partition("In the last")
    assert "100.0%" in held_out
    assert "0.835" in held_out
    assert "0.300<small> reward" in training
    assert "Training reward" in client.get("/runs").text


def test_a_list_of_runs_that_have_all_ended_is_not_loaded_again(client: TestClient) -> None:
    runs = client.get("/api/runs").json()
    assert (runs["unread"], runs["live"]) == (0, False)


def test_agents_stand_above_and_below_in_turn() -> None:
    nodes = _nodes(["a", "b", "c", "d"])[2:]  # after start and end
    assert [node["y"] < 0.5 for node in nodes] == [True, False, True, False]
    assert [node["x"] for node in nodes][::2] == [node["x"] for node in nodes][1::2]


def test_metrics_that_never_change_are_named_and_not_drawn(client: TestClient) -> None:
    data = client.get("/api/run/plain-1?more=1").json()
    assert data["steady"] == {"plain": 1.0}
    assert data["curves_more"] == []
    assert "The same in every iteration: plain 1." in client.get("/run/plain-1?more=1").text


def test_an_agent_has_one_colour_on_all_pages_of_a_run(tmp_path: Path) -> None:
    config = "agents: {idle: {use: echo}, writer: {use: echo}, critic: {use: echo}}\nbudget: {}\n"
    store = RunStore.create(tmp_path / "team", config, {"seed": 1})
    for number in range(2):
        store.commit_iteration(0, number, [episode(f"0/{number}/0", ["critic", "writer"], 1.0)], {})
    store.set_status("completed")
    store.close()
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    data = client.get("/api/run/team").json()
    drawn = {line["name"]: line["colour"] for line in data["agents"]["plot"]["series"]}
    assert drawn == {"critic": 2, "writer": 1}
    nodes = {node["name"]: node["colour"] for node in data["topology"]["nodes"]}
    assert nodes == {**drawn, "(start)": None, "(end)": None}
    text = client.get("/episode/team?id=0/0/0").text
    assert '<article class="turn completed c2" id="turn-1"' in text
    assert '<article class="turn completed c1" id="turn-2"' in text


def test_iterations_count_from_1_in_what_is_shown_and_in_addresses(client: TestClient) -> None:
    text = client.get("/episodes/plain-1?iteration=4").text
    assert text.count("iteration 4</span>") == 2
    rows = client.get("/api/episodes/plain-1?iteration=4").json()["rows"]
    assert [row["iteration"] for row in rows] == [3, 3], "stored from 0"
    wrong = client.get("/episodes/plain-1?iteration=abc")
    assert wrong.status_code == 400
    assert "iteration: want a whole number, not &#39;abc&#39;" in wrong.text


# ------------------------------------------------------------------ all runs


def test_all_runs_are_listed_nested_ones_too(client: TestClient) -> None:
    data = client.get("/api/runs?sort=name").json()
    assert [run["name"] for run in data["runs"]] == ["hostile", "plain-1", "sweep/trial-2"]
    plain = data["runs"][1]
    assert plain["iterations"] == 4
    assert plain["planned"] == 8
    assert plain["reward"] == pytest.approx(0.3)
    assert plain["rewards"] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert data["statuses"] == {"budget": 1, "completed": 2}
    assert "sweep/trial-2" in client.get("/runs").text


def test_runs_are_searched_filtered_and_sorted(client: TestClient) -> None:
    def names(query: str) -> list[str]:
        return [run["name"] for run in client.get(f"/api/runs?{query}").json()["runs"]]

    assert names("q=SWEEP") == ["sweep/trial-2"]
    assert names("status=budget") == ["sweep/trial-2"]
    assert names("sort=iterations&order=asc")[0] == "sweep/trial-2"
    assert names("sort=no-such&page=999999") != []


def test_a_run_that_ended_without_an_iteration_says_so_and_how_it_goes_on(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "early", CONFIG.format(note="x"), {"seed": 1})
    store.plan(0, 4)
    store.set_status("failed", "the service is away")
    store.close()
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    text = client.get("/run/early").text
    assert "orchestrion resume early" in text
    assert "No iteration was finished." in text
    assert "yet" not in text
    assert "No episode is stored" in client.get("/episodes/early").text


def test_a_run_that_only_evaluates_is_not_shown_as_one_that_trains(tmp_path: Path) -> None:
    facts = {"seed": 1, "learned_in": "000-as-configured"}
    store = RunStore.create(tmp_path / "test-0", CONFIG.format(note="x"), facts)
    store.plan(0, 8)
    store.commit_iteration(0, 7, [], {"entropy": 0.5, "reward": 0.3})
    store.save_evaluation("learned", outcomes(1.0, 0.8))
    store.set_status("completed")
    store.close()
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    text = client.get("/run/test-0").text
    assert "evaluates what 000-as-configured learned" in text
    assert "of 8 iterations" not in text
    assert "evaluates only" in client.get("/runs").text


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.db").write_bytes(b"no database at all" * 100)
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    (row,) = client.get("/api/runs").json()["runs"]
    assert row["status"] == "unreadable"
    assert "database" in row["detail"]
    assert client.get("/run/broken").status_code == 500


# ------------------------------------------------------------------ one run


def test_the_page_of_a_run_shows_what_it_learned(client: TestClient) -> None:
    data = client.get("/api/run/plain-1?wait=1&smooth=0").json()
    reward = data["curves_first"][0]
    assert reward["series"][0]["y"] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    held_out = reward["series"][-1]
    assert held_out["low"][0] < held_out["y"][0] < held_out["high"][0]
    assert held_out["colour"] == 1
    assert data["report"]["verdict"] == "by reward, learned is ahead of random plain"
    assert data["topology"]["steps"][-1]["edges"] == [
        {"from": a, "to": b, "share": pytest.approx(1 / 3)}
        for a, b in (("(start)", "writer"), ("writer", "critic"), ("critic", "(end)"))
    ]
    assert {row["name"]: row["limit"] for row in data["spending"]["rows"]}["usd"] == 2.5
    assert data["notes"][0]["text"] == "plain"
    text = client.get("/run/plain-1?wait=1").text
    assert "by reward, learned is ahead of" in text
    assert 'aria-label="Table: Reward"' in text


def test_a_report_is_computed_anew_when_a_run_was_evaluated_again(tmp_path: Path) -> None:
    judged = make_run(tmp_path / "again")
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    solved = []
    for share in (1.0, 0.5):
        with RunStore.open(judged) as store:
            store.save_evaluation("learned", outcomes(share, 0.8))
        report = client.get("/api/run/again?wait=1").json()["report"]
        solved.append(
            {row["name"]: row["solved"]["mean"] for row in report["contenders"]}["learned"]
        )
    assert solved == [1.0, 0.5]


def test_costs_in_the_agents_own_unit_are_shown_where_nothing_was_paid(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", CONFIG.format(note="x")) as store:
        store.commit_iteration(0, 0, [episode("0/0", ["a"], 0.5)], {}, stated=Usage(cost=12.5))
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    (row,) = client.get("/api/runs").json()["runs"]
    assert (row["usd"], row["cost"]) == (0.0, 12.5)
    text = client.get("/runs").text
    assert "12.5 in the agents' unit" in text
    assert "$0.00" not in text
    assert "<dd>12.5<small> in the agents' unit</small></dd>" in client.get("/run/run").text


def test_what_was_paid_is_shown_over_iterations_and_calls_that_failed_by_kind(
    tmp_path: Path,
) -> None:
    store = RunStore.create(tmp_path / "run", CONFIG.format(note="x"))
    prices = (0.25, 0.5, 1.0)  # of two iterations, and of what came after them
    for number, usd in enumerate(prices):
        calls = [
            Recorded(f"answer-{number}", "x", "yes", Usage(1, 10, 5, usd), "answer"),
            Recorded(f"limit-{number}", "x", ["busy", "rate_limit", 1.0], Usage(), "failed"),
            Recorded(f"late-{number}", "x", None, Usage(1, 10, 5), "timeout"),
        ]
        store.journal.put_many(calls)
        if number < 2:
            metrics = {"validation_success": number / 4, "failed_turns": 3.0}
            store.commit_iteration(
                0, number, [episode(f"0/{number}/{i}", ["a"], 0.5) for i in range(2)], metrics
            )
    store.close()
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    data = client.get("/api/run/run").json()
    assert data["spending"]["rows"][0]["spent"] == 1.75
    spent, budget = data["spending"]["plot"]["series"]
    assert (spent["x"], spent["y"]) == ([1, 2, 3], [0.25, 0.75, 1.75])
    assert budget["y"][0] == 2.5
    assert data["spending"]["failed"] == [
        {"kind": "failed for good: rate limit of the service", "count": 3},
        {"kind": "attempts that timed out", "count": 3},
    ]
    assert data["failures"][-1]["count"] == 6.0, "turns of all iterations"
    solved = data["curves_first"][1]["series"]
    assert [series["y"] for series in solved if series["name"] == "validation"] == [[0.0, 0.25]]


def test_what_eval_kept_of_a_run_is_shown_and_a_damaged_file_says_so(tmp_path: Path) -> None:
    judged = make_run(tmp_path / "judged")
    with RunReader(judged) as reader:
        report = stored_report(reader)
    assert report is not None
    for changes in (["task.suite=mine"], []):
        keep_evaluation(judged, {"overrides": changes, "task": {}, "report": report.as_json()})
    (judged / "evaluations" / "2.json").write_text("{}")
    foreign = {"split": 5, "problems": 7, "verdict": [], "unit": None, "contenders": []}
    foreign |= {"ahead": {}, "outcomes": {"a": 1}, "seeds": 1}
    text = json.dumps({"report": foreign, "overrides": []})
    (judged / "evaluations" / "3.json").write_text(text)
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    changed, damaged, kept = client.get("/api/run/judged").json()["kept"]
    assert "3.json: is damaged" in changed["error"]
    assert "2.json: is not an evaluation" in damaged["error"]
    assert (kept["file"], kept["changes"]) == ("1.json", ["task.suite=mine"])
    assert kept["report"]["contenders"][0]["solved"]["mean"] == 1.0
    text = client.get("/run/judged").text
    assert "<code>task.suite=mine</code>" in text
    assert "is not an evaluation" in text


def test_of_a_team_that_does_not_train_the_evaluation_shows_who_follows_whom(
    tmp_path: Path,
) -> None:
    config = CONFIG.format(note="x").replace("trainer:", "no_trainer:")
    with RunStore.create(tmp_path / "fixed", config) as store:
        store.save_evaluation("team", outcomes(1.0, 0.8), [episode("e/0", ["a", "b"], 1.0)])
        store.set_status("completed")
    client = TestClient(create_app(tmp_path, token=None), base_url="http://localhost")
    (step,) = client.get("/api/run/fixed").json()["topology"]["steps"]
    assert step["title"] == "evaluation of team"
    assert [(edge["from"], edge["to"]) for edge in step["edges"]] == [
        ("(start)", "a"), ("a", "b"), ("b", "(end)"),
    ]  # fmt: skip
    assert "it evaluates the team as it is" in client.get("/run/fixed").text


def test_configs_of_two_runs_are_compared(client: TestClient) -> None:
    text = client.get("/api/run/plain-1?diff=hostile").json()["diff"]["text"]
    assert {line[0] for line in text.splitlines()} >= {"+", "-"}
    assert client.get("/run/plain-1?diff=../plain-1").status_code == 404
    assert "did you mean &#39;hostile&#39;" in client.get("/run/plain-1?diff=hostle").text


@pytest.mark.parametrize("name", ["nope", "../plain-1", "plain-1/..", "%2e%2e/x", "a%00b"])
def test_what_is_no_run_below_the_folder_is_not_found(client: TestClient, name: str) -> None:
    assert client.get(f"/api/run/{name}").status_code == 404
    assert client.get(f"/live/{name}").status_code == 404


def test_the_api_is_documented(client: TestClient) -> None:
    document = client.get("/api/openapi.json").json()
    assert set(document["paths"]) == {f"/api{page.path}" for page in PAGES}
    named = document["paths"]["/api/run/{run}"]["get"]["parameters"]
    assert {"run", "smooth", "diff"} <= {parameter["name"] for parameter in named}


# ------------------------------------------------------------------ panels of plugins


def test_a_plugin_adds_a_panel_and_a_broken_one_takes_nothing_away(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_panel.py").write_text(
        "from orchestrion_studio import Panel\n"
        "def turns(run):\n"
        "    count = sum(iteration.episodes for iteration in run.iterations())\n"
        "    return Panel('My panel', rows=[['episodes', count]], heads=['<b>what', 'count'])\n"
        "def broken(run):\n"
        "    raise ValueError('no luck')\n"
    )
    info = tmp_path / "my_panel-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-panel\nVersion: 1\n")
    points = "[orchestrion.panels]\nturns = my_panel:turns\nworse = my_panel:broken\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    panels.makers.cache_clear()
    client = TestClient(create_app(folder, token=None), base_url="http://localhost")
    try:
        shown = client.get("/api/run/plain-1").json()["panels"]
        text = client.get("/run/plain-1").text
    finally:
        panels.makers.cache_clear()
    assert shown[0]["rows"] == [["episodes", "8"]]
    assert shown[1]["text"] == "This panel failed: ValueError: no luck"
    assert "&lt;b&gt;what" in text


# ------------------------------------------------------------------ hostile contents


@pytest.mark.parametrize("address", ["/runs", "/run/hostile?wait=1&diff=plain-1"])
def test_what_agents_print_is_text(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200
    assert Markup(answer.text).risks == []
    assert "<script>alert" not in answer.text
    assert "alert(1)" in answer.text or address == "/runs"


# ------------------------------------------------------------------ who is let in


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "other machines could reach it; give --token"),
        (["--token", "short"], "fewer than 16 characters"),
        (["--token", "ü" * 20], "a header cannot carry it"),
    ],
)
def test_a_studio_that_others_could_reach_asks_for_a_token(
    tmp_path: Path, words: list[str], message: str
) -> None:
    assert message in str(CliRunner().invoke(studio, [str(tmp_path), *words]).exception)


def test_a_page_whose_code_breaks_says_so_and_no_more(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(reader: object) -> None:
        raise KeyError("here")

    monkeypatch.setattr(run, "stored_config", broken)
    for address in ("/run/plain-1", "/api/run/plain-1"):
        answer = client.get(address)
        assert answer.status_code == 500
        assert "the page could not be made: KeyError: " in answer.text


def test_nothing_of_another_origin_may_run_or_be_loaded(client: TestClient) -> None:
    for address in ("/runs", "/api/runs", "/static/studio.js", "/nope"):
        headers = client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_only_reading_is_allowed_and_only_by_a_loopback_address(client: TestClient) -> None:
    assert client.post("/runs").status_code == 405
    assert client.get("/runs", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/runs", headers={"host": "127.0.0.1:8300"}).status_code == 200
    assert client.get("/runs", headers={"host": "[::1]:8300"}).status_code == 200


def test_a_token_is_asked_for_once_and_kept_in_a_cookie(folder: Path) -> None:
    client = TestClient(
        create_app(folder, token=TOKEN), base_url="http://a.example", follow_redirects=False
    )
    assert client.get("/runs").status_code == 401
    assert client.get("/static/studio.css").status_code == 401
    assert client.get("/runs?token=wrong").status_code == 401
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert client.get("/runs", headers=bearer).status_code == 200
    welcome = client.get("/runs", params={"q": "plain", "token": TOKEN})
    assert welcome.status_code == 303
    assert welcome.headers["location"] == "/runs?q=plain"
    assert "HttpOnly" in welcome.headers["set-cookie"]
    assert "samesite=strict" in welcome.headers["set-cookie"].lower()
    assert client.cookies[COOKIE]
    assert client.get("/runs").status_code == 200
    away = client.get("//evil.example/x", params={"token": TOKEN}, headers=bearer)
    assert not away.headers.get("location", "").startswith("//")
