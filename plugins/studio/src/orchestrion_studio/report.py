"""`orchestrion report`: a run as one file, to attach to a mail or to paste into a pull request."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrion.cli import answer, note


@click.command("report")
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file.  [default: RUN.html here; with --md, print]",
)
@click.option("--md", "as_markdown", is_flag=True, help="Markdown for a pull request instead.")
def report(run: str, output: Path | None, as_markdown: bool) -> None:
    """Write RUN as one self-contained HTML file: results, curves, what was learned, some episodes.

    The file loads nothing and runs no script, so that it opens from disk, anywhere.
    """
    from orchestrion.runs import RunReader, find_run, write_atomic

    directory = find_run(run)
    with RunReader(directory) as store:
        if as_markdown:
            from orchestrion_studio.markdown import markdown_of

            text = markdown_of(store)
        else:
            from orchestrion_studio.self_contained import html_of

            text = html_of(store)
            output = output or Path(f"{store.directory.name}.html")
    if output is None:
        answer(text)
        return
    data = text.encode(errors="replace")
    write_atomic(output.absolute(), [data], "report")
    note(f"{output}: {len(data):,} bytes")
