"""The trainer `sft`: supervised fine-tuning of models on responses of teachers or of a file.

The loss of a step is the mean of -log p over the response tokens of `batch` examples, which are
drawn with replacement. A step is one of AdamW, see `optimizing`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from attrs import Factory, field, frozen

from orchestrion import (
    JSON,
    Array,
    CallError,
    Job,
    Key,
    Meta,
    Metrics,
    Model,
    OpenContext,
    Plan,
    Saved,
    Session,
    Split,
    Trainer,
    UsageError,
    refuse_idle,
)
from orchestrion_local.hf import check_known, names_of, settings_by_model
from orchestrion_local.interfaces import Generation, Trainable, generations_of
from orchestrion_local.settings import Optimizer

if TYPE_CHECKING:
    import torch

    from orchestrion_local.optimizing import Integers, WeightOptimizer

Count = Annotated[int, Meta(ge=1)]


@frozen
class Sft:
    """Supervised fine-tuning: models learn given responses, a warm start for later trainers.

    The responses come from `teachers`, other models that answer in the students' place while the
    team works on training problems, or from recorded examples.

    Args:
        models: the students.
        teachers: one for each student, or one for all.
        base: train the weights under a student's adapter, together with all other adapters on
            them, and not the adapter.
        data: a file of examples, one JSON object {"model", "messages", "text"} in each line.
        keep: which episodes of the team are learned from: all, or the solved ones.
        iterations: number of iterations.
        episodes: episodes of the team in each iteration, with teachers.
        steps: optimizer steps of each student in each iteration.
        batch: examples in a step.
        micro_batch: tokens, padding included, in one forward pass; by default as many as there is
            memory for.
        optimizer: optimizer of every student.
        optimizers: optimizers of single students, by name.
    """

    models: Annotated[Sequence[Model], Meta(min_length=1)]
    teachers: Sequence[Model] = ()
    base: bool = False
    data: Path | None = None
    keep: Annotated[str, Meta(pattern="^(all|solved)$")] = "all"
    iterations: Count = 1
    episodes: Count = 256
    steps: Count = 50
    batch: Count = 64
    micro_batch: Count | None = None
    optimizer: Optimizer = Factory(lambda: Optimizer(learning_rate=2e-3))
    optimizers: Mapping[str, Optimizer] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if bool(self.teachers) == (self.data is not None):
            raise ValueError("give `teachers` or `data`")
        if self.data is not None:
            refuse_idle(self, ("keep", "episodes"), "beside `data`, with which no episodes run")
        if len(self.teachers) not in (0, 1, len(self.models)):
            raise ValueError(
                f"teachers: {len(self.teachers)} for {len(self.models)} models; give one for "
                "each, or one for all"
            )

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Yield the trainer; in a dry run without weights, which needs no torch.

        Raises:
            UsageError: a model has no weights, a name is not in `models`, or `data` is no file of
                examples that the students' tokenizers can read.
        """
        check_known(self.optimizers, names_of(self.models, ctx), f"{ctx.path}.optimizers")
        yield SftTrainer(self, ctx)


class SftTrainer(Trainer):
    """Runs the iterations of `Sft`; in a dry run it has no models."""

    def __init__(self, settings: Sft, ctx: OpenContext) -> None:
        self.settings, self._path = settings, ctx.path
        names = ctx.names["models"]
        speakers = [model for model in settings.models if isinstance(model, Trainable)]
        if ctx.trial:
            return
        # Not above: listing plugins must not load torch.
        from orchestrion_local.optimizing import WeightOptimizer, check_memory

        students = [model.root if settings.base else model for model in speakers]
        self._speakers = {model.name: model for model in speakers}
        self.models = {model.name: model for model in students}
        self._student_of = {name: model.name for name, model in zip(names, students, strict=True)}
        """The student that learns the responses of a model, by any name of that model."""
        for speaker, student in zip(speakers, students, strict=True):
            self._student_of[speaker.name] = student.name
        teachers = list(settings.teachers) * (1 if len(settings.teachers) > 1 else len(names))
        self._teachers = settings_by_model(
            dict(zip(names, teachers, strict=False)), names, speakers, f"{ctx.path}.teachers"
        )
        total = settings.iterations * settings.steps
        own = settings_by_model(settings.optimizers, names, students, f"{ctx.path}.optimizers")
        self.optimizers: dict[str, WeightOptimizer] = {
            name: WeightOptimizer(
                model, own.get(name, settings.optimizer), total, settings.micro_batch
            )
            for name, model in self.models.items()
        }
        check_memory(self.optimizers.values())
        self._examples = self._read(settings.data) if settings.data is not None else None

    @property
    def iterations(self) -> int:
        return self.settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        return Plan(self.settings.episodes if self.settings.data is None else 0)

    def check(self, session: Session) -> None:
        if self.settings.data is None and not len(session.problems("train")):
            raise UsageError("the task has no training problems")

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
                example = msgspec.json.decode(line, type=_Line)
            except msgspec.DecodeError as error:
                raise UsageError(
                    f'{where}: expected {{"model": ..., "messages": [...], "text": ...}} ({error})'
                ) from error
            check_known([example.model], list(self._student_of), where)
            student = self._student_of[example.model]
            messages = [msgspec.structs.asdict(message) for message in example.messages]
            try:
                examples[student].append(self.models[student].as_generation(messages, example.text))
            except CallError as error:
                raise UsageError(f"{where}: {error}") from error
        return examples

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Collect responses of teachers, unless a file gives them; then train every student."""
        examples = self._examples
        metrics: dict[str, float] = {}
        if examples is None:
            examples = await self._responses_of_teachers(session)
        for name, model in self.models.items():
            if not examples[name]:
                raise UsageError(f"{self._path}: there are no examples for {name}")
            with self.optimizers[name].pinned():
                losses = self._learn(name, model, examples[name], session.key.child("sft", name))
            metrics[f"{name}/loss"] = losses[-1]
            metrics[f"{name}/examples"] = float(len(examples[name]))
        return metrics

    async def _responses_of_teachers(self, session: Session) -> dict[str, list[Generation]]:
        settings, key = self.settings, session.key
        problems = session.problems("train")
        draws = key.child("problems").uniforms(settings.episodes)
        jobs = [
            Job(problems[int(draw * len(problems))], key.child("episode", n))
            for n, draw in enumerate(draws)
        ]
        with ExitStack() as stack:
            for name, model in self._speakers.items():
                stack.enter_context(model.answered_by(self._teachers[name]))
            episodes = await session.rollout(jobs)
        examples: dict[str, list[Generation]] = {name: [] for name in self.models}
        for episode in episodes:
            if settings.keep == "all" or episode.success:
                for turn in episode.turns:
                    for generation in generations_of(turn.output.metadata):
                        student = self._student_of.get(generation.model)
                        if student is not None:
                            examples[student].append(generation)
        return examples

    def _learn(
        self, name: str, model: Trainable, examples: Sequence[Generation], key: Key
    ) -> list[float]:
        """Take the steps of one student; return the loss of each."""
        import numpy as np

        optimizer, settings = self.optimizers[name], self.settings
        losses = []
        for step in range(settings.steps):
            draws = key.child(step).uniforms(min(settings.batch, len(examples)))
            chosen = [examples[int(draw * len(examples))] for draw in draws]
            sizes = np.array([len(item.prompt) + len(item.response) for item in chosen])
            tokens = sum(len(example.response) for example in chosen)

            def loss_of(
                rows: Integers, chosen: list[Generation] = chosen, tokens: int = tokens
            ) -> tuple[torch.Tensor, float]:
                loss = -model.score([chosen[i] for i in rows]).logprobs.sum() / tokens
                return loss, float(loss.detach())

            losses.append(sum(optimizer.accumulate(sizes, loss_of)))
            optimizer.step()
        model.updated()
        return losses

    def save(self) -> Saved:
        """Return the state of the optimizers; models save their weights."""
        arrays: dict[str, Array] = {}
        data: dict[str, JSON] = {}
        for name, optimizer in self.optimizers.items():
            saved = optimizer.save(f"{name}/")
            arrays.update(saved.arrays)
            data[name] = saved.data
        return Saved(arrays, data)

    def load(self, saved: Saved) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.load(Saved(saved.arrays, saved.data[name]), f"{name}/")


class _Message(msgspec.Struct):
    role: str
    content: str


class _Line(msgspec.Struct):
    model: str
    messages: list[_Message]
    text: str
