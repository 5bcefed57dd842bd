"""The trainer `bandit`: what it tries, what it learns of it, and what it keeps."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from math import exp
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, field, frozen
from orchestrion_encoders.counts import Counts
from orchestrion_encoders.hints import Hints
from orchestrion_values.bandit import Bandit, batches
from orchestrion_values.bandit_learner import BanditLearner
from orchestrion_values.bandit_model import BanditModel, BanditView
from orchestrion_values.policy import RecordedChoice, ValuePolicy
from orchestrion_values.texts import fit_texts

from orchestrion import (
    Episode,
    Job,
    Key,
    Member,
    Observation,
    OpenContext,
    Problem,
    Reward,
    Situation,
    Trajectory,
    UsageError,
    replace,
)
from orchestrion.runs import train
from tests.plugins.values.support import Notes, relay

TEAM = (Member("a"), Member("b"), Member("c"))
Pay = Callable[[Problem, str], float | None]


def team() -> ValuePolicy:
    return ValuePolicy([Counts()], OpenContext("policy", Key(1), TEAM), stop=False)


@frozen
class Asked:
    """A session whose episodes are one choice each, and what was chosen in all of them."""

    pay: Pay
    policy: ValuePolicy = field(factory=team)
    questions: Sequence[Problem] = (Problem("p", "x"),)
    key: Key = Key(5)
    chosen: list[tuple[str, str]] = field(factory=list)
    seen: Observation = Observation()

    def problems(self, split: str = "train") -> Sequence[Problem]:
        return self.questions

    async def rollout(self, jobs: Sequence[Job]) -> list[Episode]:
        result = []
        for job in jobs:
            shown = Situation(job.problem, Trajectory(), self.seen, training=True)
            assert job.policy is not None
            (decision,) = job.policy.decide([shown], [job.key])
            assert isinstance(decision.record, RecordedChoice)
            name = self.policy.names[decision.record.choice]
            self.chosen.append((job.problem.id, name))
            paid = self.pay(job.problem, name)
            reward = None if paid is None else Reward(paid)
            result.append(Episode("e", job.problem, Trajectory(), (decision,), reward=reward))
        return result


def learner(**settings: Any) -> BanditLearner:
    return BanditLearner(Bandit(**settings), OpenContext("trainer", Key(3), TEAM))


def trained(session: Any, **settings: Any) -> BanditLearner:
    trainer = learner(**settings)
    for i in range(trainer.iterations):
        asyncio.run(trainer.iterate(i, session))
    return trainer


def taken(session: Asked, problem: Problem) -> str:
    """What the trained policy chooses."""
    shown = Situation(problem, Trajectory(), Observation())
    return session.policy.decide([shown], [Key(0)])[0].start[0].agent


@pytest.mark.parametrize("episodes", [1, 7, 16, 25, 300, 5000])
def test_iterations_add_up_to_the_episodes_of_the_run(episodes: int) -> None:
    for algorithm in ("thompson", "rejects"):
        assert sum(batches(Bandit(episodes, algorithm))) == episodes


@pytest.mark.parametrize("algorithm", ["thompson", "linucb", "rejects"])
@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_it_finds_the_best_choice_whatever_the_scale_of_rewards(
    algorithm: str, scale: float
) -> None:
    session = Asked(lambda problem, name: scale * {"a": 0.3, "b": 0.5, "c": 0.2}[name])
    trained(session, episodes=90, algorithm=algorithm)
    assert taken(session, Problem("new")) == "b"
    tries = Counter(name for _, name in session.chosen)
    assert tries["b"] > tries["c"]


def test_situations_without_any_hint_are_judged_like_those_with_some() -> None:
    policy = ValuePolicy([Hints(), Counts()], OpenContext("policy", Key(1), TEAM), stop=False)
    seen = Observation(hints={"a": (0.1,), "b": (0.9,)})
    session = Asked(lambda problem, name: float(name == "b"), policy, seen=seen)
    trained(session, episodes=40)
    again = ValuePolicy([Hints(), Counts()], OpenContext("policy", Key(1), TEAM), stop=False)
    again.load(policy.save())
    assert taken(evolve(session, policy=again), Problem("new")) == "b"


@pytest.mark.parametrize("algorithm", ["thompson", "linucb"])
def test_a_choice_without_rewards_is_tried_less(algorithm: str) -> None:
    session = Asked(lambda problem, name: None if name == "a" else 0.9 if name == "b" else 0.1)
    trained(session, episodes=120, algorithm=algorithm)
    late = Counter(name for _, name in session.chosen[60:])
    assert late["a"] < 10
    assert taken(session, Problem("p")) == "b"


def test_what_is_best_may_depend_on_the_category() -> None:
    questions = [Problem(f"p{i}", "x", category="odd" if i % 2 else "even") for i in range(40)]
    session = Asked(
        lambda problem, name: float(name == {"odd": "a", "even": "c"}[str(problem.category)]),
        questions=questions,
    )
    trained(session, episodes=200)
    assert taken(session, Problem("new", "x", category="odd")) == "a"
    assert taken(session, Problem("new", "x", category="even")) == "c"
    hidden = Asked(session.pay, questions=questions)
    trained(hidden, episodes=200, category="hidden")
    choices = {taken(hidden, Problem("new", "x", category=name)) for name in ("odd", "even")}
    assert len(choices) == 1


def test_what_is_best_may_depend_on_the_words() -> None:
    texts = [f"add {i} and {i + 3}" if i % 2 else f"a poem of the month {i}" for i in range(40)]
    session = Asked(
        lambda problem, name: float(name == ("a" if "add" in problem.text else "c")),
        questions=[Problem(f"p{i}", text) for i, text in enumerate(texts)],
    )
    trained(session, episodes=120, feedback="full", text=True, neighbours=5)
    assert taken(session, Problem("new", "add 100 and 7")) == "a"
    assert taken(session, Problem("new", "a poem of the spring")) == "c"


@pytest.mark.parametrize(
    ("algorithm", "category", "chosen", "means", "deviations", "propensity"),
    [
        (
            "thompson",
            "shown",
            "abacabcabbccaabbcccbbacbbbbbbbbbbbbbbaabbbbbbcbbbbbbbbbbbbbb",
            [0.759667156141263, 1.1456908344729582, 0.7415565345065506],
            [0.17900461658434047, 0.09212510847942645, 0.16588846895964882],
            0.9453125,
        ),
        (
            "linucb",
            "shown",
            "abacabcabbccaabbcbcbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
            [0.7506493506469167, 1.2296674225242175, 0.8660894660870322],
            [0.21538036275954503, 0.09332662707946184, 0.21538036275954503],
            1.0,
        ),
        (
            "rejects",
            "hidden",
            "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcbabbcbcbcbcbcbc",
            [0.8411764705872876, 1.0402777777771066, 0.9833333333326011],
            [0.16232328219029668, 0.13661539917433688, 0.14269013073432327],
            0.5,
        ),
    ],
)
def test_a_training_tries_and_believes_the_same_on_every_machine(
    algorithm: str,
    category: str,
    chosen: str,
    means: list[float],
    deviations: list[float],
    propensity: float,
) -> None:
    questions = [Problem(f"p{i}", "x", category="odd" if i % 2 else "even") for i in range(10)]
    session = Asked(
        lambda problem, name: ("abc".index(name) * 3 + int(problem.id[1:])) % 7 / 3,
        questions=questions,
    )
    trainer = trained(session, episodes=60, algorithm=algorithm, category=category)
    assert "".join(name for _, name in session.chosen) == chosen
    shown = [Situation(questions[1], Trajectory(), Observation())]
    assert isinstance(session.policy.model, BanditModel)
    believed = session.policy.model.believed(shown)
    assert believed[0][0] == pytest.approx(means, rel=1e-6)
    assert believed[1][0] == pytest.approx(deviations, rel=1e-6)
    [decision] = trainer.explorer(session.policy).decide(shown, [Key(2)])
    assert exp(decision.logp or 0.0) == pytest.approx(propensity, rel=1e-6)


def test_full_feedback_plays_every_choice_on_every_problem_once() -> None:
    questions = [Problem(f"p{i}", "x") for i in range(4)]
    session = Asked(lambda problem, name: 0.5, questions=questions)
    trained(session, episodes=12, feedback="full")
    assert sorted(session.chosen) == [(f"p{i}", name) for i in range(4) for name in "abc"]


@pytest.mark.parametrize("forced", [{"feedback": "full"}, {"algorithm": "rejects"}])
def test_where_the_first_choice_is_given_encoders_still_prepare(forced: dict[str, Any]) -> None:
    class Asking(Counts):
        prepares = True

    asking = ValuePolicy([Asking()], OpenContext("policy", Key(1), TEAM), stop=False)
    session: Any = Asked(lambda problem, name: 0.5, asking)
    assert all(job.policy.prepares for job in learner(**forced)._jobs(0, session, asking))  # type: ignore[union-attr]


def test_the_logged_probability_is_how_often_a_choice_is_taken() -> None:
    session = Asked(lambda problem, name: {"a": 0.5, "b": 0.45, "c": 0.0}[name])
    trainer = trained(session, episodes=40)
    explorer = trainer.explorer(session.policy)
    shown = Situation(Problem("p", "x"), Trajectory(), Observation())
    keys = [Key(9).child(i) for i in range(2000)]
    decisions = explorer.decide([shown] * len(keys), keys)
    counts = Counter(decision.start for decision in decisions)
    for decision in decisions:
        share = counts[decision.start] / len(keys)
        assert decision.logp is not None
        assert share == pytest.approx(exp(decision.logp), abs=0.04)


def test_a_warm_start_is_used_and_can_be_outvoted(tmp_path: Path) -> None:
    before = Asked(lambda problem, name: float(name == "a"))
    old = trained(before, episodes=600)
    assert old.tries is not None
    file = tmp_path / "start.json"
    file.write_text(json.dumps(old.tries.exported()))
    same = Asked(before.pay)
    trained(same, episodes=16, start=file, cap=20)
    changed = Asked(lambda problem, name: float(name == "b"))
    trained(changed, episodes=200, start=file, cap=20)
    assert taken(same, Problem("p")) == "a"
    assert taken(changed, Problem("p")) == "b"


def test_a_start_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"trainer\.start"):
        trained(Asked(lambda problem, name: 1.0), episodes=4, start=tmp_path / "none.json")


@pytest.mark.parametrize("text", [False, True])
def test_an_interrupted_run_resumes_with_equal_results(text: bool) -> None:
    questions = [Problem(f"p{i}", f"word{i} of {i}", category=f"g{i % 2}") for i in range(9)]

    def pay(problem: Problem, name: str) -> float:
        return ("abc".index(name) + int(problem.id[1:])) % 3 / 2

    whole, cut = Asked(pay, questions=questions), Asked(pay, questions=questions)
    settings = {"episodes": 60, "text": text}
    end = trained(whole, **settings)
    first = learner(**settings)
    for i in range(2):
        asyncio.run(first.iterate(i, cut))  # type: ignore[arg-type]
    second, fresh = learner(**settings), team()
    second.load(first.save())
    fresh.load(cut.policy.save())
    rest = Asked(pay, fresh, questions)
    for i in range(2, second.iterations):
        asyncio.run(second.iterate(i, rest))  # type: ignore[arg-type]
    assert cut.chosen + rest.chosen == whole.chosen
    assert second.save() == end.save()
    assert fresh.save() == whole.policy.save()
    assert isinstance(fresh.model, BanditModel)


def test_of_long_episodes_it_says_what_plans_them(tmp_path: Path) -> None:
    notes = Notes()
    train(relay({"use": "bandit", "episodes": 60}), tmp_path / "run", notes)
    assert "`optimistic` or `fitted-q` may learn more here" in notes.told["steps"]


def test_a_guessed_category_goes_by_the_words_of_the_problem() -> None:
    problems = [
        Problem(f"{kind}{i}", f"{kind} {i}", category=kind) for kind in "ab" for i in range(9)
    ]
    texts = fit_texts([p.text for p in problems], [p.category for p in problems], seed=1)
    view = BanditView(team(), ("a", "b"), True, texts)
    hidden = [replace(problem, category=None) for problem in problems]
    assert view._category(hidden).argmax(axis=1).tolist() == [0] * 9 + [1] * 9


def test_guessing_a_category_needs_words() -> None:
    with pytest.raises(ValueError, match="text: true"):
        Bandit(category="guessed")
