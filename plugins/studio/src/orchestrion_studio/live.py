"""Server-sent events: says that a run has news, as long as somebody looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from orchestrion import OrchestrionError
from orchestrion.runs import RunReader
from orchestrion_studio.page import Query

SECONDS, MOST = 2.0, 10.0
"""Limits of the seconds between two looks at a run's file."""
SHARE = 0.01
"""Between those limits, the seconds are this share of the run's age."""
SILENCE = 15.0
"""Seconds without news after which a comment is sent, to notice a client that has left."""


def live_news(site: Query) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that sends an event `changed` whenever a run was written to.

    Its data is the run's status. A run that has ended sends `ended`, and the browser closes.
    """

    async def answer(request: Request) -> Response:
        try:
            directory = site.directory(request.path_params["run"])
            # Of its own: whether another connection wrote is known to each connection.
            reader = await run_in_threadpool(RunReader, directory)
        except OrchestrionError as error:
            return PlainTextResponse(f"{error}\n", 404)
        return StreamingResponse(_news(reader), media_type="text/event-stream")

    return answer


async def _news(reader: RunReader) -> AsyncIterator[str]:
    known, silent = await run_in_threadpool(_state, reader), 0.0
    yield f"retry: 3000\nevent: status\ndata: {known[1]}\n\n"
    try:
        while known[1] == "running":
            pause = min(max(SECONDS, SHARE * (time.time() - reader.created)), MOST)
            await asyncio.sleep(pause)
            state = await run_in_threadpool(_state, reader)
            if state != known:
                known, silent = state, 0.0
                yield f"event: changed\ndata: {known[1]}\n\n"
            elif (silent := silent + pause) >= SILENCE:
                silent = 0.0
                yield ": still here\n\n"
        yield f"event: ended\ndata: {known[1]}\n\n"
    finally:
        reader.close()


def _state(reader: RunReader) -> tuple[int, str]:
    return reader.data_version(), reader.status
