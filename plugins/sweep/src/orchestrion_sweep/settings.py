"""The two sections that a sweep adds to a config: `search`, what is tried, and `sweep`, how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from attrs import Factory, asdict, field, frozen

from orchestrion import JSON, Meta

Objective = Literal["reward", "solved", "cost"]
Count = Annotated[int, Meta(ge=1)]
MOST = 10_000
"""Trials of a sweep."""


@frozen
class Dimension:
    """The values of one setting; exactly one of these.

    Args:
        choice: all values there are.
        uniform: the lowest and the highest number.
        log_uniform: likewise, and every power of ten between them is as probable as the next.
        integers: the lowest and the highest integer.
    """

    choice: Annotated[tuple[JSON, ...], Meta(min_length=1)] | None = None
    uniform: tuple[float, float] | None = None
    log_uniform: tuple[float, float] | None = None
    integers: tuple[int, int] | None = None

    def __attrs_post_init__(self) -> None:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(KINDS)}")
        ends = self.range
        if ends is not None and not ends[0] < ends[1]:
            raise ValueError(f"{given[0]}: {ends[0]:g} must be less than {ends[1]:g}")
        if self.integers is not None and self.integers[1] - self.integers[0] >= 2**53:
            raise ValueError(
                "integers: the range has more than 2**53 values; a draw reaches no more"
            )
        if self.log_uniform is not None and self.log_uniform[0] <= 0:
            raise ValueError("log_uniform: both ends must be greater than 0")

    @property
    def values(self) -> Sequence[JSON]:
        """Return all values; none if they cannot be listed."""
        if self.integers is not None:
            return range(self.integers[0], self.integers[1] + 1)
        return self.choice or ()

    @property
    def range(self) -> tuple[float, float] | None:
        """Return both ends; None for a choice."""
        return self.uniform or self.log_uniform or self.integers

    def plain(self) -> dict[str, JSON]:
        """Return it as it stands in a config."""
        return {name: list(value) for name in KINDS if (value := getattr(self, name)) is not None}


KINDS = ("choice", "uniform", "log_uniform", "integers")


@frozen
class Sweep:
    """How values are tried.

    Args:
        method: `grid` tries all combinations of choices and integers; `random` draws; `optuna`
            draws where earlier trials were good (needs `orchestrion-sweep[optuna]`).
        trials: how many, the config as it is among them; a grid has as many as it has combinations.
        parallel: how many run at once.
        seeds: training seeds of each trial, from the config's own on; the figures are means.
        objective: what decides, on the validation split: the mean reward or the share solved, the
            higher the better, or the mean cost, the lower the better. Of several, the first
            decides, and what no other trial beats in all of them is reported.
        prune: whether optuna may end a trial in training whose objective is below the median of
            the earlier ones.
    """

    method: Literal["grid", "random", "optuna"] = "random"
    trials: Annotated[int, Meta(ge=2, le=MOST)] | None = None
    parallel: Count = 1
    seeds: Annotated[int, Meta(ge=1, le=1000)] = 1
    objective: Objective | Annotated[tuple[Objective, ...], Meta(min_length=1)] = "reward"
    prune: bool = False

    def __attrs_post_init__(self) -> None:
        if self.method == "grid" and self.trials is not None:
            raise ValueError("`trials` has no effect with `method: grid`; remove it")
        if self.method != "grid" and self.trials is None:
            raise ValueError(
                f"`trials` is missing: how many are there with `method: {self.method}`?"
            )
        if len(set(self.objectives)) < len(self.objectives):
            raise ValueError("objective: one stands there twice")
        if self.prune and self.method != "optuna":
            raise ValueError("`prune` needs `method: optuna`")
        if self.prune and len(self.objectives) > 1:
            raise ValueError("`prune` needs a single objective")

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Return what decides, the most important first."""
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)

    def plain(self) -> dict[str, JSON]:
        """Return it as it stands in a config."""
        data = asdict(self) | {"objective": list(self.objectives)}
        return {name: value for name, value in data.items() if value is not None}


@frozen
class Sections:
    """What `orchestrion sweep` takes out of a config."""

    search: Annotated[Mapping[str, Dimension], Meta(min_length=1)]
    sweep: Sweep = field(default=Factory(lambda: Sweep(trials=12)))


def rises(objective: Objective) -> bool:
    """Return whether more of it is better."""
    return objective != "cost"
