"""The baselines that a search is compared with, with as many calls each.

single            one agent alone, attempt after attempt; one is picked as the search picks
best-of-n         the team as it is, attempt after attempt; likewise
self-consistency  the same attempts; one of those with the most frequent answer
greedy            a search of width 1 with more samples a turn: what is a wide beam worth?
sequential        the team in rotation, one long trajectory

A baseline begins attempts while it has made fewer calls than the search, so it never has fewer, as
far as it can use them: one trajectory ends when the task is done or after `longest` turns. Where
turns make different numbers of calls, no baseline takes more than `EXTRA_TURNS` times the turns of
the search, and those of its last attempt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from attrs import define, evolve, field, frozen

from orchestrion import (
    JSON,
    Branch,
    Key,
    Meta,
    Plan,
    Problem,
    Session,
    ceiling_of,
    choices,
    parse_choice,
)
from orchestrion_beam.choosers import Chooser, Rotation, rotation_of
from orchestrion_beam.interfaces import ValueEstimator, reward_of
from orchestrion_beam.nodes import SearchNode
from orchestrion_beam.search import (
    BeamSearch,
    Count,
    EstimateCache,
    SearchCounts,
    SearchSettings,
    run_all,
)

EXTRA_TURNS = 1.5
DEPTHS = (0.25, 0.5, 0.75)
"""At which shares of their length attempts are valued, to compare values with final scores."""
Baseline = Literal["single", "best-of-n", "self-consistency", "greedy", "sequential"]


@frozen
class ComparisonSettings(SearchSettings):
    """Settings of the comparison.

    Args:
        select: how one finalist of a search is chosen: by its reward, which needs the verifier, or
            by its value.
        held_out: validation problems of the last iteration; 0 leaves the comparison out. An
            improver decides on the other validation problems, and has at least half of them.
        baselines: what the search is compared with.
        single: the agent of the baseline `single`; the first of the team by default.
        longest: turns of the baseline `sequential`; 4 x `turns` by default.
        probes: trajectories of each held-out problem on which values are compared with scores.
    """

    select: Literal["reward", "value"] = "reward"
    held_out: Annotated[int, Meta(ge=0)] = 20
    baselines: Sequence[Baseline] = (
        "single",
        "best-of-n",
        "self-consistency",
        "greedy",
        "sequential",
    )
    single: str = ""
    longest: Count | None = None
    probes: Annotated[int, Meta(ge=2)] = 8

    @property
    def longest_turns(self) -> int:
        """Return the most turns of the baseline `sequential`."""
        return 4 * self.turns if self.longest is None else self.longest

    def plan_baselines(self, value: ValueEstimator, search: Plan) -> Plan:
        """Return the most that the baselines use on one problem; `search` is that of the search."""
        wanted = self.baselines
        activations = verdicts = estimates = final_scores = longest = 0
        # An estimate without a bound of its calls counts as one call.
        usage = ceiling_of(value, 0)
        calls_each = 1 if usage is None else usage.calls
        # The last attempt may begin just before as many calls are made as the search made.
        calls = search.turns + self.samples_per_search * calls_each
        attempt_turns = _most_turns(calls) + self.turns
        has_team_attempts = "best-of-n" in wanted or "self-consistency" in wanted
        for _ in range(("single" in wanted) + has_team_attempts):
            activations += attempt_turns
            verdicts += attempt_turns
            estimates += self.probes * len(DEPTHS)
            estimates += attempt_turns if self.select == "value" else 0
        if "greedy" in wanted:
            # It samples more where its samples take fewer calls, and one a turn without calls left.
            samples = _most_turns(self.samples_per_search) + self.turns
            activations += samples * self.at_once
            verdicts += 1
            estimates += samples
            final_scores = samples if self.early_stop else 0
        if "sequential" in wanted:
            longest = min(self.longest_turns, attempt_turns)
            activations += longest
            verdicts += 1
        return Plan(
            turns=activations,
            verdicts=verdicts,
            scores=estimates * value.scores + final_scores,
            readings=((value, estimates),),
            longest=longest,
        )


def _most_turns(turns: int) -> int:
    return int(EXTRA_TURNS * turns)


@define
class Allowance:
    """Hold what is left for one baseline on one problem."""

    calls: int
    turns: int
    calls_per_turn: float = 1.0  # of the search, on average

    @property
    def is_left(self) -> bool:
        """Return whether another attempt may begin."""
        return self.calls > 0 and self.turns > 0

    def attempts(self, turns: int) -> int:
        """Return how many attempts of so many turns may begin at once."""
        by_calls = int(self.calls / (turns * self.calls_per_turn))
        return max(1, min(by_calls, self.turns // turns))

    def spend(self, calls: int, turns: int) -> None:
        """Subtract what an attempt used."""
        self.calls -= calls
        self.turns -= turns


@define
class ContenderRun:
    """Hold what a contender did on one problem."""

    attempts: Sequence[SearchNode]  # the ends of whole trajectories
    calls: int  # of their turns, and of estimates
    turns: int
    picked: SearchNode | None = None  # the trajectory that counts

    @property
    def reward(self) -> float | None:
        """Return the reward of the picked trajectory; None without one."""
        return None if self.picked is None else reward_of(self.picked.episode)

    @property
    def solved(self) -> bool:
        """Return whether the picked trajectory is a success."""
        episode = None if self.picked is None else self.picked.episode
        return episode is not None and episode.success


def _calls(end: SearchNode) -> int:
    return sum(node.calls for node in end.lineage())


def _turns(end: SearchNode) -> int:
    return len(end.branch.trajectory)


@define(eq=False, repr=False)
class GreedySearch(BeamSearch):
    """A search of width 1 with as many calls as another search, spread over as many levels."""

    other: SearchCounts

    def samples_of_level(self) -> int:
        """Return the samples that the calls left allow.

        Calls of a sample differ between the searches: equal texts are estimated once, and the many
        samples of one trajectory are equal more often. So each level uses the calls so far.
        """
        other, own = self.other, self.counts
        so_far = own if own.samples else other
        levels = max(1, len(other.parents) - len(own.parents))
        samples_left = (other.calls - own.calls) * so_far.samples / max(1, so_far.calls)
        turns_left = _most_turns(other.samples) - own.samples
        return max(1, min(round(samples_left / levels), turns_left))


@define(eq=False, repr=False)
class Baselines:
    """All baselines on one problem."""

    settings: ComparisonSettings
    session: Session
    problem: Problem  # with its hidden part
    team: Chooser  # decides who acts next, as in the search
    key: Key
    values: EstimateCache  # picks an attempt if the search picks by value
    runs: dict[str, ContenderRun] = field(init=False, factory=dict)

    async def run(self, searched: SearchCounts) -> None:
        """Run all baselines concurrently, each with the calls of the search."""
        wanted = self.settings.baselines
        names = [n for n in ("single", "greedy", "sequential") if n in wanted]
        if "best-of-n" in wanted or "self-consistency" in wanted:
            names.append("best-of-n")
        runs = await run_all(self._run(name, searched, self.key.child(name)) for name in names)
        self.runs = dict(zip(names, runs, strict=True))
        if "self-consistency" in wanted:
            self.runs["self-consistency"] = evolve(self.runs["best-of-n"])

    async def _run(self, name: str, searched: SearchCounts, key: Key) -> ContenderRun:
        settings, roster = self.settings, self.session.roster
        turns = max(1, searched.activations)
        allowance = Allowance(
            searched.calls,
            _most_turns(turns + searched.estimate_calls),
            max(1.0, searched.turn_calls / turns),
        )
        match name:
            case "greedy":
                return await self._greedy(searched, key)
            case "single":
                agent = settings.single
                alone = parse_choice(agent, roster) if agent else choices(roster)[0]
                return await self._attempts(Rotation([alone]), allowance, key)
            case "sequential":
                rotation = rotation_of(settings.rotation, roster)
                turns = min(settings.longest_turns, allowance.turns)
                end = await self._attempt(rotation, turns, key, allowance.calls)
                return ContenderRun([end], _calls(end), _turns(end))
            case _:
                return await self._attempts(self.team, allowance, key)

    async def _greedy(self, searched: SearchCounts, key: Key) -> ContenderRun:
        search = GreedySearch(
            evolve(self.settings, beam_width=1, min_parents=1, min_roots=1),
            self.session,
            self.problem,
            self.team,
            self.values.estimator,
            key,
            searched,
        )
        await search.run()
        return ContenderRun(search.finalists, search.counts.calls, search.counts.activations)

    async def _attempts(self, chooser: Chooser, allowance: Allowance, key: Key) -> ContenderRun:
        """Run attempt after attempt, concurrently as far as the calls certainly suffice."""
        ends: list[SearchNode] = []
        turns = self.settings.turns
        while allowance.is_left:
            first = len(ends)
            wave = await run_all(
                self._attempt(chooser, turns, key.child(first + n))
                for n in range(allowance.attempts(turns))
            )
            ends += wave
            for end in wave:
                allowance.spend(_calls(end), _turns(end))
            if not any(map(_turns, wave)):
                break
        return ContenderRun(ends, sum(map(_calls, ends)), sum(map(_turns, ends)))

    async def _attempt(
        self, chooser: Chooser, turns: int, key: Key, most_calls: float = math.inf
    ) -> SearchNode:
        """Return the end of a trajectory of at most `turns` turns and `most_calls` calls.

        The last turn may pass `most_calls`.
        """
        node = SearchNode(self.session.begin(self.problem, key.child("begin")))
        node.finished = node.branch.step.done
        n = calls = 0
        while not node.finished and _turns(node) < turns and calls < most_calls:
            n += 1
            [start] = chooser.starts([node.branch], [key.child("decide", n)])
            if start is None:
                break
            branch = await self.session.extend(node.branch, start, key.child("extend", n))
            node = node.child(0, start, branch)
            calls += node.calls
        return node

    def probes(self) -> list[SearchNode]:
        """Return the independent attempts on which values are compared with scores."""
        run = self.runs.get("best-of-n") or self.runs.get("single")
        return [] if run is None else list(run.attempts[: self.settings.probes])

    def to_judge(self) -> list[SearchNode]:
        """Return the attempts to verify: probes, and all, or the picked ones if picked by value."""
        ends = self.probes()
        for run in self.runs.values():
            if self.settings.select == "reward":
                ends += run.attempts
            elif run.picked is not None:
                ends.append(run.picked)
        return list(dict.fromkeys(ends))

    async def pick(self) -> None:
        """Pick the attempt of each baseline that counts; by reward, attempts must be judged."""
        for name, run in self.runs.items():
            key = self.key.child("tie", name)
            if name == "self-consistency":
                run.picked = most_frequent(run.attempts, key)
            elif len(run.attempts) == 1:
                [run.picked] = run.attempts
            else:
                numbers = [reward_of(end.episode) for end in run.attempts]
                if self.settings.select == "value":
                    before = self.values.counts.estimate_calls
                    values = await run_all(self.values.value_of(end) for end in run.attempts)
                    run.calls += self.values.counts.estimate_calls - before
                    numbers = [valued.value for valued in values]
                ranks = [
                    (-number, key.child(n).digest, n)
                    for n, number in enumerate(numbers)
                    if number is not None
                ]
                run.picked = run.attempts[min(ranks)[-1]] if ranks else None


def most_frequent(ends: Sequence[SearchNode], key: Key) -> SearchNode | None:
    """Return the first trajectory with the most frequent answer; the key decides between equals.

    Returns None if no answer came up twice: then answers cannot be compared.
    """
    answers = [answer_of(end.branch) for end in ends]
    counts = Counter(answer for answer in answers if answer)
    highest = max(counts.values(), default=0)
    if not highest or (highest < 2 and len(ends) > 1):
        return None
    winners = [answer for answer, count in counts.items() if count == highest]
    return ends[answers.index(min(winners, key=lambda answer: key.child(answer).digest))]


def answer_of(branch: Branch) -> str:
    """Return a trajectory's answer in a form in which equal answers are equal texts.

    It is the last completed turn's data under "answer", or all its data, or else its text, without
    case and spaces; empty without a completed turn.
    """
    for turn in branch.trajectory.backward():
        if turn.status == "completed":
            data: JSON = turn.output.data
            if isinstance(data, Mapping):
                data = data.get("answer")
            text = turn.output.content if data is None else str(data)
            return " ".join(text.split()).casefold()
    return ""
