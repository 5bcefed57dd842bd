"""The tables that lead through the repository name all there is, as it describes itself."""

from __future__ import annotations

import ast
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


def test_what_the_architecture_says_where_to_look_for_is_there() -> None:
    """A row names a file, then functions, methods or classes in it."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split("## Where to look\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"\| `([\w/.]+\.py)`: (.*) \|\n", section)
    assert len(rows) >= 8
    for path, what in rows:
        tree = ast.parse((ROOT / path).read_text())
        for name in re.findall(r"`([\w.]+)`", what.split(", called")[0]):
            nodes: list[ast.AST] = [tree]
            for part in name.split("."):
                children = [child for node in nodes for child in ast.iter_child_nodes(node)]
                nodes = [child for child in children if getattr(child, "name", "") == part]
            assert nodes, f"{path} has no {name}"
