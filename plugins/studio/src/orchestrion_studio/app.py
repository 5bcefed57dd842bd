"""The application: every page as HTML and as JSON, live news, and the studio's own files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attrs import evolve
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from orchestrion import OrchestrionError, UsageError
from orchestrion_studio import compare, episode, episodes, lessons, run, runs
from orchestrion_studio.episode_text import whole_text
from orchestrion_studio.live import live_news
from orchestrion_studio.page import HERE, Data, NotFoundError, Page, Query, render
from orchestrion_studio.security import Secured

PAGES: tuple[Page, ...] = tuple(
    page for theme in (runs, run, episodes, episode, lessons, compare) for page in theme.PAGES
)


def create_app(folder: Path, *, token: str | None) -> Starlette:
    """Return the application that shows the runs below a folder.

    Args:
        folder: below which all runs are, or a run; read, never written to.
        token: who has it is let in; None lets in whoever comes by a loopback address.
    """
    folder = folder.absolute()
    site = Query(folder.parent if (folder / "run.db").is_file() else folder)
    routes: list[BaseRoute] = [
        Route("/", lambda request: RedirectResponse("/runs")),
        Route("/api", lambda request: RedirectResponse("/api/openapi.json")),
        Route("/api/openapi.json", lambda request: JSONResponse(openapi_document(PAGES))),
        Route("/live/{run:path}", live_news(site)),
        Route("/text/{run:path}", whole_text(site)),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    # A name of a run may have slashes, so that the longest path comes first.
    for page in sorted(PAGES, key=lambda page: -len(page.path)):
        path = page.path.replace("{run}", "{run:path}")
        routes.append(Route(f"/api{path}", _endpoint(page, site, as_json=True)))
        routes.append(Route(path, _endpoint(page, site, as_json=False)))
    layers = [Middleware(Secured, token=token), Middleware(GZipMiddleware, minimum_size=2000)]
    return Starlette(routes=routes, middleware=layers, exception_handlers={404: _no_such_page})


def _endpoint(page: Page, site: Query, as_json: bool) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:  # in a thread: reading a run blocks
        pairs = request.query_params
        values = {name: pairs.getlist(name) for name in pairs}
        query = evolve(site, run=request.path_params.get("run", ""), values=values)
        try:
            data = _data(page, query)
            if as_json:
                return JSONResponse(data)
            return HTMLResponse(render(page, data, query=query, static=False))
        except NotFoundError as error:
            return _error(request, 404, str(error))
        except UsageError as error:
            return _error(request, 400, str(error))
        except OrchestrionError as error:
            return _error(request, 500, str(error))
        # What a damaged run holds may break any of the code that reads it.
        except Exception as error:
            text = f"the page could not be made: {type(error).__name__}: {error}"
            return _error(request, 500, text)

    return answer


def _data(page: Page, query: Query) -> Data:
    if "{run}" not in page.path:
        return page.plain(query, None)
    with query.open(query.run) as reader:
        return page.plain(query, reader)


def _error(request: Request, status: int, text: str) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": text}, status)
    page = Page("", "error.html", lambda query, reader: {}, "An error")
    data = {"status": status, "text": text}
    return HTMLResponse(render(page, data, query=Query(Path()), static=False), status)


async def _no_such_page(request: Request, error: Exception) -> Response:
    return _error(request, 404, f"there is no page {request.url.path}")


# ------------------------------------------------------------------ as OpenAPI

TEXT = {"type": "string"}
ERROR = {"application/json": {"schema": {"type": "object", "properties": {"error": TEXT}}}}


def openapi_document(pages: Iterable[Page]) -> dict[str, Any]:
    """Return the description of all pages' data."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Orchestrion studio",
            "version": "1",
            "description": "What the pages show, as JSON. Read-only. Times are Unix time in "
            "seconds; money is in US dollars; null stands for what is not known.",
        },
        "paths": {f"/api{page.path}": {"get": _operation(page)} for page in pages},
    }


def _operation(page: Page) -> dict[str, Any]:
    path = [_parameter("run", "folder of the run; slashes stand as they are", "path")]
    own = [_parameter(name, text, "query") for name, text in page.parameters.items()]
    return {
        "summary": page.title,
        "parameters": [*(path if "{run}" in page.path else []), *own],
        "responses": {
            "200": {
                "description": "the data",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            "400": {"description": "a parameter is wrong", "content": ERROR},
            "404": {"description": "no such run or episode", "content": ERROR},
            "500": {"description": "the run cannot be read", "content": ERROR},
        },
    }


def _parameter(name: str, text: str, place: str) -> dict[str, Any]:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, "description": text, "schema": TEXT, **required}
