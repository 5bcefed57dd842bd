"""A team that learned by category is told the category of a question, or says it misses it."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import orchestrion
from orchestrion import UsageError
from orchestrion.cli import main
from orchestrion.runs import TeamAnswer

CONFIG = """
task: {use: jsonl, file: FOLDER/rows.jsonl, category: kind}
agents:
  left: {use: scripted, lines: [{content: L, cost: 1}]}
  right: {use: scripted, lines: [{content: R, cost: 1}]}
policy: {use: values}
trainer: {use: TRAINER, episodes: 100}
reward: {use: outcome-minus-cost, cost_weight: 0.1}
limits: {turns: 3}
run: {directory: FOLDER, name: made}
"""


def trained(folder: Path, trainer: str) -> str:
    """A run whose agents each know the answers of one category."""
    rows = [
        f'{{"question": "Where is {n}?", "answer": "{"LR"[n % 2]}", '
        f'"kind": "{["west", "east"][n % 2]}"}}\n'
        for n in range(60)
    ]
    (folder / "rows.jsonl").write_text("".join(rows))
    path = folder / "team.yaml"
    path.write_text(CONFIG.replace("FOLDER", str(folder)).replace("TRAINER", trainer))
    assert CliRunner().invoke(main, ["train", str(path)]).exit_code == 0
    return str(folder / "made")


@pytest.mark.parametrize("trainer", ["bandit", "fitted-q"])
def test_a_category_decides_who_answers(tmp_path: Path, trainer: str) -> None:
    run = trained(tmp_path, trainer)

    async def ask() -> list[TeamAnswer]:
        async with orchestrion.load(run) as team:
            return [await team("Where?", category=kind) for kind in ("west", "east")]

    west, east = asyncio.run(ask())
    assert (west.text, [turn.agent for turn in west.turns]) == ("L", ["left"])
    assert (east.text, [turn.agent for turn in east.turns]) == ("R", ["right"])
    decide = orchestrion.router(run).decide
    assert decide("Where?", category="west").agent == "left"
    assert decide("Where?", category="east").agent == "right"


def test_a_missing_or_unknown_category_is_told(tmp_path: Path) -> None:
    run = trained(tmp_path, "bandit")

    def said(*words: str) -> str:
        return CliRunner().invoke(main, ["run", run, *words]).stderr

    assert "[1] left (cost 1)\n" in said("--input", "Where?", "--category", "west")
    assert "warning" not in said("--input", "Where?", "--category", "west")
    assert (
        "warning: the team learned from problems with a category (east and west), and this one has "
        "none: give --category" in said("--input", "Where?")
    )
    unknown = said("--input", "Where?", "--category", "north")
    assert "the category 'north' is none of those it learned from: east and west\n" in unknown
    assert "--category is of --input" in said("--problem", "1", "--category", "west")


def test_python_is_warned_once(tmp_path: Path) -> None:
    run = trained(tmp_path, "bandit")

    async def ask() -> None:
        async with orchestrion.load(run) as team:
            with pytest.warns(UserWarning, match=r"and this one has none: give `category`"):
                await team("Where?")
            with warnings.catch_warnings(action="error"):
                await team("Where?")
            [problem] = team.trained.engine.team.task.problems("test")[:1]
            with pytest.raises(UsageError, match="a problem has its own category"):
                await team(problem, category="west")

    asyncio.run(ask())


def test_a_router_warns_once(tmp_path: Path) -> None:
    route = orchestrion.router(trained(tmp_path, "bandit"))
    with pytest.warns(
        UserWarning, match=r"'north' is none of those it learned from: east and west$"
    ):
        route.decide("Where?", category="north")
    with warnings.catch_warnings(action="error"):
        route("Where?")
