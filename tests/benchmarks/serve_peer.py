"""CPU a request of `orchestrion serve` beside LiteLLM's proxy, which is installed elsewhere.

    python3 -m venv peer && peer/bin/pip install 'litellm[proxy]'
    python dev.py python -m tests.benchmarks.serve_peer peer/bin/litellm

The proxy answers by itself (`mock_response`) and asks no model; ours runs a team of three no-op
agents. Both are processes of their own, asked in turns by the same client; best of three.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.serve import BODY, CONFIG, burst

COUNT, REPEATS = 256, 3
LEVELS = (1, 32)
PROXY = {
    "model_list": [
        {
            "model_name": "team",
            "litellm_params": {"model": "openai/none", "api_key": "none", "mock_response": "said"},
        }
    ],
    # Ours checks no key either.
    "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
}


def cpu(process: int) -> float:
    """Return the CPU seconds of a process and its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(port: int, started: subprocess.Popen[bytes]) -> None:
    """Return when a completion is answered."""
    for _ in range(600):
        assert started.poll() is None, "the server has ended"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/chat/completions", BODY, headers)
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    raise SystemExit("the server does not answer")


def main(litellm: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        team, proxy = Path(folder, "team.yaml"), Path(folder, "proxy.yaml")
        team.write_text(CONFIG, encoding="utf-8")
        proxy.write_text(json.dumps(PROXY), encoding="utf-8")
        commands = {
            "litellm": [litellm, "--config", str(proxy), "--host", "127.0.0.1"],
            "serve": [sys.executable, "-m", "orchestrion", "serve", str(team)],
        }
        started, ports = {}, {}
        try:
            for name, command in commands.items():
                ports[name] = free_port()
                words = [*command, "--port", str(ports[name])]
                quiet = subprocess.DEVNULL
                started[name] = subprocess.Popen(words, stdout=quiet, stderr=quiet)
            for name, process in started.items():
                wait_for(ports[name], process)
            for level in LEVELS:
                best = dict.fromkeys(commands, float("inf"))
                for _ in range(REPEATS):
                    for name, process in started.items():
                        before = cpu(process.pid)
                        seconds = asyncio.run(burst(ports[name], level, COUNT))
                        used = (cpu(process.pid) - before) / len(seconds) * 1e6
                        best[name] = min(best[name], used)
                words = [f"{name} {used:6.0f} us" for name, used in best.items()]
                ratio = best["serve"] / best["litellm"]
                print(f"{level:4} at once, CPU a request: {', '.join(words)}; ratio {ratio:.2f}")
        finally:
            for process in started.values():
                process.kill()
                process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
