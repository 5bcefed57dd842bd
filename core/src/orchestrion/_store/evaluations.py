"""Evaluations made after training: one file each, `RUN/evaluations/NUMBER.json`.

A file is the document that `eval --json` prints, with the digest of the rest under `digest`. It
stands beside the database, which belongs to the one process that trains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from orchestrion._errors import StoreError
from orchestrion._secrets import hidden
from orchestrion._store.files import explain, make_folder, write_atomic

FOLDER = "evaluations"


def keep_evaluation(directory: Path, document: Mapping[str, Any]) -> Path:
    """Store an evaluation under the next free number of a run; return its file."""
    folder = make_folder(directory / FOLDER)
    plain = json.loads(hidden(json.dumps(document)))
    text = json.dumps({**plain, "digest": _digest(plain)}, indent=2) + "\n"
    number = max((int(p.stem) for p in folder.glob("*.json") if p.stem.isdecimal()), default=0)
    while True:
        number += 1
        path = folder / f"{number}.json"
        try:
            path.touch(exist_ok=False)  # takes the number: two that evaluate at once get two files
        except FileExistsError:
            continue
        except OSError as error:
            raise StoreError(explain(error, path)) from error
        write_atomic(path, [text.encode()], "evaluation-file")
        return path


def read_evaluation(path: Path, printed: bool = True) -> dict[str, Any]:
    """Return the document of a file that `keep_evaluation` wrote, or `eval --json` printed."""
    try:
        document = json.loads(path.read_bytes())
        report = document["report"]
        outcomes, seeds = report["outcomes"], report["seeds"]
        if not (isinstance(outcomes, dict) and outcomes and isinstance(seeds, int)):
            raise ValueError("it has no outcomes")
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(
            f"{path}: is not an evaluation as `orchestrion eval --json` prints it ({error})"
        ) from error
    digest = document.pop("digest", None)
    if digest != _digest(document) and not (printed and digest is None):
        raise StoreError(f"{path}: is damaged: its content is not what was written")
    return document  # type: ignore[no-any-return]


def _digest(document: Mapping[str, Any]) -> str:
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
