"""The run store: a folder in which an iteration is there as a whole, or not at all."""

from orchestrion._store.checkpoint import Checkpoint as Checkpoint
from orchestrion._store.checkpoint import read_checkpoint as read_checkpoint
from orchestrion._store.checkpoint import write_checkpoint as write_checkpoint
from orchestrion._store.conversations import StoredCall as StoredCall
from orchestrion._store.episodes import Retention as Retention
from orchestrion._store.names import find_run as find_run
from orchestrion._store.names import next_directory as next_directory
from orchestrion._store.names import run_directories as run_directories
from orchestrion._store.reader import Iteration as Iteration
from orchestrion._store.reader import RunReader as RunReader
from orchestrion._store.run_store import RunStore as RunStore
