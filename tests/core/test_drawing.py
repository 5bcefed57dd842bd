"""What the conformance kit takes for a draw of a component."""

from __future__ import annotations

import random
from importlib import import_module
from pathlib import Path

import pytest

from orchestrion.testing._watch import drawing


def test_what_a_library_draws_while_it_is_imported_is_not_the_components(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draws_when_imported.py").write_text("import random\nNUMBER = random.random()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with drawing() as imported:
        import_module("draws_when_imported")
    imported.check_own("act()")
    with drawing() as own:
        random.random()
    with pytest.raises(AssertionError, match="the process shares"):
        own.check_own("act()")
