"""What `text`, `graph`, `history` and `members` show, and that a batch changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import log, log1p
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from orchestrion_encoders import Joined
from orchestrion_encoders.graph import Graph
from orchestrion_encoders.hashing import hashed_numbers, hashed_words
from orchestrion_encoders.history import History
from orchestrion_encoders.interfaces import Encoded, join, refuse_turns
from orchestrion_encoders.members import Members
from orchestrion_encoders.text import Text

from orchestrion import (
    Activation,
    CheckpointError,
    Key,
    Member,
    OpenContext,
    Output,
    RunError,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    replace,
)
from tests.plugins.values.support import episode, policy, situation

CHOICES = (Activation("a"), Activation("b", "x"), Activation("b", "y"), None)
ROSTER = (
    Member("a", role="writes code 0.9, price 0.02"),
    Member("b", ("x", "y"), "tests things: 40%"),
    Member("c"),
)


def opened(component: Any, roster: Sequence[Member] = ROSTER) -> Any:
    """The runtime of an encoder for a team."""

    async def enter() -> Any:
        async with component.open(OpenContext("encoders.x", Key(1), tuple(roster))) as runtime:
            return runtime

    return asyncio.run(enter())


def graph(turns: Sequence[Turn]) -> list[float]:
    shown = replace(situation(), trajectory=Trajectory(turns))
    return Graph().encode([shown], CHOICES).context[0].tolist()  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------- hashing, text


def test_numbers_that_a_role_states_stand_at_their_words() -> None:
    row = hashed_numbers("code 0.9, price: 2; accuracy of 85%", 64)
    code, price, accuracy = (
        abs(hashed_numbers(f"{w} 1", 64)) for w in ("code", "price", "accuracy")
    )
    assert abs(row) == pytest.approx(0.9 * code + (1 + log(2)) * price + 0.85 * accuracy)


def test_words_are_of_length_1_and_their_order_counts_with_pairs() -> None:
    signs = {hashed_words(word, 1).item() for word in ("one", "two", "three", "four", "five")}
    assert signs == {-1.0, 1.0}, "words that share a place may cancel each other"
    assert np.linalg.norm(hashed_words("one two three", 64)) == pytest.approx(1)
    assert (hashed_words("one two", 64) == hashed_words("two one", 64)).all()
    assert (hashed_words("one two", 64, 2) != hashed_words("two one", 64, 2)).any()


def test_text_reads_the_problem_and_the_completed_turns() -> None:
    settings = Text(problem=16, turns=16)
    empty, acted = settings.encode([situation(), situation("a")], CHOICES).context
    assert (empty[:16] == acted[:16]).all()
    assert not empty[16:].any()
    assert acted[16:].any()
    assert settings.encode([situation()], CHOICES).context.shape == (1, 32)
    assert Text(problem=0, turns=4).encode([situation()], CHOICES).context.shape == (1, 4)


# ------------------------------------------------------------------------------------- graph


def test_graph_of_a_diamond() -> None:
    """a; b and c read a; d reads both."""
    turns = [
        Turn(0, "a", decision=0),
        Turn(1, "b", decision=1, reads=(0,)),
        Turn(2, "c", decision=1, reads=(0,)),
        Turn(3, "d", decision=2, reads=(1, 2)),
    ]
    log1 = np.log1p
    expected = [log1(4), 0, log1(4), log1(4), log1(3), log1(2), log1(1), log1(1), log1(1), 0, 0]
    assert graph(turns) == pytest.approx([*expected, 4 / 2])


def test_a_turn_that_may_read_everything_reads_what_finished_before_its_decision() -> None:
    side_by_side = [Turn(0, "a", decision=0), Turn(1, "b", decision=0)]
    assert graph(side_by_side)[3] == 0
    after = [*side_by_side, Turn(2, "a", decision=1)]
    assert graph(after)[3] == pytest.approx(np.log1p(2))
    failed = [replace(side_by_side[0], status="failed"), *after[1:]]
    assert graph(failed)[3] == pytest.approx(np.log1p(1))
    assert graph([]) == [0.0] * 12


def test_the_graph_does_not_depend_on_names() -> None:
    turns = [Turn(i, name, decision=i) for i, name in enumerate("abac")]
    renamed = [replace(turn, agent={"a": "z", "b": "y", "c": "x"}[turn.agent]) for turn in turns]
    assert graph(turns) == graph(renamed)


# ----------------------------------------------------------------------------------- history


def test_history_shows_the_last_turns_in_order() -> None:
    encoder = opened(History(turns=2, words=4))  # type: ignore[abstract]
    short, long = encoder.encode([situation(), situation("b:x", "a", "b:y")], CHOICES).turns
    assert short.shape == (0, 11)
    assert long[:, :4].tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert long[:, -1] == pytest.approx([log(3), log(2)])


def test_history_by_role_is_the_same_for_renamed_agents() -> None:
    roster = tuple(evolve(m, name=m.name.upper()) for m in ROSTER)
    first = opened(History(who="role")).encode([situation("a")], CHOICES).turns[0]  # type: ignore[abstract]
    second = opened(History(who="role"), roster).encode([situation("A")], CHOICES).turns[0]  # type: ignore[abstract]
    assert first[:, :32] == pytest.approx(second[:, :32])


def test_history_is_refused_where_nothing_can_read_it() -> None:
    with pytest.raises(UsageError, match="policy: the encoder history gives sequences"):
        refuse_turns([Graph(), opened(History())], "policy")  # type: ignore[abstract]
    refuse_turns([Graph()], "policy")
    sequences = opened(History()).encode([situation()], CHOICES)  # type: ignore[abstract]
    with pytest.raises(RunError, match="two encoders give sequences"):
        join([sequences, sequences])
    with pytest.raises(UsageError, match="policy: two encoders give sequences of turns"):
        Joined([opened(History()), Graph(), opened(History())], "policy")  # type: ignore[abstract]


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_what_a_reader_makes_of_turns_does_not_depend_on_padding(kind: Any) -> None:
    torch = pytest.importorskip("torch")
    network, _ = opened(History(reader=kind, width=8)).network(5, torch.Generator().manual_seed(1))  # type: ignore[abstract]
    turns = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([4, 0, 2])
    with torch.no_grad():
        padded = network(turns, lengths)
        alone = network(turns[2:, :2], lengths[2:])
        nothing = network(turns[:2, :0], torch.tensor([0, 0]))
    assert padded.shape == (3, 8)
    assert padded[2].tolist() == pytest.approx(alone[0].tolist(), abs=1e-6)
    assert not padded[1].any()
    assert not nothing.any()
    assert abs(padded[0] - padded[2]).max() > 1e-3


# ----------------------------------------------------------------------------------- members


def test_members_go_by_roles_and_options_and_not_by_names_or_places() -> None:
    settings = Members(history=False)
    first = opened(settings).encode([situation()], CHOICES).choices[0]
    roster = tuple(evolve(m, name=m.name.upper()) for m in reversed(ROSTER))
    turned = (None, Activation("B", "y"), Activation("B", "x"), Activation("A"))
    second = opened(settings, roster).encode([situation()], turned).choices[0]
    assert (second[::-1] == first).all()
    assert len({tuple(row) for row in first.tolist()}) == 4


def test_members_mark_stopping_ends_and_what_was_done() -> None:
    roster = (Member("a", ends=True), Member("b", ("x", "y")))
    encoder = opened(Members(words=1, stated=0, options=0), roster)
    rows = encoder.encode([situation("a", "b:x", "b:x")], CHOICES).choices[0]
    assert rows[:, :2].tolist() == [[0, 1], [0, 0], [0, 0], [1, 0]]
    assert rows[:, 3:].tolist() == [
        pytest.approx(row) for row in ([log(2), 0, 0], [log(3), 1, 0], [0, 0, 0], [0, 0, 0])
    ]


def test_the_record_of_an_agent_is_what_training_measured() -> None:
    encoder = opened(Members(words=1, stated=0, options=0, history=False, record=True))
    values = policy()
    episodes = [
        episode(values, ["a"], 1.0),
        episode(values, ["a", "c"], 1.0),
        episode(values, ["c"], 0.0),
    ]
    before = encoder.encode([situation()], CHOICES).choices[0]
    assert not before[:, 3:].any()
    encoder.learn(episodes)
    row = encoder.encode([situation()], CHOICES).choices[0][0]
    # Known 2 / (2 + 10); rewards 1, 1, 0 have mean 2/3 and deviation sqrt(2)/3.
    assert row[3:5] == pytest.approx([1 / 6, (1 / 3) / (2**0.5 / 3) / 6])
    # Of two turns of a, each for a price of 2, one failed.
    turns = [Turn(0, "a", status="failed"), Turn(1, "a", output=Output(usage=Usage(cost=4.0)))]
    encoder.learn([replace(episodes[0], trajectory=Trajectory(turns))])
    row = encoder.encode([situation()], CHOICES).choices[0][0]
    assert row[5:] == pytest.approx([3 / 13 * 1 / 4, 3 / 13 * log1p(4 / 4)])
    again = opened(encoder.settings)
    again.load(encoder.save())
    assert again.save() == encoder.save()
    assert (again.encode([situation()], CHOICES).choices[0][0] == row).all()
    with pytest.raises(CheckpointError, match="damaged"):
        again.load(replace(encoder.save(), data={}))


def test_an_agent_of_another_team_is_refused() -> None:
    with pytest.raises(UsageError, match="opened for another team, without 'z'"):
        opened(Members()).encode([situation()], (Activation("z"),))


# -------------------------------------------------------------------------------------- all


@pytest.mark.parametrize(
    "component",
    [Text(), Graph(), History(), History(who="role"), Members()],  # type: ignore[abstract]
    ids=str,
)
def test_a_situation_is_encoded_alike_alone_and_in_a_batch(component: Any) -> None:
    encoder = opened(component) if hasattr(component, "open") else component
    shown = [situation(*names) for names in ((), ("a",), ("a", "b:x"), ("b:y", "a", "a"))]
    whole: Encoded = encoder.encode(shown, CHOICES)
    for i, single in enumerate(shown):
        alone = encoder.encode([single], CHOICES)
        assert (alone.context[0] == whole.context[i]).all()
        assert (alone.choices[0] == whole.choices[i]).all()
        assert whole.turns is None or (alone.turns[0] == whole.turns[i]).all()
