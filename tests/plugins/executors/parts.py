"""A team whose episodes show where they ran: agents that ask a service, state usage, or die."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import struct
import subprocess
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from math import log
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import Request as WebRequest
from urllib.request import urlopen

from attrs import frozen

from orchestrion import (
    Activation,
    Agent,
    Answer,
    Array,
    CallError,
    Calls,
    Decision,
    Job,
    Key,
    Member,
    Metrics,
    OpenContext,
    Output,
    Policy,
    Problem,
    Request,
    Saved,
    Scores,
    Session,
    Situation,
    Split,
    Task,
    Trainer,
    Trajectory,
    Usage,
    View,
    register,
)


@frozen
class Numbers(Task):
    """Problems that are solved by an answer as long as their number; `locked` hides a lock."""

    count: int = 12
    locked: bool = False

    def problems(self, split: Split) -> Sequence[Problem]:
        first = ("train", "validation", "test").index(split) * 100
        numbers = range(first, first + self.count)
        more = {"lock": threading.Lock()} if self.locked else {}
        return [Problem(f"p{n}", f"problem {n}", hidden={"wanted": n % 3, **more}) for n in numbers]

    async def verify(
        self,
        problem: Problem,
        trajectory: Trajectory,
        state: Any,
        *,
        final: bool,
        calls: Calls,
    ) -> Scores:
        said = trajectory.turns[-1].output.content if trajectory.turns else ""
        return Scores(float(len(said) % 3 == problem.hidden["wanted"]), bool(said))


@frozen
class Talker(Agent):
    """Says something drawn from its key, states usage, and fails now and then."""

    price: float = 0.0
    options: tuple[str, ...] = ("short", "long")

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        if key.child("fail").uniform() < 0.1:
            raise ValueError(f"cannot do {view.problem.id}")
        if key.child("warn").uniform() < 0.05:
            logging.getLogger("parts").warning("odd: %s", view.problem.id)
        long = 3 * (view.option == "long")
        return Output(
            "x" * (1 + long + int(key.uniform() * 3)), usage=Usage(cost=0.1, usd=self.price)
        )


@frozen
class Thinker(Agent):
    """Says the same for many problems, so that several workers compute it."""

    pure: ClassVar[bool] = True

    def memo(self, view: View) -> int:
        return int(view.problem.id[1:]) % 5

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output("x" * self.memo(view), usage=Usage(cost=1.0))


@frozen
class Asker(Agent):
    """Asks a service, and tells it which process it is."""

    url: str

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        content = {"problem": view.problem.id, "draw": key.hex()}

        async def ask() -> Answer:
            body = json.dumps({**content, "pid": os.getpid()}).encode()
            request = WebRequest(self.url, body, {"content-type": "application/json"})

            def send() -> Any:
                with urlopen(request, timeout=60) as answer:
                    return json.load(answer)

            try:
                data = await asyncio.to_thread(send)
            except OSError as error:
                raise CallError(str(error), "transient") from error
            return Answer(data, Usage(1, 10, 1, 0.001))

        answer = await calls.run(Request("asked", content), ask, Usage(1, 20, 2, 0.002))
        return Output(answer.data["text"])


@frozen
class Deadly(Agent):
    """Kills its process at one problem: as long as `alive` does not exist, or always."""

    problem: str
    alive: str = ""

    def act(self, view: View, key: Key, calls: Calls) -> Output:
        if view.problem.id == self.problem and not (self.alive and Path(self.alive).exists()):
            if self.alive:
                Path(self.alive).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Output("alive")


@frozen
class Nasty(Agent):
    """Does at some problems what would end, double or betray the process it runs in."""

    token: str

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        match int(view.problem.id[1:]) % 5:
            case 1:
                raise KeyboardInterrupt
            case 2:
                asyncio.get_running_loop().stop()
            case 3:
                os.fork()
            case 4:
                register("TOKEN", self.token[::-1])
                return Output(self.token[::-1])
        return Output("nice")


@frozen
class Leaving(Agent):
    """Starts a process that outlives it, and dies; does nothing once `alive` exists."""

    alive: str

    def act(self, view: View, key: Key, calls: Calls) -> Output:
        if not Path(self.alive).exists():
            child = subprocess.Popen(["sleep", "600"], close_fds=False, start_new_session=True)
            Path(self.alive).write_text(str(child.pid))
            os.kill(os.getpid(), signal.SIGKILL)
        return Output("alive")


class Preferring(Policy):
    """Two turns, each drawn by the weights of the choices; `hidden` is nothing it saves."""

    def __init__(self, roster: Sequence[Member]) -> None:
        self.choices = [
            Activation(member.name, option)
            for member in roster
            for option in (member.options or (None,))
        ]
        self.weights = [1.0] * len(self.choices)
        self.drift = 0.0

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
        return [self._decide(*case) for case in zip(situations, keys, strict=True)]

    def _decide(self, situation: Situation, key: Key) -> Decision:
        if len(situation.trajectory) == 2:
            return Decision(stop=True)
        wanted = key.uniform() * sum(self.weights)
        sums = list(accumulate(self.weights))
        place = next((i for i, total in enumerate(sums) if wanted < total), len(sums) - 1)
        logp = log(self.weights[place] / sums[-1])
        return Decision((self.choices[place],), record=place, logp=logp)

    def save(self) -> Saved:
        data = struct.pack(f"<{len(self.weights)}d", *self.weights)
        return Saved({"weights": Array("F64", (len(self.weights),), data)})

    def load(self, saved: Saved) -> None:
        self.weights = list(struct.unpack(f"<{len(self.weights)}d", saved.arrays["weights"].data))


@frozen
class Prefer(Policy):
    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Preferring]:
        yield Preferring(ctx.roster)


@frozen
class Strengthen(Trainer):
    """Raises the weights of what was rewarded; `forgets` changes what the policy does not save.

    With `kills`, it has numbers squared, one of which kills its process if there is no such file.
    """

    iterations: int = 3
    forgets: bool = False
    kills: str = ""

    async def iterate(self, i: int, session: Session) -> Metrics:
        policy: Preferring = session.policy
        if self.forgets:
            policy.drift = 0.5
        jobs = [Job(problem, session.key.child(problem.id)) for problem in session.problems()]
        for episode in await session.rollout(jobs):
            for decision in episode.decisions:
                if decision.record is not None and episode.reward is not None:
                    policy.weights[decision.record] += episode.reward.total
        held_out = await session.evaluate()
        metrics = {"held_out": sum(e.reward.total for e in held_out if e.reward) / len(held_out)}
        if self.kills:
            items = [(n, self.kills) for n in range(20)]
            metrics["squares"] = float(sum(await session.spread(squared, items)))
        return metrics


def squared(number: int, alive: str) -> int:
    """Return the square; kill this process at 7 if the file does not exist."""
    if number == 7 and not Path(alive).exists():
        Path(alive).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2
