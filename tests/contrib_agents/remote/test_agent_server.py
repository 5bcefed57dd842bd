"""`orchestrion agent-server` in processes of its own: killed, drained, and asked by a training."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import grpc
import httpx2
import pytest
from attrs import frozen
from orchestrion_remote.http import Http
from orchestrion_remote.rpc import Grpc

from orchestrion import Key, Problem
from orchestrion.config import from_data
from orchestrion.runs import RunReader
from tests import warm
from tests.contrib_agents.remote.support import HERE, checked, config, team, written
from tests.end_to_end.support import called
from tests.plugins.evolution.support import result, train
from tests.workspace import ROOT


@frozen
class Process:
    """A server that runs."""

    command: warm.Command
    folder: Path
    grpc_port: str
    http_port: str

    def agent(self, protocol: str, *others: Process, name: str = "far") -> Grpc | Http:
        """Return the component that asks for an agent of this and of other servers."""
        servers = (self, *others)
        if protocol == "grpc":
            addresses = [f"127.0.0.1:{one.grpc_port}" for one in servers]
            return Grpc(addresses=addresses, agent=name)
        return Http(urls=[f"http://127.0.0.1:{one.http_port}/agents/{name}" for one in servers])


@contextmanager
def process(folder: Path, agents: Mapping[str, Any], *words: str) -> Iterator[Process]:
    """Serve agents by the command; kill it at the end, if it still runs."""
    path = written(folder, agents)
    words = ("agent-server", path, "--port", "0", "--http-port", "0", *words)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with warm.Command(words, ROOT, environment, stderr=PIPE) as command:
        assert command.stderr is not None
        try:
            line = next((line for line in command.stderr if line.startswith("serving ")), "")
            assert line, command.stderr.read()
            yield Process(command, folder, *re.findall(r"127\.0\.0\.1:(\d+)", line))
        finally:
            command.kill()


def piped(folder: Path) -> Mapping[str, Any]:
    """Return an agent that waits at pipes in a folder, which is made."""
    folder.mkdir()
    for name in ("came", "go"):
        os.mkfifo(folder / name)
    return {"far": {"use": f"{HERE}:Piped", "folder": str(folder)}}


async def first_to_come(servers: list[Process]) -> Process:
    """Return the server whose agent has begun its work."""
    reads = [asyncio.to_thread((one.folder / "came").read_text) for one in servers]
    tasks = [asyncio.create_task(read) for read in reads]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    came = servers[tasks.index(done.pop())]
    for one in servers:
        if one is not came:  # nobody comes there yet: let the thread go
            os.close(os.open(one.folder / "came", os.O_WRONLY))
    await asyncio.wait(tasks)
    return came


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_server_that_is_killed_in_mid_call_loses_no_request(
    tmp_path: Path, protocol: str
) -> None:
    async def main(servers: list[Process]) -> None:
        async with team({"far": servers[0].agent(protocol, *servers[1:])}) as engine:
            work = asyncio.create_task(engine.run("e", Problem("p", "x"), Key(5)))
            killed = await first_to_come(servers)
            killed.command.kill()
            [other] = [one for one in servers if one is not killed]
            assert await asyncio.to_thread((other.folder / "came").read_text) == other.folder.name
            await asyncio.to_thread((other.folder / "go").write_text, "done")
            [turn] = (await work).turns
            assert turn.output.content == "done", turn.error
            assert engine.calls.retried == 1

    with ExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            agents = piped(tmp_path / name)
            servers.append(stack.enter_context(process(tmp_path / name, agents)))
        asyncio.run(main(servers))


def test_sigterm_lets_a_turn_finish_and_admits_no_other(tmp_path: Path) -> None:
    async def main(server: Process) -> None:
        async with team({"far": server.agent("grpc")}) as engine:
            work = asyncio.create_task(engine.run("e", Problem("p", "x"), Key(5)))
            await first_to_come([server])
            server.command.send_signal(signal.SIGTERM)
            stderr = server.command.stderr
            assert stderr is not None
            assert await asyncio.to_thread(stderr.readline) == "stopping: no new requests\n"
            async with httpx2.AsyncClient() as client:
                refused = await client.get(f"http://127.0.0.1:{server.http_port}/health")
            assert refused.status_code == 503
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
                check = channel.unary_unary("/grpc.health.v1.Health/Check")
                assert await check(b"") == b"\x08\x02"
            await asyncio.to_thread((server.folder / "go").write_text, "done")
            [turn] = (await work).turns
            assert turn.output.content == "done", turn.error
        assert await asyncio.to_thread(server.command.wait) == 0

    folder = tmp_path / "a"
    agents = piped(folder)
    with process(folder, agents) as server:
        asyncio.run(main(server))


@pytest.fixture(scope="module")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server with three agents."""
    agents = {"far": "Draws", "near": "Adds", "fails": "Fails"}
    with process(tmp_path_factory.mktemp("drawing"), agents) as server:
        yield server


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_contract_of_agents_holds_over_the_network(
    drawing: Process, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = drawing.agent(protocol)
    example = (
        {"addresses": list(component.addresses), "agent": "far"}
        if isinstance(component, Grpc)
        else {"urls": list(component.urls)}
    )
    path = f"{type(component).__module__}:{type(component).__name__}"
    counts = checked(path, example, monkeypatch)
    assert counts["acts on any view"] == 4
    assert counts["acts alike for equal keys"] == 4


def test_a_training_over_two_agents_elsewhere_resumes_to_the_same_bytes(
    drawing: Process, tmp_path: Path
) -> None:
    urls = [f"http://127.0.0.1:{drawing.http_port}/agents/near"]
    address = [f"127.0.0.1:{drawing.grpc_port}"]
    given = from_data(
        config(
            {
                "adds": {"use": "http", "urls": urls},
                "draws": {"use": "grpc", "addresses": address, "agent": "far"},
            },
            policy={"use": "values"},
            reward={"use": "outcome-minus-cost", "measure": "calls", "cost_weight": 0.01},
            trainer={"use": "auto", "episodes": 24},
            limits={"turns": 2},
        )
    )
    whole = result(train(given, tmp_path / "whole"))
    assert len(whole["metrics"]) > 2
    train(given, tmp_path / "cut", until=1)
    assert result(train(given, tmp_path / "cut")) == whole
    with RunReader(tmp_path / "whole") as run:
        agents = [turn.agent for one in run.episodes() for turn in one.episode.turns]
    assert {*agents} == {"adds", "draws"}
    # A replay asks nobody: the servers could be gone.
    drawing.command.send_signal(signal.SIGSTOP)
    try:
        done = called(["replay", str(tmp_path / "whole")], tmp_path, {})
    finally:
        drawing.command.send_signal(signal.SIGCONT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--agent", "nobody"], "--agent nobody: the team has no such agent; it has far"),
        (["--host", "0.0.0.0"], "0.0.0.0: other machines could reach it"),
        (["--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY is not set"),
        (["--key-env", "ODD_KEY"], "ODD_KEY is not a key: it has unprintable characters"),
        (["--client-ca", "served.yaml"], "certificates of callers need one of the server"),
        (["--tls-cert", "served.yaml"], "name both or none"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path: Path, words: list[str], message: str) -> None:
    written(tmp_path, {"far": "Draws"})
    odd = {"ODD_KEY": "two\nlines"}
    done = called(["agent-server", "served.yaml", "--port", "0", *words], tmp_path, odd)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
