"""Commands that print the figures which the manual quotes; `python -m tests.benchmarks.NAME`."""

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before any library reads it
