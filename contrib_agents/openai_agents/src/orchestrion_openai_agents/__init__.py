"""Agents of the OpenAI Agents SDK as agents of Orchestrion teams; see the README."""
