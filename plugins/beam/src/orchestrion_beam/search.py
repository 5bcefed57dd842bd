"""Search one problem: many trajectories side by side. Read `Search.run` first.

    beam = [the empty trajectory]
    until all trajectories of the beam are finished:
        children = `samples` next turns for each unfinished trajectory, all in flight at once
        drop failed and duplicate children; estimate the value of the others
        beam     = the `beam_width` best, with enough different parents and first turns

This is the breadth-first search of Yao et al. (2023), Tree of Thoughts, algorithm 1. Differences:

* Finished trajectories stay in the beam and compete with unfinished ones.
* Trajectories with equal content are kept once and valued once.
* The beam has a least number of different parents and of different first turns (`choose`).
* With `early_stop` a trajectory goes if its bound is no better than a score already reached.

A level waits for its slowest call, because siblings are compared; problems do not wait for each
other. Keys of turns come from the path in the tree, keys of values from the content, and a key
decides between equal values: nothing depends on the order in which samples complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from math import isnan
from typing import Annotated, Any, Literal, TypeVar

from attrs import Attribute, define, field, frozen

from orchestrion import (
    Activation,
    CallError,
    Key,
    Meta,
    Problem,
    RunError,
    Session,
)
from orchestrion_beam.choosers import Chooser, PolicyChooser, rotation_of
from orchestrion_beam.interfaces import Valued, ValueEstimator
from orchestrion_beam.nodes import SearchNode, choose

Count = Annotated[int, Meta(ge=1)]
T = TypeVar("T")


@frozen
class SearchSettings:
    """Settings of one search.

    Args:
        beam_width: trajectories that are kept. One is enough for a value without error; the
            larger the error of the value, the more.
        samples: next turns that are sampled for each of them. A turn makes `beam_width` x
            `samples` calls.
        turns: a trajectory ends after so many turns, if it does not end before.
        order: who acts next: the team's policy, asked for each sample, or a rotation.
        rotation: the choices of the rotation, "agent" or "agent:option"; the whole team by default.
        at_once: most agents that the policy may start at once on a trajectory; a policy that
            starts more ends the run. `train --dry-run` multiplies by it.
        min_parents: least number of different trajectories that the beam's members grew from.
        min_roots: least number of different first turns in the beam.
        early_stop: drop a trajectory whose bound is no better than a verified score already
            reached. The bound comes from the estimator; without one it is 1. Scores are compared,
            so use it where the reward is the score.
    """

    beam_width: Count = 6
    samples: Count = 4
    turns: Count = 15
    order: Literal["policy", "rotation"] = "policy"
    rotation: Sequence[str] = ()
    at_once: Count = 1
    min_parents: Count = field(default=2)
    min_roots: Count = field(default=2)
    early_stop: bool = False

    @min_parents.validator
    @min_roots.validator
    def _check_diversity(self, attribute: Attribute[Any], value: int) -> None:
        if attribute.default != value and value > self.beam_width:
            raise ValueError(
                f"{attribute.name}: got {value}, more than `beam_width` ({self.beam_width})"
            )

    @property
    def samples_per_search(self) -> int:
        """Return the most samples of one search: sum over t of k min(width, k ^ (t - 1))."""
        total, beam = 0, 1
        for _ in range(self.turns):
            total += self.samples * beam
            beam = min(self.beam_width, self.samples * beam)
        return total

    def chooser(self, session: Session, training: bool) -> Chooser:
        """Return what decides who acts next.

        Raises:
            UsageError: `rotation` has a name that is no choice of the team.
        """
        if self.order == "rotation":
            return rotation_of(self.rotation, session.roster)
        return PolicyChooser(session.policy, self.turns, training, self.at_once)


# ---------------------------------------------------------------------------------- the values


@define
class SearchCounts:
    """Count what a search did."""

    samples: int = 0  # extensions
    widest: int = 0  # most extensions in flight at once
    failed: int = 0  # extensions all of whose turns failed
    duplicates: int = 0  # extensions with the same content as another
    scored: int = 0  # extensions with an estimate
    unreadable: int = 0  # of these, estimates without a value
    estimates: int = 0  # computed estimates; equal content is estimated once
    cut: int = 0  # trajectories that early stop dropped
    activations: int = 0  # turns
    turn_calls: int = 0  # a turn without calls counts as one
    estimate_calls: int = 0
    parents: list[int] = field(factory=list)  # by level: different parents in the beam
    credit_turns: int = 0  # turns that were run again for credit
    last_error: str = ""  # of a failed turn

    @property
    def calls(self) -> int:
        """Return all calls but those for credit."""
        return self.turn_calls + self.estimate_calls


@define(eq=False, repr=False)
class EstimateCache:
    """Values branches; equal content is valued once, under a key that the content names."""

    estimator: ValueEstimator
    session: Session
    key: Key
    counts: SearchCounts = field(factory=SearchCounts)
    _futures: dict[bytes, asyncio.Future[Valued]] = field(factory=dict)

    async def value_of(self, node: SearchNode) -> Valued:
        """Return the estimate for a trajectory.

        Raises:
            RunError: the estimator returned no number from 0 to 1.
        """
        future = self._futures.get(node.digest)
        if future is None:
            future = self._futures[node.digest] = asyncio.get_running_loop().create_future()
            try:
                future.set_result(await self._estimate(node))
            except BaseException:
                # Those that wait for the same content end together with this one.
                future.cancel()
                raise
        valued = await future
        self.counts.scored += 1
        self.counts.unreadable += valued.value is None
        return valued

    async def _estimate(self, node: SearchNode) -> Valued:
        self.counts.estimates += 1
        key = self.key.child(node.digest.hex()).child("value")
        try:
            valued = await self.estimator.estimate(node.branch, self.session, key)
        except CallError:
            # The turn is paid for: without estimate it ranks last and is counted as unreadable.
            return Valued(None)
        self._check(valued, node)
        self.counts.estimate_calls += valued.usage.calls
        return valued

    def _check(self, valued: Any, node: SearchNode) -> None:
        wrong = valued
        if isinstance(valued, Valued):
            wrong = valued.value
            if wrong is None or (_is_number(wrong) and 0 <= wrong <= 1):
                wrong = valued.bound
                if _is_number(wrong):
                    return
        raise RunError(
            f"value estimator {type(self.estimator).__name__} gave {wrong!r} on problem "
            f"{node.branch.problem.id!r}; a value is None or a number from 0 to 1, and a bound is "
            "a number"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isnan(value)


# ---------------------------------------------------------------------------------- the search


@define(eq=False, repr=False)
class BeamSearch:
    """Beam search on one problem."""

    settings: SearchSettings
    session: Session
    problem: Problem  # with its hidden part
    chooser: Chooser  # decides who acts next
    estimator: ValueEstimator
    key: Key
    counts: SearchCounts = field(init=False, factory=SearchCounts)
    values: EstimateCache = field(init=False)
    nodes: list[SearchNode] = field(init=False, factory=list)  # level by level, by path
    finalists: list[SearchNode] = field(init=False, factory=list)  # the last beam

    @values.default
    def _values(self) -> EstimateCache:
        return EstimateCache(self.estimator, self.session, self.key.child("values"), self.counts)

    async def run(self) -> None:
        """Search until all trajectories of the beam are finished.

        `finalists` is empty afterwards if all first turns failed.

        Raises:
            RunError: the policy cannot go on, or an estimate is no number from 0 to 1.
        """
        beam = [SearchNode(self.session.begin(self.problem, self.key.child("begin")))]
        beam[0].finished = beam[0].branch.step.done
        while unfinished := [node for node in beam if not node.finished]:
            children = await self._extend(unfinished)
            candidates = self._distinct([node for node in beam if node.finished] + children)
            if not candidates:
                # The whole level failed: the search ends with the level before.
                beam = [node for node in unfinished if node.path]
                break
            if self.settings.early_stop:
                candidates = await self._without_hopeless(candidates)
            beam = self._select(candidates)
        for node in beam:
            node.fate = "final"
        self.finalists = beam

    def samples_of_level(self) -> int:
        """Return how many next turns each trajectory gets at this level."""
        return self.settings.samples

    async def _extend(self, unfinished: Sequence[SearchNode]) -> list[SearchNode]:
        """Return all samples of all trajectories, in flight at once, without those that failed."""
        samples = self.samples_of_level()
        pairs = [(node, n) for node in unfinished for n in range(samples)]
        keys = [self.key.child("decide", *node.path, n) for node, n in pairs]
        starts = self.chooser.starts([node.branch for node, _ in pairs], keys)
        extensions = []
        for (node, n), start in zip(pairs, starts, strict=True):
            if start is None:
                node.finished = True
            else:
                extensions.append(self._sample(node, n, start))
        self.counts.widest = max(self.counts.widest, len(extensions))
        children = await run_all(extensions)
        self.nodes += children
        return [child for child in children if child.fate != "failed"]

    async def _sample(self, node: SearchNode, n: int, start: tuple[Activation, ...]) -> SearchNode:
        """Return one extension, valued as soon as it is complete."""
        key = self.key.child("extend", *node.path, n)
        child = node.child(n, start, await self.session.extend(node.branch, start, key))
        child.finished |= len(child.branch.trajectory) >= self.settings.turns
        counts, turns = self.counts, child.turns
        counts.samples += 1
        counts.activations += len(turns)
        counts.turn_calls += child.calls
        if all(turn.status != "completed" for turn in turns):
            child.fate = "failed"
            counts.failed += 1
            counts.last_error = max(counts.last_error, f"{turns[0].agent}: {turns[0].error}")
        else:
            child.valued = await self.values.value_of(child)
        return child

    def _distinct(self, candidates: Sequence[SearchNode]) -> list[SearchNode]:
        """Return the first trajectory of each content, by order of parents and samples."""
        first_of: dict[bytes, SearchNode] = {}
        for node in candidates:
            if first_of.setdefault(node.digest, node) is not node:
                node.fate = "duplicate"
                self.counts.duplicates += 1
        return list(first_of.values())

    async def _without_hopeless(self, candidates: Sequence[SearchNode]) -> list[SearchNode]:
        """Drop unfinished trajectories whose bound is no better than a finished one's score."""
        finished = [node for node in candidates if node.finished]
        await run_all(self._verify(node) for node in finished if node.score is None)
        best = max((node.score or 0.0 for node in finished), default=-1.0)
        kept = []
        for node in candidates:
            if node.finished or node.valued is None or node.valued.bound > best:
                kept.append(node)
            else:
                node.fate = "cut"
                self.counts.cut += 1
        return kept

    async def _verify(self, node: SearchNode) -> None:
        node.score = (await self.session.score(node.branch, final=True)).value

    def _select(self, nodes: Sequence[SearchNode]) -> list[SearchNode]:
        for node in nodes:
            node.tie = self.key.child("tie", *node.path).digest
        settings = self.settings
        beam = choose(nodes, settings.beam_width, settings.min_parents, settings.min_roots)
        for node in nodes:
            if node not in beam:
                node.fate = "pruned"
        self.counts.parents.append(len({node.path[:-1] for node in beam}))
        return beam


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently, started in order; return their results in order.

    The first error cancels the others and is raised itself, not as part of a group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in work]
    except BaseExceptionGroup as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
    return [task.result() for task in tasks]
