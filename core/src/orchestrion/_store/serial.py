"""Records as JSON, and back.

Writing is done by msgspec, which knows attrs classes; reading by a strict cattrs converter, which
is imported only then. A trajectory is the list of its turns. `Decision.record` is never written.

JSON has no NaN and no infinity: in a record's own number fields both are written as null, and
null is read as NaN. `dumps` and `loads`, for data that must come back exactly (checkpoints,
recorded calls), keep them in Python's notation. Values of known secrets are never written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache, reduce
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs
import msgspec

from orchestrion._errors import StoreError
from orchestrion._records import JSON, Decision, Episode, Observation, Status, Trajectory, Turn
from orchestrion._secrets import hidden, hidden_bytes

if TYPE_CHECKING:
    from attrs import AttrsInstance
    from cattrs import Converter

__all__ = ["as_data", "decode", "dumps", "encode", "episode_fields", "loads", "parse", "structure"]

T = TypeVar("T")

# ------------------------------------------------------------------------------------ writing


def encode(value: object) -> bytes:
    """A record, a list or tuple of records, or plain data, as one line of JSON.

    Sets are sorted; dictionaries keep their order.

    Raises:
        StoreError: something in it is not JSON; says where.
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
        return _observation(value)
    if isinstance(value, list | tuple):
        return [_prepare(item) for item in value]
    return value


def _fields(kind: type[AttrsInstance]) -> Callable[[Any], dict[str, Any]]:
    """A function that takes a record apart, one level deep."""
    names = [field.name for field in attrs.fields(kind)]
    values = attrgetter(*names)
    return lambda record: dict(zip(names, values(record), strict=True))


_episode = _fields(Episode)
_observed = _fields(Observation)


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
    return fields


def _observation(observation: Observation) -> dict[str, Any]:
    return {**_observed(observation), "blocked": sorted(observation.blocked)}


def episode_fields(episode: Episode) -> dict[str, Any]:
    """An episode taken apart, as `encode` writes it; the caller may change or drop fields."""
    fields = _episode(episode)
    fields["trajectory"] = episode.turns
    fields["decisions"] = [_decision(decision) for decision in episode.decisions]
    if episode.observation is not None:
        fields["observation"] = _observation(episode.observation)
    return fields


def _builtin(value: object) -> object:
    """What msgspec does not know: trajectories, and data of agents that is nearly JSON."""
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
    """Plain JSON data as text that `loads` turns into equal data, with lists for tuples.

    Args:
        data: None, bool, int, float, str, lists, tuples, dictionaries with text keys.
        sort: order the keys, so that equal data gives equal text.

    Raises:
        StoreError: something in it is not JSON; says where.
    """
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
    """The inverse of `dumps`."""
    return json.loads(text)


def parse(text: str | bytes) -> JSON:
    """The plain data in what `encode` wrote."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # Lone surrogates and numbers beyond a float: rare, and the standard library reads them.
        return json.loads(text)


def decode(text: str | bytes, kind: type[T]) -> T:
    """The record of type `kind` that `encode` wrote."""
    return structure(parse(text), kind)


def structure(data: JSON, kind: type[T]) -> T:
    """A record from plain data.

    Raises:
        StoreError: the data is no such record; says what is wrong where.
    """
    try:
        return _converter(detailed=False).structure(data, kind)
    except Exception:
        return _structure_slowly(data, kind)


def _structure_slowly(data: JSON, kind: type[T]) -> T:
    """Once more, with a converter that keeps track of where it is (half as fast)."""
    from cattrs import transform_error

    try:
        return _converter(detailed=True).structure(data, kind)
    except Exception as error:
        problems = "; ".join(transform_error(error))
        raise StoreError(f"not a valid {getattr(kind, '__name__', kind)}: {problems}") from error


@cache
def _converter(*, detailed: bool) -> Converter:
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True, detailed_validation=detailed)
    for kind in (bool, int, str):
        converter.register_structure_hook(kind, _exactly)
    # It is a `str` too, and would be taken for one.
    converter.register_structure_hook(Status, lambda value, _: Status(value))
    converter.register_structure_hook(float, _float)

    def trajectory(value: Any, _: object) -> Trajectory:
        return reduce(Trajectory.append, converter.structure(value, list[Turn]), Trajectory())

    converter.register_structure_hook_func(lambda kind: kind is Trajectory, trajectory)
    return converter


def _exactly(value: object, kind: type[T]) -> T:
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}, got {value!r:.80}")
    return value


def _float(value: object, _: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, got {value!r:.80}")
    return float(value)
