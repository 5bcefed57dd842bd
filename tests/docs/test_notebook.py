"""The notebook of the manual holds the code of its page, and runs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

NOTEBOOK = ROOT / "docs" / "notebooks" / "train.ipynb"


def test_it_holds_the_first_blocks_of_its_page() -> None:
    """CI, which has no kernel, runs these with the page."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if "outputs" in cell]
    code = ["".join(cell["source"]) for cell in cells]
    page = [block.text.strip() for block in blocks(ROOT / "docs" / "python.md")]
    assert code == page[: len(code)]
    assert not any(cell["outputs"] for cell in cells)


def test_it_trains_plots_evaluates_and_opens_an_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient", reason="executes notebooks")
    nbformat = pytest.importorskip("nbformat", reason="reads notebooks")
    pytest.importorskip("ipykernel", reason="executes notebooks")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, 4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute(env=os.environ)
    pages = [
        "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    train, run, report, metrics, episode, graph = pages
    assert "<progress value='25' max='25'>" in train
    assert "completed" in train
    assert re.search("<bdi>training reward</bdi></td><td><bdi>[▁▂▃▄▅▆▇█]{2,} from", run)
    assert "learned minus this one" in run
    assert "held-out split" in report
    assert "<details open>" in episode
    assert "<th>agent</th><th>then</th>" in graph
    assert metrics.startswith("<div") or not metrics  # a data frame, where one can be made
