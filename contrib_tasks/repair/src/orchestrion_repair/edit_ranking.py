"""The trainer `edit-ranking`: which edits repair programs, learned from episodes and repairs.

Each iteration runs the team on some training problems. Where the verifier says that a program is
repaired, the edit that did it was right, and what was tried before it was not; where a program
passed the visible tests and failed a hidden one, its edit was wrong. From all that was seen so far
the model of `learned.py` is fitted anew, and becomes the task's `ranking` in the next iteration: it
decides which edits agents try first, which lines are the suspicious ones, and how promising each
agent looks.

Episodes alone show only what the present order reaches: a right edit that it ranks too low is never
tried, and so never learned. Many training problems come with the program as it was repaired
(`Bug.solution`). Then every edit that restores that program is right as well, whether or not an
episode tried it. With `repairs`, the problems that no episode worked on are learned from in this
way too; for these the visible tests are run once.

All costs are test executions by agents of the team: of episodes, and one run of the visible tests
for each studied problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from attrs import Factory, define, field, frozen

from orchestrion import (
    Activation,
    Episode,
    Job,
    Key,
    Meta,
    Metrics,
    OpenContext,
    Plan,
    Problem,
    Saved,
    Session,
    Split,
    Trainer,
    UsageError,
)
from orchestrion_repair.prior import restoring
from orchestrion_repair.state import State, after, program_of, situation_of, target_of, testers_of

if TYPE_CHECKING:
    from orchestrion_repair.learned import Situation

__all__ = ["EditRanking"]

PLACE = "task.ranking"
OTHERS = 100
"""Size of the random sample that represents the edits with unknown outcome."""


@frozen
class EditRanking:
    """Learns how the task `repair` ranks edits, as a setting of the task.

    Args:
        episodes: all training episodes; each problem has its turn before any has a second one.
        repairs: learn from the repaired programs that training problems come with, of all of them.
        batch: episodes of an iteration, after which the ranking is fitted anew.
        doubt: how strongly the weights are drawn towards the hand-made ranking.
    """

    episodes: Annotated[int, Meta(ge=1)] = 160
    repairs: bool = True
    batch: Annotated[int, Meta(ge=1)] = 80
    doubt: Annotated[float, Meta(gt=0)] = 2.5

    smoke: ClassVar[Mapping[str, Any]] = {"episodes": 4, "batch": 2}

    @property
    def iterations(self) -> int:
        """One a batch."""
        return -(-self.episodes // self.batch)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """With nothing seen."""
        yield _Learner(self, ctx.key)


@frozen
class _Seen:
    """Situations that an episode met, and all edits that it tried."""

    problem: str
    tried: tuple[int, ...]
    situations: tuple[Situation, ...]


@define
class _Learner(Trainer):
    settings: EditRanking
    key: Key
    seen: list[_Seen] = Factory(list)
    right: dict[str, set[int]] = Factory(dict)
    """By problem: edits that the verifier accepted."""
    wrong: dict[str, set[int]] = Factory(dict)
    """By problem: edits that passed all visible tests and failed a hidden one."""
    _restoring: dict[str, frozenset[int]] = field(factory=dict, repr=False)
    _rows: dict[tuple[Any, ...], Any] = field(factory=dict, repr=False)

    @property
    def iterations(self) -> int:
        return self.settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Return the episodes of a batch; what else it does takes no calls."""
        return Plan(len(self._places(i)))

    def _places(self, i: int) -> range:
        """Return the numbers of the episodes of an iteration."""
        first = i * self.settings.batch
        return range(first, min(first + self.settings.batch, self.settings.episodes))

    def check(self, session: Session) -> None:
        """Refuse another task."""
        if PLACE not in session.learnable():
            raise UsageError(
                "the trainer `edit-ranking` teaches the task `repair`; name another trainer"
            )

    async def iterate(self, i: int, session: Session) -> Metrics:
        problems = session.problems("train")
        places = self._places(i)
        chosen = [self._problem(problems, place) for place in places]
        jobs = [
            Job(one, session.key.child(one.id, place))
            for place, one in zip(places, chosen, strict=True)
        ]
        episodes = await session.rollout(jobs)
        for episode in episodes:
            self._learn_of(episode)
        if i == self.iterations - 1:
            await self._study(session, problems)
        named = {problem.id: problem for problem in problems}
        ranking = await asyncio.to_thread(self._fitted, named)
        if ranking is not None:
            session.adopt({PLACE: ranking})
        metrics = {
            "repaired": float(len(self.right)),
            "seen": float(len(self.seen)),
        }
        if i == self.iterations - 1:  # what follows needs the ranking alone
            self.seen, self._rows = [], {}
            self.right, self.wrong = {}, {}
        return metrics

    def _problem(self, problems: Sequence[Problem], place: int) -> Problem:
        """The problem of an episode: all of them in one order after the other."""
        lap, number = divmod(place, len(problems))
        order = list(range(len(problems)))
        self.key.child("order", lap).random().shuffle(order)
        return problems[order[number]]

    # ------------------------------------------------------------ what episodes show

    def _learn_of(self, episode: Episode) -> None:
        states = list(_states(episode))
        if not states:
            return
        # The program that the last turn changed: what was tried on others says nothing of it.
        code = states[-1][0].code
        states = [(state, tried) for state, tried in states if state.code == code]
        if code != episode.problem.data["code"]:  # the second of two edits: another program
            return
        edits = tuple(number for _, tried in states for number in tried)
        if not edits:
            return
        name, data = episode.problem.id, episode.trajectory.turns[-1].output.data
        if isinstance(data, Mapping) and data.get("tool") == "edits" and "code" in data:
            (self.right if episode.success else self.wrong).setdefault(name, set()).add(edits[-1])
        starts = [0] if len(states) == 1 else [0, 1 + _drawn(self.key, name, len(states) - 1)]
        situations = tuple(situation_of(states[start][0]) for start in starts)
        self.seen.append(_Seen(name, edits, situations))

    async def _study(self, session: Session, problems: Sequence[Problem]) -> None:
        """Have the tests run of problems whose repair is known and that no episode worked on."""
        testers = testers_of(session.roster)
        met = {item.problem for item in self.seen}
        chosen = [item for item in problems if item.id not in met and self._restored(item)]
        if not testers:
            return
        key = session.key.child("study")
        studied = [self._studied(session, testers[0], item, key.child(item.id)) for item in chosen]
        self.seen += [item for item in await asyncio.gather(*studied) if item is not None]

    async def _studied(
        self, session: Session, tester: str, problem: Problem, key: Key
    ) -> _Seen | None:
        branch = session.begin(problem, key.child("begin"))
        branch = await session.extend(branch, [Activation(tester)], key.child("tests"))
        state = branch.step.state
        if not isinstance(state, State) or not state.failing:
            return None
        return _Seen(problem.id, (), (situation_of(state),))

    def _restored(self, problem: Problem) -> frozenset[int]:
        """The edits that give the repaired program, if it is known."""
        hidden = problem.hidden
        repair = hidden.get("repair", "") if isinstance(hidden, Mapping) else ""
        if not self.settings.repairs or not repair:
            return frozenset()
        if problem.id not in self._restoring:
            program = program_of(State(target_of(problem.data), problem.data["code"]))
            numbers = restoring(program.candidates, problem.data["code"], repair)
            self._restoring[problem.id] = frozenset(numbers)
        return self._restoring[problem.id]

    def _fitted(self, problems: Mapping[str, Problem]) -> str | None:
        """The ranking by all that was seen; None if nothing was right so far."""
        from orchestrion_repair.learned import fit

        rows = [
            self._row(number, n, problems[seen.problem])
            for number, seen in enumerate(self.seen)
            for n in range(len(seen.situations))
        ]
        rows = [row for row in rows if row is not None]
        return fit(rows, self.settings.doubt).to_text() if rows else None

    def _row(self, number: int, n: int, problem: Problem) -> Any:
        """The case of one situation, as the fit needs it; None if nothing is known to be right."""
        from orchestrion_repair.learned import Case, rows_of

        seen = self.seen[number]
        situation = seen.situations[n]
        right = self._restored(problem) | self.right.get(seen.problem, set())
        right -= situation.tried
        if not right:
            return None
        wrong = set(seen.tried) | self.wrong.get(seen.problem, set())
        wrong -= right | situation.tried
        name = number, n, frozenset(right), frozenset(wrong)
        if name not in self._rows:
            program = program_of(State(target_of(problem.data), problem.data["code"]))
            known = right | wrong | situation.tried
            rest = [place for place in range(len(program.candidates)) if place not in known]
            generator = self.key.child("others", seen.problem, number, n).random()
            others = generator.sample(rest, min(OTHERS, len(rest)))
            case = Case(
                program,
                situation,
                tuple(sorted(right)),
                tuple(sorted(wrong)),
                tuple(others),
                len(rest),
            )
            self._rows[name] = rows_of(case)
        return self._rows[name]

    # ------------------------------------------------------------ saved state

    def save(self) -> Saved:
        """What was seen; the ranking itself is a setting of the task."""
        from orchestrion_repair.learned import situation_json

        seen = [
            [item.problem, list(item.tried), [situation_json(s) for s in item.situations]]
            for item in self.seen
        ]
        right, wrong = (
            {name: sorted(numbers) for name, numbers in known.items()}
            for known in (self.right, self.wrong)
        )
        return Saved(data={"seen": seen, "right": right, "wrong": wrong})

    def load(self, saved: Saved) -> None:
        """Take over what was seen."""
        from orchestrion_repair.learned import situation_from

        self.seen = [
            _Seen(
                problem, tuple(tried), tuple(situation_from(situation) for situation in situations)
            )
            for problem, tried, situations in saved.data["seen"]
        ]
        self.right, self.wrong = (
            {name: set(numbers) for name, numbers in saved.data[known].items()}
            for known in ("right", "wrong")
        )
        self._rows = {}


def _states(episode: Episode) -> list[tuple[State, tuple[int, ...]]]:
    """The state before each turn that tried edits, and what it tried."""
    problem = episode.problem
    state = State(target_of(problem.data), problem.data["code"])
    states = []
    for turn in episode.trajectory.turns:
        data = turn.output.data
        if isinstance(data, Mapping) and data.get("tool") == "edits":
            states.append((state, tuple(data.get("tried", ()))))
        state = after(state, turn)
    return states


def _drawn(key: Key, name: str, number: int) -> int:
    return int(key.child("situation", name).uniform() * number)
