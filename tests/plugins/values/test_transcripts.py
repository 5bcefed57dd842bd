"""Plans over transcripts: words that tell, estimates, draws, plans, and when they beat values."""

from __future__ import annotations

import asyncio
import json
import random
import tracemalloc
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from msgspec.structs import replace
from orchestrion_values.estimates import FLAT, Estimates
from orchestrion_values.fitted_learner import PLAN, VALUES, FittedLearner, FittedModel
from orchestrion_values.fitted_q import FittedQ
from orchestrion_values.planned import TranscriptModel, played_of
from orchestrion_values.policy import RecordedChoice
from orchestrion_values.replies import FAILED, Cue, signature, telling, words_of
from orchestrion_values.transcripts import (
    DONE,
    LATE,
    OVER,
    Played,
    Tables,
    bits_of,
    plan,
    set_of,
)

from orchestrion import (
    CheckpointError,
    Episode,
    Job,
    Key,
    OpenContext,
    Output,
    Problem,
    Saved,
    Turn,
    gather,
)
from orchestrion.config import from_data
from orchestrion.runs import RunReader, as_data, train
from tests.plugins.values.support import ROSTER, episode, names, policy, situation

AGENTS = ("writer", "checker", "")
STOP = 2

# ------------------------------------------------------------------------------ words


def test_a_long_reply_is_read_at_its_ends_and_a_failed_turn_not_at_all() -> None:
    text = "PASS. " + " ".join(f"w{i}" for i in range(100)) + " -- Approved!"
    read = words_of(Turn(0, "checker", output=Output(text))).split()
    assert (read[0], read[-1], len(read)) == ("pass", "approved", 80)
    assert words_of(Turn(0, "checker", output=Output("PASS"), status="failed")) == FAILED
    data = {
        "Verdict": "Not yet",
        "sure": True,
        "points": 7,
        "seconds": 12,
        "share": 0.3,
        "list": [1],
        "": "",
    }
    assert words_of(Turn(0, "checker", output=Output("", data))) == (
        "verdict_not_yet sure_true points_7"
    )
    cues = [Cue({"fail": 1.0}, 0.5), Cue({"pass": 0.5, "w0": -0.2}, 0.2)]
    assert signature("pass w0", cues) == "01"


class Verdict(Enum):
    PASS = "pass"


def test_data_is_read_as_it_is_stored() -> None:
    """Or words that were learned from other runs would not be those of replies in use."""
    live = Turn(0, "checker", output=Output("", {"verdict": Verdict.PASS}))
    stored = Turn(0, "checker", output=Output("", as_data({"verdict": Verdict.PASS})))
    assert words_of(live) == words_of(stored) == "verdict_pass"


def test_the_word_that_comes_again_and_explains_outcomes_is_a_cue() -> None:
    luck = random.Random(1)
    good = [luck.random() < 0.5 for _ in range(60)]
    replies = [f"the answer is {'right' if g else f'wrong w{n}'}" for n, g in enumerate(good)]
    problems = [f"p{n % 20}" for n in range(60)]
    outcomes = np.array([g + 0.1 * luck.random() for g in good])
    outcomes[::3] = np.nan  # episodes that went on
    cues, signatures = telling(replies, problems, outcomes)
    assert [cue.words for cue in cues] == [["right"]]
    assert signatures == ["1" if g else "0" for g in good]


GOOD = ["that will do", "nothing to add here", "fine by me", "ready to be sent"]
BAD = ["it falls short", "have another go", "this needs work", "sadly off the mark"]


def sentences(luck: random.Random, good: bool) -> str:
    chatter = [f"{luck.choice('abcdef')}{i}" for i in range(8)]
    return " ".join([*chatter[:4], luck.choice(GOOD if good else BAD), *chatter[4:]])


def test_a_verdict_that_is_said_in_many_ways_is_a_score_of_all_words() -> None:
    luck = random.Random(3)
    good = [luck.random() < 0.5 for _ in range(160)]
    replies = [sentences(luck, g) for g in good]
    outcomes = np.array([float(luck.random() < (0.9 if g else 0.1)) for g in good])
    cues, _ = telling(replies, [f"p{n % 40}" for n in range(160)], outcomes)
    assert len(cues[0].weights) > 20
    assert {word[0] for word in cues[0].words} == {"+", "-"}
    new = [luck.random() < 0.5 for _ in range(100)]
    told = [signature(sentences(luck, g), cues[:1]) == "1" for g in new]
    assert sum(t == g for t, g in zip(told, new, strict=True)) >= 90


def test_a_score_takes_part_as_other_problems_give_it() -> None:
    """Or a reply's own outcome would make it look like a clear verdict."""
    luck = random.Random(4)
    words = [f"w{i}" for i in range(60)]
    shares = []
    for _ in range(10):
        replies = [" ".join(luck.sample(words, 20)) for _ in range(80)]
        outcomes = np.array([float(luck.random() < 0.5) for _ in replies])
        cues, signatures = telling(replies, [f"p{n}" for n in range(80)], outcomes)
        first = np.array([pattern[:1] == "1" for pattern in signatures])
        if cues and len(cues[0].weights) > 1:
            shares.append(abs(outcomes[first].mean() - outcomes[~first].mean()))
    assert not shares or np.mean(shares) < 0.5


def test_words_of_a_single_problem_and_of_chance_are_no_verdicts() -> None:
    luck = random.Random(2)
    problems, vocabulary = [f"p{n % 20}" for n in range(60)], [f"w{i}" for i in range(12)]
    kept = 0
    for _ in range(40):
        outcomes = np.array([luck.random() for _ in range(60)])
        assert telling([f"a{n % 20}" for n in range(60)], problems, outcomes)[0] == []
        chatter = [" ".join(luck.sample(vocabulary, 6)) for _ in range(60)]
        kept += bool(telling(chatter, problems, outcomes)[0])
    assert kept < 40


def test_replies_without_an_outcome_have_no_many_worded_cue() -> None:
    luck = random.Random(5)
    replies = [sentences(luck, luck.random() < 0.5) for _ in range(50)]
    nothing = np.full(50, np.nan)
    assert telling(replies, [f"p{n}" for n in range(50)], nothing) == ([], [""] * 50)
    assert telling(["x", "y"], ["p", "p"], np.array([1.0, 0.0])) == ([], ["", ""])


# ------------------------------------------------------------------------------ estimates


def reviewed(seed: int, count: int) -> list[Played]:
    """A writer is right half of the time, and a checker says whether; calls cost .05."""
    luck = random.Random(seed)
    result = []
    for n in range(count):
        choices, replies, right = [], [], False
        for _ in range(luck.randint(0, 5)):
            choices.append(luck.randrange(2))
            if choices[-1] == 0:
                right = luck.random() < 0.5
                replies.append(f"x{luck.randrange(999)}")
            else:
                replies.append("pass" if right else "fail")
        costs = [-0.05] * len(choices)
        outcome = float(right)
        result.append(Played(f"p{n % 12}", "", choices, replies, costs, STOP, outcome))
    return result


def test_estimates_are_those_of_a_bayesian_regression_on_shared_features() -> None:
    """By the kernel: what is expected of a state is a weighted mean of what was seen."""
    played = [p._replace(category="xy"[n % 2]) for n, p in enumerate(reviewed(1, 40))]
    estimates = Estimates(played, AGENTS)
    v = estimates.variances

    def places(p: Played) -> list[tuple[int, str]]:
        pairs = zip(p.choices, p.replies, strict=True)
        heard = [(c, signature(r, estimates.cues.get(AGENTS[c], ()))) for c, r in pairs]
        return [(3, ""), (3, ""), *heard][-2:]

    def state(p: Played) -> dict[str, Any]:
        heard, reply = places(p)
        (before, _), (last, _) = heard, reply
        kind, pair = p.category, (before, last)
        return {
            "last": last,
            "reply": reply,
            "pair": pair,
            "pair_reply": (before, reply),
            "reply_last": (heard, last),
            "turns": len(p.choices),
            "category": kind,
            "category_last": (kind, last),
            "category_reply": (kind, reply),
            "category_pair": (kind, pair),
        }

    def alike(one: Played, other: Played) -> float:
        a, b = state(one), state(other)
        total = FLAT + v["called"] * len(set(one.choices) & set(other.choices))
        total += sum(v[name] for name in a if a[name] == b[name])
        return total

    def same(one: Played, other: Played) -> float:
        again = [*one.choices[-1:]] == [*other.choices[-1:]]
        repeat = v["repeat"] * ([*one.choices] == [*other.choices])
        return (v["problem"] + v["problem_last"] * again + repeat) * (one.problem == other.problem)

    gram = np.array([[alike(a, b) + same(a, b) for b in played] for a in played])
    outcomes = np.array([p.outcome for p in played])
    weights = np.linalg.solve(gram + np.eye(len(played)), outcomes)
    tables = evolve(estimates.tables(), bounds=(-np.inf, np.inf))
    for p in played:
        expected = float(np.array([alike(p, other) for other in played]) @ weights)
        place = set_of(AGENTS, p.choices), *map(tables.heard.index, places(p))
        ended = tables.ends(STOP, tables.pays(p.category)[place], len(p.choices))
        assert ended == pytest.approx(expected, abs=1e-6)
    assert tables.costs[:2].tolist() == pytest.approx([-0.05, -0.05])


def test_what_was_never_tried_is_uncertain_and_means_stay_within_what_was_seen() -> None:
    played = [p for p in reviewed(2, 60) if 1 not in p.choices[-1:]]
    estimates = Estimates(played, AGENTS)
    draws = [estimates.tables(np.random.default_rng(n)) for n in range(60)]

    def spread(last: int) -> float:
        reply = draws[0].heard.index((last, ""))
        return float(np.std([t.ends(STOP, t.pays("")[3, 0, reply], 2) for t in draws]))

    assert spread(1) > 1.2 * spread(0)
    means = estimates.tables()
    assert means.bounds == (0.0, 1.0)
    assert 0.0 <= means.ends(STOP, 7.0, 1) <= 1.0


def test_equal_outcomes_say_nothing_about_words() -> None:
    """They deviate by what rounding adds, which is no evidence."""
    luck = random.Random(1)
    vocabulary = [f"w{i}" for i in range(30)]

    def played(n: int) -> Played:
        choices = [luck.randrange(2) for _ in range(luck.randrange(1, 4))]
        replies = [" ".join(luck.sample(vocabulary, 8)) for _ in choices]
        return Played(f"p{n % 20}", "", choices, replies, [0.0] * len(choices), STOP, 0.1)

    assert Estimates([played(n) for n in range(300)], AGENTS).cues == {}


def test_features_that_are_left_out_take_no_memory() -> None:
    played = [Played(f"p{n}", "", [n % 2], ["x"], [0.0], STOP, float(n % 3)) for n in range(2500)]
    again = [played[0]._replace(outcome=0.5)]
    tracemalloc.start()
    estimates = Estimates(played + again, AGENTS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "repeat" not in estimates.variances
    assert most < 20e6  # 2,500 numbers for each episode would be 50 MB


def test_choices_that_cost_nothing_are_charged_a_little() -> None:
    free = [p._replace(rewards=[0.0] * len(p.choices)) for p in reviewed(3, 30)]
    costs = Estimates(free, AGENTS).costs
    assert (costs[:2] < 0).all()
    assert costs[STOP] == 0


def test_sets_of_agents_are_told_apart_in_small_teams() -> None:
    assert bits_of(("a", "b", "a", "")).tolist() == [1, 2, 1, 0]
    assert set_of(("a", "b", "a", ""), [2, 1]) == 3
    many = [f"a{i}" for i in range(20)]
    assert not bits_of(many).any()
    assert Estimates([Played("p", "", [0], ["x"], [0.0], DONE, 1.0)], many).tables() is not None


# ------------------------------------------------------------------------------ plans


def value_of(
    t: Tables, ending: Sequence[bool], turns: int, past: tuple[int, ...], two: tuple[int, int]
) -> float:
    """The best value of a state, by looking ahead through all that can follow."""
    k, (_, reply) = len(t.agents), two
    pays = float(t.pays("x")[set_of(t.agents, past), *two])
    if t.heard[reply][1] == OVER:
        return float(t.ends(k, pays, len(past)))
    if len(past) == turns:
        return t.late
    values = []
    for choice in range(k):
        if ending[choice]:
            values.append(float(t.ends(choice, pays, len(past))))
            continue
        total = float(t.costs[choice])
        for after, (whose, _) in enumerate(t.heard):
            if whose == choice:
                chance = float(t.says[reply, after])
                total += chance * value_of(t, ending, turns, (*past, choice), (reply, after))
        values.append(total)
    return max(values)


@pytest.mark.parametrize("seed", range(4))
def test_plans_are_the_best_of_all_ways_to_go_on(seed: int) -> None:
    luck = np.random.default_rng(seed)
    played = [
        p._replace(category="xy"[n % 2], end=(STOP, DONE, LATE)[n % 3])
        for n, p in enumerate(reviewed(seed, 30))
        if p.choices
    ]
    tables = Estimates(played, AGENTS).tables(luck)
    ending = np.array([False, False, True])
    best = plan(tables, "x", ending, 3)
    for path in ((), (0,), (1,), (0, 1), (1, 1)):
        before, last = [3, 3, *path][-2:]
        for reply, (whose, said) in enumerate(tables.heard):
            if whose != last or said == OVER:
                continue
            ahead = best.ahead[len(path), set_of(AGENTS, path), reply, :2].max()
            heard = [i for i, (c, w) in enumerate(tables.heard) if c == before and w != OVER]
            for earlier in heard if len(path) > 1 else [0]:
                two = earlier, reply
                stop = tables.ends(STOP, best.pays[set_of(AGENTS, path), *two], len(path))
                expected = value_of(tables, ending.tolist(), 3, path, two)
                assert max(float(ahead), float(stop)) == pytest.approx(expected)


# ------------------------------------------------------------------------------ the trainer


def learner(**settings: Any) -> FittedLearner:
    return FittedLearner(FittedQ(trees=0, **settings), OpenContext("trainer", Key(1), ROSTER))


def test_episodes_are_kept_as_choices_replies_and_ends() -> None:
    runtime = policy()
    ended = episode(runtime, ["a", "c", "stop"], 0.7, turns=[-0.1, -0.2])
    done = episode(runtime, ["a", "c"], 0.7, turns=[-0.1, -0.2])
    late = replace(done, status="limit")
    a, c, stop = (runtime.names.index(name) for name in ("a", "c", "stop"))
    kept = [played_of(runtime, e) for e in gather([ended, done, late], RecordedChoice)]
    assert kept[0].rewards == pytest.approx([-0.1, -0.2])
    replies, rewards = ["by a", "by c"], kept[0].rewards
    assert kept[0] == Played("p", "", [a, c], replies, rewards, stop, kept[0].outcome)
    assert kept[0].outcome == pytest.approx(1.0)
    for other, end in zip(kept[1:], (DONE, LATE), strict=True):
        assert other._replace(rewards=rewards) == kept[0]._replace(end=end)


@pytest.mark.parametrize(("by_values", "planned"), [(0.0, True), (1.0, False)])
def test_the_better_of_values_and_plan_is_kept(by_values: float, planned: bool) -> None:
    runtime = policy()
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner()
    for acted, reward in (("a", 0.5), ("c", 0.1)):
        plain = [episode(runtime, [acted, "stop"], reward, features=[n]) for n in range(10)]
        at_work.absorb(plain, session)
    ways = (("a", 0.5), ("b:x", by_values))
    tried = [episode(runtime, [way, "stop"], total, features=[0.0]) for way, total in ways]
    at_work.absorb(tried * 5, session, [PLAN, VALUES] * 5)
    assert isinstance(runtime.model, FittedModel)
    assert (runtime.model.plan is not None) == planned
    chosen = names(runtime.decide([situation(features=[0.0])], [Key(1)]))
    assert chosen == ["a" if planned else "b:x"]


def test_where_situations_cannot_be_told_apart_the_plan_is_kept_untested() -> None:
    runtime = policy()
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner(plans=0.1)
    at_work.absorb([episode(runtime, ["a", "stop"], 0.5)] * 10, session)
    at_work.absorb([episode(runtime, ["c", "stop"], 0.1)] * 10, session)
    assert isinstance(runtime.model, FittedModel)
    assert runtime.model.plan is not None
    assert not at_work._compares
    assert at_work._leaders(8) == [PLAN] * 8


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.8])
def test_small_batches_too_follow_plans_in_their_share(share: float) -> None:
    at_work = learner(plans=share)
    leaders: list[str] = []
    for _ in range(10):
        leaders += at_work._leaders(8)
        at_work._seen += 8
    assert leaders.count(PLAN) == pytest.approx(80 * share, abs=1)


def test_the_last_third_compares_both_on_the_same_problems_and_keys() -> None:
    runtime = policy()
    at_work = learner(episodes=100)
    problems = [Problem(f"p{i}") for i in range(5)]
    jobs_of: list[list[Job]] = []

    async def rollout(jobs: list[Job]) -> list[Episode]:
        jobs_of.append(jobs)
        return [episode(runtime, ["a", "stop"], 0.5, features=[n]) for n in range(len(jobs))]

    session: Any = SimpleNamespace(
        policy=runtime, key=Key(1), problems=lambda split: problems, rollout=rollout
    )
    for i in range(len(at_work.sizes)):
        asyncio.run(at_work.iterate(i, session))
    pairs = [jobs[n : n + 2] for jobs in jobs_of for n in range(0, len(jobs) - 1, 2)]
    same = sum(a.problem == b.problem and a.key == b.key for a, b in pairs)
    counts = [len(rewards) for rewards in at_work._compared.values()]
    assert sum(counts) == pytest.approx(30, abs=8)
    assert same == min(counts)
    again = learner(episodes=100)
    again.load(at_work.save())
    assert again.save() == at_work.save()


def test_the_comparison_begins_with_an_iteration_of_its_own() -> None:
    """Or no batch would compare, and the plan would be kept untested."""
    for episodes in (10, 30, 100, 2600, 3000):
        at_work = learner(episodes=episodes)
        last = int(min(300, 0.3 * episodes))
        assert last in [sum(at_work.sizes[i:]) for i in range(len(at_work.sizes))]


def test_equal_outcomes_of_free_calls_end_at_once() -> None:
    runtime = policy()
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner()
    for way in (["stop"], ["a", "stop"], ["a", "c", "stop"]):
        at_work.absorb([episode(runtime, way, 0.1)] * 10, session)
    assert names(runtime.decide([situation()], [Key(1)])) == ["stop"]


def test_groups_of_features_are_left_out_where_there_are_too_many() -> None:
    luck = random.Random(1)
    played = [
        Played(f"p{n}", f"k{n % 40}", choices, ["x"] * 3, [-0.1] * 3, 12, luck.random())
        for n in range(400)
        for choices in [[luck.randrange(12) for _ in range(3)]]
    ]
    estimates = Estimates(played, [*(f"a{i}" for i in range(12)), ""])
    assert "category_pair" not in estimates.variances
    assert {"last", "category_last"} <= set(estimates.variances)
    pays = estimates.tables(np.random.default_rng(1)).pays("k1")
    assert np.isfinite(pays).all()


def test_plans_are_saved_with_the_policy() -> None:
    runtime, again = policy(), policy()
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner()
    at_work.absorb([episode(runtime, ["a", "stop"], 0.5)] * 10, session)
    at_work.absorb([episode(runtime, ["c", "stop"], 0.9)] * 10, session)
    again.load(runtime.save())
    assert isinstance(again.model, FittedModel)
    assert isinstance(again.model.plan, TranscriptModel)
    shown = [situation(), situation("c"), situation("b:x", category="new")]
    allowed = runtime.allowed(shown)
    assert runtime.model is not None
    before = runtime.model.scores(shown, allowed)
    assert again.model.scores(shown, allowed).tolist() == before.tolist()
    assert names(again.decide(shown[:2], [Key(1)] * 2)) == ["c", "stop"]


def test_a_plan_that_was_never_played_or_did_badly_is_not_proved() -> None:
    runtime = policy()
    places = {name: i for i, name in enumerate(runtime.names)}
    a, c, stop = places["a"], places["c"], places["stop"]

    def played(choices: list[int], outcome: float) -> Played:
        return Played("p", "", choices, ["x"] * len(choices), [-0.1] * len(choices), stop, outcome)

    good, bad = [played([c], 0.9)] * 4, [played([a], 0.2)] * 4
    agents = ["" if choice is None else choice.agent for choice in runtime.choices]
    model = TranscriptModel(Estimates(good + bad, agents).tables(), {}, runtime, 4)
    assert model.after("", [], []).argmax() == c
    assert model.proved(good + bad)
    assert not model.proved(good[:2] + bad)  # too few went like it
    assert not model.proved(bad)
    assert not model.proved([played([c], 0.0)] * 4 + bad)  # it paid less than all


@pytest.mark.parametrize(("proved", "blocks"), [(True, False), (False, False), (False, True)])
def test_the_plan_before_is_kept_until_another_is_proved(
    monkeypatch: pytest.MonkeyPatch, proved: bool, blocks: bool
) -> None:
    runtime = policy()
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner()
    at_work.absorb([episode(runtime, ["a", "stop"], 0.5)] * 10, session)
    assert isinstance(runtime.model, FittedModel)
    before = runtime.model.plan
    monkeypatch.setattr(TranscriptModel, "proved", lambda *_: proved)
    if blocks:
        assert at_work._data is not None
        at_work._data.allowed[0, 1] = False
    at_work.absorb([episode(runtime, ["c", "stop"], 0.9)] * 10, session)
    assert isinstance(runtime.model, FittedModel)
    assert (runtime.model.plan is before) == (not proved and not blocks)


def test_no_plan_calls_an_agent_when_it_is_too_late_to_stop() -> None:
    runtime = policy()
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner()
    at_work.turns = 3
    at_work.absorb([episode(runtime, ["a", "c", "stop"], 0.5)] * 10, session)
    at_work.absorb([episode(runtime, ["a", "stop"], 0.1)] * 10, session)
    assert names(runtime.decide([situation("a", "a")], [Key(1)])) == ["stop"]


def test_a_policy_that_cannot_stop_plans_as_well() -> None:
    runtime = policy(stop=False)
    session: Any = SimpleNamespace(policy=runtime)
    at_work = learner()
    for name, reward in (("a", 0.1), ("c", 0.5)):
        at_work.absorb([episode(runtime, [name, name], reward)] * 10, session)
        late = [replace(episode(runtime, [name], 0.0), status="limit")] * 10
        at_work.absorb(late, session)
    assert names(runtime.decide([situation("c")], [Key(1)])) == ["c"]


def test_what_an_earlier_version_saved_is_refused_in_words() -> None:
    with pytest.raises(CheckpointError, match="an earlier version of `fitted-q`"):
        FittedModel.load(Saved({}, {"plans": [[None, [1]]]}), policy())
    with pytest.raises(CheckpointError, match="plans that this one does not know"):
        FittedModel.load(Saved({}, {"plan": {"words": {}}}), policy())
    with pytest.raises(CheckpointError, match="an earlier version of `fitted-q`; begin anew"):
        learner().load(Saved({}, {"tried": [], "seen": 3}))


PARTS = """
import random
def writer(view):
    before = sum(turn.agent == "writer" for turn in view.turns)
    right = random.Random(f"{view.problem.text}{before}").random() < 0.5
    return f"a{view.problem.text}" if right else f"b{before}"
def checker(view):
    said = [turn.output.content for turn in view.turns if turn.agent == "writer"]
    if not said:
        return "Nothing to check."
    return "PASS" if said[-1] == f"a{view.problem.text}" else f"FAIL: not {said[-1]}"
"""


def test_it_learns_to_try_again_until_the_checker_is_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checked_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    data = {
        "seed": 1,
        "task": {
            "use": "jsonl",
            "rows": [{"question": str(n), "answer": f"a{n}"} for n in range(60)],
            "solver": ["writer"],
            "split": {"train": 0.5, "validation": 0.0, "test": 0.5},
        },
        "agents": {
            name: {"use": "function", "function": f"checked_parts:{name}", "give": "view"}
            | {"cost": 1}
            for name in ("writer", "checker")
        },
        "policy": {"use": "values"},
        "reward": {"use": "outcome-minus-cost", "cost_weight": 0.02},
        "trainer": {"use": "auto", "episodes": 100},
        "limits": {"turns": 8},
    }
    learned = train(from_data(data, directory=tmp_path), tmp_path / "run").report.contenders[0]
    assert learned.solved.mean > 0.85  # one call solves half of them
    with RunReader(tmp_path / "run") as run:
        checkpoint = run.usable().checkpoint
    assert checkpoint is not None
    text = json.dumps(checkpoint.components["policy"].data, default=str)
    assert "checker" in text
