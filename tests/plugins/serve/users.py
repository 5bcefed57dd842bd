"""Simulated users of a served team: recorded answers to their questions, and what they think."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orchestrion import Key

MODELS = {"small": 0.05, "large": 0.3}
"""What each model costs."""
WORTH = {
    "billing": {"small": 0.9, "large": 0.9},
    "account": {"small": 0.6, "large": 0.8},
    "outage": {"small": 0.2, "large": 0.85},
    "legal": {"small": 0.1, "large": 0.7},
}
"""How often an answer is good, by the question's group and the model."""
COST_WEIGHT = 0.2
TEAM = """
seed: 3
task: {{use: recorded, table: questions.jsonl, prices: prices.csv, unit: none,
        split: {{train: 0.3, validation: 0.0, test: 0.7}}}}
agents: {{ask: {{use: recorded, models: [small, large]}}}}
policy: {policy}
reward: {{use: outcome-minus-cost, cost_weight: 0.2}}
limits: {{turns: 2}}
evaluation: {{episodes: 20}}
"""


class Desk:
    """Questions with recorded answers, whose worth is drawn by `WORTH`.

    Args:
        folder: where the table and the config `desk.yaml` are written.
        questions: how many.
        seed: draws them.
        policy: of the team; by default the small model answers everything.
    """

    def __init__(
        self,
        folder: Path,
        questions: int,
        seed: int = 1,
        policy: str = "{use: sequence, steps: ['ask:small']}",
    ) -> None:
        key, groups = Key(seed), list(WORTH)
        self.rows: dict[str, dict[str, Any]] = {}
        for i in range(questions):
            group = groups[int(key.child("group", i).uniform() * len(groups))]
            scores = {
                model: int(key.child("score", i, model).uniform() < WORTH[group][model])
                for model in MODELS
            }
            self.rows[f"q{i}"] = {"id": f"q{i}", "group": group, "scores": scores}
        lines = "".join(json.dumps(row) + "\n" for row in self.rows.values())
        (folder / "questions.jsonl").write_text(lines)
        prices = "".join(f"{model},{price}\n" for model, price in MODELS.items())
        (folder / "prices.csv").write_text("model,price\n" + prices)
        self.config = folder / "desk.yaml"
        self.config.write_text(TEAM.format(policy=policy))

    def score(self, question: str, answer: str) -> float:
        """Return what a user thinks of an answer."""
        return float(self.rows[question]["scores"][answer.removeprefix("asks ")])

    def value(self, choice: Mapping[str, str] | str) -> float:
        """Return the mean reward of a choice of models by group, over all questions."""
        total = 0.0
        for row in self.rows.values():
            model = choice if isinstance(choice, str) else choice[row["group"]]
            total += row["scores"][model] - COST_WEIGHT * MODELS[model]
        return total / len(self.rows)


class Client:
    """Asks a server, and tells it what it thinks; one connection for all."""

    def __init__(self, address: str, key: str = "") -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        self._headers = {"content-type": "application/json"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"

    def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        self._connection.request(
            "POST", path, json.dumps(body), {**self._headers, **(headers or {})}
        )
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def ask(self, question: str, model: str = "desk", name: str = "") -> tuple[str, str]:
        """Return the id and the text of an answer."""
        body = {"model": model, "messages": [{"role": "user", "content": question}]}
        headers = {"idempotency-key": name} if name else {}
        status, reply = self.post("/v1/chat/completions", body, headers)
        assert status == 200, reply
        return reply["id"], reply["choices"][0]["message"]["content"]

    def tell(self, identity: str, score: float) -> tuple[int, Any]:
        """Send feedback."""
        return self.post("/v1/feedback", {"id": identity, "score": score})

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def asked(
    desk: Desk, requests: int, key: Key, tells: float = 0.5
) -> Iterator[tuple[str, str, bool]]:
    """Yield names of requests, their questions, and whether there will be feedback."""
    questions = list(desk.rows)
    for i in range(requests):
        question = questions[int(key.child("question", i).uniform() * len(questions))]
        yield f"request-{i}", question, key.child("tells", i).uniform() < tells


def use(
    desk: Desk,
    address: str,
    requests: int,
    key: Key,
    tells: float = 0.5,
    model: str = "desk",
) -> Sequence[str]:
    """Ask, and send feedback on a share of the answers, by default half; return the ids."""
    client, ids = Client(address), []
    for name, question, told in asked(desk, requests, key, tells):
        identity, answer = client.ask(question, model, f"{key.hex()[:6]}-{name}")
        ids.append(identity)
        if told:
            status, reply = client.tell(identity, desk.score(question, answer))
            assert (status, reply["status"]) == (200, "recorded"), reply
    client.close()
    return ids
