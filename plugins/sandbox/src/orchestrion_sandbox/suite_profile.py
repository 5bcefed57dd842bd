"""A box that has pytest in it, warm, and nothing else of what is installed."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import shutil
import tempfile
from pathlib import Path

from orchestrion_sandbox.errors import SandboxError
from orchestrion_sandbox.interface import Profile

__all__ = ["pytest_profile"]

_PACKAGES = "_pytest pytest py pluggy iniconfig packaging pygments exceptiongroup tomli".split()
_ONLY_BEFORE_3_11 = frozenset(("exceptiongroup", "tomli"))
_PLUGINS = """
    assertion capture compat config.argparsing debugging faulthandler fixtures helpconfig logging
    main mark monkeypatch nodes python python_api raises recwarn reports runner setuponly setupplan
    skipping subtests terminal threadexception tmpdir unittest unraisableexception warnings
    assertion.rewrite assertion.util assertion.truncate cacheprovider doctest freeze_support
    junitxml legacypath pastebin pytester_assertions stepwise
""".split()
_ALSO = "unittest pdb difflib logging secrets fractions decimal argparse glob shlex".split()


@functools.cache
def pytest_profile() -> Profile:
    """The profile of sandboxes in which tests run, with copies of the installed pytest.

    Raises:
        SandboxError: if pytest is not installed.
    """
    folder = Path(tempfile.mkdtemp(prefix="orchestrion-pytest-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)  # whoever the sandbox runs as may read it
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            _copy(name, Path(spec.origin), folder)
        elif name not in _ONLY_BEFORE_3_11:
            raise SandboxError(
                f"tests in a sandbox need pytest, and {name} is not installed: "
                'pip install "orchestrion-sandbox[pytest]"'
            )
    plugins = [f"_pytest.{name}" for name in _PLUGINS]
    found = [
        name
        for name in plugins
        if (folder / Path(*name.split("."))).exists()
        or (folder / Path(*name.split("."))).with_suffix(".py").exists()
    ]
    inside = "orchestrion_sandbox.inside.suite"
    return Profile(preload=("pytest", *found, *_ALSO, inside), packages=(str(folder),))


def _copy(name: str, origin: Path, folder: Path) -> None:
    if origin.name != "__init__.py":
        shutil.copy2(origin, folder)
        return
    # Of the highlighter only what is imported: its lexers are most of its size.
    ignored = shutil.ignore_patterns("*.so", "tests") if name != "pygments" else _lexers
    shutil.copytree(origin.parent, folder / name, ignore=ignored)


def _lexers(folder: str, names: list[str]) -> set[str]:
    kept = {"__init__.py", "_mapping.py", "python.py", "diff.py", "special.py", "__pycache__"}
    kept |= {"unicode_literals.py"}
    return set(names) - kept if Path(folder).name == "lexers" else set()
