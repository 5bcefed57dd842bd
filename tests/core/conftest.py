"""What several tests of core use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.plugin_support import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A folder for distributions of a test's own, which Python finds."""
    site = Site(tmp_path / "site")
    site.folder.mkdir()
    monkeypatch.syspath_prepend(str(site.folder))
    yield site
    site.forget()
