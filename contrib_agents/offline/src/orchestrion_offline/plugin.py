"""Register the components of this distribution."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_offline"
_AROUND = {
    "models": {"m": {"use": "offline", "speaker": "tested"}},
    "agents": {"a": {"use": "kit-agent", "model": "m"}, "b": {"use": "kit-agent"}},
}


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("speaker", "speakers", f"{HERE}.interfaces:Speaker")


@hookimpl
def orchestrion_models() -> Iterator[Component]:
    yield Component(
        "offline",
        f"{HERE}.model:Offline",
        "a simulated speaker behind real HTTP, called by the SDK of OpenAI or Anthropic",
        example={"speaker": {"use": "echo"}},
    )


@hookimpl
def orchestrion_tasks() -> Iterator[Component]:
    yield Component(
        "steps",
        f"{HERE}.steps:Steps",
        "worksheets to fill in, a line a turn; the best possible value is known",
        example={"train": 4, "validation": 4, "test": 4},
    )
    yield Component(
        "tickets",
        f"{HERE}.tickets:Tickets",
        "support tickets to sort: generated, or a file of your own",
        example={"test": 4},
    )


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    for name, path, summary in (
        ("echo", "speakers.plain:Echo", "repeats the last message"),
        ("scripted", "speakers.plain:Scripted", "gives its lines in order; they may call tools"),
        ("cast", "speakers.plain:Cast", "several speakers behind one model, chosen by role"),
        ("solver", "speakers.steps:Solver", "writes the next line of a worksheet at a known skill"),
        ("reviewer", "speakers.steps:Reviewer", "names wrong lines of a worksheet at a known rate"),
        ("router", "speakers.steps:Router", "names the next agent, right at a known rate"),
        ("coder", "speakers.coder:Coder", "plays the roles of a code review at known rates"),
        ("clerk", "tickets:Clerk", "sorts support tickets, right at known rates"),
        ("coach", "speakers.habits:Coach", "proposes habits: helpful, harmful and useless ones"),
        ("judge", "speakers.judge:Judge", "grades work with stated accuracy, noise and biases"),
    ):
        yield "speaker", Component(name, f"{HERE}.{path}", summary, around=_AROUND)
