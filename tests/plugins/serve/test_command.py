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
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from orchestrion_serve import Keys
from orchestrion_serve.command import serve
from orchestrion_serve.requests import is_here

from orchestrion import UsageError, is_local
from tests.end_to_end.support import here
from tests.plugins.serve.support import CHAT, HERE, WAIT, answered, chat, config, process

AGENT = """
import pathlib
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


def piped(folder: Path) -> str:
    """Write a team whose agent waits at pipes; return its path."""
    (folder / "piped.py").write_text(AGENT)
    for name in ("came", "go"):
        os.mkfifo(folder / name)
    return config(folder, "team", {"only": {"use": "piped:Pipe", "folder": str(folder)}})


def request(port: int, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """Return the status and the data of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    return answered(connection, path, body)[:2]


def said(answer: tuple[int, Any]) -> str:
    """Return the text of an answer."""
    assert answer[0] == 200
    return str(answer[1]["choices"][0]["message"]["content"])


def test_sigterm_lets_a_request_in_flight_finish_and_admits_no_other(tmp_path: Path) -> None:
    team = piped(tmp_path)
    answers: list[tuple[int, Any]] = []
    with process(tmp_path, team) as (started, port):
        assert started.stdout is not None
        assert started.stderr is not None
        get, ask = partial(request, port), partial(request, port, CHAT, chat("team"))
        assert get("/readyz")[0] == 200
        asking = threading.Thread(target=lambda: answers.append(ask()))
        asking.start()
        assert (tmp_path / "came").read_text() == "here"  # waits for the agent
        started.send_signal(signal.SIGTERM)
        assert "stopping" in next(line for line in started.stderr if "stopping" in line)
        assert [get("/healthz")[0], get("/readyz")[0], ask()[0]] == [200, 503, 503]
        (tmp_path / "go").write_text("finished")
        asking.join(WAIT)
        assert started.wait() == 0
        lines = [json.loads(line) for line in started.stdout]
    assert [said(answer) for answer in answers] == ["finished"]
    assert sorted(line["status"] for line in lines) == [200, 503]


def test_sighup_opens_new_versions_while_old_ones_finish_their_requests(tmp_path: Path) -> None:
    team = piped(tmp_path)
    answers: list[tuple[int, Any]] = []
    with process(tmp_path, team) as (started, port):
        assert started.stderr is not None

        def ask() -> None:
            answers.append(request(port, CHAT, chat("team")))

        def reload(expected: str) -> None:
            started.send_signal(signal.SIGHUP)
            assert expected in next(line for line in started.stderr or () if "team:" in line)

        asking = threading.Thread(target=ask)
        asking.start()
        assert (tmp_path / "came").read_text() == "here"  # waits for the agent
        config(tmp_path, "team", {"only": {"use": f"{HERE}:Says", "text": "new"}})
        reload("opened anew")
        ask()
        Path(team).write_text("agents: 7")
        reload("stays as it is")
        ask()
        (tmp_path / "go").write_text("old")
        asking.join(WAIT)
        started.send_signal(signal.SIGTERM)
        assert started.wait() == 0
    assert [said(answer) for answer in answers] == ["new", "new", "old"]


def test_a_log_that_nobody_reads_any_more_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    team = config(tmp_path, "team", {"only": "Says"})
    with process(tmp_path, team) as (started, port):
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        for _ in range(3):
            assert request(port, CHAT, chat("team"))[0] == 200
        started.send_signal(signal.SIGTERM)
        told = started.stderr.read()
        assert started.wait() == 0
    assert told.count("requests are not logged any more: standard output: ") == 1


def test_the_hash_of_a_key_is_printed_and_read_back_with_its_limits(tmp_path: Path) -> None:
    key = "k" * 32
    printed = CliRunner().invoke(serve, ["--hash-key"], input=f"{key}\n").output.strip()
    assert printed == hashlib.sha256(key.encode()).hexdigest()
    file = tmp_path / "keys"
    limits = "requests/minute=2 tokens/minute=100 usd/day=0.5 usd=20"
    file.write_text(f"# clients\n\nann {printed} {limits}\nben {'b' * 64}\n")
    keys = Keys.read(file)
    assert keys.name_of(key) == "ann"
    assert keys.name_of("k" * 31) is keys.name_of("") is None
    assert keys.accounts.of("ann") is not None
    assert keys.accounts.of("ben") is None


@pytest.mark.parametrize("key", ["", "short", "with a space in the middle", "ü" * 20])
def test_a_key_that_could_be_guessed_or_not_be_sent_is_refused(key: str) -> None:
    result = CliRunner().invoke(serve, ["--hash-key"], input=f"{key}\n")
    assert isinstance(result.exception, UsageError)


ANN, SETTING = f"ann {'a' * 64}", r":1: '.*' is not one of requests/minute=N.* each at most once"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no key"),
        ("ann", ":1: write a name"),
        ("ann 12ab", ":1: write a name"),
        (f"{ANN}\nann {'b' * 64}", ":2: the name 'ann' occurs twice"),
        (f"a/b {'a' * 64}", ":1: write a name"),
        *[
            (f"{ANN} {words}", SETTING)
            for words in (
                "requests=2",
                "requests/minute=0",
                "requests/minute=1.5",
                "usd=-1",
                "usd=nan",
                "usd=1 usd=2",
                "model/=desk",
                "model/desk=",
                "log=../up",
                "log=",
                "log=a log=b",
            )
        ],
    ],
)
def test_a_wrong_file_of_keys_is_named_with_its_line(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        Keys.read(file)


def test_a_file_of_keys_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Keys.read(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a run or a config"),
        (["team.yaml", "--host", "0.0.0.0"], "other machines could reach it"),
        (["team.yaml", "team.yaml"], "two runs named 'team'"),
        (["missing"], "no run 'missing'"),
        (["team.yaml", "--max-body", "much"], "not a size"),
        (["team.yaml", "--mcp", "--port", "0"], "--port acts over HTTP only"),
        (["team.yaml", "--explore", "0.1"], "--explore has no effect without --log"),
        (["team.yaml", "--log-contents"], "--log-contents has no effect without --log"),
        (["team.yaml", "--log", "l", "--share", "0.1"], "--share has no effect without --canary"),
        (["team.yaml", "--log", "l", "--explore-budget", "2"], "has no effect without --explore"),
        (["team.yaml", "--log", "l", "--canary", "team.yaml", "--share", "1"], "below 1"),
        (["team.yaml", "--log", "l", "--verify", "os:nothing"], "cannot load 'os:nothing'"),
        (["team.yaml", "other.yaml", "--log", "l", "--canary", "team.yaml"], "one RUN to serve"),
    ],
)
def test_a_mistake_ends_the_command_with_what_to_do(
    words: list[str], message: str, tmp_path: Path
) -> None:
    config(tmp_path, "team", {"only": "Says"})
    config(tmp_path, "other", {"only": "Says"})
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
