"""The conformance kit: named checks of what a plugin's components promise.

    from orchestrion.testing import parametrize_with_checks

    @parametrize_with_checks("my-critic", {"acts alike for equal keys": "asks a model"})
    def test_conformance(check):
        check.run()

`orchestrion check my-critic` runs the same checks without pytest. A component with required
settings, or one that needs a certain task, names them in `Component(example=..., around=...)`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from attrs import frozen

from orchestrion._config.components import shaper_of
from orchestrion._config.shapes import UnsupportedError
from orchestrion._errors import OrchestrionError
from orchestrion._plugins import Found, Plugins
from orchestrion.config import from_data
from orchestrion.testing import _contracts as contracts
from orchestrion.testing._stage import NAME, Stage, Subject, opened

HEAVY = ("torch", "numpy", "scipy", "pandas", "sklearn", "transformers", "anthropic", "openai")
LIGHT_MESSAGE = (
    "importing the plugin module and the component modules imports {heavy}; import heavy "
    "libraries inside open(), or in a module imported there"
)


@frozen
class Check:
    """One named check of one component; `run` returns how many examples it tried, or raises."""

    component: str
    name: str
    run: Callable[[], int]


def checks(plugin: str, plugins: Plugins | None = None) -> Iterator[Check]:
    """Yield every check of every component that a plugin supplies."""
    plugins = plugins or Plugins()
    plugins.register(Stage(), NAME)
    loaded = plugins.load(plugins.get(plugin))
    kinds = plugins.kinds()
    components = [
        Found(kinds[kind], component, loaded.plugin)
        for kind, supplied in loaded.components.items()
        for component in supplied.values()
    ]
    if not components:
        return
    modules = sorted({loaded.plugin.value, *(found.component.path for found in components)})
    yield Check("plugin", "is light", lambda: _is_light([m.partition(":")[0] for m in modules]))
    for found in components:
        subject = Subject(plugins, found)
        label = f"{subject.kind} {found.component.name}"
        runs = {**_GENERIC, **contracts.CHECKS.get(subject.kind, {})}
        if _without_example(subject):  # the same failure for all that try it would hide the rest
            runs = {**_UNTRIED, "has an example": _has_an_example}
        for name, run in runs.items():
            yield Check(label, name, partial(run, subject))


def parametrize_with_checks(
    plugin: str, expected_failures: Mapping[str, str] | None = None
) -> Callable[[Any], Any]:
    """Return a pytest decorator: one test for each check of a plugin.

    Args:
        plugin: its name.
        expected_failures: reasons by the name of a check, or by "component: check"; such a check
            must fail.
    """
    import pytest

    reasons = dict(expected_failures or {})
    cases = []
    for check in checks(plugin):
        full = f"{check.component}: {check.name}"
        reason = reasons.get(full) or reasons.get(check.name)
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        cases.append(pytest.param(check, id=full, marks=marks))
    if not cases:
        raise AssertionError(f"plugin {plugin!r} supplies nothing to check")
    return pytest.mark.parametrize("check", cases)


# ---------------------------------------------------------------- what holds for all kinds


def _is_light(modules: list[str]) -> int:
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, (
        f"cannot be imported in a fresh process: {process.stderr[-800:]}"
    )
    heavy = json.loads(process.stdout.splitlines()[-1])
    assert not heavy, LIGHT_MESSAGE.format(heavy=", ".join(heavy))
    return 1


def _is_a_component(subject: Subject) -> int:
    cls: Any = subject.cls
    frozen_setattr = cls.__setattr__ is not object.__setattr__
    assert frozen_setattr, f"{cls.__qualname__} is not frozen; use @attrs.frozen"
    assert (cls.__doc__ or "").strip(), f"{cls.__qualname__} has no docstring"
    summary = subject.found.component.summary
    assert summary.strip(), "its Component has no summary"
    assert "\n" not in summary, "the summary of its Component is more than one line"
    return 1


def _has_settings(subject: Subject) -> int:
    try:
        settings = shaper_of(subject.plugins).settings(subject.cls, True)
    except UnsupportedError as error:
        raise AssertionError(f"a config cannot express its settings: {error}") from None
    undocumented = [setting.name for setting in settings if not setting.help]
    assert not undocumented, (
        f"no description of {', '.join(undocumented)}: add an Args: section to the docstring of "
        "the class"
    )
    return len(settings)


def _has_methods(subject: Subject) -> int:
    missing = [
        name
        for name in contracts.METHODS.get(subject.kind, ())
        if not callable(getattr(subject.cls, name, None)) and not hasattr(subject.cls, "open")
    ]
    assert not missing, (
        f"{subject.cls.__qualname__} has neither {', '.join(missing)} nor open(); write the "
        "methods, or an open() that yields an object with them"
    )
    return 1


def _round_trips(subject: Subject) -> int:
    # That settings survive whatever their values is a matter of core, and tested there; that its
    # defaults keep to its own annotations and validators is one of the component.
    config = subject.config()
    assert from_data(config.resolved(), plugins=subject.plugins).digest == config.digest, (
        "the resolved config with its example settings does not load again to an equal config"
    )
    return 1


def _opens_twice(subject: Subject) -> int:
    """Check that two openings share no state: what one learned is not in the other."""
    if subject.found.kind.observes:  # it is not opened, and a library of its may be missing here
        assert callable(getattr(subject.cls, "observe", None)), (
            f"{subject.cls.__qualname__} has no observe(); write one that returns an object with "
            "lifecycle hooks"
        )
        return 1

    if subject.kind == "executor":  # opened for each run; its own checks do that
        return 0

    async def both() -> None:
        config = subject.config()
        async with opened(config) as parts, opened(config) as others:
            first, second = parts.runtimes[subject.path], others.runtimes[subject.path]
            plain = first is config.components[subject.path].component
            assert plain or first is not second, "open() yielded the same object twice"

    try:
        asyncio.run(both())
    except OrchestrionError as error:
        raise AssertionError(f"it cannot be opened with its example settings: {error}") from error
    return 1


def _without_example(subject: Subject) -> list[str]:
    """Return the required settings that the component's example leaves out."""
    try:
        settings = shaper_of(subject.plugins).settings(subject.cls, True)
    except (OrchestrionError, UnsupportedError):  # a check says so
        return []
    example = subject.found.component.example
    return [
        setting.name for setting in settings if setting.required and setting.name not in example
    ]


def _has_an_example(subject: Subject) -> int:
    component = subject.found.component
    values = ", ".join(f'"{name}": ...' for name in _without_example(subject))
    raise AssertionError(
        "nothing else was checked: settings that are required need values to be checked with; give "
        f"them where the plugin names the component: Component({component.name!r}, ..., "
        f"example={{{values}}})"
    )


_UNTRIED: Mapping[str, Callable[[Subject], int]] = {
    "is a frozen, documented class": _is_a_component,
    "describes its settings": _has_settings,
    "has the methods of its kind": _has_methods,
}
_GENERIC: Mapping[str, Callable[[Subject], int]] = {
    **_UNTRIED,
    "settings survive a round trip": _round_trips,
    "opens twice without shared state": _opens_twice,
}
