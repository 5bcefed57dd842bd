"""Builds the manual as a web site, with search, and as text for language models.

python dev.py python docs/build_site.py [FOLDER]    # docs/build unless named
python dev.py python docs/build_site.py --check     # only whether it can be built

Every warning of Sphinx is an error: a link or an anchor that leads nowhere, a page in no list.
Beside the pages come `llms.txt`, a list of pages with a line on each, and `llms-full.txt`, all of
the manual's text.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| \[([^]]+)\]\(([^)]+\.md)\) \| (.+) \|$", re.M)


def main(arguments: list[str]) -> int:
    """Build everything; returns Sphinx's exit code."""
    from sphinx.cmd.build import main as sphinx

    check = arguments == ["--check"]
    target = Path(arguments[0] if arguments and not check else ROOT / "docs" / "build")
    builder = "dummy" if check else "html"
    with TemporaryDirectory() as folder:
        options = ["-q", "-W", "--keep-going", "-b", builder, "-c", str(ROOT / "docs")]
        code = sphinx([*options, "-d", folder, str(ROOT), folder if check else str(target)])
    if code == 0 and not check:
        (target / ".buildinfo").unlink(missing_ok=True)
        write_texts(target)
        (target / "index.html").write_text(
            '<!doctype html><meta charset="utf-8"><title>Orchestrion</title>'
            '<meta http-equiv="refresh" content="0; url=docs/README.html">'
            '<a href="docs/README.html">The manual</a>\n',
            encoding="utf-8",
        )
        print(f"{target / 'docs' / 'README.html'}")
    return code


def write_texts(target: Path) -> None:
    """Write llms.txt and llms-full.txt."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    opening = (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")[1]
    listed, texts = [f"# Orchestrion\n\n> {' '.join(opening.split())}\n"], []
    for title, section in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", index, re.M | re.S):
        rows = ROW.findall(section)
        lines = (
            f"- [{name}](docs/{page.replace('.md', '.html')}): {what}" for name, page, what in rows
        )
        listed.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
        texts += [(ROOT / "docs" / page).read_text(encoding="utf-8") for _, page, _ in rows]
    (target / "llms.txt").write_text("\n".join(listed), encoding="utf-8")
    (target / "llms-full.txt").write_text("\n\n".join(texts), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
