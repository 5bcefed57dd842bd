"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_sandbox"


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("sandbox", "sandbox", f"{HERE}.interface:Sandbox", many=False)


@hookimpl
def orchestrion_doctor() -> Iterator[tuple[str, str, str]]:
    from orchestrion_sandbox.selftest import findings

    yield from findings()


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    where = f"{HERE}.sandboxes"
    for component in (
        Component("auto", f"{where}:Auto", "the best sandbox that works on this machine"),
        Component("namespaces", f"{where}:Namespaces", "a warm interpreter behind namespaces"),
        Component("bwrap", f"{where}:Bubblewrap", "bubblewrap, a new interpreter a run"),
        Component(
            "container",
            f"{where}:Engine",
            "docker or podman, a container a run",
        ),
        Component("landlock", f"{where}:Landlock", "barred calls and files, in containers"),
        Component(
            "subprocess",
            f"{where}:Subprocess",
            "no protection at all; needs unsafe_local: true",
            example={"unsafe_local": True},
        ),
    ):
        yield "sandbox", component
