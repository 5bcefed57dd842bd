"""Bad graphs are refused before anything runs, with the place and the reason."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_dag import Edge, Graph, Node, as_config, policy_of, validate, wire
from orchestrion_dag.ports import fits, parse_type, wrong

from orchestrion import ConfigError, Member
from orchestrion.config import from_data
from tests.plugins.dag.support import random_case


def problem(graph: Graph) -> str:
    with pytest.raises(ValueError) as caught:
        validate(graph)
    return str(caught.value)


SCORED = Node(output={"score": "number", "labels": "list[text]"})
LOOP = Node(body=Graph(chain="review -> revise"), max=3)

BAD = {
    "a cycle": (
        Graph(edges=["a -> b", "b -> c", "c -> a", "x -> a"]),
        "edges: a -> b -> c -> a is a cycle",
    ),
    "a node that leads to itself": (Graph(edges=["a -> a"]), "edges: a -> a is a cycle"),
    "a cycle in a body": (
        Graph(nodes={"loop": Node(body=Graph(edges=["a -> b", "b -> a"]))}, chain="x -> loop"),
        "nodes.loop.body.edges: a -> b -> a is a cycle",
    ),
    "nothing at all": (Graph(), "the graph has no nodes"),
    "no arrow": (Graph(edges=["a b"]), "edges[0]: 'a b': 'a b' is not a node's name"),
    "one name only": (Graph(edges=["a"]), "edges[0]: 'a' is no edge; write it as 'a -> b'"),
    "a condition on a chain": (
        Graph(edges=["a -> b -> c when data.x"]),
        "a condition belongs to one arrow",
    ),
    "an unknown word": (Graph(edges=["a -> b on sunday"]), "'on' takes success, failure or done"),
    "into the start": (Graph(edges=["a -> start"]), "no edge can lead to 'start'"),
    "a name with a meaning": (Graph(chain="a -> data"), "'data' is a reserved name"),
    "twice the same": (Graph(edges=["a -> b", "a -> b"]), "edges[1]: a -> b is listed twice"),
    "an unknown output": (Graph(chain="ann -> bob", outputs=["bobb"]), "did you mean 'bob'?"),
    "an output twice": (
        Graph(chain="a -> b", outputs=["b", "b"]),
        "outputs: 'b' is listed twice",
    ),
    "an output that is not last": (
        Graph(chain="a -> b", outputs=["a"]),
        "nodes.b: it leads to no output; the outputs are a",
    ),
    "a default without conditions": (
        Graph(edges=["a -> b otherwise"]),
        "edges[0]: `otherwise` needs another edge of a with `when`",
    ),
    "k without k_of_n": (Graph(nodes={"a": Node(k=2)}), "nodes.a.k: needed with `join: k_of_n`"),
    "k_of_n without k": (Graph(nodes={"a": Node(join="k_of_n")}), "nodes.a.k: needed with"),
    "more than there are": (
        Graph(nodes={"c": Node(join="k_of_n", k=3)}, edges=["a, b -> c"]),
        "nodes.c: an output that is never reached; its join (k_of_n with k = 3) can never run: "
        "of the edges from a, b at most 2 can be taken in one run",
    ),
    "more than can be taken at once": (
        Graph(
            nodes={"d": Node(join="k_of_n", k=2)},
            edges=["a -> b when data.x > 1", "a -> c otherwise", "b, c -> d"],
        ),
        "of the edges from b, c at most 1 can be taken in one run",
    ),
    "branches of a switch that exclude each other": (
        Graph(
            nodes={"d": Node(join="k_of_n", k=2)},
            edges=["a -> b when data.x == 1", "a -> c when data.x == 2", "b, c -> d"],
        ),
        "at most 1 can be taken in one run",
    ),
    "success and failure at once": (
        Graph(nodes={"d": Node(join="k_of_n", k=2)}, edges=["a -> b, d", "a -> d on failure"]),
        "nodes.d: an output that is never reached",
    ),
    "a condition that never holds": (
        Graph(edges=["a -> b when false"]),
        "nodes.b: an output that is never reached",
    ),
    "a comparison that never holds": (
        Graph(edges=["a -> b when 1 == 2 or len('') > 0"]),
        "nodes.b: an output that is never reached",
    ),
    "conditions that exclude each other": (
        Graph(edges=["a -> b when data.x == 1 and data.y and data.x == 2"]),
        "nodes.b: an output that is never reached",
    ),
    "a loop nearly without end": (
        Graph(
            nodes={
                "p": Node(max=10**5, body=Graph(nodes={"q": Node(max=10**5, body=LOOP.body)})),
            }
        ),
        "nodes.p.max: the loop could take 20,000,000,000 turns; the maximum is 1,000,000",
    ),
    "until without max": (
        Graph(nodes={"a": Node(body=Graph(chain="b"), until="b.content")}),
        "nodes.a.max: needed with `until`, so that the loop ends",
    ),
    "until without a body": (
        Graph(nodes={"a": Node(until="b")}),
        "nodes.a.until: has no effect without a `body`; remove it",
    ),
    "retries of a body": (
        Graph(nodes={"a": Node(body=Graph(chain="b"), retries=1)}),
        "nodes.a.retries: has no effect on a node with a `body`; remove it",
    ),
    "a condition that cannot be read": (
        Graph(edges=["a -> b when data.x = 1"]),
        "edges[0].when: column 8: '=' has no meaning here, in 'data.x = 1'",
    ),
    "a condition on nobody": (
        Graph(edges=["ann -> b when an.data.x"]),
        "edges[0].when: column 1: no node is called 'an'; did you mean 'ann'?",
    ),
    "a condition on what comes later": (
        Graph(edges=["a -> b when c.data.x", "b -> c"]),
        "edges[0].when: column 1: 'c' does not come before a",
    ),
    "a condition on the start's data": (
        Graph(edges=["start -> a when data.x"]),
        "'data' needs a node before it",
    ),
    "a loop that looks outside": (
        Graph(
            nodes={"p": LOOP, "q": Node(body=LOOP.body, max=2, until="a.content")}, chain="p -> q"
        ),
        "nodes.q.until: column 1: no node is called 'a'",
    ),
    "a field that is not declared": (
        Graph(nodes={"a": SCORED}, edges=["a -> b when data.scores > 1"]),
        "edges[0].when: column 1: data is declared with score, labels, not 'scores'",
    ),
    "a comparison of different types": (
        Graph(nodes={"a": SCORED}, edges=["a -> b when data.score == 'high'"]),
        "edges[0].when: column 12: number is never == text",
    ),
    "a number in a text": (
        Graph(nodes={"a": Node(output="text")}, edges=["a -> b when 3 in data"]),
        "edges[0].when: column 3: integer is never in text",
    ),
    "a length that is no number": (
        Graph(edges=["a -> b when len(data) == 'long'"]),
        "edges[0].when: column 11: integer is never == text",
    ),
    "a comparison inside another node's list": (
        Graph(nodes={"a": SCORED}, edges=["a -> b", "b -> c when a.data.labels[0] > 3"]),
        "edges[1].when: column 18: text is never > integer",
    ),
    "a type there is not": (
        Graph(nodes={"a": Node(output="string")}),
        "nodes.a.output: 'string' is no type (there are: text, number",
    ),
    "an output port there is not": (
        Graph(nodes={"a": SCORED, "b": Node(inputs={"x": "number"})}, edges=["a.mark -> b.x"]),
        "edges[0]: a.mark is no output; nodes.a.output declares score, labels",
    ),
    "an input port there is not": (
        Graph(nodes={"a": SCORED, "b": Node(inputs={"x": "number"})}, edges=["a.score -> b.y"]),
        "edges[0]: b.y is no input; nodes.b.inputs declares x",
    ),
    "an input that nothing feeds": (
        Graph(
            nodes={"a": SCORED, "b": Node(inputs={"x": "number", "y": "any"})},
            edges=["a.score -> b.x"],
        ),
        "nodes.b.inputs.y: no edge feeds it",
    ),
    "types that do not fit": (
        Graph(
            nodes={"a": SCORED, "b": Node(inputs={"x": "list[number]"})}, edges=["a.labels -> b.x"]
        ),
        "edges[0]: a.labels gives list[text], and b.x takes list[number]",
    ),
    "two edges into an input for one": (
        Graph(nodes={"c": Node(inputs={"x": "any"})}, edges=["a, b -> c"]),
        "nodes.c.inputs.x: a and b both feed it, and it takes one",
    ),
    "no word which input": (
        Graph(nodes={"b": Node(inputs={"x": "any", "y": "any"})}, edges=["a -> b"]),
        "edges[0]: b has the inputs x, y; name one, as in a -> b.x",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_graph_is_refused_with_place_and_reason(name: str) -> None:
    graph, says = BAD[name]
    assert says in problem(graph)


GOOD = {
    "ports that fit": Graph(
        nodes={"a": SCORED, "b": Node(inputs={"x": "number", "y": "text?", "z": "any*"})},
        edges=["a.score -> b.x", "a, c -> b.z"],
    ),
    "an integer for a number": Graph(
        nodes={"a": Node(output={"n": "integer"}), "b": Node(inputs={"x": "number"})},
        edges=["a.n -> b"],
    ),
    "two sources of which the first counts": Graph(
        nodes={"c": Node(inputs={"x": "any"}, join="any")}, edges=["a, b -> c"]
    ),
    "a join behind exclusive branches": Graph(
        edges=["a -> b when data.x == 1", "a -> c otherwise", "b, c -> d"]
    ),
    "a loop that looks at its body": Graph(
        nodes={"loop": Node(body=Graph(chain="review -> revise"), until="review.data.ok", max=3)},
        edges=["draft -> loop", "loop -> warn when loop.capped", "loop -> done otherwise"],
    ),
    "conditions that may hold": Graph(
        nodes={"a": SCORED},
        edges=[
            "a -> b when 'new' in data.labels and len(data.labels) > 1",
            "a -> c when data.score == 1 or data.score == 2",
            "a -> d when content == 'x' and status == 'succeeded' and 'a' in 'abc'",
        ],
    ),
    "names with options": Graph(chain="mutate:all -> run-tests -> mutate:all"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_valid_graph_is_accepted(name: str) -> None:
    assert validate(GOOD[name]).nodes


def test_agents_that_are_not_in_the_roster_are_refused() -> None:
    with pytest.raises(ValueError, match=r"nodes\.b\.agent: no agent 'b' in the team"):
        validate(Graph(chain="a -> b"), [Member("a")])
    assert validate(Graph(chain="a -> b"), [Member("a"), Member("b")]).nodes


def test_all_problems_are_reported_at_once() -> None:
    text = problem(
        Graph(
            nodes={"a": Node(k=1), "b": Node(until="x")},
            edges=["a -> b when (", "a -> c otherwise"],
        )
    )
    assert text.count("; ") >= 2
    assert all(place in text for place in ("nodes.a.k", "nodes.b.until", "edges[0].when"))


def test_a_config_is_refused_at_its_place_without_running_anything() -> None:
    data: dict[str, Any] = {
        "task": {"use": "relay"},
        "agents": {"planner": {"use": "bench-agent"}, "coder_s": {"use": "bench-agent"}},
        "policy": {"use": "dag", "edges": ["planner -> coder_s", "coder_s -> planner"]},
    }
    with pytest.raises(ConfigError) as caught:
        from_data(data)
    [only] = caught.value.problems
    assert "policy" in only
    assert "edges: planner -> coder_s -> planner is a cycle" in only


def test_making_a_policy_with_conditions_is_linear_in_the_size_of_the_graph() -> None:
    def work(count: int) -> int:
        """Function calls, those of built-in ones included: the same on every machine."""
        tests = ["content == 'x'", "a0.content == 'x'"]
        edges = [f"a{i} -> a{i + 1} when {tests[i % 2]}" for i in range(count)]
        graph = Graph(nodes={f"a{i}": Node(agent="w") for i in range(count + 1)}, edges=edges)
        calls = 0

        def count_call(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count_call)
        try:
            policy_of(graph, [Member("w")])
        finally:
            sys.setprofile(None)
        return calls

    work(100)  # what is remembered from then on
    assert work(400) < 5 * work(100)


def test_records_in_a_config_are_the_records_of_python() -> None:
    data: dict[str, Any] = {
        "task": {"use": "relay"},
        "agents": {"planner": {"use": "bench-agent"}},
        "policy": {
            "use": "dag",
            "nodes": {
                "a": "planner",
                "loop": {"body": {"chain": "planner"}, "max": 2, "on_error": "skip"},
            },
            "edges": ["a -> loop", {"source": "a", "target": "planner", "when": "data.x"}],
        },
    }
    graph = from_data(data).components["policy"].component
    assert graph.nodes["loop"] == Node(body=Graph(chain="planner"), max=2, on_error="skip")
    assert graph.edges[1] == Edge("a", "planner", when="data.x")


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_a_graph_written_as_a_config_means_the_same(seed: int) -> None:
    case = random_case(seed)
    data = {
        "task": {"use": "relay"},
        "agents": {"planner": {"use": "bench-agent"}},
        "policy": {"use": "dag", **as_config(case.graph)},
    }
    read = from_data(data).components["policy"].component
    assert wire(read) == case.wiring


@pytest.mark.parametrize(
    ("wanted", "value", "says"),
    [
        ("number", 3, ""),
        ("number", True, "data: expected number, got boolean"),
        ("integer", 3.5, "data: expected integer, got number"),
        ("list[list[text]]", [["a"], [1]], "data[1][0]: expected text, got integer"),
        ("object", {}, ""),
        ("any", None, ""),
        ("text", None, "data: expected text, got null"),
    ],
)
def test_values_are_checked_against_types(wanted: str, value: Any, says: str) -> None:
    assert wrong(parse_type(wanted), value) == says


def test_unknown_types_fit_everywhere() -> None:
    assert fits(parse_type("any"), parse_type("number"))
    assert fits(parse_type("list"), parse_type("list[number]"))
    assert not fits(parse_type("number"), parse_type("integer"))
