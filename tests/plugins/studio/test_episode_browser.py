"""Hostile contents in a real browser: no dialog, no error, no request to another host."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("playwright", reason="browser tests need playwright")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("browser tests need chromium on PATH", allow_module_level=True)

import uvicorn  # noqa: E402
from orchestrion_studio import create_app  # noqa: E402
from playwright.sync_api import Dialog, sync_playwright  # noqa: E402

from orchestrion.runs import RunReader  # noqa: E402
from tests.plugins.studio.episodes_support import hostile_run  # noqa: E402

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A studio that shows a hostile run."""
    hostile_run(tmp_path / "hostile")
    config = uvicorn.Config(create_app(tmp_path, token=None), lifespan="off", ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def test_a_browser_shows_hostile_episodes_and_does_nothing_else(
    address: str, tmp_path: Path
) -> None:
    with RunReader(tmp_path / "hostile") as reader:
        names = [row.id for row in reader.episode_page().rows]
    heard: list[str] = []
    requested: set[str] = set()

    def dismiss(dialog: Dialog) -> None:
        heard.append(dialog.message)
        dialog.dismiss()

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 400, "height": 800})
        page.on("dialog", dismiss)
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: requested.add(request.url))
        for name in names:
            page.goto(f"{address}/episode/hostile?id={quote(name)}")
            page.keyboard.press("e")
            page.keyboard.press("j")
            assert page.locator(".turn.here").count() == 1
            assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.goto(f"{address}/episodes/hostile")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/episode/hostile?*")
        page.keyboard.press("u")
        page.wait_for_url("**/episodes/hostile")
        page.keyboard.press("/")
        page.keyboard.type("alert(8)")
        page.keyboard.press("Enter")
        page.wait_for_url("**/episodes/hostile?text=alert%288%29")
        assert page.locator(".list tbody a").count() == 1
        browser.close()
    assert heard == []
    assert [url for url in requested if not url.startswith(address)] == []
