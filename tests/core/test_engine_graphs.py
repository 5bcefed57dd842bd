"""What the engine does for policies that run graphs: indices, arrival, errors, nested reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest
from attrs import frozen

from orchestrion import (
    Activation,
    Agent,
    Calls,
    Decision,
    Episode,
    Key,
    Output,
    Policy,
    Problem,
    ReplayError,
    RunError,
    Situation,
    Status,
    Trajectory,
    Turn,
    View,
)
from orchestrion._engine.calls import CallPath, Recorded
from orchestrion._engine.replaying import ReplayPath
from orchestrion.testing import Fixed, ScriptedAgent, engine_for
from tests.core.test_calls import Memory
from tests.core.test_engine import By

PROBLEM = Problem("p", "a problem")
Decide = Callable[[Situation], Decision]


class After(Agent):
    """Finishes after some turns of the event loop; says a number from its key."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        for _ in range(self.steps):
            await asyncio.sleep(0)
        return Output(f"{view.agent} {key.uniform():.6f}")


def played(
    agents: Mapping[str, Agent], policy: Policy | Decide, calls: CallPath | None = None
) -> Episode:
    """Return an episode under a policy, or a function of one situation."""
    errors: list[object] = []

    async def main() -> Episode:
        # Errors of callbacks, which asyncio only logs otherwise.
        asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
        chosen = By(policy) if callable(policy) else policy
        engine = engine_for(agents, chosen, calls=calls)
        try:
            return await engine.run("e", PROBLEM, Key(1))
        finally:
            if calls is not None:
                await calls.settle()  # a run does so before it commits

    episode = asyncio.run(main())
    assert errors == []
    return episode


# ------------------------------------------------------------------------------ indices


def test_a_draw_goes_by_the_index_that_the_policy_gave_and_not_by_arrival() -> None:
    def rule(situation: Situation) -> Decision:
        done = {turn.index for turn in situation.trajectory}
        busy = {one.index for one in situation.running}
        if done == {0, 1, 2, 3}:
            return Decision(stop=True)
        plan = {0: "x", 1: "y", 2: "d", 3: "d"}
        start = [
            Activation(agent, index=index)
            for index, agent in plan.items()
            if index not in done | busy and (index < 2 or index - 2 in done)
        ]
        return Decision(tuple(start), wait="each")

    draws = []
    for x, y in ((1, 9), (9, 1)):
        episode = played({"x": After(x), "y": After(y), "d": After(1)}, rule)
        draws.append([turn.output.content for turn in episode.turns if turn.agent == "d"])
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == 2


def indices_of(*given: int | None) -> list[int]:
    """The indices of turns of activations that gave these."""
    steps = Fixed([[Activation("a", index=i)] for i in given])
    return [turn.index for turn in played({"a": ScriptedAgent()}, steps).turns]


def test_an_activation_without_an_index_takes_the_next_that_is_free() -> None:
    assert indices_of(1, None, None) == [1, 2, 3]
    assert indices_of(0, 3, None, None) == [0, 2, 3, 4]
    assert indices_of(2, None, 0) == [0, 1, 2]


def test_an_index_that_another_turn_has_is_refused() -> None:
    with pytest.raises(RunError, match="no other turn of the episode has"):
        indices_of(None, 0)


def test_a_trajectory_knows_the_one_before_its_last_turn() -> None:
    empty = Trajectory()
    one = empty.append(Turn(0, "a"))
    assert empty.before is None
    assert one.before is empty


def test_what_an_activation_reads_is_found_wherever_it_stands() -> None:
    turns = [Turn(i, f"a{i}", status="failed" if i == 2 else "completed") for i in (0, 3, 1, 2, 4)]
    trajectory = Trajectory()
    for turn in turns:
        trajectory = trajectory.append(turn)
    view = View("b", None, PROBLEM, trajectory, reads=(3, 0, 2, 99))
    assert [turn.index for turn in view.turns] == [0, 3]
    assert View("b", None, PROBLEM, trajectory, reads=()).turns == ()


# ------------------------------------------------------------------------------ reuse


def test_an_activation_may_reuse_the_result_of_an_equal_one() -> None:
    agent = ScriptedAgent([Output("first"), Output("second")])
    steps = (
        (Activation("a", reuse=True),),
        (Activation("a", reads=(), reuse=True),),
        (Activation("a", reads=(0,), reuse=True),),
        (Activation("a", reads=()),),
    )

    said = [turn.output.content for turn in played({"a": agent}, Fixed(steps)).turns]
    assert said == ["first", "first", "second", "second"]


# ------------------------------------------------------------------------------ errors


def test_a_policy_that_cannot_go_on_makes_the_episode_fail_with_its_reason() -> None:
    episode = played(
        {"a": ScriptedAgent()},
        lambda situation: (
            Decision(stop=True, error="nothing is left to try")
            if len(situation.trajectory)
            else Decision((Activation("a"),))
        ),
    )
    assert episode.status is Status.FAILED
    assert episode.error == "nothing is left to try"
    assert episode.scores is not None, "it is verified all the same"
    assert not episode.success


@pytest.mark.parametrize("training", [False, True])
def test_that_a_policy_could_not_go_on_is_counted_where_it_is_used(training: bool) -> None:
    engine = engine_for({"a": ScriptedAgent()}, By(gives_up))
    asyncio.run(engine.run("e", PROBLEM, Key(1), training=training))
    assert list(engine.failed_turns) == ([] if training else ["policy By: no way"])


def gives_up(situation: Situation) -> Decision:
    """Fails."""
    return Decision(stop=True, error="no way")


@frozen
class Nesting(Agent):
    """Runs a nested team of one."""

    member: Agent
    rule: Decide

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        inner = await calls.team(view, key, {"m": self.member}, By(self.rule))
        return Output("nested", inner=inner)


def once(situation: Situation) -> Decision:
    return Decision(stop=True) if len(situation.trajectory) else Decision((Activation("m"),))


def test_members_of_a_nested_team_may_read_what_their_team_may_read() -> None:
    member = ScriptedAgent()
    agents = {"a": ScriptedAgent([Output("said")]), "n": Nesting(member, once)}
    played(agents, Fixed(("a", "a", (Activation("n", reads=(1,)),))))
    [view] = member.views
    assert [turn.index for turn in view.turns] == [1]
    assert view.turns == view.given
    assert len(view.trajectory) == 0


def test_a_nested_team_shares_the_time_limit_of_the_turn_it_is_run_in() -> None:
    forever = ScriptedAgent(gate=asyncio.Event())
    agents = {"n": Nesting(Nesting(forever, once), once)}

    async def main() -> tuple[Episode, dict[str, int]]:
        engine = engine_for(agents, Fixed(("n",)), timeout=0.05)
        return await engine.run("e", PROBLEM, Key(1)), engine.failed_turns

    episode, failures = asyncio.run(main())
    assert [turn.error for turn in episode.turns] == ["no result within 0.05 s"]
    assert failures == {"n: no result within 0.05 s": 1}, "what is inside is cut off with it"


def test_an_agent_sees_who_is_in_its_team() -> None:
    outer, inner = ScriptedAgent(), ScriptedAgent()
    played({"a": outer, "n": Nesting(inner, once)}, Fixed(("a", "n")))
    assert [member.name for member in outer.views[0].team] == ["a", "n"]
    assert [member.name for member in inner.views[0].team] == ["m"], "of a nested team: its own"


def test_pure_members_of_one_name_in_two_teams_are_told_apart() -> None:
    mild, strict = (ScriptedAgent([Output(word)], pure=True) for word in ("mild", "strict"))
    agents = {"a": Nesting(mild, once), "b": Nesting(strict, once)}

    async def main() -> Episode:
        engine = engine_for(agents, Fixed([(Activation(name, reads=()),) for name in "aba"]))
        engine.identities = {id(mild): "judge bar=1", id(strict): "judge bar=9"}
        return await engine.run("e", PROBLEM, Key(1))

    inner = [turn.output.inner for turn in asyncio.run(main()).turns]
    said = [team.turns[0].output.content for team in inner if team is not None]
    assert said == ["mild", "strict", "mild"]
    assert (len(mild.views), len(strict.views)) == (1, 1)


def test_a_nested_policy_that_cannot_go_on_fails_the_outer_turn() -> None:
    episode = played(
        {"n": Nesting(ScriptedAgent(), gives_up)},
        lambda situation: (
            Decision(stop=True) if len(situation.trajectory) else Decision((Activation("n"),))
        ),
    )
    assert episode.turns[0].status == "failed"
    assert episode.turns[0].error == "RunError: no way"


# ------------------------------------------------------------------------------ arrival


def race(situation: Situation) -> Decision:
    """Three run; after the first, "d"; then stop, whoever else has finished."""
    arrived = [turn.agent for turn in situation.trajectory]
    if not arrived and not situation.running:
        start = tuple(Activation(name, index=i) for i, name in enumerate("abc"))
        return Decision(start, wait="each", arrival=True)
    if "d" in arrived:
        return Decision(stop=True, arrival=True)
    if len(arrived) == 1:
        first = situation.trajectory.turns[0].index
        return Decision((Activation("d", reads=(first,), index=3),), wait="each", arrival=True)
    return Decision(wait="each", arrival=True)


def racers(*steps: int) -> dict[str, Agent]:
    return {name: After(n) for name, n in zip("abcd", steps, strict=True)}


@pytest.mark.parametrize("replay", [True, False], ids=["replayed", "resumed"])
def test_where_arrival_matters_its_order_is_on_record_and_repeated(replay: bool) -> None:
    journal = Memory()
    late = {"c": ScriptedAgent(gate=asyncio.Event())}
    first = played(racers(9, 1, 0, 15) | late, race, CallPath(journal=journal))
    calls = ReplayPath(journal) if replay else CallPath(journal=journal)
    again = played(racers(1, 40, 5, 1), race, calls)
    assert first.turns[-1].reads == (1,), "b was first"
    assert first.turns == again.turns
    assert [turn.status for turn in again.turns] == [
        "completed",
        "completed",
        "cancelled",
        "completed",
    ]


def test_a_replay_without_the_record_is_refused() -> None:
    with pytest.raises(ReplayError, match="no recorded completion order"):
        played(racers(1, 2, 3, 4), race, ReplayPath(Memory()))


def test_a_record_that_does_not_fit_is_refused() -> None:
    journal = Memory()
    played(racers(9, 1, 30, 15), race, CallPath(journal=journal))
    for name, row in journal.rows.items():
        journal.rows[name] = Recorded(name, row.request, [7], row.usage)
    with pytest.raises(ReplayError, match=r"in the recorded run the turns \[7\] ended first"):
        played(racers(1, 2, 3, 4), race, CallPath(journal=journal))


def calm(situation: Situation) -> Decision:
    """Three run side by side, and nothing hangs on which is first."""
    if len(situation.trajectory) == 3:
        return Decision(stop=True)
    if situation.running or len(situation.trajectory):
        return Decision(wait="each")
    start = tuple(Activation(name, index=i) for i, name in enumerate("abc"))
    return Decision(start, wait="each")


def test_nothing_is_recorded_where_all_end_together_or_only_one_runs() -> None:
    journal = Memory()
    played(racers(0, 0, 0, 0), calm, CallPath(journal=journal))
    assert journal.rows == {}


def test_a_replay_decides_as_often_as_the_run_even_where_nothing_hangs_on_arrival() -> None:
    journal = Memory()
    first = played(racers(9, 1, 30, 1), calm, CallPath(journal=journal))
    again = played(racers(1, 40, 5, 1), calm, ReplayPath(journal))
    assert len(first.decisions) > 2
    assert first == again


def test_the_order_of_a_run_that_went_on_replaces_that_of_one_that_was_cut() -> None:
    journal = Memory()
    played(racers(9, 1, 30, 1), calm, CallPath(journal=journal))
    resumed = played(racers(0, 0, 0, 0), calm, CallPath(journal=journal))
    again = played(racers(1, 40, 5, 1), calm, ReplayPath(journal))
    assert resumed == again


def test_an_activation_sees_the_turns_of_its_decision_and_none_that_end_later() -> None:
    views = dict[str, View]()

    class Shown(After):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            views[view.agent] = view
            return await super().act(view, key, calls)

    class Slow(Policy):
        """Starts "a" and "b", and "d" after "a"; meanwhile "b" ends."""

        prepares = True

        async def prepare(self, situation: Situation, calls: Calls) -> None:
            for _ in range(9):
                await asyncio.sleep(0)

        def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
            [situation] = situations
            start = {0: ("a", "b"), 1: ("d",)}.get(len(situation.trajectory), ())
            activations = tuple(map(Activation, start))
            return [Decision(activations, stop=not start, wait="each")]

    async def main() -> None:
        engine = engine_for({"a": Shown(0), "b": Shown(3), "d": Shown(0)}, Slow())
        await engine.run("e", PROBLEM, Key(1))

    asyncio.run(main())
    assert [turn.agent for turn in views["d"].trajectory] == ["a"]


def test_whom_a_failure_cut_off_is_repeated_by_a_replay() -> None:
    journal = Memory()

    def until_a(situation: Situation) -> Decision:
        if any(turn.agent == "a" for turn in situation.trajectory):
            return Decision(stop=True, error="enough")
        return calm(situation)

    first = played(racers(9, 1, 30, 1), until_a, CallPath(journal=journal))
    again = played(racers(9, 40, 1, 1), until_a, ReplayPath(journal))
    assert [turn.status for turn in first.turns] == ["completed", "completed", "cancelled"]
    assert first == again
