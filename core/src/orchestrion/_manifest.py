"""What the result of a run depends on, as its manifest holds it."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from orchestrion._records import JSON
    from orchestrion.config import Config


def manifest(config: Config) -> dict[str, Any]:
    """Return what a run's result depends on besides its config."""
    from orchestrion import __version__

    return {
        "seed": config.seed,
        "digest": config.digest,
        "versions": {
            "python": platform.python_version(),
            "orchestrion": __version__,
            **{plugin.distribution: plugin.version for plugin in config.plugins_used},
        },
        "machine": platform.machine(),
    }


def changed_versions(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what differs between two records of versions, e.g. "repair 0.1 -> 0.2"."""
    return [
        f"{name} {before.get(name, 'none')} -> {now.get(name, 'none')}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]


_COMPARED = 100_000
"""Problems of a split that are compared; a generator may make more than anybody runs."""


def data_of(task: Any, place: str) -> dict[str, JSON]:
    """Return by split how many problems a task has, and a digest of them with their answers.

    `content` is a digest of the same without their ids and order. A config names a file; what
    stands in it is no part of the config's digest.
    """
    from orchestrion._engine.checks import problems_of
    from orchestrion._records import Split, replace
    from orchestrion._report import problem_digest

    data: dict[str, JSON] = {}
    for split in get_args(Split):
        problems = problems_of(task, split, place)
        compared = list(islice(problems, _COMPARED))
        contents = [problem_digest(replace(problem, id="-")) for problem in compared]
        named = [(problem.id, content) for problem, content in zip(compared, contents, strict=True)]
        data[split] = {
            "problems": len(problems),
            "digest": _digest(named),
            "content": _digest(sorted(contents)),
        }
    return data


def _digest(value: object) -> str:
    return blake2b(repr(value).encode(), digest_size=8).hexdigest()


_NAMED = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*")


def code_of(config: Config) -> dict[str, JSON]:
    """Return by name a digest of each loaded module of which the config names something.

    These are files with functions and classes of the user, which have no version. What they import
    is not looked at.
    """
    code: dict[str, JSON] = {}
    for text in _texts(config.resolved()):
        named = _NAMED.fullmatch(text)
        file = named and getattr(sys.modules.get(named[1]), "__file__", None)
        if named and file and Path(file).suffix == ".py" and Path(file).exists():
            code[named[1]] = blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()
    return code


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def changed_code(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the names of the modules that have other code than before."""
    return ", ".join(
        sorted(name for name in now.keys() & before.keys() if before[name] != now[name])
    )


def changed_data(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in words which splits have other problems than before; "" if none has."""
    changed = []
    for split in now.keys() & before.keys():
        was, is_ = before[split], now[split]
        if was["problems"] != is_["problems"]:
            changed.append(f"{split!r} had {was['problems']} problems and has {is_['problems']}")
        elif was["digest"] == is_["digest"]:
            continue
        elif _content(was) == is_["content"]:
            changed.append(f"{split!r} has the same problems in another order or with other ids")
        else:
            changed.append(f"some of the {was['problems']} of {split!r} are others")
    return ", ".join(sorted(changed))


def has_other_problems(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether some split differs by more than the order and the ids of its problems."""
    return any(
        _content(before[split]) != now[split]["content"] for split in now.keys() & before.keys()
    )


def _content(split: Mapping[str, Any]) -> Any:
    return split.get("content")  # runs of earlier versions have none
