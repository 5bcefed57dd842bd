"""A release has one version, and an order in which no wheel comes before one that it needs."""

from __future__ import annotations

from packaging.version import Version

from tests.packaging.release import (
    change_log,
    changed_files,
    fragments,
    in_order,
    mismatches,
    needs,
)
from tests.workspace import ROOT, members

NOW = next(member.project["version"] for member in members() if member.is_core)


def test_members_come_after_those_they_need() -> None:
    order = [member.name for member in in_order(members())]
    assert order[0] == "orchestrion"
    for member in members():
        for need in needs(member):
            if need.name in order:
                assert order.index(need.name) < order.index(member.name)


def test_all_members_have_one_version_and_accept_the_releases_of_it() -> None:
    assert mismatches(members(), Version(NOW)) == []
    assert len(mismatches(members(), Version("9.1.0"))) >= 2 * len(members()) - 1


def test_a_release_changes_versions_ranges_and_the_change_log_and_nothing_else() -> None:
    changed = changed_files(ROOT, Version("9.1.0"))
    for file, text in changed.items():
        before = file.read_text(encoding="utf-8").splitlines()
        if file.name != "CHANGELOG.md":
            pairs = zip(before, text.splitlines(), strict=True)
            different = [new for old, new in pairs if new != old]
            assert different
            assert all("9.1" in line for line in different)
    lines = change_log(ROOT, Version("9.1.0"))
    assert "## 9.1.0 (" in lines
    assert all(file.read_text(encoding="utf-8").strip() in lines for file in fragments(ROOT))
