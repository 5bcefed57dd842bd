"""Figures, times and sizes as they are read."""

from __future__ import annotations

import pytest
from orchestrion_studio import wording

NONE = wording.NONE


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("figure", {None: NONE, 2.0: "2", 1234.5: "1,234", 0.123456: "0.123", 1e-6: "0.000001"}),
        ("fixed", {None: NONE, 0.5: "0.500", 0.0: "0", 0.0001: "0.0001", 150.25: "150"}),
        ("signed", {None: NONE, 0.5: "+0.5", -0.5: "-0.5", 0.0: "0"}),
        ("difference", {0.5: "+0.500", -0.5: "-0.500", None: NONE}),
        ("count", {None: NONE, 1234.0: "1,234"}),
        ("percent", {None: NONE, 0.125: "12.5%", float("inf"): NONE}),
        ("usd", {None: NONE, 0.0: "$0.00", 1.5: "$1.50", 0.1234: "$0.123", 1e-6: "$0.000001"}),
        ("plain_time", {None: NONE, 0.0: "1970-01-01 00:00"}),
        (
            "duration",
            {
                None: NONE,
                9.94: "9.9 s",
                42.0: "42 s",
                150.0: "2 min 30 s",
                7500.0: "2 h 5 min",
                180_000.0: "2 d 2 h",
            },
        ),
    ],
)
def test_figures_are_written_for_people(name: str, texts: dict[float | None, str]) -> None:
    write = getattr(wording, name)
    assert {value: write(value) for value in texts} == texts
