"""The form that an answer must have, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from attrs import frozen

from orchestrion import JSON, json_object
from orchestrion_chat.code import code_in
from orchestrion_chat.schemas import misfits, schema_of
from orchestrion_chat.talk import Unfit


@frozen
class Form:
    """A JSON object that fits a schema, or also a class.

    Args:
        schema: of the object.
        cls: an attrs class, dataclass or msgspec struct that checks the values as well.
    """

    schema: Mapping[str, JSON]
    cls: type | None = None

    @property
    def wish(self) -> str:
        """The form in words, for a model that cannot be held to a schema."""
        schema = msgspec.json.encode(self.schema).decode()
        return (
            "Answer with one JSON object and nothing else, without a fence around it. "
            f"It must fit this JSON Schema:\n{schema}"
        )

    def read(self, text: str) -> dict[str, JSON]:
        """Return the object in a text.

        Raises:
            Unfit: it is not JSON, or does not fit.
        """
        try:
            value = json_object(text)
        except ValueError as error:
            raise Unfit(str(error), self.wish) from None
        wrong = misfits(self.schema, value)
        if not wrong and self.cls is not None:
            try:
                value = msgspec.to_builtins(msgspec.convert(value, self.cls))
            except msgspec.ValidationError as error:
                wrong = [str(error)]
        if wrong:
            listed = "\n".join(f"- {problem}" for problem in wrong)
            raise Unfit(f"it does not fit the schema:\n{listed}", self.wish)
        fitting: dict[str, JSON] = value
        return fitting

    def requires(self, name: str, kind: str) -> bool:
        """Return whether a field of a JSON type is in every answer."""
        field = self.schema.get("properties", {}).get(name)
        typed = isinstance(field, Mapping) and field.get("type") == kind
        return typed and name in self.schema.get("required", [])


def form_of(schema: Mapping[str, JSON] | None, cls: type | None) -> Form | None:
    """Return the form of a config's schema or of a Python class; None without either."""
    if cls is not None:
        return Form(schema_of(cls), cls)
    return None if schema is None else Form(schema)


def read_code(text: str) -> dict[str, JSON]:
    """Return the code in a text as the data of a turn.

    Raises:
        Unfit: it has no code.
    """
    code = code_in(text)
    if code is None:
        raise Unfit(
            "it has no code",
            "Give the whole program in one fenced block that begins with ```python.",
        )
    return {"code": code}
