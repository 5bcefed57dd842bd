"""Pages in a real browser: a training that is followed, keyboard, widths, dark and light."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrion.runs import RunStore
from tests.plugins.studio.made import CONFIG, HOSTILE, episode, make_run

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = Path("/usr/bin/chromium")
if not CHROMIUM.exists():
    pytest.skip("there is no chromium", allow_module_level=True)

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
AXE = os.environ.get("ORCHESTRION_AXE", "")
"""The file axe.min.js of the npm package axe-core, to look for faults in accessibility."""
PAGES = ("/runs", "/run/hostile?wait=1&more=1&diff=plain-1", "/run/plain-1?wait=1", "/nope")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "plain-1")
    make_run(folder / "hostile", agents=(HOSTILE, "b", "c"), text=HOSTILE)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    program = str(Path(sys.executable).parent / "orchestrion")
    command = [program, "studio", str(folder), "--port", "0"]
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


def opened(browser: Any, address: str, faults: list[str], **options: Any) -> Any:
    """Return a new page that notes requests to other hosts, errors and dialogs as faults."""
    page = browser.new_context(bypass_csp=bool(AXE), **options).new_page()
    page.on("request", lambda r: None if r.url.startswith(address) else faults.append(r.url))
    page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(dialog.message))
    return page


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_sound(browser: Any, address: str, width: int, scheme: str) -> None:
    faults: list[str] = []
    size = {"width": width, "height": 900}
    page = opened(browser, address, faults, viewport=size, color_scheme=scheme)
    for path in PAGES:
        page.goto(address + path, wait_until="networkidle")
        if "/run/" in path:
            page.locator("figure[data-plot]").first.locator(".uplot").wait_for()
            page.locator("figure.topology").scroll_into_view_if_needed()
            page.locator(".topology canvas").first.wait_for(state="attached")
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, f"{path} is {wider} px wider than the window"
        if AXE:
            page.add_script_tag(path=AXE)
            found = page.evaluate("axe.run().then(r => r.violations)")
            serious = [v for v in found if v["impact"] in ("serious", "critical")]
            faults += [f"{path}: {v['id']} {[n['html'] for n in v['nodes']][:3]}" for v in serious]
    expected = "the server responded with a status of 404"
    assert [fault for fault in faults if expected not in fault] == []
    page.context.close()


def test_the_page_of_a_run_follows_its_training(browser: Any, address: str, folder: Path) -> None:
    faults: list[str] = []
    with RunStore.create(folder / "live-1", CONFIG.format(note="x")) as store:
        store.plan(0, 3)
        store.commit_iteration(0, 0, [episode("0/0/0", ["a", "b"], 0.25)], {}, seconds=0.1)
        page = opened(browser, address, faults)
        with page.expect_response(lambda answer: "/live/" in answer.url):
            page.goto(f"{address}/run/live-1")
        page.evaluate("window.notReloaded = true")
        for number, reward in ((1, 0.5), (2, 0.75)):
            written = threading.Thread(
                target=store.commit_iteration,
                args=(0, number, [episode(f"0/{number}/0", ["a", "b"], reward)], {}),
            )
            written.start()
            written.join()
            page.locator("#live-key", has_text=str(reward)).wait_for()
        store.set_status("completed")
    page.locator(".status.completed").wait_for()
    assert page.evaluate("window.notReloaded")
    assert faults == []
    page.context.close()


def test_it_works_by_keyboard(browser: Any, address: str) -> None:
    faults: list[str] = []
    page = opened(browser, address, faults)
    page.goto(f"{address}/runs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("/")
    page.keyboard.type("plain")
    page.locator("#runs", has_text="1 of").wait_for()
    page.keyboard.press("Tab")
    page.locator("#runs tbody a").focus()
    page.keyboard.press("Enter")
    page.locator("h1", has_text="plain-1").wait_for()
    slider = page.locator("input[type=range]")
    slider.focus()
    page.locator(".topology canvas").first.wait_for(state="attached")
    page.keyboard.press("ArrowLeft")
    assert page.locator(".step").text_content() == "iteration 3"
    page.locator("#theme").press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert faults == []
    page.context.close()
