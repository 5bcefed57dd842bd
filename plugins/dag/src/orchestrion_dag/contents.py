"""Checks that the conditions and ports of a graph have known names and fitting types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from orchestrion import did_you_mean
from orchestrion_dag.conditions import (
    Condition,
    ConditionError,
    Constant,
    Operation,
    Path,
    parse,
    paths,
)
from orchestrion_dag.graph import START, Edge, Node, Wiring
from orchestrion_dag.order import sources, topological
from orchestrion_dag.ports import ANY, Port, Type, fits, kind_of, output_type, parse_port

OWN = ("data", "content", "status", "error")
"""Names by which a condition on an edge means the edge's source."""
RESERVED = (START, *OWN, "problem", "observation", "iteration")
_TEXT, _INTEGER = Type("text"), Type("integer")
_OF_A_NODE: Mapping[str, Type] = {
    "data": ANY,
    "content": _TEXT,
    "status": _TEXT,
    "error": _TEXT,
    "capped": Type("boolean"),
    "iterations": _INTEGER,
}
_OF_THE_REST: Mapping[str, Mapping[str, Type]] = {
    "problem": {"id": _TEXT, "text": _TEXT, "category": _TEXT, "data": ANY},
    "observation": {"text": _TEXT, "data": ANY, "progress": Type("number")},
}
_ORDERS = ("==", "!=", "<", "<=", ">", ">=")


class Checker:
    """Collects in `problems` what is wrong with the conditions and ports of one graph."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.problems: list[str] = []
        self.types: dict[str, Type] = {START: ANY}
        self.inputs: dict[str, dict[str, Port]] = {}
        for name, node in wiring.nodes.items():
            self._read_types(name, node)

    def edges(self) -> list[str]:
        """Return what is wrong with conditions and ports."""
        branching = {edge.source for edge in self.wiring.edges if edge.when}
        for place, edge in zip(self.wiring.labels, self.wiring.edges, strict=True):
            if edge.when and edge.otherwise:
                self.problems.append(f"{place}: give `when` or `otherwise`, not both")
            if edge.otherwise and edge.source not in branching:
                self.problems.append(
                    f"{place}: `otherwise` needs another edge of {edge.source} with `when`"
                )
            if edge.when:
                where = place if place == "chain" else f"{place}.when"
                self._condition(where, edge.when, edge.source)
        self._ports()
        return self.problems

    def until(self, where: str, text: str) -> list[str]:
        """Return what is wrong with a condition on the whole graph, which sees all nodes."""
        self.problems = []
        self._condition(where, text, None)
        return self.problems

    def _read_types(self, name: str, node: Node) -> None:
        self.types[name], self.inputs[name] = ANY, {}
        try:
            self.types[name] = output_type(node.output)
        except ValueError as error:
            self.problems.append(f"nodes.{name}.output: {error}")
        for port, text in node.inputs.items():
            try:
                self.inputs[name][port] = parse_port(text)
            except ValueError as error:
                self.problems.append(f"nodes.{name}.inputs.{port}: {error}")

    # -------------------------------------------------------------------- conditions

    @cached_property
    def _before(self) -> dict[str, int]:
        """The nodes that come before each node, and itself, as a set of bits by position."""
        # Integers, since a set for each node would be quadratic.
        into = sources(self.wiring.edges)
        before = {START: 0}
        for position, name in enumerate(topological(self.wiring)):
            bits = 1 << position
            for source in into.get(name, ()):
                bits |= before[source]
            before[name] = bits
        return before

    def _sees(self, source: str | None, name: str) -> bool:
        """Return whether a condition at `source` (None: over the whole graph) can see a node."""
        if source is None or source == name:
            return True
        bits = self._before[name]
        return self._before[source] & bits == bits

    def _condition(self, where: str, text: str, source: str | None) -> None:
        try:
            condition = parse(text)
        except ConditionError as error:
            self.problems.append(f"{where}: {error}, in {text!r}")
            return
        problems = [
            f"{where}: column {path.column}: {problem}, in {text!r}"
            for path in paths(condition)
            if (problem := self._path(path, source))
        ]
        self.problems += problems or [
            f"{where}: column {column}: {problem}, in {text!r}"
            for column, problem in self._comparisons(condition, source)
        ]

    def _path(self, path: Path, source: str | None) -> str:
        """Return what is wrong with a path, empty if nothing is."""
        root, parts = path.root, path.parts
        if root == "iteration":
            return ""
        if root in OWN:
            if source in (None, START):
                return (
                    f"{root!r} needs a node before it, as in NODE.{root}: no agent has acted here"
                )
            return self._fields(self.types[str(source)], parts, root) if root == "data" else ""
        if root in _OF_THE_REST:
            return _unknown_field(_OF_THE_REST[root], parts, root)
        if root not in self.wiring.nodes:
            visible = [name for name in self.wiring.nodes if self._sees(source, name)]
            names = [*visible, *RESERVED[1:]]
            close = did_you_mean(root, names) or f" (there are: {', '.join(sorted(names))})"
            return f"no node is called {root!r}{close}; put strings in quotes"
        if not self._sees(source, root):
            return f"{root!r} does not come before {source}, so its result may be missing"
        if parts and parts[0] == "data":
            return self._fields(self.types[root], parts[1:], f"{root}.data")
        return _unknown_field(_OF_A_NODE, parts, root)

    @staticmethod
    def _fields(declared: Type, parts: Sequence[str | int], where: str) -> str:
        for part in parts:
            if declared.name == "list" and isinstance(part, int):
                declared = declared.item or ANY
            elif declared.name == "object" and declared.fields is not None:
                if part not in declared.fields:
                    return f"{where} is declared with {', '.join(declared.fields)}, not {part!r}"
                declared = declared.fields[str(part)]
            elif declared.name not in ("any", "object"):
                return f"{where} is declared as {declared}, which has no {part!r}"
            where = f"{where}.{part}"
        return ""

    def _type(self, condition: Condition, source: str | None) -> Type:
        match condition:
            case Constant(value=value):
                return Type(kind_of(value))
            case Operation(name="list"):
                return Type("list")
            case Operation(name="len"):
                return _INTEGER
            case Operation(name="lower"):
                return _TEXT
            case Path(root="iteration"):
                return _INTEGER
            case Path(root="data", parts=parts):
                return _inside(self.types.get(str(source), ANY), parts)
            case Path(root=root, parts=parts) if root in OWN:
                return _inside(_TEXT, parts)
            case Path(root=root, parts=("data", *parts)) if root in self.types:
                return _inside(self.types[root], parts)
            case Path(root=root, parts=(field, *parts)):
                return _inside(_OF_THE_REST.get(root, _OF_A_NODE).get(str(field), ANY), parts)
        return ANY

    def _comparisons(self, condition: Condition, source: str | None) -> Iterator[tuple[int, str]]:
        """Yield column and reason of every comparison that can never hold."""
        if not isinstance(condition, Operation):
            return
        name, operands = condition.name, condition.operands
        if name in ("and", "or", "not"):
            for operand in operands:
                yield from self._comparisons(operand, source)
        elif name in (*_ORDERS, "in", "not in"):
            a, b = (self._type(operand, source) for operand in operands)
            if "null" in (a.name, b.name):
                return
            if name in _ORDERS and not fits(a, b) and not fits(b, a):
                yield condition.column, f"{a} is never {name} {b}"
            elif name not in _ORDERS and not _can_hold(b, a):
                yield condition.column, f"{a} is never in {b}"

    # -------------------------------------------------------------------- ports

    def _ports(self) -> None:
        feeds: dict[tuple[str, str], list[str]] = {}
        for place, edge in zip(self.wiring.labels, self.wiring.edges, strict=True):
            given = self._given(place, edge)
            name = self._input(place, edge)
            if name is None or given is None:
                continue
            wanted = self.inputs[edge.target][name].type
            if not fits(given, wanted):
                output = f"{edge.source}.{edge.output}" if edge.output else edge.source
                self.problems.append(
                    f"{place}: {output} gives {given}, and {edge.target}.{name} takes {wanted}"
                )
            feeds.setdefault((edge.target, name), []).append(edge.source)
        for target, ports in self.inputs.items():
            for name, port in ports.items():
                self._check_feeds(target, name, port, feeds.get((target, name), []))

    def _check_feeds(self, target: str, name: str, port: Port, sources: list[str]) -> None:
        where = f"nodes.{target}.inputs.{name}"
        if not sources and not port.optional and not port.many:
            self.problems.append(f"{where}: no edge feeds it; add one, or make it optional ('?')")
        first_only = self.wiring.nodes[target].join == "any"
        if len(sources) > 1 and not port.many and not first_only:
            self.problems.append(
                f"{where}: {' and '.join(sources)} both feed it, and it takes one; use "
                "`join: any`, or let it take many ('*')"
            )

    def _given(self, place: str, edge: Edge) -> Type | None:
        """Return the type that an edge carries, None if its output is unknown."""
        declared = self.types[edge.source]
        if not edge.output:
            return declared
        if declared.fields is None or edge.output not in declared.fields:
            fields = ", ".join(declared.fields or ()) or "no fields"
            self.problems.append(
                f"{place}: {edge.source}.{edge.output} is no output; nodes.{edge.source}.output "
                f"declares {fields}"
            )
            return None
        return declared.fields[edge.output]

    def _input(self, place: str, edge: Edge) -> str | None:
        """Return the input that an edge feeds, None if it is unknown or there are no inputs."""
        ports = self.inputs[edge.target]
        if edge.input:
            if edge.input in ports:
                return edge.input
            names = ", ".join(ports) or "none"
            self.problems.append(
                f"{place}: {edge.target}.{edge.input} is no input; nodes.{edge.target}.inputs "
                f"declares {names}"
            )
        elif len(ports) == 1:
            return next(iter(ports))
        elif edge.output in ports:
            return edge.output
        elif ports:
            self.problems.append(
                f"{place}: {edge.target} has the inputs {', '.join(ports)}; name one, as in "
                f"{edge.source} -> {edge.target}.{next(iter(ports))}"
            )
        return None


def _unknown_field(fields: Mapping[str, Type], parts: Sequence[str | int], root: str) -> str:
    if parts and parts[0] in fields:
        return ""
    got = f"not {parts[0]!r}" if parts else "one of which must follow"
    return f"{root!r} has {', '.join(fields)}, {got}"


def _can_hold(whole: Type, part: Type) -> bool:
    """Return whether one type can be `in` another: a substring, a key, an element of a list."""
    if whole.name == "list":
        item = whole.item or ANY
        return fits(part, item) or fits(item, part)
    return whole.name == "any" or (whole.name in ("text", "object") and fits(part, _TEXT))


def _inside(declared: Type, parts: Sequence[str | int]) -> Type:
    for part in parts:
        if isinstance(part, int):
            declared = declared.item or ANY
        else:
            declared = (declared.fields or {}).get(part, ANY)
    return declared
