"""PettingZoo games as tasks for Orchestrion."""
