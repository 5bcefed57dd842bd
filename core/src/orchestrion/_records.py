"""The immutable records that a run is made of.

problem -> (decision -> activations -> turns)* -> trajectory -> episode (scores, reward)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr
from msgspec.structs import replace as replace

from orchestrion._readonly import EMPTY, read_only

JSON = Any
"""A JSON value: None, bool, int, float, str, list or tuple of JSON, dict of str to JSON.

A record keeps a copy of it that nobody can change, see `orchestrion._readonly`.
"""

Split = Literal["train", "validation", "test"]
TRAINING = "train"
"""The source of a run's training episodes; no evaluation can be called so."""
TurnStatus = Literal["completed", "failed", "cancelled"]


def _keep(record: Struct, *names: str) -> None:
    """Replace what can be changed in these fields by a copy that cannot."""
    for name in names:
        value = getattr(record, name)
        frozen_value = read_only(value)
        if frozen_value is not value:
            force_setattr(record, name, frozen_value)


def _compared(kind: type[Struct], *left_out: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gives the fields of a record by which it is compared."""
    return attrgetter(*(name for name in kind.__struct_fields__ if name not in left_out))


class Status(StrEnum):
    """How an episode ended. Only a `completed` one can be a success.

    An episode that has turns, but no completed one, is `failed`: it contains no answer.
    """

    COMPLETED = "completed"
    LIMIT = "limit"
    FAILED = "failed"


class Usage(Struct, frozen=True, forbid_unknown_fields=True):
    """What a turn or a call took: counts, US dollars, and the agent's own unit of cost.

    `cost` is what a reward weighs by default; its unit is the agent's to define and name
    (test executions, US dollars, a table's price).
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """Return input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.usd + other.usd,
            self.cost + other.cost,
        )


NO_USAGE = Usage()


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """One piece of work. `text` and `data` are public; only the verifier sees `hidden`."""

    id: str
    text: str = ""
    data: JSON = None
    category: str = ""
    hidden: JSON = None

    def __post_init__(self) -> None:
        _keep(self, "data", "hidden")

    def public(self) -> Problem:
        """Return this problem without its hidden part: what agents and policies get."""
        return self if self.hidden is None else replace(self, hidden=None)


class Output(Struct, frozen=True, forbid_unknown_fields=True):
    """What an agent returns.

    Args:
        content: the text other agents read.
        data: JSON beside the text, in a form the agent documents.
        usage: what this turn costs without what went through `calls`, which the engine adds. A
            reused result is charged as if it had run; the budget counts it only once.
        final: end the episode after this turn.
        metadata: anything for people and reports; never read by the engine.
        inner: the trajectory of a nested team.
        calls: names of the calls that were made for it, in order; the engine fills it in.
            `RunReader.calls` gives what they asked and what they were answered.
    """

    content: str = ""
    data: JSON = None
    usage: Usage = NO_USAGE
    final: bool = False
    metadata: Mapping[str, JSON] = EMPTY
    inner: Trajectory | None = None
    calls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _keep(self, "data", "metadata")

    @property
    def images(self) -> list[Mapping[str, str]]:
        """Return the images in `data`, under `images`, as parts of requests (see `Model`)."""
        listed = self.data.get("images") if isinstance(self.data, Mapping) else None
        return [part for part in listed if _is_image(part)] if isinstance(listed, Sequence) else []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and _COMPARED_OUTPUT(self) == _COMPARED_OUTPUT(other)

    def __hash__(self) -> int:
        return hash(self.content)


class Activation(Struct, frozen=True, forbid_unknown_fields=True):
    """One agent to start.

    Args:
        agent: its name in the team.
        option: one of the agent's declared options, or None if it declares none.
        reads: indices of the turns it may read; None means all that are finished.
        timeout: seconds after which this activation fails, whatever its agent gives later; more
            than 0; None means the run's own.
        index: its turn's place in the trajectory; None means the next free one. A policy that
            decides with `wait: each` gives it, so that neither turn order nor a draw depends on
            arrival.
        reuse: take the result of an equal activation of this run if there is one (agent,
            settings, option, content to read), charged as if it had run; failures are not kept.
    """

    agent: str
    option: str | None = None
    reads: tuple[int, ...] | None = None
    timeout: float | None = None
    index: int | None = None
    reuse: bool = False


class Decision(Struct, frozen=True, forbid_unknown_fields=True):
    """A policy's answer: start these activations, or stop.

    Args:
        start: what to start now; may be empty while others are still running.
        stop: end the episode; what is still running is cancelled.
        wait: be asked again when `all` that runs has finished, or after `each`.
        logp: log-probability of this decision under the policy that took it.
        record: what the policy needs to compute `logp` again (arrays allowed); never stored.
        error: with `stop`, why the policy cannot go on: the episode's status is `failed`.
        arrival: with `wait: each`, whether it matters which activation finishes first: the order
            is then journaled, and resume and replay repeat it.
        chances: the probability of each choice ("agent", "agent:option"), for people alone; no
            part of what makes decisions equal.
    """

    start: tuple[Activation, ...] = ()
    stop: bool = False
    wait: Literal["all", "each"] = "all"
    logp: float | None = None
    record: Any = None
    error: str = ""
    arrival: bool = False
    chances: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if self.chances is not None:
            _keep(self, "chances")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and _COMPARED_DECISION(self) == _COMPARED_DECISION(other)

    def __hash__(self) -> int:
        return hash(_COMPARED_DECISION(self))

    def __repr__(self) -> str:
        return f"Decision{_COMPARED_DECISION(self)!r}"


def _is_image(part: JSON) -> bool:
    if not isinstance(part, Mapping) or part.get("type") != "image":
        return False
    texts = {name: value for name, value in part.items() if isinstance(value, str)}
    if "url" in texts:  # no script, nor a page as data: agents write what they like
        return texts["url"].startswith(("https://", "http://"))
    return "data" in texts and texts.get("media_type", "").startswith("image/")


class Turn(Struct, frozen=True, forbid_unknown_fields=True):
    """One finished activation.

    `index` is the order of activation, `decision` the index of the decision behind it. A
    failed turn has an empty output, its `usage` is still charged, and `error` says why.
    """

    index: int
    agent: str
    option: str | None = None
    output: Output = Output()
    status: TurnStatus = "completed"
    error: str = ""
    decision: int = 0
    reads: tuple[int, ...] | None = None

    @property
    def usage(self) -> Usage:
        return self.output.usage


_INDEX = attrgetter("index")


def answering(turns: Iterable[Turn]) -> Turn | None:
    """Return the turn that holds a team's answer; None if no turn completed.

    It is the last completed turn that says something: a router or a terminator that ends the
    episode without a word does not take the answer away.

    Args:
        turns: the last one first.
    """
    silent: Turn | None = None
    for turn in turns:
        if turn.status == "completed":
            if turn.output.content.strip():
                return turn
            silent = silent or turn
    return silent


class Trajectory:
    """An immutable record of turns; appending and forking are O(1) and share the prefix."""

    __slots__ = ("_cache", "_length", "_parent", "_turn")

    _parent: Trajectory | None
    _turn: Turn | None

    def __init__(self, turns: Sequence[Turn] = ()) -> None:
        self._cache: tuple[Turn, ...] | None = ()
        self._length, self._parent, self._turn = 0, None, None
        if turns:
            *earlier, last = turns
            before = Trajectory()
            for turn in earlier:
                before = before.append(turn)
            self._parent, self._turn = before, last
            self._length, self._cache = len(turns), None

    def __reduce__(self) -> tuple[Any, ...]:
        # Copied and pickled as a list: link by link would recurse as deep as there are turns.
        return Trajectory, (list(self.backward())[::-1],)

    def append(self, turn: Turn) -> Trajectory:
        """Return a trajectory with one more turn; this one stays as it is."""
        new = Trajectory.__new__(Trajectory)
        new._parent, new._turn, new._length, new._cache = self, turn, self._length + 1, None
        return new

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return all turns, in the order of activation."""
        if self._cache is None:
            # Back to where the tuple is cached: reading after every turn then costs one turn only.
            node, new = self, []
            while (cached := node._cache) is None:
                assert node._turn is not None
                assert node._parent is not None
                new.append(node._turn)
                node = node._parent
            new.reverse()
            out = [*cached, *new]
            out.sort(key=_INDEX)
            self._cache = tuple(out)
        return self._cache

    @property
    def last(self) -> Turn | None:
        """Return the turn appended last."""
        return self._turn

    @property
    def before(self) -> Trajectory | None:
        """Return the trajectory that the last turn was appended to; None for an empty one."""
        return self._parent

    def backward(self) -> Iterator[Turn]:
        """Yield turns from the one appended last to the first, without building a tuple."""
        node: Trajectory | None = self
        while node is not None and node._turn is not None:
            yield node._turn
            node = node._parent

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Turn]:
        return iter(self.turns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trajectory) and self.turns == other.turns

    def __hash__(self) -> int:
        return hash((self._length, self._turn.agent if self._turn else None))

    def __repr__(self) -> str:
        return f"Trajectory({' > '.join(t.agent for t in self.turns)})"


class Observation(Struct, frozen=True, forbid_unknown_fields=True):
    """What an environment shows after a step.

    Args:
        text: for agents and people.
        data: JSON in a form the task documents; agents read it.
        features: numbers for learned policies; always the same length within a task.
        blocked: agents that may not be started next: "name", or "name:option".
        progress: how far the work has come by what is public, 0 to 1; None if it cannot be told.
        hints: numbers from 0 to 1 about choices, by "agent" or "agent:option", equally many for
            each within a task. The first says how promising the choice looks. A choice that is
            left out may be as good as any.
    """

    text: str = ""
    data: JSON = None
    features: tuple[float, ...] = ()
    blocked: frozenset[str] = frozenset()
    progress: float | None = None
    hints: Mapping[str, tuple[float, ...]] = EMPTY

    def __post_init__(self) -> None:
        _keep(self, "data", "features", "blocked", "hints")


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """The environment after a step: a state nobody else sees, what is shown, and if it is over."""

    state: Any = None
    observation: Observation | None = None
    done: bool = False


class Scores(Struct, frozen=True, forbid_unknown_fields=True):
    """A verifier's judgement.

    Args:
        value: how good the result is, 0 to 1.
        success: whether it counts as solved.
        parts: further numbers, by name.
        checks: what single checks gave, by name, for people who read the episode: "passed", or in
            some words why not. They may tell what is hidden; no agent and no policy is shown them.
    """

    value: float
    success: bool = False
    parts: Mapping[str, float] = EMPTY
    checks: Mapping[str, str] = EMPTY

    def __post_init__(self) -> None:
        _keep(self, "parts", "checks")


class Reward(Struct, frozen=True, forbid_unknown_fields=True):
    """What a reward function makes of an episode: team total, and credit where it is given.

    `turns` has one number a turn, in order of activation; `agents` one a name of the team. All
    numbers are finite.
    """

    total: float
    turns: tuple[float, ...] | None = None
    agents: Mapping[str, float] | None = None
    parts: Mapping[str, float] = EMPTY

    def __post_init__(self) -> None:
        _keep(self, "turns", "agents", "parts")


class Episode(Struct, frozen=True, forbid_unknown_fields=True):
    """A trajectory with its outcome. `problem` is public here; ids are unique in a run.

    `error` says why it failed or, if it did not fail, why its reward is missing. `answer` is the
    content of the last completed turn. `calls` names the calls of its verifier and its reward
    function, as `Output.calls` those of a turn.
    """

    id: str
    problem: Problem
    trajectory: Trajectory
    decisions: tuple[Decision, ...] = ()
    status: Status = Status.COMPLETED
    scores: Scores | None = None
    reward: Reward | None = None
    error: str = ""
    observation: Observation | None = None
    calls: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Episode) and _COMPARED_EPISODE(self) == _COMPARED_EPISODE(other)

    def __hash__(self) -> int:
        return hash(self.id)

    def _repr_html_(self) -> str:
        from orchestrion._html import episode_html

        return episode_html(self)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self.trajectory.turns

    @property
    def answer(self) -> str | None:
        """Return the content of the turn that `answering` finds; None if no turn completed."""
        turn = answering(reversed(self.turns))
        return None if turn is None else turn.output.content

    @property
    def success(self) -> bool:
        """Return whether it was solved, and not merely stopped."""
        return self.status is Status.COMPLETED and self.scores is not None and self.scores.success

    @property
    def usage(self) -> Usage:
        """Return the cost of the episode: every turn booked once, in order of activation."""
        return sum((turn.output.usage for turn in self.turns), NO_USAGE)


class Array(Struct, frozen=True, forbid_unknown_fields=True):
    """An array without an array library: little-endian bytes in C order.

    `dtype` is a safetensors name: F64, F32, I64, I32, U8, BOOL.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __repr__(self) -> str:
        return f"Array({self.dtype!r}, {self.shape})"


class Saved(Struct, frozen=True, forbid_unknown_fields=True):
    """Learned state as it goes into a checkpoint: arrays by name, and plain JSON data."""

    arrays: Mapping[str, Array] = {}
    data: JSON = None

    def __post_init__(self) -> None:
        _keep(self, "data")


_COMPARED_OUTPUT = _compared(Output, "calls")
_COMPARED_DECISION = _compared(Decision, "record", "chances")
_COMPARED_EPISODE = _compared(Episode, "calls")
