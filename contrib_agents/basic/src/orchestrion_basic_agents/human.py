"""A person as an agent."""

from __future__ import annotations

import sys
import threading
from typing import Annotated

from attrs import frozen

from orchestrion import Agent, Calls, Key, Meta, Output, Usage, View, no_calls
from orchestrion_basic_agents.reading import last_text

__all__ = ["Human"]

# One terminal, one question at a time, however many episodes run.
_TERMINAL = threading.Lock()


@frozen
class Human(Agent):
    """Shows the latest text on the terminal and makes the typed line the turn.

    Args:
        prompt: what the person is asked.
        stop: a line that ends the episode.
        cost: what a turn costs.
    """

    prompt: str = "your turn"
    stop: str = "/stop"
    cost: Annotated[float, Meta(ge=0)] = 1.0

    ceiling = no_calls

    def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Ask; an end of input fails the turn."""
        with _TERMINAL:
            print(f"\n{last_text(view)}\n[{view.agent}] {self.prompt}: ", end="", file=sys.stderr)
            sys.stderr.flush()
            line = sys.stdin.readline()
        if not line:
            raise RuntimeError("the terminal gave no more input")
        text = line.rstrip("\n")
        return Output(text, usage=Usage(cost=self.cost), final=text == self.stop)
