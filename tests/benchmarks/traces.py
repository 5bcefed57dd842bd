"""A run of chat agents as traces in a real MLflow server, read back through its API.

    python dev.py python -m tests.benchmarks.traces MLFLOW

MLFLOW is the program of a full MLflow 3 with its server (`pip install mlflow`, in an environment of
its own: it is large). The team of docs/examples/chat.yaml runs on the offline service, with a
price, and is traced as it goes. Prints the tree of an episode with MLflow's own types, tokens and
cost; checks that tokens and cost of all traces are those of the run, to the last token; and that
sending the run again adds nothing.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from orchestrion.runs import RunReader
from tests.benchmarks.support import running
from tests.end_to_end.support import EXAMPLES, here

HEADER = "x-mlflow-experiment-id"


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        store = ("--backend-store-uri", f"sqlite:///{name}/mlflow.db", "--workers", "1")
        with running(sys.argv[1], "server", *store, folder=Path(name)) as url:
            check(Path(name), url)


def check(folder: Path, url: str) -> None:
    created = ask(f"{url}/api/2.0/mlflow/experiments/create", {"name": f"traces-{time.time():.0f}"})
    experiment = created["experiment_id"]
    changes = (
        "task.max_problems=2",
        "evaluation.baselines={}",
        "models.main.price={input: 1.0, output: 4.0}",
        f"traces={{use: otlp, endpoint: {url}/v1/traces, contents: true,"
        f" headers: {{{HEADER}: '{experiment}'}}}}",
    )
    words = [word for change in changes for word in ("-o", change)]
    done = here("train", str(EXAMPLES / "chat.yaml"), *words, cwd=folder)
    print("\n".join(line for line in done.stderr.splitlines() if "traces" in line) or "sent live")

    traces = found(url, experiment)
    with RunReader(folder / "runs/chat-1") as run:
        spend, episodes = run.spend(), len(list(run.episodes()))
    totals = summed(traces)
    print(f"MLflow has {len(traces)} traces of {episodes} episodes")
    print(f"tokens in, out: {totals[0]}, {totals[1]}; run: {spend.input_tokens}, ", end="")
    print(f"{spend.output_tokens};  US dollars: {totals[2]:.6f}; run: {spend.usd:.6f}")
    first = min(traces, key=lambda trace: trace["trace_id"])
    spans = ask(f"{url}/api/3.0/mlflow/traces/get?trace_id={first['trace_id']}")["trace"]["spans"]
    show(spans)
    assert len(traces) == episodes
    assert totals[:2] == (spend.input_tokens, spend.output_tokens)
    assert abs(totals[2] - spend.usd) < 1e-9

    target = ("--endpoint", f"{url}/v1/traces", "--header", f"{HEADER}={experiment}")
    began = time.monotonic()
    here("otel", "chat-1", *target, "--contents", cwd=folder)
    print(f"sent again in {time.monotonic() - began:.1f} s: ", end="")
    again = found(url, experiment)
    assert len(again) == len(traces)
    assert summed(again) == totals
    print("the same traces, tokens and cost")


def found(url: str, experiment: str) -> list[dict[str, Any]]:
    """All traces of an experiment."""
    place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
    asked = {"locations": [place], "max_results": 100}
    traces: list[dict[str, Any]] = ask(f"{url}/api/3.0/mlflow/traces/search", asked)["traces"]
    return traces


def summed(traces: list[dict[str, Any]]) -> tuple[int, int, float]:
    """Input tokens, output tokens and US dollars, as MLflow adds them up."""
    usage = [json.loads(trace["trace_metadata"]["mlflow.trace.tokenUsage"]) for trace in traces]
    costs = [json.loads(trace["trace_metadata"]["mlflow.trace.cost"]) for trace in traces]
    return (
        sum(one["input_tokens"] for one in usage),
        sum(one["output_tokens"] for one in usage),
        sum(one["total_cost"] for one in costs),
    )


def show(spans: list[dict[str, Any]]) -> None:
    """Print the tree of a trace, and hold its types to those that the spans were made for."""
    types = {"invoke_workflow": "CHAIN", "plan": "AGENT", "invoke_agent": "AGENT"}
    types |= {"chat": "CHAT_MODEL", "execute_tool": "TOOL"}
    children: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        children.setdefault(span.get("parent_span_id") or "", []).append(span)

    def below(parent: str, depth: int) -> None:
        for span in sorted(children.get(parent, ()), key=lambda one: one["start_time_unix_nano"]):
            values = {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}
            kind = values.get("mlflow.spanType")
            assert kind == types[span["name"].split()[0]], (span["name"], kind)
            milliseconds = (span["end_time_unix_nano"] - span["start_time_unix_nano"]) / 1e6
            line = (
                f"{'  ' * depth}{span['name']:<{40 - 2 * depth}} {kind:<11} {milliseconds:7.1f} ms"
            )
            if "gen_ai.usage.input_tokens" in values:
                tokens = values["gen_ai.usage.input_tokens"], values["gen_ai.usage.output_tokens"]
                line += f"  {tokens[0]} + {tokens[1]} tokens  {values['gen_ai.usage.cost']:.6f} USD"
            print(line)
            below(span["span_id"], depth + 1)

    below("", 0)
    assert all(len(base64.b64decode(span["span_id"])) == 8 for span in spans)


def ask(url: str, body: Any = None) -> dict[str, Any]:
    """The JSON answer to a GET, or with a body to a POST."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"content-type": "application/json"})
    with urlopen(request, timeout=120) as answer:
        result: dict[str, Any] = json.loads(answer.read())
    return result


if __name__ == "__main__":
    main()
