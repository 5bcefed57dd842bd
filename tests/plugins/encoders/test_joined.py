"""Several encoders as one for a policy, and texts that a model embeds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import define, field
from orchestrion_encoders import Allowing, Counts, Hints, Joined, Reading, refuse_other_team
from orchestrion_encoders.embedding import Embedding
from orchestrion_encoders.history import History
from orchestrion_encoders.members import Members
from orchestrion_encoders.text import Text

from orchestrion import (
    JSON,
    Activation,
    Answer,
    Calls,
    CheckpointError,
    Key,
    Model,
    Observation,
    OpenContext,
    RunError,
    Usage,
    UsageError,
)
from tests.plugins.encoders.test_encoding import opened
from tests.plugins.values.support import situation

CHOICES = (Activation("a"), Activation("b", "x"), None)
SILENT = situation(features=[1])
HINTING = situation(features=[1], hints={"a": (0.5,)})


def test_hints_that_a_task_gives_at_times_keep_the_width_they_had_at_first() -> None:
    joined = Joined([Counts(), Hints()], "policy p")
    assert joined.encode([HINTING], CHOICES).choices.shape == (1, 3, 2)
    assert joined.shapes == [[11, 0, 0], [0, 2, 0]]
    silent = joined.encode([SILENT], CHOICES)
    assert silent.choices.shape == (1, 3, 2)
    assert not silent.choices.any()
    assert silent.prior is not None
    assert silent.prior.tolist() == [[0, 0, 0]]
    deaf = Joined([Counts(), Hints()], "policy p")
    deaf.encode([SILENT], CHOICES)
    later = deaf.encode([HINTING], CHOICES)
    assert (later.choices.shape, later.prior) == ((1, 3, 0), None)
    assert later.context.shape == (1, 11)


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        (
            situation(features=[1, 2], hints={"a": (0.5,)}),
            "policy p: its encoder Counts gives 12 numbers of a situation and 0 of a choice, "
            "before it gave 11 numbers of a situation and 0 of a choice",
        ),
        (situation(features=[1], hints={"a": (0.5, 1.0)}), "encoder Hints gives 0 numbers"),
        (situation(features=[1], hints={"a": (np.inf,)}), "policy p: .* not finite numbers"),
    ],
)
def test_a_task_that_shows_something_else_is_refused(shown: Any, message: str) -> None:
    joined = Joined([Counts(), Hints()], "policy p")
    joined.encode([HINTING], CHOICES)
    with pytest.raises(RunError, match=message):
        joined.encode([shown], CHOICES)


@pytest.mark.parametrize(
    ("encoders", "observes", "shared", "free"),
    [
        ([Hints()], True, False, False),
        ([Hints(), Counts(history=False)], True, False, False),
        ([Hints(), Counts()], False, False, False),
        ([opened(Members(history=False))], True, True, True),
        ([opened(Members()), Counts(history=False)], False, True, True),
        ([opened(Members()), Counts()], False, True, False),
    ],
)
def test_what_joined_encoders_depend_on(
    encoders: list[Any], observes: bool, shared: bool, free: bool
) -> None:
    joined = Joined(encoders, "policy")
    assert (joined.observes, joined.shared, joined.free) == (observes, shared, free)


def test_texts_are_left_out_of_what_may_come_again() -> None:
    joined = Joined([Text(problem=2, turns=0), Counts(history=False)], "policy")
    context = joined.encode([SILENT], CHOICES).context
    assert joined.familiar(context).tolist() == [[1, 0]]
    plain = Joined([Counts()], "policy")
    context = plain.encode([SILENT], CHOICES).context
    assert plain.familiar(context) is context


def test_the_network_that_reads_turns_is_that_of_the_encoder_that_gives_them() -> None:
    torch = pytest.importorskip("torch")
    reading = Joined([Counts(), opened(History(width=4))], "policy")  # type: ignore[abstract]
    reading.encode([situation("a")], CHOICES)
    network, width = reading.reader(torch.Generator())
    assert network is not None
    assert width == 4
    plain = Joined([Counts()], "policy")
    plain.encode([situation("a")], CHOICES)
    assert plain.reader(torch.Generator()) == (None, 0)
    assert reading.settings == [repr(Counts()), repr(History(width=4))]  # type: ignore[abstract]


def test_what_was_learned_for_another_team_is_refused_by_name() -> None:
    refuse_other_team("policy", ["a", "b"], ["b", "a"], "")
    with pytest.raises(
        CheckpointError,
        match=r"^policy: .*; not in this team: b, c; new in this team: d\. .* anew, please$",
    ):
        refuse_other_team("policy", ["a", "b", "c"], ["a", "d"], ", please")


@pytest.mark.parametrize(
    ("blocked", "allowed"),
    [([], [1, 1, 1]), (["a"], [0, 1, 1]), (["b"], [1, 0, 1]), (["b:x", "stop"], [1, 0, 1])],
)
def test_tasks_block_agents_and_options_but_not_stopping(
    blocked: list[str], allowed: list[int]
) -> None:
    allowing = Allowing(CHOICES, ["a", "b:x", "stop"])
    assert allowing(Observation(blocked=frozenset(blocked))).tolist() == allowed
    assert allowing(None).all()


# --------------------------------------------------------------------------------- embedding


@define
class Embedder(Model):
    """Embeds a text as two numbers; the second is its length."""

    asked: list[str] = field(factory=list)
    width: int = 2
    scale: float = 1.0

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        raise NotImplementedError

    async def embed(self, texts: Sequence[str], calls: Calls) -> Answer:
        self.asked += texts
        vectors = [[3.0, *[float(len(text))] * (self.width - 1)] for text in texts]
        return Answer({"vectors": [[x * self.scale for x in vector] for vector in vectors]})

    def embedding_ceiling(self, tokens: int) -> Usage:
        return Usage(1, tokens)


CALLS: Any = None


def embedding(model: Model, **settings: bool) -> Embedding:
    return Embedding(model, **settings)  # type: ignore[abstract]


def test_texts_are_shown_as_vectors_of_length_1() -> None:
    model = Embedder()
    encoder = opened(embedding(model, latest=True))
    with pytest.raises(RunError, match="'two words' was not embedded before"):
        encoder.encode([situation()], CHOICES)
    acted = situation("a")
    for shown in (situation(), acted):
        asyncio.run(encoder.prepare(shown, CALLS))
    assert model.asked == ["two words", "(nothing)", "two words", "by a"]
    encoded = encoder.encode([acted], CHOICES)
    norms = np.hypot(3, [9, 4])
    expected = [3 / norms[0], 9 / norms[0], 3 / norms[1], 4 / norms[1]]
    assert encoded.context.tolist() == [pytest.approx(expected)]
    assert encoded.choices.shape == (1, 3, 0)
    model.width = 3
    with pytest.raises(RunError, match="a vector of 3 numbers after one of 2"):
        asyncio.run(encoder.prepare(acted, CALLS))


@pytest.mark.parametrize("scale", [1e200, 1e-200, 0.0])
def test_vectors_of_very_large_or_small_numbers_have_length_1_too(scale: float) -> None:
    encoder = opened(embedding(Embedder(scale=scale)))
    asyncio.run(encoder.prepare(situation(), CALLS))
    [vector] = encoder.encode([situation()], CHOICES).context
    assert np.hypot(*vector) == pytest.approx(1.0 if scale else 0.0)


def test_vectors_of_another_width_than_those_of_training_are_told_of_the_model() -> None:
    encoder = opened(embedding(Embedder(width=3)))
    asyncio.run(encoder.prepare(situation(), CALLS))
    joined = Joined([encoder], "policy p")
    joined.shapes = [[2, 0, 0]]
    with pytest.raises(RunError, match=r"encoder embedding gives 3 .* gave 2 .*; its model must"):
        joined.encode([situation()], CHOICES)


def test_a_policy_prepares_what_its_encoders_need() -> None:
    class Policy(Reading):
        def decide(self, situations: Any, keys: Any) -> Any:
            raise NotImplementedError

    model, policy = Embedder(), Policy()
    policy.encoders = [Counts(), opened(embedding(model)), opened(embedding(model))]
    assert policy.prepares
    assert policy.ceiling(5) == Usage(4, 20)
    asyncio.run(policy.prepare(situation(), CALLS))
    assert model.asked == ["two words"] * 2
    plain = Policy()
    plain.encoders = [Counts()]
    assert not plain.prepares
    assert plain.ceiling(5) == Usage()


def test_a_model_that_cannot_embed_and_an_encoder_of_nothing_are_refused() -> None:
    class Mute(Model):
        async def complete(self, request: Any, key: Any, calls: Any) -> Answer:
            raise NotImplementedError

    async def enter() -> None:
        async with embedding(Mute()).open(
            OpenContext("encoders.e", Key(0), names={"model": ("mute",)})
        ):
            raise AssertionError

    with pytest.raises(UsageError, match=r"encoders\.e: the model mute cannot embed texts"):
        asyncio.run(enter())
    with pytest.raises(ValueError, match="give problem: true"):
        embedding(Embedder(), problem=False)
    with pytest.raises(ValueError, match="text: shows nothing with"):
        Text(problem=0, turns=0)
    with pytest.raises(ValueError, match="cost_unit: does nothing with `history: false`"):
        Counts(history=False, cost_unit=2.0)
