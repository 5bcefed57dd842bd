"""Pydantic AI agents as agents of Orchestrion teams; see the README."""
