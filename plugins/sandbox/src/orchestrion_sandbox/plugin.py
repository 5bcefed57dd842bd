"""The components, the kind and the checks of this distribution."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_sandbox"


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("sandbox", "sandbox", f"{HERE}.supervising:Sandbox", many=False)


@hookimpl
def orchestrion_doctor() -> Iterator[tuple[str, str, str]]:
    from orchestrion_sandbox.selftest import findings

    yield from findings()


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    where = f"{HERE}.sandboxes"
    for name, settings, text in (
        ("auto", "Auto", "the best sandbox that works on this machine"),
        ("namespaces", "Namespaces", "a warm interpreter in namespaces"),
        ("bwrap", "Bubblewrap", "bubblewrap, a new interpreter for each run"),
        ("container", "Engine", "docker or podman, a container for each run"),
        ("landlock", "Landlock", "blocked system calls and files, for containers"),
    ):
        yield "sandbox", Component(name, f"{where}:{settings}", text)
    unsafe = "no protection at all; needs unsafe_local: true"
    example = {"unsafe_local": True}
    yield "sandbox", Component("subprocess", f"{where}:Subprocess", unsafe, example=example)
