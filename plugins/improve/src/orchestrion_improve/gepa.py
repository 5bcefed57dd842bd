"""Evolve texts by reflection: the improver `gepa`. Read `GepaImprover.improve` first.

The source is GEPA (Agrawal et al. 2025, arXiv 2507.19457). A candidate is one text for each agent.

    pool = [the texts in use, scored on every instance]
    while the evaluations of the round last:
        parent = drawn from the front (`Pool.wins`)
        a model reads the parent's episodes on a minibatch and rewrites the text of one agent
        if the child is better on the minibatch: score it on every instance, and add it to the pool
        after a success: merge two lineages that are good at different instances
    the best of the pool are tried against the texts in use; the winner is adopted

The front is per instance: a candidate stays if it is the best on one instance at least, whatever
its mean. So a text that helps with some problems and harms with others is not lost: it can be
improved where it harms, or merged with a text that is good there.

Differences from the source:

* Every child has a minibatch of its own, which parent and child play under the same keys.
* Where both lineages rewrote an agent, merging asks the model for one text out of both.
* The result is judged on fresh draws before it is adopted, and on problems that were no instances
  if there are enough of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import ceil, fsum, isnan
from typing import Annotated, Any, ClassVar, Literal

from attrs import frozen
from msgspec import convert, to_builtins
from orchestrion_beam.interfaces import Group, Improvement, Improver

from orchestrion import (
    JSON,
    Episode,
    Job,
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
from orchestrion.runs import as_data, mean
from orchestrion_improve.asking import most_asked
from orchestrion_improve.pool import Pool, Texts, merged_texts
from orchestrion_improve.trials import (
    Change,
    TrialImprover,
    changed,
    fewest_problems,
    most_pairs,
    play,
    reward_or_nan,
)
from orchestrion_improve.writing import EPISODE_CHARACTERS, Writer

Count = Annotated[int, Meta(ge=1)]
COUNTED = (
    "evaluations children unusable failed known gated taken_in "
    "merged untested adopted refused trial_episodes"
).split()


@frozen(kw_only=True)
class Gepa:
    """Evolves what agents are told, by reflection on what happened (GEPA, arXiv 2507.19457).

    Candidates are texts, one for each agent. A parent is drawn from the front by instance; a model
    reads its episodes on a few training problems, with the verifier's findings, and rewrites the
    text of one agent. Only a child that does better on the same problems under the same keys is
    scored on all instances and added. At the end of a round the best candidates are tried against
    the texts in use, on fresh draws, and only one that helps there is adopted.

    Args:
        model: reflects.
        setting: the learnable setting that evolves; a text.
        agents: the agents whose texts evolve; by default all of the team that have the setting.
        evaluations: episodes of the search in a round; the trial at its end is not included.
        instances: validation problems that score candidates, at most half of all.
        draws: episodes on each instance.
        minibatch: training problems on which a child has to do better than its parent.
        choose: parents come from the `front`, or are always the `best` by mean score, to compare
            with.
        merge: whether lineages that are good at different instances are merged.
        finalists: candidates that are tried at the end of a round.
        pairs: pairs of episodes in the trial of each.
        chance: chance that a round adopts a text that is no better.
        extra: share by which an episode may use more calls, dollars or cost.
        longest: most characters of a text.
        max_tokens: most tokens of an answer of the model.
    """

    smoke: ClassVar[Mapping[str, JSON]] = {
        "evaluations": 16,
        "instances": 2,
        "minibatch": 2,
        "finalists": 1,
        "pairs": 6,
    }

    model: Model
    setting: str = "instructions"
    agents: Sequence[str] = ()
    evaluations: Count = 300
    instances: Count = 24
    draws: Count = 1
    minibatch: Count = 4
    choose: Literal["front", "best"] = "front"
    merge: bool = True
    finalists: Count = 2
    pairs: Count = 200
    chance: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    extra: Annotated[float, Meta(ge=0)] = 0.5
    longest: Count = 4000
    max_tokens: Count = 2000

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Improver]:
        """Yield the runtime, with an empty pool."""
        yield GepaImprover(self, ctx)


class GepaImprover(TrialImprover):
    """The runtime of `gepa`; its state is the pool, and which candidate is in use."""

    def __init__(self, settings: Gepa, ctx: OpenContext) -> None:
        super().__init__(ctx, settings.setting, settings.agents)
        self.settings, self.key = settings, ctx.key
        self.pool = Pool()
        self.instances: list[str] = []
        self.adopted = 0
        """Position of the candidate in use."""
        self.judged: dict[int, JSON] = {}
        """Results of trials, by position."""
        self.merged: list[list[int]] = []
        """Couples that a merge was tried for."""
        self.steps = 0

    def check(self, session: Session) -> None:
        """Refuse a team without such texts, and a task without training problems.

        Raises:
            UsageError: see above.
        """
        now = session.learnable()
        for path in map(self.path_of, self.roles(session)):
            if not isinstance(now[path], str):
                raise UsageError(f"{self.path}.setting: {path} is no text")
        if not session.problems("train"):
            raise UsageError(f"{self.path}: the task has no training problems to reflect on")

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan | None:
        """Return the most that one round uses; None if the model has no bound."""
        settings, roles = self.settings, len(self.settings.agents or self.team)
        # Each step plays a minibatch; a merge may follow it, and ask about every agent.
        steps = ceil(settings.evaluations / settings.minibatch) + 1
        characters = EPISODE_CHARACTERS * settings.minibatch
        questions = 2 * steps * (1 + roles)
        questions_usage = most_asked(settings.model, characters + 2 * settings.longest, questions)
        if questions_usage is None:
            return None
        # The last step may begin just before the end, and the first candidate is scored before.
        whole = settings.instances * settings.draws
        episodes = settings.evaluations + 2 * settings.minibatch + 2 * whole
        episodes += 2 * settings.finalists * most_pairs(settings.pairs, sizes)
        return Plan(episodes, usage=questions_usage)

    async def improve(
        self, round: int, groups: Sequence[Group], problems: Sequence[Problem], session: Session
    ) -> Improvement:
        """Search for better texts, and return those in use; see `Improver`."""
        self.check(session)
        search = _Round(self, session, problems)
        if not self.pool.candidates:
            order = list(problems)
            self.key.child("instances").random().shuffle(order)
            count = max(1, min(self.settings.instances, len(order) // 2))
            self.instances = [problem.id for problem in order[:count]]
            self.judged_on = sorted(self.instances)
            now = session.learnable()
            await search.add({role: now[self.path_of(role)] for role in self.roles(session)})
        merge_next = False
        while search.counts["evaluations"] < self.settings.evaluations:
            size = len(self.pool.candidates)
            if not (merge_next and await search.merge(self.steps)):
                await search.mutate(self.steps)
            self.steps += 1
            # After a success, as in the paper: the new text may go well with older ones.
            merge_next = self.settings.merge and len(self.pool.candidates) > size
        await self._judge_best(search)
        candidates = self.pool.candidates
        metrics = {f"texts_{name}": float(search.counts[name]) for name in COUNTED}
        metrics["texts_pool"] = float(len(candidates))
        metrics["texts_front"] = float(len(self.pool.wins()))
        metrics["texts_best"] = max(0.0, candidates[self.pool.best()].mean)
        overlay = self._overlay_at(self.adopted) if self.adopted else {}
        return Improvement(changed(overlay, session), metrics)

    async def _judge_best(self, search: _Round) -> None:
        """Try the best of the pool against the candidate in use; adopt one that helps."""
        settings, pool = self.settings, self.pool
        in_use = pool.candidates[self.adopted]
        better = [p for p in pool.ranked() if pool.candidates[p].mean > in_use.mean]
        finalists = [p for p in better if p not in self.judged][: settings.finalists]
        level = settings.chance / max(1, len(finalists))
        fresh = [p for p in search.problems if p.id not in set(self.instances)]
        if len(fresh) < fewest_problems(level):
            fresh = list(search.problems)
        if not finalists or len(fresh) < fewest_problems(level):
            search.counts["untested"] += len(finalists)
            return
        changes = [Change(self._overlay_at(p), fresh, settings.pairs) for p in finalists]
        key = search.session.key.child("improve", "gepa", "judge")
        base = self._overlay_at(self.adopted)
        results = await self.compare(search.session, base, changes, level, key, search.counts)
        winners = []
        for position, result in zip(finalists, results, strict=True):
            verdict = result.verdict
            self.judged[position] = {
                "effect": verdict.effect,
                "interval": [verdict.low, verdict.high],
                "pairs": verdict.pairs,
                "dearer": result.extra_share,
                "better_than": self.adopted,
                "adopted": False,
            }
            if verdict.helps and not result.given_up and result.extra_share <= settings.extra:
                winners.append((verdict.effect, -position))
        search.counts["refused"] += len(finalists) - bool(winners)
        if winners:
            self.adopted = -max(winners)[1]
            self.judged[self.adopted]["adopted"] = True
            search.counts["adopted"] += 1

    def _overlay_at(self, position: int) -> dict[str, JSON]:
        return self.overlay_of(self.pool.candidates[position].texts)

    def overlay_of(self, texts: Mapping[str, str]) -> dict[str, JSON]:
        """Return the texts of a candidate by config path."""
        return {self.path_of(role): text for role, text in texts.items()}

    def save(self) -> Saved:
        """Return the pool; its part `learned` goes into the run's exports."""
        in_use = self.pool.candidates[self.adopted].texts if self.pool.candidates else {}
        return Saved(
            data={
                "learned": {"texts": dict(in_use), "front": sorted(self.pool.wins())},
                "pool": as_data([to_builtins(candidate) for candidate in self.pool.candidates]),
                "instances": self.instances,
                "adopted": self.adopted,
                "judged": [[position, data] for position, data in sorted(self.judged.items())],
                "merged": self.merged,
                "steps": self.steps,
                "judged_on": self.judged_on,
            }
        )

    def load(self, saved: Saved) -> None:
        """Take over a pool."""
        data: Mapping[str, Any] = saved.data
        self.pool = Pool(convert(data["pool"], list[Texts]))
        self.instances, self.adopted = list(data["instances"]), data["adopted"]
        self.judged = {position: dict(result) for position, result in data["judged"]}
        self.merged = [list(couple) for couple in data["merged"]]
        self.steps, self.judged_on = data["steps"], list(data["judged_on"])


class _Round:
    """Search during one round: mutate and merge candidates, and count."""

    def __init__(
        self, improver: GepaImprover, session: Session, problems: Sequence[Problem]
    ) -> None:
        self.improver, self.session, self.problems = improver, session, problems
        self.settings, self.pool = improver.settings, improver.pool
        self.key = session.key.child("improve", "gepa")
        self.counts: Counter[str] = Counter()
        model, longest = self.settings.model, self.settings.longest
        self.writer = Writer(model, longest, self.settings.max_tokens, session, self.counts)

    async def mutate(self, step: int) -> None:
        """Make a child of one parent, by reflection on a minibatch."""
        settings, pool, key = self.settings, self.pool, self.key.child("mutate", step)
        from_front = settings.choose == "front"
        position = pool.parent(key.child("parent")) if from_front else pool.best()
        parent = pool.candidates[position]
        train = list(self.session.problems("train"))
        key.child("minibatch").random().shuffle(train)
        batch = train[: settings.minibatch]
        jobs = [Job(p, key.child("episode", p.id), training=False) for p in batch]
        episodes = await self._play(parent.texts, jobs)
        before = [reward_or_nan(episode) for episode in episodes]
        rewarded = [(e, r) for e, r in zip(episodes, before, strict=True) if not isnan(r)]
        if all(episode.success for episode, _ in rewarded):
            return  # nothing to learn from
        role = list(parent.texts)[step % len(parent.texts)]
        text = await self.writer.rewrite(role, parent.texts[role], rewarded, key.child("reflect"))
        if text is None:
            return
        texts = {**parent.texts, role: text}
        if self._is_known(texts):
            return
        after = [reward_or_nan(episode) for episode in await self._play(texts, jobs)]
        both = [(a, b) for a, b in zip(after, before, strict=True) if not isnan(a - b)]
        if not both or fsum(a for a, _ in both) <= fsum(b for _, b in both):
            self.counts["gated"] += 1
            return
        await self.add(texts, (position,), role)

    async def merge(self, step: int) -> bool:
        """Make a child of two lineages; return False if no couple is left to try."""
        pool, tried, key = self.pool, self.improver.merged, self.key.child("merge", step)
        couples = [couple for couple in pool.couples() if [*couple[:2]] not in tried]
        if not couples:
            return False
        wins = pool.wins()
        weights = [wins[first] * wins[second] for first, second, _ in couples]
        [(first, second, common)] = key.child("couple").random().choices(couples, weights)
        tried.append([first, second])
        parents = (pool.candidates[first], pool.candidates[second])
        ancestor = pool.candidates[common]
        texts, rewritten = merged_texts(parents[0].texts, parents[1].texts, ancestor.texts)
        for role in rewritten:
            versions = (parents[0].texts[role], parents[1].texts[role])
            text = await self.writer.combine(role, versions, key.child("combine", role))
            if text is None:
                return True
            texts[role] = text
        if self._is_known(texts):
            return True
        first_better, second_better = pool.contested(first, second)
        half = max(1, self.settings.minibatch // 2)
        random = key.child("gate").random()
        chosen = random.sample(first_better, min(half, len(first_better)))
        chosen += random.sample(second_better, min(half, len(second_better)))
        chosen.sort()
        own = fsum(score or 0.0 for score in await self._scores(texts, chosen))
        if any(own < fsum(parent.scores[n] or 0.0 for n in chosen) for parent in parents):
            self.counts["gated"] += 1
            return True
        self.counts["merged"] += 1
        await self.add(texts, (first, second))
        return True

    async def add(
        self, texts: Mapping[str, str], parents: tuple[int, ...] = (), role: str = ""
    ) -> None:
        """Score a candidate on all instances, and add it to the pool.

        With `choose: best` a child is added only if its mean is the highest.
        """
        scores = await self._scores(texts, range(len(self.improver.instances)))
        child = Texts(dict(texts), tuple(scores), parents, role)
        if parents:
            best = self.pool.candidates[self.pool.best()]
            if self.settings.choose == "best" and child.mean <= best.mean:
                return
            self.counts["taken_in"] += 1
        self.pool.candidates.append(child)

    async def _scores(
        self, texts: Mapping[str, str], positions: Sequence[int]
    ) -> list[float | None]:
        """Return the mean reward on some instances, under keys that all candidates share."""
        by_id = {problem.id: problem for problem in self.problems}
        chosen = [self.improver.instances[n] for n in positions]
        if gone := [name for name in chosen if name not in by_id]:
            raise UsageError(
                f"{self.improver.path}: problem {gone[0]!r} was an instance and is gone; give the "
                "task its problems back, or begin a new run"
            )
        key, draws = self.improver.key.child("instance"), self.settings.draws
        jobs = [
            Job(by_id[name], key.child(name, n), training=False)
            for name in chosen
            for n in range(draws)
        ]
        rewards = [reward_or_nan(episode) for episode in await self._play(texts, jobs)]
        by_instance = [rewards[n : n + draws] for n in range(0, len(rewards), draws)]
        known = [[reward for reward in own if not isnan(reward)] for own in by_instance]
        return [mean(own) if own else None for own in known]

    async def _play(self, texts: Mapping[str, str], jobs: Sequence[Job]) -> list[Episode]:
        self.counts["evaluations"] += len(jobs)
        return await play(self.session, self.improver.overlay_of(texts), jobs)

    def _is_known(self, texts: Mapping[str, str]) -> bool:
        is_known = self.pool.has(texts)
        self.counts["known"] += is_known
        self.counts["children"] += not is_known
        return is_known
