"""API keys: a file of names and hashes, so that the server never stores a key."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrion import UsageError
from orchestrion_serve.limits import Accounts, KeyLimits

SHORTEST = 16
"""Characters of a key: shorter ones could be guessed from their hash."""


LIMITS: Mapping[str, str] = {
    "requests/minute": "requests",
    "tokens/minute": "tokens",
    "usd/day": "usd_a_day",
    "usd": "usd",
}
MODEL, LOG = "model/", "log"


class Keys:
    """Names of clients by the SHA-256 of their keys, and what each may use.

    Args:
        hashes: by name.
        limits: by name; others have none.
        spent: the file that keeps the money that was spent; None keeps it in memory.
        models: by name, which served model answers when the client asks for another name. A model
            that stands here is served to no other client.
        logs: by name, the folder of the client's own log within that of all logs.
    """

    def __init__(
        self,
        hashes: Mapping[str, str],
        limits: Mapping[str, KeyLimits] | None = None,
        spent: Path | None = None,
        models: Mapping[str, Mapping[str, str]] | None = None,
        logs: Mapping[str, str] | None = None,
    ) -> None:
        self._hashes = {name: bytes.fromhex(text) for name, text in hashes.items()}
        self.accounts = Accounts(limits or {}, spent)
        self.models, self.logs = models or {}, logs or {}

    def __len__(self) -> int:
        return len(self._hashes)

    @classmethod
    def read(cls, path: Path) -> Keys:
        """Read a file with one `NAME SHA256HEX` a line; blank lines and `# comments` are skipped.

        Settings may follow: limits, such as `requests/minute=60 tokens/minute=100000 usd/day=5
        usd=100`, `model/NAME=MODEL` and `log=FOLDER`; see `Keys`. What is spent is kept in a file
        beside it, with `.spent` after its name, if a limit is in US dollars: for one server at a
        time.

        Raises:
            UsageError: the file cannot be read, a line is malformed, a name occurs twice, or there
                is no key.
            StoreError: another server counts what these keys spend.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None
        hashes: dict[str, str] = {}
        limits: dict[str, KeyLimits] = {}
        models: dict[str, Mapping[str, str]] = {}
        logs: dict[str, str] = {}
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
            given = _settings((match[3] or "").split(), f"{path}:{number}")
            numbers = {LIMITS[name]: _number(name, given[name]) for name in LIMITS if name in given}
            if numbers:
                limits[match[1]] = KeyLimits(**numbers)  # type: ignore[arg-type]
            models[match[1]] = {
                name.removeprefix(MODEL): text
                for name, text in given.items()
                if name.startswith(MODEL)
            }
            if LOG in given:
                logs[match[1]] = given[LOG]
        if not hashes:
            raise UsageError(f"{path}: contains no key")
        money = any(of_key.counts_money for of_key in limits.values())
        spent = path.with_name(f"{path.name}.spent") if money else None
        return cls(hashes, limits, spent, models, logs)

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


def _settings(words: Sequence[str], where: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for word in words:
        name, _, text = word.partition("=")
        fits = text and (
            (name in LIMITS and _number(name, text) > 0)
            or (name.startswith(MODEL) and name != MODEL)
            or (name == LOG and re.fullmatch(r"\w[\w.-]{0,63}", text, re.ASCII))
        )
        if not fits or name in given:
            known = ", ".join(f"{known}=N" for known in LIMITS)
            raise UsageError(
                f"{where}: {word!r:.80} is not one of {known}, {MODEL}NAME=MODEL, {LOG}=FOLDER, "
                "each at most once"
            )
        given[name] = text
    return given


def _number(name: str, text: str) -> float:
    """Return the number of a limit; 0 if it is none."""
    number = float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text) else 0.0
    if name.startswith("usd"):
        return number
    return 0.0 if number % 1 else int(number)


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
