"""`orchestrion check`: the conformance checks, without pytest."""

from __future__ import annotations

import time
from typing import Any

import click

from orchestrion._cli.common import answer, emit, json_option, plugins_of
from orchestrion._interrupts import from_outside

FINDINGS = 3
"""Exit code when a check fails."""


@click.command("check")
@click.argument("names", metavar="PLUGIN...", nargs=-1, required=True)
@json_option
def command(names: tuple[str, ...], as_json: bool) -> int:
    """Check that every component of PLUGIN keeps the contract of its kind.

    Prints a line for each check, and exits with 3 if one fails.
    """
    from orchestrion.testing._kit import checks

    plugins = plugins_of()
    results: list[dict[str, Any]] = []
    for name in names:
        plugin = plugins.get(name)
        plugins.load(plugin)
        checked = [_run(plugin.name, check, as_json) for check in checks(plugin.name)]
        results += checked or [
            _result(plugin.name, "", "supplies something to check", "it supplies nothing")
        ]
    failed = [result for result in results if not result["ok"]]
    if as_json:
        emit({"ok": not failed, "checks": results})
    else:
        _print_totals(results, failed)
    return FINDINGS if failed else 0


def _run(plugin: str, check: Any, quiet: bool) -> dict[str, Any]:
    started = time.perf_counter()
    problem, examples = "", None
    try:
        examples = check.run()
    # BaseException: a component that calls sys.exit() fails its check only.
    except BaseException as exc:
        if isinstance(exc, KeyboardInterrupt) and from_outside(exc):
            raise
        problem = str(exc).strip() or type(exc).__name__
        if not isinstance(exc, AssertionError):
            problem = f"{type(exc).__name__}: {problem}"
    result = _result(plugin, str(check.component), str(check.name), problem)
    result["seconds"] = round(time.perf_counter() - started, 3)
    result["examples"] = examples if isinstance(examples, int) else None
    if not quiet:
        mark = "ok  " if result["ok"] else "FAIL"
        click.echo(f"{mark} {plugin} {result['component']} {result['check']}")
        answer(*(f"       {line}" for line in problem.splitlines()))
    return result


def _result(plugin: str, component: str, check: str, problem: str) -> dict[str, Any]:
    return {
        "plugin": plugin,
        "component": component,
        "check": check,
        "ok": not problem,
        "problem": problem,
    }


def _print_totals(results: list[dict[str, Any]], failed: list[dict[str, Any]]) -> None:
    seconds = sum(result.get("seconds", 0.0) for result in results)
    examples = sum(result.get("examples") or 0 for result in results)
    # The check of the plugin itself is not one of a component.
    components = {(r["plugin"], r["component"]) for r in results if r["component"] != "plugin"}
    click.echo(
        f"{len(results)} checks of {len(components)} components, {examples} examples, "
        f"{seconds:.1f} s: {len(failed) or 'none'} failed"
    )
