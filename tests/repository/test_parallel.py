"""Tests that run in several processes are all run, and told like those in one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspace import ROOT

CONFTEST = """
from tests.parallel import Parallel, add_option, number_of_processes

def pytest_addoption(parser):
    add_option(parser)

def pytest_configure(config):
    config.pluginmanager.register(Parallel(number_of_processes(config)))
"""
GOOD = """
import os, pytest

@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    yield tmp_path_factory.mktemp("whole")
    raise RuntimeError("the end of a session")

def test_passes(whole, capfd):
    os.system("echo heard")
    assert capfd.readouterr().out == "heard\\n"

def test_fails():
    print("words of a test")
    assert not "this"

def test_is_skipped():
    pytest.skip("for a reason")
"""
DIES = """
import os

def test_first():
    pass

def test_dies():
    os._exit(3)

def test_after():
    pass
"""
LATER = "def test_later():\n    pass\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is one process without fork")
def test_nothing_that_goes_wrong_in_a_process_is_lost(tmp_path: Path) -> None:
    texts = {"conftest": CONFTEST, "test_a": GOOD, "test_b": DIES, "test_c": LATER}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n2", "-ra", "-p", "no:xdist", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"2 failed, 4 passed, 1 skipped, 1 error in", done.stdout), done.stdout
    for text in ("words of a test", "for a reason", "the end of a session", "ended with 3"):
        assert text in done.stdout
