"""The environment: what is asked and paid for is shown, and nothing else; the truth judges."""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_recorded.agent import RecordedAgent
from orchestrion_recorded.baselines import best_single, candidates, evaluate, matrix, oracle
from orchestrion_recorded.recording import Recording
from orchestrion_recorded.table import RecordedAnswer, Row, Table
from orchestrion_recorded.task import RecordedTask

from orchestrion import (
    Activation,
    Agent,
    Calls,
    Episode,
    Key,
    Observation,
    Output,
    Scores,
    SplitShares,
    Status,
    Step,
    Turn,
    Usage,
    UsageError,
    View,
)
from orchestrion.testing import Fixed, engine_for
from tests.contrib_tasks.recorded.support import (
    ALL_TRAIN,
    MODELS,
    PRICES,
    after,
    ask,
    config,
    judged,
    opened,
    row,
    table,
    tables,
    with_run,
)

QUESTIONS = table(
    row("easy", "A", ("A", "A", "A")),
    row("hard", "C", ("A", "B", "C"), group="h"),
    row("silent", "B", ("-", "B", "?")),
    row("nobody", "D", ("A", "B", "C"), group="h"),
)


def episode(
    task: Recording, name: str, *steps: Any, agents: dict[str, Agent] | None = None
) -> Episode:
    engine = engine_for(
        agents or {"ask": RecordedAgent(models=list(MODELS))}, task=task, policy=Fixed(steps)
    )
    return asyncio.run(engine.run("e", task.problem_from(name), Key(1)))


def shown(of: Episode | Step) -> Observation:
    """What was observed last."""
    assert of.observation is not None
    return of.observation


def asks(*models: str) -> list[list[Activation]]:
    return [[Activation("ask", model)] for model in models]


def test_asking_shows_the_answer_at_its_price() -> None:
    found = episode(opened(QUESTIONS), "hard", *asks("cheap", "dear"))
    assert shown(found).data["answers"] == {"cheap": "A", "dear": "C"}
    assert [turn.usage.cost for turn in found.turns] == [0.125, 1.0]
    assert found.usage == Usage(2, cost=1.125)


def test_asking_the_one_that_knows_solves_every_question_it_knows() -> None:
    task = opened(QUESTIONS)
    for one in QUESTIONS.rows:
        for model in one.answers:
            found = episode(task, one.id, *asks(model))
            assert found.success == (one.answers[model].answer == one.right)
            assert found.status is Status.COMPLETED


def test_asking_nobody_or_only_silent_models_is_wrong() -> None:
    task = opened(QUESTIONS)
    assert not episode(task, "easy").success
    silent = episode(task, "silent", *asks("cheap"))
    assert not silent.success
    assert silent.usage.cost == 0.125, "a silent model is paid"
    assert shown(silent).data["answers"] == {"cheap": None}
    assert shown(silent).data["vote"] is None


def test_the_episode_ends_when_nobody_is_left_to_ask() -> None:
    task = opened(QUESTIONS)
    assert after(task, "easy", MODELS).done
    assert after(task, "silent", ("cheap", "middle")).done, "the third has no record"
    assert not after(task, "hard", ("cheap", "middle")).done


def test_a_model_is_asked_once_and_never_without_a_record() -> None:
    task = opened(QUESTIONS)
    assert shown(after(task, "silent", ("cheap",))).blocked == {"ask:cheap", "ask:dear"}
    again = episode(task, "easy", *asks("cheap", "cheap"))
    assert again.turns[1].status == "failed"
    assert again.usage.cost == 0.125


def test_agents_named_like_models_are_blocked_by_their_name() -> None:
    agents: dict[str, Agent] = {"cheap": RecordedAgent(), "any": RecordedAgent(model="cheap")}
    engine = engine_for(agents, Fixed(()))
    task = Recording(RecordedTask(split=ALL_TRAIN), QUESTIONS, engine.team.roster)
    found = episode(task, "easy", "cheap", agents=agents)
    assert found.turns[0].usage.cost == 0.125
    assert shown(found).blocked == {"cheap", "any:cheap"}


def test_an_agent_that_is_not_in_the_team_is_blocked_after_it_asked() -> None:
    task = Recording(RecordedTask(split=ALL_TRAIN), QUESTIONS)
    assert shown(after(task, "easy", ("cheap",))).blocked == {"ask:cheap"}


def test_what_was_not_paid_for_is_not_shown() -> None:
    task = opened(QUESTIONS)
    start = after(task, "easy", ())
    assert ask(task, start, "dear", cost=0.5).observation == start.observation
    failed = Turn(0, "ask", "dear", Output("", {"asks": "dear"}, Usage(cost=1.0)), "failed")
    assert task.step(start.state, failed, Key(1)).observation == start.observation


@pytest.mark.parametrize("data", [None, "dear", {"asks": 3}, {"asks": "who"}, {"asks": ["dear"]}])
def test_other_turns_show_nothing(data: Any) -> None:
    task = opened(QUESTIONS)
    start = after(task, "easy", ())
    turn = Turn(0, "other", output=Output("A", data, Usage(cost=9.0)))
    assert task.step(start.state, turn, Key(1)).observation == start.observation


def test_claims_solve_nothing() -> None:
    task = opened(QUESTIONS)
    start = after(task, "hard", ())
    turn = Turn(0, "ask", "cheap", Output("C", {"answers": {"cheap": "C"}, "vote": "C"}))
    assert not judged(task, "hard", task.step(start.state, turn, Key(1))).success


SPREAD = SplitShares(0.5, 0.0, 0.5)
BIG = Table(
    "a test",
    MODELS,
    tuple(
        row(f"q{i}", "ABCD"[i % 4], ("ABCD"[i % 3], "ABCD"[i % 4], "ABCD"[i % 4]), "gh"[i % 2])
        for i in range(40)
    ),
    {"cheap": 1.0, "middle": 2.0, "dear": 8.0},
)


def _changed(of: Table, name: str, right: str, answers: dict[str, str]) -> Table:
    def change(one: Row) -> Row:
        told = {m: RecordedAnswer(answers.get(m, r.answer)) for m, r in one.answers.items()}
        return evolve(one, right=right, answers=told) if one.id == name else one

    return evolve(of, rows=tuple(change(one) for one in of.rows))


@settings(max_examples=20)
@given(st.sets(st.sampled_from(MODELS)), st.sampled_from("ABCD"), st.sampled_from(["A", "D", "-"]))
def test_nothing_shown_depends_on_the_truth_or_on_answers_not_asked(
    asked: set[str], right: str, other: str
) -> None:
    """On held-out questions: whatever else the table says there, the same is seen."""
    settings = RecordedTask(split=SPREAD)
    task = opened(BIG, settings)
    name = task.problems("test")[0].id
    rest = {m: other for m in MODELS if m not in asked}
    twin = opened(_changed(BIG, name, right, rest), settings)
    order = sorted(asked)
    one, two = after(task, name, order), after(twin, name, order)
    assert one.observation == two.observation
    assert task.problem_from(name).public() == twin.problem_from(name).public()


def test_the_right_answer_is_hidden_and_the_state_is_shown_to_nobody() -> None:
    seen: list[View] = []

    class Spy(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            seen.append(view)
            return Output()

    odd = table(row("q", "the truth", ("wrong", "the secret", "?")), row("r", "x", ("x", "x", "x")))
    task = opened(odd)
    found = episode(task, "q", "spy", agents={"spy": Spy()})
    assert "the truth" not in repr(seen)
    assert "secret" not in repr(seen)
    assert "the truth" not in repr(found)
    assert "the truth" in repr(task.problem_from("q").hidden)


@settings(max_examples=20)
@given(tables(), st.permutations(MODELS))
def test_the_order_of_asking_changes_nothing(of: Table, order: list[str]) -> None:
    task = opened(of)
    recorded = [m for m in order if m in of.rows[0].answers]
    for count in range(len(recorded) + 1):
        one = after(task, "q0", recorded[:count])
        two = after(task, "q0", sorted(recorded[:count]))
        assert one.observation == two.observation
        assert judged(task, "q0", one) == judged(task, "q0", two)


@settings(max_examples=20)
@given(tables())
def test_features_have_one_length_and_stay_in_bounds(of: Table) -> None:
    task = opened(of)
    lengths = set()
    for one in of.rows:
        for count in range(4):
            for chosen in combinations(one.answers, count):
                observation = shown(after(task, one.id, chosen))
                lengths.add(len(observation.features))
                assert all(-1 <= x <= 1 for x in observation.features)
                assert observation.progress is not None
                assert 0 <= observation.progress <= 1
                assert all(0 <= x <= 1 for hint in observation.hints.values() for x in hint)
    assert len(lengths) == 1


def test_features_are_the_same_on_every_machine() -> None:
    features = shown(after(opened(QUESTIONS), "hard", ("cheap",))).features
    expected = [
        0.0, 1.0, 0.153846153846, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0,
        0.310757706585, 0.698461230809, 0.0, -0.17333819461, -0.056710294455, 0.299633907576, 0.0,
        1.0, 0.333333333333, 0.111111111111, 0.333333333333, 0.0,
    ]  # fmt: skip
    assert features == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_hints_are_of_the_choices_still_open() -> None:
    task = opened(QUESTIONS)
    observation = shown(after(task, "easy", ("cheap",)))
    assert observation.hints
    assert not observation.hints.keys() & observation.blocked
    assert observation.hints.keys() | observation.blocked >= set().union(*task.blockers)


def test_features_of_unseen_questions_tell_groups_apart() -> None:
    settings = RecordedTask(split=SPREAD)
    task = opened(BIG, settings)
    by_group = {p.category: shown(task.start(p, Key(1))).features for p in task.problems("test")}
    assert by_group["g"] != by_group["h"]


@pytest.mark.parametrize(("unit", "costs"), [("dearest", 0.125), ("mean", 3 / 11), ("none", 1.0)])
def test_the_unit_of_cost_is_a_setting(unit: Any, costs: float) -> None:
    task = opened(QUESTIONS, RecordedTask(split=ALL_TRAIN, unit=unit))
    assert episode(task, "easy", *asks("cheap")).usage.cost == pytest.approx(costs)


def test_without_prices_a_call_costs_one() -> None:
    task = opened(evolve(QUESTIONS, prices={}))
    assert episode(task, "easy", *asks("cheap", "dear")).usage.cost == 2.0


def test_an_answers_own_price_and_tokens_are_booked() -> None:
    told = {"cheap": RecordedAnswer("A", 0.2, 30, 4, 1.5), "dear": RecordedAnswer("A", 0.4)}
    of = Table("a test", ("cheap", "dear"), (Row("q", "g", "A", 2, told),))
    task = Recording(RecordedTask(split=ALL_TRAIN, usd=True), of)
    agents: dict[str, Agent] = {"ask": RecordedAgent(models=["cheap", "dear"])}
    found = episode(task, "q", *asks("cheap"), agents=agents)
    assert found.turns[0].usage == Usage(1, 30, 4, 0.2, 0.5)
    assert found.turns[0].output.metadata == {"latency": 1.5}


def test_a_price_that_is_nowhere_is_an_error_with_its_line() -> None:
    told = {"cheap": RecordedAnswer("A", 0.2), "dear": RecordedAnswer("A")}
    of = Table("t.csv", ("cheap", "dear"), (Row("q", "g", "A", 2, told, line=7),))
    with pytest.raises(UsageError, match=r"t.csv:7: 'dear' has no price"):
        Recording(RecordedTask(split=ALL_TRAIN), of)


def test_unknown_questions_models_and_tasks_are_named() -> None:
    task = opened(QUESTIONS)
    with pytest.raises(UsageError, match="'what is love' is not the id of a question"):
        task.problem_from("what is love")
    wrong = episode(task, "easy", "who", agents={"who": RecordedAgent()})
    assert "no answer of 'who' is recorded" in wrong.turns[0].error
    alone = engine_for({"who": RecordedAgent()}, policy=Fixed(["who"]))
    nowhere = asyncio.run(alone.run("e", alone.team.task.problems("train")[0], Key(1)))
    assert "only be asked in the task `recorded`" in nowhere.turns[0].error


def test_an_agent_has_one_way_to_say_whom_it_asks() -> None:
    with pytest.raises(ValueError, match="set one of"):
        RecordedAgent(model="a", models=["b"])
    with pytest.raises(ValueError, match="more than once"):
        RecordedAgent(models=["b", "b"])
    assert RecordedAgent(model="a").options == ("a",)
    assert RecordedAgent().options == ()


@pytest.mark.parametrize("turns", [1, 2])
def test_what_was_paid_for_counts_where_the_limit_leaves_no_turn_to_stop(turns: int) -> None:
    policy = {"use": "cascade", "first": ["m3", "m2"][:turns]}

    async def play(runtimes: Any, session: Any) -> list[Episode]:
        return await session().evaluate("test")  # type: ignore[no-any-return]

    episodes = with_run(config(policy, "best-cascade", 0.1, limits={"turns": turns}), play)
    assert {one.status for one in episodes} == {Status.COMPLETED}
    assert any(one.success for one in episodes)


def scored(name: str, *scores: float, group: str = "g") -> Row:
    """A question with the score that each of the three models reached."""
    told = {model: RecordedAnswer(model, score=s) for model, s in zip(MODELS, scores, strict=True)}
    return Row(name, group, "", 0, told)


def test_with_scores_one_model_is_asked_and_its_score_is_the_result() -> None:
    rows = (scored("a", 0.2, 0.75, 1.0), scored("b", 0.0, 0.1, 0.4))
    task = opened(Table("scores", MODELS, rows, PRICES, scored=True))
    step = after(task, "a", ["middle"])
    assert step.done
    assert judged(task, "a", step) == Scores(0.75, True, {"asked": 1.0})
    assert judged(task, "b", after(task, "b", ["dear"])).success is False
    assert judged(task, "b", after(task, "b", [])).value == 0.0
    assert "0.75" not in shown(step).text
    assert task.problem_from("a").public().hidden is None
    data = matrix(task, "train")
    assert evaluate(data, best_single(data, 0.1)).reward(0.1).mean() == pytest.approx(0.7 - 0.1)
    assert oracle(data, 1.0).correct.tolist() == [0.75, 0.0]
    assert all(len(one.first) <= 1 and one.then is None for one in candidates(data, 3).strategies)


def test_with_folds_a_training_question_s_own_right_answer_has_no_part_in_what_is_shown() -> None:
    rows = [row(f"q{i}", "AB"[i % 2], ["A", "AB"[i % 2], "B"]) for i in range(12)]
    other = [row("q0", "C", ["A", "A", "B"]), *rows[1:]]

    def seen(of: list[Row], folds: int) -> Observation:
        task = opened(table(*of), RecordedTask(split=ALL_TRAIN, folds=folds))
        return shown(after(task, "q0", ["middle"]))

    assert seen(rows, 4) == seen(other, 4)
    assert seen(rows, 1) != seen(other, 1)
