"""What an iteration takes at most, known before anything is paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import evolve

from orchestrion import Plan, Split, ceiling_of
from orchestrion_beam.interfaces import ValueEstimator
from orchestrion_beam.values import TaskValue

if TYPE_CHECKING:
    from orchestrion_beam.trainer import GrpoBeam

__all__ = ["DEPTHS", "MORE", "held_out", "most_turns", "plan", "search"]

MORE = 1.5
"""A baseline whose turns make fewer calls than the search's takes more turns, up to that share."""

DEPTHS = (0.25, 0.5, 0.75)
"""How far trajectories had come when their values are set beside their final scores."""


def plan(settings: GrpoBeam, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
    """The bound of iteration `i`; None where an improver cannot say it."""
    value = settings.value or TaskValue()
    if i >= settings.rounds:
        return times(comparison(settings, value), held_out(settings, sizes))
    found = times(search(settings, value), settings.problems)
    if settings.improver is None or (i + 1) % settings.improve_every:
        return found
    say = getattr(settings.improver, "plan", None)
    more = None if say is None else say(i // settings.improve_every, sizes, turns)
    return None if more is None else plus(found, more)


def search(settings: GrpoBeam, value: ValueEstimator, credit: bool = True) -> Plan:
    """One search, with the judgement of what it ends with."""
    samples, turns = settings.samples_per_search, settings.turns
    activations = samples * settings.at_once * (1 + settings.lookahead)
    partial = samples * value.scores
    if settings.early_stop:
        partial += samples
    if credit and settings.credit == "counterfactual":
        forks = min(settings.credited, settings.beam_width)
        activations += forks * turns * (turns - 1) // 2
        partial += forks * turns
    readings = ((value, samples),)
    return Plan(activations, settings.beam_width, partial, turns=turns, readings=readings)


def comparison(settings: GrpoBeam, value: ValueEstimator) -> Plan:
    """One held-out problem: a search, and the baselines with as many calls."""
    found = search(settings, value, credit=False)
    activations = verdicts = estimates = 0
    wanted = settings.baselines
    attempts = ("single" in wanted) + ("best-of-n" in wanted or "self-consistency" in wanted)
    # One attempt may be under way when as many calls were made as the search made; estimates make
    # one call each, or what they say.
    asks = ceiling_of(value, 0)
    most = found.activations + settings.samples_per_search * (1 if asks is None else asks.calls)
    most = most_turns(most) + settings.turns
    for _ in range(attempts):
        activations += most
        verdicts += most
        estimates += settings.probes * len(DEPTHS)
        if settings.select == "value":
            estimates += most
    longest = ends = 0
    if "greedy" in wanted:
        # Where its samples take fewer calls it draws more, and one a turn where none are left.
        drawn = most_turns(settings.samples_per_search) + settings.turns
        activations += drawn * settings.at_once * (1 + settings.lookahead)
        verdicts += 1
        estimates += drawn
        ends = drawn if settings.early_stop else 0
    for name in ("sequential", "discussion"):
        if name in wanted:
            longest = min(settings.longest_turns, most)
            activations += longest
            verdicts += 1
    more = Plan(
        activations,
        verdicts,
        estimates * value.scores + ends,
        turns=longest,
        readings=((value, estimates),),
    )
    return plus(found, more)


def most_turns(turns: int) -> int:
    """How many a baseline takes, where the search took so many."""
    return int(MORE * turns)


def held_out(settings: GrpoBeam, sizes: Mapping[Split, int]) -> int:
    """How many validation problems the comparison has."""
    size = sizes["validation"]
    most = size // 2 if settings.improver is not None else size
    return min(settings.held_out, max(1, most))


def times(one: Plan, count: int) -> Plan:
    """So much, so often."""
    return evolve(
        one,
        activations=one.activations * count,
        verdicts=one.verdicts * count,
        scores=one.scores * count,
        readings=tuple((reader, often * count) for reader, often in one.readings),
    )


def plus(one: Plan, other: Plan) -> Plan:
    """Both."""
    return Plan(
        one.activations + other.activations,
        one.verdicts + other.verdicts,
        one.scores + other.scores,
        one.usage + other.usage,
        turns=max(one.turns, other.turns),
        readings=(*one.readings, *other.readings),
    )
