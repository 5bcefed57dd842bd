"""The check of settings that hold a service's address."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit


def check_address(instance: object, attribute: Any, value: str) -> None:
    """Check that a setting is an HTTP address; a validator of attrs.

    Raises:
        ValueError: it is no address, or holds a password or a query, which logs would show.
    """
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of brackets, or of the port
        usable = False
    if not usable or not value.isprintable() or " " in value:
        raise ValueError(f"{attribute.name}: must be an address like https://example.com/path")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"{attribute.name}: must hold neither a password nor a query")
