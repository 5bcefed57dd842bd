"""YAML 1.2, includes, overrides and the environment: from text to a tree with places."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrion._config.documents import MAX_BYTES
from orchestrion._config.environment import escape, expand, read_dotenv
from orchestrion._config.nodes import BROKEN, Node, Problems, Source, parse_path, walk
from orchestrion._config.sources import override, read_tree
from orchestrion._config.yaml import read_yaml
from orchestrion.config import to_yaml

HERE = Source("a.yaml", Path())


def yaml(text: str) -> tuple[Any, list[str]]:
    problems = Problems()
    node = read_yaml(text, HERE, problems)
    return (node.plain() if node is not None else None), [str(p) for p in problems.found]


def fine(text: str) -> Any:
    value, problems = yaml(text)
    assert problems == []
    return value


def wrong(text: str) -> str:
    _, problems = yaml(text)
    assert problems != []
    return "\n".join(problems)


# ------------------------------------------------------------------ YAML


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        (".5", 0.5),
        ("1.", 1.0),
        ("7", 7),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 17),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("false", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("2020-01-01", "2020-01-01"),
        ("'1'", "1"),
        ('"no"', "no"),
        ("!!str 1", "1"),
        ("'' ", ""),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    read = fine(f"a: {text}")["a"]
    assert read == value
    assert type(read) is type(value)


def test_special_floats_are_numbers_only_when_spelled_as_such() -> None:
    assert fine("a: [.inf, -.inf, inf, nan]")["a"] == [math.inf, -math.inf, "inf", "nan"]
    assert math.isnan(fine("a: .nan")["a"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "a.yaml:3: key 'a' stands here twice, first in line 1"),
        ("a:\n  b: {c: 1, c: 2}", "a.yaml:2: key 'c' stands here twice"),
        ("a: b: c", "a.yaml:1: not valid YAML: mapping values are not allowed here"),
        ("a:\n\t- b", "a.yaml:2: not valid YAML"),
        ('a: "x', "a.yaml:1: not valid YAML"),
        ("a\n---\nb", "this is the second"),
        ("a: *x", "a.yaml:1: not valid YAML: found undefined alias 'x'"),
        ("a: &x [*x]", "alias *x refers to what it is a part of"),
        ("1: a", "key 1 is not text: put it in quotes"),
        ("? [a]\n: b", "a key must be text"),
        ("a: !!python/object:os.system x", "tag tag:yaml.org,2002:python/object:os.system"),
        ("a: !secret x", "tag !secret is not supported"),
        ("a: !mine {b: 1}", "tag !mine is not supported"),
        ("a: 1e999", "the number 1e999 is too large"),
        ("a: 99999999999999999999", "does not fit in 64 bits"),
        ("a: " + "9" * 5000, "does not fit in 64 bits"),
        ('a: "\\ud800"', "surrogate"),
        ("a: 1\n# off:\u2028 b: 2", "a.yaml:2: U+2028 is an invisible line break"),
        ('a: 1\nb: "x\x85y"', 'or write "\\u0085"'),
        ('a: 1\nb: 2\n\nc: "x\x07"', "a.yaml:4: not valid YAML: unacceptable character #x0007"),
        ("a: " + "[" * 60, "levels deep"),
        (f"a: &a {'[' * 30}{']' * 30}\nb: {'[' * 30}*a{']' * 30}", "levels deep"),
        ("<<: 3\na: 1", "'<<' merges mappings only"),
        ("<<: {a: 1}\n<<: {b: 1}", "key '<<' stands here twice"),
    ],
)
def test_what_cannot_be_read_is_a_problem_with_its_line(text: str, message: str) -> None:
    assert message in wrong(text)


def test_all_duplicate_keys_are_reported_at_once() -> None:
    assert len(wrong("a: 1\na: 2\nb: {c: 1, c: 2}").splitlines()) == 2


def test_aliases_are_copies_and_merge_keys_merge() -> None:
    text = "base: &b {x: 1, y: [2]}\nother: {<<: *b, x: 3}\nmore: {<<: [*b, {z: 4}]}"
    value = fine(text)
    assert value["other"] == {"x": 3, "y": [2]}
    assert value["more"] == {"x": 1, "y": [2], "z": 4}


def test_an_alias_refers_to_the_nearest_anchor_above_it(recwarn: pytest.WarningsRecorder) -> None:
    assert fine("a: &x 1\nb: *x\nc: &x 2\nd: *x") == {"a": 1, "b": 1, "c": 2, "d": 2}
    assert len(recwarn) == 0


def test_a_merge_key_in_quotes_is_a_key_like_any_other() -> None:
    assert fine('{"<<": {a: 1}}') == {"<<": {"a": 1}}


def test_aliases_of_aliases_cannot_grow_without_bound() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)
    )
    assert "are aliases nested in aliases?" in wrong(bomb)


@pytest.mark.parametrize("text", ["a: {k: ${env:X}}", "a: [${env:X}]", "a: {k: x${env:X}, j: 1}"])
def test_an_unquoted_reference_in_flow_style_gets_its_own_hint(text: str) -> None:
    assert 'must stand in quotes: "${env:NAME}"' in wrong(text)


def test_every_value_knows_its_line() -> None:
    node = read_yaml("a: 1\nb:\n  c: 2\n  d:\n    - 3\n    - e: 4\n", HERE, Problems())
    assert node is not None
    lines = {path: child.line for path, child in walk(node)}
    assert lines == {
        "": 1,
        "a": 1,
        "b": 2,
        "b.c": 3,
        "b.d": 4,
        "b.d[0]": 5,
        "b.d[1]": 6,
        "b.d[1].e": 6,
    }


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text(alphabet="ab \n\t:-#'\"{}[]|>&*!%@`,", max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=20)
@given(st.dictionaries(st.text(), PLAIN, max_size=3))
def test_what_to_yaml_writes_reads_back_the_same(data: dict[str, Any]) -> None:
    assert fine(to_yaml(data)) == data


@given(st.text(alphabet="ab1.\n \t:-#'\"{}[]|>&*!%@`,?~<=", max_size=80))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    yaml(text)


# ------------------------------------------------------------------ files


def tree(path: Path, env: dict[str, str] | None = None) -> tuple[Any, list[str]]:
    problems = Problems()
    node = read_tree(path, env or {}, problems)
    return (node.plain() if node is not None else None), [str(p) for p in problems.found]


def test_an_including_file_wins_over_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.yaml").write_text("include: [a.yaml, sub/b.yaml]\nseed: 3\nx: {n: 1}")
    (tmp_path / "a.yaml").write_text("seed: 1\nlist: [1, 2]\nx: {m: 1, n: 2}")
    (tmp_path / "sub" / "b.yaml").write_text("include: [c.yml]\nlist: [3]\nx: {m: 5}")
    (tmp_path / "sub" / "c.yml").write_text("deep: 1\n")
    value, problems = tree(tmp_path / "main.yaml")
    assert problems == []
    assert value == {"seed": 3, "list": [3], "x": {"m": 5, "n": 1}, "deep": 1}


def test_another_component_replaces_the_settings_of_the_one_below(tmp_path: Path) -> None:
    (tmp_path / "main.yaml").write_text("include: [a.yaml]\np: {use: y}\nq: {use: x, n: 2}")
    (tmp_path / "a.yaml").write_text("p: {use: x, n: 1}\nq: {use: x, m: 1}")
    assert tree(tmp_path / "main.yaml")[0] == {"p": {"use": "y"}, "q": {"use": "x", "m": 1, "n": 2}}


def test_one_included_file_needs_no_list(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("x: {n: 1}")
    (tmp_path / "main.yaml").write_text("include: a.yaml\nseed: 3")
    assert tree(tmp_path / "main.yaml") == ({"x": {"n": 1}, "seed": 3}, [])


def test_files_that_include_each_other_are_reported_with_the_chain(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("include: [b.yaml]\n")
    (tmp_path / "b.yaml").write_text("x: 1\ninclude:\n  - a.yaml\n")
    _, problems = tree(tmp_path / "a.yaml")
    expected = f"{tmp_path}/b.yaml:3: include: files include each other: a.yaml -> b.yaml -> a.yaml"
    assert problems == [expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("include: [no.yaml]", "there is no file"),
        ("include: 3", "expected a list of files"),
        ("include: ''", "expected the name of a file"),
        ("include: [3]", "expected the name of a file"),
        ("include: ['.']", "cannot be read"),
        ("include: [a.toml]", "a config is YAML, and this is TOML"),
        ("include: ['${env:KEY}.yaml']", "${env:KEY}.yaml"),
        ("[1]", "must be a mapping of sections"),
        ("", "is empty"),
    ],
)
def test_files_that_cannot_be_used_are_problems(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "main.yaml").write_text(text)
    problems = tree(tmp_path / "main.yaml", {"KEY": "secret"})[1]
    assert message in "\n".join(problems)


def test_files_too_large_or_not_utf_8_are_problems(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_text("#" * (MAX_BYTES + 1))
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff")
    assert "is larger than 1 MiB" in tree(tmp_path / "big.yaml")[1][0]
    assert "is not UTF-8 (byte 3)" in tree(tmp_path / "bytes.yaml")[1][0]
    assert "there is no file" in tree(tmp_path / "none.yaml")[1][0]


# ------------------------------------------------------------------ overrides


def overridden(text: str, *overrides: str) -> tuple[Any, list[str]]:
    problems = Problems()
    node = read_yaml(text, HERE, problems)
    assert node is not None
    node = override(node, overrides, {"X": "y"}, problems)
    return node.plain(), [str(p) for p in problems.found]


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("a.b=1e-3", {"a": {"b": 0.001, "c": [1, {"d": 2}]}}),
        ("a.c[1].d=no", {"a": {"b": 1, "c": [1, {"d": "no"}]}}),
        ("a.c[0]=[x, y]", {"a": {"b": 1, "c": [["x", "y"], {"d": 2}]}}),
        ("a={}", {"a": {}}),
        ("a.new.deep=", {"a": {"b": 1, "c": [1, {"d": 2}], "new": {"deep": None}}}),
        ("a.b=x=y", {"a": {"b": "x=y", "c": [1, {"d": 2}]}}),
        ("a.b='${env:X}'", {"a": {"b": "y", "c": [1, {"d": 2}]}}),
    ],
)
def test_an_override_changes_one_value(change: str, value: Any) -> None:
    assert overridden("a: {b: 1, c: [1, {d: 2}]}", change) == (value, [])


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("trainer=null", {"agents": {"a": {"use": "x", "of": {"b": 1}}}}),
        ("agents.a=", {"agents": {}, "trainer": [{"use": "y"}]}),
        (
            "agents.a.of=null",  # null may be a value of a setting
            {"agents": {"a": {"use": "x", "of": None}}, "trainer": [{"use": "y"}]},
        ),
    ],
)
def test_null_leaves_out_a_section_or_a_named_component(change: str, value: Any) -> None:
    text = "agents: {a: {use: x, of: {b: 1}}}\ntrainer: [{use: y}]"
    assert overridden(text, change) == (value, [])


@pytest.mark.parametrize(
    ("change", "close"),
    [
        ("agents.plannr=null", "'plannr' that null could leave out; did you mean 'planner'?"),
        ("agents.x=null", "'x' that null could leave out (known: critic, planner)"),
        ("evaluation.baselines.y=", "'y' that null could leave out (known: solo)"),
    ],
)
def test_null_for_a_name_that_is_not_there_is_a_problem(change: str, close: str) -> None:
    text = "agents: {planner: {use: x}, critic: {use: x}}\nevaluation: {baselines: {solo: dag}}"
    path = change.partition("=")[0]
    assert overridden(text, change)[1] == [f"-o {path}: there is no {close}"]
    assert overridden(text, "evaluation.episodes=null", "agents.critic.size=null")[1] == []


def test_an_override_leaves_aliased_values_alone() -> None:
    text = "x: &x {n: 1}\ny: *x"
    assert overridden(text, "y.n=2")[0] == {"x": {"n": 1}, "y": {"n": 2}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("a", "an override is PATH=VALUE"),
        ("=1", "an override is PATH=VALUE"),
        ("a..b=1", "an override is PATH=VALUE"),
        (".a=1", "an override is PATH=VALUE"),
        ("[0]=1", "an override is PATH=VALUE"),
        ("a.c.d=1", "a.c is not a mapping, so it has no 'd'; write a.c[0]"),
        ("a.b.d=1", "a.b is not a mapping"),
        ("a[0]=1", "a is not a list"),
        ("a.c[9]=1", "a.c has 2 elements, so there is no [9]"),
        ("a.b=[", "not valid YAML"),
        ("include=[x]", "cannot be overridden"),
        ("x" + ".x" * 3000 + "=1", "more than 48 levels deep"),
    ],
)
def test_an_override_that_cannot_be_applied_is_a_problem(change: str, message: str) -> None:
    _, problems = overridden("a: {b: 1, c: [1, 2]}", change)
    assert problems[0].startswith("-o ")
    assert message in problems[0]


@given(st.text(max_size=20))
def test_paths_are_parsed_or_refused(text: str) -> None:
    segments = parse_path(text)
    assert segments is None or (isinstance(segments[0], str) and "" not in segments)


# ------------------------------------------------------------------ the environment


def expanded(text: str, **environment: str) -> tuple[Node, list[str]]:
    problems = Problems()
    node = read_yaml(text, HERE, problems)
    assert node is not None
    expand(node, environment, problems)
    return node, [str(p) for p in problems.found]


def test_references_are_expanded_and_remembered() -> None:
    node, problems = expanded('a: ["${env:A}/${env:B}", plain]', A="1", B="${env:A}")
    assert problems == []
    assert node.plain() == {"a": ["1/${env:A}", "plain"]}
    assert [child.raw for _, child in walk(node)] == [None, None, "${env:A}/${env:B}", None]


def test_an_expanded_value_stays_text() -> None:
    assert expanded("a: ${env:N}", N="7")[0].plain() == {"a": "7"}


def test_missing_and_malformed_names_are_problems() -> None:
    node, problems = expanded('a: "${env:NO_KEY}"\nb: "${env:1x}"', NO_KEYS="1")
    assert "a.yaml:1: a: environment variable NO_KEY is set neither here" in problems[0]
    assert "did you mean 'NO_KEYS'?" in problems[0]
    assert "names no environment variable" in problems[1]
    assert node.value["a"].value is BROKEN


@given(st.text(alphabet="$${}env:ab ", max_size=30))
def test_escaped_text_expands_to_itself(text: str) -> None:
    node = Node(escape(text), HERE)
    expand(node, {}, Problems())
    assert node.value == text
    assert node.raw is None


def test_a_dotenv_file_has_names_and_values(tmp_path: Path) -> None:
    text = "# keys\nA=1\nexport B = 'two words' # note\n\nC=\"x#y\"\nD=a#b # c\nE=\nwhat\n"
    (tmp_path / ".env").write_text(text)
    problems = Problems()
    values = read_dotenv(tmp_path / ".env", problems)
    assert values == {"A": "1", "B": "two words", "C": "x#y", "D": "a#b", "E": ""}
    assert [(p.line, p.message) for p in problems.found] == [(8, "not of the form NAME=value")]
    assert read_dotenv(tmp_path / "none", problems) == {}
