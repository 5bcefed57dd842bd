"""The Python examples in the members' READMEs run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspace import members

EXAMPLES = [
    pytest.param(code, id=f"{member.path}-{number}")
    for member in members()
    if (member.folder / "README.md").exists()
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", member.readme, re.M | re.S))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs_in_a_fresh_process(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_the_example_of_core_prints_what_its_readme_says() -> None:
    [core] = [member for member in members() if member.is_core]
    [example] = [param.values[0] for param in EXAMPLES if str(param.id).startswith("core-")]
    done = subprocess.run(
        [sys.executable, "-c", str(example)], capture_output=True, text=True, check=True
    )
    assert f"It prints `{done.stdout.strip()}`" in core.readme
