"""The task `pettingzoo` goes exactly where the bare game goes, also when it is forked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from orchestrion_gymnasium import plain
from orchestrion_pettingzoo.task import PettingZoo

from orchestrion import Key, OpenContext, Output, Scores, Status, Step, Task, Trajectory, Turn
from orchestrion.config import from_data
from orchestrion.runs import open_run

RETURNS = {"worst": -1, "best": 1}
TICTACTOE: dict[str, Any] = {"environment": "classic/tictactoe-v3"}
TICTACTOE["players"] = {"player_1": ["x", "z"], "player_2": "o"}
ROUNDS = {"environment": "classic/rps-v2", "api": "parallel", "kwargs": {"max_cycles": 3}}


def opened(**task: Any) -> Task:
    """Return an opened task; its games need no closing."""
    data = {
        "task": {"use": "pettingzoo", "returns": RETURNS, **task},
        "agents": {"a": {"use": "gym-random"}},
        "policy": {"use": "round-robin"},
    }
    component: PettingZoo = from_data(data).components["task"].component

    async def main() -> Task:
        async with component.open(OpenContext("task", Key(0))) as running:
            return running

    return asyncio.run(main())


def did(agent: str, action: Any) -> Turn:
    return Turn(0, agent, output=Output("", {"action": plain(action)}))


def data_of(step: Step) -> Any:
    assert step.observation is not None
    return step.observation.data


def seed_of(task: Task, number: int) -> int:
    hidden: Any = task.problems("test")[number].hidden
    return int(hidden["seed"])


def text(value: Any) -> str:
    """Return JSON, also what is read-only, as text."""
    return json.dumps(
        value, default=lambda part: dict(part) if hasattr(part, "keys") else list(part)
    )


@pytest.mark.parametrize("name", ["tictactoe-v3", "connect_four-v3", "rps-v2"])
def test_a_game_of_turns_goes_where_it_goes_alone(name: str) -> None:
    from pettingzoo import make

    task = opened(environment=f"classic/{name}")
    for number in range(3):
        seed = seed_of(task, number)
        game = make("aec", f"classic/{name}")
        game.reset(seed=seed)
        step = task.start(task.problems("test")[number], Key(0))
        moves: list[tuple[str, Any]] = []
        middle = step
        totals: dict[str, float] = {}
        for player in game.agent_iter():
            observation, reward, terminated, truncated, _ = game.last()
            totals[player] = totals.get(player, 0) + reward
            if terminated or truncated:
                assert data_of(step)["ends"][player] == (terminated, truncated)
                game.step(None)
                continue
            assert text(data_of(step)["players"][player]["observation"]) == text(plain(observation))
            assert step.observation is not None
            assert step.observation.blocked == set(game.possible_agents) - {player}
            mask = observation["action_mask"] if isinstance(observation, dict) else None
            space = game.action_space(player)
            space.seed(seed % 1000 + len(moves))
            action = space.sample(mask)
            game.step(action)
            step = task.step(step.state, did(player, action), Key(0))
            moves.append((player, action))
            if len(moves) == 3:
                middle = step
        assert step.done
        assert dict(step.state.totals) == totals
        for player, action in moves[3:]:  # from the middle, where the game no longer is
            middle = task.step(middle.state, did(player, action), Key(0))
        assert middle.observation == step.observation


def test_a_game_of_rounds_goes_where_it_goes_alone_once_all_have_acted() -> None:
    from pettingzoo import make

    task = opened(**ROUNDS)
    game = make("parallel", "classic/rps-v2", max_cycles=3)
    seen, _ = game.reset(seed=seed_of(task, 0))
    step = task.start(task.problems("test")[0], Key(0))
    totals = {"player_0": 0.0, "player_1": 0.0}
    for actions in ({"player_1": 0, "player_0": 1}, {"player_0": 2, "player_1": 1}, PAPERS):
        shown = data_of(step)["players"]
        # What the other player observes is hidden.
        assert {player: shown[player]["observation"] for player in shown} == {
            "player_0": plain(seen["player_0"])
        }
        assert step.observation is not None
        assert "player_1 observes" not in step.observation.text
        fork = step
        for player, action in actions.items():
            step = task.step(step.state, did(player, action), Key(0))
            fork = task.step(fork.state, did(player, (action + 1) % 3), Key(0))
            again = task.step(step.state, did(player, 0), Key(0))
            assert list(actions).index(player) or again.state is step.state  # acts but once
        seen, rewards, *_ = game.step(actions)
        totals = {player: totals[player] + rewards[player] for player in totals}
        assert dict(step.state.totals) == totals
    assert step.done
    assert not game.agents


PAPERS = {"player_0": 1, "player_1": 1}


def test_the_game_says_who_acts_and_which_agents_play_that_player() -> None:
    task = opened(**TICTACTOE)
    start = task.start(task.problems("test")[0], Key(0))
    assert start.observation is not None
    assert start.observation.blocked == {"o"}
    assert list(data_of(start)["players"]["player_1"]["allowed"]) == list(range(9))
    for turn in (did("o", 4), did("adviser", 4), did("x", 9), did("x", "a")):
        assert task.step(start.state, turn, Key(0)).state is start.state
    step = task.step(start.state, did("z", 4), Key(0))
    assert step.observation is not None
    assert step.observation.blocked == {"x", "z"}
    assert 4 not in data_of(step)["players"]["player_2"]["allowed"]
    assert len(step.observation.features) == len(start.observation.features) == 2 + 27


def verdict(task: Task, state: Any, final: bool = True) -> Scores:
    problem = task.problems("test")[0]
    return asyncio.run(task.verify(problem, Trajectory(), state, final=final, calls=None))  # type: ignore[arg-type]


def test_the_return_of_the_scored_players_is_judged() -> None:
    for scored, value in ((["player_1"], 1.0), (["player_2"], 0.0), ([], 0.5)):
        task = opened(**TICTACTOE, scored=scored)
        step = task.start(task.problems("test")[0], Key(0))
        for agent, action in zip("xoxox", (0, 3, 1, 4, 2), strict=True):
            assert verdict(task, step.state).value == 0
            step = task.step(step.state, did(agent, action), Key(0))
        assert step.done
        assert verdict(task, step.state) == Scores(
            value, value == 1, {"return.player_1": 1.0, "return.player_2": -1.0}
        )


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"environment": "classic/tictacto-v3"}, r"task: cannot make 'classic/tictacto-v3'"),
        ({**TICTACTOE, "scored": ["player_3"]}, "no player 'player_3'; it has player_1, player_2"),
        ({**TICTACTOE, "kwargs": {"size": 4}}, "unexpected keyword argument 'size'$"),
        ({"environment": "atari/pong-v3"}, r"additional dependencies.* \(No module named .*\)$"),
        ({"environment": "os:getcwd"}, "not a game of PettingZoo"),
        ({"environment": "os:getcwd", "api": "parallel"}, "api.*with a game of your own"),
        ({"environment": "pettingzoo:AECEnv"}, "has no `possible_agents`"),
    ],
)
def test_what_cannot_be_played_is_refused(task: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        opened(**task)


@pytest.mark.parametrize(
    "task", [TICTACTOE, {**ROUNDS, "players": {"player_0": "x", "player_1": "o"}}]
)
def test_a_team_plays_and_repeats(task: dict[str, Any], tmp_path: Path) -> None:
    config = {
        "task": {"use": "pettingzoo", "returns": RETURNS, **task},
        "agents": {name: {"use": "gym-random"} for name in "xzo"},
        "policy": {"use": "players"},
    }
    (tmp_path / "team.yaml").write_text(json.dumps(config))

    async def main() -> list[Any]:
        async with open_run(tmp_path / "team.yaml") as trained:
            problem = trained.engine.team.task.problems("test")[0]
            return [await trained.engine.run("e", problem, Key(5)) for _ in range(2)]

    first, second = asyncio.run(main())
    assert first == second
    assert first.status is Status.COMPLETED
    agents = [turn.agent for turn in first.turns]
    assert agents[:4] == ["x", "o", "x", "o"]
    assert not any(turn.reads for turn in first.turns)


def test_players_that_nobody_plays_are_named(tmp_path: Path) -> None:
    config = {
        "task": {"use": "pettingzoo", "returns": RETURNS, **ROUNDS, "players": {"player_0": "x"}},
        "agents": {"x": {"use": "gym-random"}},
        "policy": {"use": "players"},
    }
    (tmp_path / "team.yaml").write_text(json.dumps(config))

    async def main() -> None:
        async with open_run(tmp_path / "team.yaml"):
            pass

    with pytest.raises(Exception, match="is to be played by player_1, and the team has x"):
        asyncio.run(main())
