"""Log lines are read strictly, and written whole."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import encode
from orchestrion_logged import Context, Logged, LogWriter, read, read_log

from orchestrion import StoreError, UsageError

numbers = st.floats(-1e9, 1e9)
records = st.builds(
    Logged,
    context=st.builds(Context, text=st.text(), features=st.tuples(numbers, numbers)),
    choice=st.sampled_from(["a", "ä b", "a:option", "a:b:c", "stop"]),
    propensity=st.none() | st.floats(0.01, 1.0),
    reward=st.none() | numbers,
    cost=st.floats(0, 10),
)


@settings(max_examples=20)
@given(st.lists(records, min_size=1, max_size=4))
def test_what_is_written_is_read(lines: list[Logged]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        with LogWriter(path) as writer:
            for line in lines:
                writer.append(line)
        assert [line for episode in read_log(path) for line in episode] == lines


def test_a_propensity_that_is_missing_among_others_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    known, unknown = Logged(Context(), "a", propensity=0.5), Logged(Context(), "a")
    path.write_bytes(b"\n".join(map(encode, [known, unknown, unknown])))
    text = f"2 of 3 decisions have no propensity, the first is {path}:2"
    assert read(path).notes == [text]
    path.write_bytes(encode(unknown))
    assert read(path).notes == []


def test_a_packed_log_reads_like_a_plain_one(tmp_path: Path) -> None:
    line = encode(Logged(Context(text="hello"), "a", reward=1.0))
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(line + b"\n"))
    assert read_log(tmp_path / "log.jsonl.gz")[0][0].context.text == "hello"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"context": {}}', "missing required field `choice`"),
        ('{"context": {}, "choice": "a", "rewrad": 1}', "unknown field `rewrad`"),
        ('{"context": {}, "choice": "a", "reward": "1"}', "Expected `float | null`, got `str`"),
        ('{"context": {}, "choice": "a", "propensity": 0}', "`float` > 0.0"),
        ('{"context": {}, "choice": "a", "propensity": 1.5}', "`float` <= 1.0"),
        ('{"context": {}, "choice": "a", "reward": 1e999}', "out of range"),
        ('{"context": {}, "choice": "a", "allowed": ["b"]}', "'a' is not in `allowed`"),
        ('{"context": {}, "choice": "a", "step": 1}', "step 1 without an episode"),
        ('{"context": {}, "choice": "a", "episode": "e", "step": 1}', "but step 0 is missing"),
        ('{"context": {}, "choice": ":x"}', "':x' is no choice; write `agent`"),
        ('{"context": {}, "choice": "a:"}', "'a:' is no choice"),
        ('{"context": {}, "choice": "a", "allowed": ["a", "b\\n"]}', r"'b\n' is no choice"),
        ('{"context": {}, "choice": "\\u001b[1m"}', r"'\x1b[1m' is no choice"),
        ('{"context": {"hints": {"a": [1], "b": [1, 2]}}, "choice": "a"}', "same number"),
        ('{"context": {"features": [1e308, -1e308]}, "choice": "a"}', "between -1e+15 and 1e+15"),
        ('{"context": {"hints": {"a": [1e308]}}, "choice": "a"}', "between -1e+15 and 1e+15"),
        (f'{{"context": {{"data": {"[" * 3000 + "]" * 3000}}}, "choice": "a"}}', "recursion depth"),
    ],
)
def test_a_wrong_line_is_named_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"context": {{}}, "choice": "a"}}\n\n{line}\n')
    with pytest.raises(UsageError) as error:
        read_log(path)
    assert f"{path}:3: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ('"features": [1]', '"features": [1, 2]', "`features`: 2 numbers, but 1"),
        ('"hints": {"a": [1]}', '"hints": {"b": [1, 0]}', "`hints`: 2 numbers, but 1"),
    ],
)
def test_a_line_with_another_number_of_numbers_is_named(
    tmp_path: Path, first: str, other: str, message: str
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(f'{{"context": {{{shown}}}, "choice": "a"}}\n' for shown in (first, other))
    )
    with pytest.raises(UsageError) as error:
        read_log(path)
    assert f"{path}:2: {message}" in str(error.value)


def test_a_line_may_do_without_hints(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    hinting = Logged(Context(hints={"a": (1.0,)}), "a")
    path.write_bytes(b"\n".join(map(encode, [Logged(Context(), "a"), hinting] * 2)))
    assert len(read_log(path)) == 4


@pytest.mark.parametrize("content", [b"", b"\x1f\x8bno gzip"])
def test_a_file_without_decisions_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        read_log(path)


def test_decisions_of_an_episode_come_together_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as writer:
        for episode, step in (("x", 1), ("y", 0), ("x", 0)):
            writer.append(Logged(Context(), "a", episode=episode, step=step))
    assert [[line.step for line in episode] for episode in read_log(path)] == [[0, 1], [0]]


def test_feedback_is_told_by_its_keys_in_any_order_and_spacing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    decision = '{"step": 0, "episode": "e", "choice": "a", "context": {}}'
    path.write_text(decision + '\n{ "by": "user", "score": 0.5, "feedback" : "e"}\n')
    [[line]] = read_log(path)
    assert line.score == 0.5


def test_many_writers_never_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"

    def write(name: str) -> None:
        with LogWriter(path) as writer:
            for i in range(50):
                writer.append(Logged(Context(text=name * 200), name, reward=float(i)))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_log(path)) == 200


def test_what_a_crash_cut_off_does_not_spoil_the_next_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"context": {}, "cho')
    with LogWriter(path) as writer:
        writer.append(Logged(Context(), "a"))
    content = read(path)
    assert len(content.episodes) == 1
    assert content.notes == ["left out: 1 lines that were cut off, or are being written"]


def test_what_a_full_disk_cut_off_does_not_spoil_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "log.jsonl", os.write
    with LogWriter(path) as writer:
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:20]))
        for _ in range(2):
            with pytest.raises(StoreError, match="cut off after 20 bytes"):
                writer.append(Logged(Context(), "lost"))
        monkeypatch.undo()
        for _ in range(2):
            writer.append(Logged(Context(), "a"))
    content = read(path)
    assert [line.choice for [line] in content.episodes] == ["a", "a"]
    assert content.notes == ["left out: 2 lines that were cut off, or are being written"]


def test_a_line_cut_off_at_any_byte_is_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    context = Context(text="zwölf", data=[True, None], features=(0.5, 1e-7), hints={"a": (1.0,)})
    line = encode(Logged(context, "a", ("a", "b"), 0.25, score=1.0, episode="e"))
    for end in range(1, len(line)):
        path.write_bytes(b'{"context": {"features": [1, 2]}, "choice": "a"}\n' + line[:end])
        content = read(path)
        assert (len(content.episodes), len(content.notes)) == (1, 1)
    path.write_bytes(line[:9])
    with pytest.raises(UsageError, match=r"holds no decisions; left out: 1 lines"):
        read(path)


def test_nothing_is_logged_that_could_not_be_read(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log.jsonl") as writer:
        with pytest.raises(UsageError, match="not in `allowed`"):
            writer.append(Logged(Context(), "a", allowed=("b",)))
        with pytest.raises(UsageError, match="propensity"):
            writer.append(Logged(Context(), "a", propensity=2.0))
        deep: list[object] = []
        for _ in range(3000):
            deep = [deep]
        with pytest.raises(UsageError, match="recursion depth"):
            writer.append(Logged(Context(data=deep), "a"))
    assert os.path.getsize(tmp_path / "log.jsonl") == 0
    with pytest.raises(StoreError, match="is closed"):
        writer.append(Logged(Context(), "a"))
    with pytest.raises(UsageError, match="compressed"):
        LogWriter(tmp_path / "log.jsonl.gz")
