"""The task `gymnasium` goes exactly where the bare environment goes, also when it is forked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_gymnasium import Features, Live, described, in_words, plain, to_action
from orchestrion_gymnasium.controllers import RandomController
from orchestrion_gymnasium.task import Gymnasium

from orchestrion import (
    Key,
    Observation,
    OpenContext,
    Output,
    Problem,
    RunError,
    Scores,
    Split,
    Status,
    Step,
    Task,
    Trajectory,
    Turn,
    UsageError,
    View,
    replace,
)
from orchestrion.config import from_data
from orchestrion.runs import open_run

BUNDLED: Mapping[str, dict[str, Any]] = {
    "CartPole-v1": {},
    "MountainCar-v0": {},
    "MountainCarContinuous-v0": {},
    "Acrobot-v1": {},
    "Pendulum-v1": {},
    "FrozenLake-v1": {"is_slippery": True},
    "Taxi-v4": {"is_rainy": True},
    "Blackjack-v1": {"sab": True},
    "CliffWalking-v1": {"is_slippery": True},
}
RETURNS = {"worst": -1, "best": 1}


def opened(environment: str, turns: int | None = None, **config: Any) -> Task:
    """Return an opened task; its environments need no closing."""
    task = {"use": "gymnasium", "environment": environment, "returns": RETURNS, **config}
    agents = {"a": {"use": "gym-random"}}
    data = {"task": task, "agents": agents, "policy": {"use": "round-robin"}}
    component: Gymnasium = from_data(data).components["task"].component

    async def main() -> Task:
        context = OpenContext("task", Key(0), turns=turns)
        async with component.open(context) as running:
            return running

    return asyncio.run(main())


def did(action: Any, index: int = 0) -> Turn:
    return Turn(index, "a", output=Output("", {"action": plain(action)}))


def bare(environment: str, kwargs: Any, horizon: int, seed: int, sampled: int) -> list[Any]:
    """Step the environment alone by random actions; return these, and all it said."""
    env = gymnasium.make(environment, max_episode_steps=horizon, **kwargs)
    env.action_space.seed(sampled)
    told: list[Any] = [(None, env.reset(seed=seed)[0], 0.0, False, False)]
    while not (told[-1][3] or told[-1][4]):
        action = env.action_space.sample()
        told.append((action, *env.step(action)[:4]))
    env.close()
    return told


def seed_of(problem: Problem) -> int:
    hidden: Any = problem.hidden
    return int(hidden["seed"])


def told_by(step: Step) -> tuple[Any, ...]:
    assert step.observation is not None
    data: Any = step.observation.data
    return data["observation"], data["reward"], data["terminated"], data["truncated"]


@pytest.mark.parametrize("environment", BUNDLED)
def test_every_bundled_environment_goes_where_it_goes_alone(environment: str) -> None:
    horizon, kwargs = 12, BUNDLED[environment]
    task = opened(environment, horizon=horizon, kwargs=kwargs)
    ends: set[tuple[bool, bool]] = set()
    for problem in task.problems("test")[:3]:
        told = bare(environment, kwargs, horizon, seed_of(problem), sampled=len(ends))
        step = task.start(problem, Key(0))
        middle: Step | None = None
        for index, (action, observation, reward, terminated, truncated) in enumerate(told):
            if action is not None:
                step = task.step(step.state, did(action, index), Key(index))
            seen, *rest = told_by(step)
            assert step.observation is not None
            assert json.dumps(plain(observation)) == json.dumps(_lists(seen))
            assert rest == [float(reward), terminated, truncated]
            assert step.done == (terminated or truncated)
            assert all(-1 <= feature <= 1 for feature in step.observation.features)
            if index == len(told) // 2:
                middle = step
        ends.add((terminated, truncated))
        # A fork from the middle, whose environment has gone on, arrives at the same end.
        assert middle is not None
        for index, (action, *_) in list(enumerate(told))[len(told) // 2 + 1 :]:
            middle = task.step(middle.state, did(action, index), Key(index))
        assert (told_by(middle), middle.state.total) == (told_by(step), step.state.total)
        total = sum(reward for _, _, reward, _, _ in told)
        assert step.state.total == pytest.approx(total)
    assert ends & {(False, True), (True, False), (True, True)}


def _lists(value: Any) -> Any:
    """Return read-only JSON as lists and dicts."""
    if isinstance(value, Mapping):
        return {name: _lists(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(part) for part in value]
    return value


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=20))
def test_a_state_says_the_same_however_many_forks_left_it(moves: Sequence[tuple[int, int]]) -> None:
    """Grow a tree in any order; each branch ends where its actions alone lead."""
    problem = LAKE.problems("train")[0]
    states: list[tuple[tuple[int, ...], Step]] = [((), LAKE.start(problem, Key(0)))]
    for parent, action in moves:
        actions, step = states[parent % len(states)]
        if not step.done:
            states.append(((*actions, action), LAKE.step(step.state, did(action), Key(1))))
    for actions, step in states:
        again = LAKE.start(problem, Key(0))
        for action in actions:
            again = LAKE.step(again.state, did(action), Key(2))
        assert again.observation == step.observation


LAKE = opened("FrozenLake-v1", returns={"worst": 0, "best": 1})


def test_a_turn_without_an_action_changes_nothing_and_says_why() -> None:
    start = LAKE.start(LAKE.problems("train")[0], Key(0))
    for output, why in [
        (Output("north"), "not JSON: 'north'"),
        (Output("4"), "want a whole number from 0 to 3; got 4"),
        (Output("1.5"), "want a whole number"),
        (Output("true"), "want a whole number"),
        (Output("1", data={"action": [1]}), "want a whole number"),
    ]:
        step = LAKE.step(start.state, Turn(0, "a", output=output), Key(0))
        assert step.state is start.state
        assert step.observation is not None
        assert why in step.observation.text
    failed = LAKE.step(start.state, Turn(0, "a", status="failed", error="no power"), Key(0))
    assert failed.state is start.state
    assert "no power" in getattr(failed.observation, "text", "")
    moved = LAKE.step(start.state, Turn(0, "a", output=Output(" 1 ")), Key(0))
    assert moved.state.actions == (1,)


def verdict(task: Task, state: Any, final: bool = True) -> Scores:
    problem = task.problems("test")[0]
    return asyncio.run(task.verify(problem, Trajectory(), state, final=final, calls=None))  # type: ignore[arg-type]


def test_a_return_is_worth_its_place_between_worst_and_best() -> None:
    task = opened("CartPole-v1", horizon=10, returns={"worst": 0, "best": 10, "solved": 9.5})
    step = task.start(task.problems("test")[0], Key(0))
    for action in (0, 1) * 5:
        assert not verdict(task, step.state).success
        assert verdict(task, step.state).value == 0  # stopped before its end
        assert verdict(task, step.state, final=False).value == step.state.total / 10
        step = task.step(step.state, did(action), Key(0))
    assert step.done
    assert verdict(task, step.state) == Scores(1.0, True, {"return": 10.0, "actions": 10.0})
    threshold = opened("CartPole-v1", returns={"worst": 0, "best": 500})
    assert (threshold.solved, threshold.horizon) == (475.0, 500)  # type: ignore[attr-defined]


def test_seeds_are_of_one_split_alone_and_hidden() -> None:
    splits: tuple[Split, ...] = ("train", "validation", "test")
    seeds = [{seed_of(problem) for problem in LAKE.problems(split)} for split in splits]
    assert [len(drawn) for drawn in seeds] == [64, 16, 32]
    assert len(set.union(*seeds)) == 64 + 16 + 32
    assert LAKE.problem_from("17").hidden == {"seed": 17}
    for text in ("north", "9" * 19, "9" * 5000):
        with pytest.raises(
            UsageError, match=f"a seed such as 17, of .* 18 digits; got '{text[:5]}"
        ):
            LAKE.problem_from(text)


class Place:
    """A state of which only its identity counts."""


def test_environments_go_along_with_states_and_are_closed_with_the_last() -> None:
    made: list[Place] = []
    closed: list[str] = []

    def replay(state: Place) -> str:
        made.append(state)
        return f"environment {len(made)}"

    live: Live[Place, str] = Live(replay, closed.append)
    first, second = Place(), Place()
    live.keep(second, live.take(first))
    assert live.take(first) == "environment 2"  # the first one has gone on
    assert live.take(second) == "environment 1"
    live.keep(second, "environment 1")
    live.keep(first, "environment 2")
    assert closed == []
    del second
    assert closed == ["environment 1"]  # nobody can ask for it any more
    live.close()
    assert closed == ["environment 1", "environment 2"]


class Forgetful(gymnasium.Env[Any, Any]):
    """An environment that draws from elsewhere than its seed."""

    observation_space = gymnasium.spaces.Box(-1e9, 1e9, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        Forgetful.resets += 1
        return np.array([Forgetful.resets], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([Forgetful.resets], np.float32), 0.0, False, False, {}


def test_an_environment_that_does_not_repeat_cannot_be_forked() -> None:
    gymnasium.register("Forgetful-v0", f"{__name__}:Forgetful")
    try:
        task = opened("Forgetful-v0")
        start = task.start(task.problems("train")[0], Key(0))
        task.step(start.state, did(0), Key(0))
        with pytest.raises(RunError, match="Forgetful-v0 does not repeat"):
            task.step(start.state, did(0), Key(0))
    finally:
        del gymnasium.registry["Forgetful-v0"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"environment": "CartPol-v1"}, r"task: cannot make 'CartPol-v1'.*CartPole"),
        ({"kwargs": {"colour": 1}}, "cannot make 'CartPole-v1'"),
        ({"turns": 100}, r"may take 500 actions, but limits.turns is 100; set `limits: {turns"),
        ({"returns": {"worst": 1, "best": 1}}, "must be more than worst"),
    ],
)
def test_what_cannot_run_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        opened(**{"environment": "CartPole-v1", **config})


SPACES = gymnasium.spaces.Dict(
    {
        "a": gymnasium.spaces.Tuple(
            (gymnasium.spaces.Discrete(3, start=-1), gymnasium.spaces.MultiBinary(2))
        ),
        "b": gymnasium.spaces.MultiDiscrete([2, 3]),
        "c": gymnasium.spaces.Box(-np.inf, 2.0, (2, 1), np.float64),
    }
)


def test_actions_and_observations_of_nested_spaces() -> None:
    SPACES.seed(1)
    features = Features(SPACES, "task")
    for _ in range(20):
        action = SPACES.sample()
        again = to_action(SPACES, json.loads(json.dumps(plain(action))))
        assert json.dumps(plain(again)) == json.dumps(plain(action))
        assert len(features(action)) == features.width == 3 + 2 + 5 + 2
    parts: Any = described(SPACES)["parts"]
    assert parts["c"] == {"kind": "box", "low": [[None]] * 2, "high": [[2.0]] * 2, "whole": False}
    assert '"a": a list of: a whole number from -1 to 1' in in_words(SPACES)
    with pytest.raises(UsageError, match="cannot be features"):
        Features(gymnasium.spaces.Box(0, 255, (210, 160, 3)), "task")
    with pytest.raises(UsageError, match="cannot be written by agents"):
        described(gymnasium.spaces.Text(3))


SEVERAL = gymnasium.spaces.Dict(
    {
        "nested": SPACES,
        "below": gymnasium.spaces.Box(-np.inf, -40.0, (3,), np.float64),
        "above": gymnasium.spaces.Box(7.0, np.inf, (), np.float64),
        "whole": gymnasium.spaces.Box(-1, 1, (2,), np.int8),
    }
)


def test_random_actions_are_within_their_space_and_use_all_of_it() -> None:
    data: Any = {"actions": described(SEVERAL), "observation": 0}
    view = View("a", None, Problem("p", ""), Trajectory(), Observation("", data))
    calls: Any = None
    drawn = []
    for number in range(60):
        output = asyncio.run(RandomController(cost=0.5).act(view, Key(number), calls))
        assert output.usage.cost == 0.5
        drawn.append(to_action(SEVERAL, output.data["action"]))
    assert {int(action["nested"]["a"][0]) for action in drawn} == {-1, 0, 1}
    assert {int(whole) for action in drawn for whole in action["whole"]} == {-1, 0, 1}
    for name, low, high in (("below", -42, -40), ("above", 7, 9)):
        values = np.array([action[name] for action in drawn])
        assert low <= values.min() < values.max() <= high
    with pytest.raises(ValueError, match="nothing to act on for 'a'"):
        asyncio.run(RandomController().act(replace(view, observation=None), Key(1), calls))


def push(observation: Any) -> int:
    """Push the pole's cart to where the pole falls."""
    return int(observation[2] + observation[3] > 0)


def test_a_team_of_controllers_runs_and_repeats(tmp_path: Path) -> None:
    config = {
        "seed": 3,
        "task": {
            "use": "gymnasium",
            "environment": "CartPole-v1",
            "horizon": 30,
            "returns": {"worst": 0, "best": 30},
        },
        "agents": {
            "fixed": {"use": "gym-constant", "actions": {"left": 0, "right": 1}},
            "random": {"use": "gym-random"},
            "push": {"use": "gym-function", "function": f"{__name__}:push"},
        },
        "policy": {"use": "random"},
        "limits": {"turns": 30},
    }
    (tmp_path / "team.yaml").write_text(json.dumps(config))

    async def main() -> list[Any]:
        async with open_run(tmp_path / "team.yaml") as trained:
            problem = trained.engine.team.task.problems("test")[0]
            return [await trained.engine.run("e", problem, Key(8)) for _ in range(2)]

    first, second = asyncio.run(main())
    assert first == second
    assert first.status is Status.COMPLETED
    assert {turn.status for turn in first.turns} == {"completed"}
    assert first.scores.parts["actions"] == len(first.turns) == first.scores.parts["return"]
    assert {turn.agent for turn in first.turns} <= {"fixed", "random", "push"}
