"""Turn texts into numbers, by what is fitted on the training problems and kept in checkpoints.

Words (runs of one and two; TF-IDF, 20,000 of them) and characters (runs of two to four, with their
case, of the text's beginning and end) are each reduced to 100 components by a truncated singular
value decomposition (latent semantic analysis, Deerwester et al. 1990). Surface numbers are added:
length, digits, punctuation, line breaks. A softmax regression on all of this predicts the category
of a text, from the categories of training problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, frozen

from orchestrion_values.arrays import Floats
from orchestrion_values.threads import serial

COMPONENTS = 100
TERMS = 20_000
HEAD, TAIL = 300, 150
"""Characters of a text's beginning and end that are read."""
LOOKS = 0.2
"""The weight of a text's surface numbers beside components, whose rows have length 1."""
SHARPNESS = 10.0
STEPS = 200


@frozen(slots=False, eq=False)
class Space:
    """Runs of words or characters, and the components they are reduced to.

    Args:
        terms: the runs.
        idf: weight of each [terms].
        components: [components, terms].
        characters: whether they are runs of characters.
    """

    terms: tuple[str, ...]
    idf: Floats
    components: Floats
    characters: bool

    @cached_property
    def _vectorizer(self) -> Any:
        vectorizer = _vectorizer(self.characters, self.terms)
        vectorizer.idf_ = self.idf
        return vectorizer

    def rows(self, texts: Sequence[str]) -> Floats:
        """Return the components of texts [n, components], rows of length 1."""
        if not len(self.components):
            return np.zeros((len(texts), 0))
        result: Floats = self._vectorizer.transform(texts) @ self.components.T
        return _unit(result)


@frozen(eq=False)
class Texts:
    """Turns texts into numbers.

    Args:
        words: runs of words.
        characters: runs of characters.
        middle: mean of the looks [looks].
        width: their deviation [looks].
        categories: of the training problems, sorted; empty if there are fewer than two.
        weights: of the softmax regression [width + 1, categories]; the last row is the constant.
    """

    words: Space
    characters: Space
    middle: Floats
    width: Floats
    categories: tuple[str, ...]
    weights: Floats

    def numbers(self, texts: Sequence[str]) -> Floats:
        """Return texts as rows of length 1 [n, w]; similar texts have near rows."""
        looks = np.clip((_looks(texts) - self.middle) / self.width, -4, 4)
        parts = [
            self.words.rows(texts),
            self.characters.rows([_ends(text) for text in texts]),
            LOOKS * looks,
        ]
        return _unit(np.concatenate(parts, axis=1))

    def guessed(self, numbers: Floats) -> Floats:
        """Return the probability of each category [n, categories] from rows of `numbers`."""
        if not self.categories:
            return np.zeros((len(numbers), 0))
        logits = numbers @ self.weights[:-1] + self.weights[-1]
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        result: Floats = shares / shares.sum(axis=1, keepdims=True)
        return result

    def save(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return arrays and plain data."""
        arrays = {"middle": self.middle, "width": self.width, "weights": self.weights}
        data: dict[str, Any] = {"categories": list(self.categories)}
        for name, space in (("words", self.words), ("characters", self.characters)):
            arrays |= {f"{name}.idf": space.idf, f"{name}.components": space.components}
            data[name] = list(space.terms)
        return arrays, data

    @classmethod
    def load(cls, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> Texts:
        words, characters = (
            Space(
                tuple(data[name]),
                arrays[f"{name}.idf"],
                arrays[f"{name}.components"],
                name == "characters",
            )
            for name in ("words", "characters")
        )
        looks = arrays["middle"], arrays["width"]
        return cls(words, characters, *looks, tuple(data["categories"]), arrays["weights"])


def fit_texts(texts: Sequence[str], categories: Sequence[str | None], seed: int) -> Texts:
    """Fit `Texts` on training problems.

    Args:
        texts: of n problems.
        categories: of each; None where unknown.
        seed: of the decomposition.
    """
    words = _space(texts, seed, characters=False)
    characters = _space([_ends(text) for text in texts], seed, characters=True)
    looks = _looks(texts)
    spread = looks.std(axis=0)
    known = tuple(sorted({name for name in categories if name}))
    known = known if len(known) > 1 else ()
    empty = np.zeros((0, len(known)))
    middle, width = looks.mean(axis=0), np.where(spread > 1e-9, spread, 1.0)
    result = Texts(words, characters, middle, width, known, empty)
    if not known:
        return result
    from sklearn.linear_model import LogisticRegression

    at = [i for i, name in enumerate(categories) if name]
    numbers = result.numbers([texts[i] for i in at])
    # Rows have length 1, which the three parts share: as sharp as if each had its own.
    model = LogisticRegression(C=3 * SHARPNESS, max_iter=STEPS, tol=1e-3)
    with serial():
        model.fit(numbers, [known.index(str(categories[i])) for i in at])
    weights, constant = model.coef_.T, model.intercept_
    if len(known) == 2:
        weights, constant = np.c_[-weights / 2, weights / 2], np.r_[-constant / 2, constant / 2]
    return evolve(result, weights=np.concatenate([weights, constant[None]]))


def _space(texts: Sequence[str], seed: int, *, characters: bool) -> Space:
    from sklearn.decomposition import TruncatedSVD

    vectorizer = _vectorizer(characters)
    try:
        matrix = vectorizer.fit_transform(texts)
    except ValueError:  # no text has a term
        return Space((), np.zeros(0), np.zeros((0, 0)), characters)
    count = min(COMPONENTS, matrix.shape[0] - 1, matrix.shape[1] - 1)
    if count < 1:
        components = np.zeros((0, matrix.shape[1]))
    else:
        decomposition = TruncatedSVD(count, random_state=seed % 2**32)
        with serial():
            components = decomposition.fit(matrix).components_
    terms = tuple(vectorizer.get_feature_names_out().tolist())
    return Space(terms, vectorizer.idf_, components, characters)


def _vectorizer(characters: bool, terms: Sequence[str] | None = None) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    given: dict[str, Any] = {"sublinear_tf": True}
    given |= {"max_features": TERMS} if terms is None else {"vocabulary": list(terms)}
    if characters:
        return TfidfVectorizer(analyzer="char", ngram_range=(2, 4), lowercase=False, **given)
    return TfidfVectorizer(ngram_range=(1, 2), **given)


def _ends(text: str) -> str:
    return text if len(text) <= HEAD + TAIL else f"{text[:HEAD]} {text[-TAIL:]}"


def _looks(texts: Sequence[str]) -> Floats:
    """Return the lengths of texts, and what they are made of [n, looks]."""
    return np.array([_look(text) for text in texts], np.float64)


def _look(text: str) -> list[float]:
    size, words, end = max(len(text), 1), len(text.split()), text.rstrip()[-1:]
    shares = (str.isdigit, str.isupper, lambda c: not (c.isalnum() or c.isspace()))
    return [
        np.log1p(len(text)),
        np.log1p(words),
        len(text) / max(words, 1),
        *(sum(map(kind, text)) / size for kind in shares),
        float(text[:1].isupper()),
        float(text[:1].islower()),
        float(end == "?"),
        float(end == "."),
        float(end.isalnum()),
        *(np.log1p(text.count(mark)) for mark in '\n?,.$\\(":'),
        float(text.isascii()),
    ]


def _unit(rows: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    result: Floats = rows / np.where(length > 0, length, 1.0)
    return result
