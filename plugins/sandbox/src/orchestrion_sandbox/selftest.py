"""A few small attacks on each backend, for `orchestrion doctor`.

Each program tries something that a sandbox of its level must not allow, and prints HELD if it
failed. That is believed only because the programs are ours; the tests of this package
(tests/plugins/sandbox) judge from outside.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from orchestrion_sandbox.inside.program import ENVIRONMENT
from orchestrion_sandbox.interface import Limits, Program, Result, SandboxError
from orchestrion_sandbox.sandboxes import choose
from orchestrion_sandbox.supervising import Box

LIMITS = Limits(
    wall_seconds=5.0, cpu_seconds=1, memory_mb=128, processes=8, output_bytes=1 << 14, files=64
)


@frozen
class Attack:
    """A program that tries something, and the level from which on it must fail.

    `held` lists the statuses of a run that was kept from it; for `ok`, it also has to print HELD.
    """

    name: str
    level: int
    source: str
    held: tuple[str, ...] = ("ok",)

    def breached(self, result: Result) -> bool:
        """Return whether the result shows that the attack got through."""
        silent = result.status == "ok" and result.stdout.strip() != b"HELD"
        return result.status not in self.held or silent


_TRY = """
try:
    {action}
except {errors}:
    print("HELD")
"""


_ENVIRONMENT = f"""
import os
ours = {sorted(ENVIRONMENT)} + ["LC_CTYPE"]
print("HELD" if set(os.environ) <= set(ours) else os.environ)
"""


def _refused(name: str, action: str, level: int = 2, errors: str = "OSError") -> Attack:
    return Attack(
        name, level, "import os, socket, ctypes\n" + _TRY.format(action=action, errors=errors)
    )


ATTACKS = (
    _refused("reading a file of the host", "open({canary}).read()"),
    _refused("writing outside its folder", "open({folder} + '/written', 'w')"),
    _refused("reaching a port of the host", "socket.create_connection(('127.0.0.1', {port}), 1)"),
    _refused("an abstract socket", "socket.socket(socket.AF_UNIX).bind('\\0orchestrion')"),
    _refused("signalling the process that started it", "os.kill({pid}, 0)"),
    Attack("the environment", 2, _ENVIRONMENT),
    Attack("endless work", 2, "while True: pass", ("cpu", "timeout")),
    Attack("endless output", 2, "while True: print('x' * 1000)", ("flood",)),
    Attack(
        "more memory than it may have",
        2,
        "try:\n    x = bytearray(1 << 28)\nexcept MemoryError:\n    print('HELD')",
    ),
    _refused("memory in attributes of files", "os.setxattr(0, 'user.a', b'x' * 65536)"),
    _refused(
        "more files than it may have",
        "for n in range(300): open(f'f{n}', 'w').close()",
    ),
    Attack(
        "endless processes",
        2,
        "import os\ntry:\n    for _ in range(50):\n"
        "        if os.fork() == 0:\n            import time; time.sleep(3); os._exit(0)\n"
        "except OSError:\n    print('HELD', flush=True)\n    os._exit(0)",
    ),
)


async def breaches(box: Box) -> list[str]:
    """Run all attacks; return the names of those that got through."""
    with _bait() as facts:
        through = []
        for attack in ATTACKS:
            source = attack.source
            for name, value in facts.items():
                source = source.replace(f"{{{name}}}", repr(value))
            result = await box.run(Program(source), limits=LIMITS)
            if box.level >= attack.level and attack.breached(result):
                through.append(f"{attack.name} ({result.status})")
    return through


@contextmanager
def _bait() -> Iterator[dict[str, object]]:
    """Make what the attacks try to reach: a file, a folder, a port and a process of the host."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        canary = Path(folder, "canary")
        canary.write_text(secrets.token_hex())
        port = server.getsockname()[1]
        yield {"canary": str(canary), "folder": folder, "port": port, "pid": os.getpid()}


def findings() -> Iterator[tuple[str, str, str]]:
    """Yield a row of `orchestrion doctor` for each backend: its level and what got through."""
    for name in ("namespaces", "bwrap", "landlock"):
        try:
            yield asyncio.run(_finding(name))
        except SandboxError as error:
            yield "sandbox", "note", str(error)
    try:
        asyncio.run(_opened())
    except SandboxError as error:
        yield "sandbox", "problem", f"the default backend cannot be used: {error}"


async def _opened() -> None:
    async with choose().open():
        pass


async def _finding(name: str) -> tuple[str, str, str]:
    async with choose(name).open() as box:
        through = await breaches(box)
        what = f"{box.backend}, level {box.level}"
        if through:
            return "sandbox", "problem", f"{what}: {', '.join(through)} got through"
        return "sandbox", "ok", f"{what}: held all of {len(ATTACKS)} attacks"
