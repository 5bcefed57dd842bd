"""The trainer `auto` at work: it looks at the first episodes, picks a trainer and runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import variance
from typing import TYPE_CHECKING, Any

from attrs import frozen

from orchestrion import (
    Experience,
    Key,
    Metrics,
    Observation,
    OpenContext,
    Plan,
    Problem,
    Saved,
    Session,
    Split,
    gather,
)
from orchestrion_values.fitted_q import batches
from orchestrion_values.learner import SHORT, ValueLearner, probing
from orchestrion_values.policy import RecordedChoice, ValuePolicy

if TYPE_CHECKING:
    from orchestrion_values.auto import Auto

COVERED = 0.4
"""The share of repeating situations from which they can be counted."""
MOSTLY = 0.5
"""The same if it is unknown whether something is hidden."""
HIDDEN = 0.2
"""Up to this unexplained share of the outcome's variance, nothing is hidden."""
LOGGED = 300
"""The minimum of episodes to learn a hidden-state model from a log."""
TEXTS = 200
"""The minimum of different texts to learn from their words."""


@frozen
class Look:
    """Statistics of the first episodes.

    Args:
        episodes: their number.
        steps: the maximum of choices in one of them, without stopping.
        shown: whether the task shows numbers.
        kinds: the number of different situations.
        covered: the probability that the next situation was seen before (Good and Turing).
        hidden: the share of the variance of outcomes within ends that look the same; None if hardly
            any two do.
        texts: the number of different texts of training problems.
        log: whether the task shows its history call by call.
    """

    episodes: int
    steps: int
    shown: bool
    kinds: int
    covered: float
    hidden: float | None
    texts: int = 0
    log: bool = False


def look(
    experiences: Sequence[Experience[RecordedChoice]],
    policy: ValuePolicy,
    problems: Sequence[Problem] = (),
) -> Look:
    """Return the statistics of some episodes and of the training problems."""
    taken = [step for experience in experiences for step in experience.taken]
    counts = Counter(_numbers(step.situation.problem, step.situation.observation) for step in taken)
    single = sum(count == 1 for count in counts.values())
    return Look(
        len(experiences),
        max((len(experience.episode.trajectory) for experience in experiences), default=0),
        any(step.situation.observation and step.situation.observation.features for step in taken),
        len(counts),
        1 - single / max(1, len(taken)),
        _hidden(experiences),
        len({problem.text for problem in problems}),
        _log(experiences, policy),
    )


def _log(experiences: Sequence[Experience[RecordedChoice]], policy: ValuePolicy) -> bool:
    """See `Look.log`."""
    from orchestrion_values.optimism.hidden import find_log
    from orchestrion_values.optimism.learner import add
    from orchestrion_values.optimism.states import StateMoves

    seen = StateMoves(len(policy.choices))
    for experience in experiences:
        add(seen, policy, experience)
    return bool(seen.moves) and find_log(seen) is not None


def _hidden(experiences: Sequence[Experience[RecordedChoice]]) -> float | None:
    """See `Look.hidden`: analysis of variance over ends that occurred at least twice."""
    groups: dict[Any, list[float]] = {}
    for experience in experiences:
        seen = experience.episode.observation
        groups.setdefault(_numbers(experience.episode.problem, seen), []).append(experience.outcome)
    again = [outcomes for outcomes in groups.values() if len(outcomes) > 1]
    free = sum(len(outcomes) - 1 for outcomes in again)
    every = [experience.outcome for experience in experiences]
    if free < 3 or len(set(every)) < 2:
        return None
    within = sum((len(outcomes) - 1) * variance(outcomes) for outcomes in again) / free
    return min(1.0, within / variance(every))


def _numbers(problem: Problem, seen: Observation | None) -> Any:
    features = tuple(round(x, 2) for x in seen.features) if seen is not None else ()
    return problem.category, features


def pick(stats: Look, episodes: int, turns: int | None) -> tuple[str, str]:
    """Return the name of the best trainer, and the reason in words.

    Args:
        stats: the statistics of the first episodes.
        episodes: of the whole run.
        turns: the maximum in an episode; None for no limit.
    """
    if turns == 1 or stats.steps <= 1:
        why = "`limits.turns` is 1" if turns == 1 else "an episode is one choice"
        if stats.texts >= TEXTS:
            return "bandit with text", f"{why}, and problems have {stats.texts} different texts"
        return "bandit", why
    covered = f"{stats.covered:.0%} of the situations in {stats.episodes} episodes come back"
    if not stats.shown:
        return "fitted-q", "the task shows no numbers: what agents reply is all there is to go by"
    if stats.log and episodes >= LOGGED:
        why = "the task shows its history call by call: a hidden state can be learned from it"
        return "optimistic", why
    if stats.steps <= SHORT:
        return "fitted-q", f"an episode has {stats.steps} choices at most: there is little to plan"
    if stats.hidden is not None and stats.hidden > HIDDEN:
        why = "ends that look alike pay differently"
        return "fitted-q", f"{why} ({stats.hidden:.0%} of the variance): something is hidden"
    if stats.covered >= (COVERED if stats.hidden is not None else MOSTLY):
        return "optimistic", f"what the task shows can be counted: {covered}"
    return "fitted-q", f"what the task shows is too varied to be counted: {covered}"


class Picker(ValueLearner):
    """Runs the first episodes and then the trainer that they suggest.

    Its state is the name of that trainer and that trainer's state.
    """

    name = "auto"

    def __init__(self, learners: Mapping[str, Any], settings: Auto, ctx: OpenContext) -> None:
        super().__init__(ctx, [])
        self._learners, self._first, self._episodes = learners, settings.first, settings.episodes
        self._note = ctx.note
        self._picked = ""
        left = settings.episodes - settings.first
        # Fewer iterations than any candidate has.
        self._later = max(1, len(batches(left)) * 2 // 3) if left > 0 else 0

    @property
    def iterations(self) -> int:
        return 1 + self._later

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Return the episodes by which the most that can be played so far grows in iteration `i`.

        Iterations of the trainers differ in size, so that the sum of their maxima is too much.
        """
        return Plan(self._first if i == 0 else self._most(i) - self._most(i - 1))

    def _most(self, i: int) -> int:
        """Return the episodes of the trainer that plays the most up to iteration `i`."""
        episodes: list[int] = [
            sum(learner.sizes[: i * learner.iterations // self._later])
            for learner in self._learners.values()
        ]
        return max(episodes)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Play the first episodes, or run the next part of the picked trainer."""
        self.check(session)
        if i == 0:
            return await self._begin(session)
        learner = self._learners[self._picked]
        metrics: dict[str, float] = {}
        parts = self._parts(learner, i)
        for j in parts:
            inside: Any = session if len(parts) == 1 else _Part(session, session.key.child(j))
            metrics |= await learner.iterate(j, inside)
        return metrics

    def _parts(self, learner: Any, i: int) -> range:
        """Return the iterations of a trainer that make up iteration `i`."""
        count = learner.iterations
        return range((i - 1) * count // self._later, i * count // self._later)

    async def _begin(self, session: Session) -> Metrics:
        policy: ValuePolicy = session.policy
        problems = self.problems(session, 0, self._first)
        jobs = self.jobs(session, problems, probing(policy, self.turns))
        episodes = await session.rollout(jobs)
        findings = look(gather(episodes, RecordedChoice), policy, session.problems("train"))
        self._picked, why = pick(findings, self._episodes, self.turns)
        if self._picked == "optimistic" and policy.own_encoders:
            self._picked, why = "fitted-q", "`optimistic` reads no `encoders` of the policy"
        self._note("picked", f"{self._picked}, since {why}")
        return {
            **self._learners[self._picked].absorb(episodes, session),
            "picked": float(list(self._learners).index(self._picked)),
            "situations": float(findings.kinds),
            "covered": findings.covered,
            "hidden": -1.0 if findings.hidden is None else findings.hidden,
        }

    # ------------------------------------------------------------------ state

    def save(self) -> Saved:
        if not self._picked:
            return Saved(data={"picked": "", "data": None})
        saved = self._learners[self._picked].save()
        return Saved(saved.arrays, {"picked": self._picked, "data": saved.data})

    def load(self, saved: Saved) -> None:
        data: Any = saved.data
        self._picked = data["picked"]
        if self._picked:
            self._learners[self._picked].load(Saved(saved.arrays, data["data"]))


class _Part:
    """A session with the key of one part of an iteration."""

    def __init__(self, session: Session, key: Key) -> None:
        self._session, self.key = session, key

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)
