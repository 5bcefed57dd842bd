"""Secrets are shown by name, wherever their value would have been."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrion import (
    Key,
    OpenContext,
    Secret,
    UsageError,
    hidden,
    hidden_bytes,
    register,
)
from orchestrion import _secrets as secrets
from orchestrion._secrets import SHORTEST, partial_secret
from orchestrion.config import load
from orchestrion.runs import RunReader, RunStore

VALUES = st.text(min_size=SHORTEST, max_size=40).filter(lambda text: len(text.strip()) >= SHORTEST)


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test knows the secrets of another."""
    factory = logging.getLogRecordFactory()
    monkeypatch.setattr(secrets, "_SECRETS", secrets._Registry())
    yield
    logging.setLogRecordFactory(factory)


def context(variables: dict[str, str], live: bool = True) -> OpenContext:
    return OpenContext("models.m", Key(1), live=live, environment=variables)


def test_a_secret_is_read_from_the_environment_and_shows_its_name_alone() -> None:
    secret = context({"THE_KEY": "abcdefgh"}).secret("THE_KEY")
    assert secret.reveal() == "abcdefgh"
    assert "abcdefgh" not in f"{secret} {secret!r} {[secret]}"
    for store in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="THE_KEY cannot be stored"):
            store(secret)


@pytest.mark.parametrize("variables", [{}, {"THE_KEY": ""}, {"THE_KEY": " \n"}])
def test_a_secret_that_is_not_there_is_asked_for_only_where_calls_follow(
    variables: dict[str, str],
) -> None:
    with pytest.raises(UsageError, match=r"models\.m: the environment variable THE_KEY is not set"):
        context(variables).secret("THE_KEY")
    assert not context(variables, live=False).secret("THE_KEY")


@pytest.mark.parametrize("value", ["kéy", "a\nb", "k\x1b[2J"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(UsageError, match=r"^models\.m: THE_KEY is not a key: it has un"):
        context({"THE_KEY": value}).secret("THE_KEY", header=True)
    assert context({"THE_KEY": value}).secret("THE_KEY").reveal() == value  # not sent in a header


@given(VALUES, st.text(max_size=20), st.text(max_size=20))
def test_no_spelling_of_a_secret_is_left(value: str, before: str, after: str) -> None:
    secrets._SECRETS = secrets._Registry()
    register("KEY", value)
    value = value.strip()
    raw = value.encode()
    spellings = [
        value,
        quote(raw),
        quote(raw, safe=""),
        quote_plus(raw),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        b64encode(raw).decode().rstrip("="),
        urlsafe_b64encode(raw).decode().rstrip("="),
    ]
    for spelling in spellings:
        # What is around it could be read as part of another spelling: only the middle is ours.
        text = hidden(f"{spelling}")
        assert spelling not in text
        assert "[KEY]" in text
    assert json.loads(hidden(json.dumps({"a": [before, value, after]})))["a"][1] == "[KEY]"


@given(st.binary(min_size=9, max_size=30), st.integers(0, 8), st.integers(0, 8))
def test_inside_of_base64_all_but_its_ends_is_taken_out(
    data: bytes, before: int, after: int
) -> None:
    secrets._SECRETS = secrets._Registry()
    value = data.hex()
    register("KEY", value)
    text = b64encode(b"u" * before + value.encode() + b"p" * after).decode()
    assert "[KEY]" in hidden(text)
    # At each end a few bits of it share a character with their neighbours.
    assert len(hidden(text).replace("[KEY]", "")) <= -(-4 * (before + after) // 3) + 8


def test_short_values_are_placeholders_and_left_alone() -> None:
    register("KEY", "none")
    assert hidden("there is none here") == "there is none here"


def test_the_longer_of_two_secrets_is_found_where_one_begins_with_the_other() -> None:
    register("SHORT", "abcdefgh")
    register("LONG", "abcdefgh-12345678")
    assert hidden("abcdefgh-12345678 abcdefgh") == "[LONG] [SHORT]"


def test_log_records_show_no_secret_whoever_writes_them(caplog: pytest.LogCaptureFixture) -> None:
    Secret("KEY", "abcdefgh")
    log = logging.getLogger("some.package")
    log.warning("header %s", {"Authorization": "Bearer abcdefgh"})
    try:
        raise ValueError("bad key abcdefgh")
    except ValueError:
        log.exception("it failed")
    assert "abcdefgh" not in caplog.text
    assert "ValueError: bad key [KEY]" in caplog.text


def test_nothing_in_a_store_has_one(tmp_path: Path) -> None:
    register("KEY", 'abcd/"efgh')
    with RunStore.create(tmp_path / "run", 'a: "abcd/\\"efgh"', {"k": 'abcd/"efgh'}) as store:
        store.record_event("told", 'abcd/"efgh')
        store.note("path", "name", 'abcd/"efgh')
        store.set_status("failed", 'because of abcd/"efgh')
    with RunReader(tmp_path / "run") as run:
        assert run.detail == "because of [KEY]"
        assert run.events()[0].data == "[KEY]"
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            assert b"efgh" not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("Bearer abcdefgh1", "abcdefgh1"),
        ("Token  abcdefgh1", "abcdefgh1"),
        (f"Basic {b64encode(b'me:abcdefgh1').decode()}", "abcdefgh1"),
        (f"Basic {b64encode(b'me:abcdefgh1').decode()}", b64encode(b"me:abcdefgh1").decode()),
    ],
)
def test_the_credential_in_a_header_is_a_secret_without_its_scheme(header: str, told: str) -> None:
    register("models.m.headers", header)
    assert told not in hidden(f"you sent {told}!")
    assert hidden("Bearer of bad news") == "Bearer of bad news"


def test_a_text_of_several_words_is_a_secret_only_as_a_whole() -> None:
    register("PHRASE", "correct horse battery")
    assert hidden("a horse battery") == "a horse battery"
    assert hidden("a correct horse battery") == "a [PHRASE]"


@pytest.mark.parametrize("text", ["q", "a longer text", "xa", "abcd", "abcdabcdef", "xabcd", ""])
def test_the_end_of_a_text_that_may_begin_a_secret_is_known(text: str) -> None:
    register("KEY", "abcdef/gh")
    ends = {"xa": 1, "abcd": 4, "abcdabcdef": 6, "xabcd": 4}
    assert partial_secret(text) == ends.get(text, 0)


def test_variables_that_a_config_names_are_secrets_if_they_are_called_so(tmp_path: Path) -> None:
    told = {"A_TOKEN": "abcdefgh", "TOKENIZER": "ijklmnop", "ONE_KEY": "1000000"}
    named = ", ".join(f"{name}: '${{env:{name}}}'" for name in told)
    (tmp_path / "c.yaml").write_text(f"task: {{use: nothing, {named}}}")
    with pytest.raises(UsageError):
        load(tmp_path / "c.yaml", env=told)
    assert hidden("abcdefgh ijklmnop 1000000") == "[A_TOKEN] ijklmnop 1000000"


def test_keys_in_a_dotenv_file_are_secrets(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SOME_API_KEY=abcdefgh\nBASE_URL=http://localhost:8000\n")
    (tmp_path / "c.yaml").write_text("task: {use: nothing}")
    with pytest.raises(UsageError):
        load(tmp_path / "c.yaml")
    assert hidden("abcdefgh at http://localhost:8000") == "[SOME_API_KEY] at http://localhost:8000"


@given(st.text(max_size=60))
def test_without_a_secret_nothing_is_changed(text: str) -> None:
    secrets._SECRETS = secrets._Registry()
    assert hidden(text) == text
    assert hidden_bytes(text.encode(errors="replace")) == text.encode(errors="replace")
