"""Tell the user's interrupt from a KeyboardInterrupt that a plugin raised."""

from __future__ import annotations


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed: what the command line raises in place of the plain exception."""

    exit_code = 130
    expected = False
    """Whether Ctrl-C raises this one here, so that a plain KeyboardInterrupt is a plugin's."""


class Terminated(Interrupted):
    """A SIGTERM came."""

    exit_code = 143


def from_outside(error: BaseException) -> bool:
    """Return whether an error is the user's interrupt, or a cancellation of the task.

    If a plugin raises one of these itself, it has failed, as with any other exception.
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
