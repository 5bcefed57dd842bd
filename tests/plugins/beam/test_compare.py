"""The comparison at the end: equal calls, and claims that the numbers support."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve, frozen
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_beam.baselines import (
    EXTRA_TURNS,
    Allowance,
    GreedySearch,
    answer_of,
    most_frequent,
)
from orchestrion_beam.interfaces import Valued
from orchestrion_beam.nodes import SearchNode
from orchestrion_beam.report import as_text, beam, sentences
from orchestrion_beam.search import SearchCounts
from orchestrion_beam.trainer import GrpoBeam
from orchestrion_beam.values import Noise, TaskValue

from orchestrion import (
    Agent,
    Branch,
    Calls,
    Episode,
    Key,
    Output,
    Problem,
    Reward,
    Saved,
    Session,
    Step,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    View,
    replace,
)
from orchestrion.testing import Fixed
from tests.coroutines import sync
from tests.plugins.beam.support import Climber, Delays, Ladder, Value, opened, session_for

GIVEN = GrpoBeam(rounds=1, problems=2, beam_width=4, samples=4, turns=8, held_out=20)


async def compared(given: GrpoBeam, skill: float = 0.6, **more: Any) -> Mapping[str, Any]:
    """The report of one trainer on ladders."""
    agents: dict[str, Agent] = {"a": Climber(skill, **more), "b": Climber(skill)}
    session = session_for(agents, Ladder(8, 40), Fixed(["a", "b"] * 4))
    trainer = await opened(given)
    await trainer.iterate(given.rounds, session)
    return dict(trainer.report)


def named(report: Mapping[str, Any]) -> dict[str, Any]:
    return {contender["name"]: contender for contender in report["contenders"]}


@pytest.fixture(scope="module")
def report() -> Mapping[str, Any]:
    """What a small search leads to."""
    return asyncio.run(compared(evolve(GIVEN, turns=5, held_out=8, beam_width=2, samples=3)))


# ------------------------------------------------------------------------- equal budgets


@frozen
class Asking(TaskValue):
    """Knows the score, for a call."""

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        exact = await super().estimate(branch, session, key)
        return evolve(exact, usage=Usage(calls=1))


@pytest.mark.parametrize(
    "changes",
    [
        {"beam_width": 2, "samples": 2},
        {"early_stop": True, "value": Asking(), "turns": 4},
    ],
    ids=["few", "early stop and estimates that make calls"],
)
def test_greedy_makes_as_many_calls_as_the_search(changes: dict[str, Any]) -> None:
    given = evolve(GIVEN, held_out=4, baselines=("greedy",), **changes)
    contenders = named(asyncio.run(compared(given, fails=0.2)))
    assert contenders["greedy"]["calls"] == pytest.approx(contenders["beam"]["calls"], rel=0.1)


def test_greedy_spreads_the_calls_left_and_makes_half_as_many_turns_again_at_most() -> None:
    missing: Any = None
    search = SearchCounts(samples=10, turn_calls=100, parents=[1, 4])
    greedy = GreedySearch(GIVEN, missing, Problem("p"), missing, missing, Key(1), search)
    assert greedy.samples_of_level() == 5
    greedy.counts.parents.append(1)
    for samples, left in ((8, 15 - 8), (20, 1)):  # that make a call each
        greedy.counts.samples = greedy.counts.turn_calls = samples
        assert greedy.samples_of_level() == left


def test_all_calls_of_a_turn_count() -> None:
    class Chatty(Climber):
        """Makes three calls a turn."""

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            output = await super().act(view, key, calls)
            return replace(output, usage=Usage(calls=3))

    async def main() -> Mapping[str, Any]:
        given = evolve(GIVEN, order="rotation", held_out=4, single="plain")
        agents: dict[str, Agent] = {"plain": Climber(0.6), "chatty": Chatty(0.6)}
        trainer = await opened(given)
        await trainer.iterate(1, session_for(agents, Ladder(8, 20)))
        return dict(trainer.report)

    report = asyncio.run(main())
    contenders = named(report)
    beam, single = contenders["beam"], contenders["single"]
    assert beam["calls"] == pytest.approx(2 * beam["turns"], rel=0.1)
    assert contenders["best-of-n"]["calls"] >= beam["calls"]
    # It makes a single call a turn, and the report says that it cannot use as many.
    assert single["turns"] <= EXTRA_TURNS * beam["turns"] + GIVEN.turns
    assert single["calls"] == single["turns"] < beam["calls"]
    assert any("single" in text and "its turns make fewer" in text for text in report["sentences"])


@given(st.integers(1, 500), st.integers(1, 15), st.floats(1, 4), st.floats(0.1, 1))
def test_attempts_end_with_the_allowance(turns: int, each: int, calls: float, ended: float) -> None:
    allowance = Allowance(int(turns * calls), turns, calls)
    taken = 0
    while allowance.is_left:
        started = allowance.attempts(each)
        # Attempts may end early, and their turns may make other numbers of calls.
        used = started * max(1, int(each * ended))
        allowance.spend(int(used * calls) or 1, used)
        taken += used
    assert taken < turns + each


@sync
async def test_problems_held_out_are_shown_to_no_improver() -> None:
    session = session_for({"a": Climber()}, Ladder(3, 30))
    trainer = await opened(GIVEN)
    gate, held_out = trainer.split(session)
    assert len(held_out) == 20
    everything = {problem.id for problem in session.problems("validation")}
    deciding = {problem.id for problem in gate}
    reported = {problem.id for problem in held_out}
    assert deciding | reported == everything
    assert not deciding & reported


# ----------------------------------------------------------------------------- honesty


@pytest.mark.parametrize(
    ("mean", "told"),
    [(-0.2, "was not worth its calls here"), (0.05, "is not shown to be worth its calls")],
)
def test_the_report_names_a_value_that_is_better_than_noise_but_not_worth_its_calls(
    mean: float, told: str
) -> None:
    contender = {"calls": 10.0, "attempts": 1.0, "missing": 0}
    number = {"mean": 0.5, "low": 0.4, "high": 0.6, "count": 20}
    behind = {"mean": mean, "low": mean - 0.1, "high": mean + 0.1, "count": 20}
    report = {
        "problems": 20,
        "select": "reward",
        "value": {"name": "judge", "correlation": number, "better_than_noise": True},
        "contenders": [
            {"name": "beam", "reward": number, "ahead": None, **contender},
            {"name": "best-of-n", "reward": number, "ahead": behind, **contender},
        ],
    }
    text = " ".join(sentences(report))
    assert "better than noise" in text
    assert f"Searching by it {told}" in text


def test_noise_does_not_beat_independent_attempts_and_is_called_noise() -> None:
    report = asyncio.run(compared(evolve(GIVEN, value=Noise(), select="value")))
    assert not named(report)["best-of-n"]["ahead"]["low"] > 0
    assert report["value"]["better_than_noise"] is False
    text = " ".join(report["sentences"])
    assert "The value 'noise' is no better than noise" in text
    assert "not worth its calls" in text
    assert "picked by the value 'noise'" in text


def test_equal_scores_leave_open_whether_the_value_is_better_than_noise() -> None:
    report = asyncio.run(compared(evolve(GIVEN, held_out=6), skill=1.0))
    assert report["value"]["better_than_noise"] is None
    assert any("cannot be told" in text for text in report["sentences"])
    assert any("Not shown to differ from best-of-n" in text for text in report["sentences"])


def test_with_few_problems_nothing_is_claimed() -> None:
    report = asyncio.run(compared(evolve(GIVEN, held_out=4)))
    assert report["value"]["better_than_noise"] is None
    text = " ".join(report["sentences"])
    assert "Too few problems to tell search and best-of-n apart" in text
    assert "cannot be told from 4 problems" in text
    assert "Ahead of" not in text


def test_the_report_does_not_depend_on_the_completion_order() -> None:
    given = evolve(GIVEN, held_out=3)
    first, second = (asyncio.run(compared(given, delay=Delays(n), fails=0.1)) for n in (1, 2))
    assert first == second


def test_the_metrics_of_the_last_iteration_are_the_numbers_of_the_report() -> None:
    async def main() -> tuple[Mapping[str, float], Mapping[str, Any]]:
        session = session_for({"a": Climber()}, Ladder(4, 20))
        trainer = await opened(evolve(GIVEN, turns=4, held_out=3, baselines=("best-of-n",)))
        return await trainer.iterate(1, session), dict(trainer.report)

    metrics, report = asyncio.run(main())
    contenders = named(report)
    assert metrics["held_out"] == 3
    for name in ("beam", "best-of-n"):
        assert metrics[f"calls_{name}"] == contenders[name]["calls"]
        assert metrics[f"reward_{name}"] == contenders[name]["reward"]["mean"]
    assert metrics["ahead_of_best-of-n"] == contenders["best-of-n"]["ahead"]["mean"]
    assert "ahead_of_beam" not in metrics


def test_missing_rewards_are_not_in_the_mean() -> None:
    @frozen
    class Forgetful(Value):
        """Has no reward for every other problem."""

        async def score(self, episode: Episode, calls: Calls) -> Reward | None:
            odd = int(episode.problem.id.rpartition("-")[2]) % 2
            return None if odd else await super().score(episode, calls)

    async def main() -> Mapping[str, Any]:
        session = session_for({"a": Climber()}, Ladder(4, 20), reward=Forgetful())
        trainer = await opened(evolve(GIVEN, turns=4))
        await trainer.iterate(1, session)
        return dict(trainer.report)

    report = asyncio.run(main())
    beam = named(report)["beam"]
    assert beam["missing"] == 10
    assert beam["reward"]["count"] == 10
    assert named(report)["single"]["ahead"]["count"] == 10
    assert any("on the 10 problems where it has a result" in text for text in report["sentences"])


def test_only_the_baselines_that_are_wanted_are_run() -> None:
    wanted = evolve(GIVEN, held_out=2, baselines=("self-consistency",), probes=2)
    report = asyncio.run(compared(wanted))
    assert [contender["name"] for contender in report["contenders"]] == ["beam", "self-consistency"]
    alone = asyncio.run(compared(evolve(GIVEN, held_out=2, baselines=())))
    assert alone["value"]["correlation"]["mean"] is None


@sync
async def test_an_unknown_single_agent_is_refused_before_the_run() -> None:
    trainer = await opened(evolve(GIVEN, single="anna"))
    with pytest.raises(UsageError, match=r"'anna' is not a choice"):
        trainer.check(session_for({"a": Climber()}, Ladder(4)))
    trainer = await opened(GIVEN)
    with pytest.raises(UsageError, match="no training problems"):
        trainer.check(session_for({"a": Climber()}, Ladder(4, 0)))


# -------------------------------------------------------------------- answers and words


def ended(*outputs: Output | None) -> SearchNode:
    """Return a trajectory with these outputs; None for a failed turn."""
    turns = [
        Turn(n, "a", output=output or Output(), status="completed" if output else "failed")
        for n, output in enumerate(outputs)
    ]
    return SearchNode(Branch(Problem("p"), Trajectory(turns), Step(), Key(1)))


def test_answers_are_compared_without_case_and_spaces() -> None:
    assert answer_of(ended(Output("  The  Answer\n")).branch) == "the answer"
    assert answer_of(ended(Output("so it is 4", {"answer": 4}), None).branch) == "4"
    assert answer_of(ended(Output("text", {"thought": "hm"})).branch) == "text"
    assert answer_of(ended(None).branch) == ""


def test_the_most_frequent_answer_is_picked_and_a_key_decides_between_equals() -> None:
    attempts = [ended(Output(text)) for text in ["a", "B", "b ", "c"]]
    assert most_frequent(attempts, Key(1)) is attempts[1]
    tied = [ended(Output(text)) for text in "abab"]
    picked = {id(most_frequent(tied, Key(n))) for n in range(20)}
    assert picked == {id(tied[0]), id(tied[1])}


def test_answers_that_all_differ_cannot_be_compared() -> None:
    assert most_frequent([ended(Output(text)) for text in "abc"], Key(1)) is None
    assert most_frequent([ended(None), ended(None)], Key(1)) is None
    assert most_frequent([ended(None)], Key(1)) is None
    only = ended(Output("a"))
    assert most_frequent([only], Key(1)) is only


TEXT = """\
                  reward                solved  calls  attempts  beam ahead by
beam              0.594 [0.547, 0.625]  0.000   25.9   2.0
single            0.516 [0.469, 0.562]  0.000   28.8   5.8       +0.078 [+0.000, +0.141]
best-of-n         0.516 [0.469, 0.562]  0.000   28.8   5.8       +0.078 [+0.000, +0.141]
self-consistency  0.406 [0.297, 0.484]  0.000   28.8   5.8       +0.188 [+0.078, +0.312]
greedy            0.625 [0.625, 0.625]  0.000   25.9   1.0       -0.031 [-0.078, +0.000]
sequential        0.594 [0.516, 0.672]  0.000   8.0    1.0       +0.000 [-0.078, +0.094]

On 8 held-out problems beam search has a reward of 0.594 [0.547, 0.625], with 26 calls a \
problem; one trajectory of each contender is picked by its reward, so all had the verifier's help.
Not shown to differ from single: +0.078 [+0.000, +0.141].
Not shown to differ from best-of-n: +0.078 [+0.000, +0.141].
Ahead of self-consistency: +0.188 [+0.078, +0.312].
Not shown to differ from greedy: -0.031 [-0.078, +0.000].
Not shown to differ from sequential: +0.000 [-0.078, +0.094], but it used only 8 calls: it ends \
by itself.
The value 'task' orders unfinished trajectories better than noise: its rank correlation with the \
final score, within a problem and on independent trajectories, is +0.713 [+0.619, +0.796], over 8 \
problems.
Searching by it is not shown to be worth its calls: independent attempts may do as well.
Keeping several trajectories was not worth its calls here: `beam_width: 1` with more `samples` did \
as well or better.
"""


def test_a_report_has_a_row_for_each_contender_and_says_what_it_shows(
    report: Mapping[str, Any],
) -> None:
    # The attempt that it is in is finished: no baseline has fewer calls, as far as it can use them.
    assert as_text(report) == TEXT


def test_without_rewards_nothing_is_claimed() -> None:
    nothing = {"mean": None, "low": None, "high": None, "count": 0}
    assert sentences({"contenders": [{"reward": nothing}]}) == [
        "Nothing can be said: no trajectory of the search has a reward."
    ]


STATE = {"pending": [], "round": 0}


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([], "no trainer grpo-beam has saved anything"),
        ([None, {"round": 0, "report": {}}], "no trainer grpo-beam has saved anything"),
        ([{**STATE, "report": None}], "nothing is compared yet"),
    ],
)
def test_a_run_without_a_comparison_is_refused(
    states: list[Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = {f"trainer[{n}]": Saved(data=data) for n, data in enumerate(states)}
    monkeypatch.setattr("orchestrion.runs.newest_states", lambda run: (run, saved))
    with pytest.raises(UsageError, match=f"run-1: {message}"):
        CliRunner().invoke(beam, ["run-1"], catch_exceptions=False)


def test_the_command_shows_the_report_of_the_last_stage_that_compared(
    report: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = [{}, report, None]
    saved = {str(n): Saved(data={**STATE, "report": stage}) for n, stage in enumerate(stages)}
    monkeypatch.setattr("orchestrion.runs.newest_states", lambda run: (run, saved))
    assert CliRunner().invoke(beam, ["run-1"]).stdout == as_text(report)
    assert json.loads(CliRunner().invoke(beam, ["run-1", "--json"]).stdout) == report
