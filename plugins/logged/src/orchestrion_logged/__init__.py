"""Logged decisions: read, write, learn from them, and judge other policies by them."""

from orchestrion_logged.records import Context, Logged, LogWriter, read_log

__all__ = ["Context", "LogWriter", "Logged", "read_log"]
