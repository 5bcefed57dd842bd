"""What a run store of many episodes costs to write and to browse.

    python dev.py python -m tests.benchmarks.store [EPISODES] [--keep FOLDER]

Ten million episodes by default, 2.5 kB each. The commands that read the store run in processes of
their own: seconds, and the most memory each held.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from orchestrion import Problem
from orchestrion.runs import RunStore
from tests.plugins.studio.made import CONFIG, episode

EPISODES, PROBLEMS = 1_000, 2_000
"""Episodes of an iteration, and how many problems there are."""
AGENTS = ("planner", "searcher", "coder", "tester", "critic")
PAGE = """
from pathlib import Path
import sys
from orchestrion.runs import RunReader
with RunReader(Path(sys.argv[1])) as run:
    print(len(run.episode_page(limit=50).rows))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("episodes", type=int, nargs="?", default=10_000_000)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = (options.keep or Path(name)) / "large-1"
        if not directory.exists():
            write(directory, options.episodes)
        program = str(Path(sys.executable).parent / "orchestrion")
        read("runs list", [program, "runs", "list", "--root", str(directory.parent)])
        read("runs show", [program, "runs", "show", str(directory)])
        read("newest page", [sys.executable, "-c", PAGE, str(directory)])


def write(directory: Path, count: int) -> None:
    """Write a run of `count` episodes of one to five turns."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    problems = [Problem(f"p{i}", "do it") for i in range(PROBLEMS)]
    tenth = count // EPISODES // 10
    with RunStore.create(directory, CONFIG.format(note="x"), {"seed": 1}) as store:
        store.plan(0, count // EPISODES)
        making, start = 0.0, time.process_time()
        for number in range(count // EPISODES):
            began = time.process_time()
            episodes = [
                episode(
                    f"0/{number}/{i}",
                    AGENTS[: 1 + i % 5],
                    i % 7 / 7,
                    "a short answer",
                    problems[(number * EPISODES + i) % PROBLEMS],
                )
                for i in range(EPISODES)
            ]
            making += time.process_time() - began
            store.commit_iteration(0, number, episodes, {"cost": 2.0}, seconds=0.5)
            if tenth and (number + 1) % tenth == 0:
                spent = time.process_time() - start - making
                print(
                    f"{(number + 1) * EPISODES:10,} episodes   "
                    f"{spent / tenth / EPISODES * 1e6:5.1f} us of CPU each   "
                    f"{peak(resource.RUSAGE_SELF):5.0f} MB of memory   "
                    f"{(directory / 'run.db').stat().st_size / 1e9:5.2f} GB on disk",
                    flush=True,
                )
                making, start = 0.0, time.process_time()
        store.set_status("completed", seconds=200.0)


def read(name: str, command: list[str]) -> None:
    """Run a command that reads the store, and say what it took."""
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{name:<12} {time.perf_counter() - began:6.2f} s, "
        f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:5.2f} s of CPU; "
        f"none held more than {after.ru_maxrss / 1024:.0f} MB so far"
    )


def peak(who: int) -> float:
    """Return the most memory held so far, in MB."""
    return resource.getrusage(who).ru_maxrss / 1024


if __name__ == "__main__":
    main()
