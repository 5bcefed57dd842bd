"""What the search is compared with, on the same problem and with at least as many calls.

single            one agent alone, attempt after attempt; one is picked as the search picks
best-of-n         the team as it is, attempt after attempt; likewise
self-consistency  the same attempts; one of those with the most frequent answer
greedy            a search of width 1 with more samples a turn: what keeping several is worth
sequential        the team in rotation, one trajectory that goes on
discussion        everybody at once, round after round, one trajectory

Attempts are begun as long as fewer calls were made than the search made, so that a baseline never
has fewer, as far as it can use them: one trajectory ends when the task is done, or after `longest`
turns. Where turns make different numbers of calls, none takes more than `MORE` times the turns of
the search, and those of the attempt that it is in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from orchestrion import (
    JSON,
    Activation,
    Branch,
    Episode,
    Key,
    Member,
    Problem,
    Session,
    choices,
    parse_choice,
)
from orchestrion_beam.choosers import Chooser, Everybody, Rotation
from orchestrion_beam.groups import reward_of
from orchestrion_beam.interfaces import ValueEstimator
from orchestrion_beam.nodes import Node
from orchestrion_beam.planning import most_turns
from orchestrion_beam.search import Counts, Estimates, Flight, Search
from orchestrion_beam.together import together

if TYPE_CHECKING:
    from orchestrion_beam.trainer import GrpoBeam

__all__ = ["Attempt", "Budget", "Rivals", "answer_of", "most_frequent", "rotation"]


def rotation(settings: GrpoBeam, roster: Sequence[Member]) -> tuple[Activation, ...]:
    """The choices that take turns, as set or all there are.

    Raises:
        UsageError: a name is no choice of the team.
    """
    if not settings.rotation:
        return choices(roster)
    return tuple(parse_choice(name, roster) for name in settings.rotation)


@define
class Budget:
    """What is left of it for one baseline on one problem.

    Args:
        calls: as many as the search made.
        turns: as many as may be taken.
        each: calls that a turn of the search made on average.
    """

    calls: int
    turns: int
    each: float = 1.0

    @property
    def left(self) -> bool:
        """Whether something may still be begun."""
        return self.calls > 0 and self.turns > 0

    def attempts(self, turns: int) -> int:
        """How many attempts of so many turns may be begun at once."""
        return max(1, min(int(self.calls / (turns * self.each)), self.turns // turns))

    def spend(self, calls: int, turns: int) -> None:
        """Book what was done."""
        self.calls -= calls
        self.turns -= turns


@define
class Attempt:
    """One trajectory from start to end.

    Args:
        nodes: as it grew; the first is empty.
        calls: of all its turns.
        episode: how it ended, once it is judged.
    """

    nodes: list[Node]
    calls: int = 0
    episode: Episode | None = None

    @property
    def last(self) -> Node:
        """Its end."""
        return self.nodes[-1]

    @property
    def turns(self) -> int:
        """How many it has."""
        return len(self.last.branch.trajectory)


@define
class Tried:
    """What a baseline did on one problem.

    Args:
        attempts: trajectories, in order.
        calls: of their turns, and of the estimates that picked one.
        turns: of all attempts.
        picked: the one that counts, once that is known.
    """

    attempts: list[Attempt] = field(factory=list)
    calls: int = 0
    turns: int = 0
    picked: Attempt | None = None


class Greedy(Search):
    """A search of width 1 that spreads the calls of another search over as many levels."""

    like: Counts

    async def _grow(self, growing: Sequence[Node]) -> list[Node]:
        # What a sample takes differs: equal texts are estimated once, and one trajectory that many
        # samples continue has more of them. So each level goes by what was taken so far.
        like, done = self.like, self.counts if self.counts.samples else self.like
        levels = max(1, len(like.parents) - len(self.counts.parents))
        left = (like.calls - self.counts.calls) * done.samples / max(1, done.calls)
        most = most_turns(like.samples) - self.counts.samples
        samples = max(1, min(round(left / levels), most))
        self.settings = evolve(self.settings, samples=samples)
        return await super()._grow(growing)


class Rivals:
    """The baselines on one problem.

    Args:
        settings: of the trainer.
        session: extends.
        problem: with its hidden part.
        team: who acts next in the search.
        estimator: picks, if that is how the search picks.
        key: of the baselines on this problem.
        flight: counts what runs.
    """

    def __init__(
        self,
        settings: GrpoBeam,
        session: Session,
        problem: Problem,
        team: Chooser,
        estimator: ValueEstimator,
        key: Key,
        flight: Flight,
    ) -> None:
        self.settings, self.session, self.problem = settings, session, problem
        self.team, self.key, self.flight = team, key, flight
        self.counts = Counts()
        self.values = Estimates(estimator, session, key.child("values"), self.counts)
        self.tried: dict[str, Tried] = {}

    async def run(self, searched: Counts) -> None:
        """All of them, each with what the search took."""
        wanted = self.settings.baselines
        names = [one for one in ("single", "greedy", "sequential", "discussion") if one in wanted]
        if "best-of-n" in wanted or "self-consistency" in wanted:
            names.append("best-of-n")
        budgets = [self._budget(searched) for _ in names]
        tried = await together(
            self._greedy(searched) if name == "greedy" else self._try(name, budget)
            for name, budget in zip(names, budgets, strict=True)
        )
        self.tried = dict(zip(names, tried, strict=True))
        if "self-consistency" in wanted:
            same = self.tried["best-of-n"]
            self.tried["self-consistency"] = Tried(same.attempts, same.calls, same.turns)

    def _budget(self, searched: Counts) -> Budget:
        turns = max(1, searched.activations)
        most = most_turns(turns + searched.estimate_calls)
        return Budget(searched.calls, most, max(1.0, searched.turn_calls / turns))

    async def _try(self, name: str, budget: Budget) -> Tried:
        key, roster = self.key.child(name), self.session.roster
        match name:
            case "single":
                agent = self.settings.single
                alone = parse_choice(agent, roster) if agent else choices(roster)[0]
                return await self._attempts(Rotation([alone]), budget, key)
            case "sequential":
                return await self._one(Rotation(rotation(self.settings, roster)), budget, key)
            case "discussion":
                members = {one.agent: one for one in reversed(rotation(self.settings, roster))}
                return await self._one(Everybody([*members.values()][::-1]), budget, key)
            case _:
                return await self._attempts(self.team, budget, key)

    async def _greedy(self, searched: Counts) -> Tried:
        """One trajectory at a time, with as many samples a turn as the search's calls allow."""
        search = Greedy(
            evolve(self.settings, beam_width=1, min_parents=1, min_roots=1),
            self.session,
            self.problem,
            self.team,
            self.values.estimator,
            self.key.child("greedy"),
            self.flight,
        )
        search.like = searched
        found = await search.run()
        return Tried(
            [Attempt([node]) for node in found.finalists],
            found.counts.calls,
            found.counts.activations,
        )

    async def _attempts(self, chooser: Chooser, budget: Budget, key: Key) -> Tried:
        """Attempt after attempt, side by side as far as the budget certainly reaches."""
        tried, turns = Tried(), self.settings.turns
        while budget.left:
            first = len(tried.attempts)
            wave = await together(
                self._attempt(chooser, turns, key.child(first + n))
                for n in range(budget.attempts(turns))
            )
            for one in wave:
                tried.attempts.append(one)
                budget.spend(one.calls, one.turns)
            if not any(one.turns for one in wave):
                break
        return self._summed(tried)

    async def _one(self, chooser: Chooser, budget: Budget, key: Key) -> Tried:
        """One trajectory for all of the budget."""
        longest = min(self.settings.longest_turns, budget.turns)
        return self._summed(Tried([await self._attempt(chooser, longest, key, budget.calls)]))

    def _summed(self, tried: Tried) -> Tried:
        tried.calls = sum(one.calls for one in tried.attempts)
        tried.turns = sum(one.turns for one in tried.attempts)
        return tried

    async def _attempt(
        self, chooser: Chooser, turns: int, key: Key, calls: int | None = None
    ) -> Attempt:
        """A trajectory of at most `turns` turns, begun by keys of its own."""
        node = Node(self.session.begin(self.problem, key.child("begin")))
        attempt = Attempt([node])
        while not node.branch.step.done and attempt.turns < turns:
            if calls is not None and attempt.calls >= calls:
                break
            n = len(attempt.nodes)
            [start] = chooser.starts([node.branch], [key.child("decide", n)])
            if start is None:
                break
            start = start[: turns - attempt.turns]
            branch = await self.flight.extend(
                self.session, node.branch, start, key.child("extend", n)
            )
            node = node.child(0, start, branch)
            attempt.nodes.append(node)
            attempt.calls += node.calls
            if node.finished:
                break
        return attempt

    # ------------------------------------------------------------------------------ picking

    def probes(self) -> list[Attempt]:
        """Attempts on which values are set beside scores."""
        tried = self.tried.get("best-of-n") or self.tried.get("single")
        return [] if tried is None else tried.attempts[: self.settings.probes]

    def unjudged(self) -> list[Attempt]:
        """What has to be verified: all that is picked from by reward, else what was picked."""
        wanted = self.probes()
        for tried in self.tried.values():
            if self.settings.select == "reward":
                wanted += tried.attempts
            elif tried.picked is not None:
                wanted.append(tried.picked)
        return list({id(one): one for one in wanted}.values())

    async def pick(self) -> None:
        """Choose what counts of each baseline; rewards decide only about judged attempts."""
        for name, tried in self.tried.items():
            key = self.key.child("tie", name)
            if name == "self-consistency":
                tried.picked = most_frequent(tried.attempts, key)
            elif len(tried.attempts) == 1:
                [tried.picked] = tried.attempts
            elif self.settings.select == "value":
                before = self.counts.estimate_calls
                values = await together(self.values.of(one.last) for one in tried.attempts)
                tried.calls += self.counts.estimate_calls - before
                tried.picked = _best(tried.attempts, [one.value for one in values], key)
            else:
                rewards = [
                    None if one.episode is None else reward_of(one.episode)
                    for one in tried.attempts
                ]
                tried.picked = _best(tried.attempts, rewards, key)


def _best(attempts: Sequence[Attempt], numbers: Sequence[float | None], key: Key) -> Attempt | None:
    """The attempt with the highest number; ties go by key."""
    places = [n for n, number in enumerate(numbers) if number is not None]
    if not places:
        return None
    return attempts[min(places, key=lambda n: (-(numbers[n] or 0.0), key.child(n).digest))]


def most_frequent(attempts: Sequence[Attempt], key: Key) -> Attempt | None:
    """The first attempt that ended with the answer that most ended with; ties go by key.

    None where no answer came up twice: then answers cannot be compared.
    """
    answers = [answer_of(one.last.branch) for one in attempts]
    counts = Counter(answer for answer in answers if answer)
    most = max(counts.values(), default=0)
    if most < 2 and len(attempts) > 1:
        return None
    ways = [answer for answer, count in counts.items() if count == most]
    if not ways:
        return None
    chosen = min(ways, key=lambda answer: key.child(answer).digest)
    return attempts[answers.index(chosen)]


def answer_of(branch: Branch) -> str:
    """What a trajectory ended with, in a form in which equal answers are equal texts.

    The last finished turn's data under "answer", or all its data, or else its text; without case
    and spaces.
    """
    for turn in branch.trajectory.backward():
        if turn.status != "completed":
            continue
        data: JSON = turn.output.data
        if isinstance(data, Mapping):
            data = data.get("answer")
        said = turn.output.content if data is None else str(data)
        return " ".join(said.split()).casefold()
    return ""
