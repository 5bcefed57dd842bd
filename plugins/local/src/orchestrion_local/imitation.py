"""Supervised fine-tuning of several models from one stream of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from orchestrion import (
    JSON,
    Array,
    CallError,
    Job,
    Key,
    Metrics,
    Model,
    OpenContext,
    Saved,
    Session,
    Trainer,
    UsageError,
)
from orchestrion_local.interfaces import Generation, Trainable, generations_of
from orchestrion_local.naming import check_known, settings_by_model
from orchestrion_local.optimizing import WeightOptimizer
from orchestrion_local.sft import Sft

__all__ = ["Imitation", "trainable"]


def trainable(models: Sequence[Model]) -> list[Trainable]:
    """The models at work that a trainer was given, all of which have weights."""
    return [model for model in models if isinstance(model, Trainable)]


class Imitation(Trainer):
    """See `Sft`."""

    def __init__(self, settings: Sft, ctx: OpenContext) -> None:
        self.settings, self._path = settings, ctx.path
        names, speakers = ctx.names["models"], trainable(settings.models)
        students = [one.root if settings.base else one for one in speakers]
        self._speakers = {one.name: one for one in speakers}
        self.models = {one.name: one for one in students}
        self._student = {name: one.name for name, one in zip(names, students, strict=True)}
        """Who learns what is said by a model, under any of its names."""
        for speaker, student in zip(speakers, students, strict=True):
            self._student[speaker.name] = student.name
        teachers = list(settings.teachers) * (1 if len(settings.teachers) > 1 else len(names))
        self._teachers = settings_by_model(
            dict(zip(names, teachers, strict=False)), names, speakers, f"{ctx.path}.teachers"
        )
        total = settings.iterations * settings.steps
        own = settings_by_model(settings.optimizers, names, students, f"{ctx.path}.optimizers")
        self.optimizers = {
            name: WeightOptimizer(model, own.get(name, settings.optimizer), total)
            for name, model in self.models.items()
        }
        self._examples = self._read(Path(settings.data)) if settings.data is not None else None

    @property
    def iterations(self) -> int:
        """See `Trainer.iterations`."""
        return self.settings.iterations

    def _read(self, path: Path) -> dict[str, list[Generation]]:
        examples: dict[str, list[Generation]] = {name: [] for name in self.models}
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self._path}.data: {path} cannot be read: {error}") from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{self._path}.data: {path}:{number}"
            try:
                one = msgspec.json.decode(line, type=_Line)
            except msgspec.DecodeError as error:
                raise UsageError(
                    f'{where}: want {{"model": ..., "messages": [...], "text": ...}} ({error})'
                ) from error
            check_known([one.model], list(self._student), where)
            student = self._student[one.model]
            messages = [msgspec.structs.asdict(message) for message in one.messages]
            try:
                examples[student].append(self.models[student].told(messages, one.text))
            except CallError as error:
                raise UsageError(f"{where}: {error}") from error
        return examples

    def check(self, session: Session) -> None:
        """See `Trainer.check`."""
        self.settings.check(session)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Gather what teachers say, then some steps of every student."""
        examples = self._examples
        metrics: dict[str, float] = {}
        if examples is None:
            examples = await self._taught(session)
        for name, model in self.models.items():
            if not examples[name]:
                raise UsageError(f"{self._path}: nobody said anything for {name} to learn")
            with self.optimizers[name].pinned():
                losses = self._learn(name, model, examples[name], session.key.child("sft", name))
            metrics[f"{name}/loss"] = losses[-1]
            metrics[f"{name}/examples"] = float(len(examples[name]))
        return metrics

    async def _taught(self, session: Session) -> dict[str, list[Generation]]:
        settings, key = self.settings, session.key
        problems = session.problems("train")
        draws = key.child("problems").uniforms(settings.episodes)
        jobs = [
            Job(problems[int(one * len(problems))], key.child("episode", n))
            for n, one in enumerate(draws)
        ]
        with ExitStack() as stack:
            for name, model in self._speakers.items():
                stack.enter_context(model.taught(self._teachers[name]))
            episodes = await session.rollout(jobs)
        said: dict[str, list[Generation]] = {name: [] for name in self.models}
        for episode in episodes:
            if settings.keep == "all" or episode.success:
                for turn in episode.turns:
                    for one in generations_of(turn.output.metadata):
                        if one.model in self._student:
                            said[self._student[one.model]].append(one)
        return said

    def _learn(
        self, name: str, model: Trainable, examples: Sequence[Generation], key: Key
    ) -> list[float]:
        optimizer, settings = self.optimizers[name], self.settings
        losses = []
        for step in range(settings.steps):
            draws = key.child(step).uniforms(min(settings.batch, len(examples)))
            chosen = [examples[int(one * len(examples))] for one in draws]
            tokens = sum(len(one.response) for one in chosen)
            optimizer.zero()
            total = 0.0
            for start in range(0, len(chosen), settings.micro_batch):
                scored = model.score(chosen[start : start + settings.micro_batch])
                loss = -scored.logprobs.sum() / tokens
                optimizer.backward(loss)
                total += float(loss.detach())
            optimizer.step()
            losses.append(total)
        model.updated()
        return losses

    def save(self) -> Saved:
        """The optimizers."""
        arrays: dict[str, Array] = {}
        data: dict[str, JSON] = {}
        for name, optimizer in self.optimizers.items():
            saved = optimizer.save(f"{name}/")
            arrays.update(saved.arrays)
            data[name] = saved.data
        return Saved(arrays, data)

    def load(self, saved: Saved) -> None:
        """See `Stateful.load`."""
        for name, optimizer in self.optimizers.items():
            optimizer.load(Saved(saved.arrays, saved.data[name]), f"{name}/")


class _Message(msgspec.Struct):
    role: str
    content: str


class _Line(msgspec.Struct):
    model: str
    messages: list[_Message]
    text: str
