"""`POST /v1/feedback`: how good an answer was, from those who got it.

    {"id": "chatcmpl-...", "score": 0.5, "comment": "half of it"}
    {"id": "...", "success": true}

It is answered when it is on disk. An unknown id and another tenant's are answered alike.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from orchestrion import StoreError
from orchestrion_serve.conversation import decoded, error_of
from orchestrion_serve.exchange import Service, as_json, refused
from orchestrion_serve.in_use import InUse
from orchestrion_serve.refusals import Refusal, wrong
from orchestrion_serve.requests import Call

PATH = "/v1/feedback"


class Body(Struct, forbid_unknown_fields=True):
    """The body of a request."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    score: Annotated[float, Meta(ge=0, le=1)] | None = None
    success: bool | None = None
    comment: Annotated[str, Meta(max_length=4000)] | None = None


def feedback_endpoint(
    service: Service, uses: Mapping[str, InUse]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the function that answers requests with feedback."""

    async def answer(request: Request) -> Response:
        call = Call(service.log, request.scope, request.receive)
        try:
            body = decoded(await service.admission.admit(call, counts=False), Body)
            if (body.score is None) == (body.success is None):
                raise wrong("send either `score` or `success`", "score")
            score = float(bool(body.success)) if body.score is None else body.score
            # Ids of answers have the protocol's prefix; those in headers have none.
            plain = re.search(r"[0-9a-f]{32}$", body.id)
            name = plain[0] if plain else body.id
            for use in uses.values():
                if (identity := use.find(name, call.tenant)) is not None:
                    call.model = use.model
                    status = await use.feedback(identity, score, body.comment or "")
                    call.finish(200)
                    return as_json({"id": identity, "status": status}, 200, call.headers)
            raise Refusal(404, "unknown_id", "there is no answer with this id", "id")
        except Refusal as refusal:
            return refused(call, refusal, error_of)
        except StoreError:
            failure = Refusal(503, "not_recorded", "the feedback could not be written")
            return refused(call, failure, error_of)

    return answer
