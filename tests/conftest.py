"""Settings that hold for every test."""

from __future__ import annotations

import gc
import os
import signal
import sysconfig
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from orchestrion import _discovery
from tests import warm

# As many tests run at once as there are processors: libraries that start threads of their own for
# each would only make them wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what runs in the background with Ctrl-C ignored; tests that send it would fail.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no reason to fail: no deadline, for examples or for drawing them. Where CI
# decides, examples do not change from one run to the next.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("local", patient)
settings.register_profile(
    "ci-orchestrion", patient, derandomize=True, print_blob=True, max_examples=40
)
settings.load_profile("ci-orchestrion" if os.environ.get("CI") else "local")

TESTS = Path(__file__).parent
LONG = (
    *("test_conformance.py", "docs", "end_to_end", "packaging"),
    *("plugins/evolution", "plugins/improve", "plugins/marl", "plugins/sandbox"),
)
"""Whose files take long; none of them must be what one processor is left with at the end."""


HOME = sysconfig.get_path("purelib")
_read = _discovery._read
_read_once = cache(_read)


def read_once_at_home(folder: str, group: str) -> list[_discovery.Plugin]:
    """Return the entry points of a distribution; those of this environment stay as they are.

    Every config that is loaded asks for all, and there are hundreds.
    """
    return (_read_once if folder.startswith(HOME) else _read)(folder, group)


mock.patch.object(_discovery, "_read", read_once_at_home).start()


def pytest_xdist_auto_num_workers() -> int:
    """Return two more than there are processors: many tests wait for processes of theirs."""
    return len(os.sched_getaffinity(0)) + 2 if hasattr(os, "sched_getaffinity") else 2


def pytest_configure(config: pytest.Config) -> None:
    """Import what commands and workers need once, in a process that forks them."""
    # The modules of all tests are a million objects that stay. At least what a run sets itself: to
    # a run that finds less, it is a reason to count all that is frozen, again in each iteration.
    gc.set_threshold(50_000, 20, 100)
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if whole and getattr(config.option, "tx", None):  # this process hands out tests to workers
        os.environ[warm.SHARED] = warm.start()
        config.option.tx = [f"popen//python={warm.worker()}" for _ in config.option.tx]
    if warm.SHARED in os.environ and hasattr(config, "workerinput"):
        config.args[:] = own_order(
            config.workerinput["workerid"], config.workerinput["workercount"]
        )


def own_order(worker: str, workers: int) -> list[str]:
    """Return all files of tests, for each worker from another one on.

    Each worker collects all tests. In the same order, each would compile the same modules at the
    same time as the others; in orders of their own, a worker finds most modules compiled.
    """
    files = sorted(map(str, TESTS.rglob("test_*.py")))
    first = int(worker.removeprefix("gw")) * len(files) // workers
    return files[first:] + files[:first]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long; the rest in the order of paths, which all workers share."""
    long = tuple(f"{TESTS / name}" for name in LONG)

    @cache
    def place(path: Path) -> tuple[bool, Path]:
        return not str(path).startswith(long), path

    items.sort(key=lambda item: place(item.path))


def pytest_collection_finish() -> None:
    """Take what collecting made, a million objects, out of garbage collection: it stays anyway."""
    gc.collect()
    gc.freeze()
