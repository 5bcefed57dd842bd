"""Names the component of this distribution. Importing this module loads neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

_TINY = {
    "use": "hf",
    "architecture": {"layers": 1, "width": 8, "heads": 1},
    "alphabet": "".join(map(chr, range(32, 127))) + "\n",
    "max_tokens": 2,
}


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "marl",
        "orchestrion_marl.marl:Marl",
        "trains the language models behind a team by the reward of the whole team",
        example={"models": ["tiny"], "iterations": 1, "problems": 1, "group": 2},
        around={
            "models": {"tiny": _TINY},
            "agents": {
                "a": {"use": "kit-agent", "model": "tiny"},
                "b": {"use": "kit-agent", "choose": ["x", "y"]},
                "c": {"use": "kit-agent", "final": True},
            },
        },
    )
