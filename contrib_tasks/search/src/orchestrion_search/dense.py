"""Retrieval by meaning: a sentence encoder from a path, through the library sentence-transformers.

Imported when a task with `dense` is opened, and not before.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from orchestrion import UsageError
from orchestrion_search.documents import Document

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class Dense:
    """Ranks documents by the cosine between their embedding and the query's.

    Args:
        documents: the corpus.
        path: a folder with the encoder, or its name on a hub.
        query_prompt: put before a query, e.g. "query: " for E5; None for the encoder's own prompt.
        document_prompt: put before a document, e.g. "passage: "; None for the encoder's own.
        index: a folder that keeps the embeddings of the corpus; None encodes it every time.

    Raises:
        UsageError: sentence-transformers is not installed, or `index` cannot be written, or a file
            in it is damaged.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        path: str,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        index: Path | None = None,
    ) -> None:
        try:
            library = import_module("sentence_transformers")
        except ImportError as error:
            raise UsageError(
                "task search: `dense` needs sentence-transformers; "
                "`pip install 'orchestrion-search[dense]'`"
            ) from error
        self._documents = tuple(documents)
        self._encoder: Any = library.SentenceTransformer(path)
        self._query_prompt, self._document_prompt = query_prompt, document_prompt
        texts = [f"{document.title}\n{document.text}" for document in documents]
        self._vectors = self._encoded(texts) if index is None else self._kept(texts, index)

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

    def _kept(self, texts: list[str], folder: Path) -> Vectors:
        """Return the embeddings of texts from their file, which is made if it is missing."""
        # The embedding of a fixed text identifies the encoder: a name may get other weights.
        probe = self._encoded(["Which encoder is this?"]).round(3) + 0.0
        digest = hashlib.sha256(probe.tobytes())
        for text in texts:
            digest.update(hashlib.sha256(text.encode()).digest())
        file = folder / f"{digest.hexdigest()[:32]}.npy"
        shape = len(texts), probe.shape[1]
        if not file.exists():
            _write(file, self._encoded(texts).reshape(shape))
        return _read(file, shape)

    def search(self, query: str, results: int) -> tuple[Document, ...]:
        """Return the nearest documents; equally near ones in the order of the corpus."""
        if not query.strip():
            return ()
        embedded = self._plain(self._encoder.encode_query, [query], self._query_prompt)
        order = np.argsort(-(self._vectors @ embedded[0]), kind="stable")[:results]
        return tuple(self._documents[int(i)] for i in order)

    def close(self) -> None:
        """Do nothing; this index holds no resources."""


def _write(file: Path, embeddings: Vectors) -> None:
    """Write a file of `dense_index`, which nobody sees before it is complete.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            temporary = os.path.join(folder, file.name)
            np.save(temporary, embeddings)
            os.replace(temporary, file)
    except OSError as error:
        raise UsageError(f"task search: dense_index: {file.parent}: {error}") from error


def _read(file: Path, shape: tuple[int, int]) -> Vectors:
    """Return the content of a file of `dense_index`.

    Raises:
        UsageError: the file cannot be read, or has another shape.
    """
    try:
        embeddings: Vectors = np.load(file, mmap_mode="r")
        reason = f"has {embeddings.shape} numbers; want {shape}"
    except (OSError, EOFError, ValueError) as error:
        reason = f"cannot be read: {str(error).splitlines()[0] if str(error) else error!r}"
    else:
        if embeddings.shape == shape:
            return embeddings
    raise UsageError(f"task search: dense_index: {file}: {reason}; delete it to make it again")
