"""What one decision of `orchestrion.router` costs, by policy and number of earlier turns.

python dev.py python -m tests.benchmarks.router
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import orchestrion as o

POLICIES: dict[str, dict[str, Any]] = {
    "round-robin": {},
    "neural": {"hidden": [32]},
}
COUNT = 2000


def main() -> None:
    names = ["planner", "searcher", "coder"]
    with tempfile.TemporaryDirectory() as folder:
        for policy, settings in POLICIES.items():
            config = Path(folder, "team.yaml")
            data = {
                "task": {"use": "relay"},
                "agents": {name: {"use": "bench-agent"} for name in names},
                "policy": {"use": policy, **settings},
            }
            config.write_text(json.dumps(data), encoding="utf-8")
            began = time.perf_counter()
            route = o.router(config)
            route("feature")
            print(f"{policy}: opened in {time.perf_counter() - began:.2f} s")
            for turns in (0, 2, 10):
                messages = [{"role": "user", "content": "feature"}]
                for i in range(turns):
                    messages.append({"role": "assistant", "name": names[i % 3], "content": "done"})
                began = time.process_time()
                for _ in range(COUNT):
                    route(messages)
                used = (time.process_time() - began) / COUNT
                print(f"{policy}, {turns:2} turns: {used * 1e6:6.0f} us CPU a decision")


if __name__ == "__main__":
    main()
