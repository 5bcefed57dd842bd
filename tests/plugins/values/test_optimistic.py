"""The trainer `optimistic`: what it takes for a state, how it plans, what it learns and keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from orchestrion_values.optimism import dynamics
from orchestrion_values.optimism.dynamics import learn, optimistic, plain
from orchestrion_values.optimism.learner import NEVER, Believed, Learner, Planned
from orchestrion_values.optimism.states import ObservedState, StateMoves, States
from orchestrion_values.optimistic import Optimistic
from orchestrion_values.policy import ValuePolicy
from orchestrion_values.values import STANDARD

from orchestrion import (
    Decision,
    Episode,
    Job,
    Key,
    Member,
    Observation,
    OpenContext,
    Output,
    Problem,
    Reward,
    Situation,
    Trajectory,
    Turn,
    UsageError,
)

ROSTER = (Member("walk"), Member("jump"))
WALK, JUMP, STOP = range(3)
FREE = (True, True, True)


def road(place: float, step: int) -> ObservedState:
    """A road of places; the second number is a clock."""
    return ObservedState("road", (place, step / 10), FREE)


def walked(*choices: int, pay: dict[int, float]) -> StateMoves:
    """One episode for each way; walking leads one place on, jumping two, and both cost .1."""
    seen = StateMoves(3)
    for way in choices:
        steps = [int(digit) for digit in str(way)]
        places = [0]
        for choice in steps:
            places.append(places[-1] + (0, 1, 2)[choice])
        shown = [road(place, t) for t, place in enumerate(places)]
        taken = [(STOP, WALK, JUMP)[choice] for choice in steps]
        costs = [0.0 if choice == STOP else -0.1 for choice in taken]
        seen.add(shown[:-1], taken, costs, shown[-1], pay.get(places[-1], 0.0))
    return seen


# ------------------------------------------------------------------------------ states


def test_a_clock_is_left_out_of_states() -> None:
    seen = walked(10, 110, 20, 2110, pay={})
    states = States(seen, levels=12)
    assert states.count == 5  # places 0 to 4
    assert states.horizon == 4
    assert states.lookup.kept.tolist() == [0]


def test_what_is_new_is_taken_for_the_nearest_state_of_its_category() -> None:
    states = States(walked(10, 110, 20, pay={}), levels=12)
    near, known = states.lookup.find([road(7.0, 3), road(2.0, 9)])
    assert near == known == states.of[states_place(states, 2.0)]


def states_place(states: States, place: float) -> int:
    column = states.numbers[:, -1]
    return int(np.flatnonzero(column[states.of] == place)[0])


def test_a_feature_of_many_values_is_cut_into_levels() -> None:
    seen = StateMoves(3)
    for i in range(50):
        seen.add([road(i / 7, 0)], [STOP], [0.0], road(i / 7, 0), 0.0)
    assert States(seen, levels=5).count == 5


def test_what_is_allowed_is_known_there_and_guessed_elsewhere() -> None:
    seen = StateMoves(3)
    first, then = road(0, 0), ObservedState("road", (1.0, 0.1), (False, False, True))
    seen.add([first, then], [WALK, STOP], [0.0, 0.0], then, 1.0)
    states = States(seen, levels=12)
    start, end = states.of
    assert states.allowed[0, start].tolist() == [True, True, True]
    assert states.allowed[1, end].tolist() == [False, False, True]
    # Nobody was at the start at the second decision: not more than both have shown.
    assert states.allowed[1, start].tolist() == [False, False, True]


# ------------------------------------------------------------------------------ plans


def test_a_plan_over_what_was_often_seen_is_the_best_one() -> None:
    # Two places on, stopping pays 1: one jump (.9) beats two walks (.8) and stopping at once.
    seen = walked(*[10, 110, 20, 210, 120, 0] * 60, pay={2: 1.0})
    model = learn(seen, States(seen, 12), 0, best=1.0)
    values = plain(model)
    start = model.states.of[0]
    assert values[0, start, JUMP] == pytest.approx(0.9, abs=0.02)
    assert values[0, start, WALK] == pytest.approx(0.8, abs=0.03)
    assert values[0, start, STOP] == pytest.approx(0.0, abs=0.02)


def test_what_was_not_tried_counts_as_the_best_possible_until_it_was() -> None:
    seen = walked(*[10, 110] * 30, pay={})
    model = learn(seen, States(seen, 12), 0, best=1.0)
    start = model.states.of[0]
    hopes = optimistic(model, known=2.0, bonus=0.05)
    assert hopes[0, start, JUMP] == 1.0 > hopes[0, start, WALK]
    assert plain(model)[0, start, JUMP] == 0.0  # the least that an end has paid


def test_a_forest_is_worth_as_much_as_it_predicts_of_rows_that_it_never_saw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dynamics, "TREES", 3)  # so that every tree saw some of the rows
    kind = np.arange(100) % 2
    seen = 2.0 + 2 * kind[:, None] + 2 * np.random.default_rng(0).standard_normal((100, 3))
    sums, squares = seen.sum(axis=1, keepdims=True), (seen**2).sum(axis=1, keepdims=True)
    rows, one = np.array([[0.0], [1.0]]), np.zeros(100, np.int64)
    predicted, worth = dynamics.pool(
        rows, rows[kind], np.full(100, 3.0), sums, squares, one, 1, seed=0
    )
    assert predicted[:, 0] == pytest.approx([2, 4], abs=0.3)
    assert worth.tolist() == [16.0]


# ------------------------------------------------------------------------------ the trainer


class Road:
    """Stands for a session, with episodes on a road that ends at place 3 and pays there.

    Walking leads on every second time. Jumping always does, but not from place 1.
    """

    def __init__(self, policy: ValuePolicy, key: Key) -> None:
        self.policy, self.key = policy, key

    def problems(self, split: str = "train") -> list[Problem]:
        return [Problem(str(i), "", category="road") for i in range(4)]

    async def rollout(self, jobs: Sequence[Job]) -> list[Episode]:
        return [self._play(n, job) for n, job in enumerate(jobs)]

    def _play(self, n: int, job: Job) -> Episode:
        assert job.policy is not None
        place, trajectory, decisions = 0, Trajectory(), []
        rng = job.key.child("world").random()
        while True:
            step = len(trajectory)
            shown = Observation(features=(float(place), step / 6))
            situation = Situation(job.problem, trajectory, shown, training=True)
            decision: Decision = job.policy.decide([situation], [job.key.child(step)])[0]
            decisions.append(decision)
            if decision.stop or step == 6:
                break
            agent = decision.start[0].agent
            place += (rng.random() < 0.5) if agent == "walk" else (place != 1)
            trajectory = trajectory.append(Turn(step, agent, output=Output(), decision=step))
        paid, turns = float(place == 3), tuple(-0.05 for _ in trajectory.turns)
        reward = Reward(paid + sum(turns), turns)
        return Episode(
            str(n), job.problem, trajectory, tuple(decisions), reward=reward, observation=shown
        )


def team() -> tuple[ValuePolicy, OpenContext]:
    context = OpenContext("trainer", Key(4), ROSTER)
    return ValuePolicy(STANDARD, context, stop=True), context


def train(settings: Optimistic, part: range | None = None, *, resume_at: int = -1) -> Any:
    """Runs all iterations; `resume_at`: from there on with what was saved, loaded elsewhere."""
    policy, context = team()
    learner = Learner(settings, context)
    for i in range(learner.iterations):
        if i == resume_at:
            states = policy.save(), learner.save()
            policy, context = team()
            learner = Learner(settings, context)
            policy.load(states[0])
            learner.load(states[1])
        session: Any = Road(policy, Key(7).child(i))
        asyncio.run(learner.iterate(i, session))
    return policy, learner


def test_it_learns_a_road_where_each_place_has_a_best_choice() -> None:
    policy, _ = train(Optimistic(episodes=120))
    assert isinstance(policy.model, Planned)
    best = [_taken(policy, place) for place in range(4)]
    # Jumping is sure but at place 1, where only walking leads on; at 3 it is over.
    assert best == ["jump", "walk", "jump", "stop"]


def _taken(policy: ValuePolicy, place: int) -> str:
    shown = Observation(features=(float(place), place / 6))
    acted = Trajectory([Turn(i, "walk", decision=i) for i in range(place)])
    row = policy.probabilities([Situation(Problem("p", "", category="road"), acted, shown)])[0]
    return policy.names[int(row.argmax())]


def test_a_resumed_training_gives_equal_results() -> None:
    settings = Optimistic(episodes=40)
    whole, cut = train(settings), train(settings, resume_at=2)
    for first, other in zip(whole, cut, strict=True):
        assert first.save() == other.save()


def test_episodes_made_before_are_learned_from_too() -> None:
    policy, context = team()
    learner = Learner(Optimistic(episodes=40), context)
    session: Any = Road(policy, Key(7))
    explored, _ = train(Optimistic(episodes=120))
    jobs = [Job(p, Key(1).child(p.id), _recording(explored)) for p in session.problems()]
    episodes = asyncio.run(session.rollout(jobs * 5))
    metrics = learner.absorb(episodes, session)
    assert metrics["excluded"] == 0
    assert isinstance(policy.model, Planned)


def _recording(policy: ValuePolicy) -> Any:
    from orchestrion_values.policy import Exploring

    def choose(situations: Any, allowed: Any, keys: Any) -> list[tuple[int, float]]:
        rows = policy.probabilities(situations)
        return [(int(row.argmax()), 1.0) for row in rows]

    return Exploring(policy, choose)


def test_iterations_have_all_the_episodes_and_other_policies_are_refused() -> None:
    for episodes in (1, 8, 100, 1000):
        assert sum(Optimistic(episodes=episodes).sizes) == episodes
    _, context = team()
    session: Any = Road(object(), Key(1))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="trains the policy values"):
        Learner(Optimistic(), context).check(session)


def test_with_hidden_states_what_is_unknown_is_explored_first_and_then_better_values() -> None:
    game = SimpleNamespace(amounts=np.array([0.0, 0.5]))
    scores = np.array([[1.0, 0.95, 5.0], [1.0, NEVER, NEVER]])
    model: Any = SimpleNamespace(
        beliefs=SimpleNamespace(plan=SimpleNamespace(game=game)), scores=lambda *_: scores
    )
    learner = Learner(Optimistic(temperature=0.1, random=0.2), team()[1])
    chances = learner._by_beliefs(model)([], np.array([[True, True, False], [True] * 3]))
    # A difference of a tenth of the amounts is one of 1 to softmax; a fifth is uniform.
    better = 0.8 / (1 + np.exp(-1)) + 0.1
    assert chances == pytest.approx(np.array([[better, 1 - better, 0.0], [0.0, 0.5, 0.5]]))


def test_without_a_log_no_hidden_state_is_assumed() -> None:
    policy, _ = train(Optimistic(episodes=60))
    assert not isinstance(policy.model, Believed)
