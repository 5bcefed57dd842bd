"""Fixed sequences as arms: what each is worth, by the episodes that followed some of them.

Source: Thompson sampling with a Gaussian process over arms that have something in common (Srinivas,
Krause, Kakade, Seeger 2010; Chowdhury, Gopalan 2017). Sequences are alike as far as they end alike,
make the same calls and are as long; each also has something of its own, and so has each problem.

Departures:
1. The sequences at hand are the best ones so far and their neighbours; all would be too many.
2. How strong likeness and problems are is the most likely pair of a grid; the noise follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from orchestrion import Situation, is_blocked
from orchestrion_values.policy import Floats, ValuePolicy

__all__ = ["LEARNED", "Arm", "Beliefs", "Tried", "believed", "next_of"]

Arm = tuple[int, ...]
"""The places of choices, one after the other; the end of it is stopping."""
LEARNED: Arm = (-1,)
"""The arm that stands for the learned policy, and is like no sequence."""
ALIKE = (0.03, 0.1, 0.3, 1.0)
PROBLEMS = (0.0, 0.1, 0.5)
LAST, PAIR, CALL, LENGTH, OWN = 1.0, 0.4, 0.4, 0.4, 0.5
"""What sequences share: the last call, the last two, any call, the length, all."""
KEPT, MOST, LONGEST = 8, 400, 8


@frozen
class Tried:
    """An episode that followed an arm.

    Args:
        arm: what it followed.
        problem: the name of its problem.
        reward: what came of it.
    """

    arm: Arm
    problem: str
    reward: float


@frozen(eq=False)
class Beliefs:
    """What arms are worth, in rewards.

    Args:
        arms: n of them.
        mean: of what each is worth [n].
        covariance: of that [n, n].
    """

    arms: tuple[Arm, ...]
    mean: Floats
    covariance: Floats

    @property
    def best(self) -> Arm:
        """The arm of the highest mean."""
        return self.arms[int(self.mean.argmax())]

    def draws(self, random: np.random.Generator, count: int) -> list[Arm]:
        """The best arms by some draws of what all are worth."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(values.clip(0))
        drawn = self.mean[:, None] + root @ random.standard_normal((len(self.arms), count))
        return [self.arms[i] for i in drawn.argmax(axis=0)]


def believed(tried: Sequence[Tried], choices: int, longest: int) -> Beliefs:
    """What the best arms so far and their neighbours are worth.

    Args:
        tried: at least one episode.
        choices: how many there are, stopping left out.
        longest: how many of them a sequence may have.
    """
    process = _Process(tried, choices)
    seen = process.beliefs(tuple(dict.fromkeys(one.arm for one in tried)))
    best = [seen.arms[i] for i in np.argsort(-seen.mean, kind="stable")]
    return process.beliefs(_neighbours(best, choices, longest))


class _Process:
    """A Gaussian process given what was tried, with the likeliest scales."""

    def __init__(self, tried: Sequence[Tried], choices: int) -> None:
        self.choices, self.tried = choices, [one.arm for one in tried]
        rewards = np.array([one.reward for one in tried])
        self.spread = float(rewards.std()) or 1.0
        y, n = rewards / self.spread, len(rewards)
        alike = self.likeness(self.tried, self.tried)
        names = np.unique([one.problem for one in tried], return_inverse=True)[1]
        same = names[:, None] == names
        likeliest = -np.inf
        for strength in ALIKE:
            for problems in PROBLEMS:
                inverse = np.linalg.inv(np.eye(n) + strength * alike + problems * same)
                weight = inverse.sum(axis=0)
                mean = float(weight @ y / weight.sum())
                noise = float((y - mean) @ inverse @ (y - mean)) / n + 1e-4
                likely = float(np.linalg.slogdet(inverse)[1]) - n * np.log(noise)
                if likely > likeliest:
                    likeliest = likely
                    self.inverse, self.strength, self.noise, self.mean = (
                        inverse,
                        strength,
                        noise,
                        mean,
                    )
        self.left = y - self.mean

    def beliefs(self, arms: tuple[Arm, ...]) -> Beliefs:
        """What these are worth, on a problem that is not known."""
        ours = self.strength * self.likeness(arms, self.tried)
        gain = ours @ self.inverse
        covariance = self.strength * self.likeness(arms, arms) - gain @ ours.T
        mean = self.spread * (self.mean + gain @ self.left)
        return Beliefs(arms, mean, self.spread**2 * self.noise * covariance)

    def likeness(self, these: Sequence[Arm], those: Sequence[Arm]) -> Floats:
        """How much arms share [n, m]."""
        places: dict[Arm, int] = {}
        here, there = (
            np.array([places.setdefault(arm, len(places)) for arm in arms])
            for arms in (these, those)
        )
        result: Floats = self._rows(these) @ self._rows(those).T
        result += OWN * (here[:, None] == there)
        return result

    def _rows(self, arms: Sequence[Arm]) -> Floats:
        k = self.choices
        ends, calls = k + 1, k + 1 + k * (k + 1)
        rows = np.zeros((len(arms), calls + k + LONGEST + 2))
        for row, arm in zip(rows, arms, strict=True):
            if arm == LEARNED:
                row[-1] = LAST
                continue
            row[arm[-1] if arm else k] = LAST
            if arm:
                row[ends + arm[-1] * (k + 1) + (arm[-2] if len(arm) > 1 else k)] = PAIR
                row[calls : calls + k] = CALL * np.bincount(arm, minlength=k)
            row[calls + k + min(len(arm), LONGEST)] = LENGTH
        return rows


def _neighbours(best: Sequence[Arm], choices: int, longest: int) -> tuple[Arm, ...]:
    """The best arms and those one change away, each once; every single choice."""
    result: dict[Arm, None] = {(): None}
    result |= {(c,): None for c in range(choices)}
    for arm in best[:KEPT]:
        if arm == LEARNED or len(result) > MOST:
            continue
        result |= {arm: None, arm[:-1]: None}
        for c in range(choices):
            if len(arm) < longest:
                result |= {(*arm, c): None, (c, *arm): None}
            result |= {(*arm[:i], c, *arm[i + 1 :]): None for i in range(len(arm))}
    if LEARNED in best:
        result[LEARNED] = None
    return tuple(result)


def next_of(arm: Arm, policy: ValuePolicy, situation: Situation) -> int | None:
    """The place of the choice that a sequence takes next.

    What is blocked is passed over. None where the sequence has ended and stopping is no choice.
    """
    choices, at = policy.choices, 0
    for turn in situation.trajectory.turns:
        while at < len(arm):
            choice = choices[arm[at]]
            at += 1
            if choice is not None and (choice.agent, choice.option) == (turn.agent, turn.option):
                break
    for place in arm[at:]:
        choice = choices[place]
        if choice is not None and not is_blocked(choice, situation.observation):
            return place
    return choices.index(None) if None in choices else None
