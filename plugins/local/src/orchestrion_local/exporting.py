"""Weights in folders that others load: an adapter in peft's format, or a whole model."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrion import RunError

if TYPE_CHECKING:
    from orchestrion_local.runtime import LocalModel

__all__ = ["Exports"]


class Exports:
    """One model's weights in a folder, a folder inside it for each version.

    Its name says what it holds: the model, the version, and a digest of the weights. So two runs
    that share a folder never take one's weights for the other's, and a run that was killed finds
    what it had written.

    Args:
        model: whose weights.
        folder: where; made if it is not there.
    """

    def __init__(self, model: LocalModel, folder: str) -> None:
        self._model, self._folder = model, Path(folder).absolute()
        self._stem = re.sub(r"[^A-Za-z0-9_-]", "_", model.name)
        self._written: list[str] = []

    @property
    def newest(self) -> str:
        """The name of what was written last."""
        return self._written[-1]

    def former(self) -> list[str]:
        """What was written before that, and is still there."""
        return self._written[:-1]

    def remove(self, name: str) -> None:
        """Delete what was written under a name."""
        shutil.rmtree(self._folder / name, ignore_errors=True)
        self._written.remove(name)

    def adapter(self, version: int) -> Path:
        """Write the adapter."""
        model, partial = self._model, self._partial()
        try:
            model.module.save_pretrained(
                str(partial), selected_adapters=[model.adapter], save_embedding_layers=False
            )
        except OSError as error:
            raise self._failed(error) from error
        # Any but the one called "default" gets a folder of its own.
        own = partial / (model.adapter or "")
        return self._done(own if own.is_dir() else partial, partial, version)

    def whole(self, version: int) -> Path:
        """Write the model, adapters folded in, and its tokenizer."""
        model, partial = self._model, self._partial()
        module = model.plain() if hasattr(model.module, "peft_config") else model.module
        try:
            with _quiet():
                module.save_pretrained(str(partial))
            model.tokenizer.save(str(partial))
        except OSError as error:
            raise self._failed(error) from error
        return self._done(partial, partial, version)

    def _partial(self) -> Path:
        # Made the ordinary way: the server may be another user's, and must be able to read it.
        partial = self._folder / f".{self._stem}-{os.getpid()}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
        except OSError as error:
            raise self._failed(error) from error
        return partial

    def _done(self, source: Path, partial: Path, version: int) -> Path:
        digest = hashlib.blake2b(repr(self._model.settings.lora).encode(), digest_size=8)
        # What else is there says nothing of the weights, or is not written the same way twice.
        for file in sorted((*source.glob("*.safetensors"), *source.glob("config.json"))):
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "blake2b").digest())
            # safetensors keeps what it writes to its own user.
            shutil.copymode(next(source.glob("*.json")), file)
        name = f"{self._stem}-v{version}-{digest.hexdigest()}"
        final = self._folder / name
        if not final.exists():
            source.rename(final)
        shutil.rmtree(partial, ignore_errors=True)
        if name in self._written:
            self._written.remove(name)
        self._written.append(name)
        return final

    def _failed(self, error: OSError) -> RunError:
        return RunError(f"{self._folder}: weights cannot be put there: {error}")


@contextmanager
def _quiet() -> Iterator[None]:
    """No bar for each version on the screen of a run."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
