"""Errors of the sandbox itself."""

from __future__ import annotations

from orchestrion import RunError


class SandboxError(RunError):
    """The sandbox cannot work here, or failed; this says nothing about any program."""


class ConversationEnded(Exception):
    """The run ended, sent too much, or did not answer in time."""
