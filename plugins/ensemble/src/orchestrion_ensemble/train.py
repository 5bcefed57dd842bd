"""The trainer `ensemble-weights`: teaches an aggregator on problems that are set aside for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from math import fsum
from typing import Annotated, Literal

from attrs import evolve, frozen

from orchestrion import (
    Branch,
    Job,
    Meta,
    Metrics,
    OpenContext,
    Output,
    Problem,
    Session,
    Trainer,
    Trajectory,
    Turn,
    UsageError,
)
from orchestrion_ensemble.answers import ballot_from
from orchestrion_ensemble.interfaces import Aggregator, Example
from orchestrion_ensemble.votes import accuracies_of


@frozen
class EnsembleWeights:
    """Teaches an aggregator what its voters' answers are worth, as an overlay of its settings.

    It runs the team on problems of `split` without early stopping, lets the task's verifier judge
    each different answer of the members as if it were the ensemble's own, and gives ballots and
    verdicts to the aggregator. The verifier must judge by the turns alone: an environment is not
    stepped inside an ensemble.

    Args:
        aggregator: what learns, by its name in `aggregators`.
        ensemble: the agent that uses it, by its name in `agents`.
        split: the problems. Weights fit the problems they were learned on better than others:
            report on another split, and use `train` only if the members were not trained on it.
        problems: maximum number of problems; null means all.
    """

    aggregator: Aggregator
    ensemble: Annotated[str, Meta(min_length=1)]
    split: Literal["train", "validation"] = "validation"
    problems: Annotated[int, Meta(ge=1)] | None = None

    @property
    def iterations(self) -> int:
        """Return 1: all problems are run at once."""
        return 1

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Yield the runtime, which knows where in the config the aggregator stands."""
        [path] = ctx.names["aggregator"]
        if not path.startswith("aggregators."):
            raise UsageError(
                f"{ctx.path}.aggregator: name one of the section `aggregators`, and let the "
                "ensemble name it too; an inline aggregator cannot keep what it learns"
            )
        yield _Learner(self, path)


@frozen
class _Learner(Trainer):
    settings: EnsembleWeights
    path: str

    @property
    def iterations(self) -> int:
        return 1

    def check(self, session: Session) -> None:
        """Raise UsageError if there are no problems to learn from."""
        split = self.settings.split
        if not session.problems(split):
            raise UsageError(f"the split {split!r} has no problems to learn weights from")

    async def iterate(self, i: int, session: Session) -> Metrics:
        self.check(session)
        problems = list(session.problems(self.settings.split))[: self.settings.problems]
        examples = await self._examples(session, problems)
        learned = self.settings.aggregator.learn(examples, session.key.child("learn"))
        session.adopt({f"{self.path}.{name}": value for name, value in learned.items()})
        return _metrics(examples)

    async def _examples(self, session: Session, problems: Sequence[Problem]) -> list[Example]:
        name = self.settings.ensemble
        async with session.build({f"agents.{name}.early_stop": False}) as full:
            key = session.key.child("examples")
            jobs = [Job(problem, key.child(problem.id), training=False) for problem in problems]
            episodes = await full.rollout(jobs)
            work = []
            for problem, episode in zip(problems, episodes, strict=True):
                for n, turn in enumerate(_turns_of(name, self.path, episode.trajectory)):
                    branch = full.begin(problem, key.child(problem.id, "verify", n))
                    work.append(_example(full, branch, turn))
            examples = list(await asyncio.gather(*work))
        if not examples:
            raise UsageError(
                f"nothing to learn from: on {len(problems)} problems the ensemble {name!r} never "
                f"acted with {self.path}"
            )
        return examples


def _turns_of(ensemble: str, path: str, trajectory: Trajectory) -> Iterator[Turn]:
    """Yield the turns of the ensemble that uses this aggregator, inside other teams as well."""
    for turn in trajectory:
        if turn.agent == ensemble and turn.output.metadata.get("aggregator") == path:
            yield turn
        elif turn.output.inner is not None:
            yield from _turns_of(ensemble, path, turn.output.inner)


async def _example(session: Session, branch: Branch, turn: Turn) -> Example:
    """Return the ballots of a turn with the verifier's verdicts, one for each different answer."""
    ballots = tuple(map(ballot_from, turn.output.data["ballots"]))
    # In the words of its first voter, as the ensemble would give it.
    texts = {
        ballot.answer: ballot.text for ballot in reversed(ballots) if ballot.answer is not None
    }
    for ballot in ballots:
        for answer in ballot.probabilities or ():
            texts.setdefault(answer, answer)
    right: dict[str | None, bool] = {}
    for n, (answer, text) in enumerate(texts.items()):
        output = Output(text, {"status": "winner", "answer": answer})
        trajectory = Trajectory([Turn(0, turn.agent, None, output)])
        judged = evolve(branch, trajectory=trajectory, key=branch.key.child(n))
        right[answer] = (await session.score(judged, final=True)).success
    verdicts = tuple(right.get(ballot.vote) for ballot in ballots)
    truth = next((answer for answer, accepted in right.items() if accepted), None)
    return Example(branch.problem.public(), ballots, verdicts, truth)


def _metrics(examples: Sequence[Example]) -> Metrics:
    """Return how many examples had answers, and how good the members' answers were."""
    accuracies = accuracies_of(examples)
    answered = [verdict is not None for example in examples for verdict in example.right]
    return {
        "examples": float(len(examples)),
        "answered": fsum(answered) / len(answered),
        "named": fsum(example.truth is not None for example in examples) / len(examples),
        "best_member": max(accuracies.values()),
        "mean_member": fsum(accuracies.values()) / len(accuracies),
    }
