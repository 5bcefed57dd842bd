"""Made-up plugins."""

from __future__ import annotations

from pathlib import Path

from tests.core.plugin_support import PLAIN, Site, hooks_of

DUMMIES = 50

AGENT = """
from attrs import frozen
from orchestrion import Agent, Output

@frozen
class Speaker(Agent):
    line: str = "hello"

    def act(self, view, key, calls):
        return Output(self.line)
"""


def write_parrot(folder: Path) -> None:
    """Lays out a plugin with a task and a policy: all that `config` needs but the agent."""
    folder.mkdir()
    Site(folder).plugin("parrot", hooks_of("parrot_parts", PLAIN, "parrot"), parrot_parts=PLAIN)


def config(folder: Path, agent: str) -> Path:
    """Writes a config for one agent, to be used with `write_parrot`; it says whose components it
    means, so that no other plugin has to be looked at."""
    path = folder / "orchestrion.yaml"
    path.write_text(
        f"task: {{use: parrot:parrot-task}}\nagents: {{a: {{use: '{agent}'}}}}\n"
        "policy: {use: parrot:parrot-policy}\n"
    )
    return path


def dummy_plugins(folder: Path, heading: str = "") -> Path:
    """A folder with many plugins, laid out as pip installs them."""
    site = Site(folder)
    for number in range(DUMMIES):
        name, module = f"dummy-{number:02}", f"dummy_{number:02}_speaker"
        hook = f"@hookimpl\ndef orchestrion_agents():\n    yield Component({name!r}, "
        site.plugin(name, f"{heading}\n{hook}'{module}:Speaker', 'one line')\n", **{module: AGENT})
    return folder
