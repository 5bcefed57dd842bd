"""What can go wrong with a sandbox itself."""

from __future__ import annotations

from orchestrion import RunError

__all__ = ["ConversationEnded", "SandboxError"]


class SandboxError(RunError):
    """The sandbox cannot work here, or broke: says nothing about any program."""


class ConversationEnded(Exception):
    """The run ended, said something out of turn, or did not answer in time."""
