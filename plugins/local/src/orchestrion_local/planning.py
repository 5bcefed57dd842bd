"""A plan of where the models of a config are placed, and whether they fit; nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from attrs import evolve, frozen

from orchestrion import RunError, UsageError
from orchestrion.config import Config, Entry
from orchestrion_local.devices import Torch, free_memory
from orchestrion_local.memory import SPARE, Footprint, footprint_of
from orchestrion_local.networks import network_of
from orchestrion_local.settings import ModelSettings
from orchestrion_local.sizes import parse_size, size_text

PROCESSOR = "processor"
Counter = Callable[["PlannedModel"], int]


@frozen
class PlannedModel:
    """A model with weights of its own.

    Args:
        name: its config name.
        footprint: the memory that it needs.
        under: the model whose weights its adapter is on, if that is another one.
        dtype: of its weights.
        learns: whether a trainer trains it.
        micro_batch: tokens in a forward pass, if the config gives them.
        batch: completions computed together, if the config gives them.
        samples: whether responses are sampled here, not by a server.
        carries: whether adapters on it, which are other models, are trained.
    """

    name: str
    footprint: Footprint
    under: str | None
    dtype: str
    learns: bool
    micro_batch: int | None
    batch: int | None
    samples: bool
    carries: bool = False

    @property
    def state(self) -> int:
        """Bytes of its optimizer, and of what ranks need."""
        return (self.footprint.state if self.learns else 0) + self.shared

    @property
    def shared(self) -> int:
        """Bytes that ranks need beside the optimizer."""
        own = self.learns and self.under is None
        return self.footprint.shared(self.learns) if own or self.carries else 0


@frozen
class Need:
    """One use of memory: by which model, for what, how many bytes, and when."""

    model: str
    what: str
    size: int
    when: str


@frozen
class DevicePlan:
    """A device, and the models on it.

    Args:
        name: its config name.
        device: its name in torch.
        memory: its bytes; None if unknown.
        offload: whether its models take turns.
        models: the models on it.
    """

    name: str
    device: str
    memory: int | None
    offload: bool
    models: tuple[PlannedModel, ...]

    def resident(self, model: PlannedModel, learning: bool) -> int:
        """Return the bytes in use while a model learns or samples, without its batches."""
        if not self.offload:
            return sum(other.footprint.weights + other.state for other in self.models)
        together = [other for other in self.models if other.name in (model.name, model.under)]
        weights = sum(other.footprint.weights for other in together)
        return weights + (model.state if learning else 0)

    def room(self, model: PlannedModel, learning: bool) -> int | None:
        """Return the bytes for a model's batches; None if the memory is not known."""
        return None if self.memory is None else self.memory - self.resident(model, learning)

    def micro_batch(self, model: PlannedModel) -> int:
        """Return the tokens of a forward pass in training, at least a row's."""
        own = model.footprint
        return model.micro_batch or max(own.row, own.micro_batch(self.room(model, True)))

    def batch(self, model: PlannedModel) -> int:
        """Return how many completions are computed together."""
        return model.batch or model.footprint.batch(self.room(model, False))

    def needs(self) -> Iterator[Need]:
        """Yield all uses of memory, model by model."""
        always = "its turns" if self.offload else "always"
        for model in self.models:
            own = model.footprint
            if own.adapter is not None:
                what = f"adapter of rank {own.adapter[0]}, {_count(own.trained)}"
                what += "" if model.under else f", on {_count(own.network.weights)} {model.dtype}"
            else:
                what = f"weights, {_count(own.network.weights)} {model.dtype}"
            yield Need(model.name, what, own.weights, always)
            ranks = ""
            if own.ranks > 1:
                ranks = f", {'each' if own.here == 1 else 'all'} of {own.ranks} ranks"
            if model.shared:
                whole = model.learns and own.adapter is None
                what = "layers in use" if whole else "weights in parts, layers in use"
                yield Need(model.name, what + ranks, model.shared, always)
            if model.learns:
                when = "while it learns"
                what = f"optimizer{', weights in parts' if ranks else ''}{ranks}"
                yield Need(model.name, what, own.state, when if self.offload else always)
                tokens = self.micro_batch(model)
                what = f"micro-batch of {tokens} tokens{ranks}"
                yield Need(model.name, what, own.training(tokens), when)
            if model.samples:
                count = self.batch(model)
                what = f"batch of {count} completions of {own.row} tokens"
                yield Need(model.name, what, count * own.completion, "while it samples")

    def _moments(self, tokens: Counter, completions: Counter) -> Iterator[tuple[int, int, str]]:
        """Yield for each moment the bytes in use, the bytes of its batches, and its name."""
        for model in self.models:
            own = model.footprint
            yield self.resident(model, False), 0, "always"
            if model.learns:
                size = own.training(tokens(model))
                yield self.resident(model, True), size, f"while {model.name} learns"
            if model.samples:
                size = completions(model) * own.completion
                yield self.resident(model, False), size, f"while {model.name} samples"

    @property
    def most(self) -> tuple[int, str]:
        """The largest number of bytes that is needed at one time, and when."""
        moments = self._moments(self.micro_batch, self.batch)
        return max((here + batch, when) for here, batch, when in moments)

    @property
    def elsewhere(self) -> int:
        """The largest number of bytes on a GPU that only trains, as a rank; 0 without such GPUs."""
        ranked = [model for model in self.models if model.footprint.ranks > model.footprint.here]
        passes = [m.footprint.training(self.micro_batch(m)) for m in ranked if m.learns]
        return sum(model.state for model in ranked) + max(passes, default=0)

    @property
    def lacking(self) -> tuple[int, str] | None:
        """The bytes that are needed, and when, if they do not fit with the smallest batches.

        The smallest batches are those in the config, or one row.
        """
        moments = self._moments(
            lambda model: model.micro_batch or model.footprint.row, lambda model: model.batch or 1
        )
        return max(
            (
                (here + batch, when)
                for here, batch, when in moments
                if self.memory is not None and here + batch / (1 - SPARE) > self.memory
            ),
            default=None,
        )

    def remedy(self) -> str:
        """Return which settings would make it fit, the least change first, as a sentence."""
        for words, plan in self._changed():
            if plan.lacking is None:
                return f"it would fit with {' and '.join(words)}"
        return "use a smaller model, or a device of its own for each model"

    def _changed(self) -> Iterator[tuple[list[str], DevicePlan]]:
        """Yield the plan with other settings, and a description of these settings."""
        models = tuple(evolve(model, micro_batch=None, batch=None) for model in self.models)
        freed = evolve(self, models=models)
        yield ["no `micro_batch` and no `batch`, which are then chosen"], freed
        ranked = any(model.footprint.ranks > 1 for model in self.models)
        turns = (False,) if self.offload or ranked or len(self.models) < 2 else (False, True)
        for shorter, lora, offload, again in product((False, True), (False, True), turns, (0, 1)):
            words, plan = [], evolve(freed, offload=self.offload or offload)
            if again:
                words.append("`gradient_checkpointing: true` on the models")
            if offload:
                aside = "disk" if self.device == "cpu" else "cpu"
                words.append(f"`offload: {aside}` on the device")
            if lora:
                words.append("a `lora: {rank: 16}` on the models")
            if shorter:
                longest = max(model.footprint.row for model in self.models)
                words.append(f"`context: {longest // 2}` on the models")
            models = tuple(_with(model, bool(again), lora, shorter) for model in plan.models)
            if words:
                yield words, evolve(plan, models=models)

    def check(self) -> None:
        """Raise RunError if it does not fit; say which settings would help."""
        if self.lacking is not None and self.memory is not None:
            size, when = self.lacking
            raise RunError(
                f"devices.{self.name}: at least {size_text(size)} are needed {when}, and "
                f"{self.device} has {size_text(self.memory)}; {self.remedy()}"
            )


def _count(weights: int) -> str:
    return f"{weights / 1e9:.2f} B" if weights >= 1e8 else f"{weights / 1e6:.2f} M"


def _with(model: PlannedModel, again: bool, lora: bool, shorter: bool) -> PlannedModel:
    own = model.footprint
    if shorter:
        own = evolve(own, row=own.row // 2)
    if again and model.learns:
        own = evolve(own, again=True)
    if lora and model.learns and own.adapter is None:
        own = evolve(own, adapter=(16, ()))
    return evolve(model, footprint=own)


# ---------------------------------------------------------------------- from configs


def gpus_of(text: str) -> list[int]:
    """Return the bytes of each GPU of a claim like "2x80GiB".

    Raises:
        UsageError: the text is no such claim.
    """
    count, _, size = text.partition("x")
    try:
        return [parse_size(size)] * int(count)
    except (KeyError, ValueError):
        raise UsageError(f"--gpus: expected a claim like 2x80GiB, got {text!r}") from None


def plan_of(config: Config, gpus: Sequence[int] | None = None) -> list[DevicePlan]:
    """Return the devices of a config, each with its models.

    Args:
        config: the config.
        gpus: bytes of each GPU there will be; None for those that torch sees here.

    Raises:
        UsageError: there is no such GPU, or the sizes of a model cannot be found.
    """
    models: dict[str, list[PlannedModel]] = {}
    trained = dict(_trained(config))
    sampled = {
        _weights(config, path)
        for entry in config.components.values()
        for name, paths in entry.refs.items()
        if name != "base" and not (name == "models" and entry.kind == "trainer")
        for path in paths
    }
    for path, entry in config.components.items():
        if isinstance(entry.component, ModelSettings) and not entry.component.is_alias:
            model = _planned(config, entry, trained, path in sampled)
            models.setdefault(_device_of(config, path), []).append(model)
    plans = []
    for path, placed in models.items():
        carrying = {model.under for model in placed if model.learns}
        placed = [evolve(model, carries=model.name in carrying) for model in placed]
        name = path.partition(".")[2] or path
        device = config.components[path].component if path != PROCESSOR else Torch()
        if not isinstance(device, Torch):
            raise UsageError(f"{path}: a plan knows devices of the component `torch` only")
        memory = _memory(path, device, gpus, max(model.footprint.ranks for model in placed))
        plans.append(DevicePlan(name, device.name, memory, bool(device.offload), tuple(placed)))
    return plans


def _planned(
    config: Config, entry: Entry, trained: Mapping[str, int | None], sampled: bool
) -> PlannedModel:
    settings = entry.component
    root = settings.root()
    base = _weights(config, entry.refs["base"][0]) if "base" in entry.refs else None
    return PlannedModel(
        entry.path.partition(".")[2] or entry.path,
        footprint_of(settings, network_of(entry.path, root)),
        base.partition(".")[2] if base and settings.lora is not None else None,
        root.dtype,
        entry.path in trained,
        trained.get(entry.path),
        settings.inherited("batch"),
        sampled and settings.server is None,
    )


def _weights(config: Config, path: str) -> str:
    """Return the path of the model that has the weights: of the base if this is an alias."""
    entry = config.components[path]
    is_alias = isinstance(entry.component, ModelSettings) and entry.component.is_alias
    return _weights(config, entry.refs["base"][0]) if is_alias else path


def _device_of(config: Config, path: str) -> str:
    refs = config.components[path].refs
    if refs.get("device"):
        return refs["device"][0]
    return _device_of(config, refs["base"][0]) if refs.get("base") else PROCESSOR


def _trained(config: Config) -> Iterator[tuple[str, int | None]]:
    """Yield the paths of models that are trained, each with the micro-batch of its trainer."""
    for stage in config.stages:
        entry = config.components[stage]
        if not hasattr(entry.component, "micro_batch"):
            continue
        for path in entry.refs.get("models", ()):
            path = _weights(config, path)
            refs = config.components[path].refs
            if getattr(entry.component, "base", False) and refs.get("base"):
                path = _weights(config, refs["base"][0])
            yield path, entry.component.micro_batch


def _memory(path: str, device: Torch, gpus: Sequence[int] | None, ranks: int) -> int | None:
    """Return the bytes of a device and of the GPUs of its ranks: by the config, or what is free."""
    limit = parse_size(device.memory) if device.memory is not None else None
    if device.name == "cpu":
        return limit if limit is not None else free_memory()
    if gpus is None:
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        gpus = [int(torch.cuda.mem_get_info(i)[0]) for i in range(count)]
        if not gpus and limit is None:
            raise UsageError(
                f"{path}: torch sees no GPU here; say what the run will have, e.g. --gpus 1x80GiB"
            )
        if not gpus:
            return limit
    index = int(device.name.partition(":")[2] or 0)
    if index + ranks > len(gpus):
        needed = f"{device.name} is number {index + 1}"
        if ranks > 1:
            needed = f"ranks {ranks} from {device.name} on need number {index + ranks}"
        raise UsageError(
            f"{path}: {needed} of {len(gpus)} GPUs; use `name: cuda:0`"
            f"{f' to cuda:{len(gpus) - 1}' if len(gpus) > 1 else ''}, or claim more with --gpus"
        )
    least = min(gpus[index : index + ranks])
    return least if limit is None else min(limit, least)
