"""Questions to a person that wait in a folder, and the answers to them.

A question is a file `NAME.question.json`, its answer `NAME.answer.json` beside it, where NAME is a
hash of the question. An answer is {"score": 7} or {"skipped": true}.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

import msgspec
from attrs import frozen

from orchestrion import JSON, RunError
from orchestrion_judge.rubric import Scale

__all__ = ["FOLDER", "Question", "Questions", "read_score"]

FOLDER = "questions"
"""Where in a run's folder questions wait."""

_QUESTION, _ANSWER = ".question.json", ".answer.json"


@frozen
class Question:
    """What a person is asked.

    Args:
        text: the question.
        scale: of the answer.
        material: titles and texts, in order.
    """

    text: str
    scale: Scale
    material: tuple[tuple[str, str], ...]

    @property
    def data(self) -> dict[str, JSON]:
        """As JSON: the question is this and nothing else."""
        scale = {"low": self.scale.low, "high": self.scale.high, "step": self.scale.step}
        return {"question": self.text, "scale": scale, "material": [*map(list, self.material)]}

    @property
    def name(self) -> str:
        """Stands for the question."""
        return blake2b(_bytes(self.data), digest_size=8).hexdigest()

    @property
    def lines(self) -> list[str]:
        """As a person reads it."""
        shown = [f"--- {title}\n{text}" for title, text in self.material]
        return [*shown, f"--- {self.text} ({self.scale.in_words}; empty to skip)"]


def read_score(text: str, scale: Scale) -> float | None:
    """What a person typed, as a score; None if it is none on this scale."""
    try:
        score = float(text.strip())
    except ValueError:
        return None
    return score if scale.has(score) else None


@frozen
class Questions:
    """The questions in a folder, which need not exist yet."""

    folder: Path

    def ask(self, question: Question) -> None:
        """Leave a question there."""
        self._write(question.name + _QUESTION, question.data)

    def answer(self, question: Question, answer: JSON) -> None:
        """Answer one."""
        self._write(question.name + _ANSWER, answer)

    def answer_to(self, question: Question) -> dict[str, JSON] | None:
        """The answer, if there is one.

        Raises:
            RunError: its file holds something else.
        """
        path = self.folder / (question.name + _ANSWER)
        if not path.exists():
            return None
        answer = _read(path)
        if answer == {"skipped": True}:
            return answer
        score = answer.get("score")
        if set(answer) == {"score"} and type(score) in (int, float):
            score = read_score(str(score), question.scale)
            if score is not None:
                return {"score": score}
        raise RunError(
            f'{path}: must be {{"skipped": true}} or {{"score": N}} with a score on its scale, '
            f"{question.scale.in_words}; mend or remove it, and resume"
        )

    def waiting(self) -> list[Question]:
        """All without an answer, by name."""
        found = []
        for path in sorted(self.folder.glob(f"*{_QUESTION}")):
            question = _question(path)
            if self.answer_to(question) is None:
                found.append(question)
        return found

    def _write(self, name: str, data: JSON) -> None:
        from orchestrion.runs import make_folder, write_atomic

        write_atomic(make_folder(self.folder) / name, [_bytes(data)])


def _question(path: Path) -> Question:
    data = _read(path)
    try:
        scale = Scale(**data["scale"])
        material = tuple((str(title), str(text)) for title, text in data["material"])
        return Question(str(data["question"]), scale, material)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path}: is no question ({error})") from None


def _read(path: Path) -> dict[str, JSON]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from None
    if not isinstance(data, dict):
        raise RunError(f"{path}: is not a JSON object")
    return data


def _bytes(data: JSON) -> bytes:
    return msgspec.json.encode(data, order="deterministic")
