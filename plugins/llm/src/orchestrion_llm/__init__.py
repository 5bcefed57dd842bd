"""Language models behind APIs, for Orchestrion; see the README for the models themselves.

Public for other plugins: `orchestrion_llm.prices`, what tokens cost.
"""
