"""Made-up plugins: many that work, and one of each kind that does not."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.packaging.environments import write_plugin

__all__ = [
    "BROKEN",
    "DUMMIES",
    "agents",
    "broken_plugins",
    "config",
    "dummy_plugins",
    "write_parrot",
]

DUMMIES = 50

_PLUGIN = '''"""A plugin."""
{heading}
from orchestrion import Component, hookimpl

@hookimpl
def orchestrion_agents():
    yield from [{components}]
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


def agents(package: str, *names: str, heading: str = "") -> str:
    """The text of a plugin module that supplies the agent of `AGENT` under these names."""
    components = ", ".join(
        f'Component("{name}", "{package}.speaker:Speaker", "says one line")' for name in names
    )
    return _PLUGIN.format(heading=heading, components=components)


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
        write_plugin(
            folder,
            f"orchestrion-{name}",
            agents(f"orchestrion_dummy_{number:02}", name, heading=heading),
            name=name,
            modules={"speaker": AGENT},
        )
    return folder


class Fault(NamedTuple):
    """A plugin that cannot be used.

    Args:
        name: of its entry point; the distribution is "orchestrion-" and the name.
        version: of the distribution, which no other one here has.
        heading: the text at the top of its module.
        says: what a report on it must contain.
    """

    name: str
    version: str
    heading: str
    says: str

    @property
    def distribution(self) -> str:
        return f"orchestrion-{self.name}"

    @property
    def package(self) -> str:
        return self.distribution.replace("-", "_")


BROKEN = (
    Fault("raises", "1.1", 'raise RuntimeError("it fell over")', "RuntimeError: it fell over"),
    Fault("lacks", "1.2", "import a_library_nobody_has", "a_library_nobody_has"),
    Fault("exits", "1.3", "import sys\nsys.exit(7)", "SystemExit: 7"),
    Fault("unreadable", "1.4", "def f(:", "SyntaxError"),
    Fault(
        "misspelt",
        "1.5",
        "from orchestrion import hookimpl\n@hookimpl\ndef orchestrion_agent():\n    return []\n",
        "orchestrion_agents",
    ),
    Fault("future", "1.6", "ORCHESTRION_API = 99", "99"),
)


def broken_plugins(folder: Path) -> Path:
    """A folder with every plugin of `BROKEN`, the one of `write_parrot`, and some that get in each
    other's way.

    - `slow` (1.7) takes a second to import and then works;
    - `twin` is claimed by orchestrion-first (1.8) and orchestrion-second (1.9);
    - the agent `critic` is supplied by `left` (2.0) and `right` (2.1), which also supply agents
      `only-left` and `only-right`;
    - `noisy` (2.2) prints while it is imported;
    - `hollow` (2.3) names a component whose module does not exist.
    """
    write_parrot(folder)
    for fault in BROKEN:
        source = agents(fault.package, fault.name, heading=fault.heading)
        write_plugin(folder, fault.distribution, source, name=fault.name, version=fault.version)
    others = (
        ("slow", "1.7", "slow", ("from-slow",), "import time\ntime.sleep(1)"),
        ("first", "1.8", "twin", ("from-first",), ""),
        ("second", "1.9", "twin", ("from-second",), ""),
        ("left", "2.0", "left", ("critic", "only-left"), ""),
        ("right", "2.1", "right", ("critic", "only-right"), ""),
        ("noisy", "2.2", "noisy", ("from-noisy",), "print('noise')"),
        ("hollow", "2.3", "hollow", ("from-hollow",), ""),
    )
    for name, version, point, supplied, heading in others:
        write_plugin(
            folder,
            f"orchestrion-{name}",
            agents(f"orchestrion_{name}", *supplied, heading=heading),
            name=point,
            version=version,
            modules={} if name == "hollow" else {"speaker": AGENT},
        )
    return folder
