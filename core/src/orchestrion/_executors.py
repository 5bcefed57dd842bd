"""Where the episodes of a run are executed: the interface of the kind `executor`.

An executor starts workers, and gets messages to them and back; that is all. Core runs `work` in
each worker, and decides in the process that leads the run which episode goes where. So an executor
knows nothing of episodes, budgets and calls, and all executors give the same run.
"""

from __future__ import annotations

from typing import Protocol


class LinkLost(Exception):
    """The other end of a link is gone; the message says why, e.g. "killed by signal 9"."""


class Link(Protocol):
    """One end of a connection between the process that leads a run and a worker.

    Messages arrive whole, once and in order, as long as both ends are there.
    """

    def send(self, message: bytes) -> None:
        """Send a message; does not wait, and does not fail if the other end is gone."""
        ...

    async def receive(self) -> bytes:
        """Return the next message.

        Raises:
            LinkLost: the other end is gone, and all its messages were received.
        """
        ...

    async def close(self) -> None:
        """Close the link; at the leading end, end the worker too, if it has not ended yet."""
        ...


class Executor(Protocol):
    """Runs the episodes of a run in workers: `run.executor` of a config.

    It needs no state: a worker that is gone is replaced, and what ran there runs again.
    """

    @property
    def workers(self) -> int:
        """Return how many workers run at once."""
        ...

    async def start(self) -> Link:
        """Start a worker, which calls `work` with its own end of a link; return the other end.

        Raises:
            LinkLost: it cannot be started.
        """
        ...


async def work(link: Link) -> None:
    """Run episodes for the process at the other end of a link, until that closes it or is gone."""
    from orchestrion._engine.worker import Worker

    await Worker(link).serve()
