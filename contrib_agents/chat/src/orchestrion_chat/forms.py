"""What an answer has to look like, and how it is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from attrs import frozen

from orchestrion import JSON
from orchestrion_chat.code import code_in
from orchestrion_chat.schemas import misfits, schema_of
from orchestrion_chat.talk import Unfit

__all__ = ["Form", "form_of", "read_code"]

_FENCED = re.compile(r"\s*(?:[^{`]*\n)?```(?:json)?[ ]*\n(.*?)\n?```\s*", re.S | re.I)


@frozen
class Form:
    """A JSON object of a schema, or an instance of a class.

    Args:
        schema: of the object.
        cls: an attrs class (or dataclass, or msgspec struct) that its values become; its validators
            have their say as well.
    """

    schema: Mapping[str, JSON]
    cls: type | None = None

    @property
    def wish(self) -> str:
        """What the model is told where it is not held to the schema otherwise."""
        schema = msgspec.json.encode(self.schema).decode()
        return (
            "Answer with one JSON object and nothing else, without a fence around it. "
            f"It must fit this JSON Schema:\n{schema}"
        )

    def read(self, text: str) -> dict[str, JSON]:
        """The object in a text: all of it, or its only fenced block.

        Raises:
            Unfit: it is none, or does not fit.
        """
        fenced = _FENCED.fullmatch(text)
        try:
            value = msgspec.json.decode((fenced[1] if fenced else text).encode(errors="replace"))
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unfit(f"it is no JSON: {error}", self.wish) from None
        wrong = misfits(self.schema, value)
        if not wrong and self.cls is not None:
            try:
                value = msgspec.to_builtins(msgspec.convert(value, self.cls))
            except msgspec.ValidationError as error:
                wrong = [str(error)]
        if wrong:
            listed = "\n".join(f"- {one}" for one in wrong)
            raise Unfit(f"it does not fit the schema:\n{listed}", self.wish)
        found: dict[str, JSON] = value
        return found

    def is_boolean(self, name: str) -> bool:
        """Whether a field is there in every answer, and true or false."""
        properties: Any = self.schema.get("properties", {})
        one = properties.get(name)
        required: Any = self.schema.get("required", [])
        return isinstance(one, Mapping) and one.get("type") == "boolean" and name in required

    def is_text(self, name: str) -> bool:
        """Whether a field is there in every answer, and a text."""
        properties: Any = self.schema.get("properties", {})
        one = properties.get(name)
        required: Any = self.schema.get("required", [])
        return isinstance(one, Mapping) and one.get("type") == "string" and name in required


def form_of(schema: Mapping[str, JSON] | None, cls: type | None) -> Form | None:
    """The form that a config's schema or a class from Python asks for; None without either."""
    if cls is not None:
        return Form(schema_of(cls), cls)
    return None if schema is None else Form(schema)


def read_code(text: str) -> dict[str, JSON]:
    """The code in a text, as the data of a turn.

    Raises:
        Unfit: there is none.
    """
    code = code_in(text)
    if code is None:
        raise Unfit(
            "it has no code",
            "Give the whole program in one fenced block that begins with ```python.",
        )
    return {"code": code}
