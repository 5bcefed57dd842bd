"""The state of a run of a graph: what its turns changed, and what may start now.

A machine takes the turns of a trajectory in order of arrival. Its state is a function of that
order, the problem and what was observed. Joins that wait for every edge give the same result in
any order; `any` and `k_of_n` depend on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from attrs import define, field, frozen

from orchestrion import Activation, Observation, Problem, Turn
from orchestrion_dag.plan import GraphPlan, PlanLink, PlanStep, comes_before
from orchestrion_dag.ports import wrong

PENDING, RUNNING, SUCCEEDED = "pending", "running", "succeeded"
FAILED, SKIPPED, CANCELLED = "failed", "skipped", "cancelled"
TAKEN, NOT_TAKEN, BROKEN = range(3)
"""States of an edge. A broken one leads from a failure: a node that needs it is skipped."""


@frozen
class NodeState:
    """The state of a node in an episode.

    Args:
        status: pending, running, succeeded, failed, skipped or cancelled.
        reason: why it failed or was skipped.
        turns: the indices of its resulting turns, which later nodes may read.
        iterations: number of runs of its body.
        capped: whether the body ran the maximum number of times and `until` does not hold.
    """

    status: str
    reason: str = ""
    turns: tuple[int, ...] = ()
    iterations: int = 0
    capped: bool = False


@define(eq=False)
class Scope:
    """One run of a graph or of a body: the state of each of its steps, by place.

    Args:
        machine: of the whole run.
        plan: what runs.
        base: the index of the first try of its first step.
        entry: indices of the turns that its roots read.
        outer: the scope around it, None for the whole graph.
        step: the step there whose body it is.
        iteration: number of earlier runs of the body.
    """

    machine: Machine
    plan: GraphPlan
    base: int
    entry: tuple[int, ...]
    outer: Scope | None = None
    step: PlanStep | None = None
    iteration: int = 0
    status: list[str] = field(init=False)
    left: list[int] = field(init=False)
    """Number of edges to each step that are not decided."""
    taken: list[int] = field(init=False)
    broken: list[int] = field(init=False)
    reads: list[tuple[int, ...]] = field(init=False)
    results: list[tuple[int, ...]] = field(init=False)
    """Indices of each step's turns that others read; `turns` holds the last of these turns."""
    turns: list[Turn | None] = field(init=False)
    reasons: dict[int, str] = field(init=False, factory=dict)
    children: dict[int, list[Scope]] = field(init=False, factory=dict)
    open_outputs: int = field(init=False)
    closed: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        count = len(self.plan.steps)
        self.status, self.left = [PENDING] * count, self.plan.waits.copy()
        self.taken, self.broken = [0] * count, [0] * count
        self.reads, self.results, self.turns = [()] * count, [()] * count, [None] * count
        self.open_outputs = len(self.plan.outputs)

    @property
    def over(self) -> bool:
        """Whether nothing that happens in it counts any more."""
        return self.closed or (self.outer is not None and self.outer.over)

    def value(self, place: int) -> dict[str, Any]:
        """Return a step as conditions see it."""
        turn = self.turns[place]
        return {
            "data": turn.output.data if turn is not None else None,
            "content": turn.output.content if turn is not None else None,
            "status": self.status[place],
            "error": self.reasons.get(place, ""),
            "iterations": len(self.children.get(place, ())),
            "capped": self._is_capped(place),
        }

    def _is_capped(self, place: int) -> bool:
        step, bodies = self.plan.steps[place], self.children.get(place)
        if not bodies or step.until is None or len(bodies) < step.times:
            return False
        return not step.until((bodies[-1], -1))

    def path(self, step: PlanStep) -> str:
        """Return the step's name from the outermost graph on."""
        if self.outer is None or self.step is None:
            return step.name
        return f"{self.outer.path(self.step)}/{step.name}"

    def ends(self) -> str:
        """Return the states of the outputs in words."""
        return ", ".join(
            f"{self.path(self.plan.steps[place])} {self.status[place]}"
            + (f" ({self.reasons[place]})" if place in self.reasons else "")
            for place in self.plan.outputs[:5]
        )

    def states(self, prefix: str, over: bool) -> Iterator[tuple[str, NodeState]]:
        """Yield the state of every step, of those in bodies too, by path."""
        over = over or self.closed
        for step in self.plan.steps:
            place, status = step.place, self.status[step.place]
            if over and status in (PENDING, RUNNING):
                status = CANCELLED
            bodies = self.children.get(place, [])
            capped = status == SUCCEEDED and self._is_capped(place)
            reason, turns = self.reasons.get(place, ""), self.results[place]
            yield prefix + step.name, NodeState(status, reason, turns, len(bodies), capped)
            for body in bodies:
                number = f"[{body.iteration + 1}]" if step.times > 1 else ""
                yield from body.states(f"{prefix}{step.name}{number}/", over)


class Active(NamedTuple):
    """What an activation is for: a step in its scope, and which try of it."""

    scope: Scope
    step: PlanStep
    attempt: int
    activation: Activation


class Machine:
    """One run of a plan.

    `active` holds the activations that should be running, by the index of their turn; `fresh` the
    indices of those that were not given out yet. It is `over` when every output is decided or the
    graph failed; `error` says why there is no result.
    """

    __slots__ = ("active", "error", "fresh", "observation", "over", "problem", "todo", "top")

    def __init__(self, plan: GraphPlan, problem: Problem, observation: Observation | None) -> None:
        self.problem, self.observation = problem, observation
        self.active: dict[int, Active] = {}
        self.fresh: list[int] = []
        self.over, self.error = False, ""
        self.todo: deque[tuple[Scope, PlanStep]] = deque()
        self.top = Scope(self, plan, 0, ())
        self._open(self.top)
        self._work()

    # ------------------------------------------------------------------ input

    def arrive(self, turn: Turn) -> None:
        """Take a finished turn."""
        index = turn.index
        entry = self.active.get(index)
        if entry is None or not _is_for(entry, turn):
            match = self._after_skipped(turn) or self._at_other_index(turn)
            if match is None:
                return  # not a turn of this graph
            index, entry = match
        del self.active[index]
        scope, step, attempt, _ = entry
        place = step.place
        if scope.over or scope.status[place] != RUNNING:
            return  # late: what it was for has ended
        if turn.status == "cancelled":
            scope.status[place] = CANCELLED
            return
        error = turn.error or "it failed" if turn.status == "failed" else ""
        if not error and step.check is not None:
            error = wrong(step.check, turn.output.data)
        if not error:
            scope.results[place], scope.turns[place] = (turn.index,), turn
            self._succeed(scope, step)
        elif attempt + 1 < len(step.tries):
            self._start(scope, step, attempt + 1)
        else:
            self._fail(scope, step, error)
        self._work()

    def skip(self, index: int) -> None:
        """Skip the step of an activation that the task does not allow now."""
        scope, step, _, _ = self.active.pop(index)
        self._skip(scope, step, "blocked by the task")
        self._work()

    def _after_skipped(self, turn: Turn) -> tuple[int, Active] | None:
        """Return the activation of a turn that follows steps that were skipped as blocked."""
        # A skipped step leaves no turn: a rebuilt machine infers it from the turn of a later step.
        steps = self.top.plan.steps
        target = next((step for step in steps if step.offset == turn.index), None)
        if target is None or (turn.agent, turn.option) not in target.tries:
            return None
        for other, (scope, step, _, _) in list(self.active.items()):
            if scope is self.top and other in self.active and comes_before(steps, step, target):
                self.skip(other)
                if turn.index in self.active:
                    return turn.index, self.active[turn.index]
        return None

    def _at_other_index(self, turn: Turn) -> tuple[int, Active] | None:
        """Return the first activation of the same agent, for trajectories made elsewhere."""
        matches = (index for index in sorted(self.active) if _is_for(self.active[index], turn))
        index = next(matches, None)
        return None if index is None else (index, self.active[index])

    # ------------------------------------------------------------------ steps start

    def _open(self, scope: Scope) -> None:
        plan = scope.plan
        for place in plan.roots:
            scope.reads[place] = scope.entry
            self._activate(scope, plan.steps[place])
        if plan.first:
            self._branch(scope, -1, plan.first, scope.entry)

    def _activate(self, scope: Scope, step: PlanStep) -> None:
        scope.status[step.place] = RUNNING
        if step.body is not None:
            self._repeat(scope, step, step.body, scope.reads[step.place])
        else:
            self._start(scope, step, 0)

    def _start(self, scope: Scope, step: PlanStep, attempt: int) -> None:
        agent, option = step.tries[attempt]
        index = scope.base + step.offset + attempt
        reads = scope.reads[step.place]
        if len(reads) > 1:
            reads = tuple(sorted(set(reads)))
        node = step.node
        activation = Activation(agent, option, reads, node.timeout, index, node.reuse)
        self.active[index] = Active(scope, step, attempt, activation)
        self.fresh.append(index)

    def _repeat(
        self, scope: Scope, step: PlanStep, body: GraphPlan, entry: tuple[int, ...]
    ) -> None:
        bodies = scope.children.setdefault(step.place, [])
        base = scope.base + step.offset + len(bodies) * body.size
        bodies.append(Scope(self, body, base, entry, scope, step, len(bodies)))
        self._open(bodies[-1])

    # ------------------------------------------------------------------ edges are decided

    def _work(self) -> None:
        """Decide everything that follows from the steps that ended."""
        # A queue, not recursion: a chain of skipped nodes may be long.
        while self.todo and not self.over:
            scope, step = self.todo.popleft()
            if scope.over:
                continue
            place, links = step.place, step.links
            status, results = scope.status[place], scope.results[place]
            if status == SUCCEEDED:
                self._branch(scope, place, links, results)
            elif status == FAILED and step.handled:
                # The failure handler gets the inputs of the failed node.
                self._branch(scope, place, links, scope.reads[place], failed=True)
            else:
                needs_skip = status == FAILED and step.node.on_error == "skip"
                broken = needs_skip or (status != FAILED and scope.broken[place] > 0)
                for link in links:
                    self._decide(scope, link.target, BROKEN if broken else NOT_TAKEN, results)
            if step.is_output:
                scope.open_outputs -= 1
                if not scope.open_outputs:
                    self._close(scope)

    def _branch(
        self,
        scope: Scope,
        place: int,
        links: Sequence[PlanLink],
        results: tuple[int, ...],
        failed: bool = False,
    ) -> None:
        """Decide the edges of a step that succeeded, or whose failure is handled."""
        verdicts: list[int | None] = []
        default = TAKEN  # of `otherwise`
        for link in links:
            if not (link.failure if failed else link.success):
                verdicts.append(NOT_TAKEN)
            elif link.otherwise:
                verdicts.append(None)
            elif link.test is None:
                verdicts.append(TAKEN)
            elif link.test((scope, place)):
                verdicts.append(TAKEN)
                default = NOT_TAKEN
            else:
                verdicts.append(NOT_TAKEN)
        for link, verdict in zip(links, verdicts, strict=True):
            self._decide(scope, link.target, default if verdict is None else verdict, results)

    def _decide(self, scope: Scope, place: int, verdict: int, results: tuple[int, ...]) -> None:
        """Note the state of one edge to a step; start or skip the step if that settles it."""
        scope.left[place] -= 1
        if scope.status[place] != PENDING:
            return  # `any` or `k_of_n` was settled before: later edges change nothing
        if verdict == TAKEN:
            scope.taken[place] += 1
            scope.reads[place] += results
        elif verdict == BROKEN:
            scope.broken[place] += 1
        step = scope.plan.steps[place]
        taken, broken, left = scope.taken[place], scope.broken[place], scope.left[place]
        starts = taken >= step.need
        if not step.need:
            starts = not left and (step.node.join == "all_done" or (taken > 0 and not broken))
        if starts:
            self._activate(scope, step)
        elif not left and broken:
            self._skip(scope, step, "a node that it needs failed")
        elif not left and step.need > 1:
            self._skip(scope, step, f"{taken} of the {step.need} edges it needs were taken")
        elif not left:
            self._skip(scope, step, "no edge to it was taken")

    # ------------------------------------------------------------------ steps and scopes end

    def _succeed(self, scope: Scope, step: PlanStep) -> None:
        scope.status[step.place] = SUCCEEDED
        self.todo.append((scope, step))

    def _skip(self, scope: Scope, step: PlanStep, reason: str) -> None:
        scope.status[step.place], scope.reasons[step.place] = SKIPPED, reason
        self.todo.append((scope, step))

    def _fail(self, scope: Scope, step: PlanStep, reason: str) -> None:
        scope.status[step.place], scope.reasons[step.place] = FAILED, reason
        # The results of earlier runs of a body are no result of the failed node.
        scope.results[step.place], scope.turns[step.place] = (), None
        if step.node.on_error != "fail" or step.handled:
            self.todo.append((scope, step))
            return
        self._end(scope)
        error = f"node {scope.path(step)!r} failed: {reason}"
        if scope.outer is None or scope.step is None:
            self.over, self.error = True, error
        else:
            self._fail(scope.outer, scope.step, error)

    def _end(self, scope: Scope) -> None:
        """Close a scope; nothing starts in it any more."""
        scope.closed = True
        for index in self.fresh:
            if index in self.active and self.active[index].scope.over:
                del self.active[index]
        self.fresh = [index for index in self.fresh if index in self.active]

    def _close(self, scope: Scope) -> None:
        """End a scope whose outputs are all decided, and its step in the scope around it."""
        plan, outer, step = scope.plan, scope.outer, scope.step
        self._end(scope)
        reached = [place for place in plan.outputs if scope.status[place] == SUCCEEDED]
        error = "" if reached else f"no output was reached: {scope.ends()}"
        if outer is None or step is None or step.body is None:
            self.over, self.error = True, error
            return
        if not reached:
            if any(scope.status[place] == FAILED or scope.broken[place] for place in plan.outputs):
                self._fail(outer, step, error)
            elif scope.iteration:
                # Nothing was left to do: the result is that of the run before.
                self._succeed(outer, step)
            else:
                self._skip(outer, step, error)
            return
        results = tuple(index for place in reached for index in scope.results[place])
        last = max(reached, key=lambda place: scope.results[place][-1:])
        outer.results[step.place], outer.turns[step.place] = results, scope.turns[last]
        if scope.iteration + 1 < step.times and not (step.until and step.until((scope, -1))):
            # The next run reads what the first one did, and the results of this one.
            self._repeat(outer, step, step.body, (*outer.reads[step.place], *results))
            return
        self._succeed(outer, step)


def _is_for(entry: Active, turn: Turn) -> bool:
    return (entry.activation.agent, entry.activation.option) == (turn.agent, turn.option)
