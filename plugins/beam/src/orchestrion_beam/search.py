"""The search: one problem, many trajectories side by side. Read `Search.run` first.

    beam = [nothing]
    until all of the beam are finished:
        children = k samples of the next turn for each that is not, all in flight at once
        drop failed and equal ones; estimate what each will be worth
        beam     = the `beam_width` best, with enough different parents and first turns

A level waits for its slowest call, since siblings are compared; problems do not wait for each
other. What is drawn for a trajectory goes by its path in the tree, what it is worth by its
content, and equal values are told apart by a key: nothing depends on which sample arrives first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from orchestrion import Branch, CallError, Key, Problem, RunError, Session
from orchestrion_beam.choosers import Chooser, Start
from orchestrion_beam.interfaces import Valued, ValueEstimator
from orchestrion_beam.nodes import Node, calls_of, new_turns
from orchestrion_beam.selection import Candidate, choose
from orchestrion_beam.together import together

if TYPE_CHECKING:
    from orchestrion_beam.trainer import GrpoBeam

__all__ = ["Counts", "Estimates", "Flight", "Found", "Search"]


@define
class Flight:
    """How many extensions run at this moment, and how many did at most."""

    now: int = 0
    most: int = 0

    async def extend(self, session: Session, branch: Branch, start: Start, key: Key) -> Branch:
        """`session.extend`, counted."""
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await session.extend(branch, start or (), key)
        finally:
            self.now -= 1


@define
class Counts:
    """What a search did, in numbers.

    Args:
        samples: extensions that were drawn.
        widest: of these, the most that were in flight at once.
        failed: of these, those whose turns all failed.
        duplicates: those that said what another one said.
        scored: those with an estimate.
        unreadable: estimates that say nothing.
        asked: estimates that were computed; equal content is estimated once.
        cut: trajectories that could not win any more.
        activations: turns, those of lookahead included.
        turn_calls: of turns, where one without calls counts as one.
        estimate_calls: of estimates.
        parents: of each level, how many different trajectories the beam grew from.
        credit_turns: turns that were run again, to see what one that was left out is worth.
        last_error: of a turn that failed.
    """

    samples: int = 0
    widest: int = 0
    failed: int = 0
    duplicates: int = 0
    scored: int = 0
    unreadable: int = 0
    asked: int = 0
    cut: int = 0
    activations: int = 0
    turn_calls: int = 0
    estimate_calls: int = 0
    parents: list[int] = field(factory=list)
    credit_turns: int = 0
    last_error: str = ""

    @property
    def calls(self) -> int:
        """All of them, those that credit took aside."""
        return self.turn_calls + self.estimate_calls


class Estimates:
    """The one place where branches of a search are valued; equal content is valued once.

    Args:
        estimator: says what a branch is worth.
        session: for its calls.
        key: every estimate's own is named by the content under it.
        counts: what is done is added here.
        ahead: how to roll a branch on before it is valued.
    """

    def __init__(
        self,
        estimator: ValueEstimator,
        session: Session,
        key: Key,
        counts: Counts,
        ahead: Lookahead | None = None,
    ) -> None:
        self.estimator, self.session, self.key = estimator, session, key
        self.counts, self.ahead = counts, ahead
        self._known: dict[bytes, asyncio.Future[Valued]] = {}

    async def of(self, node: Node) -> Valued:
        """What a trajectory is worth."""
        known = self._known.get(node.digest)
        if known is None:
            known = self._known[node.digest] = asyncio.get_running_loop().create_future()
            try:
                known.set_result(await self._ask(node))
            except BaseException:
                # Whoever waits for it is ended with the one who asked.
                known.cancel()
                raise
        valued = await known
        self.counts.scored += 1
        self.counts.unreadable += valued.value is None
        return valued

    async def _ask(self, node: Node) -> Valued:
        self.counts.asked += 1
        key, branch = self.key.child(node.digest.hex()), node.branch
        if self.ahead is not None and not node.finished:
            branch = await self.ahead.roll(self.session, branch, key.child("ahead"), self.counts)
        try:
            valued = await self.estimator.estimate(branch, self.session, key.child("value"))
        except CallError:
            # No estimate is no reason to lose what was paid for; it ranks last, and is counted.
            return Valued(None)
        self._check(valued, node)
        self.counts.estimate_calls += valued.usage.calls
        # What is known of the branch that was rolled on bounds nothing else that may become of it.
        return valued if branch is node.branch else evolve(valued, bound=1.0)

    def _check(self, valued: Any, node: Node) -> None:
        """What an estimator gave is an estimate.

        Raises:
            RunError: it is none.
        """
        given = valued
        if isinstance(valued, Valued):
            given = valued.value
            if given is None or (_is_number(given) and 0 <= given <= 1):
                given = valued.bound
                if _is_number(given):
                    return
        raise RunError(
            f"value estimator {type(self.estimator).__name__} gave {given!r} on problem "
            f"{node.branch.problem.id!r}; a value is from 0 to 1, or None, and a bound is a number"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isnan(value)


@frozen
class Lookahead:
    """Rolls a branch on, to value it by what becomes of it.

    Args:
        steps: how far.
        turns: no further than to that many turns.
        chooser: who acts.
        flight: counts what runs.
    """

    steps: int
    turns: int
    chooser: Chooser
    flight: Flight

    async def roll(self, session: Session, branch: Branch, key: Key, counts: Counts) -> Branch:
        """The branch after `steps` more starts, or as far as it goes."""
        for n in range(self.steps):
            before = len(branch.trajectory)
            if branch.step.done or before >= self.turns:
                break
            [start] = self.chooser.starts([branch], [key.child("decide", n)])
            if start is None:
                break
            branch = await self.flight.extend(session, branch, start, key.child("extend", n))
            turns = new_turns(branch.trajectory, before)
            counts.activations += len(turns)
            counts.turn_calls += calls_of(turns)
            if any(turn.output.final for turn in turns):
                break
        return branch


@frozen
class Found:
    """What a search ended with.

    Args:
        problem: with its hidden part.
        finalists: highest value first; empty if the first turn failed in all samples.
        nodes: every trajectory there was, in the order of their paths level by level.
        counts: what was done for it.
    """

    problem: Problem
    finalists: tuple[Node, ...] = field(repr=False)
    nodes: tuple[Node, ...] = field(repr=False)
    counts: Counts


class Search:
    """Beam search on one problem.

    Args:
        settings: of the trainer.
        session: extends and scores.
        problem: with its hidden part.
        chooser: who acts next.
        estimator: says what a trajectory is worth.
        key: of this search.
        flight: counts what runs.
    """

    def __init__(
        self,
        settings: GrpoBeam,
        session: Session,
        problem: Problem,
        chooser: Chooser,
        estimator: ValueEstimator,
        key: Key,
        flight: Flight,
    ) -> None:
        self.settings, self.session, self.problem = settings, session, problem
        self.chooser, self.key, self.flight = chooser, key, flight
        self.counts = Counts()
        ahead = Lookahead(settings.lookahead, settings.turns, chooser, flight)
        self.values = Estimates(
            estimator,
            session,
            key.child("values"),
            self.counts,
            ahead if settings.lookahead else None,
        )
        self.nodes: list[Node] = []

    async def run(self) -> Found:
        """Search to the end."""
        beam = [Node(self.session.begin(self.problem, self.key.child("begin")))]
        beam[0].finished = beam[0].branch.step.done
        while growing := [node for node in beam if not node.finished]:
            children = await self._grow(growing)
            candidates = self._distinct([node for node in beam if node.finished] + children)
            if not candidates:
                # Nothing came of the whole level: what there was before it is all there is.
                beam = [node for node in growing if node.path]
                break
            if self.settings.early_stop:
                candidates = await self._cut(candidates)
            beam = self._select(candidates)
        for node in beam:
            node.fate = "final"
        return Found(self.problem, tuple(beam), tuple(self.nodes), self.counts)

    async def _grow(self, growing: Sequence[Node]) -> list[Node]:
        """All samples of all trajectories, all at once; those that failed are left out."""
        pairs = [(node, n) for node in growing for n in range(self.settings.samples)]
        keys = [self.key.child("decide", *node.path, n) for node, n in pairs]
        starts = self.chooser.starts([node.branch for node, _ in pairs], keys)
        work = []
        for (node, n), start in zip(pairs, starts, strict=True):
            if start is None:
                node.finished = True
            else:
                work.append(self._sample(node, n, start[: self._left(node)]))
        self.counts.widest = max(self.counts.widest, len(work))
        children = await together(work)
        self.nodes += children
        return [child for child in children if child.fate != "failed"]

    def _left(self, node: Node) -> int:
        return self.settings.turns - len(node.branch.trajectory)

    async def _sample(self, node: Node, n: int, start: Start) -> Node:
        """One more turn (or several at once), with an estimate as soon as it is there."""
        assert start is not None
        key = self.key.child("extend", *node.path, n)
        branch = await self.flight.extend(self.session, node.branch, start, key)
        child = node.child(n, start, branch)
        child.finished = child.finished or self._left(child) <= 0
        counts, turns = self.counts, child.turns
        counts.samples += 1
        counts.activations += len(turns)
        counts.turn_calls += child.calls
        if all(turn.status != "completed" for turn in turns):
            child.fate = "failed"
            counts.failed += 1
            counts.last_error = max(counts.last_error, f"{turns[0].agent}: {turns[0].error}")
        else:
            child.valued = await self.values.of(child)
        return child

    def _distinct(self, candidates: Sequence[Node]) -> list[Node]:
        """One trajectory of each content: the first by order of parents and samples."""
        seen: dict[bytes, Node] = {}
        for node in candidates:
            if seen.setdefault(node.digest, node) is not node:
                node.fate = "duplicate"
                self.counts.duplicates += 1
        return list(seen.values())

    async def _cut(self, candidates: Sequence[Node]) -> list[Node]:
        """Without those that can end no better than one that has ended."""
        ended = [node for node in candidates if node.finished]
        await together(self._verify(node) for node in ended if node.score is None)
        best = max((node.score or 0.0 for node in ended), default=-1.0)
        kept = []
        for node in candidates:
            if node.finished or node.valued is None or node.valued.bound > best:
                kept.append(node)
            else:
                node.fate = "cut"
                self.counts.cut += 1
        return kept

    async def _verify(self, node: Node) -> None:
        node.score = (await self.session.score(node.branch, final=True)).value

    def _select(self, candidates: Sequence[Node]) -> list[Node]:
        settings = self.settings
        kept = choose(
            [
                Candidate(
                    node.value,
                    self.key.child("tie", *node.path).digest,
                    node.path[:-1],
                    node.root,
                )
                for node in candidates
            ],
            settings.beam_width,
            settings.min_parents,
            settings.min_roots,
        )
        for i in set(range(len(candidates))).difference(kept):
            candidates[i].fate = "pruned"
        beam = [candidates[i] for i in kept]
        self.counts.parents.append(len({node.path[:-1] for node in beam}))
        return beam
