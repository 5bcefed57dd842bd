"""Run linear algebra on one thread, so that its results do not depend on the number of cores.

A threaded BLAS splits sums by its number of threads, and another order of a sum rounds differently.
What is learned decides the next choice, so a run resumed on fewer cores would become another run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np  # noqa: F401  (its BLAS has to be loaded to be found)
from threadpoolctl import ThreadpoolController


@contextmanager
def serial() -> Iterator[None]:
    """Use one thread for linear algebra in numpy and scipy; also a decorator."""
    with _libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries(scipy: bool) -> ThreadpoolController:
    """Return the loaded BLAS libraries; scipy brings its own."""
    return ThreadpoolController()
