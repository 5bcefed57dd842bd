"""Checkpoints: one self-checking file each, with everything that a run needs to go on.

A file is `checkpoints/SS-IIIIII.safetensors` (stage, iteration). Arrays are safetensors, all the
rest is JSON in its metadata; nothing in it is ever executed. It holds no time, so that equal
content gives equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from attrs import Factory, frozen

from orchestrion._errors import CheckpointError, StoreError
from orchestrion._records import JSON, Array, Saved
from orchestrion._store.faults import fault_point
from orchestrion._store.files import write_atomic
from orchestrion._store.safetensors import pack, unpack
from orchestrion._store.serial import dumps, loads

FORMAT = 1
_PLAIN = ("stage", "iteration", "seed", "config", "roster", "versions", "threads")
_NAME = re.compile(r"\d{2,}-\d{6,}\.safetensors")


@frozen
class Checkpoint:
    """What a run needs to go on after an iteration."""

    stage: int  # index of the trainer
    iteration: int  # index of the last finished iteration in it
    components: Mapping[str, Saved] = Factory(dict)  # learned state by config path, e.g. "policy"
    overlay: Mapping[str, JSON] = Factory(dict)  # learnable settings that changed, by config path
    seed: int = 0  # the run's
    config: str = ""  # digest of the resolved config
    roster: tuple[str, ...] = ()  # names of the team's agents, in order
    versions: Mapping[str, str] = Factory(dict)  # of python, orchestrion and the plugins in use
    threads: int = 1  # that arithmetic used; part of what the result depends on


def encode_checkpoint(checkpoint: Checkpoint) -> list[bytes]:
    """Return the bytes of a checkpoint's file, in parts."""
    arrays = {
        # The first slash of an array's name ends the config path, whose own are escaped.
        f"{path.replace('%', '%25').replace('/', '%2F')}/{name}": array
        for path, saved in checkpoint.components.items()
        for name, array in saved.arrays.items()
    }
    meta = {"format": FORMAT} | {name: getattr(checkpoint, name) for name in _PLAIN}
    # In the order given: an overlay's or a table's order may matter to the one who loads it.
    data = {path: saved.data for path, saved in sorted(checkpoint.components.items())}
    return pack(
        arrays,
        {
            "orchestrion": dumps(meta, sort=True),
            "components": dumps(data),
            "overlay": dumps(dict(sorted(checkpoint.overlay.items()))),
        },
    )


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Return the checkpoint that `encode_checkpoint` wrote.

    Raises:
        CheckpointError: with the reason, if it is damaged or of another format.
    """
    packed, metadata = unpack(data)
    try:
        meta = loads(metadata["orchestrion"])
        if meta["format"] != FORMAT:
            raise CheckpointError(
                f"it has format {meta['format']}, this version of orchestrion reads {FORMAT}"
            )
        arrays: dict[str, dict[str, Array]] = {}
        for name, array in sorted(packed.items()):
            path, _, rest = name.partition("/")
            path = path.replace("%2F", "/").replace("%25", "%")
            arrays.setdefault(path, {})[rest] = array
        components = loads(metadata["components"]).items()
        return Checkpoint(
            components={path: Saved(arrays.get(path, {}), item) for path, item in components},
            overlay=loads(metadata["overlay"]),
            **{name: meta[name] for name in _PLAIN} | {"roster": tuple(meta["roster"])},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"its content is malformed: {error!r}") from None


# ---------------------------------------------------------------------------------- on disk


def checkpoint_name(stage: int, iteration: int) -> str:
    """Return the file name of a checkpoint; sorts by stage and iteration."""
    return f"{stage:02d}-{iteration:06d}.safetensors"


def checkpoint_paths(folder: Path) -> list[Path]:
    """Return all checkpoint files of a folder, oldest first, valid or not."""
    paths = [path for path in folder.glob("*.safetensors") if _NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: [int(number) for number in path.stem.split("-")])


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> tuple[Path, str]:
    """Write a checkpoint durably; return its path and the SHA-256 of the file.

    Raises:
        StoreError: the disk is full or read-only; no part of a file is left behind.
        CheckpointError: some component saved what is no array or no JSON; says which.
    """
    path = folder / checkpoint_name(checkpoint.stage, checkpoint.iteration)
    try:
        chunks = encode_checkpoint(checkpoint)
    except StoreError as error:
        raise CheckpointError(f"the state to be saved is not plain data: {error}") from error
    write_atomic(path, chunks, "checkpoint")
    digest = sha256()
    for chunk in chunks:
        digest.update(chunk)
    return path, digest.hexdigest()


def read_checkpoint(path: Path, digest: str | None = None) -> Checkpoint:
    """Read and check one file.

    Raises:
        CheckpointError: it is missing, damaged, of another format, or not the one wanted.
    """
    try:
        data = path.read_bytes()
        checkpoint = decode_checkpoint(data)
        if digest is not None and sha256(data).hexdigest() != digest:
            raise CheckpointError("it is not the file that this run wrote")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CheckpointError(f"{path}: cannot be read: {reason}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    return checkpoint


def prune_checkpoints(folder: Path, keep: Sequence[str]) -> None:
    """Remove all checkpoint files but those named."""
    for path in checkpoint_paths(folder):
        if path.name not in keep:
            # A file that cannot be removed costs space and nothing else.
            with suppress(OSError):
                path.unlink()
            fault_point("checkpoint.pruned")
