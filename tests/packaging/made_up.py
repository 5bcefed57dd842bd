"""Made-up plugins."""

from __future__ import annotations

from pathlib import Path

from tests.packaging.environments import write_plugin

DUMMIES = 50

_PLUGIN = '''"""A plugin."""
{heading}
from orchestrion import Component, hookimpl

@hookimpl
def orchestrion_agents():
    yield {component}
'''

AGENT = '''"""An agent."""
from attrs import frozen
from orchestrion import Agent, Output

@frozen
class Speaker(Agent):
    """Says one line.

    Args:
        line: what it says.
    """

    line: str = "hello"

    def act(self, view, key, calls):
        return Output(content=self.line)
'''

_PARROT = '''"""A task and a policy that need no other plugin."""
from attrs import frozen
from orchestrion import Activation, Component, Decision, Policy, Problem, Scores, Task, hookimpl

@frozen
class Parrot(Task):
    """Solved if the last turn repeats the problem's text."""

    def problems(self, split):
        return [Problem(f"{split}-{i}", text=f"word {i}") for i in range(3)]

    async def verify(self, problem, trajectory, state, *, final, calls):
        good = bool(trajectory) and trajectory.turns[-1].output.content == problem.text
        return Scores(float(good), good)

@frozen
class Once(Policy):
    """Starts one agent and stops."""

    agent: str = "speaker"

    def decide(self, situations, keys):
        start = Decision((Activation(self.agent),))
        return [Decision(stop=True) if len(s.trajectory) else start for s in situations]

@hookimpl
def orchestrion_tasks():
    yield Component("parrot", "orchestrion_parrot.plugin:Parrot", "say it again")

@hookimpl
def orchestrion_policies():
    yield Component("once", "orchestrion_parrot.plugin:Once", "starts one agent and stops")
'''


def write_parrot(folder: Path) -> None:
    """Lays out a plugin with a task `parrot` and a policy `once`: all that `config` needs but
    the agent."""
    write_plugin(folder, "orchestrion-parrot", _PARROT, name="parrot", version="0.9")


def config(folder: Path, agent: str) -> Path:
    """Writes a config for one agent, to be used with `write_parrot`; it says whose components it
    means, so that no other plugin has to be looked at."""
    path = folder / "orchestrion.yaml"
    lines = [
        "task: {use: orchestrion-parrot:parrot}",
        "agents:",
        f"  speaker: {{use: '{agent}'}}",
        "policy: {use: orchestrion-parrot:once}",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def dummy_plugins(folder: Path, heading: str = "") -> Path:
    """A folder with many plugins, laid out as pip installs them."""
    for number in range(DUMMIES):
        name = f"dummy-{number:02}"
        path = f"orchestrion_dummy_{number:02}.speaker:Speaker"
        write_plugin(
            folder,
            f"orchestrion-{name}",
            _PLUGIN.format(heading=heading, component=f"Component({name!r}, {path!r}, 'one line')"),
            name=name,
            modules={"speaker": AGENT},
        )
    return folder
