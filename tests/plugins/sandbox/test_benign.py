"""What honest programs do works behind the wall, and gives what it gives anywhere."""

from __future__ import annotations

import pytest
from attrs import frozen
from orchestrion_sandbox.interface import Limits, Program, Result

from tests.plugins.sandbox.conftest import Boxes


@frozen
class Control:
    """A program and what it must come to."""

    name: str
    program: str
    stdout: str = "done\n"
    exit_code: int = 0
    stdin: str = ""
    stderr: str = ""


CONTROLS = [
    Control("hello", "print('done')"),
    Control(
        "threads",
        """
import threading, queue
answers = queue.Queue()
threads = [threading.Thread(target=answers.put, args=(n * n,)) for n in range(10)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(answers.queue))
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(abs, range(-100, 0))))
""",
        "[0, 1, 4, 9, 16, 25, 36, 49, 64, 81]\n5050\n",
    ),
    Control(
        "a thread that outlives the main program",
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('done'))).start()",
    ),
    Control(
        "subprocess of the interpreter",
        """
import subprocess, sys
command = [sys.executable, "-c", "import json, sys; print(json.load(sys.stdin)[0] + sys.version)"]
done = subprocess.run(command, input='["same "]', capture_output=True, text=True)
print("done" if done.stdout == f"same {sys.version}\\n" else done)
""",
    ),
    Control(
        "fork and wait",
        """
import os
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, b"done")
    os._exit(7)
print(os.read(reader, 9).decode() if os.waitstatus_to_exitcode(os.wait()[1]) == 7 else "lost")
""",
    ),
    Control(
        "processes of multiprocessing",
        """
import multiprocessing
def work(connection, number):
    connection.send(number * 2)
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    total = 0
    for number in range(3):
        here, there = context.Pipe()
        process = context.Process(target=work, args=(there, number))
        process.start()
        total += here.recv()
        process.join()
    print(total)
""",
        "6\n",
    ),
    Control(
        "deep recursion",
        """
import sys
sys.setrecursionlimit(20_000)
def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)
print(depth(15_000))
def endless():
    return endless()
sys.setrecursionlimit(1000)
try:
    endless()
except RecursionError:
    print("caught")
""",
        "15000\ncaught\n",
    ),
    Control(
        "generators and comprehensions",
        """
def primes():
    found = []
    n = 2
    while True:
        if all(n % p for p in found):
            found.append(n)
            yield n
        n += 1
from itertools import islice
print([*islice(primes(), 8)], sum(x * x for x in range(10)))
""",
        "[2, 3, 5, 7, 11, 13, 17, 19] 285\n",
    ),
    Control(
        "asyncio",
        """
import asyncio
async def part(n):
    await asyncio.sleep(0.01)
    return n
async def main():
    answers = await asyncio.gather(*map(part, range(5)))
    print(answers, await asyncio.to_thread(sum, answers))
asyncio.run(main())
""",
        "[0, 1, 2, 3, 4] 10\n",
    ),
    Control(
        "a child process of asyncio",
        """
import asyncio, sys
async def main():
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print('done')", stdout=asyncio.subprocess.PIPE)
    print((await child.communicate())[0].decode(), end="")
asyncio.run(main())
""",
    ),
    Control(
        "the standard library",
        """
import array, bisect, calendar, collections, copy, csv, dataclasses, datetime, decimal, enum
import fractions, functools, hashlib, heapq, html, inspect, io, itertools, json, logging, math
import operator, pathlib, pickle, pprint, random, re, statistics, string, struct, textwrap, time
import types, typing, unittest, uuid, zlib, sqlite3, difflib, ast, secrets, tempfile, glob, zoneinfo
@dataclasses.dataclass(order=True)
class P:
    x: int
    y: int = 2
random.seed(3)
print(decimal.Decimal("0.1") + decimal.Decimal("0.2"), fractions.Fraction(1, 3) * 3, P(1) < P(2))
print(re.findall(r"\\w+", "a b"), json.dumps({"k": [1, None]}), 0 <= random.random() < 1)
print(hashlib.sha256(b"").hexdigest()[:8], statistics.median([3, 1, 2]), heapq.nsmallest(1, [2, 1]))
connection = sqlite3.connect(":memory:")
print(connection.execute("select 1 + 1").fetchone(), len(secrets.token_hex(4)))
""",
        "0.3 1 True\n['a', 'b'] {\"k\": [1, null]} True\ne3b0c442 2 [1]\n(2,) 8\n",
    ),
    Control(
        "files in the scratch folder",
        """
import pathlib, shutil, tempfile, os
pathlib.Path("a/b").mkdir(parents=True)
pathlib.Path("a/b/c.txt").write_text("done\\n")
shutil.copytree("a", "copy")
os.rename("copy/b/c.txt", "moved.txt")
with tempfile.NamedTemporaryFile("w+") as file:
    file.write(pathlib.Path("moved.txt").read_text())
    file.seek(0)
    print(file.read(), end="")
with tempfile.TemporaryDirectory():
    pass
os.chmod("moved.txt", 0o600)
os.utime("moved.txt")
""",
    ),
    Control(
        "a module beside the program",
        "open('other.py', 'w').write('X = \\'done\\'')\nimport other\nprint(other.X)",
    ),
    Control("unicode", "print('naïve Ωmega 漢字 🎉', '\\x00')", "naïve Ωmega 漢字 🎉 \x00\n"),
    Control("input", "print(sum(int(input()) for _ in range(3)))", "6\n", stdin="1\n2\n3\n"),
    Control(
        "input to its end",
        "import sys\nprint(len(sys.stdin.read()), sys.stdin.read() == '')",
        "200000 True\n",
        stdin="x" * 200_000,
    ),
    Control("no input", "try: input()\nexcept EOFError: print('done')"),
    Control("exit code", "import sys\nprint('done')\nsys.exit(3)", exit_code=3),
    Control("exit code of everything", "raise SystemExit(0)", ""),
    Control("exit with a text", "import sys; sys.exit('gone')", "", 1, stderr="gone\n"),
    Control("os._exit", "import os\nos._exit(9)", "", 9),
    Control(
        "exception",
        "def f():\n    raise ValueError('no')\nf()",
        "",
        1,
        stderr="Traceback (most recent call last):\n"
        '  File "main.py", line 3, in <module>\n'
        '  File "main.py", line 2, in f\n'
        "ValueError: no\n",
    ),
    Control("syntax error", "def", "", 1, stderr="SyntaxError: invalid syntax"),
    Control(
        "exception with standard error closed",
        "import sys\nsys.stderr.close()\nraise ValueError",
        "",
        1,
    ),
    Control("no standard output", "import sys\nprint('done')\nsys.stdout = None\nprint(1)"),
    Control("standard output closed", "import sys\nprint('done')\nsys.stdout.close()"),
    Control("at exit", "import atexit\natexit.register(print, 'done')"),
    Control(
        "signals of its own",
        """
import signal, time
signal.signal(signal.SIGALRM, lambda *_: print("done"))
signal.setitimer(signal.ITIMER_REAL, 0.02)
signal.pause()
""",
    ),
    Control(
        "big numbers", "print(len(str(3 ** 5000)), 10 ** 20 // 7)", "2386 14285714285714285714\n"
    ),
    Control("memory up to its limit", "x = bytearray(300 << 20)\nprint('done')"),
    Control("time", "import time\nassert time.time() > 1e9\ntime.sleep(0.01)\nprint('done')"),
    Control(
        "questions about limits and itself",
        """
import os, platform, resource, sys
resource.getrlimit(resource.RLIMIT_NOFILE), os.getpid(), os.cpu_count(), platform.python_version()
os.getcwd(), os.uname(), sys.argv, os.sched_getaffinity(0), resource.getrusage(0), os.umask(0o77)
print(sys.argv == ["main.py"] and __name__)
""",
        "__main__\n",
    ),
]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda c: c.name)
def test_it_works(boxes: Boxes, control: Control) -> None:
    runner, box = boxes("namespaces")
    limits = Limits(processes=16, output_bytes=1 << 18)
    result: Result = runner.run(box.run(Program(control.program), control.stdin.encode(), limits))
    assert (result.stdout.decode(), result.exit_code) == (control.stdout, control.exit_code), result
    assert result.status == ("ok" if control.exit_code == 0 else "error")
    if control.stderr:
        assert control.stderr in result.stderr.decode()
    elif control.exit_code == 0:
        assert result.stderr == b""


def test_files_and_arguments_arrive_and_are_gone_with_the_run(boxes: Boxes) -> None:
    runner, box = boxes("namespaces")
    source = "import sys\nprint(open('data/in put.bin', 'rb').read(), sys.argv)\nopen('left', 'w')"
    program = Program(source, {"data/in put.bin": b"\0\xff"}, ("one", "zwei ü"))
    result = runner.run(box.run(program))
    assert result.stdout.decode() == "b'\\x00\\xff' ['main.py', 'one', 'zwei ü']\n"
    assert runner.run(box.run(Program("import os; print(os.listdir())"))).stdout == b"[]\n"


def test_output_is_kept_up_to_the_last_byte_allowed(boxes: Boxes) -> None:
    runner, box = boxes("namespaces")
    source = "import os\nfor fd in (1, 2): os.write(fd, b'x' * 5000)"
    exact = runner.run(box.run(Program(source), limits=Limits(output_bytes=5000)))
    assert (exact.status, exact.truncated, len(exact.stdout)) == ("ok", False, 5000)
    less = runner.run(box.run(Program(source), limits=Limits(output_bytes=4999)))
    assert (less.status, less.truncated, len(less.stdout)) == ("flood", True, 4999)
