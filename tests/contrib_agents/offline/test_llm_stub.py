"""`orchestrion llm-stub serve`, as a person starts it, asked by the plain SDKs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import openai
import pytest
from click.testing import CliRunner
from orchestrion_offline.command import SHIPPED, _behaviour, llm_stub, read_speakers
from orchestrion_offline.settings import Serving, Troubles

from orchestrion import OrchestrionError
from orchestrion.cli import main

SPEAKERS = """\
speakers:
  small: {use: echo, prefix: "small: "}
  team:
    use: cast
    roles: {writer: small}
    otherwise: {use: solver, skill: 0.5}
"""


@contextmanager
def served(*options: str) -> Iterator[tuple[str, list[str], subprocess.Popen[str]]]:
    """The address, what was printed, and the process."""
    command = [sys.executable, "-m", "orchestrion", "llm-stub", "serve", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            if "ANTHROPIC_API_KEY" in line:
                break
        [url] = [match[1] for line in lines if (match := re.match("ANTHROPIC_BASE_URL=(.*)", line))]
        yield url, lines, process
    finally:
        process.kill()
        process.communicate()


def test_speakers_of_a_file_are_served_until_ctrl_c(tmp_path: Path) -> None:
    file = tmp_path / "speakers.yaml"
    file.write_text(SPEAKERS)
    with served("--speakers", str(file), "--api-key", "secret") as (url, lines, process):
        assert lines[0] == "serving small, team; Ctrl-C ends it"
        assert f"OPENAI_BASE_URL={url}/v1" in lines
        assert any("key_env: STUB_KEY" in line for line in lines)
        user = [{"role": "user", "content": "hi"}]
        with openai.OpenAI(api_key="secret", base_url=f"{url}/v1", max_retries=0) as client:
            chat = client.chat.completions.create(model="small", messages=user)  # type: ignore[arg-type]
            assert chat.choices[0].message.content == "small: hi"
            streamed = client.responses.create(model="small", input="hi", stream=True)
            assert [e.delta for e in streamed if e.type == "response.output_text.delta"] == [
                "small: hi"
            ]
        with anthropic.Anthropic(api_key="secret", base_url=url, max_retries=0) as anthropic_client:
            response = anthropic_client.messages.create(
                model="team",
                system="You, the writer",
                messages=user,  # type: ignore[arg-type]
                max_tokens=9,
            )
            assert response.content[0].text == "small: hi"  # type: ignore[union-attr]
        with (
            anthropic.Anthropic(api_key="other", base_url=url, max_retries=0) as locked_out,
            pytest.raises(anthropic.AuthenticationError),
        ):
            locked_out.models.list()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert errors == "served 3 requests\n"


def test_the_printed_config_works_with_a_budget_and_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    team = tmp_path / "team.yaml"
    with served("--port", "0") as (_, lines, _):
        assert lines[0].startswith("serving echo, scripted, solver")
        begin = lines.index("in a config:") + 1
        agents = "agents: {x: {use: chat, model: a}, y: {use: chat, model: b}}"
        rest = "policy: {use: sequence, steps: [x, y]}\nlimits: {turns: 2}\nbudget: {usd: 0}"
        models = textwrap.dedent("\n".join(lines[begin : begin + 3]))
        team.write_text(f"task: {{use: steps}}\n{models}\n{agents}\n{rest}\n")
        sheet = "Worksheet (sums): start with 5. 1. add 7"
        result = CliRunner().invoke(main, ["run", str(team), "--input", sheet])
    assert result.exit_code == 4, result.output
    assert "[1] x" in result.stderr
    assert "[2] y" in result.stderr
    assert "failed" not in result.stderr


def test_troubles_are_set_by_name() -> None:
    assert _behaviour({"latency": 1.0}, ("rate_limited=0.5",)) == Serving(
        latency=1.0, troubles=Troubles(rate_limited=0.5)
    )


def test_every_shipped_speaker_is_served_under_its_name() -> None:
    assert tuple(read_speakers(None)) == SHIPPED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speakers:\n  a: {use: ecko}\n", "did you mean 'echo'"),
        ("speakers:\n  a: {use: solver, skill: 7}\n", r"line 2|:2"),
        ("speakers: {}\n", "no speaker is defined"),
        ("task: {use: steps}\n", "section 'speakers' is missing"),
        ("speakers: {a: {use: echo}}\nmodels: {}\n", "models.*holds speakers only"),
        ("speakers: {a: {use: cast, roles: {x: b}}}\n", "'b'"),
    ],
)
def test_errors_of_a_speakers_file_are_reported(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "speakers.yaml"
    file.write_text(text)
    with pytest.raises(OrchestrionError, match=message):
        read_speakers(file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--speakers", "nowhere.yaml"], "there is no file nowhere.yaml"),
        (["--trouble", "fire=0.1"], "the names are rate_limited"),
        (["--trouble", "dropped=often"], "expected NAME=SHARE"),
        (["--trouble", "dropped=0.8", "--trouble", "overloaded=0.8"], "got 1.6"),
        (["--trouble", "dropped=nan"], "expected a finite number"),
        (["--latency", "-1"], "latency: expected a finite number of 0 or more"),
        (["--host", "256.1.1.1"], "cannot listen on"),
    ],
)
def test_invalid_options_are_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(llm_stub, ["serve", *options])
    assert result.exit_code != 0
    assert message in str(result.exception)
