"""Whole texts and raw records of an episode, as plain text that no browser interprets."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from orchestrion import OrchestrionError, Turn
from orchestrion.runs import RunReader, StoredEpisode, as_data
from orchestrion_studio.calls import whole_call
from orchestrion_studio.contents import pretty
from orchestrion_studio.episode import episode_of, turn_at
from orchestrion_studio.page import NotFoundError, Query

__all__ = ["whole_text"]

_PARTS: dict[str, Callable[[Turn], str]] = {
    "content": lambda turn: turn.output.content,
    "error": lambda turn: turn.error,
    "data": lambda turn: pretty(as_data(turn.output.data)),
    "program": lambda turn: str(turn.output.data["code"]),
    "metadata": lambda turn: pretty(as_data(turn.output.metadata)),
}


def whole_text(site: Query) -> Callable[[Request], Response]:
    """Return the endpoint that gives `name` of an episode `id`: "record", "problem", "call-NAME",
    "content-3" of turn 3, and so on.
    """

    def answer(request: Request) -> Response:
        query = Query(
            site.folder,
            request.path_params["run"],
            {name: [request.query_params[name]] for name in request.query_params},
            site.readers,
        )
        try:
            with query.open(query.run) as reader:
                text = _text(query.text("name", "record"), episode_of(query, reader), reader)
        except NotFoundError as error:
            return PlainTextResponse(f"{error}\n", 404)
        except OrchestrionError as error:
            return PlainTextResponse(f"{error}\n", 500)
        # Inline only where it is small: what is large would make a browser slow.
        kind = "inline" if len(text) < 2_000_000 else "attachment"
        headers = {"content-disposition": f'{kind}; filename="episode.txt"'}
        return Response(text.encode(errors="replace"), 200, headers, "text/plain; charset=utf-8")

    return answer


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
            return whole_call(call)
    turn = turn_at(episode.trajectory, rest) if kind in _PARTS else None
    if turn is None:
        raise NotFoundError(f"the episode has no {name!r}")
    try:
        return _PARTS[kind](turn)
    except (KeyError, TypeError):
        raise NotFoundError(f"the turn has no {kind}") from None
