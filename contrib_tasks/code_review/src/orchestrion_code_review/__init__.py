"""Code review as a task: teams write, review and refactor functions; hidden tests judge them."""

__version__ = "0.1.0"
