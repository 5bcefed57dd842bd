"""`orchestrion run`: use a team on one input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, get_args

import click

from orchestrion._cli.common import answer, block_option, emit, json_option, note, override_option
from orchestrion._cli.looping import in_loop
from orchestrion._errors import UsageError

if TYPE_CHECKING:
    from orchestrion._records import Episode, Turn
    from orchestrion._trained import Trained


@click.command("run")
@click.argument("target", metavar="CONFIG|RUN")
@click.option("--input", "text", help="The problem as text; '-' reads standard input.")
@click.option("--category", help="The category of --input, as problems of the task have one.")
@click.option("--problem", "problem_id", help="A problem of the task instead, by its id.")
@override_option
@block_option
@click.option(
    "--stream/--no-stream",
    default=None,
    help="Show what models write as it comes; default: if standard error is a terminal.",
)
@json_option
def command(
    target: str,
    text: str | None,
    category: str | None,
    problem_id: str | None,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    stream: bool | None,
    as_json: bool,
) -> int:
    """Run one episode of CONFIG as it is, or of RUN with what it learned.

    Prints what models write as it comes, every turn as it ends, and as the answer the last
    observation of the task's environment, or else the content of the turn that the task takes
    for the answer, by default the last one with a text.
    Exit code 0 if the episode was completed, 4 if a limit ended it, 1 if it failed or none of its
    turns gave an answer.
    """
    from orchestrion._keys import Key
    from orchestrion._observers import EpisodeObservers
    from orchestrion._trained import open_run

    if (text is None) == (problem_id is None):
        raise UsageError("give the problem: --input TEXT, --input - or --problem ID")
    if text is None and category is not None:
        raise UsageError("--category is of --input; a problem of the task has its own")
    if text == "-":
        try:
            text = sys.stdin.read()
        except UnicodeDecodeError as error:
            raise UsageError(f"standard input is not valid UTF-8 (byte {error.start})") from None
    if text is not None:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            where = f"character {error.start + 1}"
            raise UsageError(f"--input is not valid UTF-8 ({where})") from None

    async def use() -> tuple[Episode, Turn | None, bool]:
        """Return the episode, the turn with its answer, and whether the task can judge it."""
        async with open_run(target, overrides, block) as trained:
            note(*trained.notes)
            problem = _problem(trained, text, problem_id, category or "")
            if text is not None and (doubt := trained.doubt(problem)):
                note(f"warning: {doubt}" + ("" if category else ": give --category"))
            printer = _Printer(sys.stderr.isatty() if stream is None else stream)
            if not as_json:
                trained.engine.observers = EpisodeObservers(printer.turn_finished, None)
                trained.engine.viewer = printer.watch
            key = Key(trained.config.seed).child("run", problem.id, problem.text)
            try:
                episode = await trained.engine.run("run", problem, key)
            finally:
                printer.end()
            judged = text is None or problem.data is not None or bool(problem.hidden)
            return episode, trained.answering(episode), judged

    episode, turn, judged = in_loop(use())
    if as_json:
        from orchestrion._records import replace
        from orchestrion._store.serial import as_data

        if not judged:
            episode = replace(episode, scores=None, reward=None)
        emit({"episode": as_data(episode), "known_answer": judged})
    else:
        _conclude(episode, turn, judged)
    if episode.turns and turn is None:
        return 1
    return {"completed": 0, "limit": 4}.get(episode.status.value, 1)


def _problem(trained: Trained, text: str | None, problem_id: str | None, category: str) -> Any:
    from orchestrion._engine.checks import problems_of
    from orchestrion._guards import place_of
    from orchestrion._records import Split
    from orchestrion._suggest import did_you_mean

    task: Any = trained.engine.team.task
    place = place_of(trained.config, "task")
    if text is not None:
        return trained.problem(text, category)
    ids: list[str] = []
    for split in get_args(Split):
        for problem in problems_of(task, split, place):
            if problem.id == problem_id:
                return problem
            ids.append(problem.id)
    close = did_you_mean(problem_id or "", ids) or (f"; its ids are like {ids[0]!r}" if ids else "")
    raise UsageError(f"{place}: there is no problem {problem_id!r}{close}")


class _Printer:
    """Shows turns on standard error as they end, and what models write as it comes."""

    def __init__(self, stream: bool) -> None:
        from orchestrion._cli.watching import Watch

        self.watch = Watch() if stream else None

    def turn_finished(self, _: str, turn: Turn) -> None:
        from orchestrion._cli.display import cost_text

        streamed = "" if self.watch is None else self.watch.end(f"{turn.index + 1} {turn.agent}")
        option = f":{turn.option}" if turn.option is not None else ""
        head, content = f"[{turn.index + 1}] {turn.agent}{option}", turn.output.content
        if turn.status != "completed":
            note(f"{head} {turn.status}: {turn.error}")
            return
        note(f"{head} ({cost_text(turn.usage)})")
        if content and streamed.strip() != content.strip():  # else it was shown as it came
            note("    " + content.rstrip().replace("\n", "\n    "))

    def end(self) -> None:
        if self.watch is not None:
            self.watch.end()


def _conclude(episode: Episode, turn: Turn | None, judged: bool) -> None:
    from orchestrion._cli.display import cost_text

    text = "" if turn is None else turn.output.content
    if episode.observation is not None and episode.observation.text:
        text = episode.observation.text
    why = "no turn has a text" if episode.turns else "no agent was asked"
    if any(other.output.content.strip() for other in episode.turns):
        why = "no turn that the task takes for the answer has a text"
    note("answer:" if text else f"answer: none, as {why}")
    answer(text)
    parts = [episode.status.value, cost_text(episode.usage)]
    if not judged:
        parts.append("not judged: no answer to this input is known")
    elif episode.scores is not None:
        parts.append(f"score {episode.scores.value:g}")
        parts.append("solved" if episode.success else "not solved")
    if episode.error:
        parts.append(episode.error)
    note(", ".join(parts))
