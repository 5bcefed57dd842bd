"""One episode: who acts, what is recorded, how it ends."""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import pickle
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrion import (
    Activation,
    Agent,
    Answer,
    CallError,
    Calls,
    Decision,
    Episode,
    Key,
    Observation,
    Output,
    Policy,
    Problem,
    Request,
    Reward,
    RewardFunction,
    RunError,
    Scores,
    Situation,
    Status,
    Step,
    Task,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    View,
)
from orchestrion._config.sections import Limits
from orchestrion._engine.episode import Engine
from orchestrion._readonly import read_only
from orchestrion._session import EngineSession
from orchestrion.testing import Fixed, ListTask, ScriptedAgent, engine_for

PROBLEM = Problem("p", "what is to be done", hidden={"answer": 42})
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=9,
)


@frozen
class By(Policy):
    """Decides by a function of one situation."""

    rule: Callable[[Situation], Decision]

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
        return [self.rule(situation) for situation in situations]


def run(engine: Engine, problem: Problem = PROBLEM, seed: int = 1) -> Episode:
    episode = asyncio.run(engine.run("e", problem, Key(seed)))
    assert (engine.active, engine.unfinished, engine.idle.is_set()) == (0, 0, True)
    return episode


def names(episode: Episode) -> list[str]:
    return [turn.agent for turn in episode.turns]


def test_agents_act_in_the_order_the_policy_says_and_see_what_came_before() -> None:
    second = ScriptedAgent([Output("b")])
    episode = run(engine_for({"a": ScriptedAgent([Output("a")]), "b": second}, Fixed("ab")))
    assert names(episode) == ["a", "b"]
    assert episode.status is Status.COMPLETED
    assert [turn.output.content for turn in second.views[0].turns] == ["a"]
    assert second.views[0].problem == Problem("p", PROBLEM.text), "nothing that is hidden"


def test_the_terminating_turn_is_the_last_one_and_no_success_by_itself() -> None:
    agents = {"a": ScriptedAgent(), "stop": ScriptedAgent([Output("done", final=True)])}
    task = ListTask(solved=lambda trajectory: False)
    episode = run(engine_for(agents, Fixed(["stop", "a", "a"]), task))
    assert (names(episode), episode.status) == (["stop"], Status.COMPLETED)
    assert not episode.success


@pytest.mark.parametrize(
    ("limits", "steps", "turns"),
    [
        (Limits(turns=2), "aaaa", 2),
        (Limits(turns=2), [[Activation("a")] * 3], 2),
        (Limits(calls=3), "aaaa", 2),
        (Limits(calls=4), "aaaa", 3),
        (Limits(tokens=15), "aaaa", 2),
        (Limits(tokens=16), "aaaa", 3),
    ],
    ids=repr,
)
def test_an_episode_stopped_by_a_limit_is_never_a_success(
    limits: Limits, steps: Any, turns: int
) -> None:
    agent = ScriptedAgent([Output(usage=Usage(calls=2, input_tokens=5, output_tokens=3))])
    episode = run(engine_for({"a": agent}, Fixed(steps), limits=limits))
    assert (names(episode), episode.status) == (["a"] * turns, Status.LIMIT)
    assert episode.scores == Scores(1.0, True)
    assert not episode.success


@pytest.mark.parametrize("error", [CallError("the service is gone"), ValueError("a bug")])
def test_a_policy_that_cannot_prepare_fails_the_episode_unless_it_has_a_bug(
    error: Exception,
) -> None:
    class Unready(Fixed):
        prepares = True

        async def prepare(self, situation: Situation, calls: Calls) -> None:
            raise error

    engine = engine_for({"a": ScriptedAgent()}, Unready("a"))
    if isinstance(error, CallError):
        episode = run(engine)
        assert (episode.status, episode.error) == (Status.FAILED, f"policy Unready: {error}")
        assert engine.failed_turns == {episode.error: 1}
    else:
        with pytest.raises(RunError, match=r"policy Unready: prepare\(\) raised ValueError: a bug"):
            run(engine)


def test_what_agents_reuse_is_computed_once_for_equal_content() -> None:
    computed: list[int] = []

    class Reuses(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            async def compute() -> str:
                computed.append(len(view.trajectory))
                return f"made in turn {len(view.trajectory)}"

            return Output(await calls.reuse({"n": len(view.trajectory) // 2}, compute))

    episode = run(engine_for({"a": Reuses()}, Fixed("aaa")))
    assert [turn.output.content[-1] for turn in episode.turns] == ["0", "0", "2"]
    assert computed == [0, 2]


def test_what_an_agent_shows_while_it_works_is_named_by_its_turn_and_only_if_somebody_looks() -> (
    None
):
    class Shows(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            calls.show("a word")
            return Output(str(calls.watched))

    shown: list[tuple[str, str]] = []
    engine = engine_for({"a": ScriptedAgent(), "b": Shows()}, Fixed("ab"))
    assert run(engine).turns[1].output.content == "False"
    engine.viewer = lambda who, text: shown.append((who, text))
    assert run(engine).turns[1].output.content == "True"
    assert shown == [("2 b", "a word")]


def test_a_failing_agent_makes_a_failed_turn_that_no_agent_reads() -> None:
    reader = ScriptedAgent()
    broken = ScriptedAgent([ValueError("no idea")])
    episode = run(engine_for({"a": broken, "b": reader}, Fixed("ab")))
    failed = episode.turns[0]
    assert failed.status == "failed"
    assert re.fullmatch(r"ValueError: no idea \(_fakes\.py:\d+\)", failed.error)
    assert failed.output == Output()
    assert reader.views[0].turns == ()
    assert episode.status is Status.COMPLETED


def test_one_agent_acts_on_a_view_from_elsewhere() -> None:
    given = View("asker", None, PROBLEM.public(), Trajectory([Turn(0, "a", output=Output("x"))]))
    team = {"good": ScriptedAgent(), "bad": ScriptedAgent([ValueError("no draft yet")])}
    engine = engine_for(team, Fixed([]))
    turns = [asyncio.run(engine.act(name, given, Key(1))) for name in team]
    assert team["good"].views == [given]
    assert turns == [
        Turn(0, "good", output=Output("ok")),
        Turn(0, "bad", status="failed", error=turns[1].error),
    ]
    assert re.fullmatch(r"ValueError: no draft yet \(_fakes\.py:\d+\)", turns[1].error)


def test_a_plain_function_runs_in_a_thread_and_blocks_nobody() -> None:
    import threading

    barrier = threading.Barrier(40, timeout=20)

    class Blocking(Agent):
        def act(self, view: View, key: Key, calls: Calls) -> Output:
            barrier.wait()  # passes only once all forty wait here
            return Output(threading.current_thread().name)

    everybody = [Activation("a", reads=()) for _ in range(40)]
    episode = run(engine_for({"a": Blocking()}, Fixed([everybody])))
    assert [turn.status for turn in episode.turns] == ["completed"] * 40
    assert "MainThread" not in {turn.output.content for turn in episode.turns}


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (Activation("nobody"), "not in the team"),
        (Activation("a", "red"), "with option 'red'"),
        (Activation("b"), "without one of its options"),
    ],
)
def test_a_policy_that_starts_what_is_not_there_stops_the_run(
    start: Activation, message: str
) -> None:
    agents = {"a": ScriptedAgent(), "b": ScriptedAgent(options=["red", "blue"])}
    with pytest.raises(RunError, match=message):
        run(engine_for(agents, Fixed([[start]])))
    [turn] = run(engine_for(agents, Fixed([[Activation("b", "red")]]))).turns
    assert (turn.option, turn.status) == ("red", "completed")


def test_an_agent_that_says_nothing_of_it_is_not_pure() -> None:
    class Plain:
        """Supplies what the protocol asks for, without its base class."""

        acted = 0

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            self.acted += 1
            return Output("ok")

    agent: Any = Plain()
    run(engine_for({"a": agent}, Fixed([[Activation("a", reads=())]] * 2)))
    assert agent.acted == 2


def test_a_policy_that_neither_starts_nor_stops_is_an_error_not_a_hang() -> None:
    with pytest.raises(RunError, match="neither started an agent nor stopped"):
        run(engine_for({"a": ScriptedAgent()}, By(lambda situation: Decision())))


@frozen
class Counting(Task):
    """An environment that counts turns, blocks `b` until the first, and is over after three."""

    def problems(self, split: Any) -> list[Problem]:
        return [PROBLEM]

    def start(self, problem: Problem, key: Key) -> Step:
        return Step(0, Observation("0", blocked=frozenset({"b"})))

    def step(self, state: int, turn: Turn, key: Key) -> Step:
        return Step(state + 1, Observation(str(state + 1)), done=state + 1 == 3)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: int, *, final: bool, calls: Calls
    ) -> Scores:
        return Scores(state / 3, state == 3)


def test_the_environment_ends_the_episode_and_its_observation_is_shown() -> None:
    agent = ScriptedAgent()
    episode = run(engine_for({"a": agent}, Fixed("aaaaa"), Counting()))
    assert len(episode.turns) == 3
    assert episode.success
    assert [view.observation and view.observation.text for view in agent.views] == ["0", "1", "2"]
    assert episode.observation == Observation("3")


def test_what_the_task_blocks_is_a_failed_turn_without_cost() -> None:
    costly = ScriptedAgent([Output(usage=Usage(cost=5))])
    episode = run(engine_for({"a": ScriptedAgent(), "b": costly}, Fixed("bab"), Counting()))
    assert [turn.status for turn in episode.turns] == ["failed", "completed", "completed"]
    assert episode.usage.cost == 5


def test_parallel_activations_join_in_the_order_they_were_started() -> None:
    gate = asyncio.Event()

    class Opener(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            gate.set()
            return Output("fast")

    async def main() -> Episode:
        slow = ScriptedAgent([Output("slow")], gate=gate)
        engine = engine_for(
            {"slow": slow, "fast": Opener()}, Fixed([[Activation("slow"), Activation("fast")]])
        )
        return await engine.run("e", PROBLEM, Key(1))

    assert names(asyncio.run(main())) == ["slow", "fast"]


NODES: dict[str, tuple[str, ...]] = {"a1": (), "b1": (), "a2": ("a1",), "b2": ("b1",)}


def chains(situation: Situation) -> Decision:
    """Two independent chains a1 > a2 and b1 > b2, decided with `wait: each`."""
    done = {turn.agent for turn in situation.trajectory}
    busy = {activation.agent for activation in situation.running}
    if done == set(NODES):
        return Decision(stop=True)
    start = [
        Activation(name, index=index, reads=tuple(list(NODES).index(one) for one in needs))
        for index, (name, needs) in enumerate(NODES.items())
        if name not in done | busy and set(needs) <= done
    ]
    return Decision(tuple(start), wait="each")


@given(st.permutations(range(4)))
@settings(deadline=None, max_examples=20)
def test_turn_order_with_each_does_not_depend_on_arrival(ranks: list[int]) -> None:
    async def main() -> tuple[Episode, list[str]]:
        arrived: list[str] = []

        class Ranked(Agent):
            def __init__(self, rank: int) -> None:
                self.rank = rank

            async def act(self, view: View, key: Key, calls: Calls) -> Output:
                for _ in range(self.rank * 3):
                    await asyncio.sleep(0)
                arrived.append(view.agent)
                return Output(view.agent + str([turn.agent for turn in view.turns]))

        agents = {name: Ranked(rank) for name, rank in zip(NODES, ranks, strict=True)}
        return await engine_for(agents, By(chains)).run("e", PROBLEM, Key(1)), arrived

    episode, arrived = asyncio.run(main())
    assert sorted(arrived) == ["a1", "a2", "b1", "b2"]
    assert names(episode) == ["a1", "b1", "a2", "b2"]
    assert episode.turns[3].output.content == "b2['b1']"


def test_an_independent_chain_does_not_wait_for_its_slow_sibling() -> None:
    async def main() -> Episode:
        gate = asyncio.Event()

        class Last(Agent):
            async def act(self, view: View, key: Key, calls: Calls) -> Output:
                gate.set()  # only then can the slow sibling of the first level finish
                return Output()

        agents = {
            "a1": ScriptedAgent(gate=gate),
            "a2": ScriptedAgent(),
            "b1": ScriptedAgent(),
            "b2": Last(),
        }
        return await asyncio.wait_for(engine_for(agents, By(chains)).run("e", PROBLEM, Key(1)), 20)

    assert asyncio.run(main()).status is Status.COMPLETED


def test_stopping_cancels_what_still_runs_and_leaves_no_orphan() -> None:
    def first_wins(situation: Situation) -> Decision:
        start = Decision((Activation("slow"), Activation("fast")), wait="each")
        return Decision(stop=True) if len(situation.trajectory) else start

    async def main() -> tuple[Episode, int]:
        slow = ScriptedAgent(gate=asyncio.Event())
        episode = await engine_for({"slow": slow, "fast": ScriptedAgent()}, By(first_wins)).run(
            "e", PROBLEM, Key(1)
        )
        return episode, len(asyncio.all_tasks())

    episode, tasks = asyncio.run(main())
    assert {turn.agent: turn.status for turn in episode.turns} == {
        "slow": "cancelled",
        "fast": "completed",
    }
    assert tasks == 1


def test_pure_agents_run_once_for_equal_content_and_are_charged_every_time() -> None:
    tool = ScriptedAgent([Output("same", usage=Usage(cost=2))], pure=True)

    async def main() -> list[Episode]:
        engine = engine_for({"a": tool}, Fixed("a"))
        return [await engine.run(f"e{i}", PROBLEM, Key(i)) for i in range(3)]

    episodes = asyncio.run(main())
    assert len(tool.views) == 1
    assert [episode.usage.cost for episode in episodes] == [2, 2, 2]


def test_equal_pure_calls_in_flight_at_once_run_once() -> None:
    async def main() -> int:
        tool = ScriptedAgent(pure=True, gate=asyncio.Event())
        engine = engine_for({"a": tool}, Fixed("a"))
        runs = [asyncio.create_task(engine.run(f"e{i}", PROBLEM, Key(i))) for i in range(5)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert engine.active == 5, "all of them are under way"
        assert tool.gate is not None
        tool.gate.set()
        await asyncio.gather(*runs)
        return len(tool.views)

    assert asyncio.run(main()) == 1


class Nesting(Agent):
    """Runs its two members in order."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        members = {
            "x": ScriptedAgent([Output("x", usage=Usage(cost=1))]),
            "stop": ScriptedAgent([Output("y", usage=Usage(cost=2), final=True)]),
        }
        inner = await calls.team(view, key, members, Fixed(["x", "stop", "x"]))
        return Output("both", usage=Usage(cost=10), inner=inner)


def test_a_nested_team_is_booked_once_and_its_final_ends_the_inner_team_only() -> None:
    episode = run(engine_for({"team": Nesting(), "a": ScriptedAgent()}, Fixed(["team", "a"])))
    assert names(episode) == ["team", "a"]
    outer = episode.turns[0].output
    assert outer.inner is not None
    assert [turn.agent for turn in outer.inner.turns] == ["x", "stop"]
    assert episode.usage.cost == 13


class Halves(RewardFunction):
    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        return Reward(0.5) if episode.scores else None


class Noisy(Agent):
    """Waits a while that depends on the call, and says something drawn from its key."""

    def __init__(self, wait: bool) -> None:
        self.wait, self.calls = wait, 0

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        self.calls += 1
        if self.wait:
            for _ in range(self.calls * 7 % 5):
                await asyncio.sleep(0)
        return Output(f"{key.uniform():.6f}", usage=Usage(cost=key.uniforms(1)[0]))


@pytest.mark.parametrize("concurrency", [1, 7, 64])
@pytest.mark.parametrize("wait", [False, True])
def test_episodes_are_equal_whatever_the_concurrency_and_the_latencies(
    concurrency: int, wait: bool
) -> None:
    from orchestrion import Job

    class Coin(Policy):
        def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
            return [
                Decision(stop=True) if key.uniform() < 0.2 else Decision((Activation("a"),))
                for key in keys
            ]

    async def main(agent: Agent, concurrency: int) -> list[Episode]:
        engine = engine_for({"a": agent}, Coin(), limits=Limits(turns=30))
        session = EngineSession(engine, "0/0", Key(3), Key(4), concurrency)
        jobs = [Job(p, Key(5).child(p.id)) for p in ListTask(20).problems("train")]
        return await session.rollout(jobs)

    want = asyncio.run(main(Noisy(False), 1))
    assert asyncio.run(main(Noisy(wait), concurrency)) == want


def test_branches_share_their_prefix_and_end_like_an_episode() -> None:
    async def main() -> tuple[Episode, Episode]:
        engine = engine_for({"a": ScriptedAgent(), "b": ScriptedAgent()}, Fixed(), Counting())
        session = EngineSession(engine, "s", Key(1), Key(2))
        start = await session.extend(session.begin(PROBLEM, Key(9)), [Activation("a")], Key(9))
        left = await session.extend(start, [Activation("a")], Key(10))
        right = await session.extend(start, [Activation("b"), Activation("a")], Key(11))
        assert left.trajectory.turns[0] is right.trajectory.turns[0]
        assert (await session.score(left)).value == pytest.approx(2 / 3)
        return await session.finish(left), await session.finish(right)

    left, right = asyncio.run(main())
    assert (names(left), left.success) == (["a", "a"], False)
    assert (names(right), right.success) == (["a", "b", "a"], True)


# ---------------------------------------------------------------- what plugins may get wrong


def test_records_hold_copies_that_nobody_can_change() -> None:
    own = {"list": [1], "set": {2}}
    record = Output(data=own, metadata=own)
    own["list"].append("later")  # type: ignore[attr-defined]
    both: list[Any] = [record.data, record.metadata]
    for data in both:
        changes: list[Callable[[], object]] = [
            functools.partial(data.update, x=1),
            functools.partial(data.pop, "list"),
            functools.partial(data["list"].append, 2),
            data["list"].sort,
        ]
        for change in changes:
            with pytest.raises(TypeError, match=r"copy\.deepcopy\(data\)"):
                change()
    mine: Any = copy.deepcopy(record.data)
    mine["list"].append(2)
    assert (mine["list"], record.data["list"]) == ([1, 2], [1])
    assert type(pickle.loads(pickle.dumps(record.data))["list"]) is list  # noqa: S301
    assert Problem("p", data=record.data).data is record.data  # copied only once


@given(JSON_VALUES)
def test_read_only_data_is_the_same_json(value: Any) -> None:
    shared = read_only(value)
    assert shared == value
    assert msgspec.json.encode(shared) == msgspec.json.encode(value)
    assert json.dumps(shared) == json.dumps(value)


@pytest.mark.parametrize("place", ["problem", "trajectory", "observation"])
def test_an_agent_cannot_change_what_others_read(place: str) -> None:
    class Shown(ListTask):
        def start(self, problem: Problem, key: Key) -> Step:
            return Step(observation=Observation(data={"x": []}))

    class Vandal(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            if len(view.trajectory):
                last = view.trajectory.turns[0].output
                parts = {"problem": view.problem, "trajectory": last}
                shown: Any = parts.get(place, view.observation)
                shown.data["x"].append("mine")
            return Output(data={"x": []})

    problem = Problem("p", data={"x": []})
    engine = engine_for({"a": Vandal()}, Fixed("aa"), Shown())
    episode = asyncio.run(engine.run("e", problem, Key(1)))
    assert [turn.status for turn in episode.turns] == ["completed", "failed"]
    assert "cannot be changed" in episode.turns[1].error
    shown = episode.observation
    assert (problem.data, episode.turns[0].output.data) == ({"x": []}, {"x": []})
    assert shown is not None
    assert shown.data == {"x": []}


def test_a_record_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="contains itself"):
        Output(data=endless)


def test_a_trainer_may_shuffle_the_problems_it_gets() -> None:
    task = ListTask(3)
    session = EngineSession(engine_for({}, Fixed(), task), "s", Key(1), Key(2))
    session.problems().clear()  # type: ignore[attr-defined]
    assert len(session.problems()) == 3
    with pytest.raises(UsageError, match="the test split is out of reach while training"):
        session.problems("test")


def test_a_turn_that_came_too_late_without_giving_way_has_failed() -> None:
    class Blocking(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            until = time.monotonic() + 0.02
            while time.monotonic() <= until:
                pass
            return Output("too late")

    turn = run(engine_for({"a": Blocking()}, Fixed("a"), timeout=0.01)).turns[0]
    assert (turn.status, turn.error) == ("failed", "no result within 0.01 s")


def test_a_turn_that_ended_between_two_attempts_says_why_the_first_failed() -> None:
    async def refuse() -> Answer:
        raise CallError("service: connection refused", retry_after=60.0)

    class Caller(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            return Output((await calls.run(Request("service", 1), refuse)).data)

    turn = run(engine_for({"a": Caller()}, Fixed("a"), timeout=0.05)).turns[0]
    assert turn.error == (
        "no result within 0.05 s; attempt 1 at its last call failed: service: connection refused"
    )


@pytest.mark.parametrize(
    "output",
    [
        "not an output",
        Output(5),  # type: ignore[arg-type]
        Output(final="no"),  # type: ignore[arg-type]
        Output(data=object()),
        Output(usage=None),  # type: ignore[arg-type]
        Output(usage=Usage(cost=float("nan"))),
        Output(usage=Usage(cost=-1.0)),
        Output(usage=Usage(cost=1e308)),
        Output(usage=Usage(calls=2**70)),
    ],
    ids=lambda output: "bad",
)
def test_an_output_that_cannot_be_is_a_failed_turn_not_a_failed_run(output: Any) -> None:
    turn = run(engine_for({"a": ScriptedAgent([output])}, Fixed("a"))).turns[0]
    assert (turn.status, turn.output) == ("failed", Output())


@pytest.mark.parametrize(
    "scores",
    [
        Scores(float("nan"), True),
        Scores(7.5, True),
        Scores(-1.0),
        Scores(1.0, "false"),  # type: ignore[arg-type]
        Scores(1.0, parts={"x": float("nan")}),
        None,
        RuntimeError("no judge"),
    ],
    ids=repr,
)
def test_scores_that_cannot_be_fail_the_episode_and_solve_nothing(scores: Any) -> None:
    class Odd(ListTask):
        async def verify(self, *_: object, **__: object) -> Scores:
            if isinstance(scores, Exception):
                raise scores
            return scores  # type: ignore[no-any-return]

    episode = run(engine_for({"a": ScriptedAgent()}, Fixed("a"), Odd(), Halves()))
    assert (episode.status, episode.success, episode.reward) == (Status.FAILED, False, None)
    assert "verif" in episode.error
    assert not isinstance(scores, Exception) or "no judge" in episode.error


NAN = float("nan")


@pytest.mark.parametrize(
    "reward",
    [
        Reward(float("inf")),
        Reward(1e308),
        Reward(1.0, turns=(1.0, 2.0)),
        Reward(1.0, turns=(NAN,)),
        Reward(1.0, agents={"a": NAN}),
        Reward(1.0, agents={"nobody": 1.0}),
        Reward(1.0, parts={"x": NAN}),
        "1",
        ValueError("a bug"),
    ],
    ids=repr,
)
def test_rewards_that_cannot_be_are_missing_and_change_no_success(reward: Any) -> None:
    class Odd(RewardFunction):
        async def score(self, episode: Episode, calls: Calls) -> Reward | None:
            if isinstance(reward, Exception):
                raise reward
            return reward  # type: ignore[no-any-return]

    engine = engine_for({"a": ScriptedAgent()}, Fixed("a"), reward=Odd())
    episode = run(engine)
    assert (episode.status, episode.reward) == (Status.COMPLETED, None)
    assert episode.success, "that is the verifier's to say"
    assert episode.error.startswith("reward function Odd: ")
    assert list(engine.failed_turns) == [episode.error]


@pytest.mark.parametrize(
    "answer",
    [
        [None],
        ["stop"],
        [Decision(stop="no")],  # type: ignore[arg-type]
        [Decision(wait="bogus", start=(Activation("a"),))],  # type: ignore[arg-type]
        [Decision(start=("a",))],  # type: ignore[arg-type]
        [Decision(start=(Activation("a", timeout=float("nan")),))],
        [Decision(start=(Activation("a", timeout=0.0),))],
        [Decision(start=(Activation("a", index=-1),))],
        [Decision(start=(Activation("a", index=3), Activation("a", index=3)))],
        [],
        ZeroDivisionError("no"),
        SystemExit(0),
    ],
    ids=lambda answer: repr(answer)[:40],
)
def test_a_policy_that_breaks_its_contract_ends_the_run_and_is_named(answer: Any) -> None:
    class Odd(Policy):
        def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
            if isinstance(answer, BaseException):
                raise answer
            return list(answer)

    engine = engine_for({"a": ScriptedAgent()}, Odd())
    with pytest.raises(RunError, match=r"Odd|index|decisions"):
        run(engine)
    together = EngineSession(engine, "s", Key(1), Key(2)).evaluate()  # decided in one batch
    with pytest.raises(RunError, match=r"Odd|index|decisions"):
        asyncio.run(together)


def test_an_episode_that_vanishes_is_an_error_not_one_less() -> None:
    from orchestrion import Job

    class Suicidal(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return Output("and now nothing awaits any more")

    async def main() -> list[Episode]:
        engine = engine_for({"a": ScriptedAgent(), "b": Suicidal()}, Fixed("ab"))
        session = EngineSession(engine, "0/0", Key(1), Key(2))
        return await session.rollout([Job(p, Key(1)) for p in ListTask().problems("train")])

    with pytest.raises(RunError, match="0/0/0 was cancelled from within, in or after a turn of b"):
        asyncio.run(main())
