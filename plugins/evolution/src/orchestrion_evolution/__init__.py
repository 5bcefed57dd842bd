"""Topologies of agents, evolved.

    from orchestrion_evolution import NSGA2, RandomSearch, Space, Told, Value

    space = Space(choices=("coder", "reasoner", "vote"), slots=5)
    search = NSGA2(space)
    for i in range(100):
        trials = search.ask(20, key.child(i))
        search.tell([Told(one.genome, Value(quality_of(one.graph), cost_of(one.graph)))
                     for one in trials])
    print(search.front())

Public names are imported on first use, so that listing plugins costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrion_evolution.edges import EdgeReinforce as EdgeReinforce
    from orchestrion_evolution.fronts import FAILED as FAILED
    from orchestrion_evolution.fronts import Value as Value
    from orchestrion_evolution.fronts import hypervolume as hypervolume
    from orchestrion_evolution.genome import Genome as Genome
    from orchestrion_evolution.genome import Setting as Setting
    from orchestrion_evolution.genome import Slot as Slot
    from orchestrion_evolution.genome import Space as Space
    from orchestrion_evolution.genome import canonical as canonical
    from orchestrion_evolution.grid import MapElites as MapElites
    from orchestrion_evolution.operators import crossover as crossover
    from orchestrion_evolution.operators import mutate as mutate
    from orchestrion_evolution.populations import NSGA2 as NSGA2
    from orchestrion_evolution.populations import MuPlusLambda as MuPlusLambda
    from orchestrion_evolution.racing import SuccessiveHalving as SuccessiveHalving
    from orchestrion_evolution.search import RandomSearch as RandomSearch
    from orchestrion_evolution.search import Search as Search
    from orchestrion_evolution.search import Told as Told
    from orchestrion_evolution.search import Trial as Trial
    from orchestrion_evolution.topology import as_text as as_text
    from orchestrion_evolution.topology import graph_of as graph_of

_HOMES = {
    "edges": "EdgeReinforce",
    "fronts": "FAILED Value hypervolume",
    "genome": "Genome Setting Slot Space canonical",
    "grid": "MapElites",
    "operators": "crossover mutate",
    "populations": "MuPlusLambda NSGA2",
    "racing": "SuccessiveHalving",
    "search": "RandomSearch Search Told Trial",
    "topology": "as_text graph_of",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'orchestrion_evolution' has no attribute {name!r}")
    value = getattr(import_module(f"orchestrion_evolution.{home}"), name)
    globals()[name] = value
    return value
