"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_jsonl"
_WORDS = "none single pair triple four five six seven eight nine ten eleven".split()
_TEAM = {"a": {"use": "kit-agent"}, "b": {"use": "kit-agent", "choose": ["x", "y"]}}


@hookimpl
def orchestrion_tasks() -> Iterator[Component]:
    yield Component(
        "jsonl",
        f"{HERE}.task:Jsonl",
        "your own questions and answers from JSON lines or CSV, with a check",
        example={"rows": [{"question": f"{n}?", "answer": w} for n, w in enumerate(_WORDS)]},
        around={"agents": _TEAM},
    )
