"""Learn habits: the improver `behaviours`. Read `HabitImprover.improve` first.

In each round, for each agent that has a setting `habits`:

    1. a model reads its best and its worst episodes, and proposes habits of one sentence
    2. each habit is tried on validation problems, with and without it, under the same keys
    3. it is adopted if it helps (`trials.judge`), does not cost too much, and does not harm in
       other categories; the level is `chance` divided by the number of proposals
    4. some habits in use are tried again, by leaving them out; useless ones are retired

The source is the learned behaviours of beam-search systems, lists of sentences by role and category
that a model derives from the best and the worst trajectories. Difference: there, a proposal is
adopted because a model made it; here, only a trial decides.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar

from attrs import field, frozen
from msgspec.structs import replace
from orchestrion_beam.interfaces import Group, Improvement, Improver

from orchestrion import (
    JSON,
    CheckpointError,
    Key,
    Meta,
    Model,
    OpenContext,
    Plan,
    Problem,
    Saved,
    Session,
    Split,
    UsageError,
)
from orchestrion_improve.asking import most_asked
from orchestrion_improve.habits import ANY, Habit, HabitTrial, Library, read_file
from orchestrion_improve.proposing import Candidate, Proposer
from orchestrion_improve.trials import (
    Change,
    Overlay,
    TrialImprover,
    TrialResult,
    changed,
    fewest_problems,
    most_pairs,
)

Count = Annotated[int, Meta(ge=1)]
SETTING = "habits"
COUNTED = (
    "proposed known unusable failed untested adopted refused tried_again retired trial_episodes"
).split()


@frozen(kw_only=True)
class Behaviours:
    """Learns short habits, and keeps those that help on problems they were not made from.

    In every round a model reads the best and the worst episodes of each agent that has a setting
    `habits`, and proposes habits for problems of one category, or of any. Each is tried on
    validation problems: the same problems and the same keys, with it and without. It is adopted if
    both a paired bootstrap interval and a randomisation test say that it helps, corrected for the
    number of proposals of the round. Habits in use are tried again on fresh draws, and retired when
    they no longer help.

    Args:
        model: reads and proposes.
        agents: the agents that learn; by default all of the team that have the setting.
        proposals: most habits that a round proposes for an agent.
        examples: best and worst episodes that the model reads, of each category.
        reads: characters of episodes in a question; each episode is cut to its share.
        pairs: pairs of episodes in a trial; with fewer problems than pairs, problems repeat with
            other draws. If a habit raises the solved share from .5 to .65, 400 pairs find it 98
            times in 100.
        chance: chance that a round adopts a useless habit, whatever the number of proposals.
        elsewhere: pairs on other categories, on which a habit for one category must not harm.
        extra: share by which an episode may use more calls, dollars or cost.
        again: habits in use that a round tries again, those with the fewest trials first.
        cap: most habits in use of an agent; a better habit replaces the weakest.
        begin_with: habits to begin with: a run's folder, its `learned_behaviors.json`, or a file
            of habits by agent and category.
        max_tokens: most tokens of an answer of the model.
    """

    smoke: ClassVar[Mapping[str, JSON]] = {"pairs": 12, "elsewhere": 4}

    model: Model
    agents: Sequence[str] = ()
    proposals: Count = 4
    examples: Count = 2
    reads: Annotated[int, Meta(ge=1000)] = 24_000
    pairs: Count = 400
    chance: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    elsewhere: Annotated[int, Meta(ge=0)] = 64
    extra: Annotated[float, Meta(ge=0)] = 0.2
    again: Annotated[int, Meta(ge=0)] = 1
    cap: Count = 8
    begin_with: Path | None = None
    max_tokens: Count = 1500

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Improver]:
        """Yield the runtime, with an empty library."""
        yield HabitImprover(self, ctx)


@frozen
class _Round:
    number: int
    groups: Sequence[Group]
    problems: Sequence[Problem]  # that may decide
    session: Session
    counts: Counter[str] = field(factory=Counter)

    def key(self, name: str) -> Key:
        return self.session.key.child("improve", "behaviours").child(name)

    def problems_of(self, habit: Habit) -> list[Problem]:
        """Return the problems that the habit is for."""
        return [p for p in self.problems if habit.category in (ANY, p.category)]


class HabitImprover(TrialImprover):
    """The runtime of `behaviours`; its state is the library of habits."""

    def __init__(self, settings: Behaviours, ctx: OpenContext) -> None:
        super().__init__(ctx, SETTING, settings.agents)
        self.settings = settings
        self.proposer = Proposer(
            settings.model,
            settings.proposals,
            settings.examples,
            settings.reads,
            settings.max_tokens,
        )
        self.habits = Library()
        self.given: dict[str, list[str]] | None = None
        """Habits in the config, by agent; None before the first round."""

    def check(self, session: Session) -> None:
        """Refuse a team without habits, and a file to begin with that cannot be used.

        Raises:
            UsageError: see above.
        """
        self._read(self.roles(session))

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan | None:
        """Return the most that one round uses; None if the model has no bound."""
        settings, roles = self.settings, len(self.settings.agents or self.team)
        questions = most_asked(settings.model, settings.reads, 2 * roles)
        if questions is None:
            return None
        # A trial has two sides, each run for it alone at most. All proposals may win, and all
        # winners but the first are tried again beside the others.
        proposals = roles * settings.proposals
        pairs = most_pairs(settings.pairs, sizes) * (2 * proposals + settings.again)
        pairs += most_pairs(settings.elsewhere, sizes) * proposals
        return Plan(2 * pairs, usage=questions)

    def start(self, session: Session) -> Overlay:
        """Return what agents are told before the first round; empty without `begin_with`.

        Raises:
            UsageError: see `check`.
        """
        self.check(session)
        if self.given is None:
            roles, settings = self.roles(session), session.learnable()
            self.habits = self._read(roles)
            self.given = {role: list(settings[self.path_of(role)]) for role in roles}
        return self._overlay() if self.habits.active() else {}

    def _read(self, roles: Sequence[str]) -> Library:
        """Return the habits to begin with; none after the first round."""
        path = self.settings.begin_with
        if path is None or self.given is not None:
            return Library()
        library = read_file(path)
        if unknown := sorted({habit.role for habit in library.habits} - set(roles)):
            raise UsageError(
                f"{self.path}.begin_with: {path} has habits of {unknown[0]!r}, and agents that can "
                f"learn habits here are {', '.join(roles)}"
            )
        return library

    async def improve(
        self, round: int, groups: Sequence[Group], problems: Sequence[Problem], session: Session
    ) -> Improvement:
        """Propose habits, try them, and return those in use; see `Improver`."""
        self.start(session)
        current = _Round(round, groups, problems, session)
        proposed = await self._propose(current)
        level = self.settings.chance / max(1, len(proposed))
        await self._try([c for c in proposed if self._has_problems(c, level, current)], current)
        metrics = {f"habits_{name}": float(current.counts[name]) for name in COUNTED}
        metrics["habits_active"] = float(len(self.habits.active()))
        return Improvement(changed(self._overlay(), session), metrics)

    # ----------------------------------------------------------------------------- propose

    async def _propose(self, current: _Round) -> list[Candidate]:
        """Return the habits that the model proposes and that are new."""
        key, session, counts = current.key("ask"), current.session, current.counts
        questions = (
            self.proposer.propose(self.habits, role, current.groups, session, key, counts)
            for role in self.given or {}
        )
        answers = await asyncio.gather(*questions)
        candidates: dict[tuple[str, str], Candidate] = {}
        for candidate in chain.from_iterable(answers):
            current.counts["proposed"] += 1
            habit = replace(candidate.habit, round=current.number)
            if self.habits.knows(habit.role, habit.category, habit.text):
                current.counts["known"] += 1
                continue
            candidate = Candidate(habit, candidate.replaces)
            candidates.setdefault((habit.role, habit.text), candidate)
        return list(candidates.values())

    def _has_problems(self, candidate: Candidate, level: float, current: _Round) -> bool:
        """Return whether there are enough problems; else the habit is recorded as refused."""
        available, needed = len(current.problems_of(candidate.habit)), fewest_problems(level)
        if available >= needed:
            return True
        current.counts["untested"] += 1
        reason = f"untested: {available} validation problems, at least {needed} are needed"
        trial = HabitTrial(problems=available)
        self.habits.add(replace(candidate.habit, status="refused", reason=reason, tested_on=trial))
        return False

    # --------------------------------------------------------------------------------- try

    async def _try(self, candidates: Sequence[Candidate], current: _Round) -> None:
        """Try candidates with, and some habits in use without; adopt, refuse and retire."""
        key = current.key("try")
        old = [habit for habit in self.habits.active() if current.problems_of(habit)]
        old = sorted(old, key=lambda habit: habit.tested_again.pairs)[: self.settings.again]
        changes = [self._with(candidate, current) for candidate in candidates]
        changes += [self._without(habit, current) for habit in old]
        level = self.settings.chance / max(1, len(candidates))
        results = await self._compare(changes, level, key.child("first"), current)
        for habit, result in zip(old, results[len(candidates) :], strict=True):
            self._record_again(habit, result, current)
        winners = []
        for candidate, result in zip(candidates, results, strict=False):
            reason = self._reason_to_refuse(result)
            if not reason and candidate.habit.category != ANY and self.settings.elsewhere:
                reason = await self._harm_elsewhere(candidate, key, current)
            if reason:
                self._refuse(candidate, result, reason, current)
            else:
                winners.append((candidate, result))
        winners.sort(key=lambda pair: -pair[1].verdict.effect)
        for n, (candidate, result) in enumerate(winners):
            if n:
                # It won against the habits before this round; now there is one more.
                change = self._with(candidate, current)
                [result] = await self._compare([change], level, key.child("beside", n), current)
            if reason := self._reason_to_refuse(result):
                self._refuse(candidate, result, reason, current)
            else:
                self._adopt(candidate, result, current)

    async def _compare(
        self, changes: Sequence[Change], level: float, key: Key, current: _Round
    ) -> list[TrialResult]:
        base, counts = self._overlay(), current.counts
        return await self.compare(current.session, base, changes, level, key, counts)

    async def _harm_elsewhere(self, candidate: Candidate, key: Key, current: _Round) -> str:
        """Return why a habit for one category is refused on others; empty if it is not."""
        habit, settings = candidate.habit, self.settings
        others = [problem for problem in current.problems if problem.category != habit.category]
        if not others:
            return ""
        name = key.child("elsewhere", habit.role, habit.category, habit.text)
        name.child("order").random().shuffle(others)
        change = Change(self._overlay(candidate), others, settings.elsewhere, give_up=False)
        [result] = await self._compare([change], settings.chance, name, current)
        return "harms on other categories" if result.verdict.harms else ""

    def _with(self, candidate: Candidate, current: _Round) -> Change:
        problems = current.problems_of(candidate.habit)
        return Change(self._overlay(candidate), problems, self.settings.pairs)

    def _without(self, habit: Habit, current: _Round) -> Change:
        rest = Library([other for other in self.habits.habits if other is not habit])
        overlay, problems = self._overlay(library=rest), current.problems_of(habit)
        return Change(overlay, problems, self.settings.pairs, give_up=False)

    def _reason_to_refuse(self, result: TrialResult) -> str:
        """Return why a candidate is refused; empty if it is not."""
        if result.missing > 0.5:
            return "too many rewards were missing"
        if result.verdict.harms:
            return "harms"
        if result.given_up or not result.verdict.helps:
            return "does not help"
        if result.extra_share > self.settings.extra:
            return f"helps, but takes {result.extra_share:.0%} more"
        return ""

    # ------------------------------------------------------------------------------ decide

    def _refuse(
        self, candidate: Candidate, result: TrialResult, reason: str, current: _Round
    ) -> None:
        current.counts["refused"] += 1
        habit = _measured(candidate.habit, result)
        self.habits.add(replace(habit, status="refused", reason=reason))

    def _adopt(self, candidate: Candidate, result: TrialResult, current: _Round) -> None:
        habit, replaced = _measured(candidate.habit, result), candidate.replaces
        active = self.habits.active(habit.role)
        if replaced is not None:
            self._retire(replaced, f"replaced: {habit.text}")
            habit = replace(habit, reason=f"replaced: {replaced.text}")
        elif len(active) >= self.settings.cap:
            weakest = active[-1]
            if weakest.worth >= habit.effect:
                reason = f"helps, but {self.settings.cap} are better"
                self._refuse(candidate, result, reason, current)
                return
            current.counts["retired"] += 1
            self._retire(weakest, "made room for a better one")
        current.counts["adopted"] += 1
        self.habits.add(habit)

    def _record_again(self, habit: Habit, result: TrialResult, current: _Round) -> None:
        current.counts["tried_again"] += 1
        # The change was to leave the habit out.
        tested = habit.after_trial(-result.verdict.effect, result.verdict.pairs)
        self.habits.put(tested)
        if tested.tested_again.pairs and tested.worth <= 0:
            current.counts["retired"] += 1
            self._retire(tested, "no longer helps")

    def _retire(self, habit: Habit, reason: str) -> None:
        self.habits.put(replace(habit, status="retired", reason=reason))

    def _overlay(
        self, candidate: Candidate | None = None, library: Library | None = None
    ) -> dict[str, JSON]:
        """Return the habits of all agents, with a candidate or from another library."""
        library = self.habits if library is None else library
        overlay: dict[str, JSON] = {}
        for role, given in (self.given or {}).items():
            texts = [habit.instruction for habit in library.active(role)]
            if candidate is not None and candidate.habit.role == role:
                old = candidate.replaces.instruction if candidate.replaces is not None else None
                texts = [*(text for text in texts if text != old), candidate.habit.instruction]
            overlay[self.path_of(role)] = [*given, *texts]
        return overlay

    # ------------------------------------------------------------------------------- state

    def save(self) -> Saved:
        """Return the library; its part `learned` goes into the run's exports."""
        return Saved(
            data={
                "learned": {"habits": self.habits.as_json()},
                "given": self.given,
                "judged_on": self.judged_on,
            }
        )

    def load(self, saved: Saved) -> None:
        """Take over a library.

        Raises:
            CheckpointError: the state is damaged.
        """
        data: Mapping[str, Any] = saved.data
        try:
            self.habits = Library.from_json(data["learned"]["habits"], self.path)
        except UsageError as error:
            raise CheckpointError(str(error)) from None
        given = data["given"]
        self.given = None if given is None else {role: list(v) for role, v in given.items()}
        self.judged_on = list(data["judged_on"])


def _measured(habit: Habit, result: TrialResult) -> Habit:
    verdict = result.verdict
    return replace(
        habit,
        effect=verdict.effect,
        interval=(verdict.low, verdict.high),
        tested_on=HabitTrial(problems=verdict.problems, pairs=verdict.pairs),
    )
