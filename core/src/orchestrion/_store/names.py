"""Where runs live and what they are called: `runs/NAME-NUMBER`."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from orchestrion._errors import StoreError, UsageError
from orchestrion._store.database import NAME

RUNS = Path("runs")
_NUMBERED = re.compile(r"(.+)-(\d+)")


def is_run(directory: Path) -> bool:
    """Return whether a folder holds a run; one that does holds all of it."""
    return (directory / NAME).is_file()


def run_at(directory: Path) -> Path:
    """Return the absolute path of a run's folder."""
    if not is_run(directory):
        raise StoreError(f"{directory}: holds no run; `orchestrion runs list` shows all runs")
    return directory.absolute()


def nested_runs(folder: Path) -> str:
    """Return a hint at runs in folders right below a folder, e.g. of a sweep; "" if none are."""
    below = sorted(folder.iterdir()) if folder.is_dir() else []
    holding = [p for p in below if not is_run(p) and p.is_dir() and run_directories(p)]
    return f"; there are some in folders below: add --root {holding[0]}" if holding else ""


def run_directories(root: Path = RUNS) -> list[Path]:
    """Return all runs of a folder, by name and number."""
    paths = [path for path in root.iterdir() if is_run(path)] if root.is_dir() else []
    return sorted((p for p in paths if not p.name.startswith(".")), key=_order)


def _order(path: Path) -> tuple[str, int, str]:
    """Return the name of a run, its number (-1 for none), and the whole name if it has none."""
    match = _NUMBERED.fullmatch(path.name)
    return (match[1], int(match[2]), "") if match else (path.name, -1, path.name)


def next_directory(name: str, root: Path = RUNS) -> Path:
    """Return the folder for a new run: the name with the first number above all in use."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    paths = root.iterdir() if root.is_dir() else ()
    numbers = [number for name, number, _ in map(_order, paths) if name == stem]
    return root / f"{stem}-{max([0, *numbers]) + 1}"


def run_folder(name: str) -> Path:
    """Return the folder for run folders that `run.directory` names; it need not exist yet."""
    try:
        folder = Path(name).expanduser()
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"run.directory: {name:.80} cannot be used: {reason}") from None
    existing = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), Path())
    if not existing.is_dir():
        raise UsageError(f"run.directory: {existing} is not a folder")
    return folder


def find_run(name_or_path: str | os.PathLike[str], root: Path = RUNS) -> Path:
    """Return the folder of a run, given a path, a name in `root`, or a name without its number.

    The last means the one with the highest number.

    Raises:
        UsageError: there is none; names the nearest.
    """
    for path in (Path(name_or_path), root / name_or_path):
        if is_run(path):
            return path
    runs = run_directories(root)
    wanted = str(name_or_path)
    numbered = [path for path in runs if _order(path)[0] == wanted]
    if numbered:
        return numbered[-1]
    near = get_close_matches(Path(wanted).name, [path.name for path in runs], n=1)
    are = "run is" if len(runs) == 1 else "runs are"
    hint = f"; did you mean {near[0]}?" if near else f"; {len(runs)} {are} in {root}"
    for folder in (Path(wanted), root / wanted):
        if inside := run_directories(folder):
            hint = f", but a folder of {len(inside)} runs: name one, such as {inside[0]}"
    raise UsageError(f"no run {wanted!r} here{hint}")
