"""A session says what can be learned, as it is and as it will be."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from orchestrion import (
    Agent,
    Calls,
    Component,
    Job,
    Key,
    Metrics,
    Output,
    Session,
    Trainer,
    View,
    hookimpl,
    learnable,
)
from orchestrion._engine.calls import CallPath
from orchestrion._plugins import Plugins
from orchestrion._session import EngineSession
from orchestrion.config import Config, from_data
from orchestrion.runs import RunReader, train
from orchestrion.testing._stage import NAME, Stage, building, opened
from tests.coroutines import sync


@frozen
class Learner(Agent):
    """Says what it was taught.

    Args:
        text: what that is.
        loud: how it says so.
    """

    text: str = learnable("nothing")
    loud: bool = False

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """The text."""
        return Output(self.text)


@frozen
class Teacher(Trainer):
    """Teaches the agent `a` another text in each of its iterations; it keeps what it met."""

    iterations: ClassVar[int] = 2
    met: ClassVar[list[Any]] = []

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Adopt a text."""
        self.met.append(session.learnable()["agents.a.text"])
        session.adopt({"agents.a.text": f"lesson {i}"})
        return {}


class Supplies:
    """The agent and the trainer as a plugin."""

    @hookimpl
    def orchestrion_agents(self) -> list[Component]:
        """One."""
        return [Component("learner", f"{__name__}:Learner", "says what it was taught")]

    @hookimpl
    def orchestrion_trainers(self) -> list[Component]:
        """One."""
        return [Component("teacher", f"{__name__}:Teacher", "teaches it")]


def made(**sections: Any) -> Config:
    """A config with the agent."""
    plugins = Plugins()
    plugins.register(Stage(), NAME)
    plugins.register(Supplies(), "supplies")
    data = {
        "seed": 1,
        "task": {"use": "kit-task"},
        "agents": {"a": {"use": "learner"}},
        "policy": {"use": "kit-policy"},
        **sections,
    }
    return from_data(data, plugins=plugins)


def test_what_a_baselines_trainer_learns_is_used_and_kept_for_it_alone(tmp_path: Path) -> None:
    taught = {"policy": {"use": "kit-policy"}, "trainer": {"use": "teacher"}}
    Teacher.met.clear()
    train(made(evaluation={"split": "train", "baselines": {"taught": taught}}), tmp_path / "run")
    assert Teacher.met == ["nothing", "lesson 0"]
    with RunReader(tmp_path / "run") as reader:
        evaluations = reader.load_evaluations()
        kept = {name: results["overlay"] for name, results in evaluations.items()}
    assert kept == {"team": {}, "taught": {"agents.a.text": "lesson 1"}}


@sync
async def test_a_session_gives_learnable_settings_with_what_was_adopted() -> None:
    config = made()
    async with opened(config) as one:
        engine = one.engine(CallPath())
        session = EngineSession(engine, "s", Key(1), Key(2), build=building(config))
        assert session.learnable() == {"agents.a.text": "nothing"}
        async with session.build({"agents.a.text": "a trial"}) as inner:
            assert inner.learnable() == {"agents.a.text": "a trial"}
            jobs = [Job(problem, Key(3)) for problem in inner.problems()]
            assert len(await inner.rollout(jobs)) == len(jobs) > 0
        assert session.trained_on == len(session.episodes) == len(jobs)
        session.adopt({"agents.a.text": "something"})
        assert session.learnable() == {"agents.a.text": "something"}
