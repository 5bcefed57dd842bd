"""The run store: a folder in which an iteration is there as a whole, or not at all."""

from orchestrion._store.checkpoint import (
    Checkpoint,
    Refusal,
    read_checkpoint,
    write_checkpoint,
)
from orchestrion._store.conversations import StoredCall
from orchestrion._store.episodes import Retention, StoredEpisode
from orchestrion._store.names import find_run, next_directory, run_directories
from orchestrion._store.notes import Event
from orchestrion._store.reader import Iteration, Restored, RunReader, RunStatus
from orchestrion._store.run_store import RunStore

__all__ = [
    "Checkpoint",
    "Event",
    "Iteration",
    "Refusal",
    "Restored",
    "Retention",
    "RunReader",
    "RunStatus",
    "RunStore",
    "StoredCall",
    "StoredEpisode",
    "find_run",
    "next_directory",
    "read_checkpoint",
    "run_directories",
    "write_checkpoint",
]
