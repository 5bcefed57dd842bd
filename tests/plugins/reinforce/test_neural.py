"""The policy: what it sees, what it decides, that a batch changes nothing, what it loads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from orchestrion_encoders.counts import Counts
from orchestrion_encoders.history import History
from orchestrion_encoders.members import Members
from orchestrion_encoders.text import Text
from orchestrion_reinforce.neural import Neural
from orchestrion_reinforce.neural_policy import Batch
from orchestrion_reinforce.ppo import _chosen

from orchestrion import CheckpointError, Key, Member, Observation, RunError, UsageError, replace
from tests.plugins.reinforce.support import ROSTER, policy, shake
from tests.plugins.values.support import names, situation

ALL = ["a", "b:x", "b:y", "c"]
SHARED = Neural(encoders=[Counts(history=False), Members()], hidden=[16, 16])  # type: ignore[list-item]
"""Scores choices by what they do, and nothing by its place."""
TURNS = Neural(encoders=[Counts(history=False), History(width=8)], hidden=[16])  # type: ignore[abstract]


def row(settings: Neural, *acted: str, **seen: Any) -> list[float]:
    """What the network is fed."""
    decision = policy(settings).decide([situation(*acted, **seen)], [Key(0)])[0]
    return list(decision.record.shown.context)


def keys(n: int) -> list[Key]:
    return [Key(5).child(i) for i in range(n)]


def shaken(settings: Neural | None = None, **more: Any) -> Any:
    """A policy with large random weights: its distributions are far from uniform."""
    runtime = policy(settings, **more)
    runtime.decide([situation(features=[0, 0])], [Key(0)])
    shake(runtime)
    return runtime


# ------------------------------------------------------------------------------ encoding


def test_the_observation_is_fed_as_it_is_with_the_progress() -> None:
    only = Neural(history=False)
    assert row(only, features=[0.5, -2], progress=0.25) == [0.5, -2, 0.25]
    assert row(only, features=[0.5, -2]) == [0.5, -2, 0]


def test_a_task_that_shows_another_number_of_features_is_refused() -> None:
    runtime = policy()
    runtime.decide([situation(features=[1, 2])], [Key(0)])
    with pytest.raises(
        RunError,
        match="Counts gives 15 numbers of a situation and 0 of a choice, before it gave 14",
    ):
        runtime.decide([situation(features=[1, 2, 3])], [Key(0)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_features_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(RunError, match="not finite"):
        policy().decide([situation(features=[bad])], [Key(0)])


# ------------------------------------------------------------------------------ deciding


def test_choices_are_agents_with_their_options_and_stopping_if_set() -> None:
    assert len(policy().choices) == 4
    assert policy(Neural(stop=True)).choices[-1] is None
    runtime = policy(Neural(stop=True))
    drawn = runtime.decide([situation()] * 200, keys(200))
    assert set(names(drawn)) == {*ALL, "stop"}
    assert all(decision.stop != bool(decision.start) for decision in drawn)


def test_choices_come_as_often_as_their_probability_says() -> None:
    runtime = shaken()
    seen = [situation("a", features=[1, -1])]
    actions = [decision.record.action for decision in runtime.decide(seen * 4000, keys(4000))]
    share = np.bincount(actions, minlength=4) / 4000
    p = runtime.probabilities(seen)[0]
    assert p.max() > 0.35
    assert abs(share - p).max() < 4 * np.sqrt(0.25 / 4000)


def test_the_log_probability_is_that_of_what_was_chosen() -> None:
    runtime = shaken()
    seen = [situation(*("a" * n), features=[n, 1]) for n in range(6)]
    p = runtime.probabilities(seen)
    for i, decision in enumerate(runtime.decide(seen, keys(6))):
        assert decision.logp == pytest.approx(np.log(p[i, decision.record.action]))
        assert list((decision.chances or {}).values()) == [round(one, 6) for one in p[i].tolist()]


@pytest.mark.parametrize(
    ("blocked", "left"),
    [(["a"], {"b:x", "b:y", "c"}), (["b"], {"a", "c"}), (["b:x", "c"], {"a", "b:y"})],
)
def test_what_the_task_blocks_is_never_chosen(blocked: list[str], left: set[str]) -> None:
    runtime = policy()
    seen = situation(blocked=blocked)
    assert set(names(runtime.decide([seen] * 80, keys(80)))) == left
    assert runtime.probabilities([seen])[0].sum() == pytest.approx(1)


def test_with_everything_blocked_it_stops_and_there_is_nothing_to_learn() -> None:
    runtime = policy()
    stuck, free = situation(blocked=["a", "b", "c"]), situation()
    decisions = runtime.decide([free, stuck], keys(2))
    assert [decision.stop for decision in decisions] == [False, True]
    assert decisions[1].record is None
    assert runtime.probabilities([stuck])[0].tolist() == [0, 0, 0, 0]
    able = policy(Neural(stop=True))
    assert able.decide([stuck], keys(1))[0].record.action == 4


def test_greedy_takes_the_likeliest_in_use_and_samples_in_training() -> None:
    runtime = shaken(Neural(greedy=True))
    used = [situation(features=[1, 1], training=False)] * 50
    likeliest = runtime.probabilities(used)[0].argmax()
    assert {decision.record.action for decision in runtime.decide(used, keys(50))} == {likeliest}
    trained = [situation(features=[1, 1])] * 50
    assert len({decision.record.action for decision in runtime.decide(trained, keys(50))}) > 1


def test_a_team_of_nobody_is_refused() -> None:
    with pytest.raises(UsageError, match="no agent to choose"):
        policy(roster=())


# ------------------------------------------------------- a batch's make-up changes nothing


def many(n: int) -> list[Any]:
    draws = np.random.Generator(np.random.PCG64(8)).standard_normal((n, 2))
    return [
        situation(*ALL[: i % 4], features=draws[i], blocked=["c"] if i % 3 == 0 else [])
        for i in range(n)
    ]


@pytest.mark.parametrize("settings", [Neural(), Neural(greedy=True), SHARED, TURNS], ids=str)
@pytest.mark.parametrize("size", [1, 3, 64])
def test_decisions_do_not_depend_on_the_size_or_order_of_a_batch(
    settings: Neural, size: int
) -> None:
    runtime, seen, named = shaken(settings), many(640), keys(640)
    whole = runtime.decide(seen, named)
    order = np.random.Generator(np.random.PCG64(size)).permutation(640).tolist()
    for start in range(0, 640, size):
        part = order[start : start + size]
        again = runtime.decide([seen[i] for i in part], [named[i] for i in part])
        for i, decision in zip(part, again, strict=True):
            assert decision == whole[i]  # what is started, stop, log-probability: to the last bit
            assert decision.record.shown.content == whole[i].record.shown.content


# ------------------------------------------------------------------------------ learning


def chosen(runtime: Any, batch: Batch) -> list[float]:
    with torch.no_grad():
        logp: list[float] = _chosen(runtime, batch)[0].tolist()
    return logp


def test_equal_situations_are_kept_once_and_every_decision_knows_its_own() -> None:
    runtime = shaken()
    twice = [shown for shown in many(20) for _ in range(2)]
    records = [decision.record for decision in runtime.decide(twice, keys(40))]
    batch = runtime.collect(records)
    assert len(batch.inputs.context) <= 20
    assert len(batch.rows) == len(batch.actions) == 40
    some = torch.tensor([7, 30])
    for part, places in ((batch, range(40)), (batch.take(some), [7, 30])):
        contexts = part.inputs.context[part.rows].tolist()
        assert contexts == [pytest.approx(records[j].shown.context) for j in places]
    logp = chosen(runtime, batch)
    assert chosen(runtime, batch.take(some)) == pytest.approx([logp[7], logp[30]])


def test_new_weights_give_new_decisions_on_the_same_observation() -> None:
    runtime = policy(Neural(history=False))
    seen = [situation()]
    before = runtime.decide(seen, keys(1))[0]
    assert runtime.decide(seen, keys(1))[0] is before
    shake(runtime)
    assert runtime.decide(seen, keys(1))[0].logp != before.logp


@pytest.mark.parametrize(
    "choice", [Neural(), Neural(activation="relu", stop=True), SHARED, TURNS], ids=str
)
def test_training_computes_what_deciding_did(choice: Neural) -> None:
    """Tensors in single precision and arrays in double precision run the same network."""
    runtime = shaken(choice)
    decisions = runtime.decide(many(40), keys(40))
    batch = runtime.collect([decision.record for decision in decisions])
    # Deciding rounds logits to 1/16384.
    assert chosen(runtime, batch) == pytest.approx(
        [decision.logp for decision in decisions], abs=3e-4
    )


@pytest.mark.parametrize("choice", [Neural(hidden=[6]), SHARED, TURNS], ids=str)
def test_every_weight_has_a_gradient_and_it_is_that_of_finite_differences(choice: Neural) -> None:
    runtime = shaken(choice)
    batch = runtime.collect([d.record for d in runtime.decide(many(40), keys(40))])
    exact = runtime.network.double()
    inputs = type(batch.inputs)(
        *(p.double() if p is not None and p.is_floating_point() else p for p in batch.inputs)
    )

    def value() -> torch.Tensor:
        return exact(inputs).log_softmax(1)[batch.rows, batch.actions].sum()  # type: ignore[no-any-return]

    value().backward()  # type: ignore[no-untyped-call]
    for parameter in exact.parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        place = int(gradient.abs().argmax())
        assert gradient[place] != 0
        kept = float(flat[place])
        values = []
        for change in (1e-6, -1e-6):
            flat[place] = kept + change
            values.append(float(value().detach()))
        flat[place] = kept
        slope = (values[0] - values[1]) / 2e-6
        assert float(gradient[place]) == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_normalised_entropy_is_1_for_uniform_and_0_without_a_choice() -> None:
    runtime = policy()
    runtime.decide([situation()], [Key(0)])
    shake(runtime, 0.0)
    seen = [situation(), situation(blocked=["a"]), situation(blocked=["a", "b"])]
    batch = runtime.collect([decision.record for decision in runtime.decide(seen, keys(3))])
    entropy = _chosen(runtime, batch)[1]  # type: ignore[arg-type]
    assert entropy.tolist() == pytest.approx([1, 1, 0], abs=1e-3)
    entropy[2].backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is None or not p.grad.any() for p in runtime.network.parameters())  # type: ignore[union-attr]


# ------------------------------------------------------------------------------ saving


@pytest.mark.parametrize(
    "choice", [Neural(), Neural(stop=True, hidden=[5]), SHARED, TURNS], ids=str
)
def test_it_decides_alike_after_saving_and_loading(choice: Neural) -> None:
    first, second = shaken(choice), policy(choice, seed=99)
    second.load(first.save())
    assert second.save() == first.save()
    assert second.decide(many(50), keys(50)) == first.decide(many(50), keys(50))


def test_it_saves_and_loads_before_it_has_seen_anything() -> None:
    first, second = policy(), policy(seed=99)
    second.load(first.save())
    assert second.save() == first.save()


@pytest.mark.parametrize("choice", [Neural(), Neural(stop=True)])
def test_loading_with_agents_in_another_order_keeps_their_weights(choice: Neural) -> None:
    first = shaken(choice)
    second = policy(choice, roster=ROSTER[::-1])
    second.load(first.save())
    seen = many(60)
    assert names(second.decide(seen, keys(60))) == names(first.decide(seen, keys(60)))
    assert second.choices == first.choices
    assert (second.probabilities(seen) == first.probabilities(seen)).all()
    assert second.save() == first.save()


@pytest.mark.parametrize(
    ("roster", "message"),
    [
        (ROSTER[:2], "not in this team: c"),
        ((*ROSTER, Member("d")), "new in this team: d"),
        ((*ROSTER[:2], Member("e")), "not in this team: c; new in this team: e"),
        ((ROSTER[0], Member("b", ("x",)), ROSTER[2]), "not in this team: b:y"),
    ],
)
def test_loading_with_other_agents_is_refused_by_name(roster: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        policy(roster=roster).load(shaken().save())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Neural(hidden=[8]), r"saved with hidden = \[64, 64\], here it is \[8\]"),
        (Neural(history=False), "saved with encoders = .*history=True.*history=False"),
        (Neural(encoders=[Text()]), "saved with encoders = .*Counts.*Text"),
        (Neural(outlook=0.0), "saved with outlook = 8.0, here it is 0.0"),
        (Neural(stop=True), r"new in this team: \(stop\)"),
    ],
)
def test_loading_with_other_settings_is_refused(other: Neural, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        policy(other).load(shaken().save())


def test_loading_for_a_task_with_other_features_is_refused() -> None:
    other = policy()
    other.decide([situation(features=[1])], [Key(0)])
    with pytest.raises(CheckpointError, match=r"saved with shapes = .*14, 0.*here it is .*13, 0"):
        other.load(shaken().save())


def test_a_damaged_checkpoint_is_refused() -> None:
    saved = shaken().save()
    with pytest.raises(CheckpointError, match="saved with encoders = None"):
        policy().load(replace(saved, data=None))
    short = replace(saved.arrays["weights.bias0"], shape=(63,), data=b"\0" * 4 * 63)
    with pytest.raises(CheckpointError, match=r"'weights\.bias0' is F32 \(63,\)"):
        policy().load(replace(saved, arrays={**saved.arrays, "weights.bias0": short}))
    arrays = {k: v for k, v in saved.arrays.items() if k != "weights.body1"}
    with pytest.raises(CheckpointError, match=r"no array 'weights\.body1'"):
        policy().load(replace(saved, arrays=arrays))


# ------------------------------------------------------------------------------ other teams


OTHERS = (
    Member("new", role="does something else"),
    Member("C", role="checks"),
    Member("A", role="adds"),
    Member("B", ("y", "x")),
)


def test_by_descriptions_a_policy_applies_to_another_team() -> None:
    """Renamed, in another order, and with one more: equal agents keep their scores."""
    first, second = shaken(SHARED), policy(SHARED, roster=OTHERS)
    second.load(first.save())
    renamed = {"a": "A", "b": "B", "c": "C"}
    for acted in ((), ("a",), ("a", "b:x")):
        there = [":".join([renamed[name[0]], *name.split(":")[1:]]) for name in acted]
        p = first.probabilities([situation(*acted, features=[1, -1])])[0]
        q = second.probabilities([situation(*there, features=[1, -1])])[0]
        # choices there: new, C, A, B:y, B:x
        assert q[[2, 4, 3, 1]] / q[1:].sum() == pytest.approx(p, rel=1e-3)
    assert second.save().arrays == first.save().arrays


def test_a_policy_that_also_goes_by_places_is_refused_for_another_team() -> None:
    counting = Neural(encoders=[Counts(), Members()], hidden=[16])  # type: ignore[list-item]
    with pytest.raises(CheckpointError, match=r"another team.*policy with the encoder members"):
        policy(counting, roster=OTHERS).load(shaken(counting).save())


def test_short_hands_beside_encoders_are_refused() -> None:
    with pytest.raises(ValueError, match="have no effect beside encoders"):
        Neural(encoders=[Counts()], history=False)


def test_what_was_learned_holds_for_problems_it_has_not_seen() -> None:
    """Features, not names of problems, decide (a hash of the problem's text would not do)."""
    runtime = shaken()
    first = situation("a", features=[1, -1])
    other = replace(first, problem=replace(first.problem, id="new", text="other words"))
    assert (runtime.probabilities([first]) == runtime.probabilities([other])).all()


def test_an_observation_may_be_missing_and_so_may_all_situations() -> None:
    nothing = replace(situation(), observation=None)
    shown = [nothing, replace(nothing, observation=Observation())]
    for seen in ([], shown[:1], shown[1:]):
        assert policy().probabilities(seen).shape == (len(seen), 4)
        assert len(policy().decide(seen, keys(len(seen)))) == len(seen)
