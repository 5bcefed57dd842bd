"""How fast the beam search is, and what it is worth at equal calls.

    python dev.py python -m tests.benchmarks.beam             # everything, some minutes
    python dev.py python -m tests.benchmarks.beam speed       # in-process, seconds
    python dev.py python -m tests.benchmarks.beam http        # against the bare SDK
    python dev.py python -m tests.benchmarks.beam learning    # beam and baselines, five seeds
    python dev.py python -m tests.benchmarks.beam width       # width against samples

speed: k = 5, beam 10, 15 turns at 50 ms a call are 680 calls; 15 x 50 ms is what no search with a
barrier a turn can beat (its predecessor: 7.15 s). Scores are free. Bar: 1.5 times that. Where
others keep the machine busy, that floor and all our CPU time together say more than wall time.

http: the same search over chat agents and the model `openai`, asked of `orchestrion llm-stub` in
another process, against the same calls made with the bare AsyncOpenAI, level by level; in turns,
the median of each. Bar: 1.3 times the bare SDK. CPU is this process's, connections included.

learning: solvers of known skill on the task `steps`, in-process; beam search with the task's
partial score and with noise, against best-of-n and a single agent, at least as many calls each.
Over seeds: the mean difference and its 95 % interval (Student's t over the seeds' means).

width: the same with the partial score plus Gaussian noise, whose rank correlation with the final
score is printed: beams of several widths, `greedy` (width 1, more samples) and best-of-n, all with
about as many calls a turn. The defaults of `beam_width` and `samples` were chosen by it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import NormalDist, mean, median
from typing import Any

from attrs import define, evolve, frozen
from orchestrion_beam.interfaces import Valued, ValueEstimator
from orchestrion_beam.search import BeamSearch
from orchestrion_beam.trainer import GrpoBeam
from orchestrion_beam.values import Noise, TaskValue
from orchestrion_offline.speakers.steps import Solver
from orchestrion_offline.steps import Steps

from orchestrion import (
    Agent,
    Branch,
    Calls,
    Key,
    Output,
    Problem,
    Scores,
    Session,
    Split,
    Task,
    Trajectory,
    Usage,
    View,
    replace,
)
from tests.benchmarks.support import interval
from tests.plugins.beam.support import opened, session_for

TURNS, CALL = 15, 0.05
SHAPE = GrpoBeam(problems=1, beam_width=10, samples=5, turns=TURNS, order="rotation")


@frozen
class Free(Task):
    """Scores cost nothing: they are read off what was said last."""

    def problems(self, split: Split) -> Sequence[Problem]:
        """One in each."""
        return [Problem(split, "Say something.")]

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Somewhere between 0 and 1, by the text."""
        last = trajectory.last
        text = "" if last is None else last.output.content
        return Scores(Key(text.encode().ljust(16)[:16]).child(text).uniform())


@define
class Talker(Agent):
    """Says something new in 50 ms, as a service would."""

    options: tuple[str, ...] = ()
    in_flight: int = 0
    most_in_flight: int = 0

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return its key."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(CALL)
        self.in_flight -= 1
        return Output(key.hex(), usage=Usage(calls=1))


async def searched(agent: Agent) -> tuple[BeamSearch, float]:
    """Return a search that was run, and its seconds."""
    trainer = await opened(SHAPE)
    session = session_for({"a": agent}, Free())
    [problem] = session.problems("train")
    start = time.perf_counter()
    search = trainer.search(session, problem, Key(1), training=True)
    await search.run()
    return search, time.perf_counter() - start


def speed(repeats: int) -> None:
    """In-process."""
    floor = TURNS * CALL
    for _ in range(repeats):
        cpu = time.process_time()
        agent = Talker()
        search, seconds = asyncio.run(searched(agent))
        cpu = time.process_time() - cpu
        counts = search.counts
        share = counts.scored / counts.samples
        ancestors = len({node.root for node in search.finalists})
        idle = (floor + cpu) / floor
        print(
            f"{counts.samples} calls in {seconds:.3f} s, {seconds / floor:.2f} x {floor} s "
            f"(CPU {cpu:.2f} s: {idle:.2f} x on an idle machine); "
            f"{agent.most_in_flight} in flight at most; {share:.0%} scored; "
            f"{ancestors} distinct ancestors among {len(search.finalists)}, "
            f"{mean(counts.parents):.1f} parents a turn"
        )


# ---------------------------------------------------------------------------------- HTTP


@asynccontextmanager
async def stub() -> AsyncIterator[str]:
    """`orchestrion llm-stub` in a process of its own; the address it listens on."""
    command = ["-m", "orchestrion", "llm-stub", "serve", "--latency", str(CALL)]
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe)
    try:
        assert server.stdout is not None
        async for line in server.stdout:
            name, _, address = line.decode().partition("=")
            if name == "OPENAI_BASE_URL":
                yield address.strip()
                break
    finally:
        server.terminate()
        await server.wait()


async def over_http(url: str) -> tuple[float, float]:
    """Return the search, over the model `openai`: seconds, and of this process's CPU."""
    from orchestrion_chat.chat import Chat
    from orchestrion_chat.sees import Sees
    from orchestrion_llm.models import OpenAIModel

    from orchestrion import OpenContext

    model_class: Any = OpenAIModel
    model = model_class(model="echo", base_url=url, max_tokens=50, preflight=False)
    async with model.open(OpenContext("models.m", Key(1))) as running:
        agent = Chat(running, sees=Sees(agents=[], own=False)).ready()
        cpu = time.process_time()
        search, seconds = await searched(Keyed(agent))
        cpu = time.process_time() - cpu
        assert search.counts.samples == SHAPE.samples_per_search, search.counts
    return seconds, cpu


@frozen
class Keyed(Agent):
    """An agent of chat whose samples differ, though the stub echoes."""

    agent: Agent

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return what it says, with its key."""
        output = self.agent.act(view, key, calls)
        assert not isinstance(output, Output)
        return replace(await output, data=key.hex())


async def bare(url: str) -> tuple[float, float]:
    """Return the same number of calls, of the same size, in the same levels."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

        async def call() -> None:
            await client.chat.completions.create(
                model="echo",
                messages=[{"role": "user", "content": "Say something."}],
                max_tokens=50,
            )

        start, cpu, beam = time.perf_counter(), time.process_time(), 1
        for _ in range(TURNS):
            await asyncio.gather(*(call() for _ in range(SHAPE.samples * beam)))
            beam = min(SHAPE.beam_width, SHAPE.samples * beam)
        return time.perf_counter() - start, time.process_time() - cpu


async def http(repeats: int) -> None:
    """Ours and the bare SDK's, in turns."""
    os.environ.setdefault("OPENAI_API_KEY", "none")
    async with stub() as url:
        await bare(url)
        pairs = [(await over_http(url), await bare(url)) for _ in range(repeats)]
    for what, i in (("wall", 0), ("CPU", 1)):
        ours, theirs = median(one[i] for one, _ in pairs), median(one[i] for _, one in pairs)
        ratio = f"{ours / theirs:.2f} x"
        print(f"over HTTP {ours:.3f} s {what}, bare SDK {theirs:.3f} s: {ratio}")


# ------------------------------------------------------------------------------ learning


@frozen
class Worker(Agent):
    """A simulated solver, asked without HTTP."""

    solver: Solver

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return the next line, as the speaker behind the server would write it."""
        work = "\n".join(turn.output.content for turn in view.turns)
        said = f"{view.problem.text}\n\n{work}"
        request = {"model": "solver", "messages": [{"role": "user", "content": said}]}
        return Output(self.solver.say(request, key).text, usage=Usage(calls=1))


WEAKER = Solver(skills={"sums": 0.62, "products": 0.55, "digits": 0.47})
VARIANTS: dict[str, tuple[Solver, Steps]] = {
    "weak solver": (
        Solver(skills={"sums": 0.8, "products": 0.6, "digits": 0.5}),
        Steps(steps=10, train=4, validation=40, test=1),
    ),
    "same mistakes": (
        Solver(skills={"sums": 0.9, "products": 0.7, "digits": 0.6}, common=0.9),
        Steps(steps=12, categories=("mixed",), train=4, validation=40, test=1),
    ),
    "one skill": (
        Solver(skills={}, skill=0.7),
        Steps(steps=9, categories=("products",), train=4, validation=40, test=1),
    ),
    "weaker solver": (WEAKER, Steps(steps=10, train=4, validation=40, test=1)),
    # Equal lines are different texts: the beam may keep several of them.
    "its remarks": (evolve(WEAKER, remarks=4), Steps(steps=10, train=4, validation=40, test=1)),
}
LEARNING = ("weak solver", "same mistakes", "one skill")


async def compared(
    variant: str, value: ValueEstimator, seed: int, problems: int, **settings: Any
) -> dict[str, Any]:
    """One seed's report."""
    solver, task = VARIANTS[variant]
    trainer = await opened(
        GrpoBeam(
            rounds=1,
            turns=task.steps,
            order="rotation",
            value=value,
            select="reward",
            held_out=problems,
            **{
                "beam_width": 3,
                "samples": 6,
                "baselines": ("single", "greedy", "best-of-n"),
                **settings,
            },
        )
    )
    agents: dict[str, Agent] = {"anna": Worker(solver), "ben": Worker(solver)}
    await trainer.iterate(1, session_for(agents, evolve(task, seed=seed), seed=seed))
    return dict(trainer.report)


@frozen
class Erring(TaskValue):
    """The task's partial score, plus noise that depends on what was said."""

    noise: float = 0.0

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """Return the score, and an error of this size."""
        exact = await super().estimate(branch, session, key)
        assert exact.value is not None
        error = NormalDist().inv_cdf(key.child("error").uniform() or 0.5)
        # A value is from 0 to 1; scaling keeps the order, and cutting off would make ties.
        return evolve(exact, value=(exact.value + self.noise * error + 1) / 3)


SHAPES = {
    24: ((8, 3), (6, 4), (5, 5), (4, 6), (3, 8)),
    40: ((13, 3), (10, 4), (8, 5), (5, 8)),
}
"""Widths and samples, by about how many calls a turn they make."""
NOISES = (0.0, 0.05, 0.10, 0.15)
FAMILIES = ("weaker solver", "its remarks", "one skill")


def width(seeds: int, problems: int) -> None:
    """Beams of several widths, and one trajectory and independent attempts with as many calls."""
    for variant in FAMILIES:
        for calls, shapes in SHAPES.items():
            names = [f"{wide} x {samples}" for wide, samples in shapes]
            print(f"{variant}, {calls} calls a turn")
            print(_row(["noise", "correlation", *names, "greedy", "best-of-n"]))
            for noise in NOISES:
                print(_row(_widths(variant, noise, shapes, seeds, problems)), flush=True)


def _widths(
    variant: str, noise: float, shapes: Sequence[tuple[int, int]], seeds: int, problems: int
) -> list[str]:
    """Return a row: rewards and calls of all shapes; baselines have the last one's calls."""
    cells = []
    for wide, samples in shapes:
        reports = [
            asyncio.run(
                compared(
                    variant,
                    Erring(noise=noise),
                    seed,
                    problems,
                    beam_width=wide,
                    samples=samples,
                    baselines=("greedy", "best-of-n") if (wide, samples) == shapes[-1] else (),
                )
            )
            for seed in range(1, seeds + 1)
        ]
        cells.append(_cell(reports, 0))
    correlation = mean(one["value"]["correlation"]["mean"] for one in reports)
    return [f"{noise:g}", f"{correlation:.2f}", *cells, _cell(reports, 1), _cell(reports, 2)]


def _cell(reports: Sequence[dict[str, Any]], contender: int) -> str:
    ones = [one["contenders"][contender] for one in reports]
    reward = mean(one["reward"]["mean"] for one in ones)
    return f"{reward:.3f} ({mean(one['calls'] for one in ones):.0f})"


def _row(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(11) for cell in cells).rstrip()


def learning(seeds: int, problems: int) -> None:
    """Every variant, with a value that knows and with one that does not."""
    for variant in LEARNING:
        for value in (TaskValue(), Noise()):
            reports = [
                asyncio.run(compared(variant, value, seed, problems))
                for seed in range(1, seeds + 1)
            ]
            title = f"{variant}, value {value.label}"
            _print(title, reports, ("single", "greedy", "best-of-n"))


def _print(title: str, reports: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    beams = [one["contenders"][0] for one in reports]
    rewards = [one["reward"]["mean"] for one in beams]
    calls = mean(one["calls"] for one in beams)
    noise = sum(one["value"]["better_than_noise"] is False for one in reports)
    print(f"{title}: beam {mean(rewards):.3f} with {calls:.0f} calls a problem")
    for n, name in enumerate(names, start=1):
        rivals = [one["contenders"][n] for one in reports]
        ahead = interval([one["ahead"]["mean"] for one in rivals])
        print(f"  ahead of {name} by {ahead}, {mean(one['calls'] for one in rivals):.0f} calls")
    print(f"  reports that call the value no better than noise: {noise} of {len(reports)}")


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", choices=["speed", "http", "learning", "width", "all"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=20)
    given = parser.parse_args()
    what = given.what or "all"
    if what in ("speed", "all"):
        speed(given.repeats)
    if what in ("http", "all"):
        asyncio.run(http(given.repeats))
    if what in ("learning", "all"):
        learning(given.seeds, given.problems)
    if what in ("width", "all"):
        width(given.seeds, given.problems)


if __name__ == "__main__":
    main()
