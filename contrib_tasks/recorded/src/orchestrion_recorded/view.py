"""What the environment shows after some models were asked: text, JSON and features.

It depends on the question and the set of models asked, not on their order. The latest views are
kept, since training comes back to the same sets again and again. The hints of each choice that
asks a model, all between 0 and 1, are how much likelier the likeliest answer is to be right after
asking, how likely the model is right, and its price as a share of the dearest. The features,
between -1 and 1:

    one for each group       1 for the question's
    number of options        of 26
    one for each model       asked
    one for each model       asked, and gave no answer
    one for each model       asked, and its answer leads the vote
    one for each model       how much likelier it is right than what leads, doubled; 0 once asked
                             or where nothing leads
    one for each model       how much likelier it is right than on the average question, four
                             times; 0 once asked
    what leads               how likely it is right
    the runner-up            how likely the likeliest other answer seen is right
    margin                   of the vote, as a share of all votes
    different answers        of the models
    spend                    s / (1 + s)
    asked                    share of the models
    nothing leads            1 if so
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from attrs import frozen

from orchestrion import Observation
from orchestrion_recorded.belief import Belief, Believer
from orchestrion_recorded.case import SILENT, Case, leader, tally
from orchestrion_recorded.estimate import Estimates

_KEPT = 40_000  # views; about 2.5 KB each


@frozen
class StateView:
    """The environment after a set of models was asked."""

    observation: Observation
    leader: int
    done: bool


class Viewer:
    """Make the views of questions: `see(case, asked)`, where `asked` is a bit set of models.

    `votes` are by group and model, `blockers`, the choices of the team that ask it, by model.
    """

    def __init__(
        self,
        models: Sequence[str],
        estimates: Estimates,
        votes: Sequence[Sequence[int]],
        blockers: Sequence[frozenset[str]],
        dearest: float,
    ) -> None:
        self.models, self.estimates, self.votes, self.blockers = models, estimates, votes, blockers
        self._believer, self._dearest = Believer(estimates), dearest or 1.0
        # What is believed of a question of an unknown group is what holds for the average one.
        usual = np.average(estimates.right[-1], axis=0, weights=estimates.prior[-1])
        self._usual = usual.tolist()
        self._everything = (1 << len(models)) - 1
        self.see = lru_cache(_KEPT)(self._make)

    def _make(self, case: Case, asked: int) -> StateView:
        models_asked = [m for m in range(len(self.models)) if asked >> m & 1]
        totals = tally(case.codes, self.votes[case.group], models_asked, len(case.labels))
        first = leader(totals)
        belief, codes = self._believer.believe(case, models_asked)
        right = dict(zip(codes, belief.answers, strict=True))
        p_first = right.pop(first, 0.0)
        second = max(right.values(), default=0.0)
        features = self._features(case, models_asked, first)
        n, closed = len(self.models), asked | case.absent
        closed_models = [m for m in range(n) if closed >> m & 1]
        edge = [2 * (p - p_first) for p in belief.models] if first >= 0 else [0.0] * n
        shift = [4 * (p - usual) for p, usual in zip(belief.models, self._usual, strict=True)]
        for m in closed_models:
            edge[m] = shift[m] = 0.0
        features += [-1.0 if x < -1 else 1.0 if x > 1 else x for x in edge + shift]
        spend = sum([case.costs[m] for m in models_asked])
        features += (
            p_first,
            second,
            _margin(totals),
            sum([total > 0 for total in totals]) / n,
            spend / (1 + spend),
            len(models_asked) / n,
            float(first < 0),
        )
        observation = Observation(
            self._text(case, models_asked, first),
            self._data(case, models_asked, first),
            tuple(features),
            frozenset().union(*(self.blockers[m] for m in closed_models)),
            p_first,
            self._hints(case, closed, belief),
        )
        return StateView(observation, first, closed == self._everything)

    def _hints(self, case: Case, closed: int, belief: Belief) -> dict[str, tuple[float, ...]]:
        hints: dict[str, tuple[float, ...]] = {}
        for m, names in enumerate(self.blockers):
            if not closed >> m & 1:
                cost = min(max(case.costs[m] / self._dearest, 0.0), 1.0)
                hint = min(belief.gains[m], 1.0), min(belief.models[m], 1.0), cost
                for name in names:
                    hints[name] = hint
        return hints

    def _features(self, case: Case, models_asked: Sequence[int], first: int) -> list[float]:
        """Return group and options, then by model whether it was asked, was silent, and leads."""
        codes, models = {m: case.codes[m] for m in models_asked}, range(len(self.models))
        return [
            *(float(group == case.group) for group in range(len(self.estimates.groups))),
            min(case.options, 26) / 26,
            *(float(m in codes) for m in models),
            *(float(codes.get(m) == SILENT) for m in models),
            *(float(codes.get(m) == first != SILENT) for m in models),
        ]

    def _text(self, case: Case, models_asked: Sequence[int], first: int) -> str:
        if not models_asked:
            return "nobody was asked"
        lines = [f"{self.models[m]}: {_answer_of(case, m) or 'no answer'}" for m in models_asked]
        lines.append(f"vote: {case.labels[first]}" if first >= 0 else "vote: nothing")
        return "; ".join(lines)

    def _data(self, case: Case, models_asked: Sequence[int], first: int) -> dict[str, object]:
        return {
            "offers": case.offers,
            "answers": {self.models[m]: _answer_of(case, m) for m in models_asked},
            "vote": case.labels[first] if first >= 0 else None,
        }


def _answer_of(case: Case, model: int) -> str | None:
    code = case.codes[model]
    return case.labels[code] if code >= 0 else None


def _margin(totals: Sequence[int]) -> float:
    together = sum(totals)
    if not together:
        return 0.0
    ranked = sorted(totals, reverse=True)
    return (ranked[0] - (ranked[1] if len(ranked) > 1 else 0)) / together
