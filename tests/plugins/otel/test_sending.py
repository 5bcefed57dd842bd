"""Traces on the wire: live and exported, and servers that do not answer."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from orchestrion_otel import listener as listening
from orchestrion_otel.listener import Listener

from orchestrion import StoreError
from orchestrion.runs import RunReader
from tests.end_to_end.support import here as orchestrion
from tests.plugins.otel.support import attributes, received
from tests.service import ModelService, hang, reply

KEY = "otlp-key-77aa5f1e0c"
CONFIG = """
seed: 7
task: {use: tickets, test: 2}
speakers:
  clerk: {use: clerk, skill: 0.9}
models:
  main: {use: offline, speaker: clerk, price: {input: 1.0, output: 2.0}}
agents:
  sorter: {use: chat, model: main, instructions: Sort the ticket.}
  checker: {use: chat, model: main, instructions: Check the answer.}
policy: {use: sequence, steps: [sorter, checker]}
limits: {turns: 3}
traces:
  use: otlp
  endpoint: ENDPOINT/v1/traces
  headers: {x-key: "${env:OTLP_KEY}"}
"""


def test_a_run_is_traced_as_it_goes_and_exports_the_same(tmp_path: Path) -> None:
    with ModelService(reply(200, b"")) as server:
        (tmp_path / "desk.yaml").write_text(CONFIG.replace("ENDPOINT", server.url))
        done = orchestrion("train", "desk.yaml", cwd=tmp_path, OTLP_KEY=KEY)
        assert "traces" not in done.stderr
        live = received(server)
        assert {seen.path for seen in server.seen} == {"/v1/traces"}
        assert {seen.headers["x-key"] for seen in server.seen} == {KEY}
        server.seen.clear()
        header = ("--header", "a=b=c", "--endpoint", f"{server.url}/v1/traces")
        sent = orchestrion("otel", "desk-1", *header, "--json", cwd=tmp_path)
        assert json.loads(sent.stdout)["spans"] == len(live)
        assert {seen.headers["a"] for seen in server.seen} == {"b=c"}
        exported = received(server)

    def plain(spans: list[tuple[Any, Any]]) -> list[bytes]:
        return sorted(span.SerializeToString(deterministic=True) for span, _ in spans)

    assert plain(exported) == plain(live)
    names = [span.name for span, _ in live]
    assert names.count("invoke_workflow desk") == 2
    assert names.count("invoke_agent sorter") == names.count("invoke_agent checker") == 2
    assert sum(name.startswith("chat clerk") for name in names) == 4

    chats = [attributes(span) for span, _ in live if span.name.startswith("chat")]
    with RunReader(tmp_path / "runs/desk-1") as run:
        spend = run.spend()
    assert sum(chat["gen_ai.usage.input_tokens"] for chat in chats) == spend.input_tokens
    assert sum(chat["gen_ai.usage.output_tokens"] for chat in chats) == spend.output_tokens
    assert sum(chat["gen_ai.usage.cost"] for chat in chats) == pytest.approx(spend.usd)
    assert not any("messages" in name for chat in chats for name in chat)
    resource = attributes(live[0][1].resource)
    assert resource["orchestrion.run.id"] == "desk-1"
    assert KEY.encode() not in b"".join(
        path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()
    )


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ('"a b": x', "traces: headers: 'a b' is no name of a header"),
        ('x-key: "x\\ny"', "traces: headers.x-key: a header cannot carry this value"),
        ('x-key: " x"', "traces: headers.x-key: a header cannot carry this value"),
    ],
)
def test_headers_that_cannot_be_sent_are_errors_of_the_config(
    tmp_path: Path, header: str, problem: str
) -> None:
    config = CONFIG.replace('x-key: "${env:OTLP_KEY}"', header).replace("ENDPOINT", "http://a")
    (tmp_path / "desk.yaml").write_text(config)
    done = orchestrion("validate", "desk.yaml", cwd=tmp_path, code=2)
    assert f"desk.yaml:13: {problem}" in done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with episodes that cost nothing to run."""
    (tmp_path / "c.yaml").write_text(
        "seed: 1\ntask: {use: relay, test: 3}\nagents: {a: {use: echo}}\n"
        "policy: {use: sequence, steps: [a]}\nlimits: {turns: 2}\n"
    )
    orchestrion("train", "c.yaml", cwd=tmp_path)
    return tmp_path / "runs/c-1"


def followed(folder: Path, listener: Listener, between: Any = None) -> list[str]:
    """What a listener notes of a run whose episodes it is handed."""
    notes: list[str] = []
    with RunReader(folder) as run:
        episodes = [stored.episode for stored in run.episodes()]
    assert episodes
    listener.orchestrion_run_started(folder, notes.append)
    for episode in episodes:
        for turn in episode.turns:
            listener.orchestrion_turn_finished(episode.id, turn)
        listener.orchestrion_episode_finished(episode)
    if between is not None:
        between()
    listener.orchestrion_iteration_finished()
    wait = listener.orchestrion_run_finished()
    assert wait is not None
    wait()
    return notes


def test_a_server_that_never_answers_is_said_once_and_holds_nothing_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "PATIENCE", 0.01)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0.2")
    with ModelService(hang()) as server:
        listener = Listener(f"{server.url}/v1/traces")
        [note] = followed(folder, listener)
    assert listener._reader is not None
    with pytest.raises(StoreError):  # closed, or files of the database would be left behind
        listener._reader.iterations()
    assert "was not done when the run ended" in note
    assert f"orchestrion otel {folder}" in note
    assert listener._thread is not None
    listener._thread.join()  # the server is gone, and nobody is left behind
    assert not caplog.records


def test_a_server_that_refuses_is_said_once_with_its_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ModelService(reply(403, b"no")) as server:
        [note] = followed(folder, Listener(f"{server.url}/v1/traces"))
        assert "sending traces failed" in note
        assert "403" in note
        url = f"{server.url}/v1/traces"
        done = orchestrion("otel", str(folder), "--endpoint", url, cwd=folder, code=1)
    assert "403" in done.stderr
    assert "0 episodes were sent before" in done.stderr
    assert not caplog.records
    done = orchestrion("otel", str(folder), "--endpoint", "localhost", cwd=folder, code=2)
    assert "write one that begins with http://" in done.stderr


def test_a_redirect_is_no_delivery(folder: Path) -> None:
    with ModelService(reply(307, b"", location="http://elsewhere.invalid/v1/traces")) as server:
        url = f"{server.url}/v1/traces"
        [note] = followed(folder, Listener(url))
        done = orchestrion("otel", str(folder), "--endpoint", url, cwd=folder, code=1)
    assert "sending traces failed" in note
    assert "redirects to http://elsewhere.invalid/v1/traces" in note
    assert "0 episodes were sent before" in done.stderr


def test_episodes_that_come_too_fast_are_left_out_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "WAITING", 1)
    go, exporter = threading.Event(), InMemorySpanExporter()

    class Slow(Listener):
        def _work(self) -> None:
            go.wait()
            super()._work()

    [note] = followed(folder, Slow(exporter=exporter), go.set)
    assert "too slow" in note
    spans = exporter.get_finished_spans()
    assert len({span.context.trace_id for span in spans if span.context}) == 1


def test_spans_of_a_run_that_makes_no_calls_end_when_that_was_noticed(folder: Path) -> None:
    exporter = InMemorySpanExporter()
    assert followed(folder, Listener(exporter=exporter)) == []
    spans = exporter.get_finished_spans()
    names = {span.name for span in spans}
    assert names == {"invoke_workflow c", "plan sequence", "invoke_agent a"}
    for span in spans:
        assert 0 < (span.start_time or 0) <= (span.end_time or 0)
