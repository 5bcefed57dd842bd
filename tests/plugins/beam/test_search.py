"""The search itself: who is expanded, scored, kept, dropped, and that arrival means nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import define, evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_beam.choosers import Everybody, PolicyChooser, Rotation
from orchestrion_beam.interfaces import Valued, ValueEstimator
from orchestrion_beam.learner import Learner
from orchestrion_beam.search import Found
from orchestrion_beam.trainer import GrpoBeam
from orchestrion_beam.values import Noise, TaskValue

from orchestrion import (
    Activation,
    Agent,
    Branch,
    CallError,
    Calls,
    Decision,
    Key,
    Output,
    Policy,
    Problem,
    RunError,
    Session,
    Situation,
    Usage,
    UsageError,
    View,
)
from orchestrion._session import EngineSession
from orchestrion.testing import Fixed, ScriptedAgent
from tests.plugins.beam.support import Climber, Delays, Ladder, opened, session_for

SMALL = GrpoBeam(beam_width=3, samples=3, turns=6, problems=1)


async def searched(given: GrpoBeam, session: EngineSession, n: int = 0) -> Found:
    """One search, on the n-th training problem."""
    learner = await opened(given)
    assert isinstance(learner, Learner)
    problem = session.problems("train")[n]
    return await learner.search(session, problem, Key(5).child(n), training=True).run()


def search(given: GrpoBeam, session: EngineSession, n: int = 0) -> Found:
    """The same, from outside of a loop."""
    return asyncio.run(searched(given, session, n))


def what(found: Found) -> list[Any]:
    """All that a search found out."""
    return [
        [(node.path, node.value, node.fate, node.digest) for node in found.nodes],
        [node.path for node in found.finalists],
        found.counts,
    ]


# --------------------------------------------------------------------------- speed and width


def test_all_samples_of_a_turn_are_in_flight_at_once_and_all_are_scored() -> None:
    class Unlike(Climber):
        """Every digit with a word of its own."""

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            output = await super().act(view, key, calls)
            return evolve(output, data=key.hex())

    agent = Unlike(0.6, delay=lambda: 0.001)
    given = GrpoBeam(beam_width=10, samples=5, turns=15)
    found = search(given, session_for({"a": agent}, Ladder(15)))
    counts = found.counts
    # 5 + 5 x 5 + 13 x 5 x 10
    assert counts.samples == counts.calls == given.samples_per_search == agent.acts == 680
    assert agent.most == counts.widest == 50
    assert counts.scored == 680
    assert counts.duplicates == 0
    assert len(found.finalists) == 10


@given(st.integers(0, 1000), st.integers(1, 1000), st.sampled_from([0, 1]))
@settings(max_examples=15)
def test_which_sample_arrives_first_changes_nothing(seed: int, other: int, ahead: int) -> None:
    found = [
        what(
            search(
                evolve(SMALL, lookahead=ahead),
                session_for({"a": Climber(0.5, Delays(n), fails=0.2)}, Ladder(6)),
                seed % 8,
            )
        )
        for n in (seed, seed + other)
    ]
    assert found[0] == found[1]


# ------------------------------------------------------------------------ what is kept


def test_the_beam_climbs_where_one_attempt_falls() -> None:
    found = search(SMALL, session_for({"a": Climber(0.5)}, Ladder(6)))
    assert found.finalists[0].value == 1.0


def test_kept_trajectories_go_back_to_different_first_turns() -> None:
    session = session_for({"a": Climber(0.3)}, Ladder(6))
    given = evolve(SMALL, samples=6)
    many = search(evolve(given, min_roots=3), session)
    assert len({node.root for node in many.finalists}) == 3
    assert all(count >= 2 for count in many.counts.parents[1:])
    # Without the rule the family that leads takes over.
    few = search(evolve(given, min_roots=1, min_parents=1), session)
    assert len({node.root for node in few.finalists}) < 3


def test_equal_trajectories_are_kept_once_and_valued_once() -> None:
    asked: list[str] = []

    @frozen
    class Asked(TaskValue):
        """Notes what it is asked about."""

        async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
            asked.append(" ".join(turn.output.content for turn in branch.trajectory.turns))
            return await super().estimate(branch, session, key)

    always = Climber(1.0)
    found = search(evolve(SMALL, value=Asked()), session_for({"a": always}, Ladder(6)))
    assert found.counts.duplicates == 2 * 6
    assert len(found.finalists) == 1
    assert len(asked) == len(set(asked)) == found.counts.asked == 6
    assert found.counts.scored == found.counts.samples == 18


def test_equal_values_are_told_apart_by_key_and_not_by_place() -> None:
    @frozen
    class Same(ValueEstimator):
        """Likes everything alike."""

        async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
            return Valued(0.5)

    session = session_for({"a": Climber(0.1)}, Ladder(2))
    given = evolve(SMALL, value=Same(), turns=1, samples=8, beam_width=1, min_roots=1)
    kept = {search(given, session, n).finalists[0].path for n in range(8)}
    assert len(kept) > 2


def test_failed_turns_are_dropped_and_counted() -> None:
    found = search(SMALL, session_for({"a": Climber(0.5, fails=0.4)}, Ladder(6)))
    assert found.counts.failed > 5
    assert found.counts.scored == found.counts.samples - found.counts.failed
    assert all(turn.status == "completed" for n in found.finalists for turn in n.branch.trajectory)


def test_a_level_that_fails_as_a_whole_leaves_what_there_was() -> None:
    class Tired(Climber):
        """Falls over after two rungs."""

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            if len(view.turns) >= 2:
                raise RuntimeError("too tired")
            return await super().act(view, key, calls)

    found = search(SMALL, session_for({"a": Tired()}, Ladder(6)))
    assert {len(node.branch.trajectory) for node in found.finalists} == {2}
    nothing = search(SMALL, session_for({"a": Climber(fails=1.0)}, Ladder(6)))
    assert nothing.finalists == ()


def test_a_run_in_which_no_turn_succeeds_says_why() -> None:
    async def main() -> None:
        trainer = await opened(SMALL)
        with pytest.raises(RunError, match=r"no turn of any search.*a: RuntimeError: slipped"):
            await trainer.iterate(0, session_for({"a": Climber(fails=1.0)}, Ladder(6)))

    asyncio.run(main())


# ------------------------------------------------------------------------------- values


def test_an_estimate_that_fails_ranks_last_and_is_counted() -> None:
    @frozen
    class Moody(TaskValue):
        """Its calls fail on what is best."""

        async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
            valued = await super().estimate(branch, session, key)
            if valued.value == 1 / 6:
                raise CallError("busy")
            return evolve(valued, usage=Usage(calls=2))

    given = evolve(SMALL, value=Moody(), turns=1, samples=8, beam_width=8)
    found = search(given, session_for({"a": Climber(0.5)}, Ladder(6)))
    assert found.counts.unreadable > 0
    values = [node.value for node in found.finalists]
    assert None in values
    assert values == sorted(values, key=lambda one: one is None)
    # Two calls for each content that was valued, besides the turns.
    valued = sum(value is not None for value in values)
    assert found.counts.calls == found.counts.turn_calls + 2 * valued


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1.5, -0.1, "0.5", Valued(0.5, bound=float("nan")), "none"]
)
def test_a_value_that_is_none_ends_the_run(value: Any) -> None:
    @frozen
    class Broken(ValueEstimator):
        """Gives no value."""

        async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
            if value == "none":
                return None  # type: ignore[return-value]
            return value if isinstance(value, Valued) else Valued(value)

    with pytest.raises(RunError, match="Broken gave"):
        search(evolve(SMALL, value=Broken()), session_for({"a": Climber()}, Ladder(6)))


def test_noise_has_nothing_to_do_with_the_trajectory_but_is_repeatable() -> None:
    session = session_for({"a": Climber(0.5)}, Ladder(6))
    found = search(evolve(SMALL, value=Noise()), session)
    values = [node.value for node in found.nodes]
    assert len(set(values)) > len(values) // 2
    assert what(found) == what(search(evolve(SMALL, value=Noise()), session))


def test_lookahead_values_a_turn_by_what_becomes_of_it() -> None:
    seen: list[int] = []

    @frozen
    class Lengths(TaskValue):
        """Notes how long what it is asked about is."""

        async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
            seen.append(len(branch.trajectory))
            return await super().estimate(branch, session, key)

    given = evolve(SMALL, value=Lengths(), lookahead=2, turns=3)
    found = search(given, session_for({"a": Climber(0.5)}, Ladder(6)))
    # One turn is rolled on to three, two as well, and three are the end.
    assert set(seen) == {3}
    assert found.counts.activations > found.counts.samples
    assert found.counts.turn_calls == found.counts.activations
    assert all(len(node.branch.trajectory) == 3 for node in found.finalists)


# ---------------------------------------------------------------------------- early stop


@given(st.integers(0, 7), st.sampled_from([0.3, 0.6, 0.9]), st.integers(1, 5))
@settings(max_examples=25)
def test_early_stop_drops_only_what_could_not_win(n: int, skill: float, ends: int) -> None:
    class Quitter(Climber):
        """Sometimes says that it is done."""

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            output = await super().act(view, key, calls)
            return evolve(output, final=key.child("quit").uniform() < ends / 10)

    def best(early: bool) -> tuple[float, int]:
        # Wide enough to keep everything: then nothing but early stop drops a trajectory.
        given = GrpoBeam(beam_width=81, samples=3, turns=4, early_stop=early)
        session = session_for({"a": Quitter(skill)}, Ladder(4, bounds=True))
        found = search(given, session, n)
        return max(node.value or 0 for node in found.finalists), found.counts.samples

    (reached, fewer), (possible, all_of_them) = best(True), best(False)
    assert reached == possible
    assert fewer <= all_of_them


def test_a_solved_problem_is_not_searched_on() -> None:
    @define
    class Swift(Climber):
        """Writes two digits at once now and then."""

        options: Sequence[str] = ("one", "both")

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            output = await super().act(view, key, calls)
            return evolve(output, final=view.option == "both")

    session = session_for({"a": Swift(1.0)}, Ladder(1), Fixed([[Activation("a", "both")]]))
    found = search(evolve(SMALL, early_stop=True), session)
    assert found.counts.samples == 3
    assert found.finalists[0].score == 1.0


# -------------------------------------------------------------------------- who acts next


@frozen
class Torn(Policy):
    """Draws who acts, by the key; may stop."""

    stop: bool = False

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """One of three choices."""
        return [self._one(key) for key in keys]

    def _one(self, key: Key) -> Decision:
        luck = int(key.uniform() * (4 if self.stop else 3))
        if luck == 3:
            return Decision(stop=True)
        return Decision((Activation("a", "xy"[luck]) if luck < 2 else Activation("b"),))


def test_the_policy_decides_for_each_sample_and_its_options_are_used() -> None:
    agents = {"a": Climber(0.5, options=("x", "y")), "b": Climber(0.5)}
    found = search(SMALL, session_for(agents, Ladder(6), Torn()))
    chosen = {(node.turns[0].agent, node.turns[0].option) for node in found.nodes}
    assert chosen == {("a", "x"), ("a", "y"), ("b", None)}
    assert found.counts.failed == 0


def test_a_trajectory_that_the_policy_ends_stays_as_it_is() -> None:
    agents = {"a": Climber(0.5, options=("x", "y")), "b": Climber(0.5)}
    lengths = set()
    for n in range(8):
        found = search(SMALL, session_for(agents, Ladder(6), Torn(stop=True)), n)
        lengths |= {len(node.branch.trajectory) for node in found.finalists}
        assert len({id(node) for node in found.finalists}) == len(found.finalists)
    assert len(lengths) > 2


def test_a_policy_that_stops_at_once_leaves_an_empty_trajectory() -> None:
    found = search(SMALL, session_for({"a": Climber()}, Ladder(6), Fixed([])))
    assert [len(node.branch.trajectory) for node in found.finalists] == [0]
    assert found.counts.samples == 0


def test_agents_that_are_started_together_extend_a_trajectory_together() -> None:
    pair = [Activation("a"), Activation("b")]
    agents = {"a": Climber(0.5), "b": Climber(0.5)}
    session = session_for(agents, Ladder(4), Fixed([pair, pair]))
    found = search(evolve(SMALL, at_once=2, turns=3), session)
    assert all(len(node.branch.trajectory) == 3 for node in found.finalists)
    with pytest.raises(RunError, match=r"starts 2 agents at once.*at_once: 2"):
        search(SMALL, session)


def test_a_rotation_takes_turns_and_passes_over_what_is_blocked() -> None:
    agents = {"a": Climber(0.5), "b": Climber(0.5, options=("x", "y"))}
    given = evolve(SMALL, order="rotation", rotation=("b:y", "a"))
    found = search(given, session_for(agents, Ladder(6)))
    best = found.finalists[0].branch.trajectory.turns
    assert [(turn.agent, turn.option) for turn in best] == [("b", "y"), ("a", None)] * 3
    branch = session_for(agents, Ladder(6)).begin(Problem("p"), Key(1))
    assert branch.step.observation is not None
    seen = evolve(branch.step.observation, blocked=frozenset({"a"}))
    blocked = evolve(branch, step=evolve(branch.step, observation=seen))
    turns = Rotation([Activation("a"), Activation("b", "x")])
    assert turns.starts([branch, blocked], [Key(1)] * 2) == [
        (Activation("a"),),
        (Activation("b", "x"),),
    ]
    assert Everybody([Activation("a")]).starts([blocked], [Key(1)]) == [None]
    with pytest.raises(UsageError, match="at least one"):
        Rotation([])


def test_policies_see_the_public_problem_and_how_many_turns_are_left() -> None:
    seen: list[Situation] = []

    @define
    class Curious(Fixed):
        """Notes what it sees."""

        steps: Sequence[Any] = field(default=("a",) * 9)

        def decide(
            self, situations: Sequence[Situation], keys: Sequence[Key]
        ) -> Sequence[Decision]:
            seen.extend(situations)
            return super().decide(situations, keys)

    session = session_for({"a": ScriptedAgent()}, Ladder(9), Curious())
    branch = session.begin(Problem("p", hidden="secret"), Key(1))
    PolicyChooser(session.policy, 4, True, 1).starts([branch, branch], [Key(1), Key(2)])
    assert [one.turns_left for one in seen] == [4, 4]
    assert seen[0].problem is seen[1].problem
    assert seen[0].problem.hidden is None
    assert seen[0].training


def test_a_policy_that_cannot_go_on_ends_the_run() -> None:
    class Lost(Fixed):
        """Has an error."""

        def decide(
            self, situations: Sequence[Situation], keys: Sequence[Key]
        ) -> Sequence[Decision]:
            return [Decision(stop=True, error="no such room") for _ in situations]

    class Idle(Fixed):
        """Does nothing at all."""

        def decide(
            self, situations: Sequence[Situation], keys: Sequence[Key]
        ) -> Sequence[Decision]:
            return [Decision() for _ in situations]

    agents: dict[str, Agent] = {"a": Climber()}
    with pytest.raises(RunError, match="no such room"):
        search(SMALL, session_for(agents, Ladder(3), Lost([])))
    with pytest.raises(RunError, match="neither started an agent nor stopped"):
        search(SMALL, session_for(agents, Ladder(3), Idle([])))
