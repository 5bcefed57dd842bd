"""Teams of chat agents, routers and judges on simulated speakers, over real SDKs and real HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from orchestrion_offline import values

from orchestrion import Episode
from tests.contrib_agents.offline.support import episodes

SURE = {"use": "solver", "skills": {}, "skill": 1.0, "habits": []}


def errors(results: list[Episode]) -> list[str]:
    return [turn.error for episode in results for turn in episode.turns if turn.error]


def test_a_router_calls_the_specialist_for_each_step() -> None:
    """Each specialist is sure of its own kind of step and hopeless at the others."""
    kinds = {"sums": "adder", "products": "multiplier", "digits": "turner"}
    router = {"use": "router", "kinds": kinds}
    experts = {
        name: {"use": "solver", "skills": {kind: 1.0}, "skill": 0.0, "habits": []}
        for kind, name in kinds.items()
    }
    data = {
        "seed": 5,
        "task": {"use": "steps", "steps": 3, "test": 8, "ends": False},
        "models": {
            "mind": {"use": "offline", "wire": "responses", "speaker": router},
            **{
                f"m-{name}": {"use": "offline", "speaker": episode}
                for name, episode in experts.items()
            },
        },
        "agents": {
            "router": {"use": "router", "model": "mind"},
            **{name: {"use": "chat", "model": f"m-{name}"} for name in experts},
        },
        "policy": {"use": "follow", "router": "router"},
        "limits": {"turns": 12},
    }
    results = episodes(data, 8)
    assert errors(results) == []
    assert [episode.success for episode in results] == [True] * 8
    assert {len(episode.turns) for episode in results} == {7}


def test_an_inaccurate_router_lowers_success_by_its_accuracy() -> None:
    kinds = {"sums": "adder", "products": "other", "digits": "other"}
    data = {
        "seed": 5,
        "task": {"use": "steps", "steps": 2, "test": 40, "categories": ["sums"]},
        "speakers": {"hopeless": {**SURE, "skill": 0.0}},
        "models": {
            "mind": {
                "use": "offline",
                "speaker": {"use": "router", "kinds": kinds, "accuracy": 0.8},
            },
            "good": {"use": "offline", "speaker": SURE},
            "bad": {"use": "offline", "speaker": "hopeless"},
        },
        "agents": {
            "router": {"use": "router", "model": "mind", "may_stop": False},
            "adder": {"use": "chat", "model": "good"},
            "other": {"use": "chat", "model": "bad"},
        },
        "policy": {"use": "follow", "router": "router"},
        "limits": {"turns": 5},
    }
    results = episodes(data, 40)
    share = sum(episode.success for episode in results) / 40
    assert abs(share - values.chain([0.8, 0.8])) < 4 * (0.64 * 0.36 / 40) ** 0.5


def test_chat_agents_reach_the_known_value_of_a_reviewed_line() -> None:
    speakers = {
        "worker": {"use": "solver", "skills": {}, "skill": 0.5, "habits": []},
        "second": {"use": "reviewer", "skill": 0.8, "false_alarm": 0.1},
    }
    cast = {"use": "cast", "roles": {"solver": "worker", "reviewer": "second"}}
    data = {
        "seed": 5,
        "task": {"use": "steps", "steps": 1, "test": 60, "ends": False},
        "speakers": speakers,
        "models": {"m": {"use": "offline", "speaker": cast, "wire": "anthropic"}},
        "agents": {
            name: {"use": "chat", "model": "m", "preset": name} for name in ("solver", "reviewer")
        },
        "policy": {"use": "sequence", "steps": ["solver", "reviewer", "solver"]},
        "limits": {"turns": 4},
    }
    results = episodes(data, 60)
    assert errors(results) == []
    value = values.repaired(0.5, 0.8, 0.1, 1)
    share = sum(episode.success for episode in results) / 60
    assert abs(share - value) < 4 * (value * (1 - value) / 60) ** 0.5
    assert value > values.chain([0.5]) + 0.1


def test_a_code_review_is_played_on_one_model() -> None:
    """The writer is always wrong, the reviewer always sees it, the refactorer always mends it."""
    coder = {
        "use": "coder",
        "writer": {"basic": 0.0, "intermediate": 0.0, "advanced": 0.0},
        "reviewer": 1.0,
        "refactorer": 1.0,
        "habits": [],
    }
    steps = ["writer", "reviewer", "refactorer"]
    data = {
        "seed": 5,
        "task": {"use": "code-review", "measures": [], "max_problems": 4, "generated": 6},
        "models": {"m": {"use": "offline", "speaker": coder, "wire": "responses"}},
        "agents": {name: {"use": "chat", "model": "m", "preset": name} for name in steps},
        "policy": {"use": "sequence", "steps": steps},
        "limits": {"turns": 4},
    }
    results = episodes(data, 4)
    assert errors(results) == []
    assert [episode.success for episode in results] == [True] * 4
    for episode in results:
        assert episode.scores is not None
        assert episode.scores.parts["first_tests"] < episode.scores.parts["tests"] == 1
        assert episode.turns[1].output.content.startswith("I see a defect")


def test_a_judge_grades_by_a_rubric() -> None:
    truth = {"name": "truth", "description": "what is right", "scale": {"low": 0, "high": 6}}
    data: dict[str, Any] = {
        "seed": 5,
        "task": {"use": "steps", "test": 8},
        "models": {
            "m": {"use": "offline", "speaker": {"use": "solver"}},
            "j": {"use": "offline", "wire": "anthropic", "speaker": {"use": "judge", "noise": 0.0}},
        },
        "agents": {"solver": {"use": "chat", "model": "m"}},
        "policy": {"use": "sequence", "steps": ["solver"] * 6},
        "reward": {
            "use": "llm-judge",
            "model": "j",
            "rubric": {"criteria": [truth]},
            "show": "transcript",
        },
        "limits": {"turns": 7},
    }
    results = episodes(data, 8)
    assert errors(results) == []
    for episode in results:
        assert episode.reward is not None
        assert episode.scores is not None
        assert episode.reward.total == pytest.approx(episode.scores.value)
    assert len({episode.reward.total for episode in results if episode.reward}) > 2
