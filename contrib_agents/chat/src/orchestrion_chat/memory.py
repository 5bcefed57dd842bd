"""The tool `memory`: notes that agents keep from one episode to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
from attrs import define, field, frozen

from orchestrion import JSON, Calls, Meta, OpenContext, Saved, UsageError
from orchestrion_chat.functions import FunctionTool, writes
from orchestrion_chat.interfaces import Bounds, Function, Result, Tool

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
        yield _Remembering(self, ctx.trains, _read(self.file, ctx.path), allow=self.write)


def _read(file: Path, where: str) -> Notes:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Notes)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(f"{where}: {file} does not hold notes: {error}") from None


def _bytes(notes: Notes) -> bytes:
    return msgspec.json.encode(notes, order="deterministic")


@define
class _Remembering(Tool):
    """An opened `Memory`; `written` are the notes of this iteration."""

    settings: Memory
    trains: bool
    notes: Notes
    allow: bool
    written: set[tuple[str, str]] = field(factory=set)

    @cached_property
    def _tool(self) -> FunctionTool:
        names = ["remember"] if self.allow else []
        return _Functions(self, allow_writes=names, max_result=self.settings.max_bytes)

    async def functions(self, calls: Calls) -> Sequence[Function]:
        return await self._tool.functions(calls)

    def bounds(self) -> Bounds:
        return self._tool.bounds()

    async def call(self, function: Function, arguments: Mapping[str, JSON], calls: Calls) -> Result:
        result = await self._tool.call(function, arguments, calls)
        # Here and not in the function: a resumed run takes the answer from its record.
        if self.trains and function.name == "remember" and not result.error:
            self.written.add((str(arguments["topic"]), str(arguments["text"])))
        return result

    def save(self) -> Saved:
        # Once an iteration, when all of its episodes have ended.
        self.notes = _merged(self.notes, sorted(self.written))
        self.written.clear()
        return Saved(data={"notes": self.notes})

    def load(self, saved: Saved) -> None:
        known: Any = saved.data
        self.notes = dict(known["notes"]) | ({} if self.trains else self.notes)


def _merged(notes: Notes, written: Sequence[tuple[str, str]]) -> Notes:
    merged = notes | dict(written)
    return {topic: merged[topic] for topic in sorted(merged) if merged[topic]}


@frozen
class _Functions(FunctionTool):
    memory: _Remembering

    def offers(self) -> Sequence[Callable[..., Any]]:
        return (self.recall, self.remember)

    async def recall(self, topic: str = "") -> Notes:
        """Read the notes of earlier episodes.

        Args:
            topic: words of the topic; all notes without it.
        """
        notes = self.memory.notes
        return {name: text for name, text in notes.items() if topic.lower() in name.lower()}

    @writes
    async def remember(self, topic: str, text: str) -> str:
        """Keep a note for later episodes, in place of an earlier one on the topic.

        Args:
            topic: what it is about, in a few words.
            text: the note; an empty one removes it.
        """
        memory = self.memory
        notes, most = _merged(memory.notes, [(topic, text)]), memory.settings.max_bytes
        if len(_bytes(notes)) > most:
            raise ValueError(f"all notes together would have more than {most} bytes")
        if not memory.trains:
            from orchestrion.runs import make_folder, write_atomic

            file = memory.settings.file
            write_atomic(make_folder(file.absolute().parent) / file.name, [_bytes(notes)])
            memory.notes = notes
        return "noted"
