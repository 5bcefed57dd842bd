"""What is learned from a log, in a run and out of one; importers and commands."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from orchestrion_encoders.counts import Counts
from orchestrion_encoders.hints import Hints
from orchestrion_logged import Context, Logged, read_log
from orchestrion_logged.decisions import as_decisions
from orchestrion_logged.evaluating import encode_by
from orchestrion_logged.from_logs import FromLogs
from orchestrion_logged.importing import from_chats, from_table
from orchestrion_logged.learning import decisions_for, learn
from orchestrion_logged.ridges import NEVER, Ridges, inputs_of
from orchestrion_values.policy import ValuePolicy

from orchestrion import CheckpointError, Key, Member, OpenContext, UsageError
from orchestrion.cli import main
from orchestrion.runs import RunReader
from tests.plugins.logged.support import pets, team, written

ROSTER = (Member("small"), Member("large"))
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def policy_for(lines: list[Logged], least: int = 10) -> ValuePolicy:
    """A policy that learned from a log."""
    policy = fresh()
    decisions = as_decisions([(line,) for line in lines], policy.names)
    inputs = inputs_of(decisions.situations, policy.encode_alike)
    model = learn(decisions, inputs, np.random.default_rng(0), least)
    model.encode = policy.encode_alike
    policy.model = model
    return policy


def fresh() -> ValuePolicy:
    """A policy that has learned nothing."""
    return ValuePolicy([Hints(), Counts()], OpenContext("policy", Key(1), ROSTER), stop=True)


def taken(policy: ValuePolicy, lines: list[Logged]) -> list[str]:
    """What it does in the situations of a log."""
    decisions = as_decisions([(line,) for line in lines], policy.names)
    chosen = policy.decide(decisions.situations, [Key(0)] * len(lines))
    return [one.start[0].agent if one.start else "stop" for one in chosen]


def test_the_best_choice_of_each_category_is_learned_and_survives_saving() -> None:
    lines = pets(400, large=0.8)
    policy = policy_for(lines)
    assert taken(policy, lines[:2]) == ["large", "small"]
    again = fresh()
    again.load(policy.save())
    assert isinstance(again.model, Ridges)
    assert taken(again, lines) == taken(policy, lines)


def test_a_model_is_looked_up_among_what_is_installed() -> None:
    saved = policy_for(pets(40)).save()
    data = {**saved.data, "model": "os:system"}
    with pytest.raises(CheckpointError, match=r"no installed package has .*known models: .*ridges"):
        fresh().load(type(saved)(saved.arrays, data))


def test_a_choice_with_little_support_is_not_taken_however_well_it_went() -> None:
    lucky = [Logged(Context(category="cat"), "large", propensity=0.05, reward=1.0)] * 5
    lines = [line for line in pets(200) if line.choice == "small"] + lucky
    assert set(taken(policy_for(lines), lines)) == {"small"}
    assert "large" in taken(policy_for(lines, least=5), lines)


def test_caution_takes_standard_errors_off_the_mean_of_a_choice() -> None:
    draw = np.random.default_rng(2)
    rewards = {"small": draw.normal(size=40), "large": draw.normal(size=12)}
    lines = [
        Logged(Context(), name, reward=float(reward))
        for name, values in rewards.items()
        for reward in values
    ]
    names = ("small", "large", "stop")
    decisions = as_decisions([(line,) for line in lines], names)
    inputs = inputs_of(decisions.situations, encode_by(names))
    model = learn(decisions, inputs, np.random.default_rng(0), caution=2.0)
    expected = [v.mean() - 2 * v.std(ddof=1) / len(v) ** 0.5 for v in rewards.values()]
    assert model.bounds(inputs)[0] == pytest.approx([*expected, NEVER])


def test_training_says_how_many_lines_were_cut_off(tmp_path: Path) -> None:
    path, lines = tmp_path / "log.jsonl", pets(40)
    written(path, lines)
    with path.open("a") as file:
        file.write('{"context": {"te')
    told: list[str] = []
    assert len(decisions_for(FromLogs(path), policy_for(lines), told.append).choice) == 40
    assert told == [f"{path}: left out: 1 lines that were cut off, or are being written"]


def test_a_situation_without_hints_is_decided_by_a_policy_that_learned_from_some() -> None:
    hinted = Context(hints={"small": (0.2,), "large": (0.8,)})
    lines = [Logged(hinted, "small", reward=0.0), Logged(hinted, "large", reward=1.0)] * 20
    again = fresh()
    again.load(policy_for(lines).save())
    assert taken(again, [Logged(Context(), "small", reward=0.0)]) == ["large"]


def test_several_steps_are_learned_from_the_end() -> None:
    """Large pays only after small: worth knowing at the first step already."""
    draw, episodes = np.random.default_rng(5), []
    names = ("small", "large", "stop")
    for i in range(300):
        first, second = (str(draw.choice(names[:2])) for _ in range(2))
        reward = float(first == "small" and second == "large")
        parts = (first, 0.0), (second, reward + 0.05 * draw.normal())
        episodes.append(
            tuple(
                Logged(Context(), choice, names[:2], 0.5, paid, episode=str(i), step=step)
                for step, (choice, paid) in enumerate(parts)
            )
        )
    decisions = as_decisions(episodes, names)
    inputs = inputs_of(decisions.situations, encode_by(names))
    model = learn(decisions, inputs, np.random.default_rng(0))
    best = np.where(decisions.allowed, model.bounds(inputs), -np.inf).argmax(axis=1)
    assert set(best[decisions.first]) == {0}
    after_small = [
        line for line in np.flatnonzero(decisions.last) if decisions.choice[line - 1] == 0
    ]
    assert set(best[after_small]) == {1}


def test_a_chat_log_is_imported(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    lines = [
        {"model": "big", "messages": messages, "metadata": {"category": "x", "reward": True}},
        {"request": {"model": "tiny:1b", "messages": messages}, "feedback": 0.5, "usd": 0.1},
        {"model": "big", "messages": []},
    ]
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    imported = from_chats(path)
    first, second, _ = imported.records
    assert (first.choice, first.reward, first.context.category) == ("big", 1.0, "x")
    assert first.context.text == "hello"
    assert (second.choice, second.reward, second.cost) == ("tiny-1b", 0.5, 0.1)
    assert imported.notes == ["1 of 3 requests have no feedback"]
    path.write_text('{"messages": []}\n')
    with pytest.raises(UsageError, match=r"chat.jsonl:1: has no `model`"):
        from_chats(path)
    path.write_text('{"model": "ft:a"}\n{"model": "ft-a"}\n')
    with pytest.raises(UsageError, match=r"chat.jsonl:2: .* 'ft:a' and 'ft-a' .* choice 'ft-a'"):
        from_chats(path)
    path.write_text('{"model": "a", "tags": ' + "[" * 3000 + "]" * 3000 + "}\n")
    with pytest.raises(UsageError, match=r"chat.jsonl:1: maximum recursion depth"):
        from_chats(path)


def test_a_line_of_a_chat_log_ends_at_a_line_feed_only(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    text = "one\u2028two\x85three"
    line = {"model": "a", "messages": [{"role": "user", "content": text}]}
    path.write_text(json.dumps(line, ensure_ascii=False) + "\n", "utf-8")
    [record] = from_chats(path).records
    assert record.context.text == text


def test_a_table_is_imported_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("model,length,hour,reward,allowed\nbig,3,4,0.5,big|tiny\n")
    [record] = from_table(path, {"choice": "model", "features": "length,hour"}).records
    assert record.context.features == (3.0, 4.0)
    assert (record.choice, record.reward, record.allowed) == ("big", 0.5, ("big", "tiny"))
    with pytest.raises(UsageError, match="has no column 'choice'; it has model"):
        from_table(path, {})
    path.write_text("choice,reward\nbig,well\n")
    with pytest.raises(UsageError, match=r"log.csv:2: reward: 'well' is not a number"):
        from_table(path, {})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("choice,propensity\na,0\n", ":2: this decision cannot be logged: the propensity 0 is"),
        ("choice,propensity\na,2\n", ":2: this decision cannot be logged: .* <= 1.0"),
        ("choice,cost\na,-1\n", ":2: this decision cannot be logged: .* >= 0.0"),
        ("choice,reward\na,1e300\n", ":2: this decision cannot be logged: reward, score and"),
        ("choice,reward\n,1\n", ":2: this decision cannot be logged: '' is no choice"),
        ("choice,episode,step\na,e,-1\n", ":2: this decision cannot be logged: .* >= 0"),
        ("choice,episode,step\na,e,0\na,e,2\n", ":3: episode 'e': step 2 is there, but step 1"),
        ("choice,episode,step\na,e,1.7\n", ":2: step: '1.7' is not a whole number"),
        ("choice,reward\na,1_0\n", ":2: reward: '1_0' is not a number"),
        ("choice,reward,reward\na,1,2\n", ":1: has two columns 'reward'"),
        ("choice,reward\n", ": holds no decisions"),
    ],
)
def test_a_table_becomes_no_log_that_cannot_be_read(
    tmp_path: Path, table: str, message: str
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(table)
    with pytest.raises(UsageError, match=message):
        from_table(path, {})


def test_what_is_no_csv_is_named_with_its_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("choice,text\na," + "1" * 200_000 + "\n")
    before = csv.field_size_limit(100_000)  # of the process; other libraries raise it
    try:
        with pytest.raises(UsageError, match=":1: field larger than"):
            from_table(path, {})
    finally:
        csv.field_size_limit(before)


def test_an_empty_feature_is_not_taken_for_0(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("choice,hour\na,4\na, \n")
    with pytest.raises(UsageError, match=r"log.csv:3: hour: is empty; a feature needs a number"):
        from_table(path, {"features": "hour"})


def test_a_column_that_only_seems_to_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("choice,Propensity,reward,Cost,else\na,0.5,1,2,3\n")
    imported = from_table(path, {"cost": "Cost"})
    assert imported.notes == [
        "the column 'Propensity' is not read; --column propensity=Propensity names it"
    ]


def test_ope_prints_estimates_and_refuses_with_a_code(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, pets(300))
    run = CliRunner().invoke(main, ["ope", str(path), "--json"], standalone_mode=False)
    judged = {one["name"]: one for one in json.loads(run.stdout)["policies"]}
    assert set(judged) == {"as logged", "always small", "always large"}
    estimate = judged["always large"]["estimates"]["dr"]
    assert estimate["low"] < 0.75 < estimate["high"]
    run = CliRunner().invoke(main, ["ope", str(path), "--least", "1000"], standalone_mode=False)
    assert run.return_value == 3
    assert "refused: always large: only" in run.stdout


def ran(*words: str | Path) -> Result:
    """The result of a command."""
    return CliRunner().invoke(main, list(map(str, words)), standalone_mode=False)


def test_a_log_is_checked_and_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, [Logged(Context(), "a", propensity=0.5, score=1.0), Logged(Context(), "b")])
    with path.open("a") as file:
        file.write('{"context": {"te')
    facts = json.loads(ran("logs", "check", path, "--json").stdout)
    assert facts == {
        "schema": 1,
        "log": str(path),
        "episodes": 2,
        "decisions": 2,
        "with_propensity": 1,
        "with_reward": 0,
        "with_score": 1,
        "choices": {"a": 1, "b": 1},
    }
    shown = ran("logs", "check", path)
    assert "with propensity: 1\n" in shown.stdout
    assert "left out: 1 lines" in shown.stderr


def test_logs_are_imported_from_chats_and_tables(tmp_path: Path) -> None:
    table, chat, log = (tmp_path / name for name in ("t.csv", "chat.jsonl", "log.jsonl.gz"))
    table.write_text("model,length,reward\nbig,3,0.5\ntiny,4,1\n")
    columns = ("--column", "choice=model", "--column", "features=length")
    done = ran("logs", "import", "csv", table, log, *columns)
    assert f"{log}: 2 decisions" in done.stderr
    assert [line.context.features for [line] in read_log(log)] == [(3.0,), (4.0,)]
    chat.write_text('{"model": "big", "tags": {"kind": "x", "paid": 0.1, "liked": true}}\n')
    tags = ("--category", "kind", "--cost", "paid", "--reward", "liked")
    ran("logs", "import", "chat", chat, log, *tags, "--force")
    [[line]] = read_log(log)
    assert (line.context.category, line.cost, line.reward) == ("x", 0.1, 1.0)
    for wrong, message in (("choice", "must be FIELD=COLUMN"), ("who=model", "unknown field")):
        refused = ran("logs", "import", "csv", table, log, "--force", "--column", wrong).exception
        assert message in str(refused)


def test_an_import_overwrites_nothing_unless_asked_to(tmp_path: Path) -> None:
    table, log, link = (tmp_path / name for name in ("t.csv", "log.jsonl", "link.csv"))
    table.write_text("choice\na\n")
    log.write_text("kept")
    link.symlink_to(table)
    words = ("logs", "import", "csv", table)
    assert "log.jsonl exists; --force overwrites it" in str(ran(*words, log).exception)
    assert log.read_text() == "kept"
    for own in (table, link):
        assert "is what is imported" in str(ran(*words, own, "--force").exception)
    assert table.read_text() == "choice\na\n"
    assert ran(*words, log, "--force").exception is None
    assert [line.choice for [line] in read_log(log)] == ["a"]


def test_a_policy_is_judged_by_a_log_without_propensities(tmp_path: Path) -> None:
    log, config = tmp_path / "log.jsonl", team(tmp_path, [("a", "b")] * 4)
    names = ("billing", "technical")
    lines = [Logged(Context(), names[n % 2], names, reward=float(n % 4 == 1)) for n in range(60)]
    written(log, [*lines, Logged(Context(), "billing", ("billing",))])
    words = ("ope", log, "--policy", config)
    done = ran(*words, "-o", "policy={use: sequence, steps: [technical]}", "--json")
    report = json.loads(done.stdout)
    judged = {policy["name"]: policy["estimates"] for policy in report["policies"]}
    assert list(judged) == [str(config), "as logged", "always billing", "always technical"]
    assert list(judged[str(config)]) == ["direct"]
    assert judged[str(config)]["direct"]["mean"] == pytest.approx(0.5, abs=0.02)
    assert report["notes"][0] == "left out: 1 episodes without feedback"
    assert "these are estimates of the model alone (direct)" in report["notes"][1]
    known = ran(*words, "--estimate-propensities", "-o", "policy={use: random}")
    assert "propensities are estimated" in known.stderr
    for name in ("dr", "snips", "ips", "over logged"):
        assert f" {name} " in known.stdout
    assert "no effect without --policy" in str(ran("ope", log, "-o", "seed=1").exception)


def test_the_example_log_is_what_a_run_gives() -> None:
    episodes = read_log(EXAMPLES / "desk.jsonl.gz")
    assert len(episodes) == 169
    assert all(line.propensity == pytest.approx(1 / 3) for (line,) in episodes)


def test_a_run_is_imported_with_what_its_task_showed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {
        "seed": 3,
        "task": {"use": "recorded", "generated": {"questions": 30, "models": 2, "groups": 2}},
        "agents": {"ask": {"use": "recorded", "models": ["m1", "m2"]}},
        "policy": {"use": "random"},
        "reward": {"use": "outcome-minus-cost", "cost_weight": 0.5},
        "limits": {"turns": 3},
    }
    Path("config.yaml").write_text(json.dumps(config))
    for command in ("train config.yaml", "logs import run config-1 log.jsonl --of team"):
        assert not CliRunner().invoke(main, command.split(), standalone_mode=False).exception
    episodes = read_log(Path("log.jsonl"))
    with RunReader(tmp_path / "runs" / "config-1") as reader:
        stored = {one.episode.id: one.episode.reward for one in reader.episodes(source="team")}
    assert len(episodes) == len(stored)
    assert any(len(episode) > 1 for episode in episodes)
    for episode in episodes:
        reward = stored[episode[0].episode]
        assert reward is not None
        assert sum(line.reward or 0 for line in episode) == pytest.approx(reward.total)
        for line in episode:
            assert line.propensity == pytest.approx(1 / len(line.allowed or ()))
            assert line.context.features


@pytest.mark.parametrize(
    ("choice", "score", "message"),
    [
        ("billing", None, "no decision has rewards nor scores"),
        ("sales", 1.0, "names the choice 'sales', which this team does not have"),
        ("billing", 1.0, "no choice was logged 10 times with feedback"),
    ],
)
def test_a_log_that_teaches_nothing_leaves_no_run(
    choice: str,
    score: float | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("log.jsonl"), [Logged(Context(text="a question"), choice, score=score)])
    team(tmp_path, [("a question", "an answer")] * 4)
    words = ["learn", "log.jsonl", "--from", "team.yaml"]
    refused = CliRunner().invoke(main, words, standalone_mode=False).exception
    assert isinstance(refused, UsageError)
    assert message in str(refused)
    assert not Path("runs").exists()


def test_learn_says_what_is_wrong_with_what_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        Logged(Context(text="a"), choice, propensity=0.5, score=0.5)
        for choice in ("billing", "technical") * 20
    ]
    written(Path("log.jsonl"), lines)
    team(tmp_path, [(f"q{i}", f"q{i}") for i in "abcd"], limits={"turns": 1})
    words = ["learn", "log.jsonl", "--from", "team.yaml"]
    told = CliRunner().invoke(main, words, standalone_mode=False)
    document = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    [finding] = [found for found in document["diagnosis"] if found["name"] == "cut_off"]
    assert f"warning: {finding['text']}; {finding['advice']}" in told.stderr


def test_learn_compares_with_the_team_that_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scores = {"billing": 0.0, "technical": 1.0}  # the contrary of what the task says
    lines = [
        Logged(Context(text="a"), choice, propensity=0.5, score=scores[choice])
        for choice in ("billing", "technical") * 20
    ]
    written(Path("log.jsonl"), lines)
    right = {"use": "function", "function": "os.path:basename"}
    wrong = {"use": "function", "function": "os.path:dirname"}
    team(
        tmp_path,
        [(f"q{i}", f"q{i}") for i in range(40)],
        agents={"billing": right, "technical": wrong},
        policy={"use": "sequence", "steps": ["billing"]},
        reward={"use": "outcome-minus-cost"},
        limits={"turns": 4},
    )
    told = ran("learn", "log.jsonl", "--from", "team.yaml")
    assert "warning: what was learned is worse than parent (team), by an" in told.stderr
    assert "go on with team.yaml; log more, explore more" in told.stderr
    assert "learned solves nothing; by reward, learned is behind parent (team) (-" in told.stdout
    assert "parent (team): solved 100.0%" in told.stdout
    assert "\nparent (team)  100.0%" in ran("runs", "show", "team-1").stdout
    assert "identical: 1 iterations, 2 evaluations" in ran("replay", "team-1").stdout


def test_a_number_that_another_process_took_meanwhile_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("billing", "technical") * 20
    written(
        Path("log.jsonl"), [Logged(Context(), name, propensity=0.5, score=0.5) for name in names]
    )
    # It is imported when the team is opened, after the command has begun.
    Path("taking_a_number.py").write_text(
        "import os\nos.makedirs('runs/team-1/checkpoints', exist_ok=True)\nf = str\n"
    )
    agent = {"use": "function", "function": "taking_a_number:f"}
    team(tmp_path, [(f"q{i}", f"q{i}") for i in "abcd"], agents=dict.fromkeys(names, agent))
    assert "run: runs/team-2" in ran("learn", "log.jsonl", "--from", "team.yaml").stderr


def test_a_policy_is_judged_by_a_log_while_its_services_are_down(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    written(log, [Logged(Context(), "far", ("far",), reward=1.0)] * 30)
    far = {"use": "http", "urls": ["http://127.0.0.1:9/far"], "health": "/health"}
    config = team(tmp_path, [("a", "b")] * 4, agents={"far": far})
    assert ran("ope", log, "--policy", config).exception is None
    twice = ran("ope", log, "--policy", config, "--policy", config)
    assert "--policy: give one" in str(twice.exception)
