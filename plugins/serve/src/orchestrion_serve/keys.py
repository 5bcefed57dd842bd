"""API keys: a file of names and hashes, so that the server never stores a key."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrion import UsageError
from orchestrion_serve.limits import Accounts, KeyLimits

__all__ = ["Keys", "hash_of"]

SHORTEST = 16
"""Characters of a key: shorter ones could be guessed from their hash."""


LIMITS = {
    "requests/minute": "requests",
    "tokens/minute": "tokens",
    "usd/day": "usd_a_day",
    "usd": "usd",
}


class Keys:
    """Names of clients by the SHA-256 of their keys, and what each may use.

    Args:
        hashes: by name.
        limits: by name; others have none.
        spent: the file that keeps the money that was spent; None keeps it in memory.
    """

    def __init__(
        self,
        hashes: Mapping[str, str],
        limits: Mapping[str, KeyLimits] | None = None,
        spent: Path | None = None,
    ) -> None:
        self._hashes = {name: bytes.fromhex(text) for name, text in hashes.items()}
        self.accounts = Accounts(limits or {}, spent)

    @classmethod
    def read(cls, path: Path) -> Keys:
        """Read a file with one `NAME SHA256HEX` a line; blank lines and `# comments` are skipped.

        Limits may follow, such as `requests/minute=60 tokens/minute=100000 usd/day=5 usd=100`. What
        is spent is kept in a file beside it, with `.spent` after its name.

        Raises:
            UsageError: the file cannot be read, a line is malformed, a name occurs twice, or there
                is no key.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None
        hashes: dict[str, str] = {}
        limits: dict[str, KeyLimits] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            match = re.fullmatch(r"\s*([\w.-]{1,64})\s+([0-9a-fA-F]{64})(\s.*)?", line, re.ASCII)
            if match is None:
                raise UsageError(
                    f"{path}:{number}: write a name and the key's hash, which "
                    "`orchestrion serve --hash-key` prints"
                )
            if match[1] in hashes:
                raise UsageError(f"{path}:{number}: the name {match[1]!r} occurs twice")
            hashes[match[1]] = match[2]
            if words := (match[3] or "").split():
                limits[match[1]] = _limits(words, f"{path}:{number}")
        if not hashes:
            raise UsageError(f"{path}: contains no key")
        return cls(hashes, limits, path.with_name(f"{path.name}.spent") if limits else None)

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


def _limits(words: Sequence[str], where: str) -> KeyLimits:
    given: dict[str, float] = {}
    for word in words:
        name, _, text = word.partition("=")
        number = float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text) else 0.0
        whole = not name.startswith("usd")
        if name not in LIMITS or number <= 0 or (whole and number % 1) or LIMITS[name] in given:
            known = ", ".join(f"{known}=N" for known in LIMITS)
            raise UsageError(f"{where}: {word!r:.80} is not one of {known}, each at most once")
        given[LIMITS[name]] = int(number) if whole else number
    return KeyLimits(**given)  # type: ignore[arg-type]


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
