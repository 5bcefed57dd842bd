"""What was found, in words and as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import asdict

from orchestrion import JSON
from orchestrion.runs import Estimate

__all__ = ["FEW", "as_data", "as_text", "sentences"]

FEW = 5
"""Fewer problems than that bear no claim: resampling them says little."""
FEWER = 0.95
"""A baseline with less than this share of the search's calls is pointed out."""


def as_data(value: Estimate) -> JSON:
    """An estimate as plain data; what is not known is null."""
    return {
        name: None if isinstance(number, float) and math.isnan(number) else number
        for name, number in asdict(value).items()
    }


def sentences(report: Mapping[str, Any]) -> list[str]:
    """What may be claimed, and what may not."""
    beam, *rivals = report["contenders"]
    if beam["reward"]["mean"] is None:
        return ["Nothing can be said: no trajectory of the search has a reward."]
    picked = (
        "one trajectory of each contender is picked by its reward, so all had the verifier's help"
        if report["select"] == "reward"
        else f"one trajectory of each contender is picked by the value {report['value']['name']!r}"
    )
    told = [
        f"On {_problems(report['problems'], 'held-out ')} beam search has a reward of "
        f"{_interval(beam['reward'])}, with {beam['calls']:.0f} calls a problem; {picked}."
    ]
    told += [_rival(one, beam) for one in rivals]
    told += _value(report["value"], rivals)
    return told


def _rival(rival: Mapping[str, Any], beam: Mapping[str, Any]) -> str:
    name, ahead = rival["name"], rival["ahead"]
    if ahead["mean"] is None:
        why = "its answers cannot be compared" if name == "self-consistency" else "no reward"
        return f"No comparison with {name}: {why}."
    if ahead["count"] < FEW:
        start = f"Too few problems to tell search and {name} apart"
    elif ahead["low"] > 0:
        start = f"Ahead of {name}"
    elif ahead["high"] < 0:
        start = f"Behind {name}"
    else:
        start = f"Not shown to differ from {name}"
    text = f"{start}: {_interval(ahead, sign=True)}"
    if ahead["count"] < rival["missing"] + ahead["count"]:
        text += f" on the {_problems(ahead['count'])} where it has a result"
    if rival["calls"] < FEWER * beam["calls"]:
        why = "it ends by itself" if rival["attempts"] == 1 else "its turns make fewer"
        text += f", but it used only {rival['calls']:.0f} calls: {why}"
    return f"{text}."


def _value(value: Mapping[str, Any], rivals: list[Mapping[str, Any]]) -> list[str]:
    name, found = value["name"], value["correlation"]
    if found["mean"] is None:
        return [
            f"Whether the value {name!r} is better than noise cannot be told: on no held-out "
            "problem did independent trajectories end with different scores, or none was tried."
        ]
    if value["better_than_noise"] is None:
        return [
            f"Whether the value {name!r} is better than noise cannot be told from "
            f"{_problems(found['count'])}; its rank correlation with the final score there is "
            f"{found['mean']:+.3f}."
        ]
    what = (
        f"its rank correlation with the final score, within a problem and on independent "
        f"trajectories, is {_interval(found, sign=True)}, over {_problems(found['count'])}"
    )
    if value["better_than_noise"]:
        told = [f"The value {name!r} orders unfinished trajectories better than noise: {what}."]
    else:
        told = [f"The value {name!r} is no better than noise: {what}."]
    # A value may tell something and still too little: what counts is what the calls bought.
    worth = (
        ("best-of-n", "Searching by it", "independent attempts"),
        ("greedy", "Keeping several trajectories", "`beam_width: 1` with more `samples`"),
    )
    for name, doing, instead in worth:
        ahead = next((one["ahead"] for one in rivals if one["name"] == name), None)
        if ahead is None or ahead["mean"] is None or ahead["count"] < FEW or ahead["low"] > 0:
            continue
        if ahead["mean"] > 0:
            told.append(f"{doing} is not shown to be worth its calls: {instead} may do as well.")
        else:
            told.append(f"{doing} was not worth its calls here: {instead} did as well or better.")
    return told


def _problems(count: int, which: str = "") -> str:
    return f"{count} {which}problem{'s' if count != 1 else ''}"


def _interval(value: Mapping[str, Any], sign: bool = False) -> str:
    form = "+.3f" if sign else ".3f"
    return f"{value['mean']:{form}} [{value['low']:{form}}, {value['high']:{form}}]"


def as_text(report: Mapping[str, Any]) -> str:
    """A table and the sentences."""
    rows = [("", "reward", "solved", "calls", "attempts", "beam ahead by")]
    for one in report["contenders"]:
        known = one["reward"]["mean"] is not None
        ahead = one["ahead"]
        rows.append(
            (
                one["name"],
                _interval(one["reward"]) if known else "-",
                f"{one['solved']:.3f}" if known else "-",
                f"{one['calls']:.1f}",
                f"{one['attempts']:.1f}",
                _interval(ahead, sign=True) if ahead and ahead["mean"] is not None else "",
            )
        )
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", *report["sentences"], ""])
