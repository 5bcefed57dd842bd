"""Settings of the manual's site; `python docs/build_site.py` builds it."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

from orchestrion import __version__

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("plugins", "contrib_agents", "contrib_tasks")

project = "Orchestrion"
author = "The Orchestrion developers"
copyright = "the Orchestrion developers"
version = release = __version__

extensions = ["myst_parser"]
root_doc = "docs/README"
# Pages stand where GitHub shows them too, so that one link serves both.
include_patterns = [
    "docs/*.md",
    "docs/reference/*.md",
    "docs/examples/README.md",
    "core/README.md",
    *(f"{folder}/README.md" for folder in FOLDERS),
    *(f"{folder}/*/README.md" for folder in FOLDERS),
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "tests/README.md",
]
exclude_patterns = [".*", "**/src", "**/__pycache__", "docs/build", "changelog.d"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"Orchestrion {version}"
html_copy_source = False
html_show_sourcelink = False
html_permalinks_icon = "#"
html_static_path: list[str] = []
pygments_style, pygments_dark_style = "friendly", "github-dark"
# Blocks are shown as they are run: some hold placeholders that no language knows.
suppress_warnings = ["misc.highlighting_failure"]

SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.M | re.S)
PAGE = re.compile(r"^\| \[[^]]+\]\(([^)]+)\.md\)", re.M)


def on_read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn links to folders into links to their READMEs, and list all pages in the index."""
    folder = (ROOT / docname).parent

    def readme(match: re.Match[str]) -> str:
        return (
            f"]({match[1]}/README.md)" if (folder / match[1] / "README.md").exists() else match[0]
        )

    source[0] = re.sub(r"\]\(([\w./-]+?)/\)", readme, source[0])
    if docname == root_doc:
        source[0] += contents(source[0])


def contents(index: str) -> str:
    """Return a table of contents for each section of the manual's index, and for the rest."""
    sections = [(title, PAGE.findall(text)) for title, text in SECTION.findall(index)]
    members = [ROOT / "core/README.md", *ROOT.glob("*/*/README.md")]
    packages = sorted(
        f"/{file.relative_to(ROOT).with_suffix('').as_posix()}"
        for file in members
        if file.relative_to(ROOT).parts[0] in (*FOLDERS, "core")
    )
    others = ["/README", "/CONTRIBUTING", "/SECURITY", "/CHANGELOG", "/tests/README"]
    others += [f"/{folder}/README" for folder in FOLDERS]
    trees = [*sections, ("Packages", packages), ("The project", others)]
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {title}\n\n"
        + "\n".join(pages)
        + "\n```\n"
        for title, pages in trees
    )


def setup(app: Sphinx) -> None:
    """Connect this module with the build."""
    app.connect("source-read", on_read)
