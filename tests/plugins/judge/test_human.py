"""A person is asked once, on the terminal or by a question that waits, and never in vain."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
from pathlib import Path
from typing import Any

import pytest
from orchestrion_judge.human import (
    Human,
    HumanReward,
    LineReader,
    Question,
    Questions,
    ask_line,
    read_score,
)
from orchestrion_judge.rubric import Scale

from orchestrion import BudgetError, Key, OpenContext, Reward, RunError, Status, UsageError
from orchestrion._engine.calls import CallPath, Recorded
from orchestrion._engine.replaying import ReplayPath
from orchestrion.runs import RunReader
from tests.plugins.judge.support import calls, episode, orchestrion


class Memory:
    """A journal and a cache in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, Recorded] = {}

    def get(self, key: str) -> Recorded | None:
        row = self.rows.get(key)
        return row if row is not None and row.answer is not None else None

    def put_many(self, rows: list[Recorded]) -> None:
        self.rows.update({row.key: row for row in rows})

    def put(self, row: Recorded) -> None:
        self.rows[row.key] = row


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what is typed."""

    def types(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))

    return types


def on_terminal(**settings: Any) -> HumanReward:
    return HumanReward(Human(**settings), "reward", True, None)


def by_queue(folder: Path, **settings: Any) -> HumanReward:
    return HumanReward(Human(gather=0.01, **settings), "reward", False, Questions(folder))


def score(reward: HumanReward, *said: str, **more: Any) -> Any:
    """The reward; None if it is missing."""
    handle = calls(more.pop("path", None), more.pop("name", "test"))
    return asyncio.run(reward.score(episode(*said, **more), handle))


# ---------------------------------------------------------------------------- on a terminal


def test_what_is_typed_is_a_share_of_the_scale(typing: Any, capsys: Any) -> None:
    typing("7\n")
    assert score(on_terminal(), "42") == Reward(
        0.7, parts={"human": 0.7, "human.score": 7, "human.length": 2}
    )
    shown = capsys.readouterr().err
    assert "What is 17 + 25?" in shown
    assert "How good is this work? (integer from 0 to 10; empty to skip)" in shown


def test_a_line_that_is_no_score_is_asked_for_again(typing: Any, capsys: Any) -> None:
    typing("very good\n11\n9.5\n8\n")
    assert score(on_terminal(tries=3), "42") is None
    assert capsys.readouterr().err.count("that is no integer from 0 to 10") == 3
    typing("very good\n8\n")
    assert score(on_terminal(tries=3), "42").total == 0.8


def test_a_question_that_is_skipped_gives_no_reward_and_is_not_asked_again(
    typing: Any, capsys: Any
) -> None:
    path = CallPath(journal=Memory())
    typing("\n")
    assert score(on_terminal(), "42", path=path) is None
    assert "skipped" in capsys.readouterr().err
    typing("10\n")
    assert score(on_terminal(), "42", path=path) is None


def test_the_end_of_input_is_an_error_that_says_what_to_do_and_is_no_answer(typing: Any) -> None:
    memory = Memory()
    typing("")
    with pytest.raises(RunError, match="set `ask: queue`"):
        score(on_terminal(), "42", path=CallPath(journal=memory))
    typing("9\n")
    assert score(on_terminal(), "42", path=CallPath(journal=memory)) is not None


def test_an_answer_is_recorded_so_that_a_resumed_run_does_not_ask(typing: Any) -> None:
    memory = Memory()
    typing("9\n")
    first = score(on_terminal(), "42", path=CallPath(journal=memory))
    typing("")
    assert score(on_terminal(), "42", path=CallPath(journal=memory)) == first
    assert score(on_terminal(), "42", path=ReplayPath(memory)) == first


def test_equal_work_in_another_episode_is_not_asked_about_again(typing: Any) -> None:
    path = CallPath(cache=Memory())
    typing("9\n")
    first = score(on_terminal(), "42", path=path, name="one")
    assert score(on_terminal(), "42", path=path, name="two", id="0/0/1") == first


def test_nobody_is_asked_about_a_stopped_run_or_silence(typing: Any) -> None:
    typing("")
    assert score(on_terminal(), "42", status=Status.LIMIT) == Reward(0, parts={"unfinished": 1})
    assert score(on_terminal()) == Reward(0, parts={"empty": 1})


def test_one_question_at_a_time_stands_on_the_terminal(typing: Any, capsys: Any) -> None:
    typing("1\n2\n3\n")
    path, reward = CallPath(), on_terminal()

    async def all_at_once() -> list[Reward | None]:
        return await asyncio.gather(
            *(reward.score(episode(f"answer {i}"), calls(path, str(i))) for i in range(3))
        )

    totals = sorted(one.total for one in asyncio.run(all_at_once()) if one is not None)
    assert totals == [0.1, 0.2, 0.3]
    shown = capsys.readouterr().err
    assert [shown.count(f"answer {i}") for i in range(3)] == [1, 1, 1]


def test_a_terminal_that_says_nothing_does_not_keep_the_program_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)

        async def give_up() -> None:
            async with asyncio.timeout(0.3):
                await ask_line()

        with pytest.raises(TimeoutError):
            asyncio.run(give_up())
    os.close(master)


def test_lines_that_come_together_are_given_one_by_one() -> None:
    import threading

    reading, writing = os.pipe()
    os.write(writing, b"1\n2\nlast")
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        reader, stop = LineReader(stream), threading.Event()
        assert [reader.line(stop) for _ in range(4)] == ["1\n", "2\n", "last", None]


# ---------------------------------------------------------------------------- by questions


def test_without_an_answer_the_run_pauses_and_the_question_waits(tmp_path: Path) -> None:
    folder = tmp_path / "questions"
    with pytest.raises(BudgetError, match=r"1 questions wait for a person in .*questions; answer"):
        score(by_queue(folder), "42")
    [question] = Questions(folder).waiting()
    assert question.material == (("problem", "What is 17 + 25?"), ("work", "42"))
    Questions(folder).answer(question, {"score": 9})
    assert Questions(folder).waiting() == []
    assert score(by_queue(folder), "42").total == 0.9


def test_questions_that_come_together_are_gathered_before_the_run_pauses(tmp_path: Path) -> None:
    reward, path = by_queue(tmp_path), CallPath()

    async def all_at_once() -> list[Reward | BaseException | None]:
        return await asyncio.gather(
            *(reward.score(episode(f"answer {i}"), calls(path, str(i))) for i in range(5)),
            return_exceptions=True,
        )

    found = asyncio.run(all_at_once())
    assert all(isinstance(one, BudgetError) for one in found)
    assert len(Questions(tmp_path).waiting()) == 5


def test_a_run_that_does_not_wait_goes_on_without_the_reward_and_stays_so(tmp_path: Path) -> None:
    memory = Memory()
    reward = by_queue(tmp_path, pending="missing")
    assert score(reward, "42", path=CallPath(journal=memory), name="one") is None
    [question] = Questions(tmp_path).waiting()
    Questions(tmp_path).answer(question, {"score": 5})
    # A resumed run repeats itself; a later episode with the same work has the answer.
    assert score(reward, "42", path=CallPath(journal=memory), name="one") is None
    later = score(reward, "42", path=CallPath(journal=memory), name="two")
    assert later.total == 0.5


@pytest.mark.parametrize(
    "text",
    ["", "7", '{"score": 11}', '{"score": "7"}', '{"skipped": false}', '{"score": 7, "a": 1}'],
)
def test_an_unreadable_answer_file_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(BudgetError):
        score(by_queue(tmp_path), "42")
    [question] = tmp_path.glob("*.question.json")
    answer = question.with_name(question.name.replace("question", "answer"))
    answer.write_text(text)
    with pytest.raises(RunError, match=answer.name):
        score(by_queue(tmp_path), "42")


@pytest.mark.parametrize("text", ["{}", '{"question": "?", "scale": {"low": 2, "high": 1}}', "[]"])
def test_an_unreadable_question_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.question.json").write_text(text)
    with pytest.raises(RunError, match=r"a\.question\.json: is not a"):
        Questions(tmp_path).waiting()


def test_a_person_reads_every_turn_of_a_transcript(typing: Any, capsys: Any) -> None:
    typing("1\n")
    assert score(on_terminal(show="transcript"), "41", "no, 42").parts["human.length"] == 8
    shown = capsys.readouterr().err
    assert "--- turn 1 by agent 1\n41\n--- turn 2 by agent 2\nno, 42\n" in shown


def test_a_question_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    question = Question("How?", Scale(-1, 1, 0.5), (("work", "a\u2028b\x00"), ("work", "")))
    Questions(tmp_path).ask(question)
    assert Questions(tmp_path).waiting() == [question]
    assert read_score("0.5", question.scale) == 0.5
    assert [read_score(text, question.scale) for text in ("", "nan", "1e3", "0.4")] == [None] * 4


# ---------------------------------------------------------------------------- opening


def opened(context: OpenContext, **settings: Any) -> tuple[HumanReward, list[str]]:
    notes: list[str] = []

    async def enter() -> HumanReward:
        from attrs import evolve

        noting = evolve(context, note=lambda name, text: notes.append(text))
        async with Human(**settings).open(noting) as reward:
            return reward

    return asyncio.run(enter()), notes


def test_without_a_terminal_questions_wait_in_the_runs_folder(tmp_path: Path, typing: Any) -> None:
    typing("")
    reward, notes = opened(OpenContext("reward", Key(), directory=tmp_path))
    assert not reward.terminal
    assert notes == [f"by questions in {tmp_path / 'questions'}"]
    reward, notes = opened(OpenContext("reward", Key(), directory=tmp_path), ask="terminal")
    assert reward.terminal
    assert notes == ["on the terminal; run.timeout also holds for answers"]


def test_with_neither_terminal_nor_folder_it_is_refused_before_anything_runs(typing: Any) -> None:
    typing("")
    with pytest.raises(UsageError, match="set `folder`, or `pending: missing`"):
        opened(OpenContext("reward", Key()))
    opened(OpenContext("reward", Key()), pending="missing")
    opened(OpenContext("reward", Key(), live=False))


def test_a_folder_can_be_shared_between_runs(tmp_path: Path, typing: Any) -> None:
    typing("")
    shared = tmp_path / "shared"
    reward, _ = opened(OpenContext("reward", Key(), directory=tmp_path / "run"), folder=shared)
    assert reward.questions == Questions(shared)


def test_integer_and_float_scales_are_the_same_question() -> None:
    # A resumed run reads its settings from a file, in which they are all floats.
    asked = [Question("How?", scale, ()).name for scale in (Scale(0, 10), Scale(0.0, 10.0, 1.0))]
    assert len(set(asked)) == 1


def test_questions_are_plain_json_for_other_tools(tmp_path: Path) -> None:
    Questions(tmp_path).ask(Question("How?", Scale(0, 1), (("work", "a"),)))
    [file] = tmp_path.glob("*.question.json")
    assert json.loads(file.read_text()) == {
        "question": "How?",
        "scale": {"low": 0, "high": 1, "step": 1},
        "material": [["work", "a"]],
    }


# ---------------------------------------------------------------------------- whole runs


CONFIG = {
    "seed": 5,
    "task": {"use": "steps", "steps": 2, "train": 1, "validation": 1, "test": 3},
    "agents": {"writer": {"use": "scripted", "lines": [{"content": "Line 1: 5"}]}},
    "policy": {"use": "sequence", "steps": ["writer"]},
    "reward": {"use": "human", "gather": 0.2},
    "run": {"name": "asked"},
    "evaluation": {"split": "test"},
}


def answers(folder: Path, typed: str) -> str:
    """Answer what waits; what was shown."""
    done = orchestrion("judge", "asked", cwd=folder, typed=typed)
    return done.stdout + done.stderr


def test_a_run_pauses_for_answers_and_resumes_with_them(tmp_path: Path) -> None:
    (tmp_path / "orchestrion.yaml").write_text(json.dumps(CONFIG))
    done = orchestrion("train", cwd=tmp_path, code=4)
    assert "3 questions wait for a person" in done.stderr
    listed = orchestrion("judge", "asked", "--json", cwd=tmp_path)
    assert len(json.loads(listed.stdout)["waiting"]) == 3
    listed = orchestrion("judge", "asked", "--list", cwd=tmp_path)
    assert listed.stdout.count("How good is this work?") == 3

    shown = answers(tmp_path, "no idea\n10\n\n")
    assert shown.count("How good is this work?") == 3
    assert "that is no integer from 0 to 10" in shown
    assert "1 questions wait" in shown
    orchestrion("resume", "asked", cwd=tmp_path, code=4)

    assert "0 questions wait" in answers(tmp_path, "4\n")
    orchestrion("resume", "asked", cwd=tmp_path)
    with RunReader(tmp_path / "runs" / "asked") as store:
        assert store.status == "completed"
        rewards = [one.episode.reward for one in store.episodes()]
    assert sorted(one.total for one in rewards if one is not None) == [0.4, 1.0]
    assert len(rewards) == 3

    report = orchestrion("judge-report", "asked", "--json", cwd=tmp_path)
    [human] = json.loads(report.stdout)["judges"]
    assert (human["judge"], human["judged"], human["missing"]) == (
        "human",
        2,
        {"no judgement that could be used": 1},
    )
    shown = orchestrion("judge-report", "asked", cwd=tmp_path).stdout
    assert shown.startswith(
        "human: judged 2, not judged 0, missing 1, asked again 0\nmean value 0.7"
    )
    listed = orchestrion("judge", "runs/asked/questions", "--json", cwd=tmp_path)
    assert json.loads(listed.stdout)["waiting"] == []
    for command in ("judge", "judge-report"):
        refused = orchestrion(command, "orchestrion.yaml", cwd=tmp_path, code=2)
        assert "orchestrion.yaml: is a file; name a run" in refused.stderr
    orchestrion("replay", "asked", cwd=tmp_path)
