"""Shows what agents wrote, as HTML that cannot do anything: no link, no image, no script.

Characters that are not seen, or that turn text around, are shown by their code, as the command
line does. Colours come from the style sheet, by class.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = [
    "clipped",
    "coded",
    "contents",
    "highlighted",
    "pretty",
    "printable",
    "source_name",
    "unified_diff",
    "visible",
]

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_LEXERS = ("python", "diff", "json", "yaml", "bash", "sql", "javascript", "html", "c", "rust")


def visible(text: str) -> str:
    """Return text with its unseen characters shown by their codes; tabs and line ends stay."""
    return _UNSEEN.sub(_code_of, text.replace("\r\n", "\n"))


def _code_of(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def source_name(source: str) -> str:
    """Return in words where an episode comes from: training, or the evaluation of a contender."""
    return "training" if source == "train" else f"evaluation of {visible(source)}"


def printable(data: Any) -> Any:
    """Return data that JSON and HTML can carry: no NaN, and no halves of characters."""
    if isinstance(data, float):
        return data if isfinite(data) else None
    if isinstance(data, str):
        return data if data.isascii() else data.encode(errors="backslashreplace").decode()
    if isinstance(data, dict):
        return {printable(key): printable(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [printable(item) for item in data]
    return data


def pretty(data: Any, most: int | None = None) -> str:
    """Return data as JSON with indents; a note in its place where it is nested too deeply.

    Args:
        data: plain data, mappings and lists that cannot be changed included.
        most: stop soon after so many characters.
    """
    encoder = json.JSONEncoder(ensure_ascii=False, indent=2, default=_plain)
    pieces, size = [], 0
    try:
        for piece in encoder.iterencode(data):
            pieces.append(piece)
            size += len(piece)
            if most is not None and size > most:
                break
    except RecursionError:
        return "(nested too deeply to be shown)"
    return "".join(pieces)


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else list(value)


def clipped(text: str, most: int) -> str:
    """Return the beginning of a text, with its length, if it has more characters than that."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def coded(text: str) -> Markup:
    """Return a sentence as HTML: what stands between backticks is code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(Markup.escape(text))))


def unified_diff(old: Sequence[str], new: Sequence[str]) -> str:
    """Return the lines that changed, with three unchanged ones around them; "" if none did."""
    lines = difflib.unified_diff(old, new, lineterm="", n=3)
    return "\n".join(list(lines)[2:])


def contents(shown: dict[str, Any]) -> Markup:
    """Return a shown text (see `episode.Showing`) as HTML, in the form that it names."""
    text, form = shown["text"], shown["form"]
    if form == "markdown":
        return Markup('<div class="md" dir="auto">{}</div>').format(
            Markup(_markdown().render(visible(text)))
        )
    if form in _LEXERS:
        return highlighted(text, form)
    kind = "text mono" if form == "mono" else "text"
    return Markup('<pre class="{}" dir="auto">{}</pre>').format(kind, visible(text))


def highlighted(text: str, language: str) -> Markup:
    """Return code as HTML, coloured by classes."""
    return Markup('<pre class="code" tabindex="0" data-language="{}"><code>{}</code></pre>').format(
        language, Markup(_coloured(visible(text), language))
    )


def _coloured(text: str, language: str, attributes: str = "") -> str:
    from pygments import highlight
    from pygments.formatters.html import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    if language not in _LEXERS or len(text) > 20_000:
        return str(Markup.escape(text))
    # A line that never ends is what patterns are slow on.
    if max(map(len, text.split("\n"))) > 2000:
        return str(Markup.escape(text))
    coloured: str = highlight(
        text, get_lexer_by_name(language), HtmlFormatter(nowrap=True, classprefix="t-")
    )
    return coloured


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    reader = MarkdownIt(
        "commonmark", {"html": False, "breaks": True, "highlight": _coloured}
    ).enable("table")
    # Addresses are shown as they were written: what an agent wrote leads nowhere.
    return reader.disable(["link", "image", "autolink", "reference", "html_inline", "html_block"])
