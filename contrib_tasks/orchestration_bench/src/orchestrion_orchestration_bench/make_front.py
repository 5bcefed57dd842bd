"""Prints the Pareto front of the default committee tables with five slots, as JSON.

    python -m orchestrion_orchestration_bench.make_front > front_5.json

The distribution ships the result as `data/front_5.json`: a million committees take a while.
"""

from __future__ import annotations

import json

from orchestrion_orchestration_bench.committee import Committee
from orchestrion_orchestration_bench.committee_exact import front_json, pareto_front


def main() -> None:
    """Compute and print it."""
    front = front_json(pareto_front(Committee(slots=5)))
    lines = ",\n".join(f"    {json.dumps(point)}" for point in front)
    print(f'{{\n  "slots": 5,\n  "front": [\n{lines}\n  ]\n}}')


if __name__ == "__main__":
    main()
