"""The agent `map`: one nested team for each element of a list, in parallel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from attrs import Attribute, field, frozen

from orchestrion import (
    JSON,
    Agent,
    Calls,
    Key,
    Meta,
    OpenContext,
    Output,
    Policy,
    Problem,
    RunError,
    Trajectory,
    Turn,
    View,
    replace,
)
from orchestrion_dag.conditions import Value, compiled, parse, paths
from orchestrion_dag.plan import problem_value

_ROOTS = ("data", "content", "problem")


@frozen
class Map:
    """Runs a nested team on every element of a list; its data is the list of their results.

    In the nested team the element is the problem: its text if it is text, else its data. Results
    stand in the order of the elements. An element's result is the data of its team's last
    completed turn, or the content if there is no data.

    Args:
        members: the agents, by name; they leave the outer team.
        policy: which of them acts next.
        over: the list, as a path or list in the language of conditions: of the latest turn it
            reads (`data`, `content`) or of the `problem`.
        parallel: number of elements at once; 0 means all.
        most: maximum length of the list; a longer one fails this turn.
        turns: maximum number of turns for one element.
        on_error: an element without a completed turn fails this turn (`fail`) or gives null.
    """

    members: list[Agent]
    policy: Policy
    over: str = field(default="data")
    parallel: Annotated[int, Meta(ge=0)] = 0
    most: Annotated[int, Meta(ge=1)] = 1000
    turns: Annotated[int, Meta(ge=1)] = 12
    on_error: Literal["fail", "skip"] = "fail"

    @over.validator
    def _check_over(self, attribute: Attribute[Any], value: str) -> None:
        for path in paths(parse(value)):
            if path.root not in _ROOTS:
                roots = ", ".join(_ROOTS)
                raise ValueError(
                    f"column {path.column}: {path.root!r} is unknown here (there are: {roots}), "
                    f"in {value!r}"
                )

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Yield the runtime, which knows the members' names."""
        find = compiled(parse(self.over), lambda root: lambda frame: frame[root])
        yield _Opened(self, dict(zip(ctx.names["members"], self.members, strict=True)), find)


@frozen
class _Opened(Agent):
    settings: Map
    members: dict[str, Agent]
    find: Value

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        elements = self._elements(view)
        slots = asyncio.Semaphore(self.settings.parallel or max(1, len(elements)))

        async def run(i: int, element: JSON) -> Turn:
            async with slots:
                return await self._run(view, key.child("element", i), calls, i, element)

        # Exceptions are collected: the results and costs of the other elements are kept.
        work = (run(i, element) for i, element in enumerate(elements))
        done = await asyncio.gather(*work, return_exceptions=True)
        turns = []
        for turn in done:
            if isinstance(turn, BaseException):
                raise turn
            turns.append(turn)
        if self.settings.on_error == "fail":
            for turn in turns:
                if turn.status == "failed":
                    raise RunError(f"{turn.agent}: {turn.error}")
        results = [_result(turn) for turn in turns]
        content = "\n".join(turn.output.content for turn in turns if turn.output.content)
        return Output(content, results, inner=Trajectory(turns))

    def _elements(self, view: View) -> list[JSON]:
        latest = view.turns[-1].output if view.turns else Output()
        problem = problem_value(view.problem)
        over, most = self.settings.over, self.settings.most
        elements = self.find({"data": latest.data, "content": latest.content, "problem": problem})
        if not isinstance(elements, list | tuple):
            raise RunError(f"{over!r} is {json.dumps(elements)[:80]}, not a list")
        if len(elements) > most:
            raise RunError(f"{over!r} has {len(elements)} elements, and `most` is {most}")
        return list(elements)

    async def _run(self, view: View, key: Key, calls: Calls, i: int, element: JSON) -> Turn:
        """Return an element's run as one turn with the team's trajectory inside."""
        text = element if isinstance(element, str) else json.dumps(element)
        problem = Problem(f"{view.problem.id}/{i}", text, element, view.problem.category)
        # The team reads the element only: neither the list nor what is observed.
        alone = replace(
            view, problem=problem, trajectory=Trajectory(), observation=None, reads=(), given=()
        )
        name = f"{view.agent}[{i}]"
        try:
            inner = await calls.team(
                alone, key, self.members, self.settings.policy, self.settings.turns
            )
        except RunError as error:
            return Turn(i, name, status="failed", error=str(error))
        last = next((turn for turn in reversed(inner.turns) if turn.status == "completed"), None)
        if last is None:
            output = Output(inner=inner)
            return Turn(i, name, None, output, "failed", "no member completed a turn")
        output = Output(last.output.content, last.output.data, inner=inner)
        return Turn(i, name, None, output)


def _result(turn: Turn) -> JSON:
    if turn.status == "failed":
        return None
    return turn.output.data if turn.output.data is not None else turn.output.content
