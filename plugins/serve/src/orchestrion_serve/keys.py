"""API keys: a file of names and hashes, so that the server never stores a key."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from pathlib import Path

from orchestrion import UsageError

__all__ = ["Keys", "hash_of"]

SHORTEST = 16
"""Characters of a key: shorter ones could be guessed from their hash."""


class Keys:
    """Names of clients by the SHA-256 of their keys."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = {name: bytes.fromhex(text) for name, text in hashes.items()}

    @classmethod
    def read(cls, path: Path) -> Keys:
        """Read a file with one `NAME SHA256HEX` a line; blank lines and `# comments` are skipped.

        Raises:
            UsageError: the file cannot be read, a line is malformed, a name occurs twice, or there
                is no key.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None
        hashes: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            match = re.fullmatch(r"\s*([\w.-]{1,64})\s+([0-9a-fA-F]{64})\s*", line, re.ASCII)
            if match is None:
                raise UsageError(
                    f"{path}:{number}: write a name and the key's hash, which "
                    "`orchestrion serve --hash-key` prints"
                )
            if match[1] in hashes:
                raise UsageError(f"{path}:{number}: the name {match[1]!r} occurs twice")
            hashes[match[1]] = match[2]
        if not hashes:
            raise UsageError(f"{path}: contains no key")
        return cls(hashes)

    def name_of(self, key: str) -> str | None:
        """Return the name that a key belongs to; None if it is not among them.

        The time it takes tells nothing about the stored hashes.
        """
        digest = hashlib.sha256(key.encode(errors="replace")).digest()
        matching = None
        for name, stored in self._hashes.items():
            if hmac.compare_digest(digest, stored):
                matching = name
        return matching


def hash_of(key: str) -> str:
    """Return the SHA-256 of a key, in hexadecimal.

    Raises:
        UsageError: the key is too short or not plain ASCII without spaces.
    """
    if len(key) < SHORTEST or not re.fullmatch(r"[!-~]+", key):
        raise UsageError(
            f"a key has at least {SHORTEST} characters, all of them ASCII and no spaces; "
            "`openssl rand -hex 32` makes one"
        )
    return hashlib.sha256(key.encode()).hexdigest()
