"""Questions in the form of HotpotQA: read, divided, and mistakes named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from orchestrion_search.documents import Document, read_corpus
from orchestrion_search.questions import load
from orchestrion_search.task import Search

from orchestrion import SplitShares, UsageError


def row(n: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "_id": f"id{n}",
        "question": f"Where was the director of film {n} born?",
        "answer": "Leland",
        "type": "bridge",
        "supporting_facts": [[f"Film {n}", 0], ["Director", 1]],
        "context": [
            [f"Film {n}", ["It was directed by Bo.", " It is long."]],
            ["Director", ["Bo directs.", " Bo was born in Leland."]],
        ],
        **more,
    }


def test_contexts_become_the_corpus(tmp_path: Path) -> None:
    path = tmp_path / "hotpot.json"
    path.write_text(json.dumps([row(0), row(1)]))
    found = load(path)
    assert found.problems[0].hidden == {"answers": ["Leland"], "documents": ["Film 0", "Director"]}
    assert (found.problems[0].id, found.problems[0].category) == ("id0", "bridge")
    assert found.documents == (
        Document("Film 0", "It was directed by Bo. It is long."),
        Document("Director", "Bo directs. Bo was born in Leland."),
        Document("Film 1", "It was directed by Bo. It is long."),
    )


def test_one_question_a_line_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "hotpot.jsonl"
    path.write_text(f"{json.dumps(row(0))}\n\n{json.dumps(row(1))}\n")
    assert len(load(path).problems) == 2
    path.write_text(f"{json.dumps(row(0))}\n{{\n")
    with pytest.raises(UsageError, match=r"hotpot\.jsonl:2: is not JSON"):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "maximum recursion depth"),
        ('{"title": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_json_that_no_record_can_hold_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{text}\n")
    for read in (load, read_corpus):
        with pytest.raises(UsageError, match=rf"rows\.jsonl:1: .*{message}"):
            read(path)
    path.rename(tmp_path / "rows.json")
    with pytest.raises(UsageError, match=message):
        load(tmp_path / "rows.json")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"question": None}, "'question' is no text"),
        ({"answer": " "}, "'answer' is no text"),
        ({"answer": "?!"}, "'answer' has no letter or digit"),
        ({"context": [["only a title"]]}, r"'context': want \[\[title"),
        ({"context": [["t", "no list"]]}, r"'context': want \[\[title"),
        ({"supporting_facts": [1]}, "'supporting_facts': want"),
    ],
)
def test_a_mistake_is_named_with_the_question(
    tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    path = tmp_path / "hotpot.json"
    path.write_text(json.dumps([row(0), row(1, **wrong)]))
    with pytest.raises(UsageError, match=f"question 2: {said}"):
        load(path)


def test_files_that_are_no_list_or_have_no_question_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "hotpot.json"
    for text, said in (("{}", "is a dict"), ("[]", "no question"), ("[", "is not JSON")):
        path.write_text(text)
        with pytest.raises(UsageError, match=said):
            load(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "none.json")


def test_questions_without_context_need_a_corpus_or_a_retriever(tmp_path: Path) -> None:
    path, corpus = tmp_path / "questions.json", tmp_path / "corpus.jsonl"
    path.write_text(json.dumps([{"question": f"Who is {n}?", "answer": "Bo"} for n in range(9)]))
    corpus.write_text('{"title": "A", "text": "page"}\n')
    with pytest.raises(UsageError, match=r"questions\.json: no question has a `context`: give a"):
        Search(source=path).read()
    assert Search(source=path, retriever="library").read()[1] == ()
    assert Search(source=path, corpus=corpus).read()[1] == (Document("A", "page"),)


def test_questions_are_divided_and_a_test_file_keeps_its_own(tmp_path: Path) -> None:
    train, test, more = (tmp_path / name for name in ("train.json", "dev.json", "more.jsonl"))
    train.write_text(json.dumps([row(n) for n in range(60)]))
    test.write_text(json.dumps([row(n) for n in range(5)]))
    more.write_text('{"title": "Another", "text": "page"}\n')
    task = Search(
        source=train, test=test, corpus=more, split=SplitShares(train=0.8, validation=0.2, test=0.0)
    )
    divided, documents = task.read()
    texts = [one.text for found in divided.values() for one in found]
    assert len(texts) == len(set(texts)) == 60
    assert len(divided["test"]) == 5
    assert Document("Another", "page") in documents
    assert len(documents) == len(set(documents)) == 62
