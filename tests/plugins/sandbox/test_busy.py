"""What a hostile program answers, and how busy the supervisor is, are nobody else's trouble.

`ORCHESTRION_SANDBOX_CROWD=10` runs the crowd at its full size, 50 beside 50, ten times;
`ORCHESTRION_SANDBOX_LOAD=12` has that many processes spin beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import evolve
from orchestrion_sandbox import Case, Limits, Program, judge_calls, judge_statements
from orchestrion_sandbox.inside.plain import MOST_VALUES, crowded, encode
from orchestrion_sandbox.judge import JUDGE_LIMITS
from orchestrion_sandbox.warm import WarmBox

from tests.plugins.sandbox.candidates import BENIGN, CASES, ENTRY, WRONG
from tests.plugins.sandbox.scene import PRELUDE, SMALL, until_none
from tests.plugins.sandbox.test_lifecycle import Marked, every_backend, given_box

# ---------------------------------------------------------------- a busy event loop

HOARD = """
for _ in range(6):
    if os.fork() == 0:
        kept = bytearray(b"x") * (60 << 20)
        time.sleep(60)
time.sleep(60)
"""


@pytest.mark.parametrize("backend", ["namespaces"])
@given_box
async def test_memory_is_limited_while_the_event_loop_is_busy(box: WarmBox, backend: str) -> None:
    marked = Marked()
    program = Program(PRELUDE + HOARD, arguments=(marked.world,))
    run = asyncio.ensure_future(box.run(program, limits=evolve(SMALL, wall_seconds=50)))
    await marked.appear()
    assert until_none(marked.pids, 20) == []  # nothing else happens on this thread
    assert (await run).status == "memory"


@every_backend
@given_box
async def test_the_wall_clock_does_not_wait_for_the_event_loop(box: WarmBox, backend: str) -> None:
    marked = Marked()
    run = asyncio.ensure_future(box.run(marked.sleeper(), limits=evolve(SMALL, wall_seconds=1)))
    await marked.appear()
    assert until_none(marked.pids, 20) == []
    assert (await run).status == "timeout"


# ---------------------------------------------------------------- hostile replies

PRIME = 2**61 - 1
MANY = 35_000


def _pairs(keys: Iterator[str]) -> str:
    return '{"$": "dict", "v": [' + ",".join(f"[{key},0]" for key in keys) + "]}"


def _members(kind: str, items: Iterator[str]) -> str:
    return f'{{"$": "{kind}", "v": [' + ",".join(items) + "]}"


# The text of a reply's value, and what was wanted of the same kind and size.
REPLIES: dict[str, Callable[[], tuple[str, Any]]] = {
    "keys of one hash": lambda: (
        _pairs(str(k * PRIME) for k in range(MANY)),
        dict.fromkeys(range(MANY)),
    ),
    "members of one hash": lambda: (
        _members("set", (str(k * PRIME) for k in range(MANY))),
        set(range(MANY)),
    ),
    "members of one hash, frozen": lambda: (
        _members("frozenset", (str(k * PRIME) for k in range(MANY))),
        frozenset(range(MANY)),
    ),
    "floats of one hash": lambda: (
        _pairs(f"{k * PRIME * 1024.0}" for k in range(MANY)),
        dict.fromkeys(range(MANY)),
    ),
    "keys that share their low bits": lambda: (
        _pairs(str(k << 40) for k in range(MANY)),
        dict.fromkeys(range(MANY)),
    ),
    "tuples as keys": lambda: (
        _pairs(_members("tuple", iter((str(k * PRIME), "0"))) for k in range(12_000)),
        dict.fromkeys((k, 0) for k in range(12_000)),
    ),
    "many values": lambda: ("[" + ",".join("1" for _ in range(500_000)) + "]", [1] * 500_000),
    "many empty objects": lambda: ("[" + ",".join("{}" for _ in range(300_000)) + "]", []),
    "many lists": lambda: ("[" + ",".join("[]" for _ in range(300_000)) + "]", [[]] * 300_000),
    "a deep list": lambda: ("[" * 500_000 + "]" * 500_000, []),
    "a deep object": lambda: ('{"$": "list", "v": ' * 20_000 + "0" + "}" * 20_000, []),
    "a long number": lambda: ("9" * 1_000_000, 9),
    "a long number, tagged": lambda: (
        '{"$": "int", "v": "0x' + "f" * 1_000_000 + '"}',
        1 << 4_000_000,
    ),
    "many long numbers": lambda: ("[" + ",".join("9" * 4000 for _ in range(250)) + "]", []),
    "a long float": lambda: ("0." + "1" * 1_000_000, 0.1),
    "many floats": lambda: ("[" + ",".join("1.5e300" for _ in range(99_000)) + "]", [1.5] * 99_000),
    "one object of many keys": lambda: (
        "{" + ",".join(f'"{k}": 0' for k in range(70_000)) + "}",
        {},
    ),
    "escapes": lambda: ('"' + "\\n" * 500_000 + '"', "\n" * 500_000),
    "quotes": lambda: ("[" + ",".join('""' for _ in range(300_000)) + "]", [""] * 300_000),
    "halves of characters": lambda: ('{"$": "str", "v": "' + "eda080" * 150_000 + '"}', ""),
    "bytes": lambda: ('{"$": "bytes", "v": "' + "00" * 500_000 + '"}', b"\0" * 500_000),
}

ANSWERS = """
import json, sys
frame = sys._getframe()
while not hasattr(frame.f_locals.get("line"), "_number"):
    frame = frame.f_back
line = frame.f_locals["line"]
text = '{{"id": %s, "value": %s}}' % (json.dumps(line._number), {value})
line._send(text.encode() + b"\\n")
line.send = lambda message: None
line.receive = lambda: None
"""


@contextlib.contextmanager
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """CPU seconds of every step of the event loop."""
    taken: list[float] = []
    step = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        step(handle)
        taken.append(time.thread_time() - began)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield taken


@pytest.mark.parametrize("name", REPLIES)
def test_no_reply_holds_up_the_event_loop(
    runner: asyncio.Runner, box: WarmBox, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    value, wanted = REPLIES[name]()
    assert len(value) < JUDGE_LIMITS.output_bytes
    short = f"__import__('zlib').decompress({_packed(value)!r}).decode()"
    source = ANSWERS.format(value=short)

    async def judged() -> bool:
        verdict = await judge_calls(box, source, "f", [Case((), wanted)])
        return verdict.passed

    with pauses(monkeypatch) as taken:
        passed = runner.run(judged())
    assert not passed  # even the right value: it has not come to its end
    assert max(taken) < 0.1, f"{name}: {max(taken):.3f} CPU seconds"
    if os.environ.get("ORCHESTRION_SANDBOX_CROWD"):
        print(f"{name}: {1000 * max(taken):.1f} ms")


def _packed(text: str) -> bytes:
    import zlib

    return zlib.compress(text.encode())


def test_what_stands_in_texts_is_not_counted() -> None:
    import json

    assert not crowded(json.dumps("[,{" * MOST_VALUES + '"' * 99 + "\\" * 99).encode())
    assert crowded(b"[" + b"1," * (MOST_VALUES + 1) + b"1]")
    assert crowded(b"[" + b'"",' * (MOST_VALUES + 1) + b"1]")


def test_too_much_for_one_answer_is_refused_honestly(runner: asyncio.Runner, box: WarmBox) -> None:
    source = "def f():\n    return [[[], []] for _ in range(70_000)]"
    verdict = runner.run(judge_calls(box, source, "f", [Case((), 0)]))
    assert (verdict.outcomes[0].error, verdict.forgeries) == ("Refused", ())
    assert "more than" in verdict.outcomes[0].text


def test_large_honest_answers_still_pass(runner: asyncio.Runner, box: WarmBox) -> None:
    wanted = [
        {k: str(k) for k in range(20_000)},
        {(k, -k) for k in range(5_000)},
        [(k, float(k)) for k in range(10_000)],
    ]
    source = "def f(at):\n    return [\n"
    source += "        {k: str(k) for k in range(20_000)},\n"
    source += "        {(k, -k) for k in range(5_000)},\n"
    source += "        [(k, float(k)) for k in range(10_000)],\n    ][at]\n"
    cases = [Case((at,), value) for at, value in enumerate(wanted)]
    verdict = runner.run(judge_calls(box, source, "f", cases))
    assert verdict.passed, [(o.error, o.text) for o in verdict.outcomes]
    assert encode(wanted)


# ---------------------------------------------------------------- the whole verdict

SLEEPY = "import time\ndef f(x):\n    time.sleep(60)\n    return x\n"
PATIENT = Limits(wall_seconds=120, output_bytes=1 << 20)


def test_a_verdict_has_a_total_time_limit(runner: asyncio.Runner, box: WarmBox) -> None:
    """A program may be started again after a hang, and each case may hang: not without end."""
    calls = judge_calls(box, SLEEPY, "f", [Case((1,), 1)] * 3, limits=PATIENT, seconds=1.0)
    statements = judge_statements(box, SLEEPY, "f", ["f(1)"] * 3, limits=PATIENT, seconds=1.0)
    for judging in (calls, statements):
        verdict = runner.run(judging)
        assert verdict.share == 0
        assert [o.error for o in verdict.outcomes] == ["OutOfTime", "NotReached", "NotReached"]
        assert verdict.outcomes[0].text == "the verdict took more than 1 seconds"
    assert runner.run(judge_calls(box, "def f(x): return x", "f", [Case((1,), 1)])).passed


# ---------------------------------------------------------------- a crowd

HOSTILE = {
    "colliding keys": "class C(dict):\n"
    "    def items(self): return [(k * (2**61 - 1), 0) for k in range(30_000)]\n"
    f"def {ENTRY}(*args): return C()\n",
    "memory": f"def {ENTRY}(*args): return len([bytearray(1 << 20) for _ in range(10_000)])\n",
    "processes": "import os, time\n"
    f"def {ENTRY}(*args):\n    for _ in range(50):\n        os.fork()\n    time.sleep(1)\n",
    "attributes": f"import os\ndef {ENTRY}(*args):\n"
    "    for n in range(9999): os.setxattr(0, f'user.a{n}', b'x' * 65536)\n",
    "output": f"def {ENTRY}(*args):\n    while True: print('x' * 9999)\n",
    "signals": f"import os\ndef {ENTRY}(*args): os.kill(-1, 9)\n",
    "buffers": "import os, socket, time\n"
    f"def {ENTRY}(*args):\n    for _ in range(5): os.fork()\n"
    "    kept = [socket.socketpair() for _ in range(20)]\n    time.sleep(1)\n",
}


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that spin."""
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def test_every_verdict_is_right_in_a_crowd(runner: asyncio.Runner, box: WarmBox) -> None:
    """Hostile programs beside honest ones, all at once."""
    repeats = int(os.environ.get("ORCHESTRION_SANDBOX_CROWD", "0"))
    quick = [wrong.source for wrong in WRONG.values() if not wrong.endless]
    hostile = [*HOSTILE.values(), *quick]
    endless = [wrong.source for wrong in WRONG.values() if wrong.endless]
    hostile = [*hostile, *endless][:50] if repeats else hostile[:12]
    honest = list(BENIGN.values()) * (5 if repeats else 1)

    async def judged(source: str, right: bool) -> str:
        limits = (
            evolve(JUDGE_LIMITS, wall_seconds=300)
            if right
            else evolve(JUDGE_LIMITS, cpu_seconds=1, wall_seconds=15)
        )
        verdict = await judge_calls(box, source, ENTRY, CASES, limits=limits)
        return "" if verdict.passed is right else f"{source[:300]}: {verdict}"

    async def crowd() -> list[str]:
        programs = [(source, False) for source in hostile] + [(source, True) for source in honest]
        programs = programs[::2] + programs[1::2]
        return await asyncio.gather(*(judged(*program) for program in programs))

    with load(int(os.environ.get("ORCHESTRION_SANDBOX_LOAD", "0"))):
        for number in range(repeats or 1):
            began = time.monotonic()
            wrong = [text for text in runner.run(crowd()) if text]
            assert wrong == [], f"round {number}: {len(wrong)} of {len(hostile) + len(honest)}"
            if repeats:
                sizes = f"{len(hostile)} hostile, {len(honest)} honest"
                spent = time.monotonic() - began
                print(f"round {number}: {sizes}, {spent:.0f} s, load {os.getloadavg()[0]:.1f}")
