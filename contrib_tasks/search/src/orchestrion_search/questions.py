"""Questions and their corpus from files in the form of HotpotQA.

A file is a JSON list, or one question a line:

    {"question", "answer", "context": [[title, [sentence, ...]], ...]}

and optionally "_id", "type", "level" and "supporting_facts": [[title, number of sentence], ...].
The paragraphs of all questions are the corpus. "context" can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from orchestrion import Problem, UsageError
from orchestrion_search.answers import normal
from orchestrion_search.documents import Document, read_json, read_text

SHOWN = 10
"""The most mistakes that an error lists."""


@frozen
class Questions:
    """Questions, and the documents to search for their answers."""

    problems: tuple[Problem, ...]
    documents: tuple[Document, ...]


def load(path: Path) -> Questions:
    """Return the different questions of a file.

    Raises:
        UsageError: something has another form; names the line, or the question's number.
    """
    problems: dict[str, Problem] = {}
    documents: list[Document] = []
    wrong: list[str] = []
    for place, name, row in _rows(path, wrong):
        try:
            problem, context = _question(row, name)
        except (ValueError, TypeError, KeyError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            wrong.append(f"{place}: {reason}")
        else:
            problems.setdefault(problem.text, problem)
            documents += context
    if wrong:
        more = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise UsageError("\n  ".join([f"{path}: {len(wrong)} wrong", *wrong[:SHOWN]]) + more)
    if not problems:
        raise UsageError(f"{path}: no question in it")
    return Questions(tuple(problems.values()), tuple(dict.fromkeys(documents)))


def _rows(path: Path, wrong: list[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield place, name and content of every question."""
    text = read_text(path)
    if path.suffix == ".jsonl":
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    yield f"{path}:{number}", f"{path.stem}-{number}", read_json(line)
                except ValueError as error:
                    wrong.append(f"{path}:{number}: is not JSON: {error}")
        return
    try:
        rows = read_json(text)
    except ValueError as error:
        raise UsageError(f"{path}: is not JSON: {error}") from error
    if not isinstance(rows, list):
        raise UsageError(f"{path}: is a {type(rows).__name__}; want a list of questions")
    for number, row in enumerate(rows, 1):
        yield f"{path}, question {number}", f"{path.stem}-{number}", row


def _question(row: Any, name: str) -> tuple[Problem, list[Document]]:
    if not isinstance(row, dict):
        raise TypeError(f"is a {type(row).__name__}; want an object")
    text, answer = row["question"], row["answer"]
    if not isinstance(text, str) or not text.strip():
        raise TypeError("'question' is no text")
    if not isinstance(answer, str) or not answer.strip():
        raise TypeError("'answer' is no text")
    if not normal(answer):
        raise ValueError(f"'answer' has no letter or digit, and cannot be given: {answer!r:.80}")
    facts = row.get("supporting_facts") or []
    if not all(isinstance(entry, list) and entry and isinstance(entry[0], str) for entry in facts):
        raise TypeError("'supporting_facts': want [[title, number], ...]")
    titles = list(dict.fromkeys(entry[0] for entry in facts))
    hidden = {"answers": [answer], "documents": titles}
    category = str(row.get("type") or "")
    problem = Problem(str(row.get("_id") or name), text, category=category, hidden=hidden)
    return problem, [_paragraph(entry) for entry in row.get("context") or ()]


def _paragraph(given: Any) -> Document:
    match given:
        case [str(title), [*sentences]] if all(isinstance(sentence, str) for sentence in sentences):
            return Document(title, "".join(sentences).strip())
    raise TypeError("'context': want [[title, [sentence, ...]], ...]")
