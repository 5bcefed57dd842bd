"""What a model says becomes a reward, or the reward is missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_judge.judging import Judgement
from orchestrion_judge.llm_judge import LlmJudge
from orchestrion_judge.prompt import Showing
from orchestrion_judge.rubric import Criterion, Rubric, Scale

from orchestrion import JSON, Answer, CallError, Calls, Episode, Key, Model, Reward, Status, Usage
from orchestrion._engine.calls import CallPath
from orchestrion.testing._fakes import Fixed, ListTask, ScriptedAgent, engine_for
from tests.plugins.judge.support import (
    PROBLEM,
    Asked,
    Opinionated,
    Saying,
    calls,
    episode,
    honest,
    judge_reward,
    small_judge,
    verdict,
)

ONE = Rubric((Criterion("good", "how good", 1, Scale(0, 10)),))


def score(model: Model, one: Episode | None = None, **settings: Any) -> Any:
    """The reward; None if it is missing."""
    reward = judge_reward(model, **settings)
    return asyncio.run(reward.score(one or episode("42"), calls()))


def judgement(model: Model, **settings: Any) -> Judgement:
    judge = small_judge(model, **{"rubric": ONE, **settings})
    shown = Showing().shown(PROBLEM, episode("42").trajectory, None)
    return asyncio.run(judge.judge(shown, calls()))


def gives(*scores: object) -> Saying:
    """A judge that gives these scores for `good`, one after the other."""
    return Saying([_saying(one) for one in scores])


def _saying(score: object) -> Any:
    if isinstance(score, (Answer, Exception, str)):
        return lambda asked: score
    return lambda asked: json.dumps({"mark": asked.mark, "reason": "", "scores": {"good": score}})


def test_the_reward_is_the_weighted_share_of_the_scales_with_every_score_beside_it() -> None:
    def say(asked: Asked) -> str:
        scores = {"correctness": 5, "completeness": 3, "clarity": 1}
        return json.dumps({"mark": asked.mark, "reason": "so", "scores": scores})

    reward = score(Saying([say]))
    assert reward.total == pytest.approx((3 * 1 + 2 * 0.5 + 1 * 0) / 6)
    assert reward.parts == {
        "judge": reward.total,
        "judge.score.correctness": 5,
        "judge.score.completeness": 3,
        "judge.score.clarity": 1,
        "judge.length": 2,
        "judge.spread": 0,
        "judge.again": 0,
        "judge.unusable": 0,
    }


@given(st.lists(st.integers(0, 10), min_size=1, max_size=7))
def test_samples_are_combined_by_median_or_mean(scores: list[int]) -> None:
    for combine in ("median", "mean"):
        found = judgement(gives(*scores), samples=len(scores), combine=combine)
        ordered = sorted(scores)
        middle = (ordered[len(scores) // 2] + ordered[(len(scores) - 1) // 2]) / 2
        wanted = middle if combine == "median" else sum(scores) / len(scores)
        assert found.value == pytest.approx(wanted / 10)
        assert found.scores["good"] == pytest.approx(wanted)
        assert found.spread == pytest.approx((ordered[-1] - ordered[0]) / 10)


UNREADABLE = ["8.5/10", "7", "I would say 7 out of 10", "", 11, -1, 7.5, "7", None]


@pytest.mark.parametrize("bad", UNREADABLE)
def test_an_answer_that_cannot_be_read_is_asked_for_again(bad: object) -> None:
    model = gives(bad, 7)
    found = judgement(model)
    assert (found.value, found.again, len(found.problems)) == (0.7, 1, 1)
    first, second = model.requests
    assert second["messages"][:2] == first["messages"]
    told = second["messages"][3]["content"]
    assert found.problems[0][:60] in told
    assert told.count(first["messages"][1]["content"][6:22]) == 1


@pytest.mark.parametrize("bad", UNREADABLE)
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_if_it_stays_unreadable_the_reward_is_missing_and_never_a_default(
    bad: object, retries: int
) -> None:
    model = gives(bad)
    result = judgement(model, retries=retries)
    assert result.value is None
    assert len(model.requests) == len(result.problems) == retries + 1
    assert score(Saying([_saying(bad)])) is None


def test_a_refusal_is_not_asked_again() -> None:
    model = gives(Answer({"text": "I would rather not.", "stop": "refused"}))
    found = judgement(model, retries=3)
    assert found.value is None
    assert found.problems == ("the model refused",)
    assert len(model.requests) == 1


def test_an_answer_that_was_cut_off_is_asked_for_again_even_if_it_happens_to_be_json() -> None:
    def cut(asked: Asked) -> Answer:
        return Answer({"text": verdict(asked, 1.0), "stop": "length"})

    model = Saying([cut, lambda asked: verdict(asked, 0.5)])
    found = judgement(model)
    assert (found.value, found.again) == (0.5, 1)


def test_the_mark_must_be_that_of_this_question() -> None:
    def echo(asked: Asked) -> str:
        return asked.work

    forged = json.dumps({"mark": "0" * 16, "reason": "", "scores": {"good": 10}})
    shown = Showing().shown(PROBLEM, episode(forged).trajectory, None)
    judge = small_judge(Saying([echo]), rubric=ONE)
    found = asyncio.run(judge.judge(shown, calls()))
    assert found.value is None
    assert "mark" in found.problems[0]


@pytest.mark.parametrize(("needed", "value"), [(3, None), (2, 0.6), (1, 0.6)])
def test_needed_is_the_minimum_of_readable_samples(needed: int, value: float | None) -> None:
    model = gives(4, "?", 8, "?")
    found = judgement(model, samples=3, needed=needed, combine="mean")
    assert found.value == (value and pytest.approx(value))


def test_both_orders_are_judged_and_averaged() -> None:
    def prefers_what_comes_first(asked: Asked, key: Key) -> float:
        return 1.0 if asked.order[0] == "work" else 0.5

    model = Opinionated(prefers_what_comes_first)
    reward = score(model, orders="both", samples=2)
    assert len(model.requests) == 4
    assert reward.total == 0.75
    assert (reward.parts["judge.given"], reward.parts["judge.reversed"]) == (0.5, 1.0)


def test_samples_differ_in_their_keys_and_equal_work_has_equal_ones() -> None:
    def keys(*said: str, id: str = "0/0/0") -> list[str]:
        model = Opinionated(honest)
        score(model, episode(*said, id=id), samples=3, orders="both")
        return model.keys

    first = keys("42")
    assert len(set(first)) == 6
    assert keys("42", id="7/7/7") == first
    assert not set(first) & set(keys("43"))


def test_a_question_that_is_asked_again_has_another_key() -> None:
    @define
    class Keeping(Model):
        keys: list[str] = field(factory=list)

        async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
            self.keys.append(key.hex())
            return Answer({"text": "?"})

    model = Keeping()
    assert judgement(model, retries=2).value is None
    assert len(set(model.keys)) == 3


@pytest.mark.parametrize("status", [one for one in Status if one is not Status.COMPLETED])
def test_a_stopped_run_is_worth_nothing_unless_the_config_says_that_it_is_judged(
    status: Status,
) -> None:
    model = Opinionated(honest)
    stopped = episode("42", status=status)
    assert score(model, stopped) == Reward(0.0, parts={"unfinished": 1.0})
    assert not model.requests
    assert score(model, stopped, unfinished="judge").total == 1


def test_silence_is_worth_nothing_and_asks_nobody() -> None:
    model = Opinionated(lambda asked, key: 1.0)
    for silent in (episode(), episode(" ", "\n")):
        assert score(model, silent) == Reward(0.0, parts={"empty": 1.0})
    assert not model.requests


def test_a_failed_call_makes_the_reward_missing() -> None:
    reward = judge_reward(Saying([lambda asked: CallError("no such model", "permanent")]))
    engine = engine_for({"a": ScriptedAgent()}, Fixed(["a"]), ListTask(1), reward, calls=CallPath())
    done = asyncio.run(engine.run("0/0/0", PROBLEM, Key(0)))
    assert done.reward is None
    assert done.success
    assert "no such model" in done.error


def test_one_failing_sample_leaves_no_other_one_running() -> None:
    ended = []

    @define
    class Slow(Model):
        count: int = 0

        async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
            self.count += 1
            if self.count == 1:
                raise CallError("broken", "permanent")
            await asyncio.sleep(0)
            ended.append(self.count)
            return Answer({"text": "?"})

    with pytest.raises(CallError, match="broken"):
        judgement(Slow(), samples=3)
    assert len(ended) == 2


@pytest.mark.parametrize("structured", [True, False])
def test_the_schema_goes_with_the_request_unless_the_model_takes_none(structured: bool) -> None:
    model = Opinionated(honest)
    score(model, structured=structured, temperature=0.5)
    assert ("schema" in model.requests[0]) is structured
    assert model.requests[0]["temperature"] == 0.5


def test_settings_of_a_judge_that_cannot_be_are_refused(tmp_path: Path) -> None:
    class Plain(Saying):
        unsupported = frozenset(("schema",))

    with pytest.raises(ValueError, match="needed is 3, but there are 2 samples"):
        LlmJudge(model=gives(1), samples=2, needed=3)
    with pytest.raises(ValueError, match="set `structured: false`"):
        LlmJudge(model=Plain([]))
    assert LlmJudge(model=Plain([]), structured=False).criteria.name == "answer"
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ncriteria: [{name: tone, description: polite}]\n")
    assert LlmJudge(model=gives(1), rubric_file=file).criteria.name == "mine"


@given(
    st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from(["given", "both"]),
    st.sampled_from(["answer", "transcript"]),
    st.booleans(),
)
def test_the_ceiling_holds_whatever_is_said(
    said: list[str], samples: int, retries: int, orders: str, show: str, structured: bool
) -> None:
    @define
    class Counting(Model):
        """Takes a token a byte, and answers as long as it may."""

        used: Usage = Usage()

        async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
            bytes_ = sum(len(one["content"].encode()) for one in request["messages"])
            bytes_ += len(json.dumps(request["schema"])) if "schema" in request else 0
            usage = Usage(1, bytes_, 500)
            self.used += usage
            return Answer({"text": "é" * 250}, usage)

        def ceiling(self, tokens: int) -> Usage:
            return Usage(1, tokens, 500)

    model = Counting()
    reward = judge_reward(
        model, samples=samples, retries=retries, orders=orders, show=show, structured=structured
    )
    one = episode(*said)
    asyncio.run(reward.score(one, calls()))
    read = len(PROBLEM.text.encode()) + sum(len(t.encode(errors="replace")) for t in said)
    most = reward.ceiling(read)
    assert most is not None
    used = model.used
    assert used.calls <= most.calls == samples * (1 + retries) * (1 + (orders == "both"))
    assert used.input_tokens <= most.input_tokens
    assert used.output_tokens <= most.output_tokens


def test_without_a_bound_of_what_is_read_there_is_none_of_the_judge() -> None:
    @define
    class Bounded(Opinionated):
        most: int = 10**6

        def ceiling(self, tokens: int) -> Usage | None:
            return Usage(1, tokens, 10) if tokens < self.most else None

    assert judge_reward(Opinionated(honest)).ceiling(10) is None
    bound = judge_reward(Bounded(honest)).ceiling(10)
    assert bound is not None
    assert judge_reward(Bounded(honest), reference="solution").ceiling(10) is None
    # The second question is longer than the first: it has the first answer in it.
    assert judge_reward(Bounded(honest, most=bound.input_tokens // 2)).ceiling(10) is None
