"""The command line. Commands are listed here with their help, and imported when invoked."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

try:
    import click

    from orchestrion import __version__
    from orchestrion._errors import OrchestrionError, PluginError
    from orchestrion._interrupts import from_outside
except KeyboardInterrupt:  # Ctrl-C during start-up: end without a traceback
    sys.stderr.write("interrupted\n")
    raise SystemExit(130) from None

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from orchestrion._discovery import Plugin, Selection


COMMANDS = {
    "train": "Train what a config describes.",
    "run": "Use a config or a trained run on one input.",
    "eval": "Evaluate a run or a config on a split.",
    "resume": "Go on with a run that was interrupted.",
    "replay": "Check that a run comes out the same.",
    "cost": "Show what a run's calls took.",
    "runs": "List, show, export and prune runs.",
    "validate": "Check a config without running it.",
    "plugins": "Show what is installed.",
    "schema": "Print a JSON Schema of configs.",
    "init": "Write a config to start from.",
    "check": "Run the conformance checks on plugins.",
    "doctor": "Look for problems of the installation.",
    "completion": "Print a shell completion script.",
}
ELSEWHERE = {
    "orchestrion-beam": "beam",
    "orchestrion-chat": "chat-presets",
    "orchestrion-dag": "graph",
    "orchestrion-evolution": "front",
    "orchestrion-judge": "judge judge-report",
    "orchestrion-local": "devices merge",
    "orchestrion-logged": "learn logs ope",
    "orchestrion-offline": "llm-stub",
    "orchestrion-orchestration-bench": "bench draw",
    "orchestrion-otel": "otel",
    "orchestrion-remote": "agent-server",
    "orchestrion-scaffold": "new",
    "orchestrion-serve": "serve serve-log",
    "orchestrion-studio": "report studio watch",
    "orchestrion-sweep": "sweep",
    "orchestrion-track": "track",
    "orchestrion-values": "statistics",
}
"""Commands of our plugins, to say what to install for one that is missing."""
"""The commands of core with their help; each stands in a module of its name."""


class Options(NamedTuple):
    """The global options, as `ctx.obj`."""

    block: tuple[str, ...] = ()
    verbose: int = 0


class Main(click.Group):
    """Commands of core by name, and those of plugins from metadata, all imported on use."""

    debug = False

    # ------------------------------------------------------------------ which commands there are

    def _plugin_commands(self, ctx: click.Context) -> dict[str, list[Plugin]]:
        from orchestrion._discovery import commands

        result: dict[str, list[Plugin]] = {}
        for plugin in commands(_selection(ctx))[0]:
            if plugin.name not in COMMANDS:
                result.setdefault(plugin.name, []).append(plugin)
        return result

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return core's commands in the order of their use, then those of plugins."""
        return [*COMMANDS, *self._plugin_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from importlib import import_module

        if cmd_name in COMMANDS:
            command: click.Command = import_module(f"orchestrion._cli.{cmd_name}").command
            return command
        suppliers = self._plugin_commands(ctx).get(cmd_name, [])
        if len(suppliers) > 1:
            names = " and ".join(plugin.origin for plugin in suppliers)
            raise PluginError(
                f"both {names} supply a command {cmd_name!r}; block one with --block DISTRIBUTION"
            )
        return _load(suppliers[0]) if suppliers else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; if there is none, fail and suggest the nearest name."""
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and not name.startswith("-") and not ctx.resilient_parsing:
            from orchestrion._discovery import commands
            from orchestrion._suggest import did_you_mean

            if reason := commands(_selection(ctx))[1].get(name):
                ctx.fail(f"no such command: {name}; {reason}")
            suppliers = [plugin for plugin, names in ELSEWHERE.items() if name in names.split()]
            if suppliers:
                ctx.fail(f"no such command: {name}; install {suppliers[0]}, which supplies it")
            close = did_you_mean(name, self.list_commands(ctx))
            ctx.fail(f"no such command: {name}{close or '; see --help'}")
        return name if command is not None else None, command, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])
        rows = [
            (name, " and ".join(f"from {p.origin}" for p in suppliers))
            for name, suppliers in self._plugin_commands(ctx).items()
        ]
        if rows:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands without importing any."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=COMMANDS.get(name))
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]

    # ------------------------------------------------------------------ how they end

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "orchestrion",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and turn every outcome into an exit code; a command may return its own."""
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)
        # --debug may stand anywhere: people append it to the command that failed.
        self.debug = "--debug" in words[:end] or bool(os.environ.get("ORCHESTRION_DEBUG"))
        words = [word for word in words[:end] if word != "--debug"] + words[end:]

        def run() -> Any:
            return click.Group.main(
                self, words, prog_name, complete_var, standalone_mode=False, **extra
            )

        if not standalone_mode:
            return run()
        from orchestrion._cli.signals import leave_threads, own_interrupts
        from orchestrion._cli.streams import usable_streams

        with usable_streams(), own_interrupts():
            code = self._exit_code(run)
        leave_threads(code)
        sys.exit(code)

    def _exit_code(self, run: Any) -> int:
        try:
            result = run()
            sys.stdout.flush()
            return result if type(result) is int else 0
        except SystemExit as exc:
            _discard_output()
            return exc.code if isinstance(exc.code, int) else 1
        except BrokenPipeError:
            _discard_output()
            return 1
        except (click.exceptions.Abort, KeyboardInterrupt) as exc:
            click.echo("interrupted", err=True)
            # click raises Abort from the exception that interrupted the command.
            cause = exc.__cause__
            return 1 if isinstance(cause, EOFError) else getattr(cause, "exit_code", 130)
        except click.ClickException as exc:
            exc.show()
            return exc.exit_code
        except OrchestrionError as exc:
            return self._fail(exc, f"error: {exc}", exc.exit_code)
        except MemoryError as exc:
            return self._fail(exc, "error: there is not enough memory")
        except Exception as exc:
            if isinstance(exc, OSError) and exc.errno == errno.ENOSPC and exc.filename is None:
                _discard_output()
                click.echo("error: no space left on the device of standard output", err=True)
                return 1
            text = " ".join(f"{type(exc).__name__}: {exc}".split())
            hint = "" if self.debug else " (re-run with --debug for the traceback)"
            return self._fail(exc, f"internal error: {text[:500]}{hint}")

    def _fail(self, exc: BaseException, message: str, code: int = 1) -> int:
        from orchestrion._cli.streams import visible

        if self.debug:
            import traceback

            traceback.print_exception(exc, file=sys.stderr)
        click.echo(visible(message), err=True)
        return code


def _selection(ctx: click.Context) -> Selection:
    from orchestrion._discovery import Selection

    return Selection.of(ctx.params.get("block") or (), os.environ)


def _load(plugin: Plugin) -> click.Command:
    from orchestrion._importing import resolve

    try:
        command = resolve(plugin.value)
    except BaseException as exc:
        if isinstance(exc, KeyboardInterrupt) and from_outside(exc):
            raise
        raise PluginError(
            f"command {plugin.name!r} of {plugin.origin} cannot be loaded: "
            f"{type(exc).__name__}: {exc}"
        ) from exc
    if not isinstance(command, click.Command):
        raise PluginError(
            f"command {plugin.name!r} of {plugin.origin} is a {type(command).__name__}, "
            "not a click command"
        )
    return command


def _discard_output() -> None:
    """Redirect a closed standard output, so that the flush at exit does not fail."""
    from orchestrion._cli.streams import discard

    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        discard(sys.__stdout__)


@click.command(
    "orchestrion",
    cls=Main,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
@click.option("--block", multiple=True, metavar="NAME", help="Never import this plugin.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks of errors.")
@click.option("-v", "--verbose", count=True, help="Print more; twice for even more.")
@click.version_option(__version__, message="orchestrion %(version)s")
@click.pass_context
def main(ctx: click.Context, block: tuple[str, ...], verbose: int) -> None:
    """Learn which agent acts next."""
    ctx.obj = Options(block, verbose)
