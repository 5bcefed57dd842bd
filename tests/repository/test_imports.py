"""Arrows point one way, every import is declared, and what listing touches is light."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.workspace import ROOT, Member, distributions_of, imports, members, python_files, tree_of

HEAVY = ("torch", "numpy", "scipy", "sklearn", "pandas", "transformers", "anthropic", "openai")
# What a plugin may rely on because core's interface is made of it: components are attrs classes.
WITH_CORE = {"attrs"}
PICKLES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}

SEND = {
    "core/src/orchestrion/_engine/peers.py",
    "plugins/local/src/orchestrion_local/rank.py",
}
"""Speak with processes that the run has started, and store nothing."""

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
# Of other members, the package itself and its module `interfaces` are public, and one more module
# where a package has two audiences; its README says which.
SECOND_AUDIENCE = {
    "orchestrion_encoders.tensors",
    "orchestrion_repair.rows",
    "orchestrion_sandbox.inside.plain",
}


def is_public(module: str) -> bool:
    """Return whether other members may import a module of a member."""
    package, _, inner = module.partition(".")
    if package == "orchestrion":
        return module in PUBLIC_OF_CORE
    return inner in ("", "interfaces") or module in SECOND_AUDIENCE


def imported_modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that an absolute import names, for types included.

    `from package import name` names the module `package.name` where there is one of that name.
    """
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.level or not node.module:
        return []
    full = [f"{node.module}.{alias.name}" for alias in node.names]
    return [node.module, *(name for name in full if name in modules_of_members())]


@cache
def modules_of_members() -> dict[str, Path]:
    """Return the file of each module of a member, by the module's full name."""
    found = {}
    for member in members():
        for file in python_files(member.source):
            name = ".".join(file.relative_to(member.source.parent).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = file
    return found


def private_imports(file: Path, package: str) -> list[str]:
    """Return what a file takes from inner modules of other members, for types included."""
    others = {other.package for other in members()} - {package}
    private = []
    for node in ast.walk(tree_of(file)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for module in imported_modules(node):
            if module.partition(".")[0] in others and not is_public(module):
                private.append(f"{file.name}:{node.lineno} {module}")
    return private


@every_member
def test_members_use_the_public_modules_of_others(member: Member) -> None:
    private = [
        line
        for file in python_files(member.source)
        for line in private_imports(file, member.package)
    ]
    assert private == [], (
        f"of core, {', '.join(sorted(PUBLIC_OF_CORE))} are public; of other members the package, "
        f"its module `interfaces`, and {', '.join(sorted(SECOND_AUDIENCE))}"
    )


@pytest.mark.parametrize(
    "line",
    [
        "from orchestrion._engine.loop import Loop",
        "import orchestrion._store",
        "from orchestrion import _records",
        "from orchestrion.testing._fakes import Fixed",
        "if TYPE_CHECKING:\n    from orchestrion._run import Conduct",
        "def open():\n    from orchestrion._run import Conduct",
        "from orchestrion_dag.plan import Plan",
        "import orchestrion_dag.plan",
        "import orchestrion_dag.plan as plan",
        "from orchestrion_dag import plan",
        "from orchestrion_sandbox import inside",
        "from orchestrion_sandbox.inside import linux",
        "from orchestrion_repair.operators.source import Source",
        "if TYPE_CHECKING:\n    from orchestrion_llm.prices import Price",
        "def open():\n    from orchestrion_llm.prices import Price",
    ],
)
def test_an_import_of_an_inner_module_would_be_found(line: str, tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(f"{line}\n")
    assert private_imports(file, "orchestrion_beam") != []


@pytest.mark.parametrize(
    "line",
    [
        "from orchestrion import Agent",
        "from orchestrion.runs import RunReader",
        "from orchestrion_dag import Plan",
        "from orchestrion_encoders import Joined, interfaces",
        "from orchestrion_encoders.interfaces import Encoder",
        "from orchestrion_repair.rows import read_tests",
        "from orchestrion_beam.search import Beam",  # of the member itself
        "from .search import Beam",
    ],
)
def test_an_import_of_a_public_module_is_allowed(line: str, tmp_path: Path) -> None:
    file = tmp_path / "honest.py"
    file.write_text(f"{line}\n")
    assert private_imports(file, "orchestrion_beam") == []


@pytest.mark.parametrize("module", sorted(SECOND_AUDIENCE))
def test_a_readme_names_the_module_for_a_second_audience(module: str) -> None:
    [readme] = [m.readme for m in members() if m.package == module.partition(".")[0]]
    assert f"`{module}`" in readme


def exported_to_type_checkers(member: Member) -> set[str]:
    """Return the names that a package's root imports as themselves."""
    return {
        alias.name
        for node in ast.walk(tree_of(member.source / "__init__.py"))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


@every_member
def test_a_root_exports_the_same_names_to_python_and_to_type_checkers(member: Member) -> None:
    package = importlib.import_module(member.package)
    names = set(getattr(package, "__all__", ())) - {"API_VERSION", "__version__"}
    assert exported_to_type_checkers(member) == names
    assert [name for name in sorted(names) if not hasattr(package, name)] == []
    modules = {path.stem for path in member.source.iterdir()} - {"__init__"}
    assert names & modules == set(), "importing the module of that name would replace the name"


def test_importing_a_root_imports_no_module_of_its_package() -> None:
    packages = [member.package for member in members() if not member.is_core]
    script = f"""
import importlib, sys
for package in {packages!r}:
    importlib.import_module(package)
print(sorted(m for m in sys.modules if m.partition(".")[0] in {packages!r} and "." in m))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@every_member
def test_nothing_is_stored_by_pickle(member: Member) -> None:
    found = []
    for file in python_files(member.source):
        where = file.relative_to(ROOT)
        if where.as_posix() not in SEND:
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
        if name.startswith("orchestrion_") and name[12:] not in ("kinds", "doctor"):
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


ALLOWED_CIRCLES: set[frozenset[str]] = set()


@every_member
def test_no_modules_import_each_other_in_a_circle(member: Member) -> None:
    """Imports for types count, those inside functions do not."""
    own = {
        name: file
        for name, file in modules_of_members().items()
        if file.is_relative_to(member.source)
    }
    modules = {name: imported_at_once(tree_of(file)) & set(own) for name, file in own.items()}
    assert circles(modules) <= ALLOWED_CIRCLES


def imported_at_once(tree: ast.Module) -> set[str]:
    """Return the modules of members that statements outside of functions and classes import."""
    found: set[str] = set()
    statements: list[ast.AST] = [*tree.body]
    while statements:
        statement = statements.pop()
        if isinstance(statement, ast.ImportFrom):
            names = imported_modules(statement)
            found.update(names[1:] or names)
        elif isinstance(statement, ast.Import):
            found.update(imported_modules(statement))
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            statements.extend(ast.iter_child_nodes(statement))
    return found


def circles(modules: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the sets of modules that reach each other."""
    reach = {name: reached(name, modules) for name in modules}
    return {
        frozenset(other for other in reach[name] if name in reach[other])
        for name in modules
        if name in reach[name]
    }


def reached(name: str, modules: Mapping[str, set[str]]) -> set[str]:
    """Return all modules that one leads to, over any number of imports."""
    found: set[str] = set()
    todo = [name]
    while todo:
        new = modules[todo.pop()] - found
        found |= new
        todo.extend(new)
    return found


def test_a_circle_would_be_found() -> None:
    modules = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert circles(modules) == {frozenset("bc")}
    for_types = ast.parse("if TYPE_CHECKING:\n    from orchestrion._keys import Key\n")
    assert imported_at_once(for_types) == {"orchestrion._keys"}
    assert imported_at_once(ast.parse("def f():\n    import orchestrion._keys\n")) == set()
