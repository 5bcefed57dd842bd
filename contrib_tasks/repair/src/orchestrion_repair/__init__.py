"""Program repair as a task for Orchestrion."""

__version__ = "0.1.0"
