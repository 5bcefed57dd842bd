"""What models write, shown as it comes: who says what can be told, and nothing is obeyed."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrion import register
from orchestrion._cli.watching import Watch
from orchestrion._secrets import _Registry


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may begin a secret is kept back; other tests leave secrets behind."""
    monkeypatch.setattr("orchestrion._secrets._SECRETS", _Registry())


def shown(capsys: pytest.CaptureFixture[str], *pieces: tuple[str, str]) -> str:
    capsys.readouterr()
    watch = Watch()
    for who, piece in pieces:
        watch(who, piece)
    watch.end()
    return capsys.readouterr().err


def test_one_alone_is_shown_letter_by_letter(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch()
    for piece in "a b\nc":
        watch("1 a", piece)
    assert capsys.readouterr().err == "[1 a] a b\n[1 a] c"
    assert watch.end("1 a") == "a b\nc"
    assert capsys.readouterr().err == "\n"


def test_others_are_kept_back_until_they_end_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    pieces = [("a", "one "), ("b", "two "), ("a", "three"), ("b", "four\nfi"), ("a", "six")]
    assert shown(capsys, *pieces) == "[a] one three\n[b] two four\n[a] six\n[b] fi\n"


def test_the_end_of_a_turn_shows_what_was_said_inside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch = Watch()
    watch("1 t > 1 a", "inner")
    watch("2 b", "other")
    watch.end("1 t")
    assert capsys.readouterr().err == "[1 t > 1 a] inner\n"


def test_control_characters_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, ("a", "\x1b"), ("a", "[31mred\r\x07")) == "[a] \\x1b[31mred\\x0d\\x07\n"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text("xy\n", max_size=5)), max_size=25))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_lost_and_no_line_has_two_authors(
    capsys: pytest.CaptureFixture[str], pieces: list[tuple[str, str]]
) -> None:
    text = shown(capsys, *pieces)
    said: dict[str, str] = defaultdict(str)
    for who, piece in pieces:
        said[who] += piece
    heard: dict[str, str] = defaultdict(str)
    for line in text.splitlines():
        assert line[0] == "["
        heard[line[1]] += line[4:]
    assert {w: s.replace("\n", "") for w, s in said.items() if s} == dict(heard)


def test_a_secret_that_comes_in_pieces_is_never_on_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    canary = "watch-canary-0b7d4e9a1c"
    register("WATCHED", canary)
    watch = Watch()
    for piece in ("my key is ", *canary, ", and this is wat", "er; watch", "-can"):
        watch("anna", piece)
    said = watch.end("anna")
    assert capsys.readouterr().err == ("[anna] my key is [WATCHED], and this is water; watch-can\n")
    assert said == "my key is [WATCHED], and this is water; watch-can"
