"""What a person does from Python: own classes, `await`, teams put together by hand."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from orchestrion import Agent, ConfigError, Key, Output, Problem, Status, UsageError
from orchestrion._blocking import blocking
from orchestrion.config import Config, from_data
from orchestrion.runs import Progress, atrain, open_run, train
from orchestrion.testing import Fixed, ScriptedAgent, engine_for, opened_engine
from orchestrion.testing._stage import KitAgent, KitPolicy, KitReward, KitTask
from tests.core import planted

PROBLEM = Problem("p", "what is to be done")


def bandit(policy: str = "Bandit", **more: Any) -> Config:
    """A team in which only "c" is of use, and a policy that has to find that out."""
    return from_data(
        {
            "seed": 2,
            "task": {"use": KitTask, "solver": "c"},
            "agents": {name: {"use": KitAgent} for name in "abc"},
            "policy": {"use": getattr(planted, policy)},
            "reward": {"use": KitReward},
            "trainer": {"use": planted.Practice},
            **more,
        }
    )


def test_a_run_trains_classes_of_ones_own_and_a_later_process_finds_them(tmp_path: Path) -> None:
    config = bandit()
    assert config.resolved()["policy"]["use"] == "tests.core.planted:Bandit"

    class Told(Progress):
        """Counts."""

        count = 0

        def iteration(self, iteration: int, metrics: Any, seconds: float) -> None:
            self.count += 1

    told = Told()
    report = train(config, tmp_path / "run", told).report
    assert (told.count, report.contenders[0].solved.mean) == (3, 1.0)

    async def later() -> float:
        async with open_run(tmp_path / "run") as trained:
            return (await trained.evaluate()).contenders[0].solved.mean

    assert asyncio.run(later()) == 1.0
    # It goes on where it was, so nothing is left to be done.
    assert train(config, tmp_path / "run", told).report == report
    assert told.count == 3


def test_an_error_has_no_other_cause_because_no_event_loop_ran() -> None:
    async def afail() -> None:
        await asyncio.sleep(0)
        raise UsageError("shut")

    with pytest.raises(UsageError) as caught:
        blocking(afail)()
    assert caught.value.__context__ is None


@pytest.mark.parametrize("policy", ["EmptyLoad", "NoLoad", "NoSave"])
def test_a_run_reports_what_a_later_process_finds(policy: str, tmp_path: Path) -> None:
    """Not what the policy knew before it was saved and loaded."""

    async def both() -> tuple[float, float]:
        report = (await atrain(bandit(policy), tmp_path / "run")).report
        async with open_run(tmp_path / "run") as trained:
            again = await trained.evaluate()
        return report.contenders[0].solved.mean, again.contenders[0].solved.mean

    reported, found = asyncio.run(both())
    assert reported == found == 0.0


def test_a_config_has_no_versions(tmp_path: Path) -> None:
    config = tmp_path / "team.yaml"
    config.touch()

    async def use() -> None:
        async with open_run(f"{config}@999"):
            pass

    with pytest.raises(UsageError, match=r"@999: .* is a config; only a run has versions"):
        asyncio.run(use())


def test_a_load_that_brings_nothing_back_is_noted(tmp_path: Path) -> None:
    class Told(Progress):
        """Keeps what it is told."""

        notes: list[tuple[str, str]] = []  # noqa: RUF012

        def noted(self, path: str, name: str, text: str) -> None:
            self.notes.append((path, text))

    train(bandit("EmptyLoad"), tmp_path / "run", Told())
    ((path, text),) = Told.notes
    assert path == "policy"
    assert "after load(), save() gives something else" in text


def test_the_command_line_imports_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "my_parts.py").write_text(
        "from attrs import frozen\n"
        "from orchestrion import Agent, Output\n\n"
        "@frozen\n"
        "class Shout(Agent):\n"
        "    def act(self, view, key, calls):\n"
        "        return Output(view.problem.text.upper())\n"
    )
    stage = "orchestrion.testing._stage"
    (tmp_path / "c.yaml").write_text(
        f"task: {{use: '{stage}:KitTask'}}\n"
        "agents: {a: {use: 'my_parts:Shout'}}\n"
        f"policy: {{use: '{stage}:KitPolicy'}}\n"
    )
    command = [sys.executable, "-m", "orchestrion", "run", "c.yaml", "--problem", "test-0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, done.stderr)
    assert "TEST PROBLEM 0" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (KitAgent(), "agents.a.use: a KitAgent cannot stand in a config"),
        (KitAgent(), "by its class (with the methods of `Agent`, see docs/python.md)"),
        ("textwrap:dedent", "is a function, not a class; write an attrs class with the methods of"),
        ("no_such_module:Mine", "nor is there a module 'no_such_module'"),
        ("orchestrion.testing._stage:Mine", "has no attribute 'Mine'"),
        (Path, "write @attrs.frozen above"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(value: Any, words: str) -> None:
    data = {
        "task": {"use": KitTask},
        "agents": {"a": {"use": value}},
        "policy": {"use": KitPolicy},
    }
    with pytest.raises(ConfigError) as caught:
        from_data(data)
    assert words in str(caught.value)
    assert "agents.a" in str(caught.value)


def test_a_class_that_no_later_process_finds_is_refused_or_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @frozen
    class Inside(Agent):
        """Made in a function."""

    data: dict[str, Any] = {
        "task": {"use": KitTask},
        "agents": {"a": {"use": Inside}},
        "policy": {"use": KitPolicy},
    }
    with pytest.raises(ConfigError, match="made inside a function"):
        from_data(data)
    # As in a notebook cell.
    Inside.__module__, Inside.__qualname__ = "__main__", "Inside"
    monkeypatch.setattr(sys.modules["__main__"], "Inside", Inside, raising=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert from_data(data).resolved()["agents"]["a"]["use"] == "__main__:Inside"
    assert "a later `orchestrion run` or `resume` cannot load it" in str(told[0].message)


# ---------------------------------------------------------------------------- by hand


def test_an_episode_of_which_nothing_came_has_failed_and_has_no_answer() -> None:
    failing, fine = ScriptedAgent([ValueError("no draft")]), ScriptedAgent([Output("")])

    async def run(*steps: str) -> Any:
        engine = engine_for({"failing": failing, "fine": fine}, Fixed(steps))
        return await engine.run("e", PROBLEM, Key(1))

    nothing = asyncio.run(run("failing"))
    assert (nothing.status, nothing.answer) == (Status.FAILED, None)
    assert "none of its 1 turns gave anything" in nothing.error
    assert "failing: ValueError: no draft" in nothing.error
    something = asyncio.run(run("fine", "failing"))
    assert (something.status, something.answer) == (Status.COMPLETED, "")
    assert asyncio.run(run()).status is Status.COMPLETED


def test_what_has_open_is_opened_or_refused() -> None:
    with pytest.raises(UsageError, match=r"Bandit has open\(\).*opened_engine"):
        engine_for({"a": ScriptedAgent()}, planted.Bandit())

    async def run() -> Any:
        async with opened_engine({"a": ScriptedAgent()}, planted.Bandit()) as engine:
            return await engine.run("e", PROBLEM, Key(1))

    assert asyncio.run(run()).answer == "ok"


def test_progress_can_be_used_as_it_is() -> None:
    Progress().iteration(0, {}, 1.0)


def test_a_file_where_a_mapping_is_expected_is_refused() -> None:
    with pytest.raises(UsageError, match=r"from_data: expected a mapping, got 'c\.yaml' \(a str"):
        from_data("c.yaml")  # type: ignore[arg-type]
