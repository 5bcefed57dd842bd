"""A served run whose config has `traces` sends one of each request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.support import here
from tests.plugins.otel.support import attributes, received
from tests.plugins.otel.test_sending import CONFIG, KEY
from tests.plugins.serve.support import served
from tests.plugins.serve.users import Client
from tests.service import ModelService, hang, reply

TICKET = "Hello, The courier left it at the wrong door."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    (folder / "desk.yaml").write_text(CONFIG[: CONFIG.index("traces:")])
    here("train", "desk.yaml", cwd=folder)
    return folder


def asked(folder: Path, server: ModelService, requests: int) -> list[str]:
    """Serve the run with traces to a server, ask it, and return the ids of the answers."""
    config = folder / "runs/desk-1/config.yaml"
    traces = CONFIG[CONFIG.index("traces:") :].replace("ENDPOINT", server.url)
    plain = config.read_text()
    try:
        config.write_text(f"{plain}\n{traces}")
        with served(str(config.parent)) as running:
            client = Client(running.address)
            ids = [client.ask(TICKET, "desk-1")[0].rpartition("-")[2] for _ in range(requests)]
            client.close()
    finally:
        config.write_text(plain)
    return ids


def test_each_request_is_a_trace_with_its_turns_and_tokens(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTLP_KEY", KEY)
    with ModelService(reply(200, b"")) as server:
        ids = asked(folder, server, 2)
        spans = [span for span, _ in received(server)]
    roots = {
        attributes(span)["orchestrion.episode"]: span for span in spans if not span.parent_span_id
    }
    assert roots.keys() == set(ids)
    assert len({root.trace_id for root in roots.values()}) == 2
    turns = [span for span in spans if span.name.startswith("invoke_agent")]
    assert sorted(span.name for span in turns) == 2 * ["invoke_agent checker"] + 2 * [
        "invoke_agent sorter"
    ]
    assert all(attributes(span)["gen_ai.usage.input_tokens"] > 0 for span in turns)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert TICKET.encode() not in b"".join(seen.body for seen in server.seen)


def test_a_server_of_traces_that_hangs_holds_no_request_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTLP_KEY", KEY)
    monkeypatch.setattr("orchestrion_otel.listener.PATIENCE", 0.1)
    with ModelService(hang()) as server:
        assert len(asked(folder, server, 3)) == 3
    assert "sending traces was not done" in capsys.readouterr().err
