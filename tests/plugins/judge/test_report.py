"""A biased judge is reported as biased, noise as noise, and an honest judge is left alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner
from orchestrion_judge.command import judge_report
from orchestrion_judge.report import JudgeReport, report_of

from orchestrion import Episode, Key, Problem, Reward, Scores, replace
from tests.plugins.judge.support import (
    Asked,
    Opinion,
    Opinionated,
    calls,
    episode,
    judge_reward,
)


def works(seed: int, problems: int = 24, each: int = 4) -> list[Episode]:
    """Work of a quality that the verifier knows, and of a length that says nothing of it."""
    draw = Key(seed).child("works").random()
    found = []
    for i in range(problems):
        problem = Problem(f"p{i}", f"problem {i}")
        for n in range(each):
            quality = draw.randint(0, 10)
            text = f"quality {quality} " + "more " * draw.randint(0, 40)
            scores = Scores(quality / 10, quality > 5)
            found.append(episode(text, problem=problem, scores=scores, id=f"{i}/{n}"))
    return found


def judged(opinion: Opinion, episodes: Sequence[Episode], **settings: object) -> JudgeReport:
    """The report on a judge that saw all of these."""

    reward = judge_reward(Opinionated(opinion), **settings)

    async def all_of_them() -> list[Episode]:
        found = []
        for one in episodes:
            found.append(replace(one, reward=await reward.score(one, calls())))
        return found

    return report_of(asyncio.run(all_of_them()))


def quality(asked: Asked) -> float:
    return int(asked.work.split()[1]) / 10


def fair(asked: Asked, key: Key) -> float:
    return min(max(quality(asked) + key.random().gauss(0, 0.15), 0), 1)


def noise(asked: Asked, key: Key) -> float:
    return key.uniform()


def likes_length(asked: Asked, key: Key) -> float:
    return min(max(0.6 * quality(asked) + len(asked.work) / 500, 0), 1)


def likes_what_comes_first(asked: Asked, key: Key) -> float:
    return min(max(fair(asked, key) - 0.3 * (asked.order[0] == "problem"), 0), 1)


SEEDS = range(4)


def test_a_fair_judge_agrees_with_the_verifier() -> None:
    reports = [judged(fair, works(seed), orders="both") for seed in SEEDS]
    for one in reports:
        assert one.agreement.low > 0.7
        assert one.tells_success.low > 0.8
        assert "agreement: the judgement rises with the verifier's score" in one.findings
    wrong = [line for one in reports for line in one.findings if "bias" in line]
    assert len(wrong) <= 1, "of 8 chances at 5 % each"


def test_noise_is_reported_as_uncorrelated() -> None:
    reports = [judged(noise, works(seed)) for seed in SEEDS]
    shown = [one for one in reports if one.agreement.excludes(0)]
    assert len(shown) <= 1, "of 4 chances at 5 % each"
    none = [one for one in reports if any("agreement: none shown" in line for line in one.findings)]
    assert len(none) >= 3
    assert all(not one.tells_success.low > 0.7 for one in reports)


def test_a_judge_that_likes_length_is_reported_as_biased() -> None:
    for seed in SEEDS:
        report = judged(likes_length, works(seed))
        assert report.length_given_verifier.low > 0
        finding = "length bias: longer work is judged better than the verifier's score explains"
        assert finding in report.findings


def test_length_that_comes_with_quality_is_no_bias() -> None:
    found = []
    for one in works(3):
        scores = one.scores
        assert scores is not None
        text = f"quality {round(scores.value * 10)} " + "word " * round(scores.value * 40)
        found.append(episode(text, problem=one.problem, scores=scores))
    report = judged(fair, found)
    assert report.length.low > 0.5
    assert not any("length" in line for line in report.findings)


def test_a_judge_that_likes_what_comes_first_is_reported_as_biased() -> None:
    for seed in SEEDS:
        report = judged(likes_what_comes_first, works(seed), orders="both")
        assert report.position.high < 0
        assert report.flips.value > 0.2
        assert "position bias: the reverse order is judged better, by 0.2" in report.findings[-1]


def test_without_a_verifier_nothing_is_claimed_of_agreement() -> None:
    same = [
        episode(one.turns[0].output.content, problem=one.problem, scores=Scores(0.0))
        for one in works(1)
    ]
    report = judged(likes_length, same)
    assert not report.verifier
    assert not report.agreement.known
    assert report.findings == [
        "agreement: not known; the verifier gives every judged episode the same score",
        "length: longer work is judged better; without a verifier that may be deserved",
    ]


def test_missing_rewards_are_counted_with_their_reason_and_excluded() -> None:

    good = replace(episode("a"), reward=Reward(0.5, parts={"judge": 0.5, "judge.length": 1}))
    failed = replace(episode("a"), error="reward function JudgeReward: timed out")
    unreadable = episode("a")
    empty = replace(episode(), reward=Reward(0.0, parts={"empty": 1.0}))
    unverified = episode("a", scores=None)
    report = report_of([good, failed, unreadable, unreadable, empty, unverified])
    assert (report.judged, report.unjudged, report.mean) == (1, 1, 0.5)
    assert report.missing == {
        "reward function JudgeReward: timed out": 1,
        "no judgement that could be used": 2,
    }
    assert report.findings[0] == "missing: 3 rewards, 75% of what was to be judged"


@pytest.mark.parametrize("episodes", [[], works(1)[:1], works(1)[:2]])
def test_a_report_on_little_or_nothing_is_a_report(episodes: list[Episode]) -> None:
    report = judged(fair, episodes)
    assert json.loads(json.dumps(report.as_json(), allow_nan=False))["judged"] == len(episodes)


def test_a_judge_that_falls_where_the_verifier_rises_is_named() -> None:
    report = judged(lambda asked, key: 1 - quality(asked), works(0))
    assert report.findings == ["agreement: the judgement FALLS where the verifier's score rises"]


TEXT = """\
judge: judged 24, not judged 0, missing 1, asked again 0
mean value 0.573
  agreement with the verifier (rank correlation)  0.855 [0.714, 0.943] over problems
  solved above unsolved (AUC)                     0.943 [0.876, 1.000] over problems
  with length (rank correlation)                  -0.018 [-0.413, 0.371] over problems
  with length, given the verifier's score         -0.232 [-0.635, 0.251] over problems
  given order minus reverse                       -
  size of that difference                         -
  1 x missing: timed out
missing: 1 rewards, 4% of what was to be judged
agreement: the judgement rises with the verifier's score
"""


def test_the_command_shows_the_numbers_and_the_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    report = evolve(judged(fair, works(0, each=1)), missing={"timed out": 1})
    monkeypatch.setattr("orchestrion.runs.run_directory", Path)
    monkeypatch.setattr("orchestrion.runs.RunReader", nullcontext)
    monkeypatch.setattr("orchestrion_judge.report.report_of_run", lambda store, source: [report])
    assert CliRunner().invoke(judge_report, ["run-1"]).stdout == TEXT
