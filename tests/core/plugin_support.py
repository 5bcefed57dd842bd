"""Makes distributions out of nothing: a dist-info folder and modules in a temporary folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from orchestrion._plugins import Plugins
from orchestrion.cli import main
from orchestrion.runs import RunReader

HEAD = "from orchestrion import Component, hookimpl\n"
KINDS = {
    "Agent": ("agent", "agents"),
    "Model": ("model", "models"),
    "Policy": ("policy", "policies"),
    "RewardFunction": ("reward", "rewards"),
    "Task": ("task", "tasks"),
    "Trainer": ("trainer", "trainers"),
}
CLASS = re.compile(r'^class (\w+)\((\w+)\):\n    """(.+?)\.?"*$', re.M)


def hooks_of(module: str, source: str, name: str = "") -> str:
    """The text of hooks that supply the components of a module, in its order.

    Args:
        module: where they are.
        source: its text.
        name: if given, the last of each kind is called NAME-KIND, and none else is supplied;
            otherwise each is called like its class.
    """
    hooks: dict[str, list[str]] = {}
    kinds = dict(KINDS)
    for cls, base, summary in CLASS.findall(source):
        kind, hook = kinds[cls] = kinds[base]
        use = f"{name}-{kind}" if name else cls.lower()
        summary = summary[0].lower() + summary[1:]
        line = f"    yield Component({use!r}, '{module}:{cls}', {summary!r})\n"
        hooks[hook] = [line] if name else [*hooks.get(hook, ()), line]
    return "".join(
        f"\n@hookimpl\ndef orchestrion_{hook}():\n{''.join(lines)}" for hook, lines in hooks.items()
    )


class Site:
    """A folder like site-packages, with distributions of our making."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: list[str] = []

    def add(
        self,
        distribution: str,
        entry_points: Mapping[str, Mapping[str, str]] | str,
        modules: Mapping[str, str],
        version: str = "1.0",
        summary: str = "made for a test",
    ) -> None:
        """Install a distribution: its entry points by group, and the source of its modules."""
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        head = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        (info / "METADATA").write_text(f"{head}Summary: {summary}\n\nName: not this one\n")
        if not isinstance(entry_points, str):
            entry_points = "".join(
                f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
                for group, points in entry_points.items()
            )
        (info / "entry_points.txt").write_text(entry_points)
        for module, source in modules.items():
            (self.folder / f"{module}.py").write_text(dedent(source))
            self.modules.append(module)

    def plugin(self, name: str, source: str, distribution: str = "", **more: str) -> None:
        """Install a plugin of one module, which is called like it."""
        module = f"{(distribution or name).replace('-', '_')}_plugin"
        self.add(
            distribution or f"orchestrion-{name}",
            {"orchestrion": {name: module}},
            {module: HEAD + dedent(source), **more},
        )

    def plugins(self, **settings: object) -> Plugins:
        """The plugins of this folder alone."""
        settings.setdefault("env", {})
        return Plugins(path=[str(self.folder)], **settings)  # type: ignore[arg-type]

    def forget(self) -> None:
        """Take the modules out of `sys.modules` again."""
        for module in self.modules:
            sys.modules.pop(module, None)


PLAIN = '''
from __future__ import annotations

from attrs import frozen
from orchestrion import Activation, Decision, Job, Key, Policy, Problem, Scores, Task, Trainer


@frozen
class Two(Task):
    """Two problems a split, each of which is solved."""

    def problems(self, split):
        return [Problem(f"{split}-{i}") for i in range(2)]

    async def verify(self, problem, trajectory, state, *, final, calls):
        return Scores(1.0, True)


@frozen
class Once(Policy):
    """Asks the agent "a" once."""

    def decide(self, situations, keys):
        return [Decision((Activation("a"),)) if not len(s.trajectory) else Decision(stop=True)
                for s in situations]


@frozen
class Plays(Trainer):
    """Plays each problem once an iteration."""

    iterations: int = 2

    async def iterate(self, i, session):
        jobs = [Job(p, Key(i).child(n)) for n, p in enumerate(session.problems())]
        await session.rollout(jobs)
        return {"own": 0.5}
'''


def site_with_config(
    folder: Path, patch: pytest.MonkeyPatch, config: str, name: str, parts: str, more: str = ""
) -> Iterator[Site]:
    """A site with one plugin, and a `c.yaml` in the current folder.

    Args:
        folder: where all of it is made.
        patch: of the test.
        config: the text of `c.yaml`.
        name: of the plugin; its components are called NAME-KIND.
        parts: the source of its module NAME_parts; the classes of `PLAIN` stand before it.
        more: hooks besides those that name the last component of each kind.
    """
    (folder / "site").mkdir()
    patch.syspath_prepend(str(folder / "site"))
    patch.setenv("PYTHONPATH", str(folder / "site"))
    patch.setenv("ORCHESTRION_PLUGINS", name)
    patch.chdir(folder)
    (folder / "c.yaml").write_text(config)
    site = Site(folder / "site")
    source = PLAIN + parts
    site.plugin(name, hooks_of(f"{name}_parts", source, name) + more, **{f"{name}_parts": source})
    yield site
    site.forget()


def invoke(*args: str) -> Result:
    """A command line, run in this process."""
    return CliRunner().invoke(main, list(args))


def train(*overrides: str) -> Result:
    """Train `c.yaml`."""
    return invoke("train", "c.yaml", *(word for one in overrides for word in ("-o", one)))


def status() -> str:
    """How the first run of `c.yaml` stands."""
    with RunReader(Path("runs/c-1")) as run:
        return run.status


PARTS = '''
"""Components of every kind, as small as they can be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from attrs import field, frozen, validators
from orchestrion import (
    Agent, Meta, Model, Policy, Problem, RewardFunction, Task, Trainer, learnable,
)


@frozen
class Part:
    """A nested class.

    Args:
        size: how large.
    """

    size: Annotated[int, Meta(ge=0)]
    tags: tuple[str, ...] = ()


@frozen
class Echo(Agent):
    """Says something.

    Args:
        text: what to say,
            always.
        times: how often.
    """

    text: str = learnable("hi")
    times: Annotated[int, Meta(ge=1, le=9)] = 1
    rate: Annotated[float, Meta(ge=0, lt=1)] = 0.5
    loud: bool = False
    mode: Literal["a", "b", 3] = "a"
    colour: Literal["red", "blue"] = "red"
    file: Path | None = None
    limit: Annotated[int, Meta(multiple_of=2)] | None = None
    code: Annotated[str, Meta(pattern="^[a-z]+$", min_length=2, max_length=4)] = "abc"
    words: Annotated[list[str], Meta(max_length=3)] = field(factory=list)
    pair: tuple[int, float] = (1, 2.0)
    weights: dict[str, float] = field(factory=dict)
    part: Part = Part(1)
    parts: Mapping[str, Part] = field(factory=dict)
    either: int | str | list[int] = 0
    anything: Any = None
    model: Model | None = None
    even: int = field(default=2, validator=validators.in_([2, 4, 6]))
    _hidden: int = 0
    derived: int = field(init=False, default=0)


@frozen
class Team(Agent):
    """A team in an agent."""

    members: Annotated[list[Agent], Meta(min_length=1)]
    policy: Policy
    judges: Mapping[str, Model] = field(factory=dict)


@frozen
class Api(Model):
    """A service with a secret."""

    key: str | None = field(default=None, metadata={"secret": True})
    headers: dict[str, str] = field(factory=dict, metadata={"secret": True})
    url: str = "http://localhost"
    timeout: float = field(default=1.0)

    @timeout.validator
    def _check_timeout(self, attribute, value):
        if value > 100 and self.url.startswith("http://"):
            raise ValueError("timeout: 100 seconds are enough for plain http")


@frozen
class Order(Policy):
    """In order."""

    steps: tuple[str, ...] = ()


@frozen
class Toy(Task):
    """A task."""

    size: Annotated[int, Meta(ge=1)] = 3

    def problems(self, split):
        return [Problem(f"{split}-{n}") for n in range(self.size)]


@frozen
class Judged(RewardFunction):
    """A reward that may ask a judge."""

    judge: Model | None = None


@frozen
class Practice(Trainer):
    """A trainer."""

    lr: float = 1e-3
    iterations: int = 3
'''


def parts_plugin(module: str) -> ModuleType:
    """A plugin that supplies the components of `PARTS`, found in a module."""
    plugin = ModuleType("parts_plugin")
    exec(HEAD + hooks_of(module, PARTS), plugin.__dict__)
    return plugin


def with_parts(module: str = "orchestrion_test_parts") -> Plugins:
    """Plugins that supply the components of `PARTS` and nothing else."""
    if module not in sys.modules:
        sys.modules[module] = parts = ModuleType(module)
        exec(compile(PARTS, module, "exec"), parts.__dict__)
    plugins = Plugins(path=[], env={})
    plugins.register(parts_plugin(module), "parts")
    return plugins
