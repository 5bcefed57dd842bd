"""The options of `orchestrion serve` for learning in use."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrion import UsageError
from orchestrion.cli import note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrion.runs import Trained
    from orchestrion_serve.in_use import InUse
    from orchestrion_serve.keys import Keys

F = TypeVar("F", bound=Callable[..., Any])
UNITS = {"": 1, "B": 1, "KB": 1_000, "MB": 1_000_000}


class _Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, such as 500KB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes; fail if it is no size."""
        match = re.fullmatch(r"([1-9]\d{0,8})\s*(B|KB|MB|)", str(value).upper())
        if match is None:
            self.fail(f"{value!r} is not a size such as 500KB or 1MB", param, ctx)
        return int(match[1]) * UNITS[match[2]]


SIZE = _Size()
SHARE = click.FloatRange(0, 1)
NEED_LOG = ("contents", "explore", "explore_budget", "verify", "canary")
NEED_CANARY = ("share", "trial_requests", "undecided")


def use_options(function: F) -> F:
    """Add the options to a command."""
    made = [
        click.option(
            "--log",
            "folder",
            type=click.Path(path_type=Path, file_okay=False),
            help="Log decisions and feedback in FOLDER/MODEL.",
        ),
        click.option("--log-contents", "contents", is_flag=True, help="Log questions and answers."),
        click.option("--log-size", type=SIZE, default="100MB", show_default=True, help="Each's."),
        click.option("--explore", type=SHARE, help="Share of decisions drawn at random."),
        click.option(
            "--explore-budget",
            type=click.FloatRange(0),
            help="Explore no more when that has cost about so much score.",
        ),
        click.option("--verify", metavar="FUNCTION", help="`task`, or module:function; see docs."),
        click.option("--verify-share", type=SHARE, default=1.0, show_default=True, help="Of all."),
        click.option("--canary", metavar="RUN", help="Try this version of the only RUN."),
        click.option("--share", type=SHARE, help="Of requests to the canary.  [default: 0.1]"),
        click.option(
            "--trial-requests",
            type=click.IntRange(1),
            help="Without a verdict after so many the trial ends.  [default: 10000]",
        ),
        click.option(
            "--undecided",
            type=click.Choice(["roll-back", "keep"]),
            help="How it ends then.  [default: roll-back]",
        ),
    ]

    for option in reversed(made):
        function = option(function)
    return function


async def open_uses(
    stack: AsyncExitStack,
    teams: Mapping[str, Trained],
    given: Mapping[str, Any],
    keys: Keys | None,
) -> Mapping[str, InUse]:
    """Open the logs and the canary that the options name; nothing without `--log`.

    `given` also has the `overrides` and `block` with which runs are opened.

    Raises:
        UsageError: options do not go together, or the canary cannot be opened.
        StoreError: a log cannot be written to.
    """
    folder, canary = given["folder"], given["canary"]
    for names, needed in ((NEED_LOG, "folder"), (NEED_CANARY, "canary")):
        for name in names:
            if given[name] and not given[needed]:
                option = {"contents": "log-contents"}.get(name, name.replace("_", "-"))
                more = "--log FOLDER" if needed == "folder" else "--canary RUN"
                raise UsageError(f"--{option} has no effect without {more}")
    if folder is None:
        return {}
    if canary is not None and len(teams) > 1:
        raise UsageError("--canary RUN: name one RUN to serve; the canary is a version of it")
    from orchestrion_serve.names import is_version

    named = keys is not None and any(keys.models.values())
    if canary is not None and not named and all(is_version(*team) for team in teams.items()):
        raise UsageError(
            "--canary RUN: who asks for RUN@N gets that version alone, so nothing would be tried; "
            "serve RUN, or let keys ask for it by another name: model/NAME=RUN@N"
        )
    if given["explore_budget"] is not None and not given["explore"]:
        raise UsageError("--explore-budget has no effect without --explore")
    from orchestrion_serve.canary import VersionTrial
    from orchestrion_serve.in_use import UseSettings, using
    from orchestrion_serve.versions import check_text, open_traced

    options = {"share": given["share"], "requests": given["trial_requests"]}
    if given["undecided"] is not None:
        options["undecided"] = {"roll-back": "rolled back", "keep": "kept"}[given["undecided"]]
    trial = VersionTrial(**{name: value for name, value in options.items() if value is not None})
    if canary is not None and not 0 < trial.share < 1:
        raise UsageError("--share: a canary is compared with the old version; more than 0, below 1")
    settings = UseSettings(
        folder,
        given["contents"],
        given["log_size"],
        given["explore"] or 0.0,
        given["explore_budget"],
        given["verify"],
        given["verify_share"],
        trial,
    )
    new = None
    if canary is not None:
        new = await stack.enter_async_context(
            open_traced(canary, given["overrides"], given["block"])
        )
        check_text(canary, new)
    return await stack.enter_async_context(using(teams, settings, new, note, keys))
