"""The tables that lead through the repository name all there is, as it describes itself."""

from __future__ import annotations

import re

import pytest

from orchestrion._cli import ELSEWHERE
from tests.workspace import ROOT, members


@pytest.mark.parametrize("folder", ["plugins", "contrib_agents", "contrib_tasks"])
def test_the_readme_of_a_folder_lists_its_members(folder: str) -> None:
    described = {
        member.folder.name: (member.name, member.project["description"])
        for member in members()
        if member.folder.parent.name == folder
    }
    rows = re.findall(
        r"^\| \[(\w+)\]\(\1/\) \| `([^`]+)` \| (.+) \|$",
        (ROOT / folder / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert {name: (distribution, text) for name, distribution, text in rows} == described


@pytest.mark.parametrize(("folder", "suffix"), [("docs", ".md"), ("docs/examples", ".yaml")])
def test_an_index_links_to_every_page(folder: str, suffix: str) -> None:
    linked = set(re.findall(r"\]\(([\w.-]+)\)", (ROOT / folder / "README.md").read_text()))
    assert linked == {file.name for file in (ROOT / folder).glob(f"*{suffix}")} - {"README.md"}


def test_core_knows_what_to_install_for_a_command_of_a_plugin() -> None:
    supplied = {
        member.name: " ".join(sorted(commands))
        for member in members()
        if (commands := member.project.get("entry-points", {}).get("orchestrion.commands"))
    }
    assert supplied == ELSEWHERE
