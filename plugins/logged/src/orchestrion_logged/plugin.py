"""What this distribution supplies; its commands are `logs` and `ope`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrion import Component, hookimpl

HERE = "orchestrion_logged"
SAMPLE = Path(__file__).with_name("sample.jsonl")
"""A log of the team that the conformance checks put together."""


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "from-logs",
        f"{HERE}.from_logs:FromLogs",
        "learns from logged decisions what each choice is worth, and asks nobody",
        example={"log": str(SAMPLE), "least": 4},
        around={"policy": {"use": "values"}},
    )
