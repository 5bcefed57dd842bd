"""Components and surroundings that do the worst they can: what becomes of an episode and a run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrion import (
    Activation,
    Agent,
    Branch,
    BudgetError,
    Calls,
    Episode,
    Job,
    Key,
    Output,
    Problem,
    RunError,
    Scores,
    Status,
    Step,
    Trajectory,
    Turn,
    Usage,
    View,
)
from orchestrion._cli.streams import visible
from orchestrion._engine import deadline
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import check_decided, check_judged
from orchestrion._engine.episode import Engine
from orchestrion._guards import LONGEST
from orchestrion._session import EngineSession
from orchestrion.config import Budget as Caps
from orchestrion.runs import RunReader
from orchestrion.testing import Fixed, ListTask, ScriptedAgent, engine_for
from tests.core.plugin_support import Site, invoke, site_with_config, status, train

PROBLEM = Problem("p", "what is to be done")


def run(engine: Engine) -> Episode:
    return asyncio.run(engine.run("e", PROBLEM, Key(1)))


class Doing(Agent):
    """Does what it is given to do."""

    def __init__(self, work: Callable[[], Awaitable[Output]]) -> None:
        self._work = work

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return await self._work()


def acted(work: Callable[[], Awaitable[Output]], timeout: float | None = None) -> Turn:
    """What becomes of one turn, after which another agent acts."""
    agents = {"a": Doing(work), "b": ScriptedAgent()}
    episode = run(engine_for(agents, Fixed("ab"), timeout=timeout))
    assert [turn.status for turn in episode.turns[1:]] == ["completed"]
    return episode.turns[0]


# ------------------------------------------------------------------ errors of agents


class Panic(BaseException):
    """What a library that is not written in Python may raise."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error",
    [
        Panic("panic"),
        GeneratorExit(),
        SystemExit(3),
        asyncio.CancelledError(),
        MemoryError(),
        Unspeakable(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("waits", [False, True])
def test_whatever_an_agent_raises_is_its_own_failed_turn(error: BaseException, waits: bool) -> None:
    async def work() -> Output:
        await asyncio.sleep(0) if waits else None
        raise error

    turn = acted(work, timeout=5)
    assert turn.status == "failed"
    assert type(error).__name__ in turn.error


def test_a_plain_function_that_runs_out_of_things_is_not_waited_for() -> None:
    class Exhausted(Agent):
        def act(self, view: View, key: Key, calls: Calls) -> Output:
            return next(iter(()))

    turn = run(engine_for({"a": Exhausted()}, Fixed("a"))).turns[0]
    assert turn.error == "RuntimeError: a plain function raised StopIteration()"


def test_ctrl_c_is_nobodys_failed_turn() -> None:
    async def work() -> Output:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        acted(work)


def test_a_novel_of_an_error_is_cut_and_says_so() -> None:
    async def work() -> Output:
        raise ValueError("x" * 1_000_000)

    error = acted(work).error
    assert len(error) < LONGEST + 100
    assert "... (cut here; it has 1000000 characters) (" in error


# ------------------------------------------------------------------ time limits


@pytest.mark.parametrize("ends", ["late", "raises"])
def test_what_comes_after_the_time_limit_does_not_count(ends: str) -> None:
    async def work() -> Output:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ends == "raises":
                raise ValueError("never mind") from None
        return Output("late")

    turn = acted(work, timeout=0.01)
    assert (turn.status, turn.error, turn.output) == ("failed", "no result within 0.01 s", Output())


def test_an_agent_that_takes_no_notice_is_named_and_cancelled_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deadline, "PATIENCE", 0.01)
    cancelled: list[bool] = []

    async def work() -> Output:
        while len(cancelled) < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
        return Output("late")

    assert acted(work, timeout=0.01).error == "no result within 0.01 s"
    (said,) = [r.getMessage() for r in caplog.records if r.name != "orchestrion.run"]
    assert said.startswith("agent 'a' has not ended 0.01 s after its time limit of 0.01 s")


def test_the_minutes_of_a_budget_cut_off_what_is_under_way() -> None:
    budget = Budget(Caps(minutes=0.01 / 60))
    ended = []

    async def work() -> None:
        async with budget.deadline():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

    with pytest.raises(BudgetError, match=r"budget\.minutes: .* are used up"):
        asyncio.run(work())
    assert ended


def test_a_time_out_of_somebody_else_is_not_the_budgets() -> None:
    async def work() -> None:
        async with Budget(Caps(minutes=1)).deadline():
            raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        asyncio.run(work())


# ------------------------------------------------------------------ what a turn states


@pytest.mark.parametrize(
    ("cap", "usage"),
    [
        ({"usd": 1.0}, Usage(usd=0.3)),
        ({"calls": 3}, Usage(calls=1)),
        ({"tokens": 30}, Usage(input_tokens=5, output_tokens=5)),
    ],
)
def test_a_budget_counts_what_turns_state(cap: dict[str, Any], usage: Usage) -> None:
    calls = CallPath(Budget(Caps(**cap)))
    engine = engine_for({"a": ScriptedAgent([Output(usage=usage)])}, Fixed("a" * 10), calls=calls)
    with pytest.raises(BudgetError, match=f"budget.{next(iter(cap))}"):
        run(engine)
    with pytest.raises(BudgetError):
        calls.budget.check()
    assert calls.budget.take_stated() == Usage(), "the journal has it"


def test_a_reused_result_is_spent_once() -> None:
    calls = CallPath(Budget(Caps(calls=1)))
    pure = ScriptedAgent([Output(usage=Usage(calls=1))], pure=True)
    same = Fixed([[Activation("a", reads=())]] * 3)
    episode = run(engine_for({"a": pure}, same, calls=calls))
    assert (episode.usage.calls, calls.budget.spent.calls) == (3, 1)


# ------------------------------------------------------------------ tasks


@pytest.mark.parametrize("method", ["start", "step"])
@pytest.mark.parametrize(
    "gives",
    [None, Step(observation=3), Step(done="x"), SystemExit(0), asyncio.CancelledError()],  # type: ignore[arg-type]
    ids=repr,
)
def test_a_task_that_breaks_its_contract_is_named(method: str, gives: Any) -> None:
    def odd(*_: object) -> Step:
        if isinstance(gives, BaseException):
            raise gives
        return gives  # type: ignore[no-any-return]

    task = type("Odd", (ListTask,), {method: odd})()
    with pytest.raises(RunError, match=rf"Odd.*{method}\(\)"):
        run(engine_for({"a": ScriptedAgent()}, Fixed("a"), task))


class Unsure(ListTask):
    async def verify(self, *_: object, **__: object) -> Scores:
        raise ValueError("the verifier has a bug")


def test_a_verifier_that_fails_while_a_trainer_asks_is_named() -> None:
    session = EngineSession(
        engine_for({"a": ScriptedAgent()}, Fixed("a"), Unsure()), "0/0", Key(1), Key(2)
    )
    branch = Branch(PROBLEM, Trajectory(), Step(), Key(1))
    with pytest.raises(RunError, match=r"task Unsure: verify\(\) raised ValueError"):
        asyncio.run(session.score(branch))


def test_episodes_of_which_none_could_be_verified_are_no_result() -> None:
    session = EngineSession(
        engine_for({"a": ScriptedAgent()}, Fixed("a"), Unsure()), "0/0", Key(1), Key(2)
    )
    jobs = [Job(one, Key(1).child(one.id)) for one in session.problems()]
    episodes = asyncio.run(session.rollout(jobs))
    assert {one.status for one in episodes} == {Status.FAILED}
    with pytest.raises(RunError, match=r"every verification of it failed, each with: .* has a bug"):
        check_judged(episodes, "it")
    fine = Episode("x", PROBLEM, Trajectory(), scores=Scores(1.0, True))
    check_judged([*episodes, fine], "it")
    check_judged([], "it")


def test_a_policy_that_can_never_decide_is_no_result() -> None:
    undecided = Episode("x", PROBLEM, Trajectory(), status=Status.FAILED, error="400, no vectors")
    with pytest.raises(RunError, match="every decision of it failed, each with: 400, no vectors"):
        check_decided([undecided, undecided], "it")
    stopped = Episode("x", PROBLEM, Trajectory())
    check_decided([undecided, stopped], "it")
    check_decided([], "it")


# ------------------------------------------------------------------ a run of it

PARTS = '''
import asyncio
from typing import Any

from orchestrion import Agent, Output, Reward, RewardFunction, Usage


@frozen
class Worker(Agent):
    """Works.

    Args:
        says: what.
        does: what.
        has: its options.
    """

    says: str = "done"
    does: str = ""
    has: Any = None

    @property
    def options(self):
        if self.has == "raise":
            raise ValueError("no options")
        return () if self.has is None else self.has

    async def act(self, view, key, calls):
        if self.does == "wait":
            await asyncio.Event().wait()
        if self.does == "print":
            print("a word from the agent")
        return Output(self.says.encode().decode("unicode_escape"), usage=Usage(calls=1))


@frozen
class Work(Task):
    """Gives odd problems.

    Args:
        ids: of its problems.
        invents: a problem.
    """

    ids: str = ""
    invents: bool = True

    def problems(self, split):
        print("a word from the task")
        return [Problem(f"{self.ids.encode().decode('unicode_escape')}{split}-{i}")
                for i in range(2)]

    def problem_from(self, text):
        return Problem("input", text) if self.invents else None

    async def verify(self, problem, trajectory, state, *, final, calls):
        return Scores(1.0, True)


@frozen
class Judge(RewardFunction):
    """Judges.

    Args:
        fails: on which problems.
    """

    fails: str = "none"

    async def score(self, episode, calls):
        if self.fails in episode.problem.id or self.fails == "all":
            raise ValueError("a bug in my reward")
        return Reward(1.0)


@frozen
class Practice(Trainer):
    """Plays.

    Args:
        iterations: how often.
        rate: a number with a whole one for its default.
    """

    iterations: Any = 2
    rate: float | None = 1

    async def iterate(self, i, session):
        await session.rollout([Job(p, Key(i).child(p.id)) for p in session.problems()])
        return {}
'''
CONFIG = """
task: {use: evil-task}
agents:
  a: {use: evil-agent}
policy: {use: evil-policy}
reward: {use: evil-reward}
trainer: {use: evil-trainer}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    yield from site_with_config(tmp_path, monkeypatch, CONFIG, "evil", PARTS)


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """A command line in a shell, in which `orchestrion` is ours."""
    ours = f'orchestrion() {{ {sys.executable} -m orchestrion "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", ours + command], capture_output=True, text=True, timeout=300
    )


def test_a_bug_in_the_reward_function_takes_no_success_away(site: Site) -> None:
    result = train("reward.fails='-1'")
    assert result.exit_code == 0
    assert "100.0%" in result.stdout
    assert "episodes without a reward, left out: learned 1" in result.stdout
    assert "failed: 0 turns, 0 verifications, 3 rewards" in result.stderr
    assert (
        "3 x reward (evil-reward of orchestrion-evil 1.0): ValueError: a bug in my" in result.stderr
    )


def test_a_reward_function_that_never_works_ends_the_run(site: Site) -> None:
    result = train("reward.fails=all")
    assert result.exit_code == 1
    assert "every reward of iteration 1 failed, each with: " in result.stderr
    assert "reward (evil-reward of orchestrion-evil 1.0): ValueError: a bug" in result.stderr
    judged = invoke("eval", "c.yaml", "-o", "reward.fails=test")
    assert judged.exit_code == 1
    assert "every reward of the evaluation of policy (untrained) failed" in judged.stderr


def test_minutes_end_a_run_in_the_middle_of_a_turn_and_it_can_be_resumed(site: Site) -> None:
    result = train("budget.minutes=0.002", "agents.a.does=wait")
    assert result.exit_code == 4
    assert "budget.minutes: 0.002 minutes are used up" in result.stderr
    assert status() == "budget"
    assert "-o budget.minutes=N    # N: the new cap" in result.stderr
    one = ["-o", "budget.minutes=0.002", "-o", "agents.a.does=wait"]
    for command in (["eval", "c.yaml"], ["run", "c.yaml", "--input", "x"]):
        assert invoke(*command, *one).exit_code == 4


def test_a_run_that_its_budget_ends_says_what_was_wrong_in_training(site: Site) -> None:
    result = train("budget.calls=3", "reward=null")
    assert result.exit_code == 4
    assert "warning: no episode of training has a reward" in result.stderr


def test_what_turns_stated_is_still_spent_when_the_run_is_resumed(site: Site) -> None:
    assert train("budget.calls=3").exit_code == 4
    with RunReader(Path("runs/c-1")) as reader:
        assert (reader.spend().calls, len(reader.iterations())) == (4, 1)
    assert "4 of 3 spent" in invoke("resume", "c-1").stderr
    assert invoke("resume", "c-1", "-o", "budget.calls=null").exit_code == 0


def test_a_config_edited_in_a_runs_folder_is_used_by_nobody(site: Site) -> None:
    assert train().exit_code == 0
    path = Path("runs/c-1/config.yaml")
    path.write_text("# only a remark\n" + path.read_text())
    assert invoke("eval", "c-1").exit_code == 0
    path.write_text(path.read_text().replace("says: done", "says: something else"))
    for words in (["eval", "c-1"], ["run", "c-1", "--input", "x"], ["resume", "c-1"]):
        result = invoke(*words)
        assert result.exit_code == 2
        assert "as it was" in result.stderr
        assert "(agents.a.says)" in result.stderr


@pytest.mark.parametrize(
    ("override", "where", "said"),
    [
        ("agents.a.has=raise", "agents.a (evil-agent", "options or role raised ValueError"),
        ("agents.a.has=3", "agents.a (evil-agent", "options or role raised TypeError"),
        ("agents.a.has=xy", "agents.a (evil-agent", "options or role raised TypeError"),
        ("agents.a.has=[x, x]", "agents.a (evil-agent", "options must be different texts"),
        ("agents.a.has=['']", "agents.a (evil-agent", "options must be different texts"),
        (
            r"task.ids='\ud800'",
            "task (evil-task",
            "problems('train'): Problem.id must be a non-empty string",
        ),
    ],
)
def test_validate_names_the_component_that_breaks_its_contract(
    site: Site, override: str, where: str, said: str
) -> None:
    result = invoke("validate", "c.yaml", "-o", override)
    assert result.exit_code == 1
    assert f"{where} of orchestrion-evil 1.0): {said}" in result.stderr


@pytest.mark.parametrize("count", ["-1", "2.5"])
def test_iterations_are_a_count(site: Site, count: str) -> None:
    for words in (["train", "c.yaml"], ["train", "c.yaml", "--dry-run"]):
        result = invoke(*words, "-o", f"trainer.iterations={count}")
        assert result.exit_code == 1
        assert (
            "trainer (evil-trainer of orchestrion-evil 1.0): iterations must be a count, not"
            in result.stderr
        )


def test_a_task_that_invents_no_problem_is_named(site: Site) -> None:
    result = invoke("run", "c.yaml", "--input", "x", "-o", "task.invents=false")
    assert result.exit_code == 1
    assert (
        "task (evil-task of orchestrion-evil 1.0): problem_from returned a NoneType"
        in result.stderr
    )


# ------------------------------------------------------------------ what is printed, and where


@pytest.mark.parametrize(
    "words",
    [
        ["train", "c.yaml"],
        ["train", "c.yaml", "--dry-run"],
        ["eval", "c.yaml"],
        ["run", "c.yaml", "--input", "x"],
        ["validate", "c.yaml"],
    ],
    ids=" ".join,
)
def test_json_is_json_whatever_components_print(site: Site, words: list[str]) -> None:
    result = invoke(*words, "--json", "-o", "agents.a.does=print")
    assert json.loads(result.stdout)["schema"] == 1
    assert "a word from the" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "orchestrion train c.yaml 2>&1 | head -1",
        "orchestrion train c.yaml 2> /dev/full",
        "orchestrion train c.yaml 2>&-",
        "orchestrion train c.yaml >&-",
        "orchestrion train c.yaml > /dev/full",
        "orchestrion train c.yaml > /dev/full 2>&1",
    ],
)
def test_training_goes_on_when_nobody_can_read_of_it(site: Site, command: str) -> None:
    done = shell(command)
    assert "internal error" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert status() == "completed"
    assert Path("runs/c-1/exports/summary.json").exists()
    assert done.returncode == (1 if "> /dev/full" in command and "2> " not in command else 0)


def test_a_terminal_is_not_obeyed_by_what_agents_say(site: Site) -> None:
    words = ["run", "c.yaml", "--input", "x", "-o", r"agents.a.says='foo\x07'"]
    result = invoke(*words)
    assert result.stdout == "foo\x07\n", "a file gets it as it is"
    assert r"foo\x07" in result.stderr
    assert visible("a\tb\nc\r\x9b\x00é") == "a\tb\nc\\x0d\\x9b\\x00é"
    assert visible("yes\u202eno") == "yes\\u202eno", "or it reads in another order"


def test_half_a_surrogate_pair_is_stored_and_shown(site: Site) -> None:
    odd = r"agents.a.says='\ud800'"
    assert train(odd).exit_code == 0
    for words in (["runs", "show", "c-1", "--episode", "0/0/0"], ["runs", "export", "c-1"]):
        assert invoke(*words).exit_code == 0
    words = ["run", "c.yaml", "--input", "x", "-o", odd]
    assert invoke(*words).stdout == "\\ud800\n"
    told = json.loads(invoke(*words, "--json").stdout)
    assert told["episode"]["trajectory"][0]["output"]["content"] == "\ud800"


# ------------------------------------------------------------------ names and folders


@pytest.mark.parametrize("name", [r'"a\0b"', "a" * 300, "~nobody-is-called-so/x"])
def test_a_folder_that_cannot_be_is_refused(site: Site, name: str) -> None:
    result = train(f"run.directory={name}")
    assert result.exit_code == 2
    assert "run.directory: " in result.stderr
    assert "cannot be used" in result.stderr


def test_a_tilde_is_the_home_folder(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    home = site.folder.parent / "home"
    monkeypatch.setenv("HOME", str(home))
    assert train("run.directory=~/all").exit_code == 0
    assert (home / "all" / "c-1" / "run.db").exists()


def test_an_empty_name_is_no_config(site: Site) -> None:
    Path("orchestrion.yaml").write_text(CONFIG)
    assert invoke("validate").exit_code == 0
    result = invoke("validate", "")
    assert result.exit_code == 2
    assert "the name of the config is empty" in result.stderr
