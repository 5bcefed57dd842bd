"""Replay a recorded run from its journal, and compare the results.

Everything runs again, in a temporary folder: policies decide, agents act, trainers learn. Only the
calls are not made: each gets its recorded answer, or fails as it did then. The results are compared
with those of the run, episode by episode and file by file.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from attrs import evolve, frozen

from orchestrion._comparison import differences
from orchestrion._errors import ReplayError, RunError, UsageError
from orchestrion._interfaces import Metrics
from orchestrion._manifest import changed_versions, manifest
from orchestrion._offline import no_network
from orchestrion._progress import Progress
from orchestrion._run import Conduct
from orchestrion._store import Checkpoint, Iteration, RunReader, RunStore, read_checkpoint
from orchestrion._store.exports import export_run
from orchestrion._store.lock import lock_holder
from orchestrion._stored import changed_settings
from orchestrion.config import Config, load


@frozen
class Replayed:
    """The result of a replay; `difference` is "" if there is none."""

    difference: str
    iterations: int
    evaluations: int
    episodes: int
    exports: tuple[str, ...]
    notes: tuple[str, ...]


class _Enough(Exception):
    """Ends a replay when all that the run committed was replayed."""


class _Following(Progress):
    """Ends a replay by `_Enough` where the recorded run ended, or at the first difference."""

    def __init__(self, recorded: RunReader, store: RunStore, progress: Progress) -> None:
        self.recorded, self.store, self.progress = recorded, store, progress
        self.iterations = len(recorded.iterations())
        self.evaluations = recorded.load_evaluations()

    def noted(self, path: str, name: str, text: str) -> None:
        """Do nothing: it is known from the run."""

    def stage(self, name: str, iterations: int, done: int) -> None:
        """End it if no iteration is left to compare with."""
        if iterations > done and len(self.store.iterations()) >= self.iterations:
            raise _Enough
        self.progress.stage(name, iterations, done)

    def iteration(self, iteration: int, metrics: Metrics, seconds: float) -> None:
        """End it after the last iteration, or the first that differs."""
        self.progress.iteration(iteration, metrics, seconds)
        last = len(self.store.iterations()) >= self.iterations and not self.evaluations
        if last or _differing_iteration(self.recorded, self.store):
            raise _Enough

    def evaluating(self, name: str, known: bool) -> None:
        """End it if this evaluation is not there to compare with."""
        if name not in self.evaluations:
            raise _Enough
        self.progress.evaluating(name, known)

    def training(self, name: str, episodes: int, most: int | None) -> None:
        """Show it."""
        self.progress.training(name, episodes, most)


async def replay(directory: Path, progress: Progress, block: Sequence[str] = ()) -> Replayed:
    """Replay a recorded run without making a call, and compare; the run is not changed.

    Raises:
        UsageError: the run is in use, its config was changed, or its answers were not kept.
    """
    if lock_holder(directory) is not None:
        raise UsageError(f"{directory}: the run is still being written; wait until it has ended")
    config = load(directory / "config.yaml", block=block)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="orchestrion-replay-")))
        recorded = stack.enter_context(RunReader(_copy(directory, folder / "recorded")))
        recorded.verify()
        _check(config, recorded, directory)
        begun = {k: v for k, v in (recorded.manifest or {}).items() if k != "opened"}
        store = stack.enter_context(
            RunStore.create(
                folder / "replayed",
                recorded.config_text,
                begun,
                retention=recorded.retention,
                keep=recorded.keep,
            )
        )
        notes = list(config.plugins.notes()) + _versions(config, begun)
        run = Conduct(config, store, _Following(recorded, store, progress), replay=recorded)
        difference = ""
        try:
            with no_network(ReplayError, "a replay makes no calls"):
                await run.train()
            for name, results in recorded.load_evaluations().items():
                if results.get("of_another_run"):
                    store.save_evaluation(name, results)
            store.set_status("completed")
        except _Enough:
            pass
        except RunError as error:
            difference = str(error)
        replayed = _compared(directory, recorded, store, difference, notes)
        changed = {"the task's data": run.changed_data, "code": run.changed_code}
        reasons = [
            f"{what} was changed since the run began ({text})"
            for what, text in changed.items()
            if text
        ]
        if replayed.difference and reasons:
            difference = f"{', and '.join(reasons)}: {replayed.difference}"
            return evolve(replayed, difference=difference)
        return replayed


def _copy(directory: Path, to: Path) -> Path:
    """Copy the database of a run: reading it in place could leave files beside it."""
    to.mkdir()
    for name in ("config.yaml", "run.db", "run.db-wal"):
        if (directory / name).exists():
            shutil.copyfile(directory / name, to / name)
    (to / "checkpoints").symlink_to((directory / "checkpoints").absolute())  # only read
    return to


def _check(config: Config, recorded: RunReader, directory: Path) -> None:
    begun_with = (recorded.manifest or {}).get("digest")
    if begun_with is not None and not config.is_unchanged(begun_with):
        raise UsageError(
            f"{directory}: its config.yaml, or what it includes, was changed since the run began"
            f"{changed_settings(recorded)}; put it back as it was"
        )
    forgotten = recorded.journal.forgotten()
    if forgotten:
        raise UsageError(
            f"{directory}: the answers of {forgotten} calls were not kept (run.retention: "
            f"{recorded.retention}); only a run with `retention: all` can be replayed"
        )


def _versions(config: Config, begun: Mapping[str, Any]) -> list[str]:
    now = manifest(config)["versions"]
    notes = [
        f"iterations from {resumed['after_iterations']} on were recorded with other versions"
        for resumed in begun.get("resumed", ())
    ]
    changed = changed_versions(begun.get("versions", now), now)
    if changed:
        notes.append(f"other versions than when it was recorded: {', '.join(changed)}")
    return notes


# ------------------------------------------------------------------------------- comparing


def _compared(
    directory: Path, recorded: RunReader, store: RunStore, failure: str, notes: list[str]
) -> Replayed:
    complete = recorded.status == "completed"
    if not complete:
        notes.append(
            f"the run is {recorded.status}: compared is what it committed, and exports are not"
        )
    difference = (
        _differing_iteration(recorded, store)
        or _differing_episode(recorded, store)
        or failure
        or _differing_evaluation(recorded, store)
        or _missing(recorded, store)
    )
    names: tuple[str, ...] = ()
    if complete and not difference:
        names, difference = _exports(directory, recorded, store)
    return Replayed(difference, **_counts(store), exports=names, notes=tuple(notes))


def _counts(run: RunReader) -> dict[str, int]:
    return {
        "iterations": len(run.iterations()),
        "evaluations": len(run.load_evaluations()),
        "episodes": sum(1 for _ in run.episode_rows()),
    }


def _missing(recorded: RunReader, store: RunReader) -> str:
    """Return what the recorded run has and the replay lacks."""
    then, now = _counts(recorded), _counts(store)
    for what, count in then.items():
        if count != now[what]:
            return f"{count} {what} are on record, and the replay has {now[what]}"
    return ""


def _differing_iteration(recorded: RunReader, store: RunReader) -> str:
    for then, now in zip(recorded.iterations(), store.iterations(), strict=False):
        where = f"iteration {now.iteration + 1} of stage {now.stage + 1}"
        if difference := _difference({**then.metrics}, {**now.metrics}):
            # Where the first episode differs says more than a mean.
            return _differing_episode(recorded, store) or f"{where}: {difference}"
        if not then.digest or not now.digest or then.digest == now.digest:
            continue
        if _checkpoint_of(recorded, then) != _checkpoint_of(store, now):
            return f"{where}: what was learned differs (checkpoint {then.checkpoint})"
    return ""


def _checkpoint_of(run: RunReader, iteration: Iteration) -> Checkpoint:
    """Return a checkpoint without the versions it was written with, which may differ."""
    path = run.checkpoints / str(iteration.checkpoint)
    return evolve(read_checkpoint(path, iteration.digest), versions={})


def _differing_episode(recorded: RunReader, store: RunReader) -> str:
    before = {row["id"]: row for row in recorded.episode_rows()}
    for now in store.episode_rows():
        then = before.get(now["id"])
        if then is None:
            return f"episode {now['id']}: is not on record"
        for name, value in now.items():
            if name == "number" or then[name] == value:
                continue
            if name in ("record", "public"):
                decode = msgspec.json.decode
                difference = _difference(decode(then[name]), decode(value))
            else:
                difference = _difference(then[name], value, name)
            return f"episode {now['id']}: {difference or f'{name} differs'}"
    return ""


def _differing_evaluation(recorded: RunReader, store: RunReader) -> str:
    before = recorded.load_evaluations()
    for name, now in store.load_evaluations().items():
        if difference := _difference(before.get(name), now):
            return f"evaluation of {name}: {difference}"
    return ""


def _difference(then: Any, now: Any, place: str = "") -> str:
    """Return in words where two JSON values differ first; "" if they are equal."""
    for where, before, after in differences(then, now, place):
        return f"{where} was {_short(before)}, and is {_short(after)} now"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _exports(directory: Path, recorded: RunReader, store: RunReader) -> tuple[tuple[str, ...], str]:
    """Return the names of the files that were compared, and the first difference."""
    names: tuple[str, ...] = ()
    for again, path in zip(export_run(recorded), export_run(store), strict=True):
        # The file that the run wrote itself, if it still exists.
        own = directory / "exports" / path.name
        before = _content(own if own.exists() and recorded.retention == "all" else again)
        after = _content(path)
        names += (path.name,)
        if before != after:
            lines = zip(before.splitlines(), after.splitlines(), strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], lines))
            return names, f"exports/{path.name}: differs from line {same + 1} on"
    return names, ""


def _content(path: Path) -> bytes:
    """Return a file's content, without what depends on more than config and seed."""
    if path.name != "summary.json":
        return path.read_bytes()
    data = msgspec.json.decode(path.read_bytes())
    data.pop("execution", None)
    data.pop("checkpoint", None)  # compared by what is in it
    for results in data["evaluations"].values():
        results.pop("digests", None)  # compared with the evaluations, if the run has them
    (data.get("manifest") or {}).pop("opened", None)
    return msgspec.json.format(msgspec.json.encode(data), indent=2)
