"""What a person, or an agent that reads text, sees of a problem and of its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrion import JSON
from orchestrion_repair.ranking import Map
from orchestrion_repair.state import State

__all__ = ["observation_text", "problem_text"]

WIDE = 100


def problem_text(data: Mapping[str, Any]) -> str:
    """The program and its visible tests."""
    tests = "\n".join(f"  {_case(data['entry_point'], case)}" for case in data["visible"])
    return (
        f"`{data['entry_point']}` is wrong: some of its tests fail. Find the edit that makes all "
        f"of them pass, and others like them.\n\n{data['code'].rstrip()}\n\nTests:\n{tests}\n"
    )


def observation_text(state: State, lines: Map) -> str:
    """The current program with the most suspicious lines marked, and its known results."""
    marks = dict.fromkeys(lines.regions["top"], ">>")
    marks |= dict.fromkeys(lines.regions["next"], " >")
    known = state.suspicion is not None or bool(state.boosts)
    rows = [
        f"{marks.get(number, '') if known else '':2} {number:3} {row}"
        for number, row in enumerate(state.code.splitlines(), start=1)
    ]
    return "\n".join([*rows, "", *_results(state)])


def _results(state: State) -> list[str]:
    entry, cases = state.target.entry_point, state.target.visible
    if state.results is not None:
        return [_row(entry, *pair) for pair in zip(cases, state.results, strict=True)]
    if not state.last:
        return ["Tests: not run yet."]
    rows = [_row(entry, cases[number], one) for number, one in state.last if number < len(cases)]
    return ["Tests: run on edits of this program only; the last edit gave:", *rows]


def _row(entry_point: str, case: Mapping[str, JSON], result: Mapping[str, Any]) -> str:
    if result["passed"]:
        return f"pass  {_case(entry_point, case)}"
    raised = result["error"] and result["got"] is None
    what = result["error"] if raised else f"got {_cut(result['got'])}"
    return f"FAIL  {_case(entry_point, case)}: {what}"


def _case(entry_point: str, case: Mapping[str, JSON]) -> str:
    if "call" not in case:
        return _cut(case["assert"], plain=True)
    arguments = ", ".join(map(repr, case["call"]))
    return _cut(f"{entry_point}({arguments}) == {case['want']!r}", plain=True)


def _cut(value: JSON, plain: bool = False) -> str:
    text = value if plain else repr(value)
    return text if len(text) <= WIDE else text[: WIDE - 3] + "..."
