"""The trainer `ensemble-weights`: what members are worth, from problems set aside for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from math import fsum
from typing import Annotated, Literal

from attrs import evolve, frozen

from orchestrion import (
    Branch,
    Episode,
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
from orchestrion_ensemble.ballots import ballot_from
from orchestrion_ensemble.interfaces import Aggregator, Example
from orchestrion_ensemble.votes import accuracies_of

__all__ = ["EnsembleWeights"]


@frozen
class EnsembleWeights:
    """Teaches an aggregator what its voters are worth, and keeps it as an overlay of settings.

    It runs the team on problems of `split`, with early stopping off, lets the task's verifier judge
    each different answer of the ensemble's members as if it were the ensemble's own, and hands
    ballots and verdicts to the aggregator. The verifier has to judge by what turns say: what an
    environment's state says of an answer given inside an ensemble cannot be known.

    Args:
        aggregator: what learns, by its name in `aggregators`.
        ensemble: the agent that uses it, by its name in `agents`.
        split: the problems. Weights fit the problems they were learned on better than others:
            report on another split, and use `train` only if the members were not trained on it.
        problems: at most so many; null means all.
    """

    aggregator: Aggregator
    ensemble: Annotated[str, Meta(min_length=1)]
    split: Literal["train", "validation"] = "validation"
    problems: Annotated[int, Meta(ge=1)] | None = None

    @property
    def iterations(self) -> int:
        """One: all problems are asked at once."""
        return 1

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Learn the aggregator's place in the config."""
        [path] = ctx.names["aggregator"]
        if not path.startswith("aggregators."):
            raise UsageError(
                f"{ctx.path}.aggregator: name one of the section `aggregators`, which the ensemble "
                "names as well; what is learned has to have a place"
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
        """Refuse what there is nothing to learn from."""
        if not session.problems(self.settings.split):
            raise UsageError(
                f"the split {self.settings.split!r} has no problems to learn weights from"
            )

    async def iterate(self, i: int, session: Session) -> Metrics:
        settings = self.settings
        chosen = list(session.problems(settings.split))[: settings.problems]
        self.check(session)
        examples = await self._examples(session, chosen)
        key = session.key.child("learn")
        learned = settings.aggregator.learn(examples, key)
        session.adopt({f"{self.path}.{name}": value for name, value in learned.items()})
        return _metrics(examples)

    async def _examples(self, session: Session, problems: Sequence[Problem]) -> list[Example]:
        place = f"agents.{self.settings.ensemble}"
        async with session.build({f"{place}.early_stop": False}) as full:
            key = session.key.child("examples")
            jobs = [Job(one, key.child(one.id), training=False) for one in problems]
            episodes = await full.rollout(jobs)
            work = []
            for problem, episode in zip(problems, episodes, strict=True):
                for n, turn in enumerate(self._turns(episode)):
                    branch = full.begin(problem, key.child(problem.id, "verify", n))
                    work.append(_example(full, branch, turn))
            examples = list(await asyncio.gather(*work))
        if not examples:
            raise UsageError(
                f"the ensemble {self.settings.ensemble!r} never acted on {len(problems)} problems, "
                f"or does not use {self.path}: there is nothing to learn from"
            )
        return examples

    def _turns(self, episode: Episode) -> Iterator[Turn]:
        """The ensemble's turns, also inside other teams."""
        yield from _inside(episode.trajectory, self.settings.ensemble, self.path)


def _inside(trajectory: Trajectory, name: str, path: str) -> Iterator[Turn]:
    for turn in trajectory:
        if turn.agent == name and turn.output.metadata.get("aggregator") == path:
            yield turn
        elif turn.output.inner is not None:
            yield from _inside(turn.output.inner, name, path)


async def _example(session: Session, branch: Branch, turn: Turn) -> Example:
    """The ballots of a turn, and the verifier's word on each answer, asked once for each."""
    ballots = tuple(ballot_from(one) for one in turn.output.data["ballots"])
    # As its first voter said it: that is what the ensemble would say.
    texts = {one.answer: one.text for one in reversed(ballots) if one.answer is not None}
    for ballot in ballots:
        for answer in ballot.probabilities or ():
            texts.setdefault(answer, answer)
    right: dict[str, bool] = {}
    for n, (answer, text) in enumerate(texts.items()):
        said = Turn(0, turn.agent, None, Output(text, {"status": "winner", "answer": answer}))
        one = evolve(branch, trajectory=Trajectory([said]), key=branch.key.child(n))
        right[answer] = (await session.score(one, final=True)).success
    truths = [answer for answer, good in right.items() if good]
    verdicts = tuple(
        right[one.answer] if one.votes and one.answer is not None else None for one in ballots
    )
    truth = truths[0] if truths else None
    return Example(branch.problem.public(), ballots, verdicts, truth)


def _metrics(examples: Sequence[Example]) -> Metrics:
    """What the members were worth on the problems learned from."""
    accuracies = accuracies_of(examples)
    voted = [verdict is not None for example in examples for verdict in example.right]
    return {
        "examples": float(len(examples)),
        "answered": fsum(voted) / len(voted),
        "named": fsum(example.truth is not None for example in examples) / len(examples),
        "best_member": max(accuracies.values()),
        "mean_member": fsum(accuracies.values()) / len(accuracies),
    }
