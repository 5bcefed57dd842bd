"""How often intervals of off-policy estimates hold the truth, on simulated logs where it is known.

    python -m tests.benchmarks.ope [--logs 500] [--sizes 200 1000 5000] [--rewards rare]

Each log is of a problem drawn anew. Printed is how often the 95 % interval of the doubly robust
estimate holds the true value, by how rewards come about (linear, bent, where ridges are the wrong
model of them, or rare successes), how the logging policy explores, and whether the target policy
draws its choices.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray
from orchestrion_encoders.interfaces import Encoded
from orchestrion_logged.decisions import Decisions
from orchestrion_logged.evaluating import Evaluator

from orchestrion import Observation, Problem, Situation, Trajectory

Floats = NDArray[np.float64]

CONTEXTS = 30_000
"""From which a policy's true value is computed."""


def softmax(z: Floats) -> Floats:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    result: Floats = e / e.sum(axis=1, keepdims=True)
    return result


@frozen(eq=False)
class Simulated:
    """Contexts of d numbers, k choices, rewards of 0 or 1, or with noise.

    Args:
        mean: of the rewards, from contexts [n, d] to [n, k].
        logging: probabilities of the logging policy, likewise.
        target: of the target policy.
        width: d.
        noise: of rewards that are no 0 or 1; 0 for those that are.
    """

    mean: Callable[[Floats], Floats]
    logging: Callable[[Floats], Floats]
    target: Callable[[Floats], Floats]
    width: int
    noise: float

    def truth(self, draw: np.random.Generator) -> float:
        x = draw.normal(size=(CONTEXTS, self.width))
        return float((self.mean(x) * self.target(x)).sum(axis=1).mean())

    def log(self, size: int, draw: np.random.Generator) -> tuple[Decisions, Floats]:
        """Return a log, and the target's probabilities in it."""
        x = draw.normal(size=(size, self.width))
        chance = self.logging(x)
        choice = (chance.cumsum(axis=1) > draw.random((size, 1))).argmax(axis=1)
        at = np.arange(size)
        mean = self.mean(x)[at, choice]
        noisy = mean + self.noise * draw.normal(size=size)
        reward = noisy if self.noise else (draw.random(size) < mean).astype(float)
        return decisions_of(x, choice, chance[at, choice], reward, chance.shape[1]), self.target(x)


def decisions_of(x: Floats, choice: Floats, chance: Floats, reward: Floats, k: int) -> Decisions:
    size = len(x)
    return Decisions(
        tuple(f"c{i}" for i in range(k)),
        situations_of(x),
        np.asarray(choice, np.int64),
        np.ones((size, k), np.bool_),
        chance,
        reward,
        np.arange(size),
        0,
    )


def situations_of(x: Floats) -> tuple[Situation, ...]:
    nothing = Trajectory()
    return tuple(
        Situation(Problem(""), nothing, Observation(features=tuple(row))) for row in x.tolist()
    )


def features_only(decisions: Decisions) -> Callable[[Sequence[Situation]], Encoded]:
    """Return as `counts`, quicker: nothing is to be counted here."""
    k = len(decisions.names)

    def encode(situations: Sequence[Situation]) -> Encoded:
        x = np.array([one.observation.features for one in situations if one.observation])
        return Encoded(x, np.zeros((len(x), k, 0)))

    return encode


def simulated(kind: str, logging: str, target: str, draw: np.random.Generator) -> Simulated:
    """Return a problem drawn at random."""
    k, d = int(draw.integers(2, 7)), int(draw.integers(2, 9))
    w, v, g, t = (draw.normal(size=(d, k)) / np.sqrt(d) for _ in range(4))
    base = 0.5 * draw.normal(size=k)
    steep = {"uniform": 0.0, "soft": 1.0, "steep": 2.0}[logging]
    floor = {"uniform": 1.0, "soft": 0.2, "steep": 0.1}[logging]

    def mean(x: Floats) -> Floats:
        z = 1.5 * x @ w + base
        if kind == "bent":
            z = 2 * np.sin(2 * x @ v) + x[:, :1] * x[:, 1:2] + base
        if kind == "rare":
            z = z - 2.5
        result: Floats = z if kind == "noisy" else 1 / (1 + np.exp(-z))
        return result

    def chances(x: Floats) -> Floats:
        return (1 - floor) * softmax(steep * x @ g) + floor / k

    def wanted(x: Floats) -> Floats:
        z = x @ t
        return np.eye(k)[z.argmax(axis=1)] if target == "fixed" else softmax(1.5 * z)

    return Simulated(mean, chances, wanted, d, 0.5 if kind == "noisy" else 0.0)


@frozen
class Case:
    """What came of one simulated log."""

    rewards: str
    logging: str
    target: str
    refused: bool
    held: bool
    width: float
    error: float


def coverage(options: argparse.Namespace) -> None:
    """Print, over all logs and by what they are like, how often the interval holds the truth."""
    for size in options.sizes:
        start = time.process_time()
        cases = [
            case(size, options, np.random.default_rng([options.seed, i]))
            for i in range(options.logs)
        ]
        print(
            f"{size} decisions, {options.logs} logs, {time.process_time() - start:.0f} CPU seconds"
        )
        print(f"{'':10} logs refused covered  width    bias")
        line("all", cases)
        for factor in ("rewards", "logging", "target"):
            for level in getattr(options, factor):
                line(level, [one for one in cases if getattr(one, factor) == level])
        sys.stdout.flush()


def line(name: str, cases: Sequence[Case]) -> None:
    told = [one for one in cases if not one.refused]
    if told:
        print(
            f"{name:10} {len(cases):4} {len(cases) - len(told):7} "
            f"{np.mean([one.held for one in told]):7.3f} {np.mean([c.width for c in told]):6.3f} "
            f"{np.mean([one.error for one in told]):7.4f}"
        )


def case(size: int, options: argparse.Namespace, draw: np.random.Generator) -> Case:
    kind = [str(draw.choice(getattr(options, name))) for name in ("rewards", "logging", "target")]
    problem = simulated(*kind, draw)  # type: ignore[arg-type, call-arg]
    truth = problem.truth(draw)
    decisions, wanted = problem.log(size, draw)
    judged = Evaluator(decisions, features_only(decisions)).judge("target", wanted)
    if judged.refusal:
        return Case(*kind, True, False, 0.0, 0.0)  # type: ignore[arg-type, call-arg]
    e = judged.estimates["dr"]
    return Case(*kind, False, e.low <= truth <= e.high, e.high - e.low, e.mean - truth)  # type: ignore[arg-type, call-arg]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000, 5000])
    parser.add_argument("--rewards", nargs="+", default=["linear", "noisy", "bent", "rare"])
    parser.add_argument("--logging", nargs="+", default=["uniform", "soft", "steep"])
    parser.add_argument("--target", nargs="+", default=["fixed", "drawn"])
    parser.add_argument("--seed", type=int, default=0)
    coverage(parser.parse_args())


if __name__ == "__main__":
    main()
