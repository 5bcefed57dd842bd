"""Report on a run's judgements: missing ones, bias, and agreement with the verifier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from orchestrion import JSON, Episode, Key
from orchestrion_judge.agreement import Interval, auc, average, partial, rank_correlation

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrion.runs import RunReader

KEY = Key(0).child("judge-report")
WORTH_A_WORD = 0.02
"""A smaller shift of the value is not reported as bias, however certain it is."""


@frozen
class JudgeReport:
    """Statistics of one judge, a model or a person.

    Args:
        judge: the part of the reward, `judge` or `human`.
        judged: number of judged episodes.
        unjudged: episodes that needed no judgement: stopped, empty, or below a hybrid's threshold.
        missing: numbers of episodes without a reward, by reason.
        mean: of the judge's values.
        again: questions that were asked again.
        unusable: answers that could not be read.
        spread: mean of the largest minus the smallest sample of an episode, if there are several.
        verifier: whether the verifier's scores differ, so that a comparison is possible.
        agreement: rank correlation of value and verifier's score.
        tells_success: how often a solved episode has a higher value than an unsolved one (AUC).
        length: rank correlation of value and length of the work.
        length_given_verifier: the same, given the verifier's score.
        position: mean difference of the values in the given and the reverse order.
        flips: mean size of that difference.
    """

    judge: str
    judged: int
    unjudged: int
    missing: dict[str, int]
    mean: float | None
    again: int
    unusable: int
    spread: float | None
    verifier: bool
    agreement: Interval
    tells_success: Interval
    length: Interval
    length_given_verifier: Interval
    position: Interval
    flips: Interval

    @property
    def findings(self) -> list[str]:
        """Sentences for a person; only what the intervals support."""
        return [*self._missing(), *self._agreement(), *self._length(), *self._position()]

    def _missing(self) -> list[str]:
        count = sum(self.missing.values())
        if not count:
            return []
        share = count / (count + self.judged)
        return [f"missing: {count} rewards, {share:.0%} of what was to be judged"]

    def _agreement(self) -> list[str]:
        if not self.judged:
            return []
        if not self.verifier:
            return ["agreement: not known; the verifier gives every judged episode the same score"]
        agreement = self.agreement
        if not agreement.known:
            return ["agreement: not known; too few problems, or judgements that are all equal"]
        if agreement.low > 0:
            return ["agreement: the judgement rises with the verifier's score"]
        if agreement.high < 0:
            return ["agreement: the judgement FALLS where the verifier's score rises"]
        return ["agreement: none shown; the judgement may be noise as far as the verifier can tell"]

    def _length(self) -> list[str]:
        effect = self.length_given_verifier if self.verifier else self.length
        if not effect.known or not effect.excludes(0):
            return []
        what = "longer" if effect.value > 0 else "shorter"
        if self.verifier:
            return [f"length bias: {what} work is judged better than the verifier's score explains"]
        return [f"length: {what} work is judged better; without a verifier that may be deserved"]

    def _position(self) -> list[str]:
        effect = self.position
        if not effect.known or not effect.excludes(0) or abs(effect.value) < WORTH_A_WORD:
            return []
        order = "given" if effect.value > 0 else "reverse"
        return [f"position bias: the {order} order is judged better, by {abs(effect.value):.2f}"]

    def as_json(self) -> JSON:
        """Return the report for `--json` and the export."""
        numbers = "agreement tells_success length length_given_verifier position flips".split()
        plain = "judge judged unjudged missing mean again unusable spread verifier".split()
        return {
            **{name: getattr(self, name) for name in plain},
            **{name: getattr(self, name).as_json() for name in numbers},
            "findings": self.findings,
        }


def report_of(episodes: Iterable[Episode], judge: str = "judge") -> JudgeReport:
    """Return the report on a judge from the parts of these episodes' rewards."""
    judged, unjudged = [], 0
    missing: dict[str, int] = {}
    for episode in episodes:
        if episode.reward is None:
            if episode.scores is not None:
                reason = episode.error or "no judgement that could be used"
                missing[reason] = missing.get(reason, 0) + 1
        elif judge in episode.reward.parts:
            judged.append(episode)
        else:
            unjudged += 1
    return _Columns(judge, judged).report(unjudged, missing)


@frozen
class _Columns:
    """The numbers of the judged episodes, in order."""

    judge: str
    episodes: Sequence[Episode]

    def part(self, name: str = "") -> list[float]:
        """Return a part of the rewards of the episodes that have it."""
        name = f"{self.judge}.{name}" if name else self.judge
        parts = [episode.reward.parts for episode in self.episodes if episode.reward is not None]
        return [parts_of[name] for parts_of in parts if name in parts_of]

    def report(self, unjudged: int, missing: dict[str, int]) -> JudgeReport:
        value, length, spread = self.part(), self.part("length"), self.part("spread")
        problems = [episode.problem.id for episode in self.episodes]
        scored = [episode.scores for episode in self.episodes if episode.scores is not None]
        score = [scores.value for scores in scored]
        verifier = len(score) == len(value) and len(set(score)) > 1
        nothing = Interval(count=len(value))
        return JudgeReport(
            self.judge,
            len(value),
            unjudged,
            missing,
            sum(value) / len(value) if value else None,
            round(sum(self.part("again"))),
            round(sum(self.part("unusable"))),
            sum(spread) / len(spread) if any(spread) else None,
            verifier,
            rank_correlation(value, score, problems, KEY) if verifier else nothing,
            auc(value, [scores.success for scores in scored], problems) if verifier else nothing,
            rank_correlation(value, length, problems, KEY),
            partial(value, length, score, problems, KEY) if verifier else nothing,
            *self._position(),
        )

    def _position(self) -> tuple[Interval, Interval]:
        given, flipped = self.part("given"), self.part("reversed")
        name = f"{self.judge}.given"
        problems = [
            episode.problem.id
            for episode in self.episodes
            if episode.reward and name in episode.reward.parts
        ]
        moved = [a - b for a, b in zip(given, flipped, strict=True)]
        if not moved:
            return Interval(), Interval()
        sizes = [abs(change) for change in moved]
        return average(moved, problems, KEY), average(sizes, problems, KEY)


def report_of_run(store: RunReader, source: str | None = None) -> list[JudgeReport]:
    """Return a report for each judge in a run's stored rewards."""
    names = store.part_names("reward")
    # If every reward is missing, no part names the judge.
    judges = [name for name in ("judge", "human") if name in names] or ["judge"]
    episodes = [stored.episode for stored in store.episodes(source=source)]
    reports = [report_of(episodes, judge) for judge in judges]
    return [report for report in reports if report.judged or report.missing]


def write_report(directory: Path) -> None:
    """Write `exports/judge.json` in a run's folder, if there are judgements."""
    import json

    from orchestrion.runs import RunReader, make_folder, write_atomic

    with RunReader(directory) as store:
        reports = report_of_run(store)
        folder = store.exports
    if reports:
        data = {"schema": 1, "judges": [report.as_json() for report in reports]}
        text = json.dumps(data, indent=2) + "\n"
        write_atomic(make_folder(folder) / "judge.json", [text.encode()], "export")
