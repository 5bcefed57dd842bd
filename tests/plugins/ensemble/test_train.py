"""From a config to learned weights: trained, stored, opened again, and better than a plurality."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from orchestrion_ensemble.jury import Jury, solution
from orchestrion_ensemble.votes import log_odds, vote_accuracy

from orchestrion import Episode, Key, OrchestrionError, Trajectory, UsageError
from orchestrion._engine.calls import CallPath
from orchestrion._session import EngineSession
from orchestrion.config import Config, from_data
from orchestrion.testing._stage import opened

SKILLS = {"anna": 0.8, "ben": 0.75, "cleo": 0.7, "dan": 0.65, "eve": 0.6, "finn": 0.3}


def config(
    aggregator: Mapping[str, Any] | None = None,
    juror: Mapping[str, Any] | None = None,
    vote: Mapping[str, Any] | None = None,
    **sections: Any,
) -> Config:
    """Six jurors, the last of them below chance."""
    data = {
        "seed": 3,
        "task": {"use": "jury", "classes": 2, "train": 1, "validation": 300, "test": 300},
        "aggregators": {"w": aggregator or {"use": "weighted", "answers": ["0", "1"]}},
        "agents": {
            "vote": {"use": "ensemble", "members": list(SKILLS), "aggregator": "w", **(vote or {})},
            **{
                name: {"use": "juror", "accuracy": skill, **(juror or {})}
                for name, skill in SKILLS.items()
            },
        },
        "policy": {"use": "sequence", "steps": ["vote"]},
        "trainer": {"use": "ensemble-weights", "aggregator": "w", "ensemble": "vote"},
        **sections,
    }
    return from_data(json.loads(json.dumps(data)))


async def learn(one: Config) -> tuple[dict[str, Any], dict[str, float]]:
    """The overlay that the trainer adopts, and its metrics."""
    from orchestrion.testing._stage import building

    async with opened(one) as team:
        engine = team.engine(CallPath())
        session = EngineSession(engine, "0/0", Key(1), Key(2), build=building(one))
        metrics = await team.runtimes["trainer"].iterate(0, session)
        return dict(session.adopted), dict(metrics)


async def judge(one: Config) -> list[Episode]:
    """Every test problem once."""
    async with opened(one) as team:
        engine = team.engine(CallPath())
        session = EngineSession(engine, "t", Key(1), Key(2), test=True)
        return await session.evaluate("test")


def solved(one: Config) -> float:
    """The share of test problems that is solved."""
    episodes = asyncio.run(judge(one))
    return sum(episode.success for episode in episodes) / len(episodes)


def test_learned_log_odds_beat_plurality_and_the_best_member() -> None:
    one = config()
    overlay, metrics = asyncio.run(learn(one))
    accuracies = overlay["aggregators.w.accuracies"]
    assert accuracies == pytest.approx(SKILLS, abs=0.08)
    assert metrics["examples"] == 300
    assert metrics["best_member"] == max(accuracies.values())
    exact = vote_accuracy(list(SKILLS.values()), [log_odds(p) for p in SKILLS.values()])
    taught = solved(one.with_overlay(overlay))
    assert taught == pytest.approx(exact, abs=0.06)
    assert taught > solved(one) + 0.05


@pytest.mark.parametrize(
    ("aggregator", "says"),
    [
        ({"use": "plurality", "tie": "by_weight"}, "answer"),
        ({"use": "dynamic"}, "answer"),
        ({"use": "dawid-skene"}, "answer"),
        ({"use": "stacked"}, "answer"),
        ({"use": "average"}, "probabilities"),
        ({"use": "average", "pool": "log", "fit": "bma"}, "probabilities"),
        ({"use": "average", "fit": "pseudo-bma-plus"}, "probabilities"),
        ({"use": "stacked"}, "probabilities"),
        ({"use": "confidence"}, "confidence"),
    ],
)
def test_every_aggregator_learns_and_its_overlay_is_a_config(
    aggregator: dict[str, Any], says: str
) -> None:
    """Learned twice from one seed, it is the same; and the config that it makes loads again."""
    one = config(
        aggregator,
        {"says": says},
        task={"use": "jury", "classes": 3, "train": 1, "validation": 24, "test": 8},
    )
    overlay, _ = asyncio.run(learn(one))
    again, _ = asyncio.run(learn(one))
    assert overlay
    assert overlay == again
    taught = one.with_overlay(json.loads(json.dumps(overlay)))
    assert from_data(taught.resolved()).digest == taught.digest
    for episode in asyncio.run(judge(taught)):
        assert episode.turns[0].output.data["status"] in ("winner", "tie", "no_consensus")
        assert not [n for n in episode.turns[0].output.data["notes"] if "known" in n]


def test_weights_are_learned_from_the_full_vote_although_use_stops_early() -> None:
    early = config(vote={"early_stop": True, "at_once": 1})
    overlay, _ = asyncio.run(learn(early))
    full, _ = asyncio.run(learn(config()))
    assert overlay == full
    taught = early.with_overlay(overlay)
    assert taught.components["agents.vote"].component.early_stop
    cheap, dear = asyncio.run(judge(taught)), asyncio.run(judge(config().with_overlay(full)))
    assert [e.turns[0].output.content for e in cheap] == [e.turns[0].output.content for e in dear]
    assert sum(e.usage.cost for e in cheap) < 0.9 * sum(e.usage.cost for e in dear)


def test_members_that_fail_or_abstain_are_learned_around() -> None:
    one = config(juror={"fails": 0.2, "abstains": 0.2})
    overlay, metrics = asyncio.run(learn(one))
    assert overlay["aggregators.w.accuracies"] == pytest.approx(SKILLS, abs=0.1)
    assert metrics["answered"] == pytest.approx(0.6, abs=0.05)
    assert 0 < metrics["named"] <= 1


def test_an_ensemble_inside_another_team_is_found() -> None:
    base = config().resolved()
    base["agents"]["outer"] = {
        "use": "team",
        "members": ["vote"],
        "policy": {"use": "round-robin"},
        "turns": 1,
    }
    base["policy"]["steps"] = ["outer"]
    overlay, _ = asyncio.run(learn(from_data(base)))
    assert overlay["aggregators.w.accuracies"] == pytest.approx(SKILLS, abs=0.08)


def test_an_inline_aggregator_cannot_learn() -> None:
    one = config(
        trainer={"use": "ensemble-weights", "aggregator": {"use": "weighted"}, "ensemble": "vote"}
    )
    with pytest.raises(UsageError, match="name one of the section `aggregators`"):
        asyncio.run(learn(one))


def test_learning_from_an_ensemble_that_never_acts_is_refused() -> None:
    one = config(policy={"use": "sequence", "steps": []})
    with pytest.raises(OrchestrionError, match="never acted"):
        asyncio.run(learn(one))


def test_a_split_without_problems_is_refused() -> None:
    one = config(task={"use": "jury", "train": 1, "validation": 0})
    with pytest.raises(UsageError, match="'validation' has no problems"):
        asyncio.run(learn(one))


# ------------------------------------------------------------------ through the command line


def test_weights_are_trained_stored_and_used_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from orchestrion.cli import main

    monkeypatch.chdir(tmp_path)
    Path("team.yaml").write_text(config().to_yaml())
    done = CliRunner().invoke(main, ["train", "team.yaml"])
    assert done.exit_code == 0, done.output
    [run] = Path("runs").iterdir()
    learned = json.loads((run / "exports" / "learned_behaviors.json").read_text())
    assert learned["settings"]["aggregators.w.accuracies"] == pytest.approx(SKILLS, abs=0.08)
    used = CliRunner().invoke(main, ["run", str(run), "--problem", "test-0", "--json"])
    turn = json.loads(used.output)["episode"]["trajectory"][0]
    assert turn["output"]["data"]["notes"] == []
    assert [one["agent"] for one in turn["output"]["inner"]] == list(SKILLS)
    assert turn["output"]["usage"]["cost"] == 6.0


# ------------------------------------------------------------------ the task


def test_the_verifier_of_the_jury_works_the_answer_out_itself() -> None:
    for problem in Jury(classes=7).problems("test")[:50]:
        expression = problem.text.partition(" modulo ")[0]
        numbers = [int(word) for word in expression.strip("()").split() if word.isdigit()]
        signs = [1, *([1 if "+" in expression else -1] * 3)]
        assert solution(problem) == sum(a * b for a, b in zip(signs, numbers, strict=True)) % 7


def test_an_empty_answer_solves_nothing() -> None:
    task = Jury()
    problem = task.problems("test")[0]
    scores = asyncio.run(task.verify(problem, Trajectory(), None, final=True, calls=None))  # type: ignore[arg-type]
    assert not scores.success
