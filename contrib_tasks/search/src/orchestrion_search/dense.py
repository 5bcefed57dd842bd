"""Retrieval by meaning: a sentence encoder from a path, through the library sentence-transformers.

Imported when a task with `dense` is opened, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from orchestrion import UsageError
from orchestrion_search.documents import Document

__all__ = ["Dense"]


class Dense:
    """Documents by the cosine between their embedding and the query's.

    Args:
        documents: the corpus.
        path: a folder with the encoder, or its name on a hub.
    """

    def __init__(self, documents: Sequence[Document], path: str) -> None:
        try:
            library = import_module("sentence_transformers")
        except ImportError as error:
            raise UsageError(
                "task search: `dense` needs sentence-transformers; "
                "`pip install 'orchestrion-search[dense]'`"
            ) from error
        self._documents = tuple(documents)
        self._encoder: Any = library.SentenceTransformer(path)
        self._vectors = self._encode([f"{one.title}\n{one.text}" for one in documents])

    def _encode(self, texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        found = self._encoder.encode(
            texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(found, dtype=np.float32)

    def search(self, query: str, results: int) -> tuple[Document, ...]:
        """The nearest documents; equally near ones in the order of the corpus."""
        if not query.strip():
            return ()
        nearness = self._vectors @ self._encode([query])[0]
        order = np.argsort(-nearness, kind="stable")[:results]
        return tuple(self._documents[int(i)] for i in order)

    def close(self) -> None:
        """Nothing to give back."""
