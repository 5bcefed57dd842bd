"""Text files mention no machine they were written on, and are plain UTF-8."""

from __future__ import annotations

import re

from tests.workspace import ROOT, files

# Put together here, so that this file passes its own test.
FOLDERS = ["/".join(("", name, "")) for name in ("work", "farm", "root")] + ["." + "library"]
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted"),
        ("registry", "npmjs"),
        ("deb", "debian"),
    )
]
FORBIDDEN = re.compile(
    "|".join(
        [rf"(?<![\w.}}]){re.escape(name)}" for name in FOLDERS] + [re.escape(h) for h in HOSTS]
    )
)
BINARY = {".png", ".gz", ".zip", ".safetensors", ".gif", ".jpg"}


def test_no_file_mentions_the_machine_it_was_written_on_or_a_registry() -> None:
    wrong = []
    for path in files():
        if path.suffix in BINARY:
            continue
        where = path.relative_to(ROOT)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            wrong.append(f"{where}: neither UTF-8 text nor a known kind of binary file")
            continue
        for number, line in enumerate(lines, 1):
            if FORBIDDEN.search(line):
                wrong.append(f"{where}:{number}: {line.strip()[:80]}")
    assert wrong == []


def test_the_pattern_finds_what_it_should() -> None:
    slash = "/"
    assert FORBIDDEN.search(f"see {slash}work{slash}main")
    assert FORBIDDEN.search(f"'{slash}root{slash}.cache'")
    assert FORBIDDEN.search("https://pypi" + ".org/simple")
    assert not FORBIDDEN.search("/".join(("docs", "work", "notes.md")))


def test_no_secret_like_file_is_part_of_the_repository() -> None:
    names = [path.name for path in files()]
    assert [name for name in names if name == ".env" or name.endswith((".pem", ".key"))] == []
