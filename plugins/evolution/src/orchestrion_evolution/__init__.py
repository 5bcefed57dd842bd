"""Graphs of agents, evolved: reward up, cost down.

    from orchestrion_evolution import NSGA2, Space, Value

    space = Space(choices=("coder", "reasoner", "vote"), slots=5)
    search = NSGA2(space)
    for i in range(100):
        trials = search.ask(20, key.child(i))
        search.tell([(t.genome, Value(quality_of(t.graph), cost_of(t.graph))) for t in trials])
    print(search.front())

Public names are imported on first use, so that listing plugins is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_evolution.genome import Genome as Genome
    from orchestrion_evolution.genome import Range as Range
    from orchestrion_evolution.genome import Slot as Slot
    from orchestrion_evolution.genome import Space as Space
    from orchestrion_evolution.genome import as_text as as_text
    from orchestrion_evolution.genome import canonical as canonical
    from orchestrion_evolution.genome import graph_of as graph_of
    from orchestrion_evolution.nsga2 import NSGA2 as NSGA2
    from orchestrion_evolution.nsga2 import crossover as crossover
    from orchestrion_evolution.nsga2 import mutate as mutate
    from orchestrion_evolution.search import FAILED as FAILED
    from orchestrion_evolution.search import GraphTrial as GraphTrial
    from orchestrion_evolution.search import RandomSearch as RandomSearch
    from orchestrion_evolution.search import Search as Search
    from orchestrion_evolution.search import Value as Value
    from orchestrion_evolution.search import hypervolume as hypervolume
    from orchestrion_evolution.successive_halving import SuccessiveHalving as SuccessiveHalving

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
