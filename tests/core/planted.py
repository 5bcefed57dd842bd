"""Components with one mistake each, and clean twins: what the conformance kit must tell apart.

`PLANTED` lists them: kind, class, the check that must fail, and words that its message must hold.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Annotated, Any, TypeVar

from attrs import define, evolve, field, frozen

from orchestrion import (
    Activation,
    Agent,
    Answer,
    CallError,
    Calls,
    Component,
    Decision,
    Episode,
    Job,
    Key,
    Meta,
    Observation,
    OpenContext,
    Output,
    Policy,
    Problem,
    Request,
    Reward,
    RewardFunction,
    Saved,
    Scores,
    Session,
    Situation,
    Split,
    Step,
    Task,
    Trainer,
    Trajectory,
    Turn,
    Usage,
    View,
    choice_name,
    choices,
    hookimpl,
    is_blocked,
    replace,
)

Bug = tuple[str, type, str, str]
PLANTED: list[Bug] = []
CLEAN: list[tuple[str, type]] = []


def planted(check: str, words: str) -> Callable[[type], type]:
    """Register a class that `check` must fail, with these words in its message."""

    def register(cls: type) -> type:
        PLANTED.append((_kind(cls), cls, check, words))
        return cls

    return register


Act = Callable[[View, Key, Calls], Awaitable[Output]]
Part = TypeVar("Part", bound=Callable[..., Any])


def planted_part(base: type, method: str, check: str, words: str) -> Callable[[Part], Part]:
    """Register a class like `base` but for one method; it is called like it, in CamelCase."""

    def register(part: Part) -> Part:
        name = part.__name__.title().replace("_", "")
        members = {method: part, "__doc__": part.__doc__, "__module__": __name__}
        globals()[name] = planted(check, words)(frozen(type(name, (base,), members)))
        return part

    return register


def planted_agent(check: str, words: str) -> Callable[[Act], Act]:
    """Register an agent that acts by a function."""

    def register(act: Act) -> Act:
        @wraps(act)
        async def method(self: Agent, view: View, key: Key, calls: Calls) -> Output:
            return await act(view, key, calls)

        planted_part(Agent, "act", check, words)(method)
        return act

    return register


def clean(cls: type) -> type:
    """Register a class that every check passes."""
    CLEAN.append((_kind(cls), cls))
    return cls


def _kind(cls: type) -> str:
    kinds = {"agent": Agent, "task": Task, "reward": RewardFunction, "trainer": Trainer}
    return next((kind for kind, base in kinds.items() if base in cls.__mro__), "policy")


# ---------------------------------------------------------------------------- agents


@clean
@frozen
class Unreachable(Agent):
    """Asks a service that cannot be reached from here, which is no mistake of its own."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        raise CallError("opened without a connection", "permanent")


@clean
@frozen
class Writer(Agent):
    """Says a number that it draws."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output(f"{key.child('number').uniform():.3f}", usage=Usage(cost=1.0))


@clean
@frozen
class Picky(Agent):
    """Works on what others said, and says so where there is nothing."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        if not view.turns:
            raise ValueError("there is no draft yet")
        return Output(view.turns[-1].output.content.upper())


@clean
@frozen
class Calling(Agent):
    """Makes a call whose client draws a name for its request."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        async def do() -> Answer:
            random.getrandbits(48)
            return Answer({"text": "done"})

        return Output((await calls.run(Request("service", view.problem.text), do)).data["text"])


@clean
@frozen
class Counting(Agent):
    """Pure: counts words."""

    @property
    def pure(self) -> bool:
        return True

    def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output(str(len(view.problem.text.split())))


@planted_agent("never blocks the event loop", "act() blocks the event loop")
async def sleeps(view: View, key: Key, calls: Calls) -> Output:
    """Sleeps on the event loop."""
    time.sleep(0.3)  # noqa: ASYNC251  the mistake
    return Output("done")


@planted_agent("never blocks the event loop", "computed for")
async def computes(view: View, key: Key, calls: Calls) -> Output:
    """Computes on the event loop."""
    total = 0
    for i in range(
        12_000_000
    ):  # by work and not by time, since the kit goes by the machine's speed
        total += i
    return Output("done")


@planted("is a frozen, documented class", "Mutable is not frozen")
@define
class Mutable(Agent):
    """Can be changed by whoever has it."""

    def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output("done")


@planted("describes its settings", "no description of size")
@frozen
class Undescribed(Writer):
    """Has a setting of which nobody says what it is."""

    size: int = 1


@planted("settings survive a round trip", "size: must be at least 1")
@frozen
class BelowItsLimit(Writer):
    """Has a default that its own annotation refuses.

    Args:
        size: at least 1, by default not.
    """

    size: Annotated[int, Meta(ge=1)] = 0


@planted("opens twice without shared state", "open() yielded the same object twice")
@frozen
class Shared(Writer):
    """Opens one runtime for all runs of the process."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        yield ONE_FOR_ALL


ONE_FOR_ALL = Writer()


@planted("is as pure as it says", "declared `pure`")
@frozen
class PureByKey(Agent):
    """Says it is pure, and draws."""

    @property
    def pure(self) -> bool:
        return True

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output(str(key.uniform()))


@planted("is as pure as it says", "declared `pure`")
@frozen
class PureById(Agent):
    """Says it is pure, and reads the problem's id, by which results are not told apart."""

    @property
    def pure(self) -> bool:
        return True

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output(f"work on {view.problem.id}")


@planted("is as pure as it says", "declared `pure`")
@frozen
class NarrowMemo(Agent):
    """Its memo leaves out what its output hangs on."""

    @property
    def pure(self) -> bool:
        return True

    def memo(self, view: View) -> Any:
        return view.problem.text

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output(f"{len(view.team)} in the team, {view.problem.category}")


@planted_agent("draws from its key alone", "the module `random`")
async def module_random(view: View, key: Key, calls: Calls) -> Output:
    """Draws from the module `random`, though what it says does not show it."""
    return Output("heads" if random.random() < 2 else "tails")


@planted_agent("acts alike for equal keys", "equal views and keys")
async def system_random(view: View, key: Key, calls: Calls) -> Output:
    """Draws from the operating system."""
    return Output(str(random.SystemRandom().random()))


@planted_agent("draws from its key alone", "ignores the key")
async def own_seed(view: View, key: Key, calls: Calls) -> Output:
    """Draws the same in every episode."""
    return Output(random.Random(7).choice(["a", "b", "c"]))


@planted_agent("draws from its key alone", "ignores the key")
async def own_key(view: View, key: Key, calls: Calls) -> Output:
    """Draws from a key of its own, so that all episodes on a problem draw the same."""
    return Output(str(Key(5).child(view.problem.id).uniform()))


@planted_agent("draws from its key alone", "draws twice from the same key")
async def same_key_twice(view: View, key: Key, calls: Calls) -> Output:
    """Uses one key for two draws."""
    width, height = key.uniform(), key.uniform()
    return Output(f"{width} {height}")


@planted_agent("acts on any view", "uses the network")
async def network(view: View, key: Key, calls: Calls) -> Output:
    """Asks a service past `calls.run`, and hides that it failed."""
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", 9), timeout=1).close()
    return Output("answer")


@planted_agent("acts on any view", "data of a record cannot be changed")
async def mutates(view: View, key: Key, calls: Calls) -> Output:
    """Changes the data that all episodes share."""
    view.problem.data["words"].append("mine")
    return Output("read it")


@planted_agent("acts on any view", "Usage.cost is nan")
async def nan_cost(view: View, key: Key, calls: Calls) -> Output:
    """Costs no number."""
    return Output("done", usage=Usage(cost=float("nan")))


@planted_agent("acts on any view", "must be JSON")
async def no_json(view: View, key: Key, calls: Calls) -> Output:
    """Gives data that no record can hold."""
    return Output("done", data={"call": lambda: 1})


@planted_agent("acts on any view", "IndexError")
async def no_turns_yet(view: View, key: Key, calls: Calls) -> Output:
    """Takes for granted that somebody acted before."""
    return Output(view.turns[-1].output.content)


@planted_agent("acts on any view", "around=")
async def never_works(view: View, key: Key, calls: Calls) -> Output:
    """Needs a task that nobody put around it."""
    raise ValueError("no board in the problem")


@define
class _Remembering(Agent):
    said: int = 0

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        self.said += 1
        return Output(f"turn {self.said}")


@planted("acts alike for equal keys", "the second time")
@frozen
class Remembers(Agent):
    """Keeps a count between turns."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        yield _Remembering()

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        raise NotImplementedError


@define
class _Stubborn(_Remembering):
    def save(self) -> Saved:
        return Saved(data={"rates": [0.5], "said": self.said})

    def load(self, saved: Saved) -> None:
        self.said = saved.data["said"]


@planted("loads what it saved", "load() leaves out Saved.data['rates'][0]")
@frozen
class Stubborn(Remembers):
    """Learns a rate that nobody can give back to it."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        yield _Stubborn()


@planted_agent("believes nobody", "because another agent says")
async def gullible(view: View, key: Key, calls: Calls) -> Output:
    """Ends the episode when somebody says that the work is done."""
    done = any("DONE" in turn.output.content for turn in view.turns)
    return Output("I looked at it", final=done)


# ---------------------------------------------------------------------------- tasks


@clean
@frozen
class Sums(Task):
    """Sums; solved if the last turn says the number."""

    def problems(self, split: Split) -> Sequence[Problem]:
        first = {"train": 10, "validation": 40, "test": 70}[split]
        return [self.problem(split, n) for n in range(first, first + 9)]

    def problem(self, split: Split, n: int) -> Problem:
        return Problem(f"{split}-{n}", f"{n} + {2 * n}", {"terms": [n, 2 * n]}, hidden=str(3 * n))

    def start(self, problem: Problem, key: Key) -> Step:
        return Step((), self.seen(()))

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        state = (*state, turn.output.content)
        return Step(state, self.seen(state))

    def seen(self, state: Any) -> Observation:
        return Observation(f"{len(state)} turns", {"turns": len(state)}, (float(len(state)),))

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        right = self.right(problem, trajectory, state)
        return Scores(float(right), right == 1)

    def right(self, problem: Problem, trajectory: Trajectory, state: Any) -> float:
        return bool(state) and state[-1].strip() == problem.hidden


@clean
@frozen
class Choices(Sums):
    """Shows the right number among others, as a test of many choices does."""

    def problem(self, split: Split, n: int) -> Problem:
        plain = Sums.problem(self, split, n)
        shown = [str(3 * n + (i - n) % 4) for i in range(4)]
        return replace(plain, data={"choices": shown})


@planted_part(Sums, "problems", "has disjoint, repeatable splits", "two splits")
def same_ids(self: Sums, split: Split) -> Sequence[Problem]:
    """Tests on what was trained on."""
    return [self.problem("train", n) for n in range(10, 19)]


@planted_part(Sums, "problems", "has disjoint, repeatable splits", "but for its id")
def other_ids(self: Sums, split: Split) -> Sequence[Problem]:
    """Tests on what was trained on, under other names."""
    return [self.problem(split, n) for n in range(10, 19)]


@planted_part(Sums, "problems", "has disjoint, repeatable splits", "the second time")
def shuffled(self: Sums, split: Split) -> Sequence[Problem]:
    """Gives its problems in another order each time."""
    problems = list(Sums.problems(self, split))
    return random.Random(time.perf_counter_ns()).sample(problems, len(problems))


@planted_part(Sums, "problem", "hides what is hidden", "problem.data['solution'] is always")
def leaks(self: Sums, split: Split, n: int) -> Problem:
    """Puts the answer into the public part."""
    return replace(Sums.problem(self, split, n), data={"solution": 3 * n, "terms": [n, 2 * n]})


@planted_part(Sums, "problem", "hides what is hidden", "text always quotes")
def leaks_in_text(self: Sums, split: Split, n: int) -> Problem:
    """Says the answer in the text."""
    plain = Sums.problem(self, split, n)
    return replace(plain, text=f"{plain.text} (expected answer: {3 * n})")


@planted_part(Sums, "start", "hides what is hidden", "at the start")
def leaks_at_the_start(self: Sums, problem: Problem, key: Key) -> Step:
    """Shows the answer as the environment."""
    return Step((), Observation("0 turns", {"target": problem.hidden}, (0.0,)))


@planted_part(Sums, "right", "believes nobody", "counts as solved after 'DONE'")
def believes_text(self: Sums, problem: Problem, trajectory: Trajectory, state: Any) -> bool:
    """Takes an agent's word for it."""
    return bool(state) and "done" in state[-1].lower()


@planted_part(Sums, "right", "believes nobody", "counts as solved after")
def believes_data(self: Sums, problem: Problem, trajectory: Trajectory, state: Any) -> bool:
    """Takes an agent's data for it."""
    data = trajectory.last.output.data if trajectory.last is not None else None
    return isinstance(data, Mapping) and bool(data.get("passed"))


@planted_part(Sums, "right", "believes nobody", "counts as solved after")
def believes_the_end(self: Sums, problem: Problem, trajectory: Trajectory, state: Any) -> bool:
    """Solved as soon as an agent ends it."""
    return any(turn.output.final for turn in trajectory)


@planted("steps purely", "changes the state it is given")
@frozen
class ChangesState(Sums):
    """Appends to a list that forks share."""

    def start(self, problem: Problem, key: Key) -> Step:
        return Step([], self.seen([]))

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        state.append(turn.output.content)
        return Step(state, self.seen(state))


@define
class _SharedTask(Sums):
    told: list[str] = field(factory=list)

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        self.told.append(turn.agent)
        state = (*state, turn.output.content)
        return Step(state, replace(self.seen(state), text=f"{len(self.told)} turns"))


@planted("steps purely", "not pure")
@frozen
class SharedState(Sums):
    """Counts the turns of all episodes together."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        yield _SharedTask()


@planted_part(Sums, "seen", "steps purely", "features change their length")
def widths(self: Sums, state: Any) -> Observation:
    """Gives a policy more numbers the longer an episode lasts."""
    return Observation("", None, tuple(float(len(text)) for text in ("", *state)))


@planted_part(Sums, "right", "verifies alike", "verify() gave equal results different scores")
def random_verdict(self: Sums, problem: Problem, trajectory: Trajectory, state: Any) -> float:
    """Draws the score."""
    return random.random()


@planted_part(Sums, "right", "verifies alike", "verify() blocks the event loop")
def slow_verdict(self: Sums, problem: Problem, trajectory: Trajectory, state: Any) -> bool:
    """Sleeps while it verifies."""
    time.sleep(0.3)
    return False


# ---------------------------------------------------------------------------- rewards


@clean
@frozen
class Outcome(RewardFunction):
    """What the verifier says, less a little for each turn."""

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        if episode.scores is None:
            return None
        return Reward(episode.scores.value - 0.01 * len(episode.turns))


@planted_part(RewardFunction, "score", "believes nobody", "because an agent says")
async def flattered(self: RewardFunction, episode: Episode, calls: Calls) -> Reward | None:
    """Pays for the word PASS."""
    return Reward(float(any("PASS" in turn.output.content for turn in episode.turns)))


@planted("gives finite, repeatable rewards", "before it")
@frozen
class Moving(RewardFunction):
    """Subtracts the mean of the rewards before."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[RewardFunction]:
        yield _Moving()


@define
class _Moving(RewardFunction):
    values: dict[str, float] = field(factory=dict)

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        self.values.setdefault(repr(episode), float(len(self.values)))
        return Reward(self.values[repr(episode)])


@planted_part(RewardFunction, "score", "gives finite, repeatable rewards", "nan")
async def nan_reward(self: RewardFunction, episode: Episode, calls: Calls) -> Reward | None:
    """Divides by the turns, of which there may be none."""
    return Reward(1.0 / len(episode.turns) if episode.turns else float("nan"))


# ---------------------------------------------------------------------------- policies


@define
class _Bandit(Policy):
    """Mean reward by choice, and how often it was tried."""

    team: Sequence[Activation]
    values: dict[str, float] = field(factory=dict)
    counts: dict[str, int] = field(factory=dict)

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        return [self.one(s, k) for s, k in zip(situations, keys, strict=True)]

    def one(self, situation: Situation, key: Key) -> Decision:
        free = [one for one in self.team if not is_blocked(one, situation.observation)]
        if len(situation.trajectory) or not free:
            return Decision(stop=True)
        if situation.training and key.child("explore").uniform() < 0.5:
            return Decision((free[int(key.child("which").uniform() * len(free))],))
        return Decision((max(free, key=lambda one: self.values.get(choice_name(one), 0.0)),))

    def learn(self, choice: str, reward: float) -> None:
        count = self.counts[choice] = self.counts.get(choice, 0) + 1
        value = self.values.get(choice, 0.0)
        self.values[choice] = value + (reward - value) / count

    def save(self) -> Saved:
        return Saved(data={"values": dict(self.values), "counts": dict(self.counts)})

    def load(self, saved: Saved) -> None:
        self.values, self.counts = dict(saved.data["values"]), dict(saved.data["counts"])


class _NoSave(_Bandit):
    save = load = None  # type: ignore[assignment]


class _NoLoad(_Bandit):
    load = None  # type: ignore[assignment]


class _EmptyLoad(_Bandit):
    def load(self, saved: Saved) -> None:
        pass


class _HalfLoad(_Bandit):
    def load(self, saved: Saved) -> None:
        self.counts = dict(saved.data["counts"])


class _HalfSave(_Bandit):
    def save(self) -> Saved:
        return Saved(data={"values": dict(self.values)})

    def load(self, saved: Saved) -> None:
        self.values = dict(saved.data["values"])


class _Forgets(_Bandit):
    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        decisions = super().decide(situations, keys)
        if getattr(self, "loaded", False):
            self.values = {}
        return decisions

    def load(self, saved: Saved) -> None:
        super().load(saved)
        self.loaded = True


class _NoPlainState(_Bandit):
    def save(self) -> Saved:
        return Saved(data={"values": set(self.values)})


class _SlowChoice(_Bandit):
    def one(self, situation: Situation, key: Key) -> Decision:
        time.sleep(0.3)
        return Decision(stop=True)

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        if len(situations) == 1:
            return super().decide(situations, keys)
        return [Decision(stop=True) for _ in situations]


class _IgnoresMask(_Bandit):
    def one(self, situation: Situation, key: Key) -> Decision:
        return Decision(stop=True) if len(situation.trajectory) else Decision((self.team[0],))


class _IgnoresOptions(_Bandit):
    def one(self, situation: Situation, key: Key) -> Decision:
        blocked = situation.observation.blocked if situation.observation else ()
        free = [one for one in self.team if one.agent not in blocked]
        return Decision((free[-2],)) if len(free) > 1 else Decision(stop=True)


class _IgnoresAgents(_Bandit):
    def one(self, situation: Situation, key: Key) -> Decision:
        blocked = situation.observation.blocked if situation.observation else ()
        free = [one for one in self.team if one.option and choice_name(one) not in blocked]
        return Decision((free[0],)) if free else Decision(stop=True)


class _IgnoresKey(_Bandit):
    def one(self, situation: Situation, key: Key) -> Decision:
        return super().one(situation, Key(3).child(len(situation.trajectory)))


class _OneKey(_Bandit):
    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        return [self.one(situation, keys[0]) for situation in situations]


class _LooksAround(_Bandit):
    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        return super().decide(situations, keys) if len(situations) > 1 else [Decision(stop=True)]


class _ChangesSituation(_Bandit):
    def one(self, situation: Situation, key: Key) -> Decision:
        situation.problem.data["seen"] = True
        return super().one(situation, key)


def _bandit(runtime: type[_Bandit], doc: str) -> type:
    """A policy class whose runtime is this one."""

    @asynccontextmanager
    async def open_(self: Any, ctx: OpenContext) -> AsyncIterator[Policy]:
        yield runtime(choices(ctx.roster))

    name = runtime.__name__.strip("_")
    return frozen(type(name, (), {"open": open_, "__doc__": doc, "__module__": __name__}))


_POLICIES: tuple[tuple[type[_Bandit], str, str], ...] = (
    (_NoSave, "keeps what it learned", "it has no save() and load()"),
    (_NoLoad, "loads what it saved", "no load()"),
    (_EmptyLoad, "keeps what it learned", "load() restores nothing"),
    (_HalfLoad, "keeps what it learned", "what it learned is lost"),
    (_Forgets, "keeps what it learned", "at the second attempt"),
    (_NoPlainState, "loads what it saved", "cannot be written to a checkpoint"),
    (_SlowChoice, "never blocks the event loop", "decide() blocks the event loop"),
    (_IgnoresMask, "decides among what there is", "blocks (a)"),
    (_IgnoresOptions, "decides among what there is", "which the task blocks"),
    (_IgnoresAgents, "decides among what there is", "which the task blocks"),
    (_IgnoresKey, "draws from its keys alone", "same"),
    (_OneKey, "draws from its keys alone", "draws twice from the same key"),
    (_LooksAround, "decides alike alone and in a batch", "depends on what else is in its batch"),
    (_ChangesSituation, "decides among what there is", "data of a record cannot be changed"),
)


@planted("has the methods of its kind", "has neither decide nor open()")
@frozen
class Idle:
    """Is meant to be a policy, and cannot decide."""


Bandit = clean(_bandit(_Bandit, "Learns which agent pays."))
for _runtime, _check, _words in _POLICIES:
    _cls = planted(_check, _words)(_bandit(_runtime, "Learns which agent pays, with a mistake."))
    globals()[_cls.__name__] = _cls


# ---------------------------------------------------------------------------- trainers


@clean
@frozen
class Practice(Trainer):
    """Tries the bandit and tells it what it got."""

    @property
    def iterations(self) -> int:
        return 3

    def jobs(self, i: int, session: Session) -> list[Job]:
        problems = session.problems()
        keys = [session.key.child("episode", n) for n in range(12)]
        return [Job(problems[n % len(problems)], key) for n, key in enumerate(keys)]

    async def iterate(self, i: int, session: Session) -> Mapping[str, float]:
        episodes = await session.rollout(self.jobs(i, session))
        rewards = [one.reward.total for one in episodes if one.reward is not None]
        for episode in episodes:
            if hasattr(session.policy, "learn") and episode.turns and episode.reward:
                first = Activation(episode.turns[0].agent, episode.turns[0].option)
                session.policy.learn(choice_name(first), episode.reward.total)
        return {"best": max(rewards)}


@planted("goes on as before after a reload", "leaves something out")
@frozen
class Schedule(Practice):
    """Its step shrinks, and nobody saves how far it is."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        yield _Scheduled()  # type: ignore[abstract]  # a check that does nothing is inherited


class _Scheduled(Practice):
    step: float

    def __init__(self) -> None:
        object.__setattr__(self, "step", 1.0)

    async def iterate(self, i: int, session: Session) -> Mapping[str, float]:
        object.__setattr__(self, "step", self.step / 2)
        return {**await super().iterate(i, session), "step": self.step}


@planted_part(Practice, "jobs", "draws from the session's key", "two episodes on problem")
def one_key_for_all(self: Practice, i: int, session: Session) -> list[Job]:
    """Runs all episodes with the same key."""
    return [evolve(job, key=session.key) for job in Practice.jobs(self, i, session)]


@planted_part(Practice, "jobs", "draws from the session's key", "ignores the session's key")
def trainer_key(self: Practice, i: int, session: Session) -> list[Job]:
    """Runs the same episodes in every iteration."""
    return [
        evolve(job, key=Key(4).child(n)) for n, job in enumerate(Practice.jobs(self, i, session))
    ]


@planted_part(Practice, "jobs", "draws from the session's key", "the module `random`")
def trainer_random(self: Practice, i: int, session: Session) -> list[Job]:
    """Shuffles by the module `random`, which changes no metric."""
    jobs = Practice.jobs(self, i, session)
    random.shuffle([1, 2, 3])
    return jobs


@planted_part(Practice, "jobs", "draws from the session's key", "ignores the key")
def trainer_seed(self: Practice, i: int, session: Session) -> list[Job]:
    """Picks problems by a generator of its own."""
    order = random.Random(0).sample(range(12), 12)
    jobs = Practice.jobs(self, i, session)
    return [jobs[n] for n in order]


@planted_part(Practice, "iterate", "trains alike for equal seeds", "must be a finite number")
async def nan_metric(self: Practice, i: int, session: Session) -> Mapping[str, float]:
    """Reports what is no number."""
    return {**await Practice.iterate(self, i, session), "loss": float("nan")}


class Planted:
    """A plugin that supplies one of these classes, with a trainer for a policy and vice versa."""

    def __init__(self, kind: str, cls: type) -> None:
        self._parts = {kind: cls}
        if kind == "policy":
            self._parts["trainer"] = Practice
        if kind == "trainer":
            self._parts["policy"] = Bandit

    @hookimpl
    def orchestrion_components(self) -> Iterator[tuple[str, Component]]:
        for kind, cls in self._parts.items():
            name = cls.__name__
            yield kind, Component(name.lower(), f"{__name__}:{name}", "for a test")
