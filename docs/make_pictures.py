"""Draws the README's pictures: the studio's pages of a run and of an episode.

python dev.py python docs/make_pictures.py RUNS NAME    # a run's folder is RUNS/NAME

Needs Playwright (`pip install playwright`) and a Chromium on PATH. The studio must be installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PICTURES = Path(__file__).parent
SIZE = {"width": 1280, "height": 860}
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def main(runs: str, name: str) -> int:
    """Start a studio, take both pictures, and end it."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        sys.exit("no chromium on PATH; install one")
    studio = subprocess.Popen(
        ["orchestrion", "studio", runs, "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert studio.stderr is not None
        address = studio.stderr.readline().split()[-1].rstrip("/")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
            page = browser.new_page(viewport=SIZE)
            page.goto(f"{address}/run/{name}?wait=1", wait_until="networkidle")
            page.screenshot(path=PICTURES / "studio-run.png")
            page.goto(f"{address}/episodes/{name}", wait_until="networkidle")
            page.locator('a[href*="/episode/"]').first.click()
            page.wait_for_load_state("networkidle")
            page.screenshot(path=PICTURES / "studio-episode.png")
            browser.close()
    finally:
        studio.terminate()
        studio.wait()
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
