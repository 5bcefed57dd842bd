"""The manual's site can be built, and its image's files fit the workspace."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import build_site
from tests.workspace import ROOT, members


def test_the_site_has_no_dead_link_and_no_page_outside_its_lists() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "docs/build_site.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_language_models_get_a_list_of_pages_and_the_whole_text(tmp_path: Path) -> None:
    build_site.write_texts(tmp_path)
    listed = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    assert listed.startswith("# Orchestrion\n\n> ")
    for page in (ROOT / "docs").glob("*.md"):
        if page.name != "README.md":
            assert f"](docs/{page.stem}.html): " in listed
            assert page.read_text(encoding="utf-8") in (tmp_path / "llms-full.txt").read_text()


def test_the_slim_image_has_no_member_that_needs_torch() -> None:
    dockerfile = (ROOT / "docs/image/Dockerfile").read_text(encoding="utf-8")
    [apart] = re.findall(r"for name in ([\w ]+); do", dockerfile)
    heavy = {member for member in members() if member.declares(["torch"], extras=False)}
    assert set(apart.split()) == {member.folder.name for member in heavy}
    slim = [member for member in members() if member not in heavy]
    names = [member.name for member in heavy]
    assert not [member for member in slim if member.declares(names, extras=False)]


@pytest.mark.parametrize(
    "file", ["CITATION.cff", "docs/image/Dockerfile", "docs/image/compose.yaml"]
)
def test_files_beside_the_code_name_its_version(file: str) -> None:
    [core] = [member for member in members() if member.is_core]
    version = (
        core.project.get("version")
        or re.findall(r'^__version__ = "(.+)"$', (core.source / "__init__.py").read_text(), re.M)[0]
    )
    named = re.findall(r"(?:^version: |orchestrion:)(\d[\d.]*\d)", (ROOT / file).read_text(), re.M)
    assert set(named) == {version}
