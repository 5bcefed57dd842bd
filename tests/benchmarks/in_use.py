"""Learning in use, measured: the whole circle, how often estimates hold, trials, CPU a decision.

    python -m tests.benchmarks.in_use circle [--requests 2000] [--seed 1]
    python -m tests.benchmarks.in_use coverage [--repeats 30] [--requests 2000] [--seed 1]
    python -m tests.benchmarks.in_use trials [--repeats 200] [--scores 2000] [--seed 1]
    python -m tests.benchmarks.in_use cost [--requests 2000]

`circle`: simulated users of recorded answers ask a served team and tell what they think of half of
the answers; 5 % of the decisions are explored. Then, by the commands of the manual: what other
policies would have got, a new version, its trial, its promotion; and all that is computed from the
log twice, bit by bit. `coverage`: the same log drawn anew, how often the 95 % intervals hold the
truth and how often the new version is better. `trials`: verdicts when somebody looks after each
score. `cost`: CPU a decision with feedback, within one process and through HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from orchestrion_logged import Feedback, read
from orchestrion_logged.decisions import as_decisions, choices_of
from orchestrion_logged.evaluating import Evaluator, encode_by
from orchestrion_logged.learning import learn
from orchestrion_logged.ridges import inputs_of
from orchestrion_serve.confidence import VersionComparison
from orchestrion_serve.in_use import InUse, UseSettings

from orchestrion import Key
from orchestrion.runs import TeamAnswer, open_run
from tests.benchmarks.support import processor_of
from tests.plugins.serve.users import COST_WEIGHT, MODELS, Client, Desk, asked, use
from tests.workspace import ROOT

QUESTIONS = 3000


def command(*words: str) -> str:
    """Run a command, print it, and return its standard output."""
    print("$ orchestrion", *words, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrion", *words], text=True, stdout=subprocess.PIPE, check=True
    )
    return done.stdout


@contextmanager
def server(*words: str) -> Iterator[tuple[str, int]]:
    """Serve in a process of its own; yield its address and its process id."""
    print("$ orchestrion serve", *words, flush=True)
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrion", "serve", *words, "--port", "0"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("serving "))
        try:
            yield line.rstrip().removesuffix("/v1").rpartition(" ")[2], process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            for line in process.stderr:
                print(" ", line.rstrip())


def circle(requests: int, seed: int) -> None:
    desk = Desk(Path.cwd(), QUESTIONS, seed)
    with server("desk.yaml", "--log", "logs", "--explore", "0.05") as (address, _):
        use(desk, address, requests, Key(seed).child("first"))
    print(command("serve-log", "logs/desk"))
    print(command("ope", "logs/desk", "--cost-weight", str(COST_WEIGHT)))
    for model in MODELS:
        print(f"the truth of always ask:{model}: {desk.value(model):.4f}")
    command("learn", "logs/desk", "--from", "desk.yaml")
    judged = json.loads(
        command("ope", "logs/desk", "--cost-weight", str(COST_WEIGHT), "--policy", "runs/desk-1",
                "--json")
    )["policies"][0]["estimates"]["dr"]  # fmt: skip
    print(f"the new version by this log: {judged['low']:.4f} to {judged['high']:.4f}")
    with server("desk.yaml", "--canary", "runs/desk-1", "--share", "0.2", "--log", "logs") as (
        address,
        _,
    ):
        use(desk, address, requests, Key(seed).child("second"))
    print(command("serve-log", "logs/desk"))
    with server("runs/desk-1", "--canary", "desk.yaml", "--share", "0.2", "--log", "logs") as (
        address,
        _,
    ):
        use(desk, address, requests, Key(seed).child("third"), model="desk-1")
    print(command("serve-log", "logs/desk-1"))
    # What is computed from the log again, to the bit: versions, estimates, the trial.
    again = command("ope", "logs/desk", "--cost-weight", str(COST_WEIGHT), "--json")
    assert again == command("ope", "logs/desk", "--cost-weight", str(COST_WEIGHT), "--json")
    for _ in range(2):
        command("learn", "logs/desk", "--from", "desk.yaml")
    digests = {
        sha256(next(Path("runs", name, "checkpoints").iterdir()).read_bytes()).hexdigest()
        for name in ("desk-2", "desk-3")
    }
    print(f"versions learned twice from one log: {len(digests)} digest")


async def logged(desk: Desk, folder: Path, requests: int, key: Key, explore: float = 0.05) -> None:
    """Write the log of a served team without HTTP."""
    async with open_run(str(desk.config)) as team:
        served = InUse("desk", UseSettings(folder, explore=explore), team)
        for name, question, tells in asked(desk, requests, key):
            problem = team.engine.team.task.problem_from(question)
            own, identity = key.child(name), key.child(name).hex()
            answered = served.begin(identity, "", team, problem, own, 1.0)
            episode = await team.engine.run(identity, problem, own, answered.policy)
            answer = TeamAnswer.of(episode, team.answering(episode))
            served.ended(answered, answer)
            if tells:
                score = desk.score(question, answer.text or "")
                served._log.append(Feedback(identity, score))
        await served.close()


def coverage(seeds: Sequence[int], requests: int) -> None:
    held: Counter[str] = Counter()
    estimated: Counter[str] = Counter()
    better = 0
    for seed in seeds:
        with TemporaryDirectory() as name:
            desk, key = Desk(Path(name), QUESTIONS, seed), Key(seed).child("users")
            asyncio.run(logged(desk, Path(name, "logs"), requests, key))
            episodes = read(Path(name, "logs", "desk")).episodes
        decisions = as_decisions(episodes, choices_of(episodes), COST_WEIGHT)
        for judged in Evaluator(decisions).single():
            estimate = judged.estimates.get("dr")
            if estimate is not None:
                truth = desk.value(judged.name.removeprefix("always ask:"))
                estimated[judged.name] += 1
                held[judged.name] += estimate.low <= truth <= estimate.high
        encode = encode_by(decisions.names)
        inputs = inputs_of(decisions.situations, encode)
        model = learn(decisions, inputs, np.random.default_rng(seed))
        every = as_decisions([(line,) for (line,) in episodes], decisions.names, COST_WEIGHT)
        bounds = np.where(every.allowed, model.bounds(inputs_of(every.situations, encode)), -np.inf)
        # What a group gets most often; features tell groups apart, and nothing else does.
        chosen: dict[str, Counter[str]] = {}
        for situation, place in zip(every.situations, bounds.argmax(axis=1), strict=True):
            picked = every.names[place].removeprefix("ask:")
            chosen.setdefault(situation.problem.category, Counter())[picked] += 1
        version = {group: counts.most_common(1)[0][0] for group, counts in chosen.items()}
        better += desk.value(version) > desk.value("small")
    for name, count in estimated.items():
        print(f"{name}: the interval held the truth in {held[name]} of {count} logs")
    print(f"the new version was better than the old one in {better} of {len(seeds)}")


def trials(seeds: Sequence[int], scores: int) -> None:
    for old, new, share in (
        (0.5, 0.5, 0.5),
        (0.5, 0.5, 0.1),
        (0.9, 0.9, 0.1),
        (0.5, 0.6, 0.1),
        (0.5, 0.7, 0.1),
        (0.5, 0.9, 0.1),
        (0.7, 0.5, 0.1),
    ):
        verdicts: Counter[str] = Counter()
        lengths = []
        for seed in seeds:
            draw, comparison = Random(seed), VersionComparison()
            verdict = "no verdict"
            for count in range(1, scores + 1):
                of_new = draw.random() < share
                comparison.add(float(draw.random() < (new if of_new else old)), new=of_new)
                if comparison.low > 0 or comparison.high < 0:
                    verdict = "promoted" if comparison.low > 0 else "rolled back"
                    lengths.append(count)
                    break
            verdicts[verdict] += 1
        median = f", median of {int(np.median(lengths))} scores" if lengths else ""
        print(f"old {old}, new {new}, share {share}: {dict(verdicts)}{median}", flush=True)


def cost(requests: int) -> None:
    desk = Desk(Path.cwd(), QUESTIONS)
    key = Key(1)
    begun = time.process_time()
    asyncio.run(logged(desk, Path("bare"), requests, key))
    print(f"in one process, 1 decision with feedback: {per(begun, requests)}")
    for words in ((), ("--log", "logs", "--explore", "0.05")):
        with server("desk.yaml", *words) as (address, pid):
            client = Client(address)
            client.ask("q0")
            before = processor_of(pid)
            for name, question, _ in asked(desk, requests, key):
                identity, answer = client.ask(question, name=name)
                if words:
                    client.tell(identity, desk.score(question, answer))
            used = processor_of(pid) - before
            client.close()
        what = "with its log and feedback on each" if words else "without a log"
        print(
            f"through HTTP, {what}: {1000 * used / requests:.2f} ms of the server's CPU a request"
        )


def per(begun: float, requests: int) -> str:
    return f"{1000 * (time.process_time() - begun) / requests:.2f} ms of CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["circle", "coverage", "trials", "cost"])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--scores", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given: Any = parser.parse_args()
    first = given.seed - 1
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        if given.what == "circle":
            circle(given.requests, given.seed)
        elif given.what == "coverage":
            coverage(range(first, first + (given.repeats or 30)), given.requests)
        elif given.what == "trials":
            trials(range(first, first + (given.repeats or 200)), given.scores)
        else:
            cost(given.requests)


if __name__ == "__main__":
    main()
