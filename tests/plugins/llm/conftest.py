"""Every test that names `api` runs for all three; `watched` runs it in one piece and streamed."""

from __future__ import annotations

import pytest

from tests.plugins.llm.apis import APIS, Api


@pytest.fixture(params=APIS, ids=lambda api: api.name)
def api(request: pytest.FixtureRequest) -> Api:
    found: Api = request.param
    return found


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def watched(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
