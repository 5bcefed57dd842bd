"""Conditions and ports: whether what a graph says of them makes sense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from orchestrion import did_you_mean
from orchestrion_dag.expressions import (
    Call,
    Compare,
    Constant,
    Expression,
    ExpressionError,
    Junction,
    Many,
    Not,
    Path,
    parse,
    paths,
)
from orchestrion_dag.graph import START, Edge, Node, Wiring
from orchestrion_dag.order import topological
from orchestrion_dag.ports import ANY, Port, Type, fits, kind_of, output_type, parse_port

__all__ = ["RESERVED", "Checker"]

OWN = ("data", "content", "status", "error")
"""What a condition on an edge says of the edge's source."""
RESERVED = (START, *OWN, "problem", "observation", "iteration")
_OF_A_NODE: Mapping[str, Type] = {
    "data": ANY,
    "content": Type("text"),
    "status": Type("text"),
    "error": Type("text"),
    "capped": Type("boolean"),
    "iterations": Type("integer"),
}
_OF_THE_REST: Mapping[str, Mapping[str, Type]] = {
    "problem": {
        "id": Type("text"),
        "text": Type("text"),
        "category": Type("text"),
        "data": ANY,
    },
    "observation": {"text": Type("text"), "data": ANY, "progress": Type("number")},
}


class Checker:
    """Conditions and ports of one graph; `found` is what is wrong with them."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.found: list[str] = []
        self.types: dict[str, Type] = {START: ANY}
        self.inputs: dict[str, dict[str, Port]] = {}
        self.branching = {edge.source for edge in wiring.edges if edge.when}

        for name, node in wiring.nodes.items():
            self._read_types(name, node)

    def edges(self) -> list[str]:
        """What is wrong with conditions and ports."""
        for place, edge in zip(self.wiring.labels, self.wiring.edges, strict=True):
            self._condition(place, edge)
        self._ports()
        return self.found

    def until(self, where: str, text: str) -> list[str]:
        """What is wrong with a condition on the whole graph, of which all nodes can be seen."""
        self.found = []
        self.expression(where, text, None)
        return self.found

    def _read_types(self, name: str, node: Node) -> None:
        self.types[name], self.inputs[name] = ANY, {}
        try:
            self.types[name] = output_type(node.output)
        except ValueError as error:
            self.found.append(f"nodes.{name}.output: {error}")
        for port, text in node.inputs.items():
            try:
                self.inputs[name][port] = parse_port(text)
            except ValueError as error:
                self.found.append(f"nodes.{name}.inputs.{port}: {error}")

    # -------------------------------------------------------------------- conditions

    def _condition(self, place: str, edge: Edge) -> None:
        if edge.when and edge.otherwise:
            self.found.append(f"{place}: an edge is taken `when` or `otherwise`, not both")
        if edge.otherwise and edge.source not in self.branching:
            self.found.append(
                f"{place}: `otherwise` needs another edge of {edge.source} with `when`"
            )
        if edge.when:
            where = f"{place}.when" if place != "chain" else place
            self.expression(where, edge.when, edge.source)

    @cached_property
    def _before(self) -> dict[str, int]:
        """For each node the nodes it comes after, and itself: a bit for the place of each."""
        # Whole numbers, since a set for each node would be quadratic.
        into: dict[str, list[str]] = {}
        for edge in self.wiring.edges:
            into.setdefault(edge.target, []).append(edge.source)
        before = {START: 0}
        for place, name in enumerate(topological(self.wiring)):
            bits = 1 << place
            for source in into.get(name, ()):
                bits |= before[source]
            before[name] = bits
        return before

    def _sees(self, source: str | None, name: str) -> bool:
        """Whether a condition at `source` (None: over the whole graph) may look at a node."""
        if source is None or source == name:
            return True
        own = self._before[name]
        return self._before[source] & own == own

    def expression(self, where: str, text: str, source: str | None) -> None:
        """Check an expression: that it can be read, its names, and its types."""
        try:
            expression = parse(text)
        except ExpressionError as error:
            self.found.append(f"{where}: {error}, in {text!r}")
            return
        problems = [
            f"{where}: column {path.column}: {problem}, in {text!r}"
            for path in paths(expression)
            if (problem := self._path(path, source))
        ]
        self.found += problems or [
            f"{where}: column {column}: {problem}, in {text!r}"
            for column, problem in self._comparisons(expression, source)
        ]

    def _path(self, path: Path, source: str | None) -> str:
        root = path.root
        if root == "iteration" or (root in OWN and source not in (None, START)):
            return "" if root != "data" else self._fields(self.types[str(source)], path.parts, root)
        if root in OWN:
            return f"{root!r} is of an agent's turn, and there is none here; name a node"
        if root in _OF_THE_REST:
            return self._known(_OF_THE_REST[root], path.parts, root)
        if root not in self.wiring.nodes:
            visible = [name for name in self.wiring.nodes if self._sees(source, name)]
            known = [*visible, *RESERVED[1:]]
            close = did_you_mean(root, known) or f" (there are: {', '.join(sorted(known))})"
            return f"no node is called {root!r}{close}; text stands in quotes"
        if not self._sees(source, root):
            return f"{root!r} does not come before {source}, so its result may not be there"
        if problem := self._known(_OF_A_NODE, path.parts, root):
            return problem
        if path.parts and path.parts[0] == "data":
            return self._fields(self.types[root], path.parts[1:], f"{root}.data")
        return ""

    @staticmethod
    def _known(fields: Mapping[str, Type], parts: Sequence[str | int], root: str) -> str:
        if parts and parts[0] in fields:
            return ""
        got = f"not {parts[0]!r}" if parts else "one of which must follow"
        return f"{root!r} has {', '.join(fields)}, {got}"

    @staticmethod
    def _fields(declared: Type, parts: Sequence[str | int], where: str) -> str:
        for part in parts:
            if declared.name == "list" and isinstance(part, int):
                declared = declared.item or ANY
            elif declared.name == "object" and declared.fields is not None:
                if part not in declared.fields:
                    known = ", ".join(declared.fields)
                    return f"{where} is declared with {known}, not {part!r}"
                declared = declared.fields[str(part)]
            elif declared.name not in ("any", "object"):
                return f"{where} is declared as {declared}, which has no {part!r}"
            where = f"{where}.{part}"
        return ""

    def _type(self, expression: Expression, source: str | None) -> Type:
        match expression:
            case Constant(value=value):
                return Type(kind_of(value))
            case Many():
                return Type("list")
            case Call(name=name):
                return Type("integer" if name == "len" else "text")
            case Path(root=root, parts=parts):
                if root == "iteration":
                    return Type("integer")
                if root in OWN:
                    declared = self.types.get(str(source), ANY) if root == "data" else Type("text")
                    return _inside(declared, parts)
                fields = _OF_THE_REST.get(root, _OF_A_NODE)
                if root in self.types and parts[:1] == ("data",):
                    return _inside(self.types[root], parts[1:])
                return _inside(fields.get(str(parts[0]), ANY) if parts else ANY, parts[1:])
        return ANY

    def _comparisons(self, expression: Expression, source: str | None) -> Iterator[tuple[int, str]]:
        match expression:
            case Compare(operator=operator, left=left, right=right, column=column):
                a, b = self._type(left, source), self._type(right, source)
                if "null" in (a.name, b.name):
                    return
                if operator in ("in", "not in"):
                    if not _holds(b, a):
                        yield column, f"{a} is never in {b}"
                    return
                if not fits(a, b) and not fits(b, a):
                    yield column, f"{a} is never {operator} {b}"
            case Junction(parts=parts):
                for part in parts:
                    yield from self._comparisons(part, source)
            case Not(part=part):
                yield from self._comparisons(part, source)

    # -------------------------------------------------------------------- ports

    def _ports(self) -> None:
        fed: dict[tuple[str, str], list[str]] = {}
        for place, edge in zip(self.wiring.labels, self.wiring.edges, strict=True):
            given = self._given(place, edge)
            name = self._input(place, edge)
            if name is None or given is None:
                continue
            wanted = self.inputs[edge.target][name].type
            if not fits(given, wanted):
                self.found.append(
                    f"{place}: {edge.source}{edge.output and '.' + edge.output} gives {given}, and "
                    f"{edge.target}.{name} takes {wanted}"
                )
            fed.setdefault((edge.target, name), []).append(edge.source)
        for target, ports in self.inputs.items():
            for name, port in ports.items():
                self._feeds(target, name, port, fed.get((target, name), []))

    def _feeds(self, target: str, name: str, port: Port, sources: list[str]) -> None:
        where = f"nodes.{target}.inputs.{name}"
        if not sources and not port.optional and not port.many:
            self.found.append(f"{where}: no edge feeds it; add one, or make it optional ('?')")
        first_only = self.wiring.nodes[target].join == "any"
        if len(sources) > 1 and not port.many and not first_only:
            self.found.append(
                f"{where}: {' and '.join(sources)} both feed it, and it takes one; use "
                "`join: any`, or let it take many ('*')"
            )

    def _given(self, place: str, edge: Edge) -> Type | None:
        declared = self.types[edge.source]
        if not edge.output:
            return declared
        if declared.fields is None or edge.output not in declared.fields:
            known = ", ".join(declared.fields or ()) or "no fields"
            self.found.append(
                f"{place}: {edge.source}.{edge.output} is no output; nodes.{edge.source}.output "
                f"declares {known}"
            )
            return None
        return declared.fields[edge.output]

    def _input(self, place: str, edge: Edge) -> str | None:
        ports = self.inputs[edge.target]
        if edge.input:
            if edge.input in ports:
                return edge.input
            known = ", ".join(ports) or "none"
            self.found.append(
                f"{place}: {edge.target}.{edge.input} is no input; nodes.{edge.target}.inputs "
                f"declares {known}"
            )
        elif len(ports) == 1:
            return next(iter(ports))
        elif edge.output in ports:
            return edge.output
        elif ports:
            self.found.append(
                f"{place}: {edge.target} has the inputs {', '.join(ports)}; say which one, as in "
                f"{edge.source} -> {edge.target}.{next(iter(ports))}"
            )
        return None


def _holds(whole: Type, part: Type) -> bool:
    """Whether one type can be `in` another: a part of a text, a key, an element of a list."""
    if whole.name == "list":
        item = whole.item or ANY
        return fits(part, item) or fits(item, part)
    return whole.name == "any" or (whole.name in ("text", "object") and fits(part, Type("text")))


def _inside(declared: Type, parts: Sequence[str | int]) -> Type:
    for part in parts:
        if isinstance(part, int):
            declared = declared.item or ANY
        else:
            declared = (declared.fields or {}).get(part, ANY)
    return declared
