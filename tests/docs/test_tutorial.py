"""The tutorial from foreign agents to a served team, as it stands, but for ports and length."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import warm
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "tutorial.md"
FILES = {block.file: block.text for block in blocks(PAGE) if block.file}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, folder: Path, line: str, pattern: str, **env: str) -> str:
    """Start a server of the tutorial on a free port; return what its first line says of it."""
    reading, writing = os.pipe()
    output = stack.enter_context(os.fdopen(reading))
    words = [*line.split()[1:], "--port", "0"]
    server = warm.Command(words, folder, {**os.environ, **env}, stdout=writing, stderr=writing)
    os.close(writing)
    stack.callback(server.wait)
    stack.callback(server.terminate)
    said = ""
    for text in output:
        said += text
        if found := re.search(pattern, text):
            return found[1]
    raise AssertionError(f"{line}: {said}")


def test_it_has_at_most_sixty_lines() -> None:
    commands = [
        line
        for block in blocks(PAGE)
        if block.language == "console"
        for line in block.text.splitlines()
        if line.startswith("$ ") and "pip" not in line
    ]
    code = [line for text in FILES.values() for line in text.splitlines() if line.strip()]
    assert len(code) + len(commands) <= 60


def test_it_leads_to_a_team_that_answers_four_kinds_of_clients(
    tmp_path: Path, stack: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "questions.csv").write_text((ROOT / "docs/examples/questions.csv").read_text())
    line = "orchestrion llm-stub serve --speakers speakers.yaml"
    base = start(stack, tmp_path, line, r"OPENAI_BASE_URL=http://(\S+)/v1")
    env = {"OPENAI_BASE_URL": f"http://{base}/v1", "OPENAI_API_KEY": "none"}
    far = start(stack, tmp_path, "orchestrion agent-server far.yaml", r"gRPC at (\S+:\d+)", **env)
    team = FILES["team.yaml"].replace("127.0.0.1:8800", base).replace("127.0.0.1:8700", far)
    assert team.count(base) == team.count(far) == 1
    (tmp_path / "team.yaml").write_text(team)
    # It would take longer to learn when to stop.
    changes = ["trainer.iterations=1", "trainer.episodes=12", "run.problems=6"]
    changes += ["policy.stop=false", "limits.turns=1"]
    short = [word for change in changes for word in ("-o", change)]
    done = warm.run("train", "team.yaml", *short, cwd=tmp_path, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    assert "held-out split 'test': 6 problems" in done.stdout
    served = start(
        stack, tmp_path, "orchestrion serve team-1", r"serving team-1 at (\S+)/v1", **env
    )
    ask = FILES["ask.py"].replace("http://127.0.0.1:8000", served)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the SDKs, which most likely are imported already
        exec(compile(ask, "ask.py", "exec"), {"__name__": "__main__"})
    assert len(capsys.readouterr().out.splitlines()) >= 4, "an answer by each client"
