"""Teams of chat agents, routers and judges on simulated speakers, over real SDKs and real HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrion import Episode
from tests.contrib_agents.offline.support import episodes

SURE = {"use": "solver", "skills": {}, "skill": 1.0, "habits": []}


def errors(results: list[Episode]) -> list[str]:
    return [turn.error for episode in results for turn in episode.turns if turn.error]


def test_a_router_calls_one_agent_after_the_other() -> None:
    router = {"use": "router", "follows": {"anna": "bert", "bert": "carl"}, "first": "anna"}
    data = {
        "seed": 5,
        "task": {"use": "steps", "steps": 3, "test": 8},
        "models": {
            "mind": {"use": "offline", "wire": "responses", "speaker": router},
            "m": {"use": "offline", "speaker": SURE},
        },
        "agents": {
            "router": {"use": "router", "model": "mind"},
            **{name: {"use": "chat", "model": "m"} for name in ("anna", "bert", "carl")},
        },
        "policy": {"use": "follow", "router": "router"},
        "limits": {"turns": 12},
    }
    results = episodes(data, 8)
    assert errors(results) == []
    assert [episode.success for episode in results] == [True] * 8
    order = ["router", "anna", "router", "bert", "router", "carl"]
    assert [[turn.agent for turn in episode.turns] for episode in results] == [order] * 8


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
