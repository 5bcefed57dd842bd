"""Whether a version is better: the test may be looked at any time. And what exploring does."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Any

import pytest
from orchestrion_logged import Feedback, Log, ServedRequest
from orchestrion_serve.canary import Canary, VersionTrial, trials_of
from orchestrion_serve.confidence import VersionComparison
from orchestrion_serve.exploring import Exploration, ServedDecision, Trace, Watched
from orchestrion_serve.recording import OpenRequest, decisions_of

from orchestrion import (
    Activation,
    Decision,
    Key,
    Member,
    Observation,
    Policy,
    Problem,
    Situation,
    Trajectory,
    Turn,
)


def compared(
    seed: int, old: float, new: float, scores: int, share: float = 0.5
) -> VersionComparison:
    """Scores of 0 and 1, looked at after each; ends where a bound leaves 0 behind."""
    draw, comparison = random.Random(seed), VersionComparison()
    for _ in range(scores):
        of_new = draw.random() < share
        comparison.add(float(draw.random() < (new if of_new else old)), new=of_new)
        if comparison.low > 0 or comparison.high < 0:
            break
    return comparison


@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_those_of_the_betting_confidence_sequence(seed: int) -> None:
    """As the formulas at the head of `confidence` have them, computed point by point."""
    draw, comparison = random.Random(seed), VersionComparison(0.1)
    xs: list[float] = []
    capital = {(m, sign): 1.0 for m in range(201) for sign in (1, -1)}
    low, high = -1.0, 1.0
    for _ in range(60):
        old, new = draw.betavariate(2, 4), draw.betavariate(4, 2)
        comparison.add(old, new=False)
        comparison.add(new, new=True)
        means = [(0.5 + sum(xs[:i])) / (i + 1) for i in range(len(xs) + 1)]
        squares = sum((x - mean) ** 2 for x, mean in zip(xs, means[1:], strict=True))
        mean, variance = means[-1], (0.25 + squares) / (len(xs) + 1)
        xs.append((new - old + 1) / 2)
        for number, sign in capital:
            m = number / 200
            bet = sign * (mean - m) / (variance + (mean - m) ** 2)
            most = 0.5 / max(m if sign > 0 else 1 - m, 1e-9)
            capital[number, sign] *= 1 + sign * min(max(bet, 0.0), most) * (xs[-1] - m)
        kept = {sign: [m for m in range(201) if capital[m, sign] < 2 / 0.1] for sign in (1, -1)}
        low = max(low, max(kept[1][0] - 1, 0) / 100 - 1)
        high = min(high, min(kept[-1][-1] + 1, 200) / 100 - 1)
        assert (comparison.low, comparison.high) == pytest.approx((low, high))
    assert comparison.mean == pytest.approx(2 * sum(xs) / len(xs) - 1)
    assert low > -1


def test_equal_versions_are_seldom_told_apart_however_often_one_looks() -> None:
    ended = [compared(seed, 0.5, 0.5, 120) for seed in range(200)]
    assert sum(one.low > 0 for one in ended) <= 10
    assert sum(one.high < 0 for one in ended) <= 10


def test_a_better_version_is_found_and_a_worse_one_too() -> None:
    assert all(compared(seed, 0.4, 0.8, 600, 0.3).low > 0 for seed in range(20))
    assert all(compared(seed, 0.8, 0.4, 600, 0.3).high < 0 for seed in range(20))


def test_a_change_of_traffic_that_moves_both_versions_is_no_difference() -> None:
    draw, comparison = random.Random(5), VersionComparison()
    for worth in (0.9, 0.1):
        for _ in range(500):
            comparison.add(float(draw.random() < worth), new=draw.random() < 0.5)
    assert comparison.low <= 0 <= comparison.high


def test_the_interval_holds_the_difference() -> None:
    draw, held = random.Random(2), 0
    for _ in range(25):
        comparison, inside = VersionComparison(), True
        for _ in range(300):
            new = draw.random() < 0.5
            comparison.add(draw.betavariate(4, 2) if new else draw.betavariate(2, 2), new=new)
            inside &= comparison.low <= 4 / 6 - 2 / 4 <= comparison.high
        held += inside
    assert held >= 23


def requests(canary: Canary, count: int, worth: dict[bool, float], seed: int) -> Log:
    """The log of a trial: every third request without feedback, some of it repeated."""
    draw, served, scores = random.Random(seed), {}, []
    steps = [canary.begun("runs/new")]
    for i in range(count):
        new, share = canary.assign(Key(seed).child(i))
        version = canary.new if new else canary.old
        on_trial = canary.new if canary.verdict is None else ""
        request = ServedRequest(f"r{i}", version=version, canary=on_trial, share=share)
        served[request.served] = request
        steps += [step] if on_trial and (step := canary.answered()) else []
        if i % 3 == 0:
            continue
        score = Feedback(request.served, float(draw.random() < worth[new]))
        for again in (score, *([Feedback(score.feedback, 1 - score.score)] if i % 7 == 0 else [])):
            scores.append(again)
            steps += [step] if (step := canary.scored(request, again.score)) else []
    return Log([], [], served, {}, scores, steps)


@pytest.mark.parametrize(
    ("worth", "verdict", "last"),
    [
        ({False: 0.3, True: 0.9}, "promoted", "new"),
        ({False: 0.9, True: 0.3}, "rolled back", "old"),
        ({False: 0.6, True: 0.6}, "kept", None),
    ],
)
def test_a_trial_ends_by_the_rule_and_is_read_back_from_the_log(
    worth: dict[bool, float], verdict: str, last: str | None
) -> None:
    canary = Canary("old", "new", VersionTrial(share=0.4, requests=500, undecided="kept"))
    log = requests(canary, 600, worth, 4)
    assert canary.verdict == verdict
    assert [step.step for step in log.steps] == ["canary", verdict]
    versions = {request.version for request in list(log.served.values())[-20:]}
    assert versions == ({last} if last else {"old", "new"})
    [read_back] = trials_of(log)
    assert (read_back.verdict, read_back.requests) == (verdict, canary.requests)
    if last:  # late feedback changes nothing any more
        assert read_back.comparison.low == canary.comparison.low
        assert read_back.comparison.scores == canary.comparison.scores


# ------------------------------------------------------------------------------- exploring

ROSTER = (Member("small"), Member("large"), Member("expert"))
CHANCES = {"small": 0.6, "large": 0.3, "expert": 0.1}


class Drawing(Policy):
    """Draws by `CHANCES`, and says so if `states`."""

    choices = tuple(Activation(member.name) for member in ROSTER)

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return a draw each."""
        drawn = [key.random().choices(list(CHANCES), list(CHANCES.values()))[0] for key in keys]
        return [Decision((Activation(n),), logp=log(CHANCES[n])) for n in drawn]


class Stating(Drawing):
    """States all of them."""

    def probabilities(self, situations: Sequence[Situation]) -> list[list[float]]:
        """Return them."""
        return [list(CHANCES.values()) for _ in situations]


def served(
    policy: Policy, exploration: Exploration, count: int, blocked: frozenset[str] = frozenset()
) -> Any:
    """The decisions of so many episodes as they were seen."""
    watched = Watched(policy, ROSTER, exploration)
    situation = Situation(Problem("p", "text"), Trajectory(), Observation(blocked=blocked))
    seen = []
    for i in range(count):
        trace = watched.follow(Key(i), "text")
        [decision] = watched.decide([situation], [Key(i).child("decide", 0)])
        [one] = trace.seen
        assert decision.start[0].agent == one.choice
        seen.append(one)
        watched.forget(trace)
    assert not watched._traces
    return seen


def test_propensities_are_those_of_the_mixture() -> None:
    seen = served(Stating(), Exploration(0.3), 1500)
    stated = {one.choice: one.propensity for one in seen}
    assert stated == pytest.approx({n: 0.7 * p + 0.1 for n, p in CHANCES.items()})
    shares = Counter(one.choice for one in seen)
    for name, propensity in stated.items():
        assert shares[name] / 1500 == pytest.approx(propensity, abs=0.04)
    assert {one.allowed for one in seen} == {("small", "large", "expert")}


def test_what_is_blocked_is_not_explored() -> None:
    seen = served(Stating(), Exploration(0.5), 200, frozenset({"expert"}))
    for one in seen:
        if one.explored:
            assert one.choice in ("small", "large")


def test_a_policy_that_states_only_its_own_draw_has_exact_propensities_too() -> None:
    """Weighted by them, the mean of any function of the choice is that of the uniform policy."""
    seen = served(Drawing(), Exploration(0.3), 2500)
    assert {round(one.propensity, 6) for one in seen} == {0.8, 0.1}
    for name in CHANCES:
        mean = sum((one.choice == name) / 3 / one.propensity for one in seen) / len(seen)
        assert mean == pytest.approx(1 / 3, abs=0.06)
    alone = served(Drawing(), Exploration(), 20)
    assert all(one.propensity == pytest.approx(CHANCES[one.choice]) for one in alone)


class Pairs(Stating):
    """Starts two agents at once, after it has prepared that."""

    prepares = True
    prepared = 0

    async def prepare(self, situation: Situation, calls: Any) -> None:
        """Count."""
        self.prepared += 1

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return both."""
        return [Decision((Activation("small"), Activation("large"))) for _ in keys]


def test_of_a_policy_that_starts_several_agents_nothing_is_explored_or_logged() -> None:
    policy = Pairs()
    watched = Watched(policy, ROSTER, Exploration(1.0))
    trace, situation = watched.follow(Key(1), "text"), Situation(Problem("p", "text"), Trajectory())
    assert watched.prepares
    asyncio.run(watched.prepare(situation, None))  # type: ignore[arg-type]
    [decision] = watched.decide([situation], [Key(1).child("decide", 0)])
    assert (policy.prepared, len(decision.start)) == (1, 2)
    assert (trace.seen, trace.several) == ([], True)


def test_a_choice_that_became_no_turn_is_logged_as_cancelled_unless_it_was_to_stop() -> None:
    missing: Any = None
    trace, shown = Trace(Key(1), "text"), Situation(Problem("p", "text"), Trajectory())
    allowed = (*CHANCES, "stop")
    trace.seen += [ServedDecision(shown, name, allowed, 0.25, False) for name in allowed]
    request = OpenRequest(ServedRequest("id"), missing, trace, shown.problem)
    turns = [Turn(0, "small", decision=0), Turn(1, "large", status="failed", decision=1)]
    statuses = [line.status for line in decisions_of(request, turns, contents=False)]
    assert statuses == ["completed", "failed", "cancelled", "completed"]


def test_choices_go_by_the_key_alone() -> None:
    first, again = (served(Stating(), Exploration(0.4), 50) for _ in range(2))
    assert [one.choice for one in first] == [one.choice for one in again]


def test_exploring_ends_when_it_has_cost_its_budget() -> None:
    exploration = Exploration(0.1, budget=3)
    for _ in range(3):  # a burst: no feedback yet
        assert exploration.now() == 0.1
        exploration.requests += 1
    assert exploration.now() == 0.0
    for _ in range(3):
        exploration.scored(False, 0.5, None)
        exploration.scored(True, 0.5, None)
    assert exploration.cost == pytest.approx(3 * (0.5 - 1.5 / 4))
    assert exploration.now() == 0.1
    exploration.scored(True, 0.0, 0.5)  # corrected
    assert exploration.cost == pytest.approx(3 * (0.5 - 1.0 / 4))
