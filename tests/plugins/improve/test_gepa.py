"""Evolution of instructions: the front, the gate, merging, and the trial at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from orchestrion_improve.practice import Pupil

from orchestrion import UsageError
from tests.plugins.improve.support import (
    checkpoint_of,
    config,
    improving,
    metrics_of,
    result,
    state_of,
    train,
)

PLUS, MINUS = "carry the one", "mind the sign"
DECEPTIVE = {
    PLUS: {"sums": 0.4, "differences": -0.45},
    MINUS: {"differences": 0.4, "sums": -0.45},
    f"{PLUS} + {MINUS}": {"any": 0.45},
}
"""Each helps with half of the problems and harms with the other half; together they help."""
COACH = {
    "coach": {"use": "practice-coach", "lessons": {"sums": PLUS, "differences": MINUS}},
}


def given(settings: dict[str, Any] | None = None, **parts: Any) -> Any:
    improver = {"use": "gepa", "evaluations": 300, "pairs": 80}
    trainer = improving(improver, **{"problems": 4, "samples": 2, **(settings or {})})
    return config(trainer=trainer, **{"models": COACH, "agents": _anna(), **parts})


def _anna(**settings: Any) -> dict[str, Any]:
    return {"anna": {"use": "pupil", "effects": DECEPTIVE, **settings}}


def rate(run: Path) -> float:
    """How often a pupil with the evolved text is right."""
    pupil = Pupil(effects=DECEPTIVE, instructions=state_of(run)["learned"]["texts"]["anna"])
    return (pupil.rate("sums") + pupil.rate("differences")) / 2


def test_the_front_finds_what_a_search_from_the_best_text_misses(tmp_path: Path) -> None:
    """A lesson alone is right on half of the instances, no text on four in five.

    So a search from the best text keeps to no text, whatever the seed. Where one run in twenty
    goes against that, six runs pass a bound in 2 of 1,000 cases.
    """
    effects = {
        PLUS: {"sums": 0.2, "differences": -0.8},
        MINUS: {"differences": 0.2, "sums": -0.8},
        f"{PLUS} + {MINUS}": {"any": 0.8},
    }

    def successes(choose: str) -> int:
        """Return how many of six runs find both lessons."""
        settings = {"choose": choose, "pairs": 24, "minibatch": 1}
        count = 0
        for seed in range(6):
            parts = given(settings, agents=_anna(skill=0.8, effects=effects), seed=seed)
            pool = state_of(train(parts, tmp_path / choose / str(seed)))["pool"]
            count += any(candidate["texts"]["anna"].count("\n") for candidate in pool)
        return count

    assert successes("front") >= 4
    assert successes("best") <= 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds."""
    return train(given({"iterations": 2}), tmp_path_factory.mktemp("gepa") / "run")


def test_a_child_has_to_beat_its_parent_on_a_minibatch_first(run: Path) -> None:
    for metrics in metrics_of(run):
        made = metrics["texts_gated"] + metrics["texts_taken_in"]
        assert made <= metrics["texts_children"]
        assert metrics["texts_evaluations"] >= 300
        assert metrics["texts_evaluations"] < 300 + 24 + 8
    pool = state_of(run)["pool"]
    assert len(pool) == 1 + sum(metrics["texts_taken_in"] for metrics in metrics_of(run))
    assert all(len(candidate["scores"]) == 24 for candidate in pool)
    texts = [candidate["texts"]["anna"] for candidate in pool]
    assert len(set(texts)) == len(texts)


def test_the_adopted_text_was_judged_on_problems_that_were_no_instances(run: Path) -> None:
    state, last = state_of(run), metrics_of(run)[-1]
    adopted = dict(map(tuple, state["judged"]))[state["adopted"]]
    low, _ = adopted["interval"]
    assert adopted["adopted"]
    assert low > 0
    # Both decided about it: the report must use neither. Of 120 problems, 36 are for the report.
    assert set(state["instances"]) <= set(state["judged_on"])
    assert len(set(state["judged_on"]) - set(state["instances"])) == 120 - 36 - 24
    assert last["held_out_gain_low"] > 0
    assert (
        checkpoint_of(run).overlay["agents.anna.instructions"] == state["learned"]["texts"]["anna"]
    )


def test_useless_texts_are_not_adopted(tmp_path: Path) -> None:
    run = train(given(agents=_anna(effects={})), tmp_path / "run")
    assert state_of(run)["adopted"] == 0
    assert checkpoint_of(run).overlay == {}
    assert metrics_of(run)[-1]["held_out_gain"] == 0


def test_lineages_that_are_good_at_different_problems_are_merged(tmp_path: Path) -> None:
    """A coach that drops the present instructions never writes both lessons into one text."""
    coach = {"coach": {**COACH["coach"], "keeps": False}}

    def run_of(seed: int, merge: bool) -> Path:
        settings = {"merge": merge, "evaluations": 500}
        return train(given(settings, models=coach, seed=seed), tmp_path / f"{merge}-{seed}")

    merged = [run_of(seed, True) for seed in (1, 2)]
    assert max(map(rate, merged)) == pytest.approx(0.9)
    for run in merged:
        pool = state_of(run)["pool"]
        both = [c for c in pool if len(c["texts"]["anna"].splitlines()) == 2]
        assert all(len(candidate["parents"]) == 2 for candidate in both)
    assert sum(metrics_of(run)[-1]["texts_merged"] for run in merged) >= 1
    assert rate(run_of(2, False)) < 0.6


def test_resumed_runs_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    settings = {"iterations": 2, "evaluations": 60, "pairs": 24}
    whole = result(train(given(settings), tmp_path / "whole"))
    train(given(settings), tmp_path / "cut", until=1)
    assert result(train(given(settings), tmp_path / "cut")) == whole
    serial = given(settings, run={"concurrency": 1})
    assert result(train(serial, tmp_path / "serial")) == whole


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ({"setting": "style"}, "no agent of this team has a learnable setting 'style'"),
        ({"setting": "habits"}, "agents.anna.habits is no text"),
        ({"agents": ["zoe"]}, "'zoe' has no learnable setting"),
    ],
)
def test_a_setting_that_cannot_evolve_is_refused(
    trainer: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        train(given(trainer), tmp_path / "run")
