"""The improver `behaviours` at work: propose, try, adopt, try again, retire."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen
from orchestrion_beam.interfaces import Group, Improvement, Improver

from orchestrion import JSON, CheckpointError, Key, Plan, Problem, Saved, Session, Split, UsageError
from orchestrion_improve.coach import Proposal, ask_for_habits
from orchestrion_improve.habits import ANY, Habit, Library, read_file
from orchestrion_improve.judging import fewest_problems
from orchestrion_improve.planning import habits_round
from orchestrion_improve.settings import changes, path_of, places
from orchestrion_improve.trials import Change, Overlay, Result, compare

if TYPE_CHECKING:
    from orchestrion_improve.behaviours import Behaviours

__all__ = ["Learner"]

SETTING = "habits"


@frozen
class Candidate:
    """A habit on trial, and the one it would replace."""

    habit: Habit
    replaces: Habit | None = None


class Learner(Improver):
    """The runtime of `behaviours`. What it knows is the library, and what agents had before."""

    def __init__(self, settings: Behaviours, path: str, team: Sequence[str]) -> None:
        self.settings, self.path = settings, path
        self.agents = tuple(settings.agents or team)
        self.behaviours = Library()
        self.given: dict[str, list[str]] | None = None
        """Habits that the config gives, by role; None before the first round."""
        self.judged_on: list[str] = []
        """Validation problems that decided about a habit."""

    # ------------------------------------------------------------------------ beginning

    def check(self, session: Session) -> None:
        """Refuse a team without habits, and a file to begin with that cannot be used."""
        roles = self._roles(session)
        if strangers := sorted(set(self.settings.agents) - set(roles)):
            raise UsageError(f"{self.path}.agents: {strangers[0]!r} has no learnable habits")
        if not roles:
            raise UsageError(
                f"{self.path}: no agent of this team has a learnable setting `{SETTING}`; agents "
                "that use `chat` do"
            )
        if self.given is None and self.settings.begin_with is not None:
            self._read(roles)

    def _roles(self, session: Session) -> list[str]:
        return [one for one in places(session, SETTING) if one in self.agents]

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """The most that one round takes."""
        return habits_round(self.settings, len(self.agents), sizes, turns)

    def start(self, session: Session) -> Overlay:
        """What agents are told before the first round; empty unless there is a file to begin with.

        Raises:
            UsageError: as `check`.
        """
        self.check(session)
        if self.given is None:
            roles, settings = self._roles(session), session.learnable()
            self.given = {role: list(settings[path_of(role, SETTING)]) for role in roles}
            if self.settings.begin_with is not None:
                self.behaviours = self._read(roles)
        return self._overlay(self.behaviours) if self.behaviours.active() else {}

    def _read(self, roles: Sequence[str]) -> Library:
        assert self.settings.begin_with is not None
        library = read_file(self.settings.begin_with)
        strangers = sorted({one.role for one in library.habits} - set(roles))
        if strangers:
            raise UsageError(
                f"{self.path}.begin_with: {self.settings.begin_with} has habits of "
                f"{strangers[0]!r}, and agents that can learn habits here are {', '.join(roles)}"
            )
        return library

    # ------------------------------------------------------------------------ a round

    async def improve(
        self, round: int, groups: Sequence[Group], problems: Sequence[Problem], session: Session
    ) -> Improvement:
        """See `Improver`."""
        self.start(session)
        counts: Counter[str] = Counter()
        key = session.key.child("improve", "behaviours")
        proposed = await self._propose(round, groups, session, key.child("ask"), counts)
        candidates = [
            one for one in proposed if self._can_be_tried(one, problems, len(proposed), counts)
        ]
        await self._try(candidates, problems, session, key.child("try"), counts)
        metrics = {f"habits_{name}": float(counts[name]) for name in _COUNTED}
        metrics["habits_active"] = float(len(self.behaviours.active()))
        return Improvement(changes(self._overlay(self.behaviours), session), metrics)

    async def _propose(
        self,
        round: int,
        groups: Sequence[Group],
        session: Session,
        key: Key,
        counts: Counter[str],
    ) -> list[Candidate]:
        settings, roles = self.settings, list(self.given or {})
        replies = await asyncio.gather(
            *(
                ask_for_habits(
                    settings.model,
                    session,
                    key.child(role),
                    role,
                    groups,
                    self.behaviours.active(role),
                    self.behaviours.refused(role),
                    settings.proposals,
                    settings.examples,
                    settings.reads,
                    settings.max_tokens,
                )
                for role in roles
            )
        )
        found: list[Candidate] = []
        for reply in replies:
            counts["unusable"] += reply.unusable
            counts["failed"] += reply.failed
            for one in reply.value or ():
                counts["proposed"] += 1
                if self.behaviours.knows(one.role, one.category, one.text):
                    counts["known"] += 1
                elif all(one.text != c.habit.text or one.role != c.habit.role for c in found):
                    found.append(self._candidate(one, round))
        return found

    def _candidate(self, one: Proposal, round: int) -> Candidate:
        old = [habit for habit in self.behaviours.active(one.role) if habit.told == one.replaces]
        habit = Habit(one.role, one.category, one.text, round=round)
        return Candidate(habit, old[0] if old else None)

    def _can_be_tried(
        self, one: Candidate, problems: Sequence[Problem], among: int, counts: Counter[str]
    ) -> bool:
        """Whether there are problems enough; the habit is on record as refused if not."""
        there = len(_of_category(problems, one.habit.category))
        needed = fewest_problems(self.settings.chance / among)
        if there >= needed:
            return True
        counts["untested"] += 1
        self.behaviours.add(
            evolve(
                one.habit,
                status="refused",
                reason=f"untested: {there} validation problems, at least {needed} are needed",
                problems=there,
            )
        )
        return False

    # ------------------------------------------------------------------------ trials

    async def _try(
        self,
        candidates: Sequence[Candidate],
        problems: Sequence[Problem],
        session: Session,
        key: Key,
        counts: Counter[str],
    ) -> None:
        """Try candidates, and some of the habits in use by leaving them out."""
        old = self._due_again(problems)
        tried = [self._with(one, problems) for one in candidates]
        tried += [self._without(one, problems) for one in old]
        level = self.settings.chance / max(1, len(candidates))
        results = await self._compare(session, tried, level, key.child("first"), counts)
        self._retire([*zip(old, results[len(candidates) :], strict=True)], counts)
        winners = []
        for one, result in zip(candidates, results, strict=False):
            reason = self._reason(result)
            if not reason and one.habit.category != ANY and self.settings.elsewhere:
                reason = await self._harm_elsewhere(one, problems, session, key, counts)
            if reason:
                self._refuse(one, result, reason, counts)
            else:
                winners.append((one, result))
        winners.sort(key=lambda pair: -pair[1].verdict.effect)
        for n, (one, result) in enumerate(winners):
            confirmed = result
            if n:
                # It won beside the habits there were; now there is one more.
                change = self._with(one, problems)
                name = key.child("beside", n)
                [confirmed] = await self._compare(session, [change], level, name, counts)
            reason = self._reason(confirmed)
            if reason:
                self._refuse(one, confirmed, reason, counts)
            else:
                self._adopt(one, confirmed, counts)

    async def _compare(
        self,
        session: Session,
        tried: Sequence[Change],
        level: float,
        key: Key,
        counts: Counter[str],
    ) -> list[Result]:
        if not tried:
            return []
        base = self._overlay(self.behaviours)
        results, episodes = await compare(session, base, tried, level, key)
        counts["trial_episodes"] += episodes
        seen = {problem.id for change in tried for problem, _ in change.cases}
        self.judged_on = sorted({*self.judged_on, *seen})
        return results

    async def _harm_elsewhere(
        self,
        one: Candidate,
        problems: Sequence[Problem],
        session: Session,
        key: Key,
        counts: Counter[str],
    ) -> str:
        others = [p for p in problems if p.category != one.habit.category]
        if not others:
            return ""
        name = key.child("elsewhere", one.habit.role, one.habit.category, one.habit.text)
        name.child("order").random().shuffle(others)
        change = Change(self._overlay(self.behaviours, one), others, self.settings.elsewhere, False)
        chance = self.settings.chance
        [result] = await self._compare(session, [change], chance, name, counts)
        return "harms on other categories" if result.verdict.harms else ""

    def _with(self, one: Candidate, problems: Sequence[Problem]) -> Change:
        on = _of_category(problems, one.habit.category)
        return Change(self._overlay(self.behaviours, one), on, self.settings.pairs)

    def _without(self, one: Habit, problems: Sequence[Problem]) -> Change:
        library = Library([h for h in self.behaviours.habits if h is not one])
        on = _of_category(problems, one.category)
        return Change(self._overlay(library), on, self.settings.pairs, give_up=False)

    def _due_again(self, problems: Sequence[Problem]) -> list[Habit]:
        active = [h for h in self.behaviours.active() if _of_category(problems, h.category)]
        active.sort(key=lambda one: one.again_pairs)
        return active[: self.settings.again]

    def _reason(self, result: Result) -> str:
        """Why a candidate is refused; "" if it is not."""
        verdict = result.verdict
        if result.missing > 0.5:
            return "too many rewards were missing"
        if verdict.harms:
            return "harms"
        if result.stopped or not verdict.helps:
            return "does not help"
        if result.dearer > self.settings.extra:
            return f"helps, but takes {result.dearer:.0%} more"
        return ""

    # ------------------------------------------------------------------------ decisions

    def _refuse(self, one: Candidate, result: Result, reason: str, counts: Counter[str]) -> None:
        counts["refused"] += 1
        self.behaviours.add(evolve(_measured(one.habit, result), status="refused", reason=reason))

    def _adopt(self, one: Candidate, result: Result, counts: Counter[str]) -> None:
        habit = _measured(one.habit, result)
        leaving = one.replaces
        if leaving is not None:
            self.behaviours.put(evolve(leaving, status="retired", reason=f"replaced: {habit.text}"))
            habit = evolve(habit, reason=f"replaced: {leaving.text}")
        elif len(active := self.behaviours.active(habit.role)) >= self.settings.cap:
            weakest = active[-1]
            if weakest.worth >= habit.effect:
                self._refuse(one, result, f"helps, but {self.settings.cap} are better", counts)
                return
            counts["retired"] += 1
            self.behaviours.put(
                evolve(weakest, status="retired", reason="made room for a better one")
            )
        counts["adopted"] += 1
        self.behaviours.add(habit)

    def _retire(self, trials: Sequence[tuple[Habit, Result]], counts: Counter[str]) -> None:
        for habit, result in trials:
            counts["tried_again"] += 1
            # What was compared is the team without it.
            tested = habit.tested_again(-result.verdict.effect, result.verdict.pairs)
            if tested.again_pairs and tested.again <= 0:
                counts["retired"] += 1
                tested = evolve(tested, status="retired", reason="no longer helps")
            self.behaviours.put(tested)

    def _overlay(self, library: Library, extra: Candidate | None = None) -> dict[str, JSON]:
        """The habits of all roles, with or without a candidate."""
        found: dict[str, JSON] = {}
        for role, given in (self.given or {}).items():
            told = library.told(role)
            if extra is not None and extra.habit.role == role:
                gone = extra.replaces.told if extra.replaces is not None else None
                told = [*(one for one in told if one != gone), extra.habit.told]
            found[path_of(role, SETTING)] = [*given, *told]
        return found

    # ------------------------------------------------------------------------ state

    def save(self) -> Saved:
        """The library; `learned` of it goes into the run's exports."""
        return Saved(
            data={
                "learned": {"habits": self.behaviours.as_json()},
                "given": self.given,
                "judged_on": self.judged_on,
            }
        )

    def load(self, saved: Saved) -> None:
        """Take over a library."""
        data: Mapping[str, Any] = saved.data
        try:
            self.behaviours = Library.from_json(data["learned"]["habits"], self.path)
        except UsageError as error:
            raise CheckpointError(str(error)) from None
        given = data["given"]
        self.given = None if given is None else {role: list(v) for role, v in given.items()}
        self.judged_on = list(data["judged_on"])


_COUNTED = (
    "proposed",
    "known",
    "unusable",
    "failed",
    "untested",
    "adopted",
    "refused",
    "tried_again",
    "retired",
    "trial_episodes",
)


def _measured(habit: Habit, result: Result) -> Habit:
    verdict = result.verdict
    return evolve(
        habit,
        effect=verdict.effect,
        low=verdict.low,
        high=verdict.high,
        problems=verdict.problems,
        pairs=verdict.pairs,
    )


def _of_category(problems: Sequence[Problem], category: str) -> list[Problem]:
    return [one for one in problems if category in (ANY, one.category)]
