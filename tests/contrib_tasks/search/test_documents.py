"""Retrieval: what is found, in which order, and that an index that breaks says so."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_search.dense import Dense
from orchestrion_search.documents import Bm25, Document, read_corpus
from orchestrion_search.task import Search

from orchestrion import UsageError

CORPUS = (
    Document("Ada Lum", "The mother of Ada Lum is Bea Tor. She plays chess."),
    Document("Bea Tor", "The mother of Bea Tor is Cleo Fin."),
    Document("Chess", "A game for two; the queens move far."),
    Document("Chess", "A game for two; the queens move far. Again."),
)


def titles(query: str, results: int = 3) -> list[str]:
    index = Bm25(CORPUS)
    try:
        return [one.title for one in index.search(query, results)]
    finally:
        index.close()


def test_the_best_documents_come_first() -> None:
    assert titles("mother of Ada Lum")[0] == "Ada Lum"
    assert titles("who is Bea Tor?")[0] == "Bea Tor", "a title counts more than a text"
    assert titles("ADA lüm") == ["Ada Lum"], "case and accents do not matter"
    assert titles("queen moving")[0] == "Chess", "nor do endings"


def test_as_many_are_found_as_were_wanted_and_fit() -> None:
    assert len(titles("chess", 1)) == 1
    assert titles("nothing like that") == titles("", 3) == titles("?!") == []


def test_equally_good_ones_keep_the_order_of_the_corpus() -> None:
    twins = tuple(Document(f"t{i}", "the same words") for i in range(50))
    index = Bm25(twins)
    assert index.search("same words", 50) == twins
    index.close()


@given(st.text(max_size=200))
def test_any_text_is_a_query_and_none_an_instruction(query: str) -> None:
    index = Bm25(CORPUS)
    found = index.search(query, 2)
    assert found == index.search(query, 2)
    assert set(found) <= set(CORPUS)
    index.close()


@pytest.mark.parametrize(
    "query", ['chess" OR "mother', "chess AND NOT", "title:chess*", "NEAR(a b", "'; DROP TABLE x"]
)
def test_operators_of_the_query_language_are_words(query: str) -> None:
    assert all(one in ("Chess", "Ada Lum", "Bea Tor") for one in titles(query))


def test_a_corpus_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"title": "A", "text": "b"}\n\n{"title": "C", "text": "d"}\n')
    assert read_corpus(path) == (Document("A", "b"), Document("C", "d"))
    path.write_text('{"title": "A", "text": "b"}\n{"title": "C"}\n')
    with pytest.raises(UsageError, match=r"corpus\.jsonl:2: want"):
        read_corpus(path)


class Encoder:
    """Counts letters: texts of the same letters mean the same. Remembers what it encoded."""

    encoded: ClassVar[list[tuple[str, str | None, int]]] = []

    def __init__(self, path: str) -> None:
        assert path == "folder/of/encoder"

    def _encode(self, kind: str, texts: list[str], options: dict[str, Any]) -> np.ndarray[Any, Any]:
        assert options["normalize_embeddings"]
        self.encoded.append((kind, options["prompt"], len(texts)))
        rows = np.array([[text.lower().count(c) for c in "abcdefghij"] for text in texts], float)
        unit: np.ndarray[Any, Any] = rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-9)
        return unit

    def encode_query(self, texts: list[str], **options: Any) -> np.ndarray[Any, Any]:
        return self._encode("query", texts, options)

    def encode_document(self, texts: list[str], **options: Any) -> np.ndarray[Any, Any]:
        return self._encode("document", texts, options)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None, int]]:
    """What the encoder was asked for: query or document, the prompt, how many texts."""
    library = ModuleType("sentence_transformers")
    library.SentenceTransformer = Encoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    monkeypatch.setattr(Encoder, "encoded", [])
    return Encoder.encoded


LETTERS = [Document("aab", ""), Document("ccd", ""), Document("aabb", "")]


def test_dense_retrieval_goes_by_nearness(encoded: list[tuple[str, str | None, int]]) -> None:
    index = Dense(LETTERS, "folder/of/encoder", "query: ", "passage: ")
    assert [document.title for document in index.search("baa", 2)] == ["aab", "aabb"]
    assert index.search("  ", 2) == ()
    assert encoded == [("document", "passage: ", 3), ("query", "query: ", 1)]


def test_a_corpus_is_encoded_once_if_its_embeddings_are_kept(
    encoded: list[tuple[str, str | None, int]], tmp_path: Path
) -> None:
    for _ in range(2):
        index = Dense(LETTERS, "folder/of/encoder", index=tmp_path / "kept")
        assert [document.title for document in index.search("dcc", 1)] == ["ccd"]
    # A probe each time, which tells one encoder from another; the corpus once.
    assert [count for kind, _, count in encoded if kind == "document"] == [1, 3, 1]
    Dense(LETTERS[:2], "folder/of/encoder", index=tmp_path / "kept")
    assert [count for kind, _, count in encoded if kind == "document"][-1] == 2


def test_a_graph_finds_nearly_all_of_the_nearest_and_is_built_once(
    encoded: list[tuple[str, str | None, int]], tmp_path: Path
) -> None:
    draw = np.random.default_rng(5)
    texts = ["".join(draw.choice(list("abcdefghij"), 24)) for _ in range(3000)]
    corpus = [Document(f"{number}:{text}", "") for number, text in enumerate(texts)]
    exact = Dense(corpus, "folder/of/encoder", index=tmp_path)
    graph = Dense(corpus, "folder/of/encoder", index=tmp_path, approximate=True)
    [file] = tmp_path.glob("*.faiss")
    built = file.stat().st_mtime_ns
    again = Dense(corpus, "folder/of/encoder", index=tmp_path, approximate=True)
    assert file.stat().st_mtime_ns == built
    assert [count for kind, _, count in encoded if kind == "document"] == [1, 3000, 1, 1]
    queries = ["".join(draw.choice(list("abcdefghij"), 12)) for _ in range(50)]
    overlaps = [len({*exact.search(q, 10)} & {*graph.search(q, 10)}) for q in queries]
    assert sum(overlaps) / 500 > 0.95
    assert [again.search(q, 10) for q in queries] == [graph.search(q, 10) for q in queries]
    few = Dense(LETTERS, "folder/of/encoder", index=tmp_path, approximate=True)
    assert len(few.search("aab", 10)) == 3


@pytest.mark.parametrize("kind", ["npy", "faiss"])
@pytest.mark.parametrize("fault", ["cut", "empty", "junk", "another corpus"])
def test_a_kept_index_that_is_damaged_or_foreign_is_an_error(
    encoded: list[tuple[str, str | None, int]], tmp_path: Path, kind: str, fault: str
) -> None:
    def build(corpus: list[Document]) -> Path:
        known = {*tmp_path.glob(f"*.{kind}")}
        Dense(corpus, "folder/of/encoder", index=tmp_path, approximate=kind == "faiss")
        [file] = {*tmp_path.glob(f"*.{kind}")} - known
        return file

    file, other = build(LETTERS), build(LETTERS[:2])
    whole = file.read_bytes()
    damaged = {"cut": whole[:-9], "empty": b"", "junk": b"junk", "another corpus": b""}[fault]
    file.write_bytes(other.read_bytes() if fault == "another corpus" else damaged)
    with pytest.raises(UsageError, match=rf"dense_index: {file}: .*; delete it"):
        Dense(LETTERS, "folder/of/encoder", index=tmp_path, approximate=kind == "faiss")
    file.unlink()
    again = Dense(LETTERS, "folder/of/encoder", index=tmp_path, approximate=kind == "faiss")
    assert file.read_bytes() == whole
    assert [document.title for document in again.search("dcc", 1)] == ["ccd"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"approximate": True}, "without `dense`"), ({"dense": "e", "approximate": True}, "needs a")],
)
def test_a_graph_needs_an_encoder_and_a_folder(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Search(**settings)


def test_dense_retrieval_without_its_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UsageError, match=r"orchestrion-search\[dense\]"):
        Dense(CORPUS, "folder")
