"""The task `recorded` at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from orchestrion import (
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
    no_calls,
)
from orchestrion_recorded.case import ABSENT, Case, Pricing, cases
from orchestrion_recorded.estimate import estimate
from orchestrion_recorded.split import split_of
from orchestrion_recorded.table import Table, same
from orchestrion_recorded.view import Viewer
from orchestrion_recorded.vote import ballot

if TYPE_CHECKING:
    from orchestrion_recorded.task import RecordedTask

__all__ = ["Recording", "State"]


@frozen
class State:
    """A question, the models asked as a bit set, and choices that must not be taken again although
    the team's roster does not have them."""

    case: Case
    asked: int = 0
    foreign: frozenset[str] = frozenset()


class Recording(Task):
    """The environment, and the judge.

    Args:
        settings: of the task.
        table: all questions.
        roster: the team, whose choices are blocked once their model was asked.
    """

    def __init__(self, settings: RecordedTask, table: Table, roster: Sequence[Member] = ()) -> None:
        self.settings, self.table, self.models = settings, table, table.models
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
        self.votes = [
            [ballot(weight, settings.vote) for weight in group] for group in self.estimates.votes
        ]
        made = cases(
            table, self.estimates.groups, self.pricing, self.estimates.options, settings.usd
        )
        self.cases: Mapping[str, Case] = {case.row.id: case for case in made}
        self._problems = {case.row.id: _problem(case) for case in made}
        self._place = {model: i for i, model in enumerate(self.models)}
        self.blockers = [_choices(model, roster) for model in self.models]
        dearest = max(max(case.costs) for case in made if self.splits[case.row.id] == "train")
        self._viewer = Viewer(self.models, self.estimates, self.votes, self.blockers, dearest)

    def problems(self, split: Split) -> Sequence[Problem]:
        """The questions of a split, in the table's order."""
        return [self._problems[name] for name, own in self.splits.items() if own == split]

    def problem_from(self, text: str) -> Problem:
        """The question with this id; its answers are recorded, those to a new one are not."""
        if text.strip() not in self._problems:
            raise UsageError(
                f"{text!r} is not the id of a question in {self.table.source}; answers are "
                f"recorded only for those that are, e.g. {next(iter(self._problems))!r}"
            )
        return self._problems[text.strip()]

    def start(self, problem: Problem, key: Key) -> Step:
        """Nobody was asked."""
        case = self.cases.get(problem.id)
        if case is None:
            raise UsageError(f"there is no question {problem.id!r} in {self.table.source}")
        return self._step(State(case))

    def step(self, state: State, turn: Turn, key: Key) -> Step:
        """Show the answer of the model that a turn asked and paid for; other turns show nothing."""
        model = self._asked(state.case, turn)
        if model is None:
            return self._step(state)
        foreign = state.foreign
        choice = turn.agent if turn.option is None else f"{turn.agent}:{turn.option}"
        if choice not in self.blockers[model]:
            foreign |= {choice}
        return self._step(State(state.case, state.asked | 1 << model, foreign))

    def _asked(self, case: Case, turn: Turn) -> int | None:
        data = turn.output.data
        if turn.status != "completed" or not isinstance(data, dict):
            return None
        name = data.get("asks")
        model = self._place.get(name) if isinstance(name, str) else None
        if model is None or case.said[model] == ABSENT:
            return None
        # Only what was paid for is shown.
        return model if turn.usage.cost >= case.costs[model] - 1e-12 else None

    def _step(self, state: State) -> Step:
        seen = self._viewer.see(state.case, state.asked)
        observation = seen.observation
        if state.foreign:
            observation = evolve(observation, blocked=observation.blocked | state.foreign)
        return Step(state, observation, seen.done)

    ceiling = no_calls

    async def verify(
        self,
        problem: Problem,
        trajectory: Trajectory,
        state: State,
        *,
        final: bool,
        calls: Calls,
    ) -> Scores:
        """1 if the vote is the recorded right answer."""
        leads = self._viewer.see(state.case, state.asked).leader
        right = leads >= 0 and same(state.case.labels[leads]) == same(problem.hidden["right"])
        return Scores(float(right), right, {"asked": float(state.asked.bit_count())})


def _problem(case: Case) -> Problem:
    row = case.row
    text = row.text or f"question {row.id}" + (f" of the group {row.group}" if row.group else "")
    return Problem(row.id, text, {"options": case.options}, row.group, {"right": row.right})


def _choices(model: str, roster: Sequence[Member]) -> frozenset[str]:
    """The choices of a team that ask a model: its option, or an agent of its name without any."""
    return frozenset(
        member.name if not member.options else f"{member.name}:{model}"
        for member in roster
        if model in member.options or (not member.options and member.name == model)
    )
