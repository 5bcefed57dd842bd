"""Prepare a release: one version for all members, the change log, the wheels in order.

python tests/packaging/release.py 0.2.0            what would be done
python tests/packaging/release.py 0.2.0 --write    set versions and ranges, move changelog.d
python tests/packaging/release.py 0.2.0 --build    build wheels into dist/, in the order to publish
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from collections.abc import Sequence
from email.parser import Parser
from graphlib import TopologicalSorter
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.workspace import Member, members  # noqa: E402

KINDS = ("added", "changed", "fixed", "removed")


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 0 if everything fits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("version", type=Version)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--build", action="store_true")
    options = parser.parse_args(arguments)
    if options.write:
        for path, text in changed_files(ROOT, options.version).items():
            path.write_text(text, encoding="utf-8")
        for fragment in fragments(ROOT):
            fragment.unlink()
    order = in_order(members())
    problems = mismatches(order, options.version)
    for problem in problems:
        print(problem)
    if options.build and not problems:
        for member in order:
            print(build(member, ROOT / "dist", options.version).name)
    if not (options.write or options.build):
        print("to publish, in this order:", ", ".join(member.name for member in order))
    return 1 if problems and not options.write else 0


def in_order(all_members: Sequence[Member]) -> list[Member]:
    """Return members so that each comes after those it depends on.

    Raises:
        graphlib.CycleError: members depend on each other in a circle.
    """
    by_name = {member.name: member for member in all_members}
    graph = {
        name: {need.name for need in needs(member)} & by_name.keys()
        for name, member in by_name.items()
    }
    return [by_name[name] for name in TopologicalSorter(graph).static_order()]


def needs(member: Member) -> list[Requirement]:
    """Return what a member's pyproject.toml requires."""
    return [Requirement(text) for text in member.project.get("dependencies", ())]


def mismatches(all_members: Sequence[Member], version: Version) -> list[str]:
    """Return what keeps members from being released under this version, a line each."""
    names = {member.name for member in all_members}
    wanted = f"<{version.major}.{version.minor + 1},>={version.major}.{version.minor}"
    lines = []
    for member in all_members:
        if member.project["version"] != str(version):
            lines.append(f"{member.path}: version is {member.project['version']}")
        lines += [
            f"{member.path}: requires {need}; write {need.name}{wanted}"
            for need in needs(member)
            if need.name in names and str(need.specifier) != wanted
        ]
    return lines


def fragments(root: Path) -> list[Path]:
    """Return the files of changelog.d, without its README."""
    files = sorted((root / "changelog.d").glob("*.md"))
    return [file for file in files if file.name != "README.md"]


def changed_files(root: Path, version: Version) -> dict[Path, str]:
    """Return the files that a release changes, with their new content."""
    files: dict[Path, str] = {}
    names = "|".join(re.escape(member.name) for member in members())
    span = f">={version.major}.{version.minor},<{version.major}.{version.minor + 1}"
    for member in members():
        file = member.folder / "pyproject.toml"
        text = file.read_text(encoding="utf-8")
        text = re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', text, count=1)
        files[file] = re.sub(rf'"({names})(\[\w+\])?[<>=][^"]*"', rf'"\1\2{span}"', text)
        package = member.source / "__init__.py"
        code = package.read_text(encoding="utf-8")
        if "__version__" in code:
            files[package] = re.sub(r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"', code)
    for name in ("CITATION.cff", "docs/image/Dockerfile", "docs/image/compose.yaml"):
        text = (root / name).read_text(encoding="utf-8")
        new = re.sub(r"(?m)(^version: |orchestrion:)\d[\d.]*\d", rf"\g<1>{version}", text)
        files[root / name] = new
    files[root / "CHANGELOG.md"] = change_log(root, version)
    return files


def change_log(root: Path, version: Version) -> str:
    """Return CHANGELOG.md with a section for this version, made of the fragments."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8").rstrip("\n")
    section = [f"## {version} ({datetime.date.today():%Y-%m-%d})"]
    for kind in KINDS:
        lines = [
            fragment.read_text(encoding="utf-8").strip()
            for fragment in fragments(root)
            if fragment.name.endswith(f".{kind}.md")
        ]
        if lines:
            section += [
                "",
                f"### {kind.capitalize()}",
                "",
                *(f"- {line}" for line in sorted(lines)),
            ]
    head, mark, earlier = text.partition("\n## ")
    return "\n\n".join(filter(None, [head, "\n".join(section), mark.strip("\n") + earlier])) + "\n"


def build(member: Member, folder: Path, version: Version) -> Path:
    """Build one wheel and check its metadata.

    Raises:
        SystemExit: it cannot be built, or does not say what pyproject.toml says.
    """
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*command, "-w", str(folder), str(member.folder)], check=True)
    [wheel] = folder.glob(f"{member.name.replace('-', '_')}-{version}-*.whl")
    with ZipFile(wheel) as archive:
        [name] = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
        typed = any(one.endswith("/py.typed") for one in archive.namelist())
    if not typed or (metadata["Name"], metadata["Version"]) != (member.name, str(version)):
        sys.exit(f"{wheel.name}: its name, version or py.typed is wrong")
    return wheel


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
