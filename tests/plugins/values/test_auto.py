"""The trainer `auto`: what it picks, that the one picked goes on, and that it can be resumed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from orchestrion_values import picking
from orchestrion_values.auto import Auto, candidates
from orchestrion_values.picking import Look, Picker, look, pick
from orchestrion_values.policy import RecordedChoice

from orchestrion import Key, OpenContext, UsageError, gather
from orchestrion.runs import Progress, RunReader, train
from tests.plugins.values.support import ROSTER, Notes, episode, policy, relay


def found(**other: Any) -> Look:
    return Look(
        **{
            "episodes": 100,
            "steps": 5,
            "shown": True,
            "kinds": 20,
            "covered": 0.9,
            "hidden": 0.0,
        }
        | other
    )


@pytest.mark.parametrize(
    ("shown", "episodes", "turns", "expected"),
    [
        (found(steps=1), 300, None, "bandit"),
        (found(), 300, 1, "bandit"),
        (found(texts=500), 300, 1, "bandit with text"),
        (found(hidden=None, covered=0.6), 300, 8, "optimistic"),
        (found(hidden=None, covered=0.45), 300, 8, "fitted-q"),
        (found(), 3000, 8, "optimistic"),
        (found(steps=3), 3000, 3, "fitted-q"),
        (found(hidden=0.5, log=True), 3000, 8, "optimistic"),
        (found(hidden=0.5, log=True), 100, 8, "fitted-q"),
        (found(hidden=0.5), 3000, 8, "fitted-q"),
        (found(covered=0.2), 3000, 8, "fitted-q"),
        (found(shown=False), 3000, 8, "fitted-q"),
    ],
)
def test_what_episodes_show_decides(
    shown: Look, episodes: int, turns: int | None, expected: str
) -> None:
    name, why = pick(shown, episodes, turns)
    assert name == expected
    assert why


@pytest.mark.parametrize(
    ("shown", "turns", "expected"),
    [
        (found(steps=1), 8, "an episode is one choice"),
        (found(steps=1), 1, "`limits.turns` is 1"),
        (found(shown=False), 8, "the task shows no numbers: what agents reply"),
    ],
)
def test_the_reason_is_what_was_found(shown: Look, turns: int, expected: str) -> None:
    assert pick(shown, 300, turns)[1].startswith(expected)


@pytest.mark.parametrize("episodes", [1, 12, 120, 300])
def test_the_iterations_are_planned_to_take_the_episodes_of_the_setting(episodes: int) -> None:
    async def planned() -> int:
        async with Auto(episodes).open(OpenContext("trainer", Key(1), ROSTER)) as trainer:
            assert isinstance(trainer, Picker)
            return sum(trainer.plan(i, {}).episodes for i in range(trainer.iterations))

    assert asyncio.run(planned()) == episodes


def test_a_look_counts_what_comes_back() -> None:
    runtime = policy()
    episodes = [episode(runtime, ["a", "stop"], 1.0)] * 3
    seen = look(gather(episodes, RecordedChoice), runtime)
    assert (seen.episodes, seen.steps) == (3, 1)
    assert not seen.shown
    assert seen.covered == 1.0


def test_equal_ends_with_different_rewards_indicate_a_hidden_state() -> None:
    runtime = policy()

    def hidden(rewards: list[float]) -> float | None:
        ways = (["a", "stop"], ["a", "stop"])
        made = [episode(runtime, ways[i % 2], reward) for i, reward in enumerate(rewards)]
        return look(gather(made, RecordedChoice), runtime).hidden

    assert hidden([0.0, 1.0] * 10) == 1.0
    assert hidden([1.0] * 20) is None


def test_it_spends_all_episodes_and_says_what_it_picked(tmp_path: Path) -> None:
    notes = Notes()
    train(relay({"use": "auto", "episodes": 30}), tmp_path / "run", notes)
    assert notes.told["picked"].partition(", since")[0] in candidates(30)
    with RunReader(tmp_path / "run") as run:
        assert sum(step.episodes for step in run.iterations()) == 30


def test_optimistic_does_not_ignore_encoders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoders: dict[str, Any] = {"use": "values", "encoders": [{"use": "text"}]}
    with pytest.raises(UsageError, match="optimistic reads what the task shows, and no `encoders`"):
        train(relay({"use": "optimistic", "episodes": 30}, policy=encoders), tmp_path / "refused")
    notes = Notes()
    monkeypatch.setattr(picking, "pick", lambda *_: ("optimistic", ""))
    train(relay({"use": "auto", "episodes": 30}, policy=encoders), tmp_path / "run", notes)
    assert notes.told["picked"].startswith("fitted-q, since `optimistic` reads no `encoders`")


@pytest.mark.parametrize("use", ["auto", "fitted-q"])
def test_an_interrupted_run_resumes_with_equal_results(tmp_path: Path, use: str) -> None:
    class Cut(Progress):
        def iteration(self, iteration: int, metrics: Any, seconds: float) -> None:
            if iteration == 1:
                raise KeyboardInterrupt

    given = relay({"use": use, "episodes": 30})
    train(given, tmp_path / "whole")
    with pytest.raises(BaseException):  # noqa: B017
        train(given, tmp_path / "cut", Cut())
    train(given, tmp_path / "cut")
    with RunReader(tmp_path / "whole") as whole, RunReader(tmp_path / "cut") as cut:
        assert [s.metrics for s in whole.iterations()] == [s.metrics for s in cut.iterations()]
        assert len(whole.iterations()) > 2
