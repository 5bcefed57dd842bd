"""The search: what is extended, valued, kept and dropped, whatever the completion order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import define, evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_beam.choosers import PolicyChooser, Rotation
from orchestrion_beam.interfaces import Valued, ValueEstimator
from orchestrion_beam.search import BeamSearch
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
    View,
    replace,
)
from orchestrion._session import EngineSession
from orchestrion.testing import Fixed, ScriptedAgent
from tests.coroutines import sync
from tests.plugins.beam.support import Climber, Ladder, opened, session_for

SMALL = GrpoBeam(beam_width=3, samples=3, turns=6, problems=1)


async def searched(given: GrpoBeam, session: EngineSession, n: int = 0) -> BeamSearch:
    """Run one search, on the n-th training problem."""
    trainer = await opened(given)
    problem = session.problems("train")[n]
    search = trainer.search(session, problem, Key(5).child(n), training=True)
    await search.run()
    return search


def search(given: GrpoBeam, session: EngineSession, n: int = 0) -> BeamSearch:
    """Run one search, from outside of an event loop."""
    return asyncio.run(searched(given, session, n))


def results_of(search: BeamSearch) -> list[Any]:
    """Return all results of a search."""
    return [
        [(node.path, node.value, node.fate, node.digest) for node in search.nodes],
        [node.path for node in search.finalists],
        search.counts,
    ]


# --------------------------------------------------------------------------- speed and width


def test_all_samples_of_a_turn_are_in_flight_at_once_and_all_are_scored() -> None:
    class Unlike(Climber):
        """Every digit with a word of its own."""

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            output = await super().act(view, key, calls)
            return replace(output, data=key.hex())

    agent = Unlike(0.6, delay=lambda: 0.001)
    given = GrpoBeam(beam_width=10, samples=5, turns=15)
    result = search(given, session_for({"a": agent}, Ladder(15)))
    counts = result.counts
    # 5 + 5 x 5 + 13 x 5 x 10
    assert counts.samples == counts.calls == given.samples_per_search == agent.acts == 680
    assert agent.most == counts.widest == 50
    assert counts.scored == 680
    assert counts.duplicates == 0
    assert len(result.finalists) == 10


# ------------------------------------------------------------------------ what is kept


def test_the_beam_keeps_different_first_turns() -> None:
    session = session_for({"a": Climber(0.3)}, Ladder(6))
    given = evolve(SMALL, samples=6)
    many = search(evolve(given, min_roots=3), session)
    assert len({node.root for node in many.finalists}) == 3
    assert all(count >= 2 for count in many.counts.parents[1:])
    # Without the rule the family of the best trajectory takes over.
    few = search(evolve(given, min_roots=1, min_parents=1), session)
    assert len({node.root for node in few.finalists}) < 3


def test_equal_trajectories_are_kept_once_and_valued_once() -> None:
    seen: list[str] = []

    @frozen
    class Noting(TaskValue):
        """Notes the content of each branch."""

        async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
            seen.append(" ".join(turn.output.content for turn in branch.trajectory.turns))
            return await super().estimate(branch, session, key)

    always = Climber(1.0)
    result = search(evolve(SMALL, value=Noting()), session_for({"a": always}, Ladder(6)))
    assert result.counts.duplicates == 2 * 6
    assert len(result.finalists) == 1
    assert len(seen) == len(set(seen)) == result.counts.estimates == 6
    assert result.counts.scored == result.counts.samples == 18


def test_a_key_decides_between_equal_values_and_not_the_order() -> None:
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
    result = search(SMALL, session_for({"a": Climber(0.5, fails=0.4)}, Ladder(6)))
    assert result.counts.failed > 5
    assert result.counts.scored == result.counts.samples - result.counts.failed
    assert all(turn.status == "completed" for n in result.finalists for turn in n.branch.trajectory)


def test_a_search_ends_with_the_level_before_one_that_fails_as_a_whole() -> None:
    class Tired(Climber):
        """Falls over after two rungs."""

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            if len(view.turns) >= 2:
                raise RuntimeError("too tired")
            return await super().act(view, key, calls)

    result = search(SMALL, session_for({"a": Tired()}, Ladder(6)))
    assert {len(node.branch.trajectory) for node in result.finalists} == {2}
    nothing = search(SMALL, session_for({"a": Climber(fails=1.0)}, Ladder(6)))
    assert nothing.finalists == []


@sync
async def test_a_run_without_a_completed_turn_reports_an_error_of_a_turn() -> None:
    trainer = await opened(SMALL)
    with pytest.raises(
        RunError, match=r"every first turn of every search failed.*a: RuntimeError: slipped"
    ):
        await trainer.iterate(0, session_for({"a": Climber(fails=1.0)}, Ladder(6)))


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
    result = search(given, session_for({"a": Climber(0.5)}, Ladder(6)))
    assert result.counts.unreadable > 0
    values = [node.value for node in result.finalists]
    assert None in values
    assert values == sorted(values, key=lambda value: value is None)
    # Two calls for each content that was valued, besides the turns.
    valued = sum(value is not None for value in values)
    assert result.counts.calls == result.counts.turn_calls + 2 * valued


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1.5, -0.1, "0.5", Valued(0.5, bound=float("nan")), "none"]
)
def test_an_estimate_that_is_no_value_ends_the_run(value: Any) -> None:
    @frozen
    class Broken(ValueEstimator):
        """Gives no value."""

        async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
            if value == "none":
                return None  # type: ignore[return-value]
            return value if isinstance(value, Valued) else Valued(value)

    with pytest.raises(RunError, match="Broken gave"):
        search(evolve(SMALL, value=Broken()), session_for({"a": Climber()}, Ladder(6)))


def test_noise_is_independent_of_the_trajectory_and_repeatable() -> None:
    session = session_for({"a": Climber(0.5)}, Ladder(6))
    result = search(evolve(SMALL, value=Noise()), session)
    values = [node.value for node in result.nodes]
    assert len(set(values)) > len(values) // 2
    assert results_of(result) == results_of(search(evolve(SMALL, value=Noise()), session))


# ---------------------------------------------------------------------------- early stop


@given(st.integers(0, 7), st.sampled_from([0.3, 0.6, 0.9]), st.integers(1, 5))
@settings(max_examples=25)
def test_early_stop_drops_only_trajectories_that_could_not_win(
    n: int, skill: float, ends: int
) -> None:
    class Quitter(Climber):
        """Sometimes says that it is done."""

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            output = await super().act(view, key, calls)
            return replace(output, final=key.child("quit").uniform() < ends / 10)

    def best(early: bool) -> tuple[float, int]:
        # Wide enough to keep everything: then nothing but early stop drops a trajectory.
        given = GrpoBeam(beam_width=81, samples=3, turns=4, early_stop=early)
        session = session_for({"a": Quitter(skill)}, Ladder(4, bounds=True))
        result = search(given, session, n)
        return max(node.value or 0 for node in result.finalists), result.counts.samples

    (reached, fewer), (possible, all_of_them) = best(True), best(False)
    assert reached == possible
    assert fewer <= all_of_them


def test_the_search_of_a_solved_problem_ends() -> None:
    @define
    class Swift(Climber):
        """Writes two digits at once now and then."""

        options: Sequence[str] = ("one", "both")

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            output = await super().act(view, key, calls)
            return replace(output, final=view.option == "both")

    session = session_for({"a": Swift(1.0)}, Ladder(1), Fixed([[Activation("a", "both")]]))
    result = search(evolve(SMALL, early_stop=True), session)
    assert result.counts.samples == 3
    assert result.finalists[0].score == 1.0


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
    result = search(SMALL, session_for(agents, Ladder(6), Torn()))
    chosen = {(node.turns[0].agent, node.turns[0].option) for node in result.nodes}
    assert chosen == {("a", "x"), ("a", "y"), ("b", None)}
    assert result.counts.failed == 0


def test_a_trajectory_that_the_policy_ends_is_not_extended() -> None:
    agents = {"a": Climber(0.5, options=("x", "y")), "b": Climber(0.5)}
    lengths = set()
    for n in range(8):
        result = search(SMALL, session_for(agents, Ladder(6), Torn(stop=True)), n)
        lengths |= {len(node.branch.trajectory) for node in result.finalists}
        assert len({id(node) for node in result.finalists}) == len(result.finalists)
    assert len(lengths) > 2


def test_agents_that_are_started_together_extend_a_trajectory_together() -> None:
    pair = [Activation("a"), Activation("b")]
    agents = {"a": Climber(0.5), "b": Climber(0.5)}
    session = session_for(agents, Ladder(4), Fixed([pair, pair]))
    result = search(evolve(SMALL, at_once=2, turns=3), session)
    assert all(len(node.branch.trajectory) == 3 for node in result.finalists)
    with pytest.raises(RunError, match=r"starts 2 agents at once.*at_once: 2"):
        search(SMALL, session)


def test_a_rotation_passes_over_blocked_choices() -> None:
    agents = {"a": Climber(0.5), "b": Climber(0.5, options=("x", "y"))}
    given = evolve(SMALL, order="rotation", rotation=("b:y", "a"))
    result = search(given, session_for(agents, Ladder(6)))
    best = result.finalists[0].branch.trajectory.turns
    assert [(turn.agent, turn.option) for turn in best] == [("b", "y"), ("a", None)] * 3
    branch = session_for(agents, Ladder(6)).begin(Problem("p"), Key(1))
    assert branch.step.observation is not None
    seen = replace(branch.step.observation, blocked=frozenset({"a"}))
    blocked = evolve(branch, step=replace(branch.step, observation=seen))
    turns = Rotation([Activation("a"), Activation("b", "x")])
    assert turns.starts([branch, blocked], [Key(1)] * 2) == [
        (Activation("a"),),
        (Activation("b", "x"),),
    ]
    assert Rotation([Activation("a")]).starts([blocked], [Key(1)]) == [None]


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
    assert [situation.turns_left for situation in seen] == [4, 4]
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
