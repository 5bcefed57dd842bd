"""The improver `gepa` at work. Read `Evolver.improve`, then `_mutate` and `_merge`.

Where it departs from Agrawal et al. (2025): a minibatch is drawn anew for every child; parent and
child play it with the same keys; where two lineages both rewrote an agent, merging asks the model
for one text out of both; and the result is judged on fresh draws of problems that were no
instances, where there are enough, before it is put to use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import fsum, isnan
from typing import TYPE_CHECKING, Any

from orchestrion_beam.interfaces import Group, Improvement, Improver

from orchestrion import JSON, Episode, Job, Key, Plan, Problem, Saved, Session, Split, UsageError
from orchestrion_improve.judging import fewest_problems
from orchestrion_improve.planning import texts_round
from orchestrion_improve.pool import Candidate, Pool, merged_roles
from orchestrion_improve.reflection import combine, reflect
from orchestrion_improve.settings import changes, path_of, places
from orchestrion_improve.trials import Change, Overlay, compare, play, reward_of

if TYPE_CHECKING:
    from orchestrion_improve.gepa import Gepa

__all__ = ["Evolver"]


class Evolver(Improver):
    """The runtime of `gepa`: the pool, and what became of its best.

    Args:
        settings: as set.
        path: its place in the config.
        key: of the instances' draws, the same in all rounds.
        team: names of the team's agents.
    """

    def __init__(self, settings: Gepa, path: str, key: Key, team: Sequence[str]) -> None:
        self.settings, self.path, self.key = settings, path, key
        self.agents = tuple(settings.agents or team)
        self.pool = Pool()
        self.instances: list[str] = []
        self.adopted = 0
        """The place of what is in use."""
        self.judged: dict[int, JSON] = {}
        """What judgement said, by place."""
        self.merged: list[list[int]] = []
        """Couples that were tried."""
        self.steps = 0
        self.judged_on: list[str] = []

    # ------------------------------------------------------------------------ beginning

    def check(self, session: Session) -> None:
        """Refuse a team that has no such texts."""
        name = self.settings.setting
        there = places(session, name)
        if not set(there) & set(self.agents) and not self.settings.agents:
            raise UsageError(
                f"{self.path}: no agent of this team has a learnable setting {name!r}; agents of "
                "kind `chat` have `instructions`"
            )
        if strangers := sorted(set(self.settings.agents) - set(there)):
            raise UsageError(
                f"{self.path}.agents: {strangers[0]!r} has no learnable setting {name!r}; those "
                f"that have are {', '.join(there)}"
            )
        wrong = [
            one
            for one in self._roles(session)
            if not isinstance(session.learnable()[self._at(one)], str)
        ]
        if wrong:
            raise UsageError(f"{self.path}.setting: {self._at(wrong[0])} is no text")
        if not session.problems("train"):
            raise UsageError(f"{self.path}: the task has no training problems to reflect on")

    def start(self, session: Session) -> Overlay:
        """Nothing: the first candidate is what the config says."""
        self.check(session)
        return {}

    def _at(self, role: str) -> str:
        return path_of(role, self.settings.setting)

    def _roles(self, session: Session) -> list[str]:
        there = places(session, self.settings.setting)
        return [one for one in there if one in self.agents]

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """The most that one round takes."""
        return texts_round(self.settings, len(self.agents), sizes, turns)

    # ------------------------------------------------------------------------ a round

    async def improve(
        self, round: int, groups: Sequence[Group], problems: Sequence[Problem], session: Session
    ) -> Improvement:
        """See `Improver`."""
        self.check(session)
        search = _Search(self, session, problems)
        if not self.pool.candidates:
            order = list(problems)
            self.key.child("instances").random().shuffle(order)
            self.instances = [one.id for one in order[: self._size(order)]]
            self.judged_on = sorted(self.instances)
            now = session.learnable()
            await search.take_in({one: now[self._at(one)] for one in self._roles(session)})
        merge_next = False
        while search.counts["evaluations"] < self.settings.evaluations:
            known = len(self.pool.candidates)
            if not (merge_next and await search.merge(self.steps)):
                await search.mutate(self.steps)
            self.steps += 1
            # After a success, as in the paper: what is new may go well with what was there.
            merge_next = self.settings.merge and len(self.pool.candidates) > known
        overlay = await self._conclude(search)
        counts = search.counts
        metrics = {f"texts_{name}": float(counts[name]) for name in _COUNTED}
        candidates = self.pool.candidates
        return Improvement(
            changes(overlay, session),
            {
                **metrics,
                "texts_pool": float(len(candidates)),
                "texts_front": float(len(self.pool.wins())),
                "texts_best": max(0.0, candidates[self.pool.best()].mean),
            },
        )

    def _size(self, problems: Sequence[Problem]) -> int:
        return max(1, min(self.settings.instances, len(problems) // 2))

    async def _conclude(self, search: _Search) -> dict[str, JSON]:
        """Judge the best of the pool beside what is in use; an overlay if one of them is better."""
        settings, pool = self.settings, self.pool
        in_use = pool.candidates[self.adopted]
        ranked = [
            place
            for place in pool.ranked()
            if place not in self.judged
            and place != self.adopted
            and pool.candidates[place].mean > in_use.mean
        ]
        chosen = ranked[: settings.finalists]
        level = settings.chance / max(1, len(chosen))
        others = [one for one in search.problems if one.id not in set(self.instances)]
        fresh = others if len(others) >= fewest_problems(level) else list(search.problems)
        if not chosen or len(fresh) < fewest_problems(level):
            search.counts["untested"] += len(chosen)
            return self._overlay(self.adopted) if self.adopted else {}
        tried = [Change(self._overlay(place), fresh, settings.pairs) for place in chosen]
        key = search.session.key.child("improve", "gepa", "judge")
        results, episodes = await compare(
            search.session, self._overlay(self.adopted), tried, level, key
        )
        search.counts["trial_episodes"] += episodes
        used = {problem.id for change in tried for problem, _ in change.cases}
        self.judged_on = sorted({*self.judged_on, *used})
        won = []
        for place, result in zip(chosen, results, strict=True):
            verdict = result.verdict
            helps = verdict.helps and not result.stopped and result.dearer <= settings.extra
            self.judged[place] = {
                "effect": verdict.effect,
                "interval": [verdict.low, verdict.high],
                "pairs": verdict.pairs,
                "dearer": result.dearer,
                "better_than": self.adopted,
                "adopted": False,
            }
            if helps:
                won.append((verdict.effect, -place))
        search.counts["refused"] += len(chosen) - bool(won)
        if won:
            self.adopted = -max(won)[1]
            self.judged[self.adopted]["adopted"] = True
            search.counts["adopted"] += 1
        return self._overlay(self.adopted) if self.adopted else {}

    def _overlay(self, place: int) -> dict[str, JSON]:
        return self.overlay_of(self.pool.candidates[place].texts)

    def overlay_of(self, texts: Mapping[str, str]) -> dict[str, JSON]:
        """Texts by config path."""
        return {self._at(role): text for role, text in texts.items()}

    # ------------------------------------------------------------------------ state

    def save(self) -> Saved:
        """The pool; `learned` of it goes into the run's exports."""
        in_use = self.pool.candidates[self.adopted].texts if self.pool.candidates else {}
        return Saved(
            data={
                "learned": {"texts": dict(in_use), "front": sorted(self.pool.wins())},
                "pool": [one.as_json() for one in self.pool.candidates],
                "instances": self.instances,
                "adopted": self.adopted,
                "judged": [[place, data] for place, data in sorted(self.judged.items())],
                "merged": self.merged,
                "steps": self.steps,
                "judged_on": self.judged_on,
            }
        )

    def load(self, saved: Saved) -> None:
        """Take over a pool."""
        data: Mapping[str, Any] = saved.data
        self.pool = Pool([Candidate.from_json(one) for one in data["pool"]])
        self.instances, self.adopted = list(data["instances"]), data["adopted"]
        self.judged = {place: dict(one) for place, one in data["judged"]}
        self.merged = [list(one) for one in data["merged"]]
        self.steps, self.judged_on = data["steps"], list(data["judged_on"])


_COUNTED = (
    "evaluations",
    "children",
    "unusable",
    "failed",
    "known",
    "gated",
    "taken_in",
    "merged",
    "untested",
    "adopted",
    "refused",
    "trial_episodes",
)


class _Search:
    """One round's search: its session, its counts."""

    def __init__(self, owner: Evolver, session: Session, problems: Sequence[Problem]) -> None:
        self.owner, self.session, self.problems = owner, session, problems
        self.settings, self.pool = owner.settings, owner.pool
        self.counts: Counter[str] = Counter()
        self.key = session.key.child("improve", "gepa")
        self.by_id = {one.id: one for one in problems}

    async def mutate(self, step: int) -> None:
        """One child of one parent, by reflection on a minibatch."""
        settings, pool, key = self.settings, self.pool, self.key.child("mutate", step)
        front = settings.choose == "front"
        place = pool.parent(key.child("parent")) if front else pool.best()
        parent = pool.candidates[place]
        train = list(self.session.problems("train"))
        key.child("minibatch").random().shuffle(train)
        batch = train[: settings.minibatch]
        episodes = await self._play(parent.texts, batch, key)
        before = [reward_of(one) for one in episodes]
        seen = [
            (one, reward) for one, reward in zip(episodes, before, strict=True) if reward == reward
        ]
        if not seen or all(one.success for one, _ in seen):
            return  # there is nothing to learn from
        roles = list(parent.texts)
        role = roles[step % len(roles)]
        reply = await reflect(
            settings.model,
            self.session,
            key.child("reflect"),
            role,
            parent.texts[role],
            seen,
            settings.longest,
            settings.max_tokens,
        )
        self._count(reply.unusable, reply.failed)
        if reply.value is None:
            return
        texts = {**parent.texts, role: reply.value}
        if self._is_known(texts):
            return
        after = [reward_of(one) for one in await self._play(texts, batch, key)]
        both = [(a, b) for a, b in zip(after, before, strict=True) if not isnan(a - b)]
        if not both or fsum(a for a, _ in both) <= fsum(b for _, b in both):
            self.counts["gated"] += 1
            return
        await self._offer(texts, (place,), role)

    async def merge(self, step: int) -> bool:
        """A child of two lineages; whether there was a couple that had not been tried."""
        pool, owner, key = self.pool, self.owner, self.key.child("merge", step)
        couples = [one for one in pool.couples() if [one[0], one[1]] not in owner.merged]
        if not couples:
            return False
        wins = pool.wins()
        weights = [wins[first] * wins[second] for first, second, _ in couples]
        [(first, second, common)] = key.child("couple").random().choices(couples, weights)
        owner.merged.append([first, second])
        texts = await self._merged(first, second, common, key)
        if texts is None or self._is_known(texts):
            return True
        better, worse = pool.contested(first, second)
        half = max(1, self.settings.minibatch // 2)
        draw = key.child("gate").random()
        chosen = sorted(
            [
                *draw.sample(better, min(half, len(better))),
                *draw.sample(worse, min(half, len(worse))),
            ]
        )
        scores = await self._scores(texts, chosen)
        own = fsum(score or 0.0 for score in scores)
        for place in (first, second):
            if own < fsum(pool.candidates[place].scores[n] or 0.0 for n in chosen):
                self.counts["gated"] += 1
                return True
        self.counts["merged"] += 1
        await self._offer(texts, (first, second), "")
        return True

    async def _merged(
        self, first: int, second: int, common: int, key: Key
    ) -> dict[str, str] | None:
        settings, candidates = self.settings, self.pool.candidates
        one, other = candidates[first].texts, candidates[second].texts
        texts, both = merged_roles(one, other, candidates[common].texts)
        for role in both:
            reply = await combine(
                settings.model,
                self.session,
                key.child("combine", role),
                role,
                (one[role], other[role]),
                settings.longest,
                settings.max_tokens,
            )
            self._count(reply.unusable, reply.failed)
            if reply.value is None:
                return None
            texts[role] = reply.value
        return texts

    def _count(self, unusable: int, failed: bool) -> None:
        self.counts["unusable"] += unusable
        self.counts["failed"] += failed

    def _is_known(self, texts: Mapping[str, str]) -> bool:
        known = self.pool.knows(texts)
        self.counts["known"] += known
        self.counts["children"] += not known
        return known

    async def _offer(self, texts: Mapping[str, str], parents: tuple[int, ...], role: str) -> None:
        """Evaluate a child that passed its gate, and take it in.

        A climber of one hill takes it in only if it is better than all before.
        """
        scores = await self._scores(texts, range(len(self.owner.instances)))
        child = Candidate(dict(texts), tuple(scores), parents, role)
        if (
            self.settings.choose == "best"
            and child.mean <= self.pool.candidates[self.pool.best()].mean
        ):
            return
        self.counts["taken_in"] += 1
        self.pool.add(child)

    async def take_in(self, texts: Mapping[str, str]) -> None:
        """The first candidate."""
        scores = await self._scores(texts, range(len(self.owner.instances)))
        self.pool.add(Candidate(dict(texts), tuple(scores)))

    async def _scores(self, texts: Mapping[str, str], places_: Sequence[int]) -> list[float | None]:
        """Mean reward on some of the instances, with the keys that all candidates have."""
        owner, draws = self.owner, self.settings.draws
        chosen = [owner.instances[n] for n in places_]
        gone = [one for one in chosen if one not in self.by_id]
        if gone:
            raise UsageError(f"{owner.path}: problem {gone[0]!r} was an instance and is gone")
        jobs = [
            Job(self.by_id[one], owner.key.child("instance", one, n), training=False)
            for one in chosen
            for n in range(draws)
        ]
        rewards = [reward_of(one) for one in await self._run(texts, jobs)]
        found: list[float | None] = []
        for n in range(0, len(rewards), draws):
            known = [one for one in rewards[n : n + draws] if not isnan(one)]
            found.append(fsum(known) / len(known) if known else None)
        return found

    async def _play(
        self, texts: Mapping[str, str], batch: Sequence[Problem], key: Key
    ) -> list[Episode]:
        jobs = [Job(one, key.child("episode", one.id), training=False) for one in batch]
        return await self._run(texts, jobs)

    async def _run(self, texts: Mapping[str, str], jobs: Sequence[Job]) -> list[Episode]:
        self.counts["evaluations"] += len(jobs)
        return await play(self.session, self.owner.overlay_of(texts), jobs)
