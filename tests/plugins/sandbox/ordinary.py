"""Run every attack as whoever runs this, and print what each reached, a line of JSON each."""

from __future__ import annotations

import asyncio
import json
import sys

from orchestrion_sandbox.interface import SandboxError

from tests.plugins.sandbox.attacks.every import ATTACKS
from tests.plugins.sandbox.scene import Attack, Scene, strong


async def main(backend: str) -> None:
    """Print one line an attack, or why the backend cannot be opened."""
    try:
        async with strong(backend) as box:
            together = asyncio.Semaphore(3)

            async def attempt(attack: Attack) -> None:
                async with together:
                    with Scene() as scene:
                        result = await scene.play(box, attack)
                        breaches = await asyncio.to_thread(scene.breaches, attack, result)
                ended = {"status": result.status, "result": repr(result)[:2000]}
                print(json.dumps({"name": attack.name, "breaches": breaches} | ended), flush=True)

            await asyncio.gather(*map(attempt, ATTACKS))
    except SandboxError as error:
        print(json.dumps({"failed": str(error)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
