"""What a page is: a function that gives plain data, and a template that shows them.

The same data are rendered at the page's path, given as JSON below `/api`, and written into reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from attrs import field, frozen

from orchestrion import OrchestrionError, UsageError
from orchestrion.runs import RunReader
from orchestrion_studio.contents import printable
from orchestrion_studio.readers import Readers

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
Data = dict[str, Any]
"""What `json.dumps(..., allow_nan=False)` takes: None in place of NaN."""
RUN_PAGES = (
    ("/run/{run}", "Run"),
    ("/episodes/{run}", "Episodes"),
    ("/learned/{run}", "Learned"),
)
"""The tabs of a run: the path of a page and its text. A page that joins adds its line here."""
DRAWINGS = "bar curves data_table draw_topology forest graph scatter sparkline tree".split()
"""Macros of `drawings.html` that all templates may call."""


class NotFoundError(OrchestrionError):
    """What a page was asked for does not exist."""


@frozen
class Query:
    """What a page is asked for.

    Args:
        folder: below which all runs are.
        run: the name of the run that the path names: its folder, relative to `folder`.
        values: the parameters of the address.
        readers: runs that are open already.
    """

    folder: Path
    run: str = ""
    values: Mapping[str, Sequence[str]] = field(factory=dict)
    readers: Readers = field(factory=Readers)

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter, or the default if it is not given."""
        return self.texts(name)[-1] if self.texts(name) else default

    def texts(self, name: str) -> list[str]:
        """Return all values of a parameter that may be given several times."""
        return [value for value in self.values.get(name, ()) if value]

    def number(self, name: str, default: int, low: int = 0, high: int = 10**9) -> int:
        """Return a parameter as a number within limits; the default if it is not given.

        Raises:
            UsageError: it is no whole number.
        """
        text = self.text(name)
        try:
            return min(max(int(text), low), high) if text else default
        except ValueError:
            raise UsageError(f"{name}: want a whole number, not {text!r:.80}") from None

    def real(self, name: str) -> float | None:
        """Return a parameter as a real number; None if it is not given.

        Raises:
            UsageError: it is no number, or not a finite one.
        """
        text = self.text(name)
        try:
            value = float(text) if text else None
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise UsageError(f"{name}: want a number, not {text!r:.80}")
        return value

    def directory(self, run: str) -> Path:
        """Return the folder of a run below the folder.

        Raises:
            NotFoundError: there is none of this name.
        """
        directory = self.folder / run
        is_run = not any(part in ("", ".", "..") for part in run.split("/")) and "\0" not in run
        try:
            is_run = is_run and (directory / "run.db").is_file()
        except OSError:  # no file has so long a name
            is_run = False
        if not is_run:
            raise NotFoundError(f"there is no run {run!r:.200} below {self.folder.name}")
        return directory

    def open(self, run: str) -> AbstractContextManager[RunReader]:
        """Lend a run below the folder, open for reading, to a `with` block.

        Raises:
            NotFoundError: there is none of this name.
            StoreError: it cannot be read.
        """
        return self.readers.lend(self.directory(run))


@frozen
class Page:
    """A page.

    Args:
        path: of the address; `{run}` stands for the name of a run, which may contain slashes.
        template: a file in `templates`; sees the data by their names.
        data: returns what the page shows. Gets the query, and the run that the path names, open
            for reading; None where the path names none.
        title: says what the page shows, in a sentence, for the API's documentation.
        parameters: of the address, by name, with their meaning.
    """

    path: str
    template: str
    data: Callable[[Query, Any], Data]
    title: str
    parameters: Mapping[str, str] = field(factory=dict)

    def plain(self, query: Query, reader: RunReader | None) -> Data:
        """Return the data as JSON and HTML can carry them."""
        plain: Data = printable(self.data(query, reader))
        return plain


def page_address(path: str, run: str = "", /, **values: Any) -> str:
    """Return the address of a page: quoted, without parameters that are None or empty."""
    given = {name: value for name, value in values.items() if value not in (None, "", [])}
    address = path.replace("{run}", quote(run))
    return f"{address}?{urlencode(given, doseq=True)}" if given else address


def render(page: Page, data: Data, **context: Any) -> str:
    """Return a page as HTML; whatever data contain is escaped.

    Args:
        page: whose template is used.
        data: what `page.data` returned.
        context: further names for the template; `static` is true in a report, where nothing is
            loaded and links to other pages lead nowhere.
    """
    return environment().get_template(page.template).render(page=page, **context, **data)


def warm() -> None:
    """Compile all templates, so that the first visitor does not wait for that."""
    for name in environment().list_templates():
        environment().get_template(name)


@cache
def environment() -> Environment:
    """Return the templates, with what all of them may call."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from orchestrion_studio import contents, drawing, pictures, wording

    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(
        {name: getattr(source, name) for source in (drawing, pictures) for name in source.__all__},
        address=page_address,
        run_pages=RUN_PAGES,
    )
    templates.filters.update({name: getattr(wording, name) for name in wording.__all__})
    templates.filters.update({name: getattr(contents, name) for name in contents.__all__})
    drawings = templates.get_template("drawings.html").module
    templates.globals.update({name: getattr(drawings, name) for name in DRAWINGS})
    return templates
