"""How quick the studio is with 100,000 episodes and with 1,000 runs, and what looking on costs.

    python dev.py python -m tests.benchmarks.studio [--keep FOLDER] [--only PART ...]
        [--pairs N] [--iterations N]

Pages are fetched from the command `orchestrion studio` over HTTP: the first time after it started,
then the median of ten. Where Playwright and Chromium are installed, the first paint is measured
too, beside that of a page of one sentence. Training with and without a studio that follows it
alternates in pairs, each first in turn; of the ratios of the pairs the median and the quartiles are
printed, of the time of the run and of the processor time of its process. A run of `--iterations`
takes so many times a thirtieth of a second, about.
`--keep` leaves the generated store in a folder, and takes the one that is there. `--only` names
the parts to measure: "pages" over HTTP, "paint" in the browser, "many" runs, "pairs" of trainings.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

from orchestrion.runs import RunReader, RunStore
from tests.benchmarks.startup import children
from tests.benchmarks.support import EXAMPLES
from tests.plugins.studio.made import CONFIG, episode, make_run, outcomes

ITERATIONS, EPISODES, RUNS = 400, 250, 1000
AGENTS = ("planner", "searcher", "coder", "tester", "critic")
LIST = "/episodes/large-1"
PAGES = {
    "sentence": "/compare",
    "runs": "/runs",
    "run": "/run/large-1",
    "episodes": LIST,
    "next page": f"{LIST}?after=50000,50000",
    "filtered": f"{LIST}?solved=yes&from=0.3&problem=p&order=reward",
    "next of it": f"{LIST}?solved=yes&from=0.3&problem=p&order=reward&after=0.9,50000",
    "by cost": f"{LIST}?order=cost&direction=up",
    "by agent": f"{LIST}?agent=tester",
    "text": f"{LIST}?text=sentence",
    "rare text": f"{LIST}?text=nobody+said+this",
    "episode": "/episode/large-1?id=0/399/249",
}
"""By name: the address of a page of the large store."""
PARTS = ("pages", "paint", "many", "pairs")
REPEATS = 10
PROGRAM = str(Path(sys.executable).parent / "orchestrion")
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=240)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        if {"pages", "paint"} & set(options.only):
            large(folder / "large")
            with studio(folder / "large") as server:
                if "pages" in options.only:
                    fetches(server)
                if "paint" in options.only:
                    paint(server)
                print(f"memory of the server {server.memory():.0f} MB")
        if "many" in options.only:
            many(folder / "many")
            with studio(folder / "many") as server:
                first = fetch(server, "/runs")
                later = [fetch(server, "/runs?q=run") for _ in range(REPEATS)]
                print(f"{RUNS} runs  first {first:6.0f} ms, then {median(later):6.0f} ms")
                print(f"memory of the server {server.memory():.0f} MB")
        if "pairs" in options.only:
            looked_on(Path(name), options.pairs, options.iterations)


# ------------------------------------------------------------------ stores


def large(folder: Path) -> None:
    """Write a run of 100,000 episodes, unless it is there."""
    directory = folder / "large-1"
    if directory.exists():
        return
    folder.mkdir(parents=True)
    began = time.perf_counter()
    said = "a sentence of what an agent says in a turn. " * 8
    with RunStore.create(directory, CONFIG.format(note="x"), {"seed": 1}) as store:
        store.plan(0, ITERATIONS)
        for number in range(ITERATIONS):
            episodes = [
                episode(
                    f"0/{number}/{i}",
                    AGENTS[: 1 + (i + number) % 5],
                    number / ITERATIONS + i % 7 / 10,
                    said,
                )
                for i in range(EPISODES)
            ]
            metrics = {f"metric_{i}": float(number % (i + 2)) for i in range(12)}
            metrics |= {"entropy": 1 - number / ITERATIONS, "cost": 2.0}
            store.commit_iteration(0, number, episodes, metrics, seconds=0.5)
        store.save_evaluation("learned", outcomes(1.0, 0.8))
        store.save_evaluation("random", outcomes(0.5, 0.2))
        store.set_status("completed", seconds=200.0)
    size = (directory / "run.db").stat().st_size / 1e6
    count = ITERATIONS * EPISODES
    print(f"{count} episodes in {size:.0f} MB, written in {time.perf_counter() - began:.0f} s")


def many(folder: Path) -> None:
    """Write a thousand small runs in nested folders, unless they are there."""
    if folder.exists():
        return
    first = make_run(folder / "part-0" / "run-0", iterations=40)
    for number in range(1, RUNS):
        shutil.copytree(first, folder / f"part-{number % 10}" / f"run-{number}")


# ------------------------------------------------------------------ the server


class Server:
    """A studio in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def memory(self) -> float:
        """Return the most memory it ever held, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def cpu(self) -> float:
        """Return the processor time that it took so far, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def studio(folder: Path) -> Iterator[Server]:
    """Run `orchestrion studio` on a free port."""
    command = [PROGRAM, "studio", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            yield Server(process, int(line.rstrip("/\n").rpartition(":")[2]))
        finally:
            process.terminate()


def fetches(server: Server) -> None:
    """Print how long each page takes over HTTP."""
    for page, address in PAGES.items():
        first, *later = [fetch(server, address) for _ in range(REPEATS + 1)]
        print(f"{page:<12} first {first:6.0f} ms, then {median(later):6.0f} ms")


def fetch(server: Server, address: str) -> float:
    """Return the milliseconds from a request to the last byte of the answer."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    began = time.perf_counter()
    connection.request("GET", address, headers={"accept-encoding": "gzip"})
    answer = connection.getresponse()
    answer.read()
    took = 1000 * (time.perf_counter() - began)
    connection.close()
    assert answer.status == 200, (address, answer.status)
    return took


def paint(server: Server) -> None:
    """Print the first contentful paint of each page, if there is a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("first paint: Playwright is not installed")
        return
    look = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for name, address in PAGES.items():
            times = []
            for _ in range(3):
                context = browser.new_context()
                page = context.new_page()
                page.goto(f"http://127.0.0.1:{server.port}{address}", wait_until="load")
                # Not `wait_for_function`: it evaluates texts in the page, which its policy forbids.
                while (painted := page.evaluate(look)) is None:
                    page.wait_for_timeout(20)
                times.append(painted)
                context.close()
            print(f"{name:<12} first paint {median(times):6.0f} ms in a fresh profile")
        browser.close()


# ------------------------------------------------------------------ what looking on costs


def looked_on(folder: Path, pairs: int, iterations: int) -> None:
    """Print by how much a training is slower while a studio follows it."""
    times: dict[str, list[tuple[float, float]]] = {"alone": [], "looked on": []}
    studio_cpu = []
    train(folder / "warm-up", 1)
    for number in range(pairs):
        for kind in sorted(times, reverse=number % 2 == 1):
            root = folder / f"{kind}-{number}"
            root.mkdir()
            if kind == "alone":
                times[kind].append(train(root, iterations))
                continue
            with studio(root) as server, looking(server):
                began = server.cpu()
                times[kind].append(train(root, iterations))
                studio_cpu.append(server.cpu() - began)
        last = ", ".join(f"{kind} {spent[-1][0]:.2f} s" for kind, spent in times.items())
        print(f"pair {number + 1}: {last}", flush=True)
    for index, what in enumerate(("time", "processor time")):
        alone, watched = ([pair[index] for pair in spent] for spent in times.values())
        ratios = sorted(w / a for a, w in zip(alone, watched, strict=True))
        spread = f"{ratios[len(ratios) // 4]:.3f} to {ratios[3 * len(ratios) // 4]:.3f}"
        print(
            f"{what} of training alone {median(alone):.2f} s, looked on {median(watched):.2f} s; "
            f"of {pairs} pairs the median ratio {median(ratios):.3f}, quartiles {spread}"
        )
    print(f"processor time of the studio meanwhile {median(studio_cpu):.2f} s")


def train(root: Path, iterations: int) -> tuple[float, float]:
    """Train the example in a process of its own; return the time of its run, and its CPU time."""
    config = str(EXAMPLES / "quick.yaml")
    command = [PROGRAM, "train", config, "-o", f"run.directory={root}"]
    command += ["-o", f"trainer.iterations={iterations}"]
    before = children()
    subprocess.run(command, check=True, capture_output=True)
    spent = children() - before
    with RunReader(root / "quick-1") as reader:
        return reader.seconds, spent


@contextlib.contextmanager
def looking(server: Server) -> Iterator[None]:
    """Do what the page of a run does: listen to news, and fetch the page at each."""
    end = threading.Event()

    def look() -> None:
        while not end.is_set():
            connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
            with contextlib.suppress(OSError):
                connection.request("GET", "/live/quick-1")
                answer = connection.getresponse()
                if answer.status != 200:
                    end.wait(0.5)
                    continue
                while not end.is_set() and (line := answer.readline()):
                    if line.startswith(b"event: "):
                        fetch(server, "/run/quick-1")
            end.wait(0.5)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


if __name__ == "__main__":
    main()
