"""Writes plugin packages to start from; the command is `new`."""
