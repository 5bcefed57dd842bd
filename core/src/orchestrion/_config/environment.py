"""Expands `${env:NAME}` in values and reads the `.env` file beside a config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from orchestrion._config.nodes import BROKEN, Node, Problems, Source, walk
from orchestrion._secrets import register
from orchestrion._suggest import did_you_mean

_REFERENCE = re.compile(r"(\$?)\$\{env:([^}]*)\}")
_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s:@]*:([^/?#\s]+)@")
_TOKEN = re.compile(
    r"(?i)[a-z][a-z0-9+.-]*://[^\s#]*[?&][\w-]*(?:token|secret|password|api_?key)=([^&#\s]+)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*"


def expand(root: Node, environment: Mapping[str, str], problems: Problems) -> None:
    """Replace references in all text below `root`; a node remembers its text from before.

    `$${env:NAME}` stands for the text `${env:NAME}` itself.
    """
    for path, node in walk(root):
        if isinstance(node.value, str) and "${env:" in node.value:
            _expand(node, path, environment, problems)


def _expand(node: Node, path: str, environment: Mapping[str, str], problems: Problems) -> None:
    text: str = node.value
    missing: list[str] = []
    used: list[str] = []

    def value_of(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        if not _NAME.fullmatch(name):
            problems.add(node, path, f"{match[0]!r} names no environment variable")
            missing.append(name)
        elif name not in environment:
            close = did_you_mean(name, environment)
            problems.add(
                node, path, f"environment variable {name} is set neither here nor in .env{close}"
            )
            missing.append(name)
        used.append(name)
        return environment.get(name, "")

    value = _REFERENCE.sub(value_of, text)
    node.value = BROKEN if missing else value
    node.raw = text if used else None


def escape(text: str) -> str:
    """Return text from which `expand` makes the given text."""
    return _REFERENCE.sub(lambda match: f"${match[0]}", text) if "${env:" in text else text


def check_addresses(root: Node, problems: Problems) -> None:
    """Refuse passwords and tokens in addresses; those from the environment are secrets."""
    for path, node in walk(root):
        if not isinstance(node.value, str) or "://" not in node.value:
            continue
        if _secrets_in(node.value if node.raw is None else _REFERENCE.sub("", node.raw)):
            problems.add(
                node,
                path,
                "has a password or token in the address, which would be stored with the run; "
                "write ${env:NAME} in its place, and set that variable",
            )
        for secret in _secrets_in(node.value):
            register(path, secret)
            register(path, unquote(secret))


def _secrets_in(address: str) -> list[str]:
    matches = (pattern.match(address) for pattern in (_PASSWORD, _TOKEN))
    return [match[1] for match in matches if match is not None]


def variables(root: Node) -> list[str]:
    """Return the names of all environment variables that a config refers to."""
    names: dict[str, None] = {}
    for _, node in walk(root):
        for escaped, name in _REFERENCE.findall(node.raw or ""):
            if not escaped:
                names[name] = None
    return list(names)


def read_dotenv(path: Path, problems: Problems) -> dict[str, str]:
    """Return the variables of a `.env` file: NAME=value lines, quotes and `export` allowed."""
    source = Source(str(path), path.parent)
    try:
        if path.exists() and not path.is_file():  # opening a pipe may wait forever
            problems.add(Node(None, source), "", "cannot be read: it is not a file")
            return {}
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, ValueError) as exc:
        problems.add(Node(None, source), "", f"cannot be read: {type(exc).__name__}")
        return {}
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(_LINE, line)
        if match is None:
            # The line is not shown: it may be a key.
            problems.add(Node(None, source, number), "", "not of the form NAME=value")
        else:
            values[match[1]] = _unquoted(match[2])
    return values


def _unquoted(text: str) -> str:
    for quote in "\"'":
        if text.startswith(quote) and (end := text.find(quote, 1)) > 0:
            return text[1:end]
    return re.split(r"\s+#", text)[0]
