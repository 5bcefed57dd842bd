"""How a served request becomes lines of a log."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from orchestrion_logged import Context, Logged, ServedRequest

from orchestrion import Observation, Problem, Turn
from orchestrion_serve.exploring import Trace, Watched
from orchestrion_serve.refusals import encodable


@frozen(eq=False)
class OpenRequest:
    """A request under way, and its episode."""

    request: ServedRequest
    """The record for the log, still without status and decisions."""
    policy: Watched
    trace: Trace
    problem: Problem


def decisions_of(answered: OpenRequest, turns: Sequence[Turn], contents: bool) -> list[Logged]:
    """Return the decisions of an episode; none if one of them was no choice of one agent.

    Questions and answers are logged only with `contents`.
    """
    if answered.trace.several:
        return []
    taken, lines = {turn.decision: turn for turn in turns}, []
    for step, seen in enumerate(answered.trace.seen):
        turn = taken.get(step)
        broke_off = turn is None and seen.choice != "stop"
        lines.append(
            Logged(
                _context(seen.situation.problem, seen.situation.observation, contents),
                seen.choice,
                seen.allowed,
                seen.propensity,
                cost=turn.usage.cost if turn is not None else 0.0,
                episode=answered.request.served,
                step=step,
                answer=encodable(turn.output.content) if turn is not None and contents else "",
                status="cancelled" if broke_off else turn.status if turn else "completed",
            )
        )
    return lines


def _context(problem: Problem, shown: Observation | None, contents: bool) -> Context:
    """Return what the policy saw, as it is logged."""
    shown = shown or Observation()
    return Context(
        problem.id if contents else "",
        encodable(problem.text) if contents else "",
        problem.category,
        problem.data if contents else None,
        tuple(shown.features),
        dict(shown.hints),
        shown.progress,
    )
