"""Report on a run's judgements: missing ones, bias, and agreement with the verifier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import fields, frozen

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
    """Statistics of one judge, a model or a person."""

    judge: str  # the part of the reward, `judge` or `human`
    judged: int  # episodes
    unjudged: int  # episodes that were stopped, empty, or below a hybrid's threshold
    missing: dict[str, int]  # episodes without a reward, by reason
    mean: float | None  # of the judge's values
    again: int  # questions that were asked again
    unusable: int  # answers that could not be read
    spread: float | None  # mean of the largest minus the smallest sample, if there are several
    verifier: bool  # whether the verifier's scores differ, so that a comparison is possible
    agreement: Interval  # rank correlation of value and verifier's score
    tells_success: Interval  # how often a solved episode has the higher value (AUC)
    length: Interval  # rank correlation of value and length of the work
    length_given_verifier: Interval  # the same, given the verifier's score
    position: Interval  # mean of the value in the given order minus that in the reverse one
    flips: Interval  # mean size of that difference

    @property
    def findings(self) -> list[str]:
        """Return sentences for a person; only what the intervals support."""
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
        data = {field.name: getattr(self, field.name) for field in fields(JudgeReport)}
        plain = {n: v.as_json() if isinstance(v, Interval) else v for n, v in data.items()}
        return {**plain, "findings": self.findings}


def report_of(episodes: Iterable[Episode], judge: str = "judge") -> JudgeReport:
    """Return the report on a judge from the parts of these episodes' rewards."""
    judged: list[tuple[Episode, Mapping[str, float]]] = []
    missing: Counter[str] = Counter()
    unjudged = 0
    for episode in episodes:
        if episode.reward is None:
            if episode.scores is not None:
                missing[episode.error or "no judgement that could be used"] += 1
        elif judge in episode.reward.parts:
            judged.append((episode, episode.reward.parts))
        else:
            unjudged += 1

    def part(name: str) -> list[float]:
        """Return a part of the rewards that have it."""
        return [parts[f"{judge}.{name}"] for _, parts in judged if f"{judge}.{name}" in parts]

    value, length, spread = [parts[judge] for _, parts in judged], part("length"), part("spread")
    problems = [episode.problem.id for episode, _ in judged]
    scored = [episode.scores for episode, _ in judged if episode.scores is not None]
    score = [scores.value for scores in scored]
    verifier = len(score) == len(value) and len(set(score)) > 1
    nothing = Interval(count=len(value))
    moved = [a - b for a, b in zip(part("given"), part("reversed"), strict=True)]
    in_both = [episode.problem.id for episode, parts in judged if f"{judge}.given" in parts]
    return JudgeReport(
        judge,
        len(value),
        unjudged,
        dict(missing),
        sum(value) / len(value) if value else None,
        round(sum(part("again"))),
        round(sum(part("unusable"))),
        sum(spread) / len(spread) if any(spread) else None,
        verifier,
        rank_correlation(value, score, problems, KEY) if verifier else nothing,
        auc(value, [scores.success for scores in scored], problems) if verifier else nothing,
        rank_correlation(value, length, problems, KEY),
        partial(value, length, score, problems, KEY) if verifier else nothing,
        average(moved, in_both, KEY) if moved else Interval(),
        average([abs(change) for change in moved], in_both, KEY) if moved else Interval(),
    )


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
