"""Check whether the opened parts of a config can work with each other.

Nothing is run and nothing is called: a run asks before it begins, and `validate` asks without one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, get_args

from orchestrion._bounds import ceiling_of
from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import (
    check_problems,
    first_step,
    has_steps,
    iterations_of,
    problems_of,
)
from orchestrion._engine.opening import Opened, open_components
from orchestrion._errors import UsageError
from orchestrion._guards import calling, place_of
from orchestrion._keys import Key
from orchestrion._records import Split
from orchestrion._session import EngineSession
from orchestrion.config import Config

MOST = 10_000_000
"""Episodes of one iteration, or of one evaluation: the smallest take about a kilobyte each."""

NO_REWARD = "none is configured, so that trainers which learn from rewards learn nothing"


@asynccontextmanager
async def ready(config: Config) -> AsyncIterator[tuple[Opened, dict[Split, int]]]:
    """Open a config's components without a run, and check them: what `check_ready` returns."""
    async with AsyncExitStack() as stack:
        opened = await open_components(config, stack, Key(config.seed), live=False, trial=True)
        yield opened, check_ready(opened)


def check_ready(opened: Opened) -> dict[Split, int]:
    """Check a task's contract, and ask agents and trainers whether they fit task and team.

    Return how many problems of each split are used.

    Raises:
        UsageError: a split that is used is empty, a count is absurd, an agent refuses the task, or
            a trainer the team.
        RunError: a component broke its contract.
    """
    config = opened.config
    baselines = config.evaluation.baselines.values()
    used: list[Split] = [config.evaluation.split]
    if config.stages or any(baseline.trainer for baseline in baselines):
        used.append("train")
    check_problems(opened.runtimes["task"], used, place_of(config, "task"))
    _check_agents(opened, used[0])
    check_policies(opened)
    sizes = sizes_of(opened)
    evaluation = config.evaluation
    problems = min(sizes[evaluation.split], evaluation.episodes or sizes[evaluation.split])
    _check_count(problems * evaluation.seeds, "evaluation (episodes x seeds)", "an evaluation")
    for path in config.stages:
        _check_plan(opened, path, sizes)
        check_trainer(opened, path)
    for baseline in baselines:
        if baseline.trainer is not None:
            _check_plan(opened, baseline.trainer, sizes)
            check_trainer(opened, baseline.trainer, baseline.policy, baseline.agents)
    return sizes


def _check_agents(opened: Opened, split: Split) -> None:
    """Ask agents with a method `check_task` whether they can act on what the task shows first."""
    paths = [path for path in opened.config.roster if hasattr(opened.runtimes[path], "check_task")]
    if not paths:
        return
    task, place = opened.runtimes["task"], place_of(opened.config, "task")
    problem = problems_of(task, split, place)[0]
    observation = first_step(task, problem, Key(opened.config.seed), place).observation
    for path in paths:
        try:
            with calling(place_of(opened.config, path), "check_task"):
                opened.runtimes[path].check_task(opened.member(path).name, observation)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error


def check_policies(opened: Opened) -> None:
    """Refuse a policy that nothing trains and under which no agent ever acts."""
    config = opened.config
    paths = [] if config.stages else [config.policy]
    for baseline in config.evaluation.baselines.values():
        if baseline.trainer is None and not baseline.untrained:
            paths.append(baseline.policy)
    for path in paths:
        if getattr(opened.runtimes[path], "longest", None) == 0:
            raise UsageError(
                f"{path} ({config.components[path].use}): no agent would ever act, as it has no "
                "steps and no trainer that finds some; give it `steps`, or train it"
            )


def doubts(opened: Opened) -> list[str]:
    """Return what works and comes to nothing, as far as the components know."""
    return [*_limit_doubts(opened), *_reward_doubts(opened)]


def _limit_doubts(opened: Opened) -> Iterator[str]:
    """Yield that no episode can end before `limits.turns` ends it, where that is known."""
    config, limit = opened.config, opened.config.limits.turns
    parts = {path: config.components[path].component for path in (config.policy, *config.roster)}
    ends = has_steps(opened.runtimes["task"]) or any(member.ends for member in opened.roster())
    if ends or any(getattr(parts[path], "final", False) for path in config.roster):
        return
    if getattr(parts[config.policy], "stop", None) is False:
        yield (
            f"{config.policy}.stop: false, and no agent is known to end an episode: unless an "
            "agent's output is `final`, each goes on until a limit ends it, and never counts as "
            f"solved; set `{config.policy}.stop: true`, or add an agent such as `terminator`"
        )
        return
    longest = None if config.stages else getattr(opened.runtimes[config.policy], "longest", None)
    if limit is not None and limit <= (longest or 1):
        yield (
            f"limits.turns: {limit} leaves no decision to end an episode after its last turn, and "
            "an episode that a limit ends never counts as solved; unless that turn is `final`, set "
            f"{(longest or 1) + 1} or more"
        )


def _reward_doubts(opened: Opened) -> Iterator[str]:
    """Yield what the reward says of its settings beside this team."""
    path = opened.config.reward
    if path is None and opened.config.stages:
        yield f"reward: missing: {NO_REWARD}"
    doubt: Any = None if path is None else getattr(opened.runtimes[path], "doubt", None)
    if path is None or doubt is None:
        return
    ceilings = []
    for agent in opened.config.roster:
        with calling(place_of(opened.config, agent), "ceiling"):
            ceilings.append(ceiling_of(opened.runtimes[agent], 1))
    with calling(place_of(opened.config, path), "doubt"):
        text = doubt(ceilings)
    if text:
        yield f"{path}: {text}"


def sizes_of(opened: Opened) -> dict[Split, int]:
    """Return how many problems of each split are used."""
    task, place = opened.runtimes["task"], place_of(opened.config, "task")
    limit = opened.config.run.problems
    counts = {split: len(problems_of(task, split, place)) for split in get_args(Split)}
    return {split: n if limit is None else min(limit, n) for split, n in counts.items()}


def _check_plan(opened: Opened, path: str, sizes: dict[Split, int]) -> None:
    """Refuse an iteration of more episodes than fit into memory, where the trainer tells."""
    place = place_of(opened.config, path)
    plan: Any = getattr(opened.runtimes[path], "plan", None)
    if plan is None or not iterations_of(opened.runtimes[path], place):
        return
    with calling(place, "plan(0)"):
        first = plan(0, dict(sizes))
    if first is not None:
        _check_count(first.episodes + first.verdicts, place, "an iteration")


def _check_count(episodes: int, place: str, what: str) -> None:
    if episodes > MOST:
        raise UsageError(
            f"{place}: {what} of {episodes:,} episodes does not fit into memory, which holds all "
            f"of them until it is stored; at most {MOST:,} are taken"
        )


def check_trainer(
    opened: Opened, path: str, policy: str = "policy", agents: Sequence[str] | None = None
) -> None:
    """Ask a trainer whether it can train this policy with this team."""
    # Trainers need not subclass the protocol, which has the default.
    check: Any = getattr(opened.runtimes[path], "check", None)
    if check is None:
        return
    key = Key(opened.config.seed)
    engine = opened.engine(CallPath(), policy, agents)
    with calling(place_of(opened.config, path), "check"):
        check(EngineSession(engine, "check", key, key))
