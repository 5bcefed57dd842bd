"""The model `offline` in a run: real SDKs, real HTTP, and answers that never depend on time."""

from __future__ import annotations

from typing import Any

import pytest
from orchestrion_offline import values
from orchestrion_offline.speakers.steps import Solver
from orchestrion_offline.steps import sheet_of

from orchestrion import ConfigError
from orchestrion.config import from_data
from tests.contrib_agents.offline.support import config_data, episodes

SOLVER = {"use": "solver"}


def contents_of(data: dict[str, Any], limit: int) -> list[list[str]]:
    results = []
    for episode in episodes(data, limit):
        assert [turn.error for turn in episode.turns] == [""] * len(episode.turns)
        results.append([turn.output.content for turn in episode.turns])
    return results


def test_a_team_reaches_the_known_value_on_every_wire_with_the_same_answers() -> None:
    runs = {wire: episodes(config_data(SOLVER, wire=wire), 20) for wire in ("openai", "anthropic")}
    solved = [[episode.success for episode in results] for results in runs.values()]
    assert solved[0] == solved[1]
    chances = [
        values.chain([Solver().chance(step) for step in sheet_of(episode.problem).steps])
        for episode in runs["openai"]
    ]
    spread = sum(p * (1 - p) for p in chances) ** 0.5
    assert abs(sum(solved[0]) - sum(chances)) < 4 * spread
    usage = runs["anthropic"][0].usage
    assert usage.calls == len(runs["anthropic"][0].turns)
    assert usage.input_tokens > usage.output_tokens > 0


@pytest.fixture(scope="module")
def plain() -> list[list[str]]:
    """What the team says on Chat Completions, at once and without faults."""
    return contents_of(config_data(SOLVER), 6)


LATE = {"latency": 0.02, "spread": 1.0, "law": "lognormal"}
TROUBLES = {"rate_limited": 0.1, "broken_json": 0.1, "dropped": 0.1, "retry_after": 0.01}


@pytest.mark.parametrize(
    "model",
    [
        {"server": LATE},
        {"wire": "responses", "server": {"troubles": TROUBLES}},
        {"wire": "anthropic", "server": {"troubles": TROUBLES}},
    ],
    ids=["latency", "faults of responses", "faults of anthropic"],
)
def test_answers_do_not_depend_on_wire_latency_and_faults(
    plain: list[list[str]], model: dict[str, Any]
) -> None:
    assert contents_of(config_data(SOLVER, **model), 6) == plain


def test_a_refusal_is_a_failed_turn_without_content() -> None:
    data = config_data(SOLVER, server={"troubles": {"refusal": 0.5}})
    turns = [turn for episode in episodes(data, 6) for turn in episode.turns]
    refused = [turn for turn in turns if turn.status == "failed"]
    assert 5 < len(refused) < len(turns) - 5
    assert all(turn.output.content == "" and "refused" in turn.error for turn in refused)


def test_calls_have_the_set_price() -> None:
    [episode] = episodes(config_data(SOLVER, price={"input": 1.0, "output": 10.0}), 1)
    usage = episode.usage
    assert usage.usd == pytest.approx((usage.input_tokens + 10 * usage.output_tokens) / 1e6)


def test_no_server_is_started_in_a_dry_run() -> None:
    [episode] = episodes(config_data(SOLVER), 1, live=False)
    assert "opened without a connection" in episode.turns[0].error


def test_settings_that_change_answers_change_the_model_name() -> None:
    def name(speaker: Any, **model: Any) -> str:
        config = from_data(config_data(speaker, **model))
        return str(config.components["models.m"].component.name)

    assert name(SOLVER) == name(SOLVER, server={"latency": 1.0}, wire="anthropic")
    changed = name({**SOLVER, "skill": 0.1})
    assert len({name(SOLVER), changed, name(SOLVER, server={"seed": 1})}) == 3


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"server": {"api_key": "x"}}, "server.api_key"),
        ({"server": {"latency": -1}}, "latency"),
        ({"server": {"troubles": {"dropped": 0.7, "overloaded": 0.7}}}, "got 1.4"),
        ({"wire": "telegraph"}, "wire"),
    ],
)
def test_an_invalid_setting_is_refused_with_its_path(model: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_data(config_data(SOLVER, **model))


def test_an_invalid_call_is_not_retried() -> None:
    """Asked twice by one conversation, a solver of worksheets that sees none refuses for good."""
    data = config_data(SOLVER)
    data["task"] = {"use": "code-review", "measures": [], "max_problems": 1}
    [episode] = episodes(data, 1)
    assert {turn.error.partition(":")[0] for turn in episode.turns} == {"CallError"}
    assert "works on worksheets" in episode.turns[0].error
