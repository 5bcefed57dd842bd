"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_offline"
_USER = {"models": {"m": {"use": "offline", "speaker": "tested"}}}
_AROUND = {
    **_USER,
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
        "a simulated speaker, asked over real HTTP through the SDK of OpenAI or Anthropic",
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
        "support tickets to sort: made up, or a file of your own",
        example={"test": 4},
    )


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    for name, path, summary in (
        ("echo", "plain:Echo", "says what the last message says"),
        ("scripted", "plain:Scripted", "says its lines in order; they may call tools"),
        ("cast", "cast:Cast", "several speakers behind one model, told apart by their role"),
        ("solver", "steps:Solver", "writes the next line of a worksheet, right at a known rate"),
        ("reviewer", "steps:Reviewer", "says which line of a worksheet is wrong, at a known rate"),
        ("coder", "coder:Coder", "plays the roles of a code review at known rates"),
        ("clerk", "clerk:Clerk", "sorts support tickets, right at known rates"),
        ("coach", "coach:Coach", "proposes habits from a pool of good, bad and useless ones"),
        ("judge", "judge:Judge", "grades a transcript, with stated accuracy, noise and biases"),
        ("router", "router:Router", "names the next agent, right at a known rate"),
    ):
        yield "speaker", Component(name, f"{HERE}.speakers.{path}", summary, around=_AROUND)
