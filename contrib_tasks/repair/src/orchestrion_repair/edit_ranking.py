"""The trainer `edit-ranking`: which edits repair programs, learned from episodes and repairs.

Each iteration runs the team on some training problems. Where the verifier says that a program is
repaired, the edit that did it was right, and what was tried before it was not; where a program
passed the visible tests and failed a hidden one, its edit was wrong. From all that was seen so far
it counts how often each kind of edit was right (`counts.py`), and fits, from these counts on, the
model of `learned.py`. That becomes the task's `ranking` in the next iteration: it decides which
edits agents try first, which lines are the suspicious ones, and how promising each agent looks.

Episodes alone show only what the present order reaches: a right edit that it ranks too low is never
tried, and so never learned. Many training problems come with the program as it was repaired
(`Bug.solution`). Then every edit that restores that program is right as well, whether or not an
episode tried it. With `repairs`, the problems that no episode worked on are learned from in this
way too; for these the visible tests are run once.

Without `context`, what is learned ends with the counts.

All costs are test executions by agents of the team: of episodes, and one run of the visible tests
for each studied problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import msgspec
from attrs import Factory, astuple, define, field, frozen

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
from orchestrion_repair.counts import Counts, restoring
from orchestrion_repair.ranking import Program
from orchestrion_repair.state import (
    RepairState,
    after,
    program_of,
    situation_of,
    target_of,
    testers_of,
)

if TYPE_CHECKING:
    from orchestrion_repair.fitting import Rows
    from orchestrion_repair.learned import EditModel, EditSituation

PLACE = "task.ranking"
NEAREST, OTHERS = 150, 100
"""Of the edits with unknown outcome: how many of those that counts put first stand for themselves,
and how many are drawn to stand for all others."""


@frozen
class EditRanking:
    """Learns how the task `repair` ranks edits, as a setting of the task.

    Args:
        episodes: all training episodes; each problem has its turn before any has a second one.
        repairs: learn from the repaired programs that training problems come with, of all of them.
        context: learn more than how often each kind of edit is right.
        batch: episodes of an iteration, after which the ranking is fitted anew.
        doubt: how strongly the weights are drawn towards a ranking by counts alone.
    """

    episodes: Annotated[int, Meta(ge=0)] = 160
    repairs: bool = True
    context: bool = True
    batch: Annotated[int, Meta(ge=1)] = 80
    doubt: Annotated[float, Meta(gt=0)] = 12.0

    smoke: ClassVar[Mapping[str, Any]] = {"episodes": 4, "batch": 2}

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Yield a trainer that has seen nothing."""
        yield _Learner(self, ctx.key)


@frozen
class _EpisodeRecord:
    """Situations that an episode met, and all edits that it tried."""

    problem: str
    tried: tuple[int, ...]
    situations: tuple[EditSituation, ...]


class _Known(NamedTuple):
    """What is known of a problem: edits that restore the repaired program, counts of all edits."""

    restoring: frozenset[int] = frozenset()
    counts: Counts = Counts()


Spread = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Awaitable[list[Any]]]


@define
class _Learner(Trainer):
    settings: EditRanking
    key: Key
    seen: list[_EpisodeRecord] = Factory(list)
    right: dict[str, set[int]] = Factory(dict)
    """By problem: edits that the verifier accepted."""
    wrong: dict[str, set[int]] = Factory(dict)
    """By problem: edits that passed all visible tests and failed a hidden one."""
    _known: dict[tuple[str, frozenset[int]], _Known] = field(factory=dict, repr=False)
    """By problem, and what the verifier accepted."""

    @property
    def iterations(self) -> int:
        """Return one iteration a batch, and one without episodes."""
        return max(1, -(-self.settings.episodes // self.settings.batch))

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
        jobs = []
        for place in self._places(i):
            problem = self._problem(problems, place)
            jobs.append(Job(problem, session.key.child(problem.id, place)))
        for episode in await session.rollout(jobs):
            self._learn_of(episode)
        last = i == self.iterations - 1
        if last and self.settings.context:
            await self._study(session, problems)
        ranking = await self._learn(session.spread, {problem.id: problem for problem in problems})
        if ranking is not None:
            session.adopt({PLACE: ranking})
        metrics = {"repaired": float(len(self.right)), "seen": float(len(self.seen))}
        if last:  # what follows needs the ranking alone
            self.seen, self._known = [], {}
            self.right, self.wrong = {}, {}
        return metrics

    def _problem(self, problems: Sequence[Problem], place: int) -> Problem:
        """Return the problem of an episode: all of them in one order after the other."""
        lap, number = divmod(place, len(problems))
        order = list(range(len(problems)))
        self.key.child("order", lap).random().shuffle(order)
        return problems[order[number]]

    # ------------------------------------------------------------ what episodes show

    def _learn_of(self, episode: Episode) -> None:
        states = _states(episode)
        if not states:
            return
        # The program that the last turn changed: what was tried on others says nothing of it.
        code = states[-1][0].code
        if code != episode.problem.data["code"]:  # the second of two edits: another program
            return
        states = [(state, tried) for state, tried in states if state.code == code]
        edits = tuple(number for _, tried in states for number in tried)
        if not edits:
            return
        name, data = episode.problem.id, episode.trajectory.turns[-1].output.data
        if isinstance(data, Mapping) and data.get("tool") == "edits" and "code" in data:
            (self.right if episode.success else self.wrong).setdefault(name, set()).add(edits[-1])
        starts = [0]
        if len(states) > 1:
            share = self.key.child("situation", name).uniform()
            starts.append(1 + int(share * (len(states) - 1)))
        situations = tuple(situation_of(states[start][0]) for start in starts)
        self.seen.append(_EpisodeRecord(name, edits, situations))

    async def _study(self, session: Session, problems: Sequence[Problem]) -> None:
        """Have the tests run of problems whose repair is known and that no episode worked on."""
        testers = testers_of(session.roster)
        if not testers:
            return
        await self._look_at(session.spread, problems)
        met, key = {record.problem for record in self.seen}, session.key.child("study")
        studied = [
            self._studied(session, testers[0], problem, key.child(problem.id))
            for problem in problems
            if problem.id not in met and self._known_of(problem).restoring
        ]
        self.seen += [record for record in await asyncio.gather(*studied) if record is not None]

    async def _studied(
        self, session: Session, tester: str, problem: Problem, key: Key
    ) -> _EpisodeRecord | None:
        branch = session.begin(problem, key.child("begin"))
        branch = await session.extend(branch, [Activation(tester)], key.child("tests"))
        state = branch.step.state
        if not isinstance(state, RepairState) or not state.failing:
            return None
        return _EpisodeRecord(problem.id, (), (situation_of(state),))

    async def _look_at(self, spread: Spread, problems: Iterable[Problem]) -> None:
        """Find out which edits restore repaired programs, and count the edits of these problems."""
        new = {
            name: problem
            for problem in problems
            if (name := self._name(problem)) not in self._known
            and (name[1] or (self.settings.repairs and _repair(problem)))
        }
        items = [(problem, self.settings.repairs, right) for (_, right), problem in new.items()]
        self._known |= zip(new, await spread(known_of, items), strict=True)

    def _name(self, problem: Problem) -> tuple[str, frozenset[int]]:
        return problem.id, frozenset(self.right.get(problem.id, ()))

    def _known_of(self, problem: Problem) -> _Known:
        return self._known.get(self._name(problem), _Known())

    def _right(self, problem: Problem) -> frozenset[int]:
        """Return the edits that are known to repair a problem."""
        return self._known_of(problem).restoring | self.right.get(problem.id, set())

    async def _learn(self, spread: Spread, problems: Mapping[str, Problem]) -> str | None:
        """Return the ranking by all that was seen; None if nothing was right so far."""
        from orchestrion_repair.fitting import fit, with_rates
        from orchestrion_repair.learned import counted

        await self._look_at(spread, problems.values())
        right = {name: problem for name, problem in problems.items() if self._right(problem)}
        own = {name: self._known_of(problem).counts for name, problem in right.items()}
        if not own:
            return None
        counts = Counts()
        for known in own.values():
            counts.add(known)
        start = counted(counts.rates())
        if not self.settings.context:
            return start.to_text()
        items = [
            self._item(number, n, problems[seen.problem], start)
            for number, seen in enumerate(self.seen)
            if seen.problem in own
            for n in range(len(seen.situations))
        ]
        rows = await spread(row_of, items)

        def fitted() -> str:
            cases = [
                (with_rates(row, counts.without(own[item[0].id]).rates()), row)
                for item, row in zip(items, rows, strict=True)
                if row is not None
            ]
            return (fit(cases, start, self.settings.doubt) if cases else start).to_text()

        return await asyncio.to_thread(fitted)

    def _item(self, number: int, n: int, problem: Problem, start: EditModel) -> tuple[Any, ...]:
        """Return the arguments of `row_of` for one situation."""
        seen = self.seen[number]
        right = self._right(problem)
        wrong = (set(seen.tried) | self.wrong.get(seen.problem, set())) - right
        key = self.key.child("others", seen.problem, number, n)
        return problem, seen.situations[n], right, frozenset(wrong), start, key.digest

    # ------------------------------------------------------------ saved state

    def save(self) -> Saved:
        """Return what was seen; the ranking itself is a setting of the task."""
        records = [astuple(record, recurse=False) for record in self.seen]
        data = {"seen": records, "right": self.right, "wrong": self.wrong}
        return Saved(data=msgspec.to_builtins(data, order="deterministic"))

    def load(self, saved: Saved) -> None:
        """Take over what was seen."""
        from orchestrion_repair.learned import EditSituation

        kind = list[tuple[str, tuple[int, ...], tuple[EditSituation, ...]]]
        self.seen = [_EpisodeRecord(*row) for row in msgspec.convert(saved.data["seen"], kind)]
        self.right = msgspec.convert(saved.data["right"], dict[str, set[int]])
        self.wrong = msgspec.convert(saved.data["wrong"], dict[str, set[int]])


def known_of(problem: Problem, repairs: bool, right: frozenset[int]) -> _Known:
    """Return what is known of a problem, some edits of which the verifier accepted."""
    edits, repair = _program(problem).candidates, _repair(problem) if repairs else ""
    numbers = restoring(edits, problem.data["code"], repair) if repair else ()
    return _Known(frozenset(numbers), Counts.of(edits, right.union(numbers)))


def row_of(
    problem: Problem,
    situation: EditSituation,
    right: frozenset[int],
    wrong: frozenset[int],
    start: EditModel,
    seed: bytes,
) -> Rows | None:
    """Return the case of a situation, as the fit needs it; None if all that is right was tried."""
    from orchestrion_repair.fitting import rows_of
    from orchestrion_repair.learned import rank

    right, wrong = right - situation.tried, wrong - situation.tried
    if not right:
        return None
    program = _program(problem)
    ranked = rank(start, program, situation).numbers.tolist()
    unknown = [place for place in ranked if place not in right and place not in wrong]
    nearest, rest = unknown[:NEAREST], unknown[NEAREST:]
    others = Key(seed).random().sample(rest, min(OTHERS, len(rest)))
    known = (*sorted(wrong), *nearest)
    return rows_of(program, situation, sorted(right), known, others, len(rest))


def _repair(problem: Problem) -> str:
    """Return the repaired program, if it is known."""
    hidden = problem.hidden
    return str(hidden.get("repair", "")) if isinstance(hidden, Mapping) else ""


def _program(problem: Problem) -> Program:
    return program_of(RepairState(target_of(problem.data), problem.data["code"]))


def _states(episode: Episode) -> list[tuple[RepairState, tuple[int, ...]]]:
    """Return the state before each turn that tried edits, and what it tried."""
    problem = episode.problem
    state = RepairState(target_of(problem.data), problem.data["code"])
    states = []
    for turn in episode.trajectory.turns:
        data = turn.output.data
        if isinstance(data, Mapping) and data.get("tool") == "edits":
            states.append((state, tuple(data.get("tried", ()))))
        state = after(state, turn)
    return states
