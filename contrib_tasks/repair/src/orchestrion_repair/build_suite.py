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

Every mistake is verified: it must compile, differ from the correct syntax tree, fail at least one
visible and one hidden case, and be one edit away from the correct source, or not if its kind says
so (`UNMENDABLE`). Sources run here in this process, cut off after a number
of lines, which is safe only because they are our own. A mistake may loop for ever, but not grow
numbers or lists without bound, which would slow down whoever runs it: it is refused.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tomllib
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from orchestrion import JSON
from orchestrion_repair.bug import same
from orchestrion_repair.harness import plain
from orchestrion_repair.one_edit import one_edit, shape
from orchestrion_repair.suite import KINDS, SPLITS, UNMENDABLE, patched

MOST_LINES = 4_000
"""A call that runs more lines than this counts as endless; honest ones stay below a quarter."""

MOST_SECONDS = 1.0
"""CPU time in which any call has ended or been cut off."""

VISIBLE, HIDDEN, BUGS = range(5, 9), range(8, 15), 4
"""How many cases a function has, and how many mistakes at least."""

SEVERAL = UNMENDABLE | {"misplaced statement"}
"""Kinds that may need several patches."""

Edit = tuple[int, int, str]


class BuildError(Exception):
    """A function or a mistake is not as it must be."""


class Endless(BaseException):
    """Raised in a call that runs too many lines; no handler in the code under test catches it."""


class Growing(BaseException):
    """Raised in a call whose lines are few, but slow."""


def build(folder: Path, verify: bool = True) -> dict[str, JSON]:
    """The content of suite.json.

    Args:
        folder: of the files that describe it.
        verify: run every mistake; without, only the correct sources run, which is quick.

    Raises:
        BuildError: with everything that is wrong.
    """
    functions, problems = [], []
    for path in sorted(folder.glob("*.toml")):
        for name, table in tomllib.loads(path.read_text("utf-8")).items():
            try:
                functions.append(_function(name, path.stem, table, verify))
            except BuildError as error:
                problems.append(f"{path.name}, {name}: {error}")
    if problems:
        raise BuildError("\n".join(problems))
    return {"functions": functions}


def _function(name: str, category: str, table: dict[str, str], verify: bool) -> dict[str, JSON]:
    source = table["source"].strip("\n") + "\n"
    if table["split"] not in SPLITS:
        raise BuildError(f"split is {table['split']!r}")
    visible = [[args, wanted(source, name, args)] for args in _stream(table["visible"])]
    hidden = [[args, wanted(source, name, args)] for args in _stream(table["hidden"])]
    if len(visible) not in VISIBLE or len(hidden) not in HIDDEN:
        raise BuildError(f"{len(visible)} visible and {len(hidden)} hidden cases")
    shown = [json.dumps(args) for args, _ in visible + hidden]
    if len(set(shown)) < len(shown):
        raise BuildError(f"equal cases: {sorted(a for a in shown if shown.count(a) > 1)}")
    bugs = _bugs(table["bugs"], source, name, (visible, hidden) if verify else ())
    trees = [shape(patched(source, bug["edits"])) for bug in bugs]
    if len(bugs) < BUGS or len(set(trees)) < len(trees):
        raise BuildError(f"{len(bugs)} mistakes, {len(set(trees))} of them different")
    return {
        "name": name,
        "category": category,
        "split": table["split"],
        "source": source,
        "visible": visible,
        "hidden": hidden,
        "bugs": bugs,
    }


def _stream(text: str) -> Iterator[list[JSON]]:
    """JSON values written one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while match := re.compile(r"\s*(?=\S)").match(text, at):
        value, at = decoder.raw_decode(text, match.end())
        yield value


def wanted(source: str, name: str, args: list[JSON]) -> JSON:
    """What the correct source gives."""
    try:
        value = plain(call(source, name, args))
    except (Exception, Endless, Growing) as error:
        raise BuildError(f"{args}: {type(error).__name__} {error}") from None
    if not same(json.loads(json.dumps(value)), value):
        raise BuildError(f"{args}: the result {value!r} is no JSON")
    return value


def _bugs(
    text: str, source: str, name: str, cases: Sequence[list[list[JSON]]]
) -> list[dict[str, Any]]:
    bugs, problems = [], []
    for line in text.strip().split("\n"):
        try:
            bug = _bug(line, source)
            _verify(patched(source, bug["edits"]), name, cases)
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
    if shape(code) == shape(source):
        raise BuildError("changes nothing")
    if len(edits) > 1 and kind not in SEVERAL:
        raise BuildError(f"several patches, but not one of {sorted(SEVERAL)}")
    if one_edit(code, source) == (kind in UNMENDABLE):
        raise BuildError("one edit" if kind in UNMENDABLE else "not one edit")
    return {"kind": kind, "edits": [list(edit) for edit in edits]}


def _verify(code: str, name: str, cases: Sequence[list[list[JSON]]]) -> None:
    """Visible cases must notice the mistake, and so must hidden ones."""
    for word, some in zip(("visible", "hidden"), cases, strict=False):
        try:
            unnoticed = all(passes(code, name, args, want) for args, want in some)
        except Growing as error:
            raise BuildError(str(error)) from None
        if unnoticed:
            raise BuildError(f"no {word} case notices")


def _edit(text: str, source: str) -> Edit:
    old, arrow, new = text.partition(" ==>")
    if not arrow:
        raise BuildError(f"{text!r}: no ==>")
    new, to_end, old = new.removeprefix(" "), old.endswith("…"), old.removesuffix("…")
    places = [(at, _laid_out(old, source, at)) for at in _starts(old, source)]
    spans = [(at, at + len(whole)) for at, whole in places if source.startswith(whole, at)]
    if len(spans) != 1:
        raise BuildError(f"{text!r}: {len(spans)} places")
    start, end = spans[0][0], len(source) - 1 if to_end else spans[0][1]
    replacement = _laid_out(new, source, start)
    line_start = source.rfind("\n", 0, start) + 1
    if not new and not source[line_start:start].strip() and source[end] == "\n":
        return line_start, end + 1, ""
    return start, end, replacement


def _starts(old: str, source: str) -> Iterator[int]:
    first = re.escape(old.partition("¶")[0])
    return (match.start() for match in re.finditer(first, source))


def _laid_out(snippet: str, source: str, at: int) -> str:
    """The snippet with pilcrows made line breaks, indented like the line around `at`."""
    line = source[source.rfind("\n", 0, at) + 1 :]
    indent = len(line) - len(line.lstrip(" "))
    first, *rest = snippet.split("¶")
    for part in rest:
        body = part.lstrip("<>")
        marks = part[: len(part) - len(body)]
        depth = indent + 4 * (marks.count(">") - marks.count("<"))
        first += "\n" + (" " * depth + body if body else "")
    return first


def passes(code: str, name: str, args: list[JSON], want: JSON) -> bool:
    """Whether a case passes; any error or endless run is a failure."""
    try:
        return same(call(code, name, args), want)
    except (Exception, Endless):
        return False


def call(code: str, name: str, args: list[JSON]) -> Any:
    """The entry point's result, as JSON would hold it, in a fresh namespace."""
    namespace: dict[str, Any] = {"__name__": "candidate"}
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != "<candidate>":
            return None
        count += 1
        if count > MOST_LINES:
            raise Endless
        return trace

    exec(_compiled(code), namespace)
    before = sys.gettrace()
    sys.settrace(trace)
    signal.signal(signal.SIGVTALRM, _too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        return plain(namespace[name](*deepcopy(args)))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.settrace(before)


@lru_cache(maxsize=8)
def _compiled(code: str) -> CodeType:
    return compile(code, "<candidate>", "exec")


def _too_slow(number: int, frame: FrameType | None) -> None:
    where = f"{frame.f_code.co_name}, line {frame.f_lineno}" if frame else "somewhere"
    raise Growing(f"a few lines take over {MOST_SECONDS} s: something grows ({where})")


def text_of(content: dict[str, JSON]) -> str:
    """suite.json's text: one function a line, so that a change shows where it is."""
    rows = [json.dumps(function, ensure_ascii=False) for function in content["functions"]]
    return '{"functions": [\n' + ",\n".join(rows) + "\n]}\n"


def main(arguments: list[str]) -> int:
    """Write or check the file; 0 if all is well."""
    folder = Path(__file__).parent / "suite_data"
    target = folder / "suite.json"
    try:
        text = text_of(build(folder))
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
