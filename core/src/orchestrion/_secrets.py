"""Keep the secrets of a process, and take their values out of everything that is written.

A component asks for one with `OpenContext.secret`; the config registers its own. From then on the
value is replaced in everything that core writes: stores, exports, errors, logs, tracebacks, JSON.
It is found as it is, and as base64, in URLs, and as JSON or Python would escape it.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_WORDS = re.compile(
    r"(?:^|_)(?:(?:API|ACCESS)?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE
)

SHORTEST: Final = 6
"""Shorter values are not taken out: they are placeholders, and occur in ordinary text."""


class Secret:
    """A value that shows its name alone; `reveal` gives it to whoever makes the request."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str, value: str) -> None:
        self.name, self._value = name, value
        register(name, value)

    def reveal(self) -> str:
        """Return the value itself; empty where there is none."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"Secret({self.name})"

    def __reduce__(self) -> Any:
        raise TypeError(f"the secret {self.name} cannot be stored")


class _Registry:
    """Every form of every registered value."""

    def __init__(self) -> None:
        self.forms: dict[str, str] = {}
        self.text: re.Pattern[str] | None = None
        self.watcher: Callable[[str, str], None] | None = None

    def add(self, name: str, value: str) -> None:
        # Nothing that JSON, YAML, CSV or a URL would have to escape.
        mark = f"[{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}]"
        new = {form: mark for form in _forms(value) if form not in self.forms}
        if not new:
            return
        self.forms |= new
        # The longest first: a form may begin with another.
        forms = sorted(self.forms, key=lambda form: (-len(form), form))
        self.text = re.compile("|".join(map(re.escape, forms)))
        if self.watcher is not None:
            self.watcher(name, value)


_SECRETS = _Registry()


def register(name: str, value: str) -> None:
    """Keep a value out of everything that is written from now on; `name` stands in its place."""
    value = value.strip()
    if len(value) < SHORTEST:
        return
    if not _SECRETS.forms:
        _watch_logs()
    _SECRETS.add(name, value)
    for part in _credentials(value):
        register(name, part)


def watch_secrets(watcher: Callable[[str, str], None] | None) -> None:
    """Have a function called with the name and the value of each secret registered from now on."""
    _SECRETS.watcher = watcher


def _credentials(value: str) -> list[str]:
    """Return the secret parts of "Bearer KEY" or "Basic BASE64": others may repeat them alone."""
    scheme, _, rest = value.partition(" ")
    if not rest or len(rest.split()) != 1:
        return []
    if scheme.lower() != "basic":
        return [rest]
    try:
        decoded = b64decode(rest, validate=True).decode()
    except ValueError:
        return [rest]
    return [rest, decoded.partition(":")[2]]


def register_named(variables: Mapping[str, str], strictly: bool = False) -> None:
    """Register those variables whose names say that they are secret.

    `strictly` means that a whole word of the name says so, unlike TOKENIZER.
    """
    for name, value in variables.items():
        secret = (_WORDS if strictly else _SECRET).search(name)
        if secret and not value.strip().isdigit():
            register(name, value)


def hidden(text: str) -> str:
    """Return text without the values of known secrets."""
    if _SECRETS.text is None:
        return text
    return _SECRETS.text.sub(lambda match: _SECRETS.forms[match[0]], text)


def hidden_bytes(data: bytes) -> bytes:
    """Return bytes of UTF-8 text without the values of known secrets."""
    if _SECRETS.text is None:
        return data
    return hidden(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def partial_secret(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a secret."""
    longest = 0
    for form in _SECRETS.forms:
        for length in range(longest + 1, min(len(form), len(text) + 1)):
            if text.endswith(form[:length]):
                longest = length
    return longest


def _forms(value: str) -> set[str]:
    """Return the spellings of a value that are long enough not to occur in ordinary text."""
    raw = value.encode(errors="surrogatepass")
    forms = {
        value,
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        json.dumps(json.dumps(value)[1:-1])[1:-1],
        raw.hex(),
        raw.hex().upper(),
    }
    # UTF-8 that was taken for Latin-1, as happens to headers.
    garbled = raw.decode("latin-1")
    forms |= {garbled, json.dumps(garbled)[1:-1], repr(garbled)[1:-1]}
    for before in range(3):
        # Inside a longer text base64 depends on where it begins, as in "user:password".
        text = b64encode(b"\0" * before + raw).decode().rstrip("=")
        # Characters that the neighbours have a part in are left out.
        text = text[(0, 2, 3)[before] :]
        if (before + len(raw)) % 3:
            text = text[:-1]
        forms |= {text, text.replace("+", "-").replace("/", "_"), text.replace("/", "\\/")}
    return {form for form in forms if len(form) >= SHORTEST}


def encodes(text: str) -> bool:
    """Return whether a text is UTF-8: half of a surrogate pair is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _watch_logs() -> None:
    """Take secrets out of every log record, whichever handler writes it."""
    make = logging.getLogRecordFactory()

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        log_record = make(*args, **kwargs)
        try:
            text = log_record.getMessage()
        except Exception:  # a record that cannot be formatted is its handler's affair
            return log_record
        clean = hidden(text)
        if clean != text:
            log_record.msg, log_record.args = clean, ()
        if log_record.exc_info and log_record.exc_info[0] is not None:
            # Formatters take this text if it is there.
            text_of_error = "".join(traceback.format_exception(*log_record.exc_info)).rstrip("\n")
            if (clean := hidden(text_of_error)) != text_of_error:
                log_record.exc_text = clean
        return log_record

    logging.setLogRecordFactory(record)
