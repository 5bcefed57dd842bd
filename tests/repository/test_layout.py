"""The layout shows the architecture: what stands where, and what every member brings."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from functools import cache

import pytest
from packaging.requirements import Requirement

from orchestrion import Component
from tests.workspace import ROOT, Member, files, members

TOP_LEVEL = {
    "pyproject.toml",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "changelog.d",
    "dev.py",
    "core",
    "plugins",
    "contrib_agents",
    "contrib_tasks",
    "docs",
    "tests",
}

every_member = pytest.mark.parametrize("member", members(), ids=repr)
every_plugin = pytest.mark.parametrize(
    "member", [member for member in members() if not member.is_core], ids=repr
)


def test_the_top_level_holds_only_what_the_layout_names() -> None:
    found = {path.relative_to(ROOT).parts[0] for path in files()}
    visible = {name for name in found if not name.startswith(".")}
    assert visible - TOP_LEVEL == set(), "belongs into a member, docs or tests"
    assert TOP_LEVEL - visible == set(), "missing"


def test_nothing_generated_is_committed() -> None:
    generated = re.compile(
        r"(^|/)(__pycache__|\.mypy_cache|[^/]+\.egg-info|build|dist)/|\.(pyc|whl)$"
    )
    names = [path.relative_to(ROOT).as_posix() for path in files()]
    assert [name for name in names if generated.search(name)] == []


def test_every_folder_of_source_code_is_a_member() -> None:
    folders = {member.path for member in members()}
    with_code = {
        path.relative_to(ROOT).as_posix().partition("/src/")[0]
        for path in files()
        if re.match(
            r"(core|plugins/[^/]+|contrib_\w+/[^/]+)/src/", path.relative_to(ROOT).as_posix()
        )
    }
    assert with_code == folders


@every_member
def test_a_member_has_what_a_distribution_needs(member: Member) -> None:
    needed = ["README.md", f"src/{member.package}/__init__.py", f"src/{member.package}/py.typed"]
    if not member.is_core:
        needed.append(f"src/{member.package}/plugin.py")
    missing = [name for name in needed if not (member.folder / name).is_file()]
    assert missing == []
    assert member.project["license"] == "MIT"
    assert all(member.project[field] for field in ("authors", "classifiers", "keywords"))
    assert member.project["requires-python"] == ">=3.11"
    assert member.project["readme"] == "README.md"
    assert member.data["build-system"]["build-backend"] == "flit_core.buildapi"


@every_plugin
def test_a_plugin_is_named_after_the_project(member: Member) -> None:
    assert re.fullmatch(r"orchestrion-[a-z][a-z0-9-]*", member.name)
    assert member.package == member.name.replace("-", "_")
    points = member.project["entry-points"]["orchestrion"]
    assert len(points) == 1, "one entry point for each distribution"
    assert set(points.values()) == {f"{member.package}.plugin"}


def test_no_two_members_claim_one_plugin_name() -> None:
    names = [
        name
        for member in members()
        for name in member.project.get("entry-points", {}).get("orchestrion", {})
    ]
    assert len(names) == len(set(names))


@every_plugin
def test_a_plugin_states_the_range_of_core_it_was_written_for(member: Member) -> None:
    [core] = [found for found in member.requirements if found.name == "orchestrion"]
    operators = {specifier.operator for specifier in core.specifier}
    assert operators == {">=", "<"}, "a floor, and the next major version as ceiling"


@every_member
def test_each_dependency_says_why_it_is_there(member: Member) -> None:
    quoted = re.compile(r'^\s*"([^"]+)",?\s*(#\s*\S.*)?$')
    lines = [found for line in member.text.splitlines() if (found := quoted.match(line))]
    reasons = {str(Requirement(match[1])): match[2] for match in lines if _is_requirement(match[1])}
    for requirement in member.requirements + member.extras:
        if requirement.name == "orchestrion":
            continue  # the reason is the same everywhere
        assert reasons.get(str(requirement)), f"{requirement} needs its own line and a comment"


def _is_requirement(text: str) -> bool:
    try:
        Requirement(text)
    except ValueError:
        return False
    return True


LIBRARIES = {"orchestrion-foreign"}
"""What members share that is no core's business; they supply nothing themselves."""


@every_plugin
def test_the_readme_names_each_component(member: Member) -> None:
    components = _components(member)
    commands = member.project["entry-points"].get("orchestrion.commands")
    supplies = bool(components or commands)
    assert supplies is (member.name not in LIBRARIES), "a plugin that supplies nothing"
    unnamed = [item.name for item in components if f"`{item.name}`" not in member.readme]
    assert unnamed == []


@every_plugin
def test_component_names_and_summaries_read_well(member: Member) -> None:
    for component in _components(member):
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", component.name), component
        assert "\n" not in component.summary, component
        assert 8 <= len(component.summary) <= 100, component
        module, _, name = component.path.partition(":")
        assert getattr(importlib.import_module(module), name).__doc__, component


NO_COMPONENTS = {"orchestrion_kinds", "orchestrion_doctor", "orchestrion_sections"}
"""Hooks that name no component; a doctor's findings also take seconds."""


@cache
def _components(member: Member) -> tuple[Component, ...]:
    module = importlib.import_module(f"{member.package}.plugin")
    found: list[Component] = []
    for name, function in vars(module).items():
        if name == "orchestrion_components":
            found += [component for _, component in function()]
        elif name.startswith("orchestrion_") and name not in NO_COMPONENTS:
            found += [item for item in function() if isinstance(item, Component)]
    return tuple(found)


@every_member
def test_the_tests_of_a_member_stand_at_its_path_under_tests(member: Member) -> None:
    """Or with those of a member whose extra `testing` names it."""
    hosts = [other for other in members() if member.name in {one.name for one in other.extras}]
    folders = [ROOT / "tests" / one.path for one in (member, *hosts)]
    tests = [path for path in files() if path.match("test_*.py")]
    assert [path for path in tests if any(path.is_relative_to(folder) for folder in folders)]


def test_the_constraints_pin_all_that_dev_py_asks_for() -> None:
    lines = (ROOT / "tests/constraints.txt").read_text(encoding="utf-8").splitlines()
    assert "torch==2.13.0" in lines
    pinned = {line.partition("==")[0] for line in lines if "==" in line}
    asked = {
        Requirement(text).name.lower()
        for member in members()
        for text in (
            *member.project.get("dependencies", []),
            *member.project.get("optional-dependencies", {}).get("testing", []),
        )
    }
    own = {member.name for member in members()}
    assert asked - pinned - own == set(), "pin them, or a new release decides whether tests pass"


def test_ci_run_is_a_program() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n", str(script)], check=True)


def test_dev_tells_the_user_of_an_old_python_what_to_do() -> None:
    text = (ROOT / "dev.py").read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 7))  # an older one must be able to read the file
    first = [type(node).__name__ for node in tree.body[:3]]
    assert first == ["Expr", "Import", "If"], "docstring, import sys, the check"
    old = text.replace("(3, 11)", "(9, 0)", 1)
    done = subprocess.run(
        [sys.executable, "-c", old], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "Traceback" not in done.stderr
