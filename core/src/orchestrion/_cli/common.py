"""What commands share: arguments, options, and what they print on which stream."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrion._cli import Options
from orchestrion._cli.streams import visible
from orchestrion._errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrion._plugins import Plugins
    from orchestrion._records import Usage
    from orchestrion.config import Config

SCHEMA = 1
"""Version of every JSON document that commands print."""

F = TypeVar("F", bound=Callable[..., Any])

_NAMES = ("orchestrion.yaml", "orchestrion.yml")


def config_argument(function: F) -> F:
    """Add the argument `config`, optional: a file, or a folder with an orchestrion.yaml."""
    from pathlib import Path  # importing it takes a tenth of the time that listing plugins may take

    return click.argument(
        "config",
        required=False,
        type=_NonEmptyPath(path_type=Path),
        callback=lambda _ctx, _, path: find_config(path),
    )(function)


class _NonEmptyPath(click.Path):
    """A path that is not empty: an unset shell variable must not mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the name of the config is empty", param, ctx)
        return super().convert(value, param, ctx)


override_option = click.option(
    "-o",
    "--override",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of the config, e.g. -o policy.hidden=[64].",
)
"""The option `-o PATH=VALUE`, any number of times, as `overrides`."""
block_option = click.option(
    "--block",
    multiple=True,
    metavar="NAME",
    callback=lambda ctx, _, names: (*options(ctx).block, *names),
    help="Never import this plugin.",
)
"""The option `--block NAME`, as `block`, together with the global one."""
verbose_option = click.option(
    "-v",
    "--verbose",
    count=True,
    callback=lambda ctx, _, count: count or options(ctx).verbose,
    help="All metrics of every iteration, and the run's log; -vv with every episode.",
)
"""The flag `-v`, once or twice, as `verbose`; by default the global one."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
"""The flag `--json`, as `as_json`."""


def root_option(function: F) -> F:
    """Add the option `--root`, the folder of all runs."""
    from pathlib import Path

    return click.option(
        "--root",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("runs"),
        show_default=True,
        help="The folder of all runs.",
    )(function)


def options(ctx: click.Context) -> Options:
    """Return the global options."""
    return ctx.obj if isinstance(ctx.obj, Options) else Options()


def emit(data: Mapping[str, Any]) -> None:
    """Print a JSON document with the version of its schema; NaN and infinities become null."""
    import json

    from orchestrion._readonly import finite
    from orchestrion._secrets import hidden

    click.echo(hidden(json.dumps({"schema": SCHEMA, **finite(data)}, indent=2)))


def note(*lines: str) -> None:
    """Print lines on standard error."""
    for line in lines:
        click.echo(visible(line), err=True)


def answer(*lines: str) -> None:
    """Print text of components, without secrets, and on a terminal without control characters."""
    from orchestrion._secrets import hidden

    for line in map(hidden, lines):
        text = line.encode(errors="backslashreplace").decode()  # for lone surrogates
        click.echo(visible(text) if sys.stdout.isatty() else text)


def find_config(path: Path | None) -> Path:
    """Return the config a command was given, or the one in the current folder.

    Raises:
        UsageError: there is no config.
    """
    from pathlib import Path

    if path is not None and not path.is_dir():
        return path
    folder = path or Path()
    for name in _NAMES:
        if (folder / name).is_file():
            return folder / name
    where = f"in {path}" if path is not None else "here"
    raise UsageError(f"there is no {_NAMES[0]} {where}; name a config, or write one with 'init'")


def load_config(path: Path, overrides: Sequence[str], block: Sequence[str]) -> Config:
    """Read a config, and print the notes on its plugins."""
    from orchestrion.config import load

    config = load(path, overrides, block=block)
    note(*config.plugins.notes())
    return config


def plugins_of(block: Sequence[str] | None = None) -> Plugins:
    """Return the plugins of the environment, but those of `--block`; by default the global one."""
    from orchestrion._plugins import Plugins

    plugins = Plugins(options(click.get_current_context()).block if block is None else block)
    note(*plugins.notes())
    return plugins


def failure_lines(failures: Mapping[str, int]) -> list[str]:
    """Return how many turns, verifications and so on failed, and the most frequent reasons."""
    if not failures:
        return []
    counts = Counter({"turns": 0, "verifications": 0})
    for who, count in failures.items():
        counts[_failed_part(who)] += count
    lines = ["failed: " + ", ".join(f"{count} {part}" for part, count in counts.items())]
    order = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    lines += [f"  {n} x {' '.join(reason.split())[:200]}" for reason, n in order[:5]]
    if len(order) > 5:
        lines.append(f"  and {len(order) - 5} other reasons")
    return lines


def _failed_part(who: str) -> str:
    if who.startswith("verifier:"):
        return "verifications"
    if who.startswith(("reward (", "reward fun")):
        return "rewards"
    # No agent is called like this: a name in a config has no space.
    return "decisions" if " (" in who.partition(":")[0] else "turns"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of equally many cells as text with aligned columns."""
    return "\n".join(table_lines(rows))


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def time_text(seconds: float) -> str:
    """Return a point in time, in seconds since 1970, in the local time zone."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(" ", "seconds")


def usage_data(usage: Usage) -> dict[str, Any]:
    """Return usage as commands print it in JSON."""
    return {name: getattr(usage, name) for name in "calls input_tokens output_tokens usd".split()}
