"""A report: the pages of a run as one HTML file that loads nothing."""

from __future__ import annotations

import re

from markupsafe import Markup

from orchestrion import OrchestrionError
from orchestrion.runs import EpisodeFilter, EpisodeOrder, RunReader
from orchestrion_studio.app import PAGES
from orchestrion_studio.contents import source_name
from orchestrion_studio.page import HERE, Page, Query, render

MOST_BYTES = 2_800_000
"""File size beyond which no episode is added."""
STYLES = ("studio.css", "lessons.css", "episodes.css")
EACH = 2
"""Episodes of each kind in the sample."""

# Whatever agents wrote is escaped in the pages, so that these find the pages' own markup alone.
_ATTRIBUTE = re.compile(r' (id|for|aria-labelledby|aria-describedby|aria-controls)="([^"]+)"')
_LINK = re.compile(r' href="([^"]*)"')
_LIVE = re.compile(r' (data-[\w-]+|hx-[\w:-]+)="[^"]*"')
_CONTROLS = re.compile(
    r"<(form|button|script|template|noscript)\b.*?</\1>|<(p|span) class=\"keys\">.*?</\2>",
    re.DOTALL,
)


def html_of(store: RunReader) -> str:
    """Return a run as one HTML document: its page, what it learned, and a sample of episodes."""
    pages = {page.path: page for page in PAGES}
    for more in ("1", ""):  # all other metrics, where they are not too many
        query = Query(store.directory.parent, store.directory.name, {"wait": ["1"], "more": [more]})
        page = _part(pages["/run/{run}"], query, store, "run")
        if len(page) < MOST_BYTES / 2:
            break
    parts = [
        {"id": "run", "title": "Run", "body": page},
        {
            "id": "learned",
            "title": "What was learned",
            "body": _part(pages["/learned/{run}"], query, store, "learned"),
        },
    ]
    size = sum(len(part["body"]) for part in parts) + len(_styles())
    episodes: list[dict[str, str]] = []
    left_out = 0
    for name, why in sample_of(store).items():
        inner = Query(query.folder, query.run, {"id": [name]})
        body = _part(pages["/episode/{run}"], inner, store, f"episode-{len(episodes) + 1}")
        if size + len(body.encode(errors="replace")) > MOST_BYTES:
            left_out += 1
            continue
        size += len(body.encode(errors="replace"))
        episodes.append(
            {"id": f"episode-{len(episodes) + 1}", "name": name, "why": why, "body": body}
        )
    return render(
        Page("/report", "report.html", lambda query, reader: {}, "Report"),
        {
            "run": query.run,
            "parts": parts,
            "episodes": episodes,
            "left_out": left_out,
            "stored": store.episode_page(EpisodeFilter(), limit=1).candidates,
            "style": Markup(_styles().replace("</", "<\\/")),
        },
        query=query,
        static=True,
    )


def sample_of(store: RunReader) -> dict[str, str]:
    """Return ids of some episodes, with the reason why each is in the sample.

    Of the team's own evaluation, and of training: solved ones with the highest reward, unsolved
    ones with the lowest, and the last.
    """
    own = next(iter(store.load_evaluations()), "")
    sample: dict[str, str] = {}
    for source in dict.fromkeys(name for name in (own, "train") if name):
        title = source_name(source)
        kinds: tuple[tuple[str, EpisodeFilter, EpisodeOrder, bool], ...] = (
            ("solved, highest reward", EpisodeFilter(source=source, success=True), "reward", True),
            ("not solved, lowest", EpisodeFilter(source=source, success=False), "reward", False),
            ("last", EpisodeFilter(source=source), "number", True),
        )
        for why, wanted, order, descending in kinds:
            page = store.episode_page(wanted, order=order, descending=descending, limit=EACH)
            for row in page.rows:
                sample.setdefault(row.id, f"{title}: {why}")
    return sample


def _part(page: Page, query: Query, store: RunReader, prefix: str) -> Markup:
    """Return what a page shows, without scripts and forms, with ids and links of its own."""
    try:
        html = render(page, page.plain(query, store), query=query, static=True)
    except OrchestrionError as error:
        return Markup("<p>This part cannot be shown: {}</p>").format(str(error))
    html = html.partition("<main")[2].partition(">")[2].rpartition("</main>")[0]
    html = _LIVE.sub("", _CONTROLS.sub("", html))
    html = _ATTRIBUTE.sub(lambda match: f' {match[1]}="{_prefixed(match[2], prefix)}"', html)
    return Markup(_LINK.sub(lambda match: _link(match[1], prefix), html))


def _prefixed(ids: str, prefix: str) -> str:
    return " ".join(f"{prefix}-{id}" for id in ids.split())


def _link(target: str, prefix: str) -> str:
    """Return the attribute for a link: places in this part stay, other pages are not there."""
    if target.startswith("#"):
        return f' href="#{prefix}-{target[1:]}"'
    if target.startswith("/episodes/"):
        return ' href="#episodes"'
    return ""


def _styles() -> str:
    paths = [HERE / "static" / name for name in STYLES]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
