"""Compute `suite_data/suite.json` from the functions and mistakes in `suite_data/*.toml`.

    python -m orchestrion_repair.build_suite           # write the file
    python -m orchestrion_repair.build_suite --check   # fail if it is not what would be written

A file holds the functions of one category, each a table named after its entry point:

    [rotate_left]
    split = "train"
    source = '''...'''     the correct source
    visible = '''...'''    argument lists in JSON, one after the other
    hidden = '''...'''
    bugs = '''...'''       one mistake a line: `kind: old ==> new`

`old` stands exactly once in the source. A pilcrow is a new line with the indentation of the line
in which `old` starts; `>` and `<` behind it indent four spaces more or less. `old…` goes on to the
end of the source. An empty `new` deletes, and an emptied line goes with it. A mistake in several
places joins its patches with ` ;; `.

Every mistake is verified, in the sandbox: it must compile, differ from the correct syntax tree, and
fail at least one visible and one hidden case. A mistake may loop for ever, but not grow numbers or
lists without bound, which would slow down whoever runs it: it is refused.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from orchestrion_sandbox.inside.plain import decode

from orchestrion import JSON
from orchestrion_repair.bug import Case, same
from orchestrion_repair.harness import plain
from orchestrion_repair.runner import Runner, shared_runner
from orchestrion_repair.suite import KINDS, SPLITS, UNMENDABLE, patched
from orchestrion_repair.trial import ProgramTrial, RepairLimits

LIMITS = RepairLimits(steps=4_000, cpu_seconds=1)
"""A call that takes more steps counts as endless; honest ones stay below a quarter."""

GROWING = frozenset({"OutOfTime", "MemoryError", "BadReply", "Crash"})
"""What ends a call whose steps are few, but slow or large."""

VISIBLE, HIDDEN, BUGS = range(5, 9), range(8, 15), 4
"""How many cases a function has, and how many mistakes at least."""

SEVERAL = UNMENDABLE | {"misplaced statement"}
"""Kinds that may need several patches."""

Edit = tuple[int, int, str]


class BuildError(Exception):
    """A function or a mistake is not as it must be."""


async def build(folder: Path, runner: Runner) -> dict[str, JSON]:
    """Return the content of suite.json, from the files in a folder.

    Raises:
        BuildError: with everything that is wrong.
    """
    functions, problems = [], []
    for category, name, table in _tables(folder):
        try:
            functions.append(await _function(name, category, table, runner))
        except BuildError as error:
            problems.append(f"{category}.toml, {name}: {error}")
    if problems:
        raise BuildError("\n".join(problems))
    return {"functions": functions}


def _tables(folder: Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the category, the name and the table of every function."""
    for path in sorted(folder.glob("*.toml")):
        for name, table in tomllib.loads(path.read_text("utf-8")).items():
            yield path.stem, name, table


async def _function(
    name: str, category: str, table: dict[str, str], runner: Runner
) -> dict[str, JSON]:
    source = table["source"].strip("\n") + "\n"
    if table["split"] not in SPLITS:
        raise BuildError(f"split is {table['split']!r}")
    visible = await _wanted(source, name, list(_stream(table["visible"])), runner)
    hidden = await _wanted(source, name, list(_stream(table["hidden"])), runner)
    if len(visible) not in VISIBLE or len(hidden) not in HIDDEN:
        raise BuildError(f"{len(visible)} visible and {len(hidden)} hidden cases")
    shown = [json.dumps(case.args) for case in (*visible, *hidden)]
    if len(set(shown)) < len(shown):
        raise BuildError(f"equal cases: {sorted(a for a in shown if shown.count(a) > 1)}")
    bugs = await _bugs(table["bugs"], source, name, (visible, hidden), runner)
    trees = [_tree(patched(source, bug["edits"])) for bug in bugs]
    if len(bugs) < BUGS or len(set(trees)) < len(trees):
        raise BuildError(f"{len(bugs)} mistakes, {len(set(trees))} of them different")
    return {
        "name": name,
        "category": category,
        "split": table["split"],
        "source": source,
        "visible": [[list(case.args), case.want] for case in visible],
        "hidden": [[list(case.args), case.want] for case in hidden],
        "bugs": bugs,
    }


def _stream(text: str) -> Iterator[list[JSON]]:
    """Yield JSON values that are written one after the other."""
    while text := text.lstrip():
        value, end = json.JSONDecoder().raw_decode(text)
        text = text[end:]
        yield value


async def _wanted(
    source: str, name: str, calls: Sequence[list[JSON]], runner: Runner
) -> list[Case]:
    """Return the cases of these calls, with what the correct source gives."""
    trial = ProgramTrial(source, name, tuple(Case(tuple(args)) for args in calls))
    [outcomes] = await runner.run([trial], LIMITS)
    cases = []
    for args, outcome in zip(calls, outcomes, strict=True):
        if outcome.error:
            raise BuildError(f"{args}: {outcome.error} {outcome.text}")
        value = plain(decode(outcome.got))
        if not same(json.loads(json.dumps(value)), value):
            raise BuildError(f"{args}: the result {value!r} is no JSON")
        cases.append(Case(tuple(args), value))
    return cases


async def _bugs(
    text: str, source: str, name: str, cases: Sequence[list[Case]], runner: Runner
) -> list[dict[str, Any]]:
    """Return the mistakes, each verified."""
    bugs, problems = [], []
    for line in text.strip().split("\n"):
        try:
            bug = _bug(line, source)
            await _verify(patched(source, bug["edits"]), name, cases, runner)
            bugs.append(bug)
        except BuildError as error:
            problems.append(f"{line!r}: {error}")
    if problems:
        raise BuildError("\n  ".join(problems))
    return bugs


def _bug(line: str, source: str) -> dict[str, Any]:
    kind, _, patches = line.partition(": ")
    if kind not in KINDS:
        raise BuildError("no such kind")
    edits = sorted(_edit(text, source) for text in patches.split(" ;; "))
    code = patched(source, edits)
    try:
        compile(code, "<candidate>", "exec")
    except SyntaxError as error:
        raise BuildError(f"{error}\n{code}") from None
    if _tree(code) == _tree(source):
        raise BuildError("changes nothing")
    if len(edits) > 1 and kind not in SEVERAL:
        raise BuildError(f"several patches, but not one of {sorted(SEVERAL)}")
    return {"kind": kind, "edits": [list(edit) for edit in edits]}


def _tree(code: str) -> str:
    """Return a text that two sources share if they differ in comments and layout only."""
    return ast.dump(ast.parse(code))


async def _verify(code: str, name: str, cases: Sequence[list[Case]], runner: Runner) -> None:
    """Check that visible cases notice the mistake, and hidden ones too."""
    trials = [ProgramTrial(code, name, tuple(part)) for part in cases]
    reports = await runner.run(trials, LIMITS)
    for word, outcomes in zip(("visible", "hidden"), reports, strict=True):
        if slow := [outcome.error for outcome in outcomes if outcome.error in GROWING]:
            raise BuildError(f"few steps take too long or too much: something grows ({slow[0]})")
        if all(outcome.passed for outcome in outcomes):
            raise BuildError(f"no {word} case notices")


def _edit(text: str, source: str) -> Edit:
    old, arrow, new = text.partition(" ==>")
    if not arrow:
        raise BuildError(f"{text!r}: no ==>")
    new, to_end, old = new.removeprefix(" "), old.endswith("…"), old.removesuffix("…")
    first = re.escape(old.partition("¶")[0])
    starts = [match.start() for match in re.finditer(first, source)]
    starts = [at for at in starts if source.startswith(_laid_out(old, source, at), at)]
    if len(starts) != 1:
        raise BuildError(f"{text!r}: {len(starts)} places")
    [start] = starts
    end = len(source) - 1 if to_end else start + len(_laid_out(old, source, start))
    line_start = source.rfind("\n", 0, start) + 1
    if not new and not source[line_start:start].strip() and source[end] == "\n":
        return line_start, end + 1, ""
    return start, end, _laid_out(new, source, start)


def _laid_out(snippet: str, source: str, at: int) -> str:
    """Return the snippet with pilcrows made line breaks, indented like the line around `at`."""
    line = source[source.rfind("\n", 0, at) + 1 :]
    indent = len(line) - len(line.lstrip(" "))
    first, *rest = snippet.split("¶")
    for part in rest:
        body = part.lstrip("<>")
        marks = part[: len(part) - len(body)]
        depth = indent + 4 * (marks.count(">") - marks.count("<"))
        first += "\n" + (" " * depth + body if body else "")
    return first


def text_of(content: dict[str, JSON]) -> str:
    """Return the text of suite.json: one function a line, so that a change shows where it is."""
    rows = [json.dumps(function, ensure_ascii=False) for function in content["functions"]]
    return '{"functions": [\n' + ",\n".join(rows) + "\n]}\n"


async def _built(folder: Path) -> dict[str, JSON]:
    async with shared_runner() as runner:
        return await build(folder, runner)


def main(arguments: list[str]) -> int:
    """Write or check the file; 0 if all is well."""
    folder = Path(__file__).parent / "suite_data"
    target = folder / "suite.json"
    try:
        text = text_of(asyncio.run(_built(folder)))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    if "--check" in arguments:
        current = target.exists() and target.read_text("utf-8") == text
        print(f"{target.name}: {'up to date' if current else 'not what the sources give'}")
        return 0 if current else 1
    target.write_text(text, "utf-8")
    print(f"{target.name}: {len(json.loads(text)['functions'])} functions")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
