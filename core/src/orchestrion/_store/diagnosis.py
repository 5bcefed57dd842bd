"""Find what a person should know about how a run learned, and what to do about it.

Everything comes from the store: the metrics of the iterations, and what the evaluations after
training found. A trainer takes part through its metrics alone, of which `entropy` (mean entropy of
its decisions, in any unit) is read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from attrs import asdict, frozen

from orchestrion._config.sections import AS_UNTRAINED
from orchestrion._manifest import has_other_problems
from orchestrion._records import JSON, TRAINING, Saved, Status
from orchestrion._report import LEARNED, Outcomes, Verdict, enumerated, paired
from orchestrion._statistics import mean
from orchestrion._store.conduct import EPISODES, completed_by
from orchestrion._store.reader import Iteration, RunReader
from orchestrion._stored import stored_config

NOTE, WARNING = 1, 2

MOSTLY = 0.75
"""Share of a kind's episodes that end at once from which on the kind counts as given up."""
SOME = 0.01  # share of an agent's turns that may fail without a word
OFTEN = 0.5  # share of the first episodes that a limit ends from which on it explains failure
SETTLED = 0.05  # share of the first entropy below which choices count as settled
EARLY = 0.25  # share of the iterations before which that is early
RISE = 0.1  # share of the whole rise that the last third must add to count as still improving
FEW = 10  # fewer problems than that can hardly tell two teams apart
NORMAL_95 = 1.959963984540054


@frozen
class Finding:
    """One thing that a person should know, and what to do about it."""

    name: str  # of the check, for programs
    level: int  # NOTE or WARNING
    text: str
    advice: str
    about: tuple[str, ...] = ()  # kinds of problems, agents or baselines


def diagnose(store: RunReader) -> list[Finding]:
    """Return the findings on a run as far as it came, warnings first; none if all is well.

    A smoke run has none: it is known to be too small to learn.
    """
    iterations = store.iterations()
    if not iterations or (store.manifest or {}).get("smoke"):
        return []
    evaluations = store.load_evaluations()
    last_stage = [iteration for iteration in iterations if iteration.stage == iterations[-1].stage]
    findings = [
        *_trained_on_judged(store),
        *_without_reward(last_stage),
        *_failing(store, last_stage),
        *_never_in_time(store, last_stage),
        *_never_accepted(store, last_stage),
        *cut_off(evaluations.get(LEARNED, {}).get("outcomes", {})),
        *_given_up(evaluations),
        *_not_ahead(store, evaluations, _rewards(last_stage)),
        *_never_tried(store, iterations),
        *_settled_early(last_stage),
        *_still_rising(last_stage),
        *_few_problems(store, evaluations),
        *_no_baseline(store, evaluations),
    ]
    return sorted(findings, key=lambda finding: -finding.level)


def warning_level(findings: Sequence[Finding]) -> int:
    """Return the highest level; 0 if there is no finding."""
    return max((finding.level for finding in findings), default=0)


def as_document(findings: Sequence[Finding]) -> dict[str, JSON]:
    """Return `diagnosis` and `warning_level` as `--json` and `summary.json` have them."""
    return {
        "diagnosis": [asdict(finding) for finding in findings],
        "warning_level": warning_level(findings),
    }


# ------------------------------------------------------------------ data that was changed


def _trained_on_judged(store: RunReader) -> Iterator[Finding]:
    """Find that the task's problems were changed, and how many of the judged were trained on."""
    before = (store.manifest or {}).get("data") or {}
    changes = [event.data for event in store.events() if event.kind == "data changed"]
    texts = [data["text"] for data in changes if has_other_problems(before, data["data"])]
    if not texts:
        return
    judged, trained = store.trained_on(LEARNED)
    told = f"{trained} of {judged} problems it was judged on were trained on"
    yield Finding(
        "data_changed",
        WARNING if trained or not judged else NOTE,
        f"the task's data was changed during the run ({texts[-1]}); "
        + (told if judged else "it may be judged on problems that it was trained on"),
        "start a new run on the changed data",
    )


# ------------------------------------------------------------------ nothing to learn from


def _without_reward(iterations: Sequence[Iteration]) -> Iterator[Finding]:
    """Find a stage none of whose episodes has a reward."""
    played = sum(iteration.metrics.get("episodes", 0.0) for iteration in iterations)
    missing = sum(iteration.metrics.get("missing", 0.0) for iteration in iterations)
    if played and missing >= played:
        yield Finding(
            "no_reward",
            WARNING,
            "no episode of training has a reward, so that nothing could be learned",
            "define `reward`, e.g. `reward: {use: outcome-minus-cost}`",
        )


def _failing(store: RunReader, iterations: Sequence[Iteration]) -> Iterator[Finding]:
    """Find agents whose turns in a stage failed: more than a few, or even most of them.

    One that the learned team makes use of is not broken: it cannot do some problems.
    """
    turns: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = {}
    for iteration in iterations:
        turns.update(iteration.agents)
        for agent, (count, reason) in iteration.failures.items():
            failed[agent] += count
            reasons.setdefault(agent, Counter())[reason] += count
    useful = completed_by(store) if failed else set()
    for agent, count in failed.items():
        if count > SOME * turns[agent]:
            reason = " ".join(reasons[agent].most_common(1)[0][0].split())
            mostly = count > OFTEN * turns[agent] and agent not in useful
            advice = f"mend the agent (`agents.{agent}` in the config), and train anew"
            if mostly:
                advice += ": what was learned is to do without it"
            elif agent in useful:
                advice = f"what was learned makes use of {agent}; if it should not fail, {advice}"
            yield Finding(
                "agent_fails",
                WARNING if mostly else NOTE,
                f"{count} of {turns[agent]} turns of {agent} failed, most often with "
                f"{reason[:200]}",
                advice,
                (agent,),
            )


def _never_in_time(store: RunReader, iterations: Sequence[Iteration]) -> Iterator[Finding]:
    """Find a stage that solved nothing and whose first episodes mostly ran into a limit.

    In later iterations few episodes do, as nothing else than stopping at once was worth it.
    """
    first = next((iteration for iteration in iterations if iteration.episodes), None)
    if first is None or any(iteration.successes for iteration in iterations):
        return
    ended = first.statuses.get(Status.LIMIT, 0)
    if ended >= OFTEN * first.episodes:
        given = stored_config(store).get("limits") or {}
        limits = [f"`limits.{name}`" for name, limit in given.items() if limit is not None]
        yield Finding(
            "limits_too_low",
            WARNING,
            f"no episode of training was solved, and {ended} of the first {first.episodes} were "
            "ended by a limit; such an episode never counts as solved",
            "let something end an episode (`policy: {stop: true}` in `neural`, or an agent such as "
            f"`terminator`); if it can, raise {' or '.join(limits) or '`limits.turns`'}: stopping "
            "takes a decision more than the turns",
        )


def _never_accepted(store: RunReader, iterations: Sequence[Iteration]) -> Iterator[Finding]:
    """Find that the verifier gave no credit to any answer, and show one of them."""
    if any(iteration.successes for iteration in iterations):
        return
    example = ""
    for stored in islice(store.episodes(source=TRAINING, stage=iterations[-1].stage), EPISODES):
        answer, scores = stored.episode.answer, stored.episode.scores
        if scores is not None and (scores.value or scores.success):
            return
        if answer and scores is not None and not example:
            checks = "; ".join(f"{name}: {text}" for name, text in scores.checks.items())
            example = f"problem {stored.episode.problem.id} was answered {answer!r:.200}"
            example += f" ({checks:.300})" if checks else ""
    if example:
        yield Finding(
            "never_accepted",
            WARNING,
            f"the verifier accepted no answer in training; e.g. {example}",
            "see whether such an answer is right: the task decides how answers are read and "
            "compared (`extract` and `check` in `jsonl`); else add agents that can solve it",
        )


def cut_off(outcomes: Outcomes) -> Iterator[Finding]:
    """Find that nearly all episodes of an evaluation end at a limit, and so unsolved."""
    share = mean([row["limit"] or 0.0 for row in outcomes.values()]) if outcomes else 0.0
    if share >= MOSTLY:
        yield Finding(
            "cut_off",
            WARNING,
            f"{share:.0%} of the evaluated episodes were ended by a limit or the budget; such an "
            "episode never counts as solved",
            "let the policy end an episode (`stop: true` in `neural`, or an agent such as "
            "`terminator`), and raise `limits.turns`: stopping takes a decision more",
        )


# ------------------------------------------------------------------ kinds of problems


def stopped_at_once(evaluations: Mapping[str, Any]) -> list[str]:
    """Return the kinds of problems that what was learned mostly ends at once."""
    kinds = _kinds(evaluations, LEARNED)
    return [kind for kind, row in kinds.items() if row["at_once"] >= MOSTLY]


def _given_up(evaluations: Mapping[str, Any]) -> Iterator[Finding]:
    """Find kinds that the learned policy ends at once, unless that pays best."""
    kinds = _kinds(evaluations, LEARNED)
    others = [_kinds(evaluations, name) for name in evaluations if name != LEARNED]
    given_up = []
    for kind in stopped_at_once(evaluations):
        paid = kinds[kind]["at_once_reward"] or 0.0
        rewards = [other[kind]["reward"] for other in others if kind in other]
        best = max((reward for reward in rewards if reward is not None), default=-math.inf)
        if paid <= 0 or best > (kinds[kind]["reward"] or 0.0):
            given_up.append(kind)
    if given_up:
        names = ", ".join(kind or "those without a category" for kind in given_up)
        where = f" in {len(given_up)} of {len(kinds)} categories of problems: {names}"
        yield Finding(
            "stopped_at_once",
            WARNING,
            f"what was learned stops at once{where if len(kinds) > 1 else ' on most problems'}",
            "explore more or longer (more episodes; a trainer's exploration setting), or pay for "
            "part of the work, so that trying is not only a cost while nothing is solved yet",
            tuple(given_up),
        )


def _kinds(evaluations: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    kinds: Mapping[str, Any] = evaluations.get(name, {}).get("kinds", {})
    return kinds


# ------------------------------------------------------------------ agents, entropy, problems


def _never_tried(store: RunReader, iterations: Sequence[Iteration]) -> Iterator[Finding]:
    never = store.never_tried() or []
    config = stored_config(store) or {}
    unused = _unused(config, never)
    if never and not _policy_learned(store, config.get("policy") or {}):
        never = unused  # a fixed policy was never meant to start the others
    if never:
        count = sum(iteration.episodes for iteration in iterations)
        yield Finding(
            "never_tried",
            NOTE,
            f"never tried in {count} training episodes: {', '.join(never)}",
            "train for longer or explore more"
            + (f", or leave out {enumerated(unused)}" if unused else ""),
            tuple(never),
        )


def _policy_learned(store: RunReader, settings: Mapping[str, Any]) -> bool:
    """Return whether the policy, or what is defined in it, has more than its settings say."""
    checkpoint = store.latest().checkpoint
    if checkpoint is None:
        return False
    saved = checkpoint.components.get("policy", Saved())
    # A policy that training left alone saves at most what it was given, such as its steps.
    data = {} if saved.data is None else saved.data
    as_given = isinstance(data, Mapping) and all(settings.get(n) == v for n, v in data.items())
    paths = [*checkpoint.components, *checkpoint.overlay]
    return bool(saved.arrays) or not as_given or any(p.startswith("policy.") for p in paths)


def _unused(config: Mapping[str, Any], agents: Sequence[str]) -> list[str]:
    """Return those of some agents that no other part of the config names, such as a baseline."""
    parts = [
        *config.get("agents", {}).values(),
        *(config[key] for key in config if key != "agents"),
    ]
    text = str(parts)
    return [
        name for name in agents if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    ]


def _settled_early(iterations: Sequence[Iteration]) -> Iterator[Finding]:
    """Find an entropy that was gone early, where the reward has not risen since."""
    rows = [
        (iteration.metrics["entropy"], iteration.reward)
        for iteration in iterations
        if "entropy" in iteration.metrics
    ]
    if len(rows) < 8 or not rows[0][0] > 0:
        return
    place = next((i for i, row in enumerate(rows) if row[0] < SETTLED * rows[0][0]), len(rows))
    after = [reward for _, reward in rows[place:] if reward is not None]
    if place >= EARLY * len(rows) or len(after) < 4:
        return
    half = len(after) // 2
    gain = mean(after[half:]) - mean(after[:half])
    if gain <= NORMAL_95 * _noise(after) * math.sqrt(1 / half + 1 / (len(after) - half)):
        yield Finding(
            "entropy_gone",
            NOTE,
            f"choices were settled after {place} of {len(rows)} iterations (entropy below "
            f"{SETTLED:.0%} of where it began), and the reward has not risen since",
            "weigh entropy or exploration more or for longer, or learn at a lower rate; or train "
            "for fewer iterations, if the result is good enough",
        )


def _few_problems(store: RunReader, evaluations: Mapping[str, Any]) -> Iterator[Finding]:
    results = evaluations.get(LEARNED, {})
    if "outcomes" not in results:
        return
    held_out, trained = len(results["outcomes"]), results.get("train_problems")
    if trained is not None:
        # A trainer may learn on another split than `train`, or from a log, without an episode.
        known = max(trained, store.count_problems(TRAINING))
        trained = known if results.get("trained_on") else None
    for count, what in ((trained, "to train on"), (held_out, "to be judged on")):
        if count is not None and count < FEW:
            yield Finding(
                "few_problems",
                NOTE,
                f"there were only {count} problems {what}",
                "add problems; with so few, what was learned may be luck, whatever the figures say",
            )


def _no_baseline(store: RunReader, evaluations: Mapping[str, Any]) -> Iterator[Finding]:
    """Find that what was learned was judged alone, or beside the untrained team only."""
    judged = [name for name, results in evaluations.items() if "outcomes" in results]
    config = stored_config(store) or {}
    baselines = config.get("evaluation", {}).get("baselines", {})
    others = [name for name in judged if name != LEARNED]
    if LEARNED in judged and all(baselines.get(name) == AS_UNTRAINED for name in others):
        what = "nothing but the same team before its first episode" if others else "nothing simpler"
        yield Finding(
            "no_baseline",
            NOTE,
            f"{what} was judged beside what was learned",
            "name rules to compare with, e.g. `evaluation: {baselines: [untrained, random, "
            "best-sequence]}`; for those that need no training, `orchestrion eval RUN -o "
            "evaluation.baselines=[untrained,random]` does it afterwards",
        )


# ------------------------------------------------------------------ reward over training


def _rise(rewards: Sequence[float], reached: float | None = None) -> tuple[float, float] | None:
    """Return how far the reward rose since the beginning, and the error of that at 95 %.

    `rewards` are the means of iterations. Where the held-out problems were worth more (`reached`)
    than the last episodes of training, which may still have explored, they count. None if there
    were too few iterations to tell.
    """
    count = len(rewards)
    if count < 8:
        return None
    width = max(2, count // 10)
    end = mean(rewards[-width:])
    error = NORMAL_95 * _noise(rewards) * math.sqrt(2 / width)
    return max(end, end if reached is None else reached) - mean(rewards[:width]), error


def _still_rising(iterations: Sequence[Iteration]) -> Iterator[Finding]:
    """Find a rise in the last third, and say how many more episodes would help."""
    rewards = _rewards(iterations)
    third = len(rewards) // 3
    rise = _rise(rewards)
    if third < 5 or rise is None:
        return
    now, error = _slope(rewards[-third:])
    if (now - error) * third <= max(0.0, RISE * rise[0]):
        return
    # Taken for an exponential approach: each third adds `ratio` of what the one before added.
    before, _ = _slope(rewards[-2 * third : -third])
    more = float(sum(row.episodes for row in iterations if row.reward is not None))
    if 0 < now < 0.9 * before:  # else nothing tells where it ends
        thirds = math.log(0.1) / math.log(max(now / before, 0.1))
        more *= third / len(rewards) * thirds
    low, high = (now - error) * third, (now + error) * third
    yield Finding(
        "still_improving",
        NOTE,
        f"the reward was still rising: by {now * third:.3g} [{low:.3g}, {high:.3g}] over the "
        "last third of training",
        f"train for about {_rounded(more)} more episodes",
    )


def _rewards(iterations: Sequence[Iteration]) -> list[float]:
    return [iteration.reward for iteration in iterations if iteration.reward is not None]


def _not_ahead(
    store: RunReader, evaluations: Mapping[str, Any], rewards: Sequence[float]
) -> Iterator[Finding]:
    """Find baselines that are not behind, and training that did not raise the reward."""
    judged = {
        name: results["outcomes"] for name, results in evaluations.items() if "outcomes" in results
    }
    learned = judged.pop(LEARNED, None)
    reached = None
    if learned is not None:
        held_out = [row["reward"] for row in learned.values() if row["reward"] is not None]
        reached = mean(held_out) if held_out else None
        ahead = {name: paired(learned, rows, "reward") for name, rows in judged.items()}
        verdict, config = Verdict.of(ahead), stored_config(store) or {}
        if verdict.behind:
            best = min(verdict.behind, key=lambda name: ahead[name].mean)
            yield Finding(
                "behind_baseline",
                WARNING,
                f"what was learned is worse than {enumerated(verdict.behind)}, by an interval "
                "without 0",
                f"use {best} instead{_lines(config, best)}, or train for longer or explore more",
                verdict.behind,
            )
        level = [name for name in verdict.level_with if not _is_same_kind(config, name)]
        same = tuple(name for name in level if judged[name] == learned)
        if same:
            yield Finding(
                "same_as_baseline",
                NOTE,
                f"what was learned came to the same as {enumerated(same)} on every problem",
                f"take the simpler one{_lines(config, same[0])}, or let the policy see more of the "
                "problems",
                same,
            )
        if unequal := tuple(name for name in level if name not in same):
            best = min(unequal, key=lambda name: ahead[name].mean)
            yield Finding(
                "not_ahead",
                NOTE,
                f"what was learned is not shown to be ahead of {enumerated(unequal)}",
                "train for longer, judge on more problems, or let the policy see more of a problem "
                f"(its encoders); else take the simpler one{_lines(config, best)}",
                unequal,
            )
    rise = _rise(rewards, reached)
    if rise is not None and rise[0] <= rise[1]:
        worse = rise[0] < -rise[1]
        what = "the reward fell" if worse else "it is not shown that the reward rose"
        yield Finding(
            "no_rise",
            WARNING if worse else NOTE,
            f"{what} in training: {rise[0]:+.3g} (+-{rise[1]:.2g}) from its beginning to its end",
            "look at the reward and at what the policy is shown: is there something to learn from? "
            "Else explore more, or learn at another rate",
        )


def _baseline(config: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return which policy and trainer a baseline uses; none for the untrained team."""
    baseline = config.get("evaluation", {}).get("baselines", {}).get(name)
    return _uses(baseline) if isinstance(baseline, Mapping) else {}


def _is_same_kind(config: Mapping[str, Any], name: str) -> bool:
    """Return whether a baseline has the policy and the trainer of the run itself."""
    uses = _baseline(config, name)
    return bool(uses) and uses == _uses(config)


def _lines(config: Mapping[str, Any], name: str) -> str:
    """Return in brackets what a config says to use a baseline, if it was named by a word."""
    uses = _baseline(config, name)
    if uses.get("trainer") != name:
        return ""
    return " (" + ", ".join(f"`{part}: {{use: {use}}}`" for part, use in uses.items()) + ")"


def _uses(part: Mapping[str, Any]) -> dict[str, str]:
    """Return which policy and trainer a config or a baseline names; none for several stages."""
    chosen = {key: part[key] for key in ("policy", "trainer") if isinstance(part.get(key), Mapping)}
    return {key: value["use"] for key, value in chosen.items()}


def _noise(values: Sequence[float]) -> float:
    """Return the standard deviation around a slow trend, from successive differences.

    Von Neumann et al. 1941: half the mean square of the differences.
    """
    if len(values) < 2:
        return 0.0
    steps = [b - a for a, b in pairwise(values)]
    return math.sqrt(mean([step * step for step in steps]) / 2)


def _slope(values: Sequence[float]) -> tuple[float, float]:
    """Return the slope of a least-squares line a step, and the error of that at 95 %."""
    count, middle = len(values), (len(values) - 1) / 2
    level = mean(values)
    spread = sum((i - middle) ** 2 for i in range(count))
    slope = sum((i - middle) * (value - level) for i, value in enumerate(values)) / spread
    residuals = [value - level - slope * (i - middle) for i, value in enumerate(values)]
    variance = sum(residual**2 for residual in residuals) / (count - 2)
    return slope, NORMAL_95 * math.sqrt(variance / spread)


def _rounded(count: float) -> int:
    """Round to two digits: an estimate is no more exact."""
    unit: int = 10 ** max(0, math.floor(math.log10(max(count, 1))) - 1)
    return max(1, round(count / unit) * unit)
