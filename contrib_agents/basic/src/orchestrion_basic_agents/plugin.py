"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_basic_agents"


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "echo", f"{HERE}.agents:Echo", "repeats what it reads; a JSON input scripts what it does"
    )
    yield Component("terminator", f"{HERE}.agents:Terminator", "ends the episode")
    yield Component("scripted", f"{HERE}.agents:Scripted", "says prepared lines, one in each turn")
    yield Component(
        "function",
        f"{HERE}.agents:Function",
        "wraps an installed Python function",
        example={"function": "textwrap:dedent"},
    )
    yield Component(
        "command",
        f"{HERE}.command:Command",
        "runs a program on the text it reads",
        example={"argv": ["cat"]},
    )
    yield Component("human", f"{HERE}.agents:Human", "asks a person on the terminal")
