"""Arrows point one way, every import is declared, and what listing touches is light."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspace import ROOT, Member, distributions_of, imports, members, python_files, tree_of

HEAVY = ("torch", "numpy", "scipy", "sklearn", "pandas", "transformers", "anthropic", "openai")
# What a plugin may rely on because core's interface is made of it: components are attrs classes.
WITH_CORE = {"attrs"}
PICKLES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}

every_member = pytest.mark.parametrize("member", members(), ids=repr)


@every_member
def test_every_import_is_declared(member: Member) -> None:
    undeclared = []
    for file in python_files(member.source):
        for found in imports(file):
            if found.top in sys.stdlib_module_names or found.top in ("__future__", member.package):
                continue
            if found.top in WITH_CORE and not member.is_core:
                continue
            if not member.declares(distributions_of(found.top)):
                undeclared.append(f"{file.relative_to(ROOT)}:{found.line} {found.module}")
    assert undeclared == [], f"add them to {member.path}/pyproject.toml, or do without"


def test_core_imports_no_plugin_and_nothing_heavy() -> None:
    [core] = [member for member in members() if member.is_core]
    plugins = {member.package for member in members() if not member.is_core}
    wrong = [
        f"{file.relative_to(ROOT)}:{found.line} {found.module}"
        for file in python_files(core.source)
        for found in imports(file)
        if found.top in HEAVY or found.top in plugins
    ]
    assert wrong == []


PUBLIC_OF_CORE = {
    "orchestrion",
    "orchestrion.cli",
    "orchestrion.config",
    "orchestrion.runs",
    "orchestrion.testing",
}


def private_imports(file: Path, package: str) -> list[str]:
    """Return what a file takes from inner modules of other members, for types included."""
    others = {other.package for other in members()} - {package}
    private = []
    for node in ast.walk(tree_of(file)):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            hidden = [alias.name for alias in node.names if alias.name.startswith("_")]
            modules = [node.module, *(f"{node.module}.{name}" for name in hidden)]
        for module in modules:
            top, *inner = module.split(".")
            if top in others and (
                any(part.startswith("_") for part in inner)
                or (top == "orchestrion" and module not in PUBLIC_OF_CORE)
            ):
                private.append(f"{file.name}:{node.lineno} {module}")
    return private


@every_member
def test_plugins_use_the_public_modules_of_others(member: Member) -> None:
    found = [
        line
        for file in python_files(member.source)
        for line in private_imports(file, member.package)
    ]
    assert found == [], f"only {', '.join(sorted(PUBLIC_OF_CORE))} of core are public"


@pytest.mark.parametrize(
    "line",
    [
        "from orchestrion._engine.loop import Loop",
        "import orchestrion._store",
        "from orchestrion import _records",
        "from orchestrion.testing._fakes import Fixed",
        "from orchestrion_dag._plan import Plan",
        "if TYPE_CHECKING:\n    from orchestrion._run import Run",
        "def open():\n    from orchestrion._run import Run",
    ],
)
def test_an_import_of_an_inner_module_would_be_found(line: str, tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(f"{line}\n")
    assert private_imports(file, "orchestrion_beam") != []


def test_an_import_of_a_public_module_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "honest.py"
    file.write_text("from orchestrion import Agent\nfrom orchestrion.runs import RunReader\n")
    assert private_imports(file, "orchestrion_beam") == []


@every_member
def test_nothing_is_stored_by_pickle(member: Member) -> None:
    found = []
    for file in python_files(member.source):
        where = file.relative_to(ROOT)
        found += [f"{where}:{item.line}" for item in imports(file) if item.top in PICKLES]
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                found.append(f"{where}:{node.lineno} allow_pickle")
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("load", "save")
                and ast.unparse(node.value) == "torch"
            ):
                found.append(f"{where}:{node.lineno} torch.{node.attr}")
    assert found == [], "arrays go to safetensors, the rest to JSON"


def test_a_pickle_and_a_hidden_import_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import only_for_types\n"
        "class A:\n    import at_class\n"
        "    def method(self):\n        import pickle, torch.nn\n"
    )
    seen = {found.module: found.at_import for found in imports(file)}
    assert seen == {"typing": True, "at_class": True, "pickle": False, "torch.nn": False}


def test_components_are_found_and_described_without_heavy_libraries() -> None:
    packages = [member.package for member in members() if not member.is_core]
    script = f"""
import importlib, sys
for package in {packages!r}:
    plugin = importlib.import_module(package + ".plugin")
    before = set(sys.modules)
    for name, function in vars(plugin).items():
        if name.startswith("orchestrion_") and name != "orchestrion_kinds":
            for item in function():
                component = item[1] if name == "orchestrion_components" else item
                if hasattr(component, "path"):
                    importlib.import_module(component.path.partition(":")[0])
    heavy = sorted(set({HEAVY!r}) & set(sys.modules))
    if heavy:
        sys.exit(f"{{package}} imports {{heavy}} before open()")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_at_least_one_heavy_library_is_installed_here() -> None:
    assert any(importlib.util.find_spec(name) for name in HEAVY), (
        "the test above would show nothing"
    )
