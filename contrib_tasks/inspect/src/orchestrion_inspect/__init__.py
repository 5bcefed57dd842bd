"""Evaluations of Inspect as tasks for Orchestrion."""
