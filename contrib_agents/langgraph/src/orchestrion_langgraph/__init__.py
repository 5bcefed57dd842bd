"""LangGraph graphs as agents of Orchestrion teams; see the README."""
