"""A supervisor to be killed: opens a backend and has a program in it wait, with a child."""

from __future__ import annotations

import asyncio
import sys

from orchestrion_sandbox.interface import Limits, Program

from tests.plugins.sandbox.scene import PRELUDE, strong


async def main(backend: str, world: str) -> None:
    """Runs until it is killed."""
    child = "" if backend == "landlock" else "os.fork() or os.setsid()\n"
    program = Program(PRELUDE + child + "time.sleep(100)", arguments=(world,))
    async with strong(backend) as box:
        await asyncio.gather(*(box.run(program, limits=Limits(wall_seconds=99)) for _ in range(2)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
