"""The tool `memory`: notes that agents keep from one episode to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from attrs import field, frozen

from orchestrion import JSON, Calls, Meta, OpenContext, Saved, UsageError
from orchestrion_chat.functions import FunctionTool, writes
from orchestrion_chat.interfaces import Function, Result, Tool

Notes = dict[str, str]


@frozen(kw_only=True)
class Memory:
    """Notes by topic, in a file, that episodes have in common.

    Agents read with `recall`, and write with `remember` where `write` allows it.

    In training all episodes of an iteration read the same notes; what they write is there from the
    next iteration on, whatever their order, and stands in the run's checkpoint and not in the file.

    Args:
        file: of the notes, JSON; made by the first note.
        write: whether agents may write.
        training: whether training may use it: an episode then depends on earlier ones.
        max_bytes: the maximum of bytes of all notes.
    """

    file: Path
    write: bool = False
    training: bool = False
    max_bytes: Annotated[int, Meta(ge=1)] = 8_000

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Tool]:
        """Yield the tool.

        Raises:
            UsageError: it is a training run and `training` is false, or the file cannot be read.
        """
        if ctx.trains and not self.training and (ctx.live or ctx.trial):
            raise UsageError(
                f"{ctx.path}: episodes of a training run must not know of each other; set "
                "`training: true` if this task allows it, or remove this tool"
            )
        yield _Notebook(
            self,
            ctx.trains,
            _read(self.file, ctx.path),
            allow_writes=["remember"] if self.write else [],
            max_result=self.max_bytes,
        )


def _read(file: Path, where: str) -> Notes:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Notes)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(f"{where}: {file} does not hold notes: {error}") from None


def _merged(notes: Notes, written: Iterable[tuple[str, str]]) -> Notes:
    merged = notes | dict(written)
    return {topic: merged[topic] for topic in sorted(merged) if merged[topic]}


@frozen(eq=False)
class _Notebook(FunctionTool):
    """An opened `Memory`. `notes`, and `written`, those of this iteration, change in place."""

    settings: Memory
    trains: bool
    notes: Notes
    written: set[tuple[str, str]] = field(factory=set)

    def offers(self) -> Sequence[Callable[..., Any]]:
        return (self.recall, self.remember)

    async def call(self, function: Function, arguments: Mapping[str, JSON], calls: Calls) -> Result:
        result = await super().call(function, arguments, calls)
        # Here and not in the function: a resumed run takes the answer from its record.
        if self.trains and function.name == "remember" and not result.error:
            self.written.add((str(arguments["topic"]), str(arguments["text"])))
        return result

    def save(self) -> Saved:
        # Once an iteration, when all of its episodes have ended.
        self._replace(_merged(self.notes, sorted(self.written)))
        self.written.clear()
        return Saved(data={"notes": dict(self.notes)})

    def load(self, saved: Saved) -> None:
        known: Any = saved.data
        self._replace(dict(known["notes"]) | ({} if self.trains else self.notes))

    def _replace(self, notes: Notes) -> None:
        self.notes.clear()
        self.notes.update(notes)

    async def recall(self, topic: str = "") -> Notes:
        """Read the notes of earlier episodes.

        Args:
            topic: words of the topic; all notes without it.
        """
        topic = topic.lower()
        return {name: text for name, text in self.notes.items() if topic in name.lower()}

    @writes
    async def remember(self, topic: str, text: str) -> str:
        """Keep a note for later episodes, in place of an earlier one on the topic.

        Args:
            topic: what it is about, in a few words.
            text: the note; an empty one removes it.
        """
        notes, most = _merged(self.notes, [(topic, text)]), self.settings.max_bytes
        data = msgspec.json.encode(notes, order="deterministic")
        if len(data) > most:
            raise ValueError(f"all notes together would have more than {most} bytes")
        if not self.trains:
            from orchestrion.runs import make_folder, write_atomic

            file = self.settings.file
            write_atomic(make_folder(file.absolute().parent) / file.name, [data])
            self._replace(notes)
        return "noted"
