"""What an agent sees: whose turns, how many, and what goes where there is no room."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_chat.chat import Chat
from orchestrion_chat.sees import Context, Sees, tokens_of

from orchestrion import Member, Observation, Output, Problem, Trajectory, Turn, View
from tests.contrib_agents.chat.support import Lines, played

TEAM = (Member("writer"), Member("critic"), Member("me"))


def view(*contents: tuple[str, str], now: str = "", data: object = None) -> View:
    """A view of the agent `me` on turns of (agent, content)."""
    turns = [Turn(n, who, output=Output(text)) for n, (who, text) in enumerate(contents)]
    problem = Problem("p", "the problem", data)
    return View("me", None, problem, Trajectory(turns), Observation(now), team=TEAM)


TALK = view(("writer", "one"), ("critic", "two"), ("me", "three"), ("writer", "four"))


def numbers(shown: Context) -> list[int]:
    """The turns that are shown."""
    return [int(number) for number in re.findall(r'<turn number="(\d+)"', shown.text)]


@pytest.mark.parametrize(
    ("sees", "wanted"),
    [
        (Sees(), [0, 1, 2, 3]),
        (Sees(last=2), [2, 3]),
        (Sees(last=0), []),
        (Sees(agents=["writer"]), [0, 2, 3]),
        (Sees(agents=["writer"], own=False), [0, 3]),
        (Sees(own=False, last=2), [1, 3]),
        (Sees(agents=[]), [2]),
    ],
)
def test_turns_are_chosen_by_agent_and_then_by_number(sees: Sees, wanted: list[int]) -> None:
    assert numbers(sees.show(TALK)) == wanted


def test_own_turns_are_marked() -> None:
    assert '<turn number="2" agent="me" by="you">\nthree\n</turn>' in Sees().show(TALK).text


def test_a_name_that_is_not_in_the_team_fails_the_turn() -> None:
    with pytest.raises(RuntimeError, match=r"'writr', who is not in the team \(critic, me, writer"):
        Sees(agents=["writr"]).show(TALK)


def test_options_and_data_without_text_are_shown() -> None:
    turn = Turn(0, "writer", 'a"b', output=Output(data={"x": 1}))
    shown = Sees().show(View("me", None, Problem("p"), Trajectory([turn]), None)).text
    assert '<turn number="0" agent="writer" option=\'a"b\'>\n{"x":1}\n</turn>' in shown


def test_the_problems_data_is_shown_if_asked_for() -> None:
    seen = view(data={"n": 3})
    assert '{"n":3}' not in Sees().show(seen).text
    assert 'the problem\n\n{"n":3}\n</problem>' in Sees(data=True).show(seen).text


def test_what_does_not_fit_fails_the_turn_by_default() -> None:
    with pytest.raises(RuntimeError, match=r"takes \d+ tokens more than sees.tokens \(50\)"):
        Sees(tokens=50).show(TALK)


def test_the_oldest_turns_go_first_and_it_is_said() -> None:
    shown = Sees(tokens=40, overflow="drop-oldest").show(TALK)
    assert numbers(shown) == [3]
    assert shown.notes == {"left_out": [0, 1, 2]}
    assert "(3 earlier turns are left out for lack of room.)" in shown.text
    assert Sees(tokens=500, overflow="drop-oldest").show(TALK).notes == {}


def test_problem_and_latest_turn_are_never_cut() -> None:
    with pytest.raises(RuntimeError, match="tokens more than"):
        Sees(tokens=20, overflow="drop-oldest").show(TALK)


def test_a_long_observation_is_cut_where_it_says_so() -> None:
    shown = Sees(observation=10).show(view(now="x" * 100))
    assert f"<now>\n{'x' * 30}\n[cut: the first 30 of 100 bytes]\n</now>" in shown.text
    assert shown.notes == {"observation_cut": True}
    assert "<now>" not in Sees(observation=0).show(view(now="x")).text


@given(
    st.lists(st.tuples(st.sampled_from(["writer", "critic", "me"]), st.text(max_size=60))),
    st.integers(1, 200),
    st.text(max_size=40),
)
def test_what_is_shown_keeps_its_limit_and_drops_only_from_the_beginning(
    contents: list[tuple[str, str]], tokens: int, now: str
) -> None:
    seen = view(*contents, now=now)
    everything = Sees().show(seen)
    try:
        shown = Sees(tokens=tokens, overflow="drop-oldest").show(seen)
    except RuntimeError:
        least = [contents[-1]] if contents else []
        assert tokens_of(Sees().show(view(*least, now=now)).text) + 3 > tokens
        return
    kept = numbers(shown)
    assert [*shown.notes.get("left_out", []), *kept] == list(range(len(contents)))
    # Each part is rounded up for itself, and parted by two line ends; the note comes on top.
    assert tokens_of(shown.text) <= tokens + len(kept) + 2 + 20
    assert everything.text.endswith(shown.text.rpartition("lack of room.)")[2].lstrip()) or kept


@given(st.text())
def test_no_text_forges_a_tag(text: str) -> None:
    shown = Sees().show(view(("writer", text), now=text)).text
    assert len(re.findall(r"<turn\b", shown, re.I)) == 1
    assert len(re.findall(r"</turn\b", shown, re.I)) == 1
    assert len(re.findall(r"</?(?:problem|now|result)\b", shown, re.I)) == 2 + 2 * bool(text)
    shown.encode()


def test_given_turns_of_an_outer_team_are_shown_too() -> None:
    outer = Turn(4, "planner", output=Output("the plan"))
    seen = View("me", None, Problem("p"), Trajectory(), None, given=(outer,), team=TEAM)
    assert "the plan" in Sees(agents=["planner"]).show(seen).text


def test_images_of_one_agent_are_kept_and_shown_to_another_that_asks_for_them() -> None:
    image = {"type": "image", "media_type": "image/png", "data": "aGVsbG8="}
    address = {"type": "image", "url": "https://169.254.169.254/latest/meta-data"}
    draws = Chat(Lines([{"text": "", "images": [image, address]}]))
    looks, reads = Lines(), Lines()
    agents = {
        "draws": draws.ready(),
        "looks": Chat(looks, sees=Sees(images=1)).ready(),
        "reads": Chat(reads).ready(),
    }
    episode = played(agents, ["draws", "draws", "looks", "reads"])
    assert [turn.status for turn in episode.turns] == ["completed"] * 4
    assert episode.turns[0].output.content == "(images: 2)"
    assert episode.turns[0].output.images == [image, address]
    page = {"type": "image", "media_type": "text/html", "data": "PGI+"}
    script = {"type": "image", "url": "javascript:alert(1)"}
    assert Output("", {"images": [page, script, image, "text"]}).images == [image]
    assert looks.requests[0]["messages"][1]["content"][1:] == [image]
    assert "aGVsbG8=" not in str(reads.requests)
    assert "https:" not in str(looks.requests), "the service would fetch what a model wrote"
