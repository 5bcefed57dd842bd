"""Pages in a real browser: a training that is followed, hostile contents, keyboard, axe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from orchestrion.runs import RunReader, run_folders
from tests.plugins.studio.episodes_support import hostile_run
from tests.plugins.studio.made import HOSTILE, make_run
from tests.workspace import ROOT

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = Path("/usr/bin/chromium")
if not CHROMIUM.exists():
    pytest.skip("there is no chromium", allow_module_level=True)

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
AXE = os.environ.get("ORCHESTRION_AXE", "")
"""The file axe.min.js of the npm package axe-core, to look for faults in accessibility."""
PROGRAM = str(Path(sys.executable).parent / "orchestrion")
PAGES = (
    "/runs",
    "/run/hostile?wait=1&more=1&diff=plain-1",
    "/run/plain-1?wait=1",
    "/episodes/plain-1",
    "/episode/plain-1?id=0/0/0",
    "/learned/plain-1",
    "/compare?run=plain-1&run=hostile",
    "/nope",
)
TRAINING = f"""\
include: [{ROOT / "docs" / "examples" / "relay-few.yaml"}]
task: {{train: 16, test: 8}}
trainer: {{episodes: 60}}
run: {{retention: all}}
evaluation: {{baselines: {{random: {{policy: {{use: random}}}}}}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "plain-1")
    make_run(folder / ("a-long-name-" * 6))
    make_run(folder / "hostile", agents=(HOSTILE, "b", "c"), text=HOSTILE)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    command = [PROGRAM, "studio", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1].rstrip("/")
        finally:
            process.terminate()
            process.wait(20)
            process.stderr.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def faults() -> list[str]:
    """What pages did that none may do; looked at when the test ends."""
    return []


@pytest.fixture
def opened(browser: Any, address: str, faults: list[str]) -> Iterator[Callable[..., Any]]:
    """Opens pages that note requests to other hosts, errors and dialogs as faults."""
    contexts = []

    def dismiss(dialog: Any) -> None:
        faults.append(dialog.message)
        dialog.dismiss()

    def opened(width: int = 1280, **options: Any) -> Any:
        size = {"width": width, "height": 900}
        context = browser.new_context(base_url=address, viewport=size, **options)
        contexts.append(context)
        context.set_default_timeout(120_000)  # however busy the machine is
        page = context.new_page()
        page.on("request", lambda r: None if r.url.startswith(address) else faults.append(r.url))
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", dismiss)
        return page

    yield opened
    for context in contexts:
        context.close()
    expected = "the server responded with a status of 404"
    assert [fault for fault in faults if expected not in fault] == []


def visit(page: Any, path: str) -> None:
    """Open a page, with all that it draws."""
    page.goto(path, wait_until="networkidle")
    if path.startswith("/run/"):
        page.locator("figure[data-plot]").first.locator(".uplot").wait_for()
        page.locator("figure.topology").scroll_into_view_if_needed()


@pytest.mark.parametrize("width", [1280, 400])
def test_pages_are_as_wide_as_the_window(opened: Callable[..., Any], width: int) -> None:
    page = opened(width)
    for path in PAGES:
        visit(page, path)
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, f"{path} is {wider} px wider than the window"


@pytest.mark.skipif(not AXE, reason="ORCHESTRION_AXE names no axe.min.js of the npm axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened: Callable[..., Any], scheme: str) -> None:
    page = opened(color_scheme=scheme)
    page.add_init_script(path=AXE)  # by the browser: the pages' policy stays in force
    for path in PAGES:
        visit(page, path)
        found = page.evaluate("axe.run().then(result => result.violations)")
        serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in serious] == [], path


def test_a_training_is_followed_then_its_episodes_are_read_and_compared(
    opened: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "live.yaml").write_text(TRAINING)
    command = [PROGRAM, "train", str(tmp_path / "live.yaml"), "-o", f"run.directory={folder}/now"]
    page = opened()
    page.add_init_script(
        "window.loads = Number(sessionStorage.loads = 1 + +(sessionStorage.loads ?? 0))"
    )
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as training:
        wait_for_iteration(folder / "now", training)
        training.send_signal(signal.SIGSTOP)  # until somebody looks
        try:
            with page.expect_response(lambda answer: "/live/" in answer.url):
                page.goto("/run/now/live-1")
            page.locator(".status.running").wait_for()
            curve = page.locator("#plot-reward")
            points = len(curve_of(curve))
        finally:
            training.send_signal(signal.SIGCONT)
        page.locator(".status.completed").wait_for()
        assert training.wait(60) == 0
    with RunReader(folder / "now" / "live-1") as reader:
        iterations = reader.iterations()
    page.locator("#live-key", has_text=f"{len(iterations)} of {len(iterations)}").wait_for()
    assert points < len(curve_of(curve))
    assert curve_of(curve) == [pytest.approx(i.reward, rel=1e-5) for i in iterations]
    curve.locator(".uplot").wait_for()
    page.locator("#live-report .verdict").wait_for()
    assert page.evaluate("window.loads") == 1

    page.get_by_role("link", name="Episodes").click()
    page.locator(".list tbody a").first.click()
    page.locator(".turn").first.wait_for()
    page.get_by_role("link", name="Compare").click()
    for name in ("now/live-1", "plain-1"):
        page.get_by_label(name, exact=True).check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="now/live-1 minus plain-1").wait_for()
    page.locator("#plot-compare-reward .uplot").wait_for()


def wait_for_iteration(root: Path, training: subprocess.Popen[bytes]) -> None:
    """Return when the first iteration of the run in a folder is committed."""
    while training.poll() is None:
        for run in run_folders(root):
            with RunReader(run) as reader:
                if reader.last_iteration() is not None:
                    return
        time.sleep(0.02)
    assert training.stderr is not None
    pytest.fail(f"the training ended: {training.stderr.read().decode()}")


def curve_of(figure: Any) -> list[float]:
    """Return the values of each iteration that a figure shows."""
    values: list[float] = figure.evaluate("figure => JSON.parse(figure.dataset.plot).series[0].y")
    return values


def test_hostile_episodes_are_shown_and_do_nothing(
    opened: Callable[..., Any], folder: Path
) -> None:
    with RunReader(hostile_run(folder / "attacks")) as reader:
        names = [row.id for row in reader.episode_page().rows]
    page = opened(400)
    for name in names:
        page.goto(f"/episode/attacks?id={quote(name)}")
        page.keyboard.press("e")
        page.keyboard.press("j")
        assert page.locator(".turn.here").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.goto("/episodes/attacks")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/episode/attacks?*")
    page.keyboard.press("u")
    page.wait_for_url("**/episodes/attacks")
    page.keyboard.press("/")
    page.keyboard.type("alert(8)")
    page.keyboard.press("Enter")
    page.wait_for_url("**/episodes/attacks?text=alert%288%29")
    assert page.locator(".list tbody a").count() == 1


def test_it_works_by_keyboard(opened: Callable[..., Any]) -> None:
    page = opened()
    page.goto("/runs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("/")
    page.keyboard.type("plain")
    page.locator("#runs", has_text="1 of").wait_for()
    page.keyboard.press("Tab")
    page.locator("#runs tbody a").focus()
    page.keyboard.press("Enter")
    page.locator("h1", has_text="plain-1").wait_for()
    page.wait_for_load_state("load")
    slider = page.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".step").text_content() == "iteration 3"
    page.locator("#theme").press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
