"""A task for Orchestrion made of your own rows of questions and answers."""
