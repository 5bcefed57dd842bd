"""Before a run begins: is the key good, and is there such a model? Nothing is spent on it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import msgspec

from orchestrion import CallError, UsageError, did_you_mean
from orchestrion_llm import faults
from orchestrion_llm.client import Client
from orchestrion_llm.faults import Place

__all__ = ["check"]


class _Entry(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Entry]


async def check(
    client: Client,
    models: str,
    place: Place,
    base_url: str,
    note: Callable[[str, str], None],
) -> None:
    """Try key and model by free requests.

    Args:
        client: asks.
        models: the path of the list of models.
        place: whom messages speak of.
        base_url: the address that is tried.
        note: told what could not be found out.

    Raises:
        UsageError: the key is refused, the model is unknown, or nobody answers.
    """
    failure = ""
    try:
        found = await client.look(f"{models}/{quote(place.model, safe='')}")
        if found.status_code == 404:
            listed = await client.look(models)
            if listed.status_code != 404:
                found = listed
            names = _names(listed.content) if listed.status_code == 200 else None
            if names is not None and place.model not in names:
                close = did_you_mean(place.model, names)
                failure = f"{place.service}: there is no model {place.model!r} there{close}"
    except CallError as error:
        failure = str(error)
    if failure:
        raise UsageError(f"{place.path}: {failure}")
    if found.status_code == 200:
        return
    fault = faults.of_answer(place, found.status_code, found.headers, found.content)
    if found.status_code in (401, 403) or 300 <= found.status_code < 400 or fault.fault == "quota":
        raise UsageError(f"{place.path}: {fault}{_advice(place, base_url, found.status_code)}")
    note("preflight", f"key and model could not be tried: {fault}")


def _names(body: bytes) -> list[str] | None:
    try:
        return [one.id for one in msgspec.json.decode(body, type=_List).data]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _advice(place: Place, base_url: str, status: int) -> str:
    if status not in (401, 403):
        return ""
    if place.key_env:
        return f"; put a valid key for {base_url} into {place.key_env}"
    return f"; name the environment variable with a key for {base_url} as {place.path}.key_env"
