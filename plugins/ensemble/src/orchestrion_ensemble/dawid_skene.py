"""The aggregator `dawid-skene`: whose mistakes look how, learned without knowing the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, fsum, log
from typing import Annotated

from attrs import Factory, evolve, frozen

from orchestrion import JSON, Key, Meta, Problem, UsageError, learnable
from orchestrion_ensemble.counting import decide
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule
from orchestrion_ensemble.votes import Plurality

__all__ = ["DawidSkene"]

Row = tuple[float, ...]


@frozen
class DawidSkene(Aggregator):
    """Weighs what each voter says by its own confusion matrix (Dawid and Skene 1979).

    `ensemble-weights` learns the matrices from the votes alone, by EM: no verifier is needed for
    them. Until then it is a plurality. Votes for answers that were never seen have no say.

    Args:
        answers: the answers the matrices are about. Learned.
        prior: how common each is. Learned.
        confusion: by voter, a row for each true answer: how often it then gives each answer.
            Learned.
        smoothing: pseudo-count of each cell when learning.
        tie: how to choose among equally probable answers.
    """

    answers: tuple[str, ...] = learnable(())
    prior: Row = learnable(())
    confusion: Mapping[str, tuple[Row, ...]] = learnable(Factory(dict))
    smoothing: Annotated[float, Meta(gt=0)] = 0.01
    tie: TieRule = "first_by_member_order"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        if not self.confusion:
            plain = Plurality(self.tie).combine(ballots, problem, key)
            return evolve(plain, notes=("no confusion matrices are known: plurality",))
        known = [one for one in ballots if one.votes and self._knows(one)]
        if not known:
            return Result("no_consensus", notes=("no vote that the matrices know",))
        logs = {
            answer: fsum([log(self.prior[c]), *(log(self._says(one, c)) for one in known)])
            for c, answer in enumerate(self.answers)
        }
        top = max(logs.values())
        raw = {answer: exp(value - top) for answer, value in logs.items()}
        total = fsum(raw.values())
        posterior = {answer: value / total for answer, value in raw.items()}
        result = decide(posterior, ballots, self.tie, key)
        return evolve(result, used=len(known), probabilities=posterior)

    def _knows(self, ballot: Ballot) -> bool:
        return ballot.voter in self.confusion and ballot.answer in self.answers

    def _says(self, ballot: Ballot, true: int) -> float:
        """How often the voter says this where `true` holds."""
        assert ballot.answer is not None
        return self.confusion[ballot.voter][true][self.answers.index(ballot.answer)]

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Matrices by EM over the votes; a voter with several ballots counts by each."""
        from orchestrion_ensemble.crowd import dawid_skene

        ballots = [one for example in examples for one in example.ballots]
        voters = list(dict.fromkeys(one.voter for one in ballots))
        answers = sorted({one.answer for one in ballots if one.answer is not None})
        if not answers:
            raise UsageError("nothing can be learned: nobody gave an answer")
        # Samples of one voter are columns of their own, and their matrices are averaged.
        width = max(len(example.ballots) for example in examples)
        table, columns = [], [""] * width
        for example in examples:
            row = [-1] * width
            for place, one in enumerate(example.ballots):
                columns[place] = one.voter
                if one.votes and one.answer is not None:
                    row[place] = answers.index(one.answer)
            table.append(row)
        crowd = dawid_skene(table, len(answers), self.smoothing)
        confusion = {}
        for voter in voters:
            own = [i for i, name in enumerate(columns) if name == voter]
            confusion[voter] = crowd.confusion[own].mean(axis=0).tolist()
        return {"answers": answers, "prior": crowd.prior.tolist(), "confusion": confusion}
