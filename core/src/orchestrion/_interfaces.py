"""What components are: six small protocols and what they are handed.

The loop that uses them, in words:

    state = task.start(problem)
    until the policy stops, an output is final, the task is done or a limit is reached:
        decision = policy.decide([situation], [key])[0]
        outputs  = [await agent.act(view, key, calls) for each activation it starts]
        state    = task.step(state, turn) for each finished turn
    scores = await task.verify(problem, trajectory, state)
    reward = await reward.score(episode)

A component is a frozen attrs class whose public fields are its settings and nothing else. Its
runtime is the component itself, unless it has `open(ctx)`, an async context manager that yields
another object with the same methods. A field whose type is one of these protocols is wired by
core: when `open` or any method runs, it holds the runtime of what the config names there.
Subclassing a protocol gives the defaults of its optional methods.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from attrs import Factory, field, frozen
from msgspec import Struct

from orchestrion._errors import CallError, UsageError
from orchestrion._keys import Key
from orchestrion._records import (
    JSON,
    NO_USAGE,
    Activation,
    Decision,
    Episode,
    Observation,
    Output,
    Problem,
    Reward,
    Saved,
    Scores,
    Split,
    Step,
    Trajectory,
    Turn,
    Usage,
    answering,
)
from orchestrion._secrets import Secret

T = TypeVar("T")

Metrics = Mapping[str, float]
"""Numbers by name; what an iteration reports.

From `entropy`, the mean entropy of its decisions, a run's diagnosis tells whether choices settled
early.
"""


def learnable(default: Any, **kwargs: Any) -> Any:
    """Return an attrs field that trainers may change, e.g. the instructions of an agent."""
    metadata = {**kwargs.pop("metadata", {}), "learnable": True}
    return field(default=default, metadata=metadata, **kwargs)


def supports(model: Model, setting: str) -> bool:
    """Return whether a model can honour a setting of requests, such as "schema"; see `Model`."""
    return setting not in getattr(model, "unsupported", ())


def no_calls(component: Any, tokens: int) -> Usage:
    """Return an empty usage: `ceiling = no_calls` in a class says that it makes no calls."""
    return NO_USAGE


@frozen
class Plan:
    """The most that one iteration of a trainer takes, for the dry run. Plans can be added.

    Args:
        episodes: whole episodes of the longest length, verified and rewarded.
        turns: further turns of agents, e.g. of branches that share their first turns.
        verdicts: further finished episodes, each verified and rewarded.
        scores: partial scores by the verifier.
        usage: the trainer's own calls.
        readings: components with `ceiling(tokens)` that read a trajectory, and how often.
        longest: the most turns of one trajectory, if that can be more than `limits.turns`.
    """

    episodes: int = 0
    turns: int = 0
    verdicts: int = 0
    scores: int = 0
    usage: Usage = NO_USAGE
    readings: tuple[tuple[Any, int], ...] = ()
    longest: int = 0

    def __add__(self, other: Plan) -> Plan:
        return Plan(
            self.episodes + other.episodes,
            self.turns + other.turns,
            self.verdicts + other.verdicts,
            self.scores + other.scores,
            self.usage + other.usage,
            (*self.readings, *other.readings),
            max(self.longest, other.longest),
        )


@frozen
class Member:
    """An agent as a policy sees it: its name in the team, its options, its role in words.

    `ends` says that it is its job to end the episode, whenever it is started.
    """

    name: str
    options: tuple[str, ...] = ()
    role: str = ""
    ends: bool = False


@frozen
class OpenContext:
    """What a component's `open` is handed.

    Args:
        path: the component's place in the config, e.g. "agents.critic".
        key: randomness of this component, e.g. for initial weights.
        roster: the team, in config order; what a policy chooses from.
        names: by field name, the config names of components wired into this one (a name for each
            element of a list); inline components are named by their path.
        directory: the run's folder, or None where nothing is stored.
        note: puts a name and a text into the run's manifest, e.g. which backend was chosen, and
            shows it to the person who started the run.
        live: whether calls to the outside may be made. In a replay, a dry run or `validate`,
            `open` must neither make one nor ask for a key.
        trial: whether nothing will be run (`validate`, a dry run), so that `open` may skip what
            is heavy to load.
        described: whether only a `router` reads what components say of themselves, so that files
            that the settings name may be missing. `trial` is then true, too.
        environment: the environment variables, with those of the config's `.env`.
        turns: the most turns of an episode (`limits.turns`); None for no limit.
        timeout: the most seconds of a turn (`run.timeout`); None for no limit.
        trains: whether a run of many episodes is stored (`orchestrion train`), or, in a `trial`,
            whether the config has a trainer.
    """

    path: str
    key: Key
    roster: tuple[Member, ...] = ()
    names: Mapping[str, tuple[str, ...]] = Factory(dict)
    directory: Path | None = None
    note: Callable[[str, str], None] = lambda name, text: None
    live: bool = True
    trial: bool = False
    described: bool = False
    environment: Mapping[str, str] = field(factory=lambda: os.environ, repr=False)
    turns: int | None = None
    timeout: float | None = None
    trains: bool = False

    def secret(self, name: str, *, header: bool = False) -> Secret:
        """Return the secret in an environment variable, and keep it out of all that core writes.

        It is empty if the variable is missing and the context is not `live`.

        Args:
            name: of the variable.
            header: whether it is sent in a header of HTTP, which carries printable ASCII alone.

        Raises:
            UsageError: the variable is not set or empty, or the header could not carry its value.
        """
        value = self.environment.get(name, "").strip()
        if not value and self.live:
            raise UsageError(
                f"{self.path}: the environment variable {name} is not set; set it, or put it in a "
                ".env file beside the config or in the current folder"
            )
        if header and not (value.isascii() and value.isprintable()):
            raise UsageError(f"{self.path}: {name} is not a key: it has unprintable characters")
        return Secret(name, value)


@runtime_checkable
class Stateful(Protocol):
    """A runtime that learns: what it saves is what it loads."""

    def save(self) -> Saved:
        """Return all that `load` needs to go on exactly as before."""
        ...

    def load(self, saved: Saved) -> None:
        """Take over saved state; raises `CheckpointError` if it does not fit."""
        ...


class View(Struct, frozen=True):
    """What one activation may read. Failed turns are not in it.

    `given` has the turns that an outer team lets its nested team read. `team` has all members of
    the team, this agent included, in config order.
    """

    agent: str
    option: str | None
    problem: Problem
    trajectory: Trajectory
    observation: Observation | None = None
    reads: tuple[int, ...] | None = None
    given: tuple[Turn, ...] = ()
    team: tuple[Member, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the completed turns this activation may read: `given`, then in their order."""
        turns: Sequence[Turn] = self.trajectory.turns
        if self.reads is not None:
            wanted = set(self.reads)
            turns = [turn for turn in turns if turn.index in wanted]
        return (*self.given, *(turn for turn in turns if turn.status == "completed"))


@frozen
class CallLimits:
    """How fast one service may be asked; None means no limit."""

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@frozen
class Request:
    """One call to the outside, in canonical form.

    Args:
        service: the service called, e.g. "openai:gpt-5"; limiter, journal and cache use this name.
        content: all that the answer depends on, as JSON (model, messages, settings).
        version: the version of the component that calls; part of cache and journal keys.
        sample: tells samples of one content apart; part of the cache key.
        cache: whether an equal earlier request may answer this one: one of this run, or one of
            another run in the cache that `run.cache` names; None means only the latter.
        limits: the service's limits; the first request of a service sets them.
        timeout: seconds for one attempt.
        shown: what people see in place of a `content` that they cannot read, e.g. token numbers.
        lasting: whether an attempt goes on at the service when this process ends, and is taken up
            by a resumed run (a batch): what is cut off is then not booked as spent.
        computed: whether the answer is computed in this process from the request and from what
            checkpoints hold, such as a model's weights. Nothing waits for the disk then, and a
            resumed run computes it again, so that the same requests are ready at the same time.
    """

    service: str
    content: JSON
    version: str = ""
    sample: str = ""
    cache: bool | None = False
    limits: CallLimits = CallLimits()
    timeout: float = 600.0
    shown: JSON = None
    lasting: bool = False
    computed: bool = False


@frozen
class Answer:
    """What a call gave: JSON data, and what it took.

    `estimated` says that the service did not state the usage: it is a bound or a guess.
    """

    data: JSON
    usage: Usage = NO_USAGE
    estimated: bool = False


class Calls(Protocol):
    """The only way to do what costs something; each activation has its own.

    The engine books what goes through `run` and `team` on the activation's turn; `Output.usage`
    states only other usage.
    """

    @property
    def watched(self) -> bool:
        """Return whether somebody is watching, so that a model should stream and `show`."""
        return False

    def show(self, text: str) -> None:
        """Show a piece of an answer to whoever is watching; it is not recorded."""
        return

    async def run(
        self, request: Request, do: Callable[[], Awaitable[Answer]], reserve: Usage = NO_USAGE
    ) -> Answer:
        """Do a call: limited, retried, budgeted, cached, journaled.

        Args:
            request: names the call.
            do: one attempt; raises `CallError` with a fault class. It has no retry of its own.
            reserve: an upper bound of what one attempt can take; `usd` is NaN where the price
                is not known, which a budget in US dollars refuses.

        Raises:
            CallError: after the last attempt.
            BudgetError: the run's budget does not cover `reserve`.
        """
        ...

    async def reuse(self, content: JSON, do: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result of a pure computation, done once for equal `content` in this process.

        `content` is hashed as JSON. Callers that come while it is being computed wait for it. The
        result must be immutable, or never changed.
        """
        ...

    async def team(
        self,
        view: View,
        key: Key,
        members: Mapping[str, Agent],
        policy: Policy,
        turns: int | None = None,
    ) -> Trajectory:
        """Run a nested team on what `view` shows; at most `turns` turns.

        The inner trajectory starts empty; every member may read what `view` shows, as
        `View.given`. An inner `final` ends the inner team only. Return
        `Output(inner=trajectory, ...)`; the inner usage is booked on the outer turn, once.

        Raises:
            RunError: the inner policy could not go on (`Decision.error`).
        """
        ...


class Agent(Protocol):
    """Does one piece of work.

    `act` may be a coroutine function, which runs on the event loop, or a plain function, which
    runs in a worker thread.
    """

    @property
    def options(self) -> Sequence[str]:
        """Return the options, of which an activation carries one; empty means no option."""
        return ()

    @property
    def pure(self) -> bool:
        """Return whether the output depends only on settings, option and `memo(view)`.

        Without a method `memo` it depends on the whole view. The engine reuses results of equal
        content, and charges their usage as if the agent had run.
        """
        return False

    @property
    def ends(self) -> bool:
        """Return whether the agent always ends the episode: its output is always `final`."""
        return False

    @property
    def observes(self) -> int:
        """Return the most tokens that it reads of what the task's environment shows.

        A dry run adds them to those of `ceiling` if the task has an environment. The settings can
        state it instead.
        """
        return 0

    def act(self, view: View, key: Key, calls: Calls) -> Output | Awaitable[Output]:
        """Do one turn. Raising fails the turn; the episode goes on and the policy sees it."""
        ...

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that one activation takes, with all its calls; retries do not count.

        `tokens` is the most that the problem and the trajectory have. `output_tokens` of the
        result also bounds what the turn adds to the trajectory, with or without calls. A price
        that is not known is NaN. None means that no bound is known; `ceiling = no_calls` in the
        class says that there are no calls.
        """
        return None


class Model(Protocol):
    """Access to a language model. Agents name a model; two that name the same one share it.

    A request is a mapping with

        messages: list of {role, content}; role is "system" (first only), "user", "assistant" or
            "tool"; an assistant's may have `tool_calls`, a tool's has `tool_call_id`. Content is a
            text, or a list of parts where the model takes them: {type: "text", text}, {type:
            "image", media_type, data} with data as base64, {type: "image", url}, and {type:
            "file", ...} likewise, with an optional `name`. An assistant's message has the `raw` of
            the answer it stands for, if that has one
        max_tokens, temperature, top_p, stop: sampling, each optional; by default the model's own
        tools: optional list of {name, description, schema}; `schema` is JSON Schema
        vendor_tools: optional mapping of tools that the service runs itself ("web_search") to the
            most uses in one answer; only those that the model lists in its `vendor_tools`
        tool_choice: optional; "auto", "none", "required" or the name of a tool
        schema: optional JSON Schema of an object that the text must be

    and an answer's data is a mapping with

        text: str
        stop: "end", "length" (cut at max_tokens), "tools", "refused", or "paused" (the tools that
            the service runs take long: send the answer back, and it goes on)
        tool_calls: list of {id, name, arguments}; `arguments` is the text that the model wrote
        images: optional list of images that the model made, in the form of parts; at most 4
        images_left_out: optional; how many more there were, or too large ones
        model: what the service says that answered
        reason: why it ended in the service's own word, where that is an unusual one
        raw: the answer as the service wrote it, where it holds more (signed thinking), for that
            service alone: {service, api, content}
        billed: numbers by name beside the tokens, where the service states them: those of its
            prompt cache (`cache_read_tokens`, `cache_write_tokens`, `cache_saved_usd`), and how
            often each of its own tools was used
        generation: where the weights are at hand, the tokens as they were sampled; agents pass it
            on in their output's metadata, as `generations`, a list, for those who train the weights

    A model refuses a setting that it cannot honour with a permanent `CallError`. Those of `tools`,
    `schema` and `stop` that it never can, it may list in an attribute `unsupported` (`supports`).
    """

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """Return one completion; see above. `key` distinguishes samples of the same request."""
        ...

    async def embed(self, texts: Sequence[str], calls: Calls) -> Answer:
        """Return texts as vectors of equal length; the answer's data is {"vectors": [[number]]}.

        Raises:
            CallError: permanent, if the model cannot embed, which is the default.
        """
        raise CallError(f"{type(self).__name__} cannot embed texts", "permanent")

    @property
    def together(self) -> bool:
        """Return whether the last bits of an answer depend on the other requests of its batch.

        A team with such a model stays in the process that leads the run, also with `run.executor`.
        """
        return False

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that one completion of so many tokens takes; see `Agent.ceiling`."""
        return None


class Task(Protocol):
    """Where the work comes from, and who says how good the result is."""

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return all problems of a split, in a fixed order; splits never overlap."""
        ...

    def start(self, problem: Problem, key: Key) -> Step:
        """Return the state of the environment at the beginning."""
        return Step()

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        """Return the environment after a turn. Pure: states are immutable; forks share them."""
        return Step(state)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Judge a result, whatever any agent claims. `final=False` asks for a partial score."""
        ...

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that one verification takes; see `Agent.ceiling`."""
        return None

    def answering(self, turns: Iterable[Turn]) -> Turn | None:
        """Return the turn that `verify` takes for the answer, of turns with the last one first.

        `orchestrion run` shows its text; None means that there is no answer.
        """
        return answering(turns)

    def problem_from(self, text: str) -> Problem:
        """Return a problem made of free text, for `orchestrion run --input`."""
        return Problem(id="input", text=text)


class Situation(Struct, frozen=True):
    """What a policy decides on.

    Args:
        problem: the public part.
        trajectory: all finished turns.
        observation: the environment's latest.
        running: activations still in flight (only with `wait: each`).
        turns_left: how many more activations the limits allow; None means no limit.
        training: whether the decision is taken to learn from (explore) or to use.
    """

    problem: Problem
    trajectory: Trajectory
    observation: Observation | None = None
    running: tuple[Activation, ...] = ()
    turns_left: int | None = None
    training: bool = False


class Policy(Protocol):
    """Says which agents to start next. Sync and pure; never calls a model."""

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return one decision a situation; it must not depend on other situations in the batch."""
        ...

    @property
    def prepares(self) -> bool:
        """Return whether `prepare` has to be awaited before each decision."""
        return False

    async def prepare(self, situation: Situation, calls: Calls) -> None:
        """Get from the outside what `decide` needs in this situation, such as embeddings.

        Go through `calls` every time, so that a replay finds it; the cache of the call path
        answers what was asked before. What it takes is part of the run's spend, of no turn's cost.

        Raises:
            CallError: after the last attempt; the episode fails.
        """
        return

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that one `prepare` takes; see `Agent.ceiling`."""
        return None

    @property
    def longest(self) -> int | None:
        """Return the most turns an episode can have; None if only the run's limits end it."""
        return None

    @property
    def portable(self) -> bool:
        """Return whether a pickled copy can decide in another process in place of this one.

        With `run.executor`, a `Job` whose own policy cannot runs in the process that leads the run.
        """
        return False


class RewardFunction(Protocol):
    """Turns a verified episode into numbers.

    It may have a method `doubt(ceilings)`: it gets the most that a turn of each agent takes, None
    where that is not known, and returns what of its settings has no effect then, or not the one
    that was meant, as a warning for `validate`; "" for nothing.
    """

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        """Return the reward, or None if there is none: the episode is then excluded and counted."""
        ...

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that one scoring takes; see `Agent.ceiling`."""
        return None


@frozen
class Job:
    """One episode to run. `policy` overrides the team's."""

    problem: Problem
    key: Key
    policy: Policy | None = None
    training: bool = True


@frozen
class Branch:
    """An unfinished episode that can be forked: extend it twice and both share its prefix.

    `key` is that of the last extension; it names the calls that scoring this branch makes.
    """

    problem: Problem
    trajectory: Trajectory
    step: Step
    key: Key


class Session(Protocol):
    """What a trainer works with: it asks for episodes, and never gets the engine."""

    key: Key
    """Randomness of this stage and iteration."""
    policy: Any
    """The runtime of the policy in training."""
    roster: tuple[Member, ...]

    def problems(self, split: Split = "train") -> Sequence[Problem]:
        """Return the problems of a split; `test` raises `UsageError` while training."""
        ...

    async def rollout(self, jobs: Sequence[Job]) -> list[Episode]:
        """Run all jobs at once; episodes come back in the order of the jobs."""
        ...

    async def evaluate(
        self, split: Split = "validation", policy: Policy | None = None, limit: int | None = None
    ) -> list[Episode]:
        """Run one episode on each problem of a split, for use and not for training.

        The keys depend on split and problem alone, so that policies have common random numbers.
        """
        ...

    def begin(self, problem: Problem, key: Key) -> Branch:
        """Return a new branch without turns."""
        ...

    async def extend(self, branch: Branch, activations: Sequence[Activation], key: Key) -> Branch:
        """Run these activations in parallel, and return the branch after them."""
        ...

    async def score(self, branch: Branch, *, final: bool = False) -> Scores:
        """Return the verifier's score of a branch."""
        ...

    async def finish(self, branch: Branch) -> Episode:
        """Return the branch as an episode that stops here, verified and rewarded.

        If it has as many turns as `limits.turns` allows, and neither the task nor an agent has
        ended it, its status is `limit`, as in a rollout.

        Episodes are numbered in the order of these calls, which must not depend on how long agents
        take, for a replay to number them alike: extend all, then finish all.
        """
        ...

    def calls(self, key: Key) -> Calls:
        """Return calls of the trainer's own; `key` names them, and must be a new one each time."""
        ...

    async def spread(self, function: Callable[..., T], items: Sequence[tuple[Any, ...]]) -> list[T]:
        """Call a function for each item, its arguments; return the results in the same order.

        The workers of `run.executor` compute it, else a thread. So the function is one of a
        module, its result depends on the arguments alone, and both can be pickled. Items whose
        first argument is the same problem go to the same worker if they can, like episodes of it.
        """
        ...

    def learnable(self) -> Mapping[str, JSON]:
        """Return the learnable settings by config path, with what was adopted."""
        ...

    def build(self, overlay: Mapping[str, JSON]) -> AbstractAsyncContextManager[Session]:
        """Return a session whose components have other learnable settings, by config path."""
        ...

    def adopt(self, overlay: Mapping[str, JSON]) -> None:
        """Use other learnable settings in the run, from the next iteration on."""
        ...


class Trainer(Protocol):
    """Uses many episodes to improve whatever can learn.

    An attribute `smoke` may name settings, with their values in `orchestrion train --smoke`.

    If it trains a part of the team that is wired into it, such as a model, its episodes stay in the
    process that leads the run, also with `run.executor`. A true attribute `portable` of its runtime
    says that what it changes of others is in what these save, so that workers can run them.
    """

    @property
    def iterations(self) -> int:
        """Return how many iterations this stage has."""
        ...

    def check(self, session: Session) -> None:
        """Raise `UsageError` for a policy, team or task that it cannot train; run nothing.

        Called once before the run begins, and by `orchestrion validate`.
        """

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan | None:
        """Return the most that iteration `i` takes, given the sizes of splits; None if unknown."""
        return None

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Do iteration `i`, from 0. Core commits its episodes, metrics and state together."""
        ...
