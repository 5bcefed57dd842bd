"""Writes weights to folders that others load: adapters in peft's format, or whole models."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrion import RunError
from orchestrion_local.runtime import LocalModel


class Exports:
    """Writes each version of one model's weights to a folder of its own.

    Its name has the model, the version, and a digest of the weights. So two runs that share a
    folder never mistake each other's weights, and a run that was killed finds what it had written.

    Args:
        model: the model.
        folder: where the folders are; made if it does not exist.
    """

    def __init__(self, model: LocalModel, folder: str) -> None:
        self._model, self._folder = model, Path(folder).absolute()
        self._stem = re.sub(r"[^A-Za-z0-9_-]", "_", model.name)
        self._written: list[str] = []

    @property
    def newest(self) -> str:
        """The name of the newest version."""
        return self._written[-1]

    def former(self) -> list[str]:
        """Return the names of older versions that were not removed."""
        return self._written[:-1]

    def remove(self, name: str) -> None:
        """Delete a version."""
        shutil.rmtree(self._folder / name, ignore_errors=True)
        self._written.remove(name)

    def adapter(self, version: int) -> Path:
        """Write the adapter; return its folder. Raises RunError if that is not possible."""
        model = self._model
        with self._partial() as partial:
            model.module.save_pretrained(
                str(partial), selected_adapters=[model.adapter], save_embedding_layers=False
            )
        # peft puts every adapter but "default" in a folder of its own.
        own = partial / (model.adapter or "")
        return self._done(own if own.is_dir() else partial, partial, version)

    def whole(self, version: int) -> Path:
        """Write the model, adapters merged, and its tokenizer; return its folder."""
        model = self._model
        module = model.plain() if hasattr(model.module, "peft_config") else model.module
        with self._partial() as partial:
            with _quiet():
                module.save_pretrained(str(partial))
            model.tokenizer.save(str(partial))
        return self._done(partial, partial, version)

    @contextmanager
    def _partial(self) -> Iterator[Path]:
        # With ordinary permissions: the server may be another user's, and must read it.
        partial = self._folder / f".{self._stem}-{os.getpid()}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            yield partial
        except OSError as error:
            raise RunError(f"{self._folder}: weights cannot be written there: {error}") from error

    def _done(self, source: Path, partial: Path, version: int) -> Path:
        digest = hashlib.blake2b(repr(self._model.settings.lora).encode(), digest_size=8)
        # The other files do not depend on the weights, or differ each time.
        for file in sorted((*source.glob("*.safetensors"), *source.glob("config.json"))):
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "blake2b").digest())
            # safetensors makes files that only their owner can read.
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the library's progress bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
