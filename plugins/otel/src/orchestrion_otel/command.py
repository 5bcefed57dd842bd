"""The command `otel`: sends the episodes of a run as traces."""

from __future__ import annotations

import click

from orchestrion import OrchestrionError, UsageError
from orchestrion.cli import emit, json_option, note


@click.command("otel")
@click.argument("run", metavar="RUN")
@click.option("--endpoint", metavar="URL", help="Where to; default: as OpenTelemetry finds it.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Sent with every request, e.g. x-mlflow-experiment-id=1.",
)
@click.option("--contents", is_flag=True, help="Send what was asked and answered, too.")
@json_option
def otel(
    run: str, endpoint: str | None, headers: tuple[str, ...], contents: bool, as_json: bool
) -> None:
    """Send the episodes of RUN, a folder or its name, to an OpenTelemetry server.

    What was sent before has the same ids, so that servers know it again.
    """
    from orchestrion.runs import RunReader, find_run
    from orchestrion_otel.otlp import OTLP
    from orchestrion_otel.spans import facts_of, iteration_ends, spans_of

    pairs = [header.partition("=") for header in headers]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise UsageError(f"--header {wrong[0]}: write it as NAME=VALUE")
    try:
        settings = OTLP(endpoint, {name: value for name, _, value in pairs}, contents or None)
    except ValueError as error:
        raise UsageError(str(error)) from None

    from orchestrion_otel.sending import exporter_of, kept_quiet, readable, resource_of

    directory, episodes = find_run(run), 0
    with RunReader(directory) as reader, kept_quiet() as reason:
        facts, exporter = facts_of(reader), exporter_of(settings.endpoint, settings.headers)
        resource, ends = resource_of(facts), iteration_ends(reader)
        for stored in reader.episodes():
            spans = spans_of(
                stored.episode,
                facts,
                reader.calls,
                contents=settings.captures,
                at=ends.get((stored.stage, stored.iteration), facts.created),
            )
            exporter.export(readable(spans, resource))
            episodes += 1
            if exporter.lost:
                exporter.shutdown()
                raise OrchestrionError(
                    f"traces cannot be sent: {reason.text or 'the server refused them'}; "
                    f"{episodes - 1} episodes were sent before"
                )
        exporter.shutdown()
    note(f"{directory}: sent {episodes} episodes, {exporter.sent} spans")
    if as_json:
        emit({"run": str(directory), "episodes": episodes, "spans": exporter.sent})
