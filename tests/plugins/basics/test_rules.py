"""Simple rules that a learned policy has to beat: look-up, halving, nearest neighbours."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen
from orchestrion_basics.by_category import BestByCategory, ByCategory, ChainByCategory
from orchestrion_basics.halving import Halving
from orchestrion_basics.nearest import Nearest, NearestTrainer, hashed
from orchestrion_basics.policies import Sequence
from orchestrion_basics.search import BestSequence

from orchestrion import (
    Calls,
    Key,
    Member,
    Observation,
    Problem,
    Scores,
    Situation,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    UsageError,
    choice_name,
)
from orchestrion.testing import ListTask
from tests.plugins.basics.support import Costs, Dawdles, opened, session_of, trained

KEYS = {"left": "a", "right": "ba", "rare": "b"}
"""By category, whom a door wants to hear, in order."""


@frozen
class Doors(Task):
    """A door opens when the right agents were called in order; its colour says what it wants."""

    shows: str = "category"

    def problems(self, split: Split) -> list[Problem]:
        kinds = ["left"] * 4 + ["right"] * 3 + ["rare"]
        category = self.shows == "category"
        return [
            Problem(f"{split}-{i}", kind if self.shows == "text" else "", kind, kind * category)
            for i, kind in enumerate(kinds)
        ]

    def start(self, problem: Problem, key: Key) -> Step:
        return self._shown(str(problem.data), 0)

    def step(self, state: tuple[str, int], turn: Turn, key: Key) -> Step:
        kind, heard = state
        wanted = KEYS[kind]
        return self._shown(kind, heard + (heard < len(wanted) and turn.agent == wanted[heard]))

    def _shown(self, kind: str, heard: int) -> Step:
        features = (float(kind == "left"), float(kind == "right"), float(heard))
        shown = features if self.shows == "features" else ()
        return Step((kind, heard), Observation(features=shown))

    async def verify(
        self,
        problem: Problem,
        trajectory: Trajectory,
        state: tuple[str, int],
        *,
        final: bool,
        calls: Calls,
    ) -> Scores:
        kind, heard = state
        opened = heard == len(KEYS[kind])
        return Scores(float(opened), opened)


def plays(runtime: Any, task: Doors, kind: str, category: str) -> str:
    """Whom a policy calls at a door, in order."""
    problem = Problem("p", kind if task.shows == "text" else "", kind, category)
    step, turns = task.start(problem, Key(0)), list[Turn]()
    while len(turns) < 5:
        situation = Situation(problem, Trajectory(turns), step.observation)
        decision = runtime.decide([situation], [Key(0)])[0]
        if decision.stop:
            break
        turns.append(Turn(len(turns), decision.start[0].agent))
        step = task.step(step.state, turns[-1], Key(0))
    return "".join(turn.agent for turn in turns)


@pytest.mark.parametrize(
    ("least", "plans"),
    [
        # Small categories share a plan, which serves unknown ones as well.
        (2, {"left": "a", "right": "ba", "rare": "b", "never seen": "b"}),
        # Where there are none, unknown ones get the plan that is best over all: it opens two doors.
        (1, {"left": "a", "right": "ba", "rare": "b", "never seen": "ba"}),
    ],
)
def test_a_chain_is_looked_up_for_every_category(least: int, plans: dict[str, str]) -> None:
    policy, _ = trained(ByCategory(), ChainByCategory(length=3, least=least), Doors())
    doors = {**dict.fromkeys(plans, "rare"), "left": "left", "right": "right"}
    found = {category: plays(policy, Doors(), doors[category], category) for category in plans}
    assert found == plans


@pytest.mark.parametrize(
    ("policy", "trainer"),
    [
        (Sequence(), BestSequence()),
        (Sequence(), Halving()),
        (ByCategory(), BestByCategory()),
        (Nearest(), NearestTrainer()),
    ],
)
def test_a_task_without_training_problems_is_refused(policy: Any, trainer: Any) -> None:
    with pytest.raises(UsageError, match="the task has no training problems"):
        trained(policy, trainer, ListTask(0))


def test_nearest_neighbours_need_features_of_one_length_and_rewards() -> None:
    class Grows(ListTask):
        def start(self, problem: Problem, key: Key) -> Step:
            return Step(observation=Observation(features=(1.0,) * (1 + int(problem.id[-1]))))

    class Unsure(ListTask):
        async def verify(self, *_: object, **__: object) -> Scores:
            raise ValueError("no verdict")

    for task, message in ((Grows(), "no fixed length"), (Unsure(), "no episode has a reward")):
        with pytest.raises(UsageError, match=message):
            trained(Nearest(), NearestTrainer(episodes=8), task)


def test_with_length_one_it_is_the_best_single_choice_for_each_category() -> None:
    policy, _ = trained(ByCategory(), BestByCategory(length=1, least=1), Doors())
    steps = {name: list(map(choice_name, runner.steps)) for name, runner in policy.runners.items()}
    # At the right door no single choice pays: to stop at once is best.
    assert steps == {"": ["a"], "left": ["a"], "right": [], "rare": ["b"]}


def test_without_categories_the_look_up_is_the_best_sequence() -> None:
    policy, _ = trained(ByCategory(), ChainByCategory(length=3), Doors(shows="features"))
    assert plays(policy, Doors(), "left", "") == "ba"  # opens both frequent kinds of doors


def test_halving_finds_a_sequence_with_the_episodes_it_was_given() -> None:
    policy, episodes = trained(Sequence(), Halving(episodes=200, length=3), Doors())
    assert [choice_name(step) for step in policy.steps] == ["b", "a"]
    assert 100 < episodes <= 200


@pytest.mark.parametrize("shows", ["features", "text"])
def test_nearest_neighbours_tell_problems_apart_by_what_is_seen(shows: str) -> None:
    task = Doors(shows=shows)
    policy, session = session_of(Nearest(), NearestTrainer(episodes=400), task, Costs())
    assert plays(policy, task, "left", "") == "a"
    assert plays(policy, task, "right", "") == "ba"
    solved = [episode.success for episode in session.episodes]
    rounds = [sum(solved[i : i + 100]) for i in range(0, 400, 100)]
    assert len(solved) == 400
    assert rounds == sorted(set(rounds)), "less is drawn at random from round to round"


def test_untrained_neighbours_choose_at_random_and_never_what_is_blocked() -> None:
    policy = opened(Nearest(stop=False), (Member("a"), Member("b"), Member("c")))
    seen = Observation(blocked=frozenset({"a"}))
    situations = [Situation(Problem("p"), Trajectory(), seen)] * 30
    decisions = policy.decide(situations, [Key(i) for i in range(30)])
    assert {decision.start[0].agent for decision in decisions} == {"b", "c"}
    everything = Observation(blocked=frozenset({"a", "b", "c"}))
    stuck = Situation(Problem("p"), Trajectory(), everything)
    assert policy.decide([stuck], [Key(0)])[0].stop


@pytest.mark.parametrize(
    ("policy", "trainer"),
    [
        (ByCategory(), BestByCategory()),
        (Nearest(), NearestTrainer(episodes=40)),
        (Sequence(), Halving(episodes=40)),
    ],
)
def test_rules_learn_the_same_from_the_same_seed_and_load_what_they_saved(
    policy: Any, trainer: Any
) -> None:
    first, _ = trained(policy, trainer, Doors())
    again, _ = trained(policy, trainer, Doors())
    other = opened(policy, tuple(Member(name) for name in "abc"))
    other.load(first.save())
    assert first.save() == again.save() == other.save()
    for kind in KEYS:
        assert plays(other, Doors(), kind, kind) == plays(first, Doors(), kind, kind)


def test_hashed_words_are_as_long_as_one_and_do_not_depend_on_case() -> None:
    assert sum(x * x for x in hashed("pay the bill")) == pytest.approx(1)
    assert hashed("Pay the BILL") == hashed("pay the bill") != hashed("pay a bill")
    assert not any(hashed(""))


@pytest.mark.parametrize(
    ("policy", "trainer"),
    [
        (ByCategory(), ChainByCategory(length=2, least=2)),
        (Sequence(), BestSequence(length=2, problems=4)),
        (Sequence(), Halving(episodes=40, length=2)),
        (Nearest(), NearestTrainer(episodes=40)),
    ],
    ids=["by-category", "best-sequence", "halving", "nearest"],
)
def test_how_long_agents_take_changes_no_episode_and_no_number_of_one(
    policy: Any, trainer: Any
) -> None:
    first, other = (
        session_of(policy, trainer, Doors(), Dawdles(Key(seed)))[1].episodes for seed in (1, 2)
    )
    assert len(first) > 20
    assert first == other
