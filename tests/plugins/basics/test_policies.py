"""Plain policies and baselines: what they start, and what their trainers find."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from typing import Any

import pytest
from attrs import frozen
from orchestrion_basics.by_category import BestByCategory
from orchestrion_basics.follow import Follow
from orchestrion_basics.halving import Halving
from orchestrion_basics.nearest import NearestTrainer
from orchestrion_basics.order import LearnedOrder, Order, OrderTable
from orchestrion_basics.policies import Hinted, Random, RoundRobin, Sequence
from orchestrion_basics.rewards import ExactOutcome
from orchestrion_basics.search import BestSequence
from orchestrion_basics.team import NestedTeam

from orchestrion import (
    Activation,
    Agent,
    Calls,
    Episode,
    Key,
    Member,
    Observation,
    OpenContext,
    Output,
    Plan,
    Problem,
    Scores,
    Situation,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    View,
    choice_name,
)
from orchestrion._engine.opening import open_components
from orchestrion.config import from_data
from orchestrion.testing import ScriptedAgent, engine_for
from tests.plugins.basics.support import opened as opened_for
from tests.plugins.basics.support import refuses, trained

ROSTER = (Member("a"), Member("b", ("x", "y")), Member("c"))


def opened(policy: Any, roster: tuple[Member, ...] = ROSTER) -> Any:
    return opened_for(policy, roster)


def situation(*agents: str, blocked: frozenset[str] = frozenset()) -> Situation:
    pairs = [(*name.split(":"), None) for name in agents]
    turns = [Turn(i, str(pair[0]), pair[1]) for i, pair in enumerate(pairs)]
    return Situation(Problem("p"), Trajectory(turns), Observation(blocked=blocked))


def chosen(policy: Any, *agents: str, blocked: frozenset[str] = frozenset(), seed: int = 0) -> str:
    decision = policy.decide([situation(*agents, blocked=blocked)], [Key(seed)])[0]
    return "stop" if decision.stop else choice_name(decision.start[0])


def test_random_draws_every_choice_and_never_a_blocked_one() -> None:
    policy = opened(Random(stop=False))
    assert {chosen(policy, seed=i) for i in range(60)} == {"a", "b:x", "b:y", "c"}
    blocked = frozenset({"a", "b:x"})
    assert {chosen(policy, blocked=blocked, seed=i) for i in range(40)} == {"b:y", "c"}
    assert chosen(policy, blocked=frozenset({"a", "b", "c"})) == "stop"


def test_random_stops_as_often_as_anything_else_where_it_may() -> None:
    policy = opened(Random(stop=True))
    drawn = [chosen(policy, seed=i) for i in range(200)]
    assert set(drawn) == {"a", "b:x", "b:y", "c", "stop"}
    assert 20 < drawn.count("stop") < 60


def test_random_may_stop_by_default_where_no_agent_of_the_team_ends_the_episode() -> None:
    without, ending = opened(Random()), opened(Random(), (*ROSTER, Member("end", ends=True)))
    assert "stop" in {chosen(without, seed=i) for i in range(60)}
    assert {chosen(ending, seed=i) for i in range(60)} == {"a", "b:x", "b:y", "c", "end"}


def test_hinted_takes_what_the_hints_say_most_for_among_what_is_allowed() -> None:
    policy = opened(Hinted())

    def taken(hints: dict[str, tuple[float, ...]], *blocked: str) -> str:
        seen = Observation(hints=hints, blocked=frozenset(blocked))
        decision = policy.decide([Situation(Problem("p"), Trajectory(), seen)], [Key(1)])[0]
        return "stop" if decision.stop else choice_name(decision.start[0])

    hints = {"a": (0.5, 1.0), "b:y": (0.7, 0.0), "c": (0.5, 0.0), "gone": (1.0, 0.0)}
    assert taken(hints) == "b:y"  # type: ignore[arg-type]
    assert taken(hints, "b:y") == taken(hints, "b") == "a", "the first of equals"  # type: ignore[arg-type]
    assert taken(hints, "a", "b", "c") == taken({}) == "stop"  # type: ignore[arg-type]
    assert chosen(policy) == "stop"


def test_round_robin_goes_by_roster_order_and_through_options_lap_by_lap() -> None:
    policy = opened(RoundRobin())
    said: list[str] = []
    for _ in range(6):
        said.append(chosen(policy, *said))
    assert said == ["a", "b:x", "c", "a", "b:y", "c"]
    assert chosen(policy, blocked=frozenset({"a"})) == "b:x"


def test_a_sequence_runs_its_steps_passes_over_blocked_ones_and_stops() -> None:
    policy = opened(Sequence(["a", "b:y", "a"]))
    said: list[str] = []
    while (step := chosen(policy, *said)) != "stop":
        said.append(step)
    assert said == ["a", "b:y", "a"]
    assert chosen(policy, blocked=frozenset({"a"})) == "b:y"
    assert chosen(policy, "b:y", blocked=frozenset({"c"})) == "a"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Sequence(["b"]), r"'b' is not a choice of this team; its choices: a, b:x"),
        (Order("z"), r"policy\.finish: 'z' is not a choice of this team"),
        (Follow("z"), r"policy\.router: no agent 'z' in the team"),
        (Follow("a", "z"), r"policy\.fallback: 'z' is not a choice of this team"),
        (Follow("a", after={"cc": "b:x"}), "'cc' is no agent"),
        (Follow("a", after={"a": "b:x"}), "beside the router"),
        (Follow("a", after={"c": "b:q"}), r"after\.c: 'b:q' is not a choice"),
        (Follow("a", after={"c": "b:x", "b": "c"}), "after: c -> b -> c is a cycle"),
        (Follow("a", after={"c": "c"}), "after: c -> c is a cycle"),
    ],
)
def test_policies_refuse_unknown_names_and_cycles(policy: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        opened(policy)


def test_where_nothing_but_the_end_can_be_called_there_is_no_order() -> None:
    with pytest.raises(UsageError, match="there is no agent to order"):
        opened(Order("a"), ROSTER[:1])


def test_a_sequence_loads_what_it_saved_and_says_how_long_it_is() -> None:
    policy, other = opened(Sequence(["a", "b:x"])), opened(Sequence())
    other.load(policy.save())
    assert other.steps == policy.steps
    lengths = [opened(Sequence(steps, True)).longest for steps in (["a"], [])]
    assert [other.longest, *lengths] == [2, None, 0]


@pytest.mark.parametrize(
    ("data", "then"),
    [
        ({"next": "c"}, "c"),
        ({"next": "b", "option": "y"}, "b:y"),
        ({"next": "stop"}, "stop"),
        ({"next": "nobody"}, "b:x"),
        ("c", "b:x"),
        (None, "b:x"),
    ],
)
def test_follow_goes_where_the_router_says_or_to_its_fallback(data: Any, then: str) -> None:
    policy = opened(Follow("a", fallback="b:x"))
    said = Trajectory([Turn(0, "a", output=Output("anything", data))])
    decision = policy.decide([Situation(Problem("p"), said)], [Key(0)])[0]
    assert ("stop" if decision.stop else choice_name(decision.start[0])) == then


def test_a_router_may_give_the_name_as_its_text_and_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = opened(Follow("a", fallback="c"))

    def after(output: Output) -> str:
        shown = Situation(Problem("p"), Trajectory([Turn(0, "a", output=output)]))
        decision = policy.decide([shown], [Key(0)])[0]
        return "stop" if decision.stop else choice_name(decision.start[0])

    assert [after(Output(text)) for text in ("b:y", "stop", "bee", "bee")] == [
        "b:y",
        "stop",
        "c",
        "c",
    ]
    assert after(Output(data={"next": 3})) == "c"
    bee, nobody = [record.getMessage() for record in caplog.records]
    assert bee.startswith("policy: the router 'a' named 'bee', which is not a choice of this team")
    assert "named nobody" in nobody


def test_follow_starts_with_the_router_and_returns_to_it() -> None:
    policy = opened(Follow("a"))
    assert chosen(policy) == "a"
    assert chosen(policy, "a", "c") == "a"


def test_a_step_that_was_passed_over_is_not_made_up_for() -> None:
    policy = opened(Sequence(["a", "c", "b:x"]))
    assert chosen(policy, blocked=frozenset({"a"})) == "c"
    assert chosen(policy, "c") == "b:x", "nothing is blocked any more"
    again = opened(Sequence(["a", "c"], repeat=True))
    assert chosen(again, "c", blocked=frozenset({"c"})) == "a"
    assert chosen(again, "b", blocked=frozenset({"a"})) == "c", "a turn of another agent"


def test_follow_starts_who_always_acts_after_an_agent_unless_the_task_refuses() -> None:
    policy = opened(Follow("a", after={"c": "b:x"}))
    assert chosen(policy, "a", "c") == "b:x"
    assert chosen(policy, "a", "c", "b") == "a"
    turns = Trajectory([Turn(0, "c", output=Output("query"))])
    blocked = Situation(Problem("p"), turns, Observation(blocked=frozenset({"b"})))
    assert choice_name(policy.decide([blocked], [Key(0)])[0].start[0]) == "a"
    assert chosen(opened(Follow("a", after={"c": "stop"})), "a", "c") == "stop"


class Breaks(Agent):
    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        raise ValueError("no paper")


def nested(inner: Agent, steps: list[str], outer: list[str]) -> Episode:
    """An episode of the agent "one" and a team of "one" and "bad", who always fails."""
    members = (Member("one"), Member("bad"))
    settings = NestedTeam([inner, Breaks()], opened(Sequence(steps), members))
    policy = opened(Sequence(outer), (Member("team"), Member("one")))

    async def main() -> Episode:
        names = {"members": ("one", "bad")}
        async with settings.open(OpenContext("agents.team", Key(1), names=names)) as team:
            engine = engine_for({"team": team, "one": inner}, policy)
            return await engine.run("e", Problem("p"), Key(1))

    return asyncio.run(main())


def test_a_nested_team_is_an_agent_like_any_other() -> None:
    inner = ScriptedAgent([Output("inner", usage=Usage(cost=2.0))])
    episode = nested(inner, ["one", "one"], ["team"])
    assert episode.turns[0].output.content == "inner"
    assert episode.usage.cost == 4.0


@pytest.mark.parametrize(
    ("inner", "outer", "told"),
    [
        # Its policy ends at once: what the team read last stands.
        ([], ["one", "team"], "first"),
        ([], ["team"], "ended before anybody acted"),
        (["one", "bad"], ["team"], "first"),
        (
            ["bad"],
            ["one", "team"],
            "every turn of the nested team failed; .* bad: .*paper",
        ),
    ],
    ids=["nothing to add", "nothing at all", "one failed", "all failed"],
)
def test_a_nested_team_in_which_nobody_acts(inner: list[str], outer: list[str], told: str) -> None:
    turn = nested(ScriptedAgent([Output("first")]), inner, outer).turns[-1]
    assert turn.agent == "team"
    assert (turn.status == "completed") == (told == "first")
    assert re.search(told, turn.output.content or turn.error)


def test_a_baseline_may_have_a_team_of_its_own() -> None:
    def sequence(name: str) -> dict[str, Any]:
        return {"use": "sequence", "agents": [name], "steps": [name]}

    config = from_data(
        {
            "task": {"use": "relay"},
            "agents": {name: {"use": "bench-agent"} for name in ("planner", "tester")},
            "policy": sequence("planner"),
            "evaluation": {"baselines": {"other": {"policy": sequence("tester")}}},
        }
    )

    async def main() -> Any:
        async with AsyncExitStack() as stack:
            components = await open_components(config, stack, Key(1))
            return components.runtimes["evaluation.baselines.other.policy"]

    assert chosen(asyncio.run(main())) == "tester"


# ---------------------------------------------------------------- searching and learning


@frozen
class Lock(Task):
    """Opens after the agents a, b, a in this order; progress is how far one has come."""

    def problems(self, split: Split) -> list[Problem]:
        return [Problem(f"{split}-{i}") for i in range(4)]

    def start(self, problem: Problem, key: Key) -> Step:
        return Step(0, Observation(progress=0.0))

    def step(self, state: int, turn: Turn, key: Key) -> Step:
        state = state + 1 if state < 3 and turn.agent == "aba"[state] else state
        return Step(state, Observation(progress=state / 3))

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: int, *, final: bool, calls: Calls
    ) -> Scores:
        return Scores(state / 3, state == 3)


def lock(policy: Any, trainer: Any) -> Any:
    """The policy after training on the lock."""
    return trained(policy, trainer, Lock(), turns=12)[0]


def test_the_best_sequence_is_found_and_no_longer_than_it_pays() -> None:
    runtime = lock(Sequence(), BestSequence(length=6, beam=3, problems=2))
    assert [choice_name(step) for step in runtime.steps] == ["a", "b", "a"]
    # Where only success pays, partial scores say which one of those that do not is kept.
    narrow = BestSequence(length=3, beam=1, problems=2)
    blind, _ = trained(Sequence(), narrow, Lock(), reward=ExactOutcome())
    assert blind.steps == runtime.steps


def test_a_sequence_that_is_cut_off_before_it_can_stop_solves_nothing() -> None:
    # The third call would open the lock, but is the last that is allowed.
    runtime, _ = trained(Sequence(), BestSequence(length=6, beam=3, problems=2), Lock(), turns=3)
    assert [choice_name(step) for step in runtime.steps] == ["a", "b"]


@pytest.mark.parametrize("trainer", [BestSequence(), BestByCategory(), Halving()])
def test_no_sequence_is_longer_than_an_episode_may_be(trainer: Any) -> None:
    async def planned() -> Plan:
        async with trainer.open(OpenContext("trainer", Key(1), ROSTER, turns=2)) as runtime:
            plan: Plan = runtime.plan(0, {"train": 2})
            return plan

    assert asyncio.run(planned()).longest == 2


@pytest.mark.parametrize(
    ("trainer", "plan"),
    [
        # 4 sequences, of which three are kept, then 3 x 4, on each of two problems.
        (BestSequence(length=2, beam=3), Plan(turns=32, verdicts=34, longest=2)),
        (BestSequence(length=2, beam=3, problems=1), Plan(turns=16, verdicts=17, longest=2)),
        (BestByCategory(length=2, beam=3, problems=1), Plan(turns=32, verdicts=34, longest=2)),
        (Halving(episodes=20, length=3), Plan(turns=60, verdicts=20, longest=3)),
        (LearnedOrder(episodes=3), Plan(episodes=9)),
        (LearnedOrder(episodes=10), Plan(episodes=20)),
        (NearestTrainer(episodes=7), Plan(episodes=7)),
    ],
)
def test_a_trainer_says_how_much_it_runs_at_most(trainer: Any, plan: Plan) -> None:
    runtime = opened(trainer) if hasattr(trainer, "open") else trainer
    assert runtime.plan(0, {"train": 2}) == plan


def test_a_single_agent_is_all_that_distinct_one_allows() -> None:
    runtime = lock(Sequence(), BestSequence(length=4, distinct=1, problems=2))
    assert {step.agent for step in runtime.steps} == {"a"}


def test_the_learned_order_prefers_what_helped_and_stops_when_done() -> None:
    runtime = lock(Order(), LearnedOrder(episodes=200))
    assert chosen(runtime) == "a"
    done = Situation(Problem("p"), Trajectory(), Observation(progress=1.0))
    assert runtime.decide([done], [Key(0)])[0].stop
    assert 3 <= runtime.patience <= 12, "as long as an episode at most"
    ending = opened(Order("c"))
    assert [chosen(ending), chosen(ending, "a")] == ["a", "c"], "one turn, and then the end"
    few = LearnedOrder(episodes=2)
    assert trained(Order(), few, Lock(), turns=12)[1] <= few.plan(0, {}).episodes


def test_baselines_learn_the_same_from_the_same_seed() -> None:
    first = lock(Order(), LearnedOrder(episodes=50)).save()
    assert lock(Order(), LearnedOrder(episodes=50)).save() == first


@pytest.mark.parametrize(
    ("trainer", "policy"),
    [
        (BestSequence(), "sequence"),
        (LearnedOrder(), "order"),
        (BestByCategory(), "by-category"),
        (NearestTrainer(), "nearest"),
        (Halving(), "sequence"),
    ],
)
def test_a_trainer_says_which_policy_it_is_for(trainer: Any, policy: str) -> None:
    refuses(trainer, Random(), policy)


def test_a_loaded_table_is_the_one_that_was_saved() -> None:
    tools = [Activation("a")]
    taught = OrderTable(tools, None, {"a": [0.5]}, {"a": [2.0]}, patience=3)
    fresh = OrderTable(tools, None)
    fresh.load(taught.save())
    assert fresh == taught
