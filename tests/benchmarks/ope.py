"""Off-policy estimates and learning, on simulated logs whose truth is known.

    python -m tests.benchmarks.ope coverage [--logs 500] [--sizes 200 1000 5000] [--rewards rare]
    python -m tests.benchmarks.ope refusal
    python -m tests.benchmarks.ope learning [--seeds 5] [--decisions 2000]

`coverage`: how often the 95 % interval of the doubly robust estimate holds the true value, over
simulated logs that are each of a problem drawn anew; by how rewards come about (linear, bent,
where ridges are the wrong model of them, or rare successes), how the logging policy explores, and
whether the target policy draws its choices. `refusal`: how often a log without overlap is refused.
`learning`: `from-logs` on so many decisions taken at random, beside learning online from as many.
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
from orchestrion_logged.fitting import choose, fit
from orchestrion_logged.learning import learn
from orchestrion_logged.ridges import Inputs, Ridges

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


# -------------------------------------------------------------------------------- refusal


def refusal(options: argparse.Namespace) -> None:
    """Print how often logs are refused that cannot tell."""
    kinds = (
        "the target's choice was never logged",
        "it was logged in other contexts only",
        "in a half of the contexts it was not",
    )
    for kind, name in enumerate(kinds):
        refused = 0
        for i in range(options.logs):
            draw = np.random.default_rng([options.seed, i])
            problem = simulated("linear", "uniform", "fixed", draw)
            x = draw.normal(size=(1000, problem.width))
            wanted = problem.target(x)
            if kind == 0:
                wanted = np.eye(wanted.shape[1])[np.zeros(1000, int)]
            chance = (1 - wanted) / (1 - wanted).sum(axis=1, keepdims=True)
            if kind == 2:
                chance = np.where(x[:, :1] > 0, wanted, chance)
            choice = (chance.cumsum(axis=1) > draw.random((1000, 1))).argmax(axis=1)
            at = np.arange(1000)
            reward = (draw.random(1000) < problem.mean(x)[at, choice]).astype(float)
            decisions = decisions_of(x, choice, chance[at, choice], reward, wanted.shape[1])
            judged = Evaluator(decisions, features_only(decisions)).judge("target", wanted)
            refused += bool(judged.refusal)
        print(f"{name:40} {refused} of {options.logs} refused", flush=True)


# ------------------------------------------------------------------------------- learning

ROUNDS = 10
"""After each tenth of its decisions the online learner learns anew."""


def learning(options: argparse.Namespace) -> None:
    """Print the true value of what is learned from random decisions and online, by problem."""
    gaps = []
    print("rewards  seed  logged  online     gap    best  random")
    for kind in options.rewards:
        for seed in range(options.seed, options.seed + options.seeds):
            draw = np.random.default_rng([seed, 77])
            problem = simulated(kind, "uniform", "fixed", draw)
            truth = draw.normal(size=(CONTEXTS, problem.width))
            mean = problem.mean(truth)
            values = [
                float(
                    mean[
                        np.arange(CONTEXTS), learner(problem, options.decisions, draw)(truth)
                    ].mean()
                )
                for learner in (from_log, online)
            ]
            gaps.append(values[1] - values[0])
            print(
                f"{kind:7} {seed:5} {values[0]:7.4f} {values[1]:7.4f} {gaps[-1]:7.4f} "
                f"{mean.max(axis=1).mean():7.4f} {mean.mean():7.4f}",
                flush=True,
            )
    print(f"mean gap {np.mean(gaps):.4f}, largest {np.max(gaps):.4f}")


Chooser = Callable[[Floats], NDArray[np.int64]]


def numbers(x: Floats, k: int) -> Inputs:
    return Inputs(np.broadcast_to(x[:, None], (len(x), k, x.shape[1])), ("",) * len(x))


def from_log(problem: Simulated, size: int, draw: np.random.Generator) -> Chooser:
    """Return as the trainer `from-logs` learns."""
    decisions, wanted = problem.log(size, draw)
    x = np.array([one.observation.features for one in decisions.situations if one.observation])
    k = wanted.shape[1]
    model = learn(decisions, numbers(x, k), draw)
    return lambda fresh: model.bounds(numbers(fresh, k)).argmax(axis=1)


def online(problem: Simulated, size: int, draw: np.random.Generator) -> Chooser:
    """Thompson sampling over the same regressions, which choose their features anew each time."""
    x = draw.normal(size=(size, problem.width))
    mean = problem.mean(x)
    k, step = mean.shape[1], size // ROUNDS
    choice, reward = draw.integers(0, k, size), np.zeros(size)
    model = None
    for start in range(0, size, step):
        now = slice(start, start + step)
        if model is not None:
            choice[now] = sampled(model, numbers(x[now], k), draw).argmax(axis=1)
        got = mean[np.arange(size), choice][now]
        noisy = got + problem.noise * draw.normal(size=len(got))
        reward[now] = noisy if problem.noise else draw.random(len(got)) < got
        seen = numbers(x[: start + step], k)
        past = choice[: start + step]
        shape = choose(seen, past, reward[: start + step], draw)
        model = fit(shape, seen, past, reward[: start + step], spread=True)
    assert model is not None
    final = model
    return lambda fresh: final.values(numbers(fresh, k)).argmax(axis=1)


def sampled(model: Ridges, inputs: Inputs, draw: np.random.Generator) -> Floats:
    """Return a draw of each value [n, k] from its own normal distribution."""
    values = model.values(inputs)
    model.supported[:], model.caution = True, 1.0
    spread = np.maximum(values - model.bounds(inputs), 0)
    result: Floats = values + spread * draw.normal(size=values.shape)
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["coverage", "refusal", "learning"])
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000, 5000])
    parser.add_argument("--rewards", nargs="+", default=["linear", "noisy", "bent", "rare"])
    parser.add_argument("--logging", nargs="+", default=["uniform", "soft", "steep"])
    parser.add_argument("--target", nargs="+", default=["fixed", "drawn"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "coverage":
        coverage(options)
    elif options.what == "refusal":
        refusal(options)
    else:
        learning(options)


if __name__ == "__main__":
    main()
