"""What a turn was worth: the episode again without it, with the same keys."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from orchestrion_code_review import versions_of
from orchestrion_code_review.credit import Credit, TurnCredit, credits_of, summary
from orchestrion_code_review.task import problem_of

from orchestrion import Activation, Agent, Calls, Key, Output, View
from orchestrion._session import EngineSession
from orchestrion.testing import Fixed, engine_for
from tests.contrib_tasks.code_review.support import DOUBLE, RIGHT, WRONG, in_loop, opened, says


class Writer(Agent):
    """Writes something wrong."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return says(WRONG)


class Critic(Agent):
    """Names the mistake."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output("It squares the number; it should double it.")


class Flatterer(Agent):
    """Says nothing that anybody could use."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output("Great work! PASS.")


class Mender(Agent):
    """Mends what was named, and nothing else."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        if not versions_of(view.turns):
            return Output("Nothing to mend.")
        told = any("should double" in turn.output.content for turn in view.turns)
        return says(RIGHT if told else WRONG)


class Dice(Agent):
    """Draws a number, to see that keys stay the same."""

    drawn: list[float] = []  # noqa: RUF012

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        self.drawn.append(key.uniform())
        return Output("drawn")


AGENTS: dict[str, Agent] = {
    "writer": Writer(), "critic": Critic(), "flatterer": Flatterer(), "mender": Mender(),
    "dice": Dice(),
}  # fmt: skip


def credited(*steps: str | Sequence[Activation], turns: int = 8) -> list[Credit]:
    """The credits of an episode of these agents."""

    async def run() -> list[Credit]:
        async with opened() as task:
            engine = engine_for(AGENTS, Fixed(list(steps)), task)
            session = EngineSession(engine, "train-0", Key(3), Key(4))
            return await credits_of(session, problem_of(DOUBLE), Key(5), turns)

    return in_loop(run())


def test_a_critic_whose_words_were_needed_gets_the_credit() -> None:
    writer, critic, mender = credited("writer", "critic", "mender")
    assert critic.agent == "critic"
    assert critic.work > 5
    assert critic.net > 5
    assert mender.work > 5
    assert writer.work > 5


def test_a_reviewer_whose_removal_changes_nothing_gets_none_and_pays_for_the_turn() -> None:
    _, critic, flatterer, _ = credited("writer", "critic", "flatterer", "mender")
    assert critic.work > 5
    assert flatterer.work == 0
    assert flatterer.net < 0


def test_the_rest_runs_with_the_same_keys() -> None:
    Dice.drawn.clear()
    credited("writer", "dice", "dice")
    first, second = Dice.drawn[:2]
    assert first != second
    assert sorted(set(Dice.drawn)) == sorted({first, second})
    assert len(Dice.drawn) == 2 + 2 + 1  # the episode, without the writer, without the first


def test_an_episode_has_a_limit() -> None:
    both = [Activation("critic"), Activation("mender")]
    assert [credit.agent for credit in credited("writer", both, turns=2)] == ["writer", "critic"]


def test_the_summary_is_a_mean_by_agent() -> None:
    found = summary([Credit("a", 1, 2), Credit("a", 3, 0), Credit("b", -1, -1)])
    assert found == {
        "measured_turns": 3, "work/a": 2, "net/a": 1, "work/b": -1, "net/b": -1,
    }  # fmt: skip
    assert summary([]) == {"measured_turns": 0}


def test_the_trainer_measures_episodes_of_training_problems() -> None:
    async def run() -> dict[str, float]:
        async with opened(max_problems=3) as task:
            engine = engine_for(AGENTS, Fixed(["writer", "critic"]), task)
            session = EngineSession(engine, "train-0", Key(3), Key(4))
            return dict(await TurnCredit(episodes=2).iterate(0, session))

    found = in_loop(run())
    assert found["measured_turns"] == 4
    assert found["work/critic"] == pytest.approx(0)
