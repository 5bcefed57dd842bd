"""Draws the pictures of the README and of the gallery: parts of the studio's pages of real runs.

python dev.py python docs/make_pictures.py [RUNS]

Trains each example whose run is not in the folder RUNS yet (by default `runs/pictures`); all of
them take a quarter of an hour of one core. Needs Playwright and Pillow (`pip install playwright
pillow`) and a Chromium on PATH. The studio must be installed.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
WIDTH, HEIGHT = 1120, 800
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
COLOURS = 256
MOST_BYTES = 60_000
SOLVED = "/episodes/{run}?source=learned&solved=yes&order=turns"
PICTURES = {
    "studio-run": ("quick", "/run/{run}?wait=1", ""),
    "studio-episode": ("quick", SOLVED, "episode"),
    "gallery-relay": ("relay", "/run/{run}?wait=1", "#live-curves"),
    "gallery-dag": ("dag", "/run/{run}?wait=1", "figure.topology"),
    "gallery-evolution": ("evolution", "/learned/{run}", ".plot:has(.scatter)"),
    "gallery-ensemble": ("ensemble", "/learned/{run}", "#settings-0"),
    "gallery-beam": ("code-review-beam", "/learned/{run}", "#beam-0"),
    "gallery-marl": ("marl", "/learned/{run}", "section:has(td .spark) .scroll"),
    "gallery-routing": ("routing", "/run/{run}?wait=1", "#live-report .stack"),
    "gallery-repair": ("repair", SOLVED, "episode"),
}
"""By file: the example, the page, and the part of it that is shown; "" for what a visitor sees
first, "episode" for that of the first episode in the list."""


def main(runs: Path) -> None:
    """Train what is missing, start a studio, take all pictures, and end it."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        sys.exit("no chromium on PATH; install one")
    for example in dict.fromkeys(example for example, *_ in PICTURES.values()):
        if not (runs / f"{example}-1" / "run.db").exists():
            config = DOCS / "examples" / f"{example}.yaml"
            command = ["orchestrion", "train", str(config), "-o", f"run.directory={runs}"]
            subprocess.run(command, check=True)
    command = ["orchestrion", "studio", str(runs), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as studio:
        assert studio.stderr is not None
        address = studio.stderr.readline().split()[-1].rstrip("/")
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                page.set_default_timeout(180_000)
                for name, (example, path, part) in PICTURES.items():
                    target = address + path.replace("{run}", f"{example}-1")
                    data = small(taken(page, target, part))
                    if len(data) > MOST_BYTES:
                        sys.exit(f"{name}.png has {len(data):,} bytes; {MOST_BYTES:,} are the most")
                    (DOCS / f"{name}.png").write_bytes(data)
                    print(f"{name}.png: {len(data):,} bytes")
                browser.close()
        finally:
            studio.terminate()


def taken(page: Any, address: str, part: str) -> bytes:
    """Return a picture of a page, or of a part of it, as PNG."""
    page.goto(address, wait_until="networkidle")
    if part == "episode":
        page.locator('a[href*="/episode/"]').first.click()
        page.wait_for_load_state("networkidle")
    if part in ("", "episode"):
        page.wait_for_timeout(500)
        return bytes(page.screenshot())
    shown = page.locator(part).first
    shown.scroll_into_view_if_needed()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    return bytes(shown.screenshot())


def small(png: bytes) -> bytes:
    """Return a picture with a palette of its own."""
    from PIL import Image

    file = io.BytesIO()
    # By coverage: thin lines of agents keep their colours, however few points they have.
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    method = Image.Quantize.MAXCOVERAGE
    picture.quantize(COLOURS, method, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1] if len(sys.argv) == 2 else "runs/pictures"))
