"""Graphs of agents: their records, validation, policies and drawings.

    from orchestrion_dag import Edge, Graph, Node, policy_of, to_mermaid, validate

    graph = Graph(nodes={"review": Node("critic", output={"ok": "boolean"})},
                  edges=["draft -> review", Edge("review", "publish", when="data.ok")])
    wiring = validate(graph)          # a Node for each name, an Edge for each arrow; or ValueError
    policy = policy_of(graph, roster) # a policy's runtime, e.g. for `Job(policy=...)`
    print(to_mermaid(graph))

Public names are imported on first use, so that listing plugins stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_dag.dag import Dag as Dag
    from orchestrion_dag.dag import DagPolicy as DagPolicy
    from orchestrion_dag.dag import node_states as node_states
    from orchestrion_dag.dag import policy_of as policy_of
    from orchestrion_dag.drawing import to_dot as to_dot
    from orchestrion_dag.drawing import to_mermaid as to_mermaid
    from orchestrion_dag.graph import Edge as Edge
    from orchestrion_dag.graph import Graph as Graph
    from orchestrion_dag.graph import Node as Node
    from orchestrion_dag.graph import Wiring as Wiring
    from orchestrion_dag.graph import as_config as as_config
    from orchestrion_dag.graph import wire as wire
    from orchestrion_dag.machine import NodeState as NodeState
    from orchestrion_dag.plan import GraphPlan as GraphPlan
    from orchestrion_dag.validation import validate as validate

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
