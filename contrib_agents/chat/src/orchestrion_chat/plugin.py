"""What this distribution supplies."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_chat"
_MODEL = {"model": {"use": "kit-model"}}
# A tool is tested through an agent that has it.
_USER = {
    "agents": {
        "a": {"use": "kit-agent"},
        "b": {"use": "kit-agent", "choose": ["x", "y"]},
        "c": {"use": "kit-agent", "final": True},
        "user": {"use": "chat", **_MODEL, "tools": ["tested"]},
    }
}


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    """Tools that agents give to their models."""
    yield Kind("tool", "tools", f"{HERE}.interfaces:Tool")


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    """Agents that ask a model."""
    yield Component(
        "chat",
        f"{HERE}.chat:Chat",
        "asks a language model, in a role, with tools if it has any",
        example=_MODEL,
    )
    yield Component(
        "person",
        f"{HERE}.person:PersonAgent",
        "hands the turn over to a person, who writes it",
        example={"answers": {"*": ["Go on."]}},
    )
    yield Component(
        "router",
        f"{HERE}.router:Router",
        "asks a language model which agent is next, for the policy follow",
        example={**_MODEL, "fallback": "stop"},
    )


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    """Tools."""
    yield (
        "tool",
        Component(
            "calculator",
            f"{HERE}.calculator:Calculator",
            "works out an arithmetic expression",
            around=_USER,
        ),
    )
    yield (
        "tool",
        Component(
            "memory",
            f"{HERE}.memory:Memory",
            "notes that agents keep from one episode to the next",
            example={"file": "notes.json", "training": True},
            around=_USER,
        ),
    )
    yield (
        "tool",
        Component(
            "mcp",
            f"{HERE}.mcp:MCP",
            "tools of an MCP server, started here or reached over HTTP",
            example={
                "command": [sys.executable, "-m", f"{HERE}.demo_server"],
                "allow": ["add"],
            },
            around=_USER,
        ),
    )
