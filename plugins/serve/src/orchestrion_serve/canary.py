"""Try a new version on a share of the requests, and promote it or roll it back by a rule.

A request is answered by the new version with probability `share`, by its episode's key. Scores of
both versions are compared as in `confidence`; the first score of a request counts there, since a
test that one may look at any time cannot take back what it has seen. The rule:

    lower bound of new - old > 0    promoted: the new version answers everything
    upper bound of new - old < 0    rolled back: the old version answers everything
    so many requests, no verdict    rolled back, or kept: the share stays, and nothing is compared

All of it is computed from the log alone, so that a restart goes on where the server was.
"""

from __future__ import annotations

from typing import Literal, get_args

from attrs import asdict, define, field, fields_dict, frozen
from orchestrion_logged import Log, ServedRequest, ServedStep

from orchestrion import Key
from orchestrion_serve.confidence import VersionComparison

Verdict = Literal["promoted", "rolled back", "kept"]
BEGUN = "canary"
"""The step with which a trial begins."""


@frozen
class VersionTrial:
    """How a new version is tried.

    Args:
        share: of the requests that it answers.
        requests: after which there must have been a verdict.
        undecided: what happens if there was none.
        alpha: the probability that a version that is not better is ever promoted, or one that is
            not worse rolled back by the test: together at most this.
    """

    share: float = 0.1
    requests: int = 10_000
    undecided: Verdict = "rolled back"
    alpha: float = 0.05


@define(eq=False)
class Canary:
    """One trial: what is known so far, and its verdict."""

    old: str
    """The version that serves."""
    new: str
    """The version that is tried."""
    trial: VersionTrial
    verdict: Verdict | None = field(default=None, init=False)
    requests: int = field(default=0, init=False)
    comparison: VersionComparison = field(init=False)
    _scored: set[str] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.comparison = VersionComparison(self.trial.alpha)

    def assign(self, key: Key) -> tuple[bool, float]:
        """Return whether the new version answers an episode, and the probability of that answer."""
        share = {"promoted": 1.0, "rolled back": 0.0}.get(self.verdict or "", self.trial.share)
        new = key.child("canary").uniform() < share
        return new, share if new else 1 - share

    def answered(self) -> ServedStep | None:
        """Count a request; return the step if it was the last one that the trial may have."""
        self.requests += 1
        if self.verdict is None and self.requests >= self.trial.requests:
            return self._ended(self.trial.undecided)
        return None

    def scored(self, request: ServedRequest, score: float) -> ServedStep | None:
        """Take the score of a request of this trial into account; return the step it leads to."""
        if self.verdict or request.canary != self.new or request.served in self._scored:
            return None
        self._scored.add(request.served)
        self.comparison.add(score, new=request.version == self.new)
        if self.comparison.low > 0:
            return self._ended("promoted")
        if self.comparison.high < 0:
            return self._ended("rolled back")
        return None

    def begun(self, run: str) -> ServedStep:
        """Return the step with which the trial begins; `run` is the new version's folder."""
        return ServedStep(BEGUN, self.new, {"old": self.old, "run": run, **asdict(self.trial)})

    def figures(self) -> dict[str, float]:
        """Return the figures of the trial so far."""
        comparison = self.comparison
        return {
            "requests": self.requests,
            "scores_old": comparison.scores[False],
            "scores_new": comparison.scores[True],
            "difference": round(comparison.mean, 6),
            "low": round(comparison.low, 6),
            "high": round(comparison.high, 6),
        }

    def _ended(self, verdict: Verdict) -> ServedStep:
        self.verdict = verdict
        return ServedStep(verdict, self.new, {"old": self.old, **self.figures()})

    def resume(self, log: Log) -> None:
        """Restore the state of this trial from a log."""
        self.requests += sum(request.canary == self.new for request in log.served.values())
        for score in log.scores:
            request = log.served.get(score.feedback)
            if request is not None:
                self.scored(request, score.score)
        for step in log.steps:
            if step.version == self.new and step.data.get("old") == self.old:
                self.verdict = next((v for v in get_args(Verdict) if v == step.step), self.verdict)


def trials_of(log: Log) -> list[Canary]:
    """Return all trials of a log in their current state."""
    trials = []
    for step in log.steps:
        if step.step == BEGUN:
            trial = VersionTrial(**{name: step.data[name] for name in fields_dict(VersionTrial)})
            trials.append(Canary(step.data["old"], step.version, trial))
            trials[-1].resume(log)
    return trials
