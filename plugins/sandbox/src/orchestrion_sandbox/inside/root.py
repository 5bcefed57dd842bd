"""The file system that runs see: the interpreter at a fixed path, and what it needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import linux

SCRATCH = "/tmp"
HERE = "/sandbox/orchestrion_sandbox/inside"  # this package
_ROOT = "/tmp"
# Not "zero": mapped and shared, it is memory that no limit counts.
DEVICES = ("null", "full", "random", "urandom")
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_MAX_LIBRARIES = 64


def build(settings: dict[str, Any]) -> None:
    """Make a read-only tree the root, with the interpreter and nothing else in it.

    Of the host it has shared libraries, four devices and the profile's folders of packages.
    """
    linux.mount("", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    links = [(os.readlink(folder), folder) for folder in SYSTEM if os.path.islink(folder)]
    shown = [
        *system_folders(settings["multiarch"]),
        *python_files(settings),
        (settings["inside"], HERE),
    ]
    shown += [(folder, f"/packages/{i}") for i, folder in enumerate(settings["packages"])]
    # Open all first: the new file system may hide their folders.
    sources = [(_opened(source), target) for source, target in shown]
    devices = [(_opened(f"/dev/{name}"), f"/dev/{name}") for name in DEVICES]
    linux.mount("root", _ROOT, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,mode=755")
    for source, target in links:
        os.makedirs(os.path.dirname(_ROOT + target), exist_ok=True)
        os.symlink(source, _ROOT + target)
    for folder in (SCRATCH, "/packages"):
        os.makedirs(_ROOT + folder, exist_ok=True)
    for fd, target in sources:
        _place(fd, target)
        linux.bind(f"/proc/self/fd/{fd}", _ROOT + target)
    for folder in _third_party([target for _, target in shown]):
        linux.mount("none", folder, "tmpfs", 0, "size=4k,mode=755")
    for fd, target in devices:
        _place(fd, target)
    linux.make_read_only(_ROOT)
    for fd, target in devices:
        linux.bind(f"/proc/self/fd/{fd}", _ROOT + target)
        linux.make_read_only(_ROOT + target, linux.ATTR_NOSUID | linux.ATTR_NOEXEC)
    for fd, _ in (*sources, *devices):
        os.close(fd)
    linux.pivot_root(_ROOT)


def scratch_options(limits: Mapping[str, Any]) -> str:
    """Return the mount options of the only writable folder, which counts as a file itself."""
    return f"size={limits['scratch_mb']}m,nr_inodes={limits['files'] + 1},mode=700"


def _opened(path: str) -> int:
    return os.open(path, os.O_PATH)


def _place(fd: int, target: str) -> None:
    """Make a mount point: a folder for a folder, else a file."""
    path = _ROOT + target
    if os.path.isdir(f"/proc/self/fd/{fd}"):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def system_folders(multiarch: str) -> list[tuple[str, str]]:
    """Return folders of shared libraries and where to show them, without other files there."""
    links = []
    for folder in SYSTEM:
        if os.path.islink(folder) or not os.path.isdir(folder):
            continue
        own = os.path.join(folder, multiarch)
        shown = own if multiarch and os.path.isdir(own) else folder
        links.append((shown, shown))
    return links


def python_files(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the interpreter's executable, library and shared objects, and where to show them.

    `settings` has the paths `python`, `prefix` and `stdlib`.
    """
    prefix, stdlib = settings["prefix"], settings["stdlib"]
    shown = [(settings["python"], "/python/bin/python")]
    shown.append((stdlib, os.path.join("/python", os.path.relpath(stdlib, prefix))))
    beside = os.path.join(prefix, "lib")
    if beside in SYSTEM or not os.path.isdir(beside):
        return shown
    names = [
        name
        for name in sorted(os.listdir(beside))
        if ".so" in name and os.path.isfile(os.path.join(beside, name))
    ]
    if len(names) > _MAX_LIBRARIES:  # a whole distribution of its own, e.g. conda's
        return [shown[0], (beside, "/python/lib")]
    return [*shown, *((os.path.join(beside, name), f"/python/lib/{name}") for name in names)]


def _third_party(shown: list[str]) -> list[str]:
    """Return folders of installed packages below the shown ones, which have to be hidden."""
    names = ("site-packages", "dist-packages", "python3/dist-packages")
    links = []
    for target in shown:
        if target.startswith(("/python", "/usr/lib", "/lib")):
            folders = [target, *(f"{target}/{name}" for name in _versions(target))]
            links += [os.path.join(_ROOT + folder, name) for folder in folders for name in names]
    return [folder for folder in dict.fromkeys(links) if os.path.isdir(folder)]


def _versions(target: str) -> list[str]:
    path = _ROOT + target
    if not os.path.isdir(path):
        return []
    return [name for name in os.listdir(path) if name.startswith("python3.")]
