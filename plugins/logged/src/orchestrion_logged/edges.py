"""Log the decisions of somebody else's loop, so that a policy can be learned from them.

    log = EdgeLog("decisions.jsonl", explore=0.1)

    @log.edge(choices=("billing", "technical"))
    def sort(state) -> str: ...

    @log.node  # a node of LangGraph that says itself who is next
    def triage(state) -> Command[Literal["billing", "technical"]]: ...

    with log.episode() as episode:
        graph.invoke(...)
        episode.score = 1.0  # or later: log.feedback(episode.name, 1.0)

A decision is, with probability `explore`, drawn uniformly from the allowed choices; its propensity
is (1 - explore) times the edge's own probability, plus explore over their number. An edge that
states no probability has 1 for what it took: the propensity given its own draw, which is exact too.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import nan
from pathlib import Path
from typing import Any, SupportsFloat, get_args, get_type_hints
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from orchestrion import END, Key, Observation, OrchestrionError, Turn, UsageError
from orchestrion.runs import Router, problem_and_turns
from orchestrion_logged.records import MOST, Context, Logged, LogWriter, checked, context_of
from orchestrion_logged.served import Feedback

STOP = "stop"


def _number(what: str, value: Any, most: float) -> float:
    """Return a number, also numpy's or a bool; raise `UsageError` if it is not from 0 to `most`."""
    try:
        number = float(value) if isinstance(value, SupportsFloat) else nan
    except (TypeError, ValueError, OverflowError):
        number = nan
    if not 0 <= number <= most:
        raise UsageError(
            f"the {what} of an episode is a number from 0 to {most:g}, not {value!r:.80}"
        )
    return number


class EdgeEpisode:
    """One pass through the loop; `name` is its name in the log."""

    def __init__(self, name: str, key: Key) -> None:
        self.name = name
        self._key = key
        self._score: float | None = None
        self._lines: list[Logged] = []
        self._turns = 0
        """How many there were at the latest choice."""
        self._ended = False
        self._lock = threading.Lock()
        """Held while a choice is taken: a loop may run its branches in threads."""

    @property
    def score(self) -> float | None:
        """Return how good the result was, 0 to 1; None if nobody knows.

        Setting anything else raises `UsageError`.
        """
        return self._score

    @score.setter
    def score(self, value: SupportsFloat | None) -> None:
        self._score = None if value is None else _number("score", value, 1)

    def cost(self, amount: SupportsFloat) -> None:
        """Add what the latest choice cost; raise `UsageError` if that is no number from 0 on."""
        added = _number("cost", amount, MOST)
        if self._lines:
            last = self._lines[-1]
            self._lines[-1] = replace(last, cost=_number("cost", last.cost + added, MOST))

    def take(
        self,
        context: Context,
        own: str,
        free: Sequence[str],
        chances: Mapping[str, float] | None,
        share: float,
        turns: Sequence[Turn],
    ) -> str:
        """Return the choice, and note it; raise `UsageError` if the episode has ended."""
        with self._lock:
            if self._ended:
                raise UsageError(
                    f"the episode {self.name} has ended and is logged; wait for its threads and "
                    "tasks within `with log.episode():`"
                )
            coin, which = self._key.child(len(self._lines)).uniforms(2)
            allowed = tuple(free if own in free else [*free, own])
            share = share if free else 0.0
            chosen = free[int(which * len(free))] if coin < share else own
            chance = float(chosen == own) if chances is None else chances[chosen]
            chance = (1 - share) * chance + (share / len(free) if chosen in free else 0.0)
            step = len(self._lines)
            if step:
                last = self._lines[-1]
                since = (t.output.content for t in turns[self._turns :] if t.agent == last.choice)
                self._lines[-1] = replace(last, answer=next(since, ""))
            self._turns = len(turns)
            self._lines.append(
                Logged(context, chosen, allowed, chance, episode=self.name, step=step)
            )
            return chosen

    def end(self) -> list[Logged]:
        """Take no more choices; return its decisions. The score is that of the last one."""
        with self._lock:
            self._ended = True
        lines = self._lines
        return [*lines[:-1], replace(lines[-1], score=self.score)] if lines else []


class EdgeLog:
    """A log of decisions that somebody else's loop takes.

    Args:
        path: of the file, which `ope` and `learn` take.
        explore: the share of decisions that is drawn at random.
        seed: of these draws.
    """

    def __init__(self, path: str | Path, explore: float = 0.0, seed: int = 0) -> None:
        if not 0 <= explore <= 1:
            raise UsageError(f"explore is a share, from 0 to 1, not {explore!r}")
        self._writer, self._explore, self._key = LogWriter(Path(path)), explore, Key(seed)
        self._begun = 0
        self._now: ContextVar[EdgeEpisode | None] = ContextVar("episode", default=None)

    @contextmanager
    def episode(self, name: str = "") -> Iterator[EdgeEpisode]:
        """Log what is decided in the block, when it ends.

        If the block fails, the score is 0; after a `UsageError` it stays as it was.

        Args:
            name: what it begins with in the log, e.g. a user; may be given again. Draws depend on
                it, and on how many episodes began before.
        """
        unique = uuid4().hex
        key = self._key.child(name or unique).child(self._begun)
        self._begun += 1
        episode = EdgeEpisode(f"{name}-{unique}" if name else unique, key)
        token = self._now.set(episode)
        try:
            yield episode
        except BaseException as error:
            # What is refused here says nothing of the result.
            if isinstance(error, Exception) and not isinstance(error, UsageError):
                episode.score = 0.0
            try:
                self._write(episode)
            except OrchestrionError as unwritten:
                error.add_note(f"its decisions were not logged: {unwritten}")
            raise
        else:
            self._write(episode)
        finally:
            self._now.reset(token)

    def _write(self, episode: EdgeEpisode) -> None:
        """Write all of its lines, or none."""
        if lines := episode.end():
            self._writer.write(b"".join(checked(line, self._writer.path) for line in lines))

    def edge(self, *, choices: Sequence[str], end: str = END) -> Callable[[Any], Any]:
        """Return a decorator of a function, plain or async, that says who is next.

        Its first argument is the state: a text, messages, or something with `messages`.

        Args:
            choices: the names that it may return, besides `end`.
            end: what it returns when nobody is next; logged as "stop".

        Raises:
            UsageError: a choice is named as the end is.
        """
        return self._decorator(choices, end, False)

    def _decorator(self, choices: Sequence[str], end: str, of_node: bool) -> Callable[[Any], Any]:
        if ends := {STOP, end}.intersection(choices):
            raise UsageError(
                f"the choice {ends.pop()!r} would be the end of an episode; give it another name, "
                "or leave it out and return `end`"
            )

        def decorate(function: Any) -> Any:
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise UsageError(
                    f"{function.__qualname__}: a generator takes no choice that could be logged; "
                    "return it, and decorate the function that does"
                )

            def logged(result: Any, state: Any) -> Any:
                name = getattr(result, "goto", result)  # a node's command, or an edge's word
                if name is not result and isinstance(name, list | tuple) and len(name) == 1:
                    [name] = name
                if not isinstance(name, str) and (of_node or name is not result):
                    if name is not result and name:
                        raise UsageError(
                            f"`goto` is the name of one node, not {name!r:.80}: several at once, "
                            "and a `Send`, are no choice between nodes; take the decorator off"
                        )
                    return result  # it goes on along the graph's own edges
                text, turns = problem_and_turns(state, choices)
                free = [*choices, *([STOP] if turns else [])]
                chosen = self._decided(Context(text=text), name, free, None, turns, end)
                return chosen if name is result else dataclasses.replace(result, goto=chosen)

            async def waits(state: Any, *rest: Any, **more: Any) -> Any:
                return logged(await function(state, *rest, **more), state)

            def plain(state: Any, *rest: Any, **more: Any) -> Any:
                return logged(function(state, *rest, **more), state)

            wrapper = waits if inspect.iscoroutinefunction(function) else plain
            return functools.wraps(function)(wrapper)

        return decorate

    def node(self, function: Any) -> Any:
        """Decorate a node of LangGraph that returns `Command(goto=NAME)`, plain or async.

        Where it returns an update alone, the graph goes on along its own edges.
        Its annotation says which names there are: `-> Command[Literal["billing", "technical"]]`.

        Raises:
            UsageError: it has no such annotation, or is a generator.
        """
        try:
            hint = get_type_hints(function).get("return")
        except (NameError, TypeError):  # it has names that its module does not know, or no hints
            hint = None
        names = [name for part in get_args(hint) for name in get_args(part)]
        if not names or not all(isinstance(name, str) for name in names):
            raise UsageError(
                f"{getattr(function, '__qualname__', function)}: say which nodes it goes to, as in "
                '`-> Command[Literal["billing", "technical"]]`'
            )
        return self._decorator([name for name in names if name != END], END, True)(function)

    def feedback(self, name: str, score: SupportsFloat) -> None:
        """Score an episode by its name, when it has ended; the last score counts.

        Raises:
            UsageError: it is no number from 0 to 1, or the name no text.
        """
        record = Feedback(name, _number("score", score, 1))
        if not (name and isinstance(name, str)):
            raise UsageError(f"feedback is on an episode by its name, not {name!r:.80}")
        self._writer.write(msgspec.json.encode(record) + b"\n")

    def route(self, router: Router, end: str = END) -> Callable[[Any], str]:
        """Return a run's router as an edge whose decisions are logged.

        Args:
            router: from `orchestrion.router`.
            end: what that returns when nobody is next.
        """

        def edge(state: Any) -> str:
            route = router.decide(state)
            if route.forced:
                return route.agent
            situation = route.situation
            shown, turns = situation.observation or Observation(), situation.trajectory.turns
            context = replace(context_of(situation.problem, shown), id="")
            stated = route.probabilities
            chances = stated and {STOP if n == end else n: p for n, p in stated.items()}
            free = [name for name in chances or (*router.agents, STOP) if name not in shown.blocked]
            if not turns and STOP in free:
                free.remove(STOP)
            return self._decided(context, route.agent, free, chances, turns, end)

        return edge

    def _decided(
        self,
        context: Context,
        name: str,
        free: Sequence[str],
        chances: Mapping[str, float] | None,
        turns: Sequence[Turn],
        end: str,
    ) -> str:
        episode = self._now.get()
        if episode is None:
            raise UsageError("decisions are logged within `with log.episode():`; open one")
        if options := [choice for choice in free if ":" in choice]:
            raise UsageError(f"an edge cannot carry the option of {options[0]!r}")
        own = STOP if name == end else name
        if own not in (*free, STOP):
            raise UsageError(f"the edge returned {name!r:.80}, which is not among its choices")
        chosen = episode.take(context, own, free, chances, self._explore, turns)
        return end if chosen == STOP else chosen
