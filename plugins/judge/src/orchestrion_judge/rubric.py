"""Rubrics: criteria with weights and scales, as data."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from attrs import field, frozen

from orchestrion import Meta

ShippedRubric = Literal["answer", "code-review", "research-report"]
SHIPPED: tuple[ShippedRubric, ...] = ("answer", "code-review", "research-report")


@frozen
class Scale:
    """The possible scores of a criterion.

    Args:
        low: the worst score.
        high: the best score.
        step: scores are `low` plus whole steps; 0 allows every number between.
        written: how a judge writes a score: a number, or text such as "8.5/10", whose second
            number must be `high`.
    """

    # Converted to floats, as they are hashed.
    low: float = field(default=1.0, converter=float)
    high: float = field(default=5.0, converter=float)
    step: Annotated[float, Meta(ge=0)] = field(default=1.0, converter=float)
    written: Literal["number", "fraction"] = "number"

    def __attrs_post_init__(self) -> None:
        if not self.high > self.low:
            raise ValueError(f"high must be above low, which is {self.low:g}; it is {self.high:g}")
        if not self.has(self.high):
            raise ValueError(f"from {self.low:g} to {self.high:g} is not a whole number of steps")

    def has(self, score: float) -> bool:
        """Return whether a score is on this scale; nothing is rounded or clamped."""
        if not self.low <= score <= self.high:
            return False
        steps = (score - self.low) / self.step if self.step else 0.0
        return abs(steps - round(steps)) < 1e-9

    def share(self, score: float) -> float:
        """Return a score as a share of the scale, 0 to 1."""
        return (score - self.low) / (self.high - self.low)

    @property
    def values(self) -> tuple[float, ...]:
        """Return all possible scores if there are at most 100 steps; else none."""
        if not self.step or (count := round((self.high - self.low) / self.step)) > 100:
            return ()
        return tuple(self.low + i * self.step for i in range(count + 1))

    @property
    def in_words(self) -> str:
        """Return the scale as a judge reads it."""
        between = f"from {self.low:g} to {self.high:g}"
        if self.step == 1 and self.low.is_integer():
            kind = "integer"
        else:
            kind = f"number in steps of {self.step:g}" if self.step else "number"
        if self.written == "fraction":
            return f"{kind} {between}, written as text with the best score, as in {self.example}"
        return f"{kind} {between}"

    @property
    def example(self) -> str:
        """Return the best score as a judge would write it in JSON."""
        return f'"{self.high:g}/{self.high:g}"' if self.written == "fraction" else f"{self.high:g}"


@frozen
class Criterion:
    """A criterion of a rubric.

    Args:
        name: a word; the key in the judge's answer.
        description: what it means; it should say what the ends of the scale stand for.
        weight: in the reward, relative to the other criteria.
        scale: its possible scores.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,40}$")]
    description: Annotated[str, Meta(min_length=1)]
    weight: Annotated[float, Meta(gt=0)] = 1.0
    scale: Scale = Scale()


@frozen
class Rubric:
    """Criteria to judge by.

    Args:
        criteria: at least one, with different names.
        name: of the rubric.
        description: what is judged, in a sentence.
    """

    criteria: Annotated[tuple[Criterion, ...], Meta(min_length=1)]
    name: str = "rubric"
    description: str = ""

    def __attrs_post_init__(self) -> None:
        names = [criterion.name for criterion in self.criteria]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"criteria must have different names; twice: {', '.join(twice)}")

    def value(self, scores: dict[str, float]) -> float:
        """Return the weighted mean of the scores as shares of their scales, 0 to 1."""
        total = sum(c.weight for c in self.criteria)
        weighted = sum(c.weight * c.scale.share(scores[c.name]) for c in self.criteria)
        return min(weighted / total, 1.0)  # rounding may carry full marks past 1


@cache
def shipped(name: ShippedRubric) -> Rubric:
    """Return a rubric of this distribution."""
    path = files("orchestrion_judge") / "rubrics" / f"{name}.yaml"
    from orchestrion.config import text_as

    return text_as(Rubric, path.read_text("utf-8"), f"{name}.yaml")


def read_rubric(path: Path) -> Rubric:
    """Return the rubric that a YAML file holds.

    Raises:
        UsageError: it cannot be read.
        ConfigError: its content is wrong; each error has its line.
    """
    from orchestrion.config import read_as

    return read_as(Rubric, path, "rubric")
