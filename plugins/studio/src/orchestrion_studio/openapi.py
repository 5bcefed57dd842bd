"""The description of the JSON below `/api`, as OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orchestrion_studio.page import Page

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
