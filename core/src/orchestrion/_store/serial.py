"""Records as JSON, and back.

msgspec writes and reads them, strictly. A trajectory is the list of its turns. `Decision.record` is
never written.

JSON has no NaN and no infinity: in a record's own number fields both are written as null, and
null is read as NaN. `dumps` and `loads`, for data that must come back exactly (checkpoints,
recorded calls), keep them in Python's notation. Values of known secrets are never written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import reduce
from typing import Any, TypeVar, cast

import msgspec
import msgspec.inspect
from msgspec.structs import asdict

from orchestrion._errors import StoreError
from orchestrion._records import JSON, Decision, Episode, Observation, Trajectory, Turn
from orchestrion._secrets import hidden, hidden_bytes

T = TypeVar("T")

# ------------------------------------------------------------------------------------ writing


def encode(value: object) -> bytes:
    """Return a record, a list or tuple of records, or plain data, as one line of JSON.

    Sets are sorted; dictionaries keep their order.
    """
    prepared = _prepare(value)
    try:
        return hidden_bytes(_ENCODER.encode(prepared))
    except UnicodeEncodeError:
        # Text with a lone surrogate (models produce it) is no UTF-8, but has a JSON escape.
        builtins = msgspec.to_builtins(prepared, enc_hook=_builtin)
        return hidden_bytes(json.dumps(_finite(builtins), separators=(",", ":")).encode())
    except TypeError as error:
        raise StoreError(f"a record cannot be stored: {error}") from None


def as_data(value: object) -> JSON:
    """Return a record, or a list of records, as plain data; `structure` makes it a record again.

    Raises:
        StoreError: something in it is not JSON; says where.
    """
    return parse(encode(value))


def _prepare(value: object) -> object:
    if isinstance(value, Episode):
        return episode_fields(value)
    if isinstance(value, Decision):
        return _decision(value)
    if isinstance(value, Observation):
        return {**asdict(value), "blocked": sorted(value.blocked)}
    if isinstance(value, list | tuple):
        return [_prepare(item) for item in value]
    return value


def _decision(decision: Decision) -> dict[str, Any]:
    # Written out, because there is one a turn and this is five times as fast.
    fields: dict[str, Any] = {
        "start": decision.start,
        "stop": decision.stop,
        "wait": decision.wait,
        "logp": decision.logp,
    }
    if decision.error:
        fields["error"] = decision.error
    if decision.arrival:
        fields["arrival"] = True
    if decision.chances is not None:
        fields["chances"] = decision.chances
    return fields


def episode_fields(episode: Episode) -> dict[str, Any]:
    """Return an episode as fields that `encode` writes; the caller may change or drop some."""
    fields = asdict(episode)
    fields["trajectory"] = episode.turns
    fields["decisions"] = _prepare(episode.decisions)
    fields["observation"] = _prepare(episode.observation)
    return fields


def _builtin(value: object) -> object:
    """Convert what msgspec does not know: trajectories, and data of agents that is nearly JSON."""
    if isinstance(value, Trajectory):
        return value.turns
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return sorted(value)
    for base in (str, bool, int, float, list, tuple):
        if isinstance(value, base):
            return cast("Callable[[object], object]", base)(value)
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()  # arrays and scalars of numpy and torch
    raise TypeError(f"{value!r:.80} is a {type(value).__name__}, which is not JSON")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_ENCODER = msgspec.json.Encoder(enc_hook=_builtin)


def dumps(data: JSON, *, sort: bool = False) -> str:
    """Return plain JSON data as text; `loads` gives equal data, with lists for tuples."""
    _check(data, "$")
    return hidden(json.dumps(data, sort_keys=sort, separators=(",", ":")))


def _check(data: JSON, path: str) -> None:
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str):
                raise StoreError(f"{path}: key {key!r} is not text; JSON has no other keys")
            _check(value, f"{path}.{key}")
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            _check(value, f"{path}[{index}]")
    elif data is not None and not isinstance(data, bool | int | float | str):
        raise StoreError(f"{path}: {data!r:.80} is a {type(data).__name__}, which is not JSON")


# ------------------------------------------------------------------------------------ reading


def loads(text: str | bytes) -> JSON:
    """Return the data that `dumps` wrote."""
    return json.loads(text)


def parse(text: str | bytes) -> JSON:
    """Return the plain data in what `encode` wrote."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # Lone surrogates and numbers beyond a float: rare, and the standard library reads them.
        return json.loads(text)


def structure(data: JSON, kind: type[T]) -> T:
    """Return the record, or list of records, that plain data describes.

    Raises:
        StoreError: the data is no such record; says what is wrong where.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=_custom)
    except msgspec.ValidationError as error:
        problem = error
    try:
        # Null stands for NaN in number fields; it is rare, and looking for it takes time.
        data = _with_nan(data, msgspec.inspect.type_info(kind))
        return msgspec.convert(data, kind, dec_hook=_custom)
    except (msgspec.ValidationError, RecursionError):
        name = getattr(kind, "__name__", kind)
        raise StoreError(f"not a valid {name}: {problem}") from problem


def _custom(kind: type, value: Any) -> Any:
    if kind is Trajectory:
        return reduce(Trajectory.append, structure(value, list[Turn]), Trajectory())
    raise NotImplementedError(f"{kind.__name__} cannot be stored")


def _with_nan(data: Any, kind: Any) -> Any:
    """Return the data with NaN for every null where a number is expected."""
    known = msgspec.inspect
    if data is None:
        return math.nan if isinstance(kind, known.FloatType) else None
    if isinstance(kind, known.UnionType):
        # One of its two members is None, which was handled above.
        [kind] = [member for member in kind.types if not isinstance(member, known.NoneType)]
    if isinstance(kind, known.CustomType) and kind.cls is Trajectory:
        kind = known.type_info(list[Turn])
    if isinstance(kind, known.StructType | known.DataclassType) and isinstance(data, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        return {
            name: _with_nan(value, fields[name]) if name in fields else value
            for name, value in data.items()
        }
    if isinstance(kind, known.DictType) and isinstance(data, dict):
        return {name: _with_nan(value, kind.value_type) for name, value in data.items()}
    if isinstance(kind, known.CollectionType | known.VarTupleType) and isinstance(data, list):
        return [_with_nan(value, kind.item_type) for value in data]
    return data
