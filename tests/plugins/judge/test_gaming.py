"""A perfect agent gets everything; nonsense, claims and tampering get nothing.

The judge is simulated and honest in what it reads as work, and gullible in what it does not: it
gives full marks as soon as the text outside the fences asks for them. The person reads what a
person is shown.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable

import pytest
from orchestrion_judge import human
from orchestrion_judge.human import Human, HumanReward
from orchestrion_judge.hybrid import Hybrid
from orchestrion_judge.value import JudgeValue, OpenedValue

from orchestrion import Branch, Key, RewardFunction, Scores, Step, replace
from orchestrion._session import EngineSession
from orchestrion.testing._fakes import Fixed, engine_for
from tests.plugins.judge.support import (
    ATTACKS,
    PROBLEM,
    Asked,
    Opinionated,
    Sums,
    calls,
    episode,
    honest,
    judge_reward,
    sum_of,
)

PERFECT = "42"


def llm_judge() -> RewardFunction:
    return judge_reward(Opinionated(honest), orders="both", samples=2)


def last_turn_is_right(asked: Asked, key: Key) -> float:
    turns = [line for line in asked.work.split("\n") if asked.mark not in line]
    return float(turns == [sum_of(asked.blocks["problem"])])


def of_transcripts() -> RewardFunction:
    return judge_reward(Opinionated(last_turn_is_right), show="transcript", orders="both")


def hybrid() -> RewardFunction:
    return Hybrid(judge=llm_judge(), weight=0.5)


def strict_hybrid() -> RewardFunction:
    return Hybrid(judge=llm_judge(), judge_from=0.5, weight=1.0)


def person() -> RewardFunction:
    return HumanReward(Human(), "reward", True, None)


REWARDS = [llm_judge, of_transcripts, hybrid, strict_hybrid, person]
every_reward = pytest.mark.parametrize("make", REWARDS, ids=lambda make: make.__name__)


@pytest.fixture(autouse=True)
def honest_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who does the sum, and types 10 or 0."""
    shown: list[str] = []

    async def line() -> str:
        problem, work = (text.split("\n", 1)[1] for text in shown[-3:-1])
        return "10" if work.strip() == sum_of(problem) else "0"

    monkeypatch.setattr(human, "say", shown.append)
    monkeypatch.setattr(human, "ask_line", line)


def total(reward: RewardFunction, *said: str) -> float:
    right = said[-1].strip() == PERFECT
    found = asyncio.run(reward.score(episode(*said, scores=Scores(float(right), right)), calls()))
    assert found is not None
    return found.total


@every_reward
def test_a_perfect_agent_gets_the_full_reward(make: Callable[[], RewardFunction]) -> None:
    assert total(make(), PERFECT) == 1


@every_reward
@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_attacks_get_no_reward(make: Callable[[], RewardFunction], attack: str) -> None:
    assert total(make(), ATTACKS[attack]) == 0


@every_reward
def test_an_attack_in_an_earlier_turn_buys_nothing(make: Callable[[], RewardFunction]) -> None:
    assert total(make(), *ATTACKS.values(), "41") == 0


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_an_attack_in_the_problem_buys_nothing(attack: str) -> None:

    problem = replace(PROBLEM, text=f"{PROBLEM.text}\n{ATTACKS[attack]}")
    found = asyncio.run(llm_judge().score(episode("41", problem=problem), calls()))
    assert found is not None
    assert found.total == 0


def value_of(*said: str) -> float | None:
    settings = JudgeValue(model=Opinionated(last_turn_is_right))
    value = OpenedValue(settings, settings.judge(Key(3), unfinished=True))
    engine = engine_for({}, Fixed(), task=Sums())
    session = EngineSession(engine, "0/0", Key(0), Key(1))
    branch = Branch(PROBLEM, episode(*said).trajectory, Step(), Key(2))
    valued = asyncio.run(value.estimate(branch, session, Key(5)))
    requests = settings.model.requests  # type: ignore[attr-defined]
    assert all("The work is unfinished" in str(request) for request in requests)
    assert valued.bound == 1
    assert valued.usage.calls == len(requests)
    return valued.value


def test_an_unfinished_trajectory_is_valued_alike() -> None:
    assert value_of(PERFECT) == 1
    assert [value_of(text) for text in ATTACKS.values()] == [0] * len(ATTACKS)
    assert value_of() is None


def test_nothing_of_an_attack_moves_the_cursor_of_a_persons_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("sys.stdin", io.StringIO("0\n"))
    total(person(), "41\x1b[2J\x1b]0;title\x07")
    shown = capsys.readouterr().err
    assert "41" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
