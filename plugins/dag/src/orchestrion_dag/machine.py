"""Where a run of a graph stands: what turns did to it, and what may start now.

A machine is fed the turns of a trajectory in the order of their arrival, and is a function of
that order, the problem and what was observed. Joins that wait for every edge come to the same
whatever the order; `any` and `k_of_n` go by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from orchestrion import Activation, Observation, Problem, Turn
from orchestrion_dag.plan import Link, Plan, Step
from orchestrion_dag.ports import wrong
from orchestrion_dag.scope import (
    CANCELLED,
    FAILED,
    PENDING,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    NodeState,
    Scope,
    ends,
    states,
    why,
)

__all__ = ["Machine"]

TAKEN, NOT_TAKEN, BROKEN = range(3)
"""What became of an edge. A broken one leads from a failure: what needs it is skipped."""


_Active = tuple[Scope, Step, int, Activation]
"""What an activation is for: the step in its scope, and which try of it."""


class Machine:
    """One run of a plan.

    `active` are the activations that should be running, by the index of their turn; `fresh` are
    those of them that nobody was told of yet. It is `over` when every output is decided or the
    graph failed; `error` says why it gave nothing.
    """

    __slots__ = ("active", "error", "fresh", "observation", "over", "problem", "todo", "top")

    def __init__(self, plan: Plan, problem: Problem, observation: Observation | None) -> None:
        self.problem, self.observation = problem, observation
        self.active: dict[int, _Active] = {}
        self.fresh: list[int] = []
        self.over, self.error = False, ""
        self.todo: deque[tuple[Scope, Step]] = deque()
        self.top = Scope(self, plan, 0, ())
        self._open(self.top)
        self._work()

    # ------------------------------------------------------------------ what comes in

    def arrive(self, turn: Turn) -> None:
        """A turn has finished."""
        index = turn.index
        entry = self.active.get(index)
        if entry is None or (entry[3].agent, entry[3].option) != (turn.agent, turn.option):
            found = self._passed_over(turn) or self._elsewhere(turn)
            if found is None:
                return  # not one of this graph's
            index, entry = found
        del self.active[index]
        scope, step, attempt, _ = entry
        if scope.over or scope.status[step.place] != RUNNING:
            return  # late: what it was for has ended
        if turn.status == "cancelled":
            scope.status[step.place] = CANCELLED
            return
        error = turn.error or "it failed" if turn.status == "failed" else ""
        if not error and step.check is not None:
            error = wrong(step.check, turn.output.data)
        if not error:
            scope.results[step.place] = (turn.index,)
            scope.turns[step.place] = turn
            self._succeed(scope, step)
        elif attempt + 1 < len(step.tries):
            self._start(scope, step, attempt + 1)
        else:
            self._fail(scope, step, error)
        self._work()

    def pass_over(self, index: int) -> None:
        """The task does not let this activation start now."""
        scope, step, _, _ = self.active.pop(index)
        self._skip(scope, step, "blocked by the task")
        self._work()

    def _passed_over(self, turn: Turn) -> tuple[int, _Active] | None:
        """An activation that only runs because others before it were passed over."""
        # Passing over leaves no turn. Whoever comes to a trajectory later sees it by what followed.
        target = next((one for one in self.top.plan.steps if one.offset == turn.index), None)
        if target is None or (turn.agent, turn.option) not in target.tries:
            return None
        for other, (scope, step, _, _) in list(self.active.items()):
            if scope is self.top and other in self.active and self._leads(step.place, target.place):
                self.pass_over(other)
                if turn.index in self.active:
                    return turn.index, self.active[turn.index]
        return None

    def _elsewhere(self, turn: Turn) -> tuple[int, _Active] | None:
        """The same agent at another index, in a trajectory that somebody else put together."""
        for index in sorted(self.active):
            one = self.active[index][3]
            if (one.agent, one.option) == (turn.agent, turn.option):
                return index, self.active[index]
        return None

    def _leads(self, source: int, target: int) -> bool:
        """Whether a step comes before another one."""
        seen, waiting = {source}, [source]
        while waiting:
            for link in self.top.plan.steps[waiting.pop()].links:
                if link.target not in seen:
                    seen.add(link.target)
                    waiting.append(link.target)
        return target in seen and target != source

    # ------------------------------------------------------------------ how it goes on

    def _open(self, scope: Scope) -> None:
        plan = scope.plan
        for place in plan.roots:
            scope.reads[place] = scope.entry
            self._activate(scope, plan.steps[place])
        if plan.first:
            self._follow(scope, -1, plan.first, SUCCEEDED, scope.entry, False)

    def _activate(self, scope: Scope, step: Step) -> None:
        scope.status[step.place] = RUNNING
        if step.body is not None:
            self._repeat(scope, step, scope.reads[step.place])
        else:
            self._start(scope, step, 0)

    def _start(self, scope: Scope, step: Step, attempt: int) -> None:
        agent, option = step.tries[attempt]
        index = scope.base + step.offset + attempt
        reads = scope.reads[step.place]
        if len(reads) > 1:
            reads = tuple(sorted(set(reads)))
        node = step.node
        one = Activation(agent, option, reads, node.timeout, index, node.reuse)
        self.active[index] = (scope, step, attempt, one)
        self.fresh.append(index)

    def _repeat(self, scope: Scope, step: Step, entry: tuple[int, ...]) -> None:
        assert step.body is not None
        bodies = scope.children.setdefault(step.place, [])
        base = scope.base + step.offset + len(bodies) * step.body.size
        bodies.append(Scope(self, step.body, base, entry, scope, step, len(bodies)))
        self._open(bodies[-1])

    def _work(self) -> None:
        """Carry what was decided to everything that follows from it."""
        # A list of things to do, not recursion: a chain of skipped nodes may be long.
        while self.todo and not self.over:
            scope, step = self.todo.popleft()
            if scope.over:
                continue
            place = step.place
            status = scope.status[place]
            if status == SUCCEEDED and step.simple:
                results = scope.results[place]
                for link in step.links:
                    self._decide(scope, link.target, TAKEN, results)
            elif step.links:
                broken = status != SUCCEEDED and scope.broken[place] > 0
                if status == FAILED:
                    broken = step.node.on_error == "skip" and not step.handled
                # Who takes care of a failure reads what the failed node was to read.
                results = scope.reads[place] if status == FAILED else scope.results[place]
                self._follow(scope, place, step.links, status, results, broken)
            if step.is_output:
                scope.open_outputs -= 1
                if not scope.open_outputs:
                    self._close(scope)

    def _follow(
        self,
        scope: Scope,
        place: int,
        links: list[Link],
        status: str,
        results: tuple[int, ...],
        broken: bool,
    ) -> None:
        """Decide the edges of a step that ended."""
        if status == SUCCEEDED:
            self._branch(scope, place, links, results)
            return
        if status == FAILED and scope.plan.steps[place].handled:
            self._branch(scope, place, links, results, failed=True, broken=broken)
            return
        become = BROKEN if broken else NOT_TAKEN
        for link in links:
            self._decide(scope, link.target, become, results)

    def _branch(
        self,
        scope: Scope,
        place: int,
        links: list[Link],
        results: tuple[int, ...],
        failed: bool = False,
        broken: bool = False,
    ) -> None:
        """Edges with conditions, or with another outcome in mind."""
        frame, any_taken = (scope, place), False
        verdicts: list[int | None] = []
        for link in links:
            if not (link.failure if failed else link.success):
                verdicts.append(BROKEN if failed and broken else NOT_TAKEN)
            elif link.otherwise:
                verdicts.append(None)
            elif link.test is None:
                verdicts.append(TAKEN)
            else:
                taken = bool(link.test(frame))
                any_taken = any_taken or taken
                verdicts.append(TAKEN if taken else NOT_TAKEN)
        default = NOT_TAKEN if any_taken else TAKEN
        for link, verdict in zip(links, verdicts, strict=True):
            self._decide(scope, link.target, default if verdict is None else verdict, results)

    def _decide(self, scope: Scope, place: int, verdict: int, results: tuple[int, ...]) -> None:
        """One edge to a step is decided: it may run now, or never."""
        scope.left[place] -= 1
        if scope.status[place] != PENDING:
            return  # it fired already: a late sibling changes nothing
        if verdict == TAKEN:
            scope.taken[place] += 1
            scope.reads[place] += results
        elif verdict == BROKEN:
            scope.broken[place] += 1
        step = scope.plan.steps[place]
        if step.need:
            if scope.taken[place] >= step.need:
                self._activate(scope, step)
                return
            if scope.left[place]:
                return
        elif scope.left[place]:
            return
        elif step.join == "all_done" or (scope.taken[place] and not scope.broken[place]):
            self._activate(scope, step)
            return
        self._skip(scope, step, why(step, scope.taken[place], scope.broken[place]))

    def _succeed(self, scope: Scope, step: Step) -> None:
        scope.status[step.place] = SUCCEEDED
        self.todo.append((scope, step))

    def _skip(self, scope: Scope, step: Step, reason: str) -> None:
        scope.status[step.place] = SKIPPED
        scope.reasons[step.place] = reason
        self.todo.append((scope, step))

    def _fail(self, scope: Scope, step: Step, reason: str) -> None:
        scope.status[step.place] = FAILED
        scope.reasons[step.place] = reason
        # Of a loop, what the runs before gave is no result of it.
        scope.results[step.place], scope.turns[step.place] = (), None
        if step.node.on_error != "fail" or step.handled:
            self.todo.append((scope, step))
            return
        self._end(scope)
        if scope.outer is None or scope.step is None:
            self.over, self.error = True, f"node {step.name!r} failed: {reason}"
        else:
            self._fail(scope.outer, scope.step, f"node {scope.path(step)!r} failed: {reason}")

    # ------------------------------------------------------------------ ends

    def _end(self, scope: Scope) -> None:
        """Nothing in a scope counts any more: what was to start there does not."""
        scope.closed = True
        for index in self.fresh:
            if index in self.active and self.active[index][0].over:
                del self.active[index]
        self.fresh = [index for index in self.fresh if index in self.active]

    def _close(self, scope: Scope) -> None:
        """Every output is decided."""
        plan, outer, step = scope.plan, scope.outer, scope.step
        self._end(scope)
        given = [place for place in plan.outputs if scope.status[place] == SUCCEEDED]
        results = tuple(index for place in given for index in scope.results[place])
        if outer is None or step is None:
            self.over = True
            if not given:
                self.error = f"no output was reached: {ends(scope)}"
            return
        if not given:
            if any(scope.status[place] == FAILED or scope.broken[place] for place in plan.outputs):
                self._fail(outer, step, f"no output was reached: {ends(scope)}")
            elif scope.iteration:
                # There was nothing more to do: what the runs before gave is the result.
                self._succeed(outer, step)
            else:
                self._skip(outer, step, f"no output was reached: {ends(scope)}")
            return
        last = max(given, key=lambda place: scope.results[place][-1:])
        outer.results[step.place], outer.turns[step.place] = results, scope.turns[last]
        again = scope.iteration + 1 < step.times
        if again and not (step.until is not None and step.until((scope, -1))):
            # The next run reads what the first one did, and what this one gave.
            self._repeat(outer, step, (*outer.reads[step.place], *results))
            return
        self._succeed(outer, step)

    # ------------------------------------------------------------------ for people

    def states(self) -> Iterator[tuple[str, NodeState]]:
        """Every node of the graph and of every run of a body, by path."""
        yield from states(self.top, "", self.over)
