"""`orchestrion serve` in a process of its own: keys, hosts, and SIGTERM under way."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from orchestrion_serve import Keys
from orchestrion_serve.command import serve
from orchestrion_serve.requests import is_here

from orchestrion import UsageError, is_local
from tests.end_to_end.support import here
from tests.plugins.serve.support import WAIT, config, process

AGENT = """
import pathlib
import time
from attrs import frozen
from orchestrion import Agent, Output

@frozen
class Pipe(Agent):
    folder: str

    def act(self, view, key, calls):
        with open(pathlib.Path(self.folder, "came"), "w") as came:
            came.write("here")
        with open(pathlib.Path(self.folder, "go")) as go:
            return Output(go.read())
"""


def status(port: int, method: str, path: str, body: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    try:
        connection.request(method, path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


BODY = json.dumps({"model": "team", "messages": [{"role": "user", "content": "hi"}]})


def test_sigterm_lets_a_request_in_flight_finish_and_admits_no_other(tmp_path: Path) -> None:
    (tmp_path / "piped.py").write_text(AGENT)
    for name in ("came", "go"):
        os.mkfifo(tmp_path / name)
    agent = {"use": "piped:Pipe", "folder": str(tmp_path)}
    team = config(tmp_path, "team", {"only": agent})
    answers: list[tuple[int, str]] = []
    with process(tmp_path, team) as (started, port):
        assert started.stdout is not None
        assert started.stderr is not None
        assert status(port, "GET", "/readyz")[0] == 200
        path = "/v1/chat/completions"
        asking = threading.Thread(target=lambda: answers.append(status(port, "POST", path, BODY)))
        asking.start()
        assert (tmp_path / "came").read_text() == "here"  # waits for the agent
        started.send_signal(signal.SIGTERM)
        assert "stopping" in next(line for line in started.stderr if "stopping" in line)
        assert status(port, "GET", "/healthz")[0] == 200
        assert status(port, "GET", "/readyz")[0] == 503
        assert status(port, "POST", path, BODY)[0] == 503
        (tmp_path / "go").write_text("finished")
        asking.join(WAIT)
        assert started.wait() == 0
        lines = [json.loads(line) for line in started.stdout]
    [(code, text)] = answers
    assert code == 200
    assert json.loads(text)["choices"][0]["message"]["content"] == "finished"
    assert sorted(line["status"] for line in lines) == [200, 503]


def test_what_does_not_finish_within_drain_is_cancelled(tmp_path: Path) -> None:
    (tmp_path / "piped.py").write_text(
        "import asyncio\nfrom attrs import frozen\nfrom orchestrion import Agent\n\n"
        "@frozen\nclass Never(Agent):\n    folder: str\n\n"
        "    async def act(self, view, key, calls):\n"
        "        print('at work', flush=True)\n        await asyncio.Event().wait()\n"
    )
    agent = {"use": "piped:Never", "folder": "."}
    team = config(tmp_path, "team", {"only": agent})
    answers: list[int] = []
    path = "/v1/chat/completions"
    with process(tmp_path, team, "--drain", "0.1") as (started, port):
        assert started.stderr is not None
        ask = lambda: answers.append(status(port, "POST", path, BODY)[0])  # noqa: E731
        asking = threading.Thread(target=ask)
        asking.start()
        assert next(line for line in started.stderr if "at work" in line)
        started.send_signal(signal.SIGTERM)
        asking.join(WAIT)
        assert started.wait() == 0
    assert answers == [503]


def test_sighup_opens_new_versions_while_old_ones_finish_their_requests(tmp_path: Path) -> None:
    (tmp_path / "piped.py").write_text(AGENT)
    for name in ("came", "go"):
        os.mkfifo(tmp_path / name)
    says = "tests.plugins.serve.support:Says"
    agent = {"use": "piped:Pipe", "folder": str(tmp_path)}
    team = config(tmp_path, "team", {"only": agent})
    path = "/v1/chat/completions"
    answers: list[tuple[int, str]] = []

    def ask() -> None:
        answers.append(status(port, "POST", path, BODY))

    with process(tmp_path, team) as (started, port):
        assert started.stderr is not None

        def reload(expected: str) -> None:
            started.send_signal(signal.SIGHUP)
            assert expected in next(line for line in started.stderr or () if "team:" in line)

        asking = threading.Thread(target=ask)
        asking.start()
        assert (tmp_path / "came").read_text() == "here"  # waits for the agent
        config(tmp_path, "team", {"only": {"use": says, "text": "new"}})
        reload("opened anew")
        ask()
        Path(team).write_text("agents: 7")
        reload("stays as it is")
        ask()
        (tmp_path / "go").write_text("old")
        asking.join(WAIT)
        started.send_signal(signal.SIGTERM)
        assert started.wait() == 0
    contents = [json.loads(text)["choices"][0]["message"]["content"] for _, text in answers]
    assert contents == ["new", "new", "old"]


def test_a_log_that_nobody_reads_any_more_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    team = config(tmp_path, "team", {"only": "Says"})
    with process(tmp_path, team) as (started, port):
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        for _ in range(3):
            assert status(port, "POST", "/v1/chat/completions", BODY)[0] == 200
        started.send_signal(signal.SIGTERM)
        told = started.stderr.read()
        assert started.wait() == 0
    assert told.count("requests are not logged any more: standard output: ") == 1


def test_the_hash_of_a_key_is_printed_and_read_back(tmp_path: Path) -> None:
    key = "k" * 32
    printed = CliRunner().invoke(serve, ["--hash-key"], input=f"{key}\n").output.strip()
    assert printed == hashlib.sha256(key.encode()).hexdigest()
    file = tmp_path / "keys"
    file.write_text(f"# clients\n\nann {printed}\n")
    keys = Keys.read(file)
    assert keys.name_of(key) == "ann"
    assert keys.name_of("k" * 31) is None
    assert keys.name_of("") is None


@pytest.mark.parametrize("key", ["", "short", "with a space in the middle", "ü" * 20])
def test_a_key_that_could_be_guessed_or_not_be_sent_is_refused(key: str) -> None:
    result = CliRunner().invoke(serve, ["--hash-key"], input=f"{key}\n")
    assert isinstance(result.exception, UsageError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no key"),
        ("ann", ":1: write a name"),
        ("ann 12ab", ":1: write a name"),
        (f"ann {'a' * 64}\nann {'b' * 64}", ":2: the name 'ann' occurs twice"),
        (f"a/b {'a' * 64}", ":1: write a name"),
    ],
)
def test_a_wrong_file_of_keys_is_named_with_its_line(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        Keys.read(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a run or a config"),
        (["team.yaml", "--host", "0.0.0.0"], "other machines could reach it"),
        (["team.yaml", "team.yaml"], "two runs named 'team'"),
        (["missing"], "no run 'missing'"),
        (["team.yaml", "--max-body", "much"], "not a size"),
        (["team.yaml", "--mcp", "--port", "0"], "--port acts over HTTP only"),
    ],
)
def test_a_mistake_ends_the_command_with_what_to_do(
    words: list[str], message: str, tmp_path: Path
) -> None:
    config(tmp_path, "team", {"only": "Says"})
    assert message in here("serve", *words, cwd=tmp_path, code=2).stderr


def test_only_addresses_of_this_machine_are_loopback() -> None:
    hosts = ["127.0.0.1", "127.8.8.8", "::1", "localhost", "0.0.0.0", "::", "10.0.0.1", "a.b", ""]
    assert [host for host in hosts if is_local(host)] == hosts[:4]
    headers = ["[::1]", "[::1]:80", "localhost", "localhost:80", "a.b:80", "[", ""]
    assert [header for header in headers if is_here(header)] == headers[:4]


SCRIPT = """
import asyncio, sys
from orchestrion.cli import main

def loaded(*names):
    print(sorted(set(names) & set(sys.modules)))

for words in (["--help"], ["serve", "--help"]):
    try:
        main(words)
    except SystemExit:
        loaded("starlette", "uvicorn", "msgspec", "openai")
from orchestrion_serve import Settings
from orchestrion_serve.gateway import Gateway

loaded("mcp", "a2a", "pydantic")
asyncio.run(Gateway({}, Settings(), None, print).prepare())
loaded("mcp", "a2a")
"""


def test_help_imports_no_server_and_a_server_what_its_first_requests_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    lists = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert lists == ["[]", "[]", "[]", "['a2a', 'mcp']"]
