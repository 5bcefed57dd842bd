"""Whose interrupt it is: the user's, or a KeyboardInterrupt that a plugin raised."""

from __future__ import annotations


class Interrupted(KeyboardInterrupt):
    """Somebody pressed Ctrl-C: what the command line raises in place of the plain exception."""

    exit_code = 130
    expected = False
    """Whether Ctrl-C raises this one here, so that a plain KeyboardInterrupt is a plugin's."""


class Terminated(Interrupted):
    """A SIGTERM came."""

    exit_code = 143


def from_outside(error: BaseException) -> bool:
    """Whether an error of plugin code is the user's interrupt, or a cancellation of its task.

    Plugins may raise both out of nothing; then they have failed like with any other exception.
    """
    if isinstance(error, KeyboardInterrupt):
        return isinstance(error, Interrupted) or not Interrupted.expected
    import asyncio  # which listing commands and plugins does without

    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0
