"""The task `recorded` at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from orchestrion import (
    Activation,
    Calls,
    Key,
    Member,
    Problem,
    Scores,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    UsageError,
    choice_name,
    no_calls,
    replace,
    split_of,
)
from orchestrion_recorded.case import ABSENT, Case, Pricing, ballot, cases
from orchestrion_recorded.estimate import estimate
from orchestrion_recorded.table import Table, same
from orchestrion_recorded.view import StateView, Viewer

if TYPE_CHECKING:
    from orchestrion_recorded.task import RecordedTask

SOLVED = 0.5
"""The score from which a question counts as solved."""


@frozen
class RecordedState:
    """A question, the models asked as a bit set, and turns so far.

    `others` are choices that asked a model without being named for it in the team's roster, such as
    a nested team: they are blocked too, since a model can be asked once.
    """

    case: Case
    asked: int = 0
    turns: int = 0
    others: frozenset[str] = frozenset()


class Recording(Task):
    """The environment, and the judge.

    Args:
        settings: of the task.
        table: all questions.
        roster: the team, whose choices are blocked once their model was asked.
        turns: after so many the question is handed in with what was seen; None for no limit.
    """

    def __init__(
        self,
        settings: RecordedTask,
        table: Table,
        roster: Sequence[Member] = (),
        turns: int | None = None,
    ) -> None:
        self.settings, self.table, self.models = settings, table, table.models
        self._turns = turns
        self.splits: dict[str, Split] = {
            row.id: split_of(row.id, settings.split) for row in table.rows
        }
        train = table.only(name for name, split in self.splits.items() if split == "train")
        if not train.rows:
            raise UsageError(
                f"{table.source}: none of its {len(table.rows)} questions is for training; raise "
                "split.train, or bring more questions"
            )
        self.estimates = estimate(train, settings.shrinkage, settings.classes)
        self.pricing = Pricing(train, settings.unit)
        self.votes = self.ballots(self.estimates.votes)
        made = cases(
            table, self.estimates.groups, self.pricing, self.estimates.options, settings.usd
        )
        self.cases: Mapping[str, Case] = {case.row.id: case for case in made}
        self._problems = {case.row.id: _problem(case) for case in made}
        self._place = {model: i for i, model in enumerate(self.models)}
        self.blockers = [_choices(model, roster) for model in self.models]
        dearest = max(max(case.costs) for case in made if self.splits[case.row.id] == "train")
        self._viewer = Viewer(self.models, self.estimates, self.votes, self.blockers, dearest)
        self._others = self._cross_fitted(train, dearest)

    def _cross_fitted(self, train: Table, dearest: float) -> dict[str, Viewer]:
        """Return by training question who shows it, estimated without it and others of its fold."""
        folds, names = min(self.settings.folds, len(train.rows)), [row.id for row in train.rows]
        if folds < 2:
            return {}
        viewers = []
        for fold in range(folds):
            rest = train.only(name for i, name in enumerate(names) if i % folds != fold)
            estimates = estimate(
                rest, self.settings.shrinkage, self.settings.classes, self.estimates.groups
            )
            votes = self.ballots(estimates.votes)
            viewers.append(Viewer(self.models, estimates, votes, self.blockers, dearest))
        return {name: viewers[i % folds] for i, name in enumerate(names)}

    def _see(self, case: Case, asked: int) -> StateView:
        return self._others.get(case.row.id, self._viewer).see(case, asked)

    def ballots(self, votes: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return what votes count for under the task's `vote`, by group and model."""
        return [[ballot(weight, self.settings.vote) for weight in group] for group in votes]

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the questions of a split, in the table's order."""
        return [self._problems[name] for name, own in self.splits.items() if own == split]

    def problem_from(self, text: str) -> Problem:
        """Return the question with this id; a new question has no recorded answers."""
        if text.strip() not in self._problems:
            raise UsageError(
                f"{text!r} is not the id of a question in {self.table.source}; answers are "
                f"recorded only for those that are, e.g. {next(iter(self._problems))!r}"
            )
        return self._problems[text.strip()]

    def start(self, problem: Problem, key: Key) -> Step:
        """Return the state in which nobody was asked."""
        return self._step(RecordedState(self.cases[problem.id]))

    def step(self, state: RecordedState, turn: Turn, key: Key) -> Step:
        """Show the answer of the model that a turn asked and paid for; other turns show nothing."""
        state = evolve(state, turns=state.turns + 1)
        model = self._model_of(state.case, turn)
        if model is None:
            return self._step(state)
        choice = choice_name(Activation(turn.agent, turn.option))
        others = state.others if choice in self.blockers[model] else state.others | {choice}
        return self._step(evolve(state, asked=state.asked | 1 << model, others=others))

    def _model_of(self, case: Case, turn: Turn) -> int | None:
        data = turn.output.data
        if turn.status != "completed" or not isinstance(data, dict):
            return None
        name = data.get("asks")
        model = self._place.get(name) if isinstance(name, str) else None
        if model is None or case.codes[model] == ABSENT:
            return None
        # Only what was paid for is shown.
        return model if turn.usage.cost >= case.costs[model] - 1e-12 else None

    def _step(self, state: RecordedState) -> Step:
        seen = self._see(state.case, state.asked)
        observation = seen.observation
        if state.others:
            observation = replace(observation, blocked=observation.blocked | state.others)
        # Of scores there is no vote: the one model asked is the choice. And what was paid for
        # counts also where the limit on turns leaves no room to say "stop".
        chosen = self.table.scored and state.asked != 0
        return Step(state, observation, seen.done or chosen or state.turns == self._turns)

    ceiling = no_calls

    async def verify(
        self,
        problem: Problem,
        trajectory: Trajectory,
        state: RecordedState,
        *,
        final: bool,
        calls: Calls,
    ) -> Scores:
        """Return 1 if the vote is the recorded right answer; or the score, solved from 0.5."""
        parts = {"asked": float(state.asked.bit_count())}
        if self.table.scored:
            chosen = state.asked.bit_length() - 1
            worth = problem.hidden["scores"].get(self.models[chosen], 0.0) if chosen >= 0 else 0.0
            return Scores(worth, worth >= SOLVED, parts)
        leads = self._see(state.case, state.asked).leader
        right = leads >= 0 and same(state.case.labels[leads]) == same(problem.hidden["right"])
        return Scores(float(right), right, parts)


def _problem(case: Case) -> Problem:
    row = case.row
    text = row.text or f"question {row.id}" + (f" of the group {row.group}" if row.group else "")
    scores = {
        model: record.score for model, record in row.answers.items() if record.score is not None
    }
    hidden = {"scores": scores} if scores else {"right": row.right}
    return Problem(row.id, text, {"options": case.options}, row.group, hidden)


def _choices(model: str, roster: Sequence[Member]) -> frozenset[str]:
    """Return the choices of a team that ask a model: an option, or an agent without options."""
    return frozenset(
        member.name if not member.options else f"{member.name}:{model}"
        for member in roster
        if model in member.options or (not member.options and member.name == model)
    )
