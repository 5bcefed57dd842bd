"""Logs whose truth is known by enumeration: two contexts, two or three choices."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrion_logged import Context, Logged, LogWriter

WORTH = {"dog": {"small": 0.2, "large": 0.9}, "cat": {"small": 0.8, "large": 0.6}}
"""What each choice is worth on average, by category."""


def decision(
    category: str,
    choice: str,
    reward: float | None = None,
    propensity: float | None = 0.5,
    allowed: Sequence[str] | None = ("small", "large"),
) -> Logged:
    """One line of a log."""
    return Logged(
        Context(text=f"a {category}", category=category),
        choice,
        None if allowed is None else tuple(allowed),
        propensity,
        reward,
    )


def pets(count: int, large: float = 0.5, seed: int = 1) -> list[Logged]:
    """Rewards of 0 and 1 by `WORTH`; `large` is how likely that is chosen."""
    draw, lines = random.Random(seed), []
    for i in range(count):
        category = ("dog", "cat")[i % 2]
        choice = "large" if draw.random() < large else "small"
        reward = float(draw.random() < WORTH[category][choice])
        lines.append(decision(category, choice, reward, large if choice == "large" else 1 - large))
    return lines


def written(path: Path, lines: Sequence[Logged]) -> None:
    """Write a log."""
    with LogWriter(path) as writer:
        for line in lines:
            writer.append(line)


def team(folder: Path, rows: Sequence[tuple[str, str]], **sections: Any) -> Path:
    """Write the config of a team of two functions, with questions and answers for all splits."""
    data = {
        "task": {
            "use": "jsonl",
            "rows": [{"question": question, "answer": answer} for question, answer in rows],
            "split": {"train": 0.5, "validation": 0.0, "test": 0.5},
        },
        "agents": {
            name: {"use": "function", "function": "os.path:basename"}
            for name in ("billing", "technical")
        },
        "policy": {"use": "random"},
        **sections,
    }
    path = folder / "team.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path
