"""Learn from episodes of other runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from orchestrion_encoders.interfaces import places_of

from orchestrion import (
    Activation,
    CheckpointError,
    Episode,
    Key,
    Problem,
    Situation,
    Step,
    Task,
    Trajectory,
    UsageError,
    replace,
)
from orchestrion_values.policy import RecordedChoice, ValuePolicy


class NotReplayable(Exception):
    """Raised for an episode whose situations cannot be restored; its text says why."""


def problems_of(task: Task) -> dict[str, Problem]:
    """Return all problems of a task by id, with their hidden parts."""
    splits = (task.problems(split) for split in ("train", "validation", "test"))
    return {problem.id: problem for split in splits for problem in split}


def situations_of(episode: Episode, task: Task, problem: Problem) -> list[Situation]:
    """Return the situation of each decision of a stored episode.

    Observations are not stored: the environment is replayed from the turns.

    Args:
        episode: with its turns and decisions.
        task: of the episode.
        problem: of the episode, with its hidden part.

    Raises:
        NotReplayable: decisions are missing, several agents were started at once, or the last
            observation differs from the stored one, as in tasks with random draws.
    """
    if not episode.decisions:
        raise NotReplayable("the run kept no decisions (run.retention)")
    if any(len(decision.start) > 1 for decision in episode.decisions):
        raise NotReplayable("several agents were started at once")
    # Keys are not stored; the check at the end shows whether they matter.
    key, start = Key(0), getattr(task, "start", None)
    step: Step = start(problem, key) if start is not None else Step()
    turns = {turn.decision: turn for turn in episode.turns}
    trajectory, result = Trajectory(), []
    for place in range(len(episode.decisions)):
        result.append(Situation(episode.problem, trajectory, step.observation, training=True))
        if (turn := turns.get(place)) is not None:
            trajectory = trajectory.append(turn)
            if hasattr(task, "step"):
                step = task.step(step.state, turn, key)
    if episode.observation is not None and step.observation != episode.observation:
        raise NotReplayable("a replay of its turns ends differently: the task draws at random")
    return result


async def of_run(
    run: str, policy: ValuePolicy, path: str, source: str = "train"
) -> tuple[list[Episode], list[str]]:
    """Return a run's episodes with records for a trainer of `policy`.

    Args:
        run: its folder or name.
        policy: the decisions must be among its choices.
        path: the key in the config that names the run, for errors.
        source: "train", or the name of an evaluation.

    Returns:
        The episodes, and notes on those that were left out.

    Raises:
        UsageError: it is not a run, or has nothing to learn from.
    """
    from orchestrion.runs import RunReader, find_run, open_run

    episodes: list[Episode] = []
    lost: Counter[str] = Counter()
    try:
        async with AsyncExitStack() as stack:
            try:
                other = await stack.enter_async_context(open_run(run))
                directory = other.directory
            except CheckpointError:  # of another version; its episodes do not depend on it
                directory = find_run(run)
                other = await stack.enter_async_context(open_run(directory / "config.yaml"))
            if directory is None:
                raise UsageError("is a config; name a run")
            task = other.opened.runtimes["task"]
            hidden = problems_of(task)
            with RunReader(directory) as reader:
                for stored in reader.episodes(source=source):
                    try:
                        episodes.append(_recorded(stored.episode, task, hidden, policy))
                    except NotReplayable as error:
                        lost[str(error)] += 1
    except UsageError as error:
        raise UsageError(f"{path}: {run}: {error}") from None
    notes = [f"{run}: {count} episodes left out: {why}" for why, count in lost.items()]
    if not episodes:
        raise UsageError("\n".join([f"{path}: {run}: there is nothing to learn from", *notes]))
    return episodes, notes


def _recorded(
    episode: Episode, task: Task, hidden: Mapping[str, Problem], policy: ValuePolicy
) -> Episode:
    """Return the episode with records in its decisions."""
    if episode.reward is None:
        raise NotReplayable("it has no reward")
    situations = situations_of(episode, task, hidden.get(episode.problem.id, episode.problem))
    allowed = policy.allowed(situations)
    decisions = []
    for decision, situation, row in zip(episode.decisions, situations, allowed, strict=True):
        place = _place(policy, decision.start)
        if place is None or not row[place]:
            raise NotReplayable("it made a choice that this team lacks or may not make there")
        decisions.append(replace(decision, record=RecordedChoice(situation, place, row)))
    return replace(episode, decisions=tuple(decisions))


def _place(policy: ValuePolicy, started: Sequence[Activation]) -> int | None:
    """Return the index of a decision's choice; of stopping if it started nothing."""
    if not started:
        return policy.choices.index(None) if None in policy.choices else None
    return places_of(policy.choices).get((started[0].agent, started[0].option))
