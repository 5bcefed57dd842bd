"""Retrieval by meaning: a sentence encoder from a path, through the library sentence-transformers.

Imported when a task with `dense` is opened, and not before.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from orchestrion import UsageError
from orchestrion_search.documents import Document

NEIGHBOURS = 32
"""The neighbours of each document in the graph."""
CANDIDATES = 200
"""The documents examined in building and searching the graph; more find more of the nearest."""
_BLOCK = 100_000

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class Dense:
    """Ranks documents by the cosine between their embedding and the query's.

    Args:
        documents: the corpus.
        path: a folder with the encoder, or its name on a hub.
        query_prompt: put before a query, e.g. "query: " for E5; None for the encoder's own prompt.
        document_prompt: put before a document, e.g. "passage: "; None for the encoder's own.
        index: a folder that keeps the embeddings of the corpus; None encodes it every time.
        approximate: whether to search a graph of neighbours, kept in `index`, instead of comparing
            with every document.

    Raises:
        UsageError: sentence-transformers or faiss is not installed, or `index` cannot be written,
            or a file in it is damaged.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        path: str,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        index: Path | None = None,
        approximate: bool = False,
    ) -> None:
        library = _library("sentence_transformers", "dense", "dense")
        self._documents = tuple(documents)
        self._encoder: Any = library.SentenceTransformer(path)
        self._query_prompt, self._document_prompt = query_prompt, document_prompt
        texts = [f"{document.title}\n{document.text}" for document in documents]
        self._vectors: Vectors | None = None
        self._graph: Any = None
        if index is None:
            self._vectors = self._encoded(texts)
            return
        file, shape = self._file(texts, index)
        if approximate:
            self._graph = _graph(file, shape)
        else:
            self._vectors = _kept(file, shape, _load_vectors)

    def _encoded(self, texts: list[str]) -> Vectors:
        return self._plain(self._encoder.encode_document, texts, self._document_prompt)

    def _plain(self, encode: Any, texts: list[str], prompt: str | None) -> Vectors:
        embeddings = encode(
            texts,
            prompt=prompt,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return np.asarray(embeddings, dtype=np.float32)

    def _file(self, texts: list[str], folder: Path) -> tuple[Path, tuple[int, int]]:
        """Return the file of this corpus's embeddings by this encoder, and their shape.

        The file is made if it is missing.
        """
        # The embedding of a fixed text identifies the encoder: a name may get other weights.
        probe = self._encoded(["Which encoder is this?"]).round(3) + 0.0
        digest = hashlib.sha256(probe.tobytes())
        for text in texts:
            digest.update(hashlib.sha256(text.encode()).digest())
        file = folder / f"{digest.hexdigest()[:32]}.npy"
        if not file.exists():
            embeddings = self._encoded(texts).reshape(len(texts), probe.shape[1])
            _write(file, lambda temporary: np.save(temporary, embeddings))
        return file, (len(texts), probe.shape[1])

    def search(self, query: str, results: int) -> tuple[Document, ...]:
        """Return the nearest documents; equally near ones in the order of the corpus."""
        if not query.strip():
            return ()
        embedded = self._plain(self._encoder.encode_query, [query], self._query_prompt)
        if self._vectors is not None:
            nearness = self._vectors @ embedded[0]
            order = np.argsort(-nearness, kind="stable")[:results]
        else:
            scores, places = self._graph.search(embedded, results)
            order = places[0][np.lexsort((places[0], -scores[0]))]
            order = order[order >= 0]  # -1 means none
        return tuple(self._documents[int(i)] for i in order)

    def close(self) -> None:
        """Do nothing; this index holds no resources."""


def _library(name: str, setting: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"task search: `{setting}` needs {name.replace('_', '-')}; "
            f"`pip install 'orchestrion-search[{extra}]'`"
        ) from error


def _write(file: Path, write: Callable[[str], object]) -> None:
    """Let `write` make a file, which nobody sees before it is complete.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            temporary = os.path.join(folder, file.name)
            write(temporary)
            os.replace(temporary, file)
    except (OSError, RuntimeError) as error:  # faiss raises the latter
        raise UsageError(f"task search: dense_index: {file.parent}: {error}") from error


def _kept(
    file: Path, shape: tuple[int, int], read: Callable[[str], tuple[Any, tuple[int, ...]]]
) -> Any:
    """Return the content of a file of `dense_index`, which `read` returns with its shape.

    Raises:
        UsageError: the file cannot be read, or has another shape.
    """
    try:
        content, actual = read(str(file))
        reason = f"has {actual} numbers; want {shape}" if actual != shape else ""
    except (OSError, EOFError, ValueError, RuntimeError) as error:  # faiss raises the last
        reason = f"cannot be read: {str(error).splitlines()[0] if str(error) else error!r}"
    if reason:
        raise UsageError(f"task search: dense_index: {file}: {reason}; delete it to make it again")
    return content


def _load_vectors(file: str) -> tuple[Vectors, tuple[int, ...]]:
    vectors = np.load(file, mmap_mode="r")
    return vectors, vectors.shape


def _graph(embeddings: Path, shape: tuple[int, int]) -> Any:
    """Return the graph of neighbours from its file beside the embeddings; make a missing one.

    Source: hierarchical navigable small worlds (Malkov and Yashunin 2018, arXiv 1603.09320) as
    faiss has them, with its names for their parameters.
    """
    faiss = _library("faiss", "approximate", "approximate")
    file = embeddings.with_suffix(".faiss")
    if not file.exists():
        vectors = _kept(embeddings, shape, _load_vectors)
        graph = faiss.IndexHNSWFlat(vectors.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = CANDIDATES
        for first in range(0, len(vectors), _BLOCK):
            graph.add(np.ascontiguousarray(vectors[first : first + _BLOCK]))
        _write(file, lambda temporary: faiss.write_index(graph, temporary))

    def load(name: str) -> tuple[Any, tuple[int, ...]]:
        graph = faiss.read_index(name)
        if not isinstance(graph, faiss.IndexHNSWFlat):
            raise ValueError(f"is no graph but {type(graph).__name__}")
        return graph, (graph.ntotal, graph.d)

    graph = _kept(file, shape, load)
    graph.hnsw.efSearch = CANDIDATES
    return graph
