"""The code that runs inside a sandbox; it imports only the standard library.

This package alone is mounted into sandboxes, under its full name, without the package around it.
"""
