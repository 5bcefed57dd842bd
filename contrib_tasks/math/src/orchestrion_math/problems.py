"""Problems from files in the public forms of GSM8K and MATH.

GSM8K   {"question", "answer"}, the answer's last line is "#### 18"; JSON lines
MATH    {"problem", "solution"} with the answer in the solution's last box, and perhaps
        {"answer", "subject" or "type", "level", "unique_id"}; JSON lines, or a folder with one
        problem a file (*.json)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrion_prompted import read_response

from orchestrion import Problem, UsageError
from orchestrion_math.equality import normal

_MARKED = re.compile(r"^####\s*(\S.*)$", re.M)
SHOWN = 10
"""The most mistakes that an error lists."""


def load(path: Path) -> tuple[Problem, ...]:
    """Return the different problems of a file or a folder.

    Raises:
        UsageError: something cannot be read, or has another form, or a question has two answers;
            names file and line.
    """
    problems: dict[str, tuple[Problem, str]] = {}
    wrong: list[str] = []
    for place, text, name in _rows(path):
        try:
            problem = _problem(text, name)
        except ValueError as error:
            wrong.append(f"{place}: {error}")
        else:
            before, where = problems.setdefault(problem.text, (problem, place))
            if normal(_answer(before)) != normal(_answer(problem)):
                wrong.append(f"{place}: has another answer than {where}, with the same question")
    if wrong:
        more = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise UsageError("\n  ".join([f"{path}: {len(wrong)} wrong", *wrong[:SHOWN]]) + more)
    if not problems:
        raise UsageError(f"{path}: no problem in it; want *.jsonl, or a folder of *.json")
    return tuple(problem for problem, _ in problems.values())


def _answer(problem: Problem) -> str:
    assert isinstance(problem.hidden, dict)
    return str(problem.hidden["answer"])


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield place, JSON text and name of every problem."""
    files = sorted(path.rglob("*.json*")) if path.is_dir() else [path]
    for file in files:
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file}: cannot be read: {error}") from error
        name = file.relative_to(path).with_suffix("").as_posix() if path.is_dir() else file.stem
        if file.suffix == ".json":
            yield str(file), text, name
        else:
            for number, line in enumerate(text.split("\n"), 1):
                if line.strip():
                    yield f"{file}:{number}", line, f"{name}-{number}"


def _problem(line: str, name: str) -> Problem:
    try:
        row = json.loads(line)
        if r"\ud" in line.lower():  # half of a pair of surrogates is no character
            json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"is a {type(row).__name__}; want an object")
    if "problem" in row:
        return _math(row, name)
    if "question" in row:
        return _gsm8k(row, name)
    raise ValueError(
        'has neither "problem" (as MATH has) nor "question" (as GSM8K has), but '
        + (", ".join(map(repr, list(row)[:8])) or "nothing")
    )


def _gsm8k(row: Mapping[str, Any], name: str) -> Problem:
    answer = _text(row, "answer")
    marked = _MARKED.findall(answer)
    if not marked:
        raise ValueError('"answer" has no last line "#### ..."')
    return Problem(name, _text(row, "question"), hidden={"answer": marked[-1].strip()})


def _math(row: Mapping[str, Any], name: str) -> Problem:
    given = row.get("answer")
    if isinstance(given, bool | list | dict) or (
        isinstance(given, float) and not math.isfinite(given)
    ):
        raise ValueError(f'"answer" is {given!r:.80}; want text or a number')
    answer = str(given) if given is not None else read_response(_text(row, "solution"), "boxed")
    if not answer or not answer.strip():
        raise ValueError('has no "answer", and no \\boxed{...} in its "solution"')
    return Problem(
        str(row.get("unique_id") or name),
        _text(row, "problem"),
        data={"level": row["level"]} if isinstance(row.get("level"), str | int) else None,
        category=str(row.get("subject") or row.get("type") or ""),
        hidden={"answer": answer.strip()},
    )


def _text(row: Mapping[str, Any], name: str) -> str:
    text = row.get(name)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f'"{name}" is missing, or no text')
    return text
