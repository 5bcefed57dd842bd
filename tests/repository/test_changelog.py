"""Change fragments have the form that changelog.d/README.md describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.workspace import ROOT, files, members

FRAGMENTS = [
    path
    for path in files()
    if path.is_relative_to(ROOT / "changelog.d") and path.name != "README.md"
]
# "core", and every other member by the name of its distribution without the project's.
CONCERNS = {"core", "workspace", "docs"} | {
    member.name.removeprefix("orchestrion-") for member in members() if not member.is_core
}


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_is_one_line_about_one_member(fragment: Path) -> None:
    assert fragment.parent == ROOT / "changelog.d"
    name = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\.(added|changed|fixed|removed)\.md")
    assert name.fullmatch(fragment.name)
    text = fragment.read_text(encoding="utf-8")
    assert text.endswith(".\n")
    assert text.count("\n") == 1
    concern, separator, rest = text.partition(": ")
    assert separator, "starts with a member and a colon"
    assert concern in CONCERNS, f"one of {sorted(CONCERNS)}"
    assert len(rest) > 20


def test_the_changelog_has_a_home() -> None:
    assert (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").startswith("# Changelog\n")
