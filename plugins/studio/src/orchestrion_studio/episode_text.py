"""Whole texts and raw records of an episode, as plain text that no browser interprets."""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

from attrs import evolve
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from orchestrion import OrchestrionError, Turn
from orchestrion.runs import RunReader, StoredEpisode, as_data
from orchestrion_studio.contents import pretty
from orchestrion_studio.episode import episode_of, turn_at
from orchestrion_studio.page import NotFoundError, Query

_PARTS: dict[str, Callable[[Turn], str]] = {
    "content": lambda turn: turn.output.content,
    "error": lambda turn: turn.error,
    "data": lambda turn: pretty(as_data(turn.output.data)),
    "program": lambda turn: str(turn.output.data["code"]),
    "metadata": lambda turn: pretty(as_data(turn.output.metadata)),
}


LARGE = 2_000_000
"""A text of this many characters is downloaded: it would make the browser slow."""
SENT = 4
"""Limit of large texts sent at the same time: each stays in memory until it is sent."""
PIECE = 100_000


def whole_text(site: Query) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that gives `name` of an episode `id`: "record", "problem", "call-NAME",
    "content-3" of turn 3, and so on.
    """
    reading, sending = Semaphore(1), Semaphore(SENT)

    def text_for(request: Request) -> str:
        values = {name: [value] for name, value in request.query_params.items()}
        query = evolve(site, run=request.path_params["run"], values=values)
        with query.open(query.run) as reader:
            return _text(query.text("name", "record"), episode_of(query, reader), reader)

    async def answer(request: Request) -> Response:
        try:
            async with reading:
                text = await run_in_threadpool(text_for, request)
        except NotFoundError as error:
            return PlainTextResponse(f"{error}\n", 404)
        except OrchestrionError as error:
            return PlainTextResponse(f"{error}\n", 500)
        if len(text) >= LARGE and sending.locked():
            return PlainTextResponse("other large texts are being sent; try again later\n", 503)
        return _Whole(text, sending)

    return answer


class _Whole(StreamingResponse):
    """Sends a text piece by piece; a large one holds one of the places until all of it is sent."""

    def __init__(self, text: str, places: Semaphore) -> None:
        self._places = places if len(text) >= LARGE else nullcontext()
        kind = "attachment" if len(text) >= LARGE else "inline"
        pieces = (
            text[start : start + PIECE].encode(errors="replace")
            for start in range(0, len(text), PIECE)
        )
        headers = {"content-disposition": f'{kind}; filename="episode.txt"'}
        super().__init__(pieces, 200, headers, "text/plain; charset=utf-8")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._places:
            await super().__call__(scope, receive, send)


def _text(name: str, stored: StoredEpisode, reader: RunReader) -> str:
    kind, _, rest = name.partition("-")
    episode = stored.episode
    if name == "record":
        return pretty({"source": stored.source, "episode": as_data(episode)})
    if name == "problem":
        return episode.problem.text
    if name == "problem-data":
        return pretty(as_data(episode.problem.data))
    if kind == "call":
        for call in reader.calls([rest]):
            return pretty(as_data(call))
    turn = turn_at(episode.trajectory, rest) if kind in _PARTS else None
    if turn is None:
        raise NotFoundError(f"the episode has no {name!r}")
    try:
        return _PARTS[kind](turn)
    except (KeyError, TypeError):
        raise NotFoundError(f"the turn has no {kind}") from None
